//! Prints how a CUDA driver behaves, a line for each question.

fn main() {}
