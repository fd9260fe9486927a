use std::os::fd::OwnedFd;

fn adopt(fd: OwnedFd, origin: syncline::handle::Origin) -> syncline::handle::TimelineFd {
    syncline::handle::TimelineFd::from_fd(fd, origin) //~ unsafe function
}

fn main() {}
