fn import(_: syncline::handle::BinaryFd) {}

fn pass(handle: syncline::handle::SyncFd) {
    import(handle); //~ expected `BinaryFd`, found `SyncFd`
}

fn main() {}
