fn waiter(view: &syncline::WaitOnly) -> syncline::Result<()> {
    view.signal(1) //~ no method named `signal`
}

fn main() {}
