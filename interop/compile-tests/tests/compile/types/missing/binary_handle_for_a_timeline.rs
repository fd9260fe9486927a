fn import(_: syncline::handle::TimelineFd) {}

fn pass(handle: syncline::handle::BinaryFd) {
    import(handle);
}

fn main() {}
