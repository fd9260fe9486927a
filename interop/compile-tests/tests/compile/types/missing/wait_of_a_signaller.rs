fn signaller(view: &syncline::SignalOnly) -> syncline::Point<'_> {
    view.at(1)
}

fn main() {}
