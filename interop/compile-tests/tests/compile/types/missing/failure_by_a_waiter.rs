fn waiter(view: &syncline::WaitOnly, cause: syncline::Error) {
    view.fail(cause); //~ no method named `fail`
}

fn main() {}
