fn waiter(view: syncline::WaitOnly) -> syncline::Timeline {
    view.into()
}

fn main() {}
