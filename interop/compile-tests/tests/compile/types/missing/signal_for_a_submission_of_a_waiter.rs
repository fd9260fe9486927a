fn waiter<'v>(view: &'v syncline::WaitOnly) -> syncline::Signal<'v> {
    view.signal_at(1)
}

fn main() {}
