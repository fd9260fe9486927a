fn waiter(view: syncline::WaitOnly) -> syncline::Timeline {
    view.into() //~ `Timeline: From<syncline::WaitOnly>` is not satisfied
}

fn main() {}
