fn waiter(queue: &syncline::Queue, view: &syncline::WaitOnly) -> syncline::Result<()> {
    use syncline::backend::Queue as _;
    queue.submit(&[], |_| Ok(()), &[view.at(1)]).map(|_| ()) //~ expected `Signal
}

fn main() {}
