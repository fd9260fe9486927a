fn signaller(
    queue: &syncline::Queue,
    image: &syncline::negotiate::BinarySignalOnly,
) -> syncline::Result<()> {
    unsafe { image.wait_on(queue) } //~ no method named `wait_on`
}

fn main() {}
