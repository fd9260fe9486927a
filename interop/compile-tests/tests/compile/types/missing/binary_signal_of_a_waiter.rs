fn waiter(
    recorder: &mut syncline::Recorder<'_>,
    image: &syncline::negotiate::BinaryWaitOnly,
) -> syncline::Result<()> {
    unsafe { image.signal(recorder) } //~ no method named `signal`
}

fn main() {}
