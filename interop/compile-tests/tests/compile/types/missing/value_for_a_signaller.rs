fn signaller(view: &syncline::SignalOnly) -> syncline::Result<u64> {
    view.value()
}

fn main() {}
