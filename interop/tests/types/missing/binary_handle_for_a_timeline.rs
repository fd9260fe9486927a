fn import(_: syncline::TimelineFd) {}

fn pass(handle: syncline::BinaryFd) {
    import(handle);
}

fn main() {}
