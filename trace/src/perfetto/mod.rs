//! JSON for <https://ui.perfetto.dev>, in the Trace Event Format.
//!
//! | | |
//! |---|---|
//! | process | a device of one API; the host's threads that signalled |
//! | thread | a queue, in whose slices the device ran its submissions; more of them if submissions overlapped |
//! | async slices | a submission's time before its run: *held* on the host, then *queued* with the driver |
//! | flow | from a signal to the wait that it released |
//! | instants on the thread `notes` | what was lost, times that are missing, waits that were over before their signals |
//!
//! Times are microseconds since the recording was begun (since the earliest time, should one lie
//! before that), to the nanosecond. To keep slices apart, and arrows inside them, the format asks
//! for two things: a slice is at least 2 ns long, and one that begins up to 64 ns before its
//! predecessor ends is moved behind it. The arguments of a slice have its times as they were
//! recorded, in nanoseconds since the same origin, with their errors. What lies more than eleven
//! days from the origin stands at the edge, as the format's numbers end there.
//!
//! A submission that has begun and not ended by the end of the recording is a slice up to there, of
//! the category `pending`. One that has not begun has no slice, and its time before the run goes on
//! up to there. One that failed is of the category `failed`, and its name says so. A run of whose
//! times one or both are unknown is a slice of 2 ns where it must have been, of the category
//! `untimed`.
//!
//! An arrow is left out, and its wait says so among the arguments of its slice, where the wait was
//! over before its signal was made, be it within the errors (the viewer would turn the arrow) or
//! beyond them (which is a fault, and noted).

mod json;
mod layout;

use std::fmt::{self, Display, Formatter};

use syncline_core::trace::Recording;

use layout::Layout;

/// A recording as JSON; [`Display`] writes it.
#[derive(Debug, Clone, Copy)]
pub struct Trace<'r> {
    recording: &'r Recording,
}

impl<'r> Trace<'r> {
    /// The recording as JSON.
    #[must_use]
    pub const fn new(recording: &'r Recording) -> Self {
        Self { recording }
    }
}

impl Display for Trace<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Layout::of(self.recording).write(f)
    }
}
