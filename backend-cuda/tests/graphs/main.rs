//! Graph capture: fences that become places in a graph, and fences that every launch records or waits for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

#[path = "../common/mod.rs"]
mod common;

mod captured;
mod launches;
mod meanwhile;
mod setup;

use libtest_mimic::Arguments;

fn main() -> std::process::ExitCode {
    let tests = [captured::tests(), launches::tests(), meanwhile::tests()];
    let trials = common::trials_on_a_gpu(tests.concat());
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
