fn signaller(
    queue: &syncline::Queue,
    image: &syncline::negotiate::BinarySignalOnly,
) -> syncline::Result<()> {
    unsafe { image.wait_on(queue) }
}

fn main() {}
