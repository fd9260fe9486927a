//! Graph capture: fences that become places in a graph, and fences that every launch records or
//! waits for.
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

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    [captured::tests(), launches::tests(), meanwhile::tests()].concat()
}
