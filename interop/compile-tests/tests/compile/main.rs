//! Tests that run the compiler. Beside each other, because neither keeps all cores busy.
#![allow(clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod rooms;
mod types;
