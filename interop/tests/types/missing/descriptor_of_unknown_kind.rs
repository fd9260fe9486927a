use std::os::fd::OwnedFd;

fn adopt(fd: OwnedFd, origin: syncline::Origin) -> syncline::TimelineFd {
    syncline::TimelineFd::from_fd(fd, origin)
}

fn main() {}
