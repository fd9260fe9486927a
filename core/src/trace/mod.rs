//! Traces: what became of each submission, on every queue that takes part, on one axis of time.

mod recording;

pub use recording::{Arrow, Edge, HostSignal, Outcome, Place, Recording, Submission, Track};
