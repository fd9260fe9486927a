fn signaller(view: &syncline::SignalOnly) -> syncline::Result<u64> {
    view.value() //~ no method named `value`
}

fn main() {}
