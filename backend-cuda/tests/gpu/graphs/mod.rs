//! Graph capture. Fences become places in a graph, or each launch records them or waits for them.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

mod captured;
mod launches;
mod meanwhile;
mod setup;

pub(crate) use setup::{THREAD_LOCAL, ok};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    [captured::tests(), launches::tests(), meanwhile::tests()].concat()
}
