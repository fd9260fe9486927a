fn import(_: syncline::handle::TimelineFd) {}

fn pass(handle: syncline::handle::BinaryFd) {
    import(handle); //~ expected `TimelineFd`, found `BinaryFd`
}

fn main() {}
