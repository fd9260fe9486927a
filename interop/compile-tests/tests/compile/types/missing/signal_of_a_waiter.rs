fn waiter(view: &syncline::WaitOnly) -> syncline::Result<()> {
    view.signal(1)
}

fn main() {}
