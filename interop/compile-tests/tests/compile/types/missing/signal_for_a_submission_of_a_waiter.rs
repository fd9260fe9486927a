fn waiter<'v>(view: &'v syncline::WaitOnly) -> syncline::Signal<'v> {
    view.signal_at(1) //~ no method named `signal_at`
}

fn main() {}
