fn import(_: syncline::handle::BinaryFd) {}

fn pass(handle: syncline::handle::SyncFd) {
    import(handle);
}

fn main() {}
