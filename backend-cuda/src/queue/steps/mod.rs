//! What a submission costs the submitting thread, counted in single steps of the processor.
//!
//! A child process submits above a driver whose functions do nothing. Its parent steps through it
//! and reads each instruction, so the counts do not depend on the speed of the machine.
//! `cargo test --release -p syncline-cuda --lib steps -- --nocapture` prints them.
#![allow(clippy::unwrap_used, reason = "a test's")]

mod submissions;
mod tracer;
