fn waiter(view: &syncline::WaitOnly, cause: syncline::Error) {
    view.fail(cause);
}

fn main() {}
