fn import(_: syncline::BinaryFd) {}

fn pass(handle: syncline::SyncFd) {
    import(handle);
}

fn main() {}
