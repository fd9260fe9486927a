fn signaller(view: &syncline::SignalOnly) -> syncline::Point<'_> {
    view.at(1) //~ no method named `at`
}

fn main() {}
