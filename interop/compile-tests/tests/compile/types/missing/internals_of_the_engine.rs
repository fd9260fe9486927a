use syncline::internal as _; //~ no `internal` in the root

fn main() {}
