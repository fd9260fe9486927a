//! JSON for <https://ui.perfetto.dev>, in the Trace Event Format.
//!
//! | | |
//! |---|---|
//! | process | a device of one API, or the host's threads that signalled |
//! | thread | a queue. Its slices are the runs of its submissions on the device. There are more threads if submissions overlapped |
//! | async slices | a submission's time before its run: *held* on the host, then *queued* with the driver |
//! | flow | from a signal to the wait that it released |
//! | instants on the thread `notes` | lost submissions, missing times, waits that ended before their signals |
//!
//! Times are microseconds since the recording began, to the nanosecond. (They count from the
//! earliest time, if that is earlier.) The format needs two corrections to keep slices apart and
//! arrows inside them. A slice is at least 2 ns long. A slice that begins up to 64 ns before its
//! predecessor ends is moved behind it. The arguments of a slice have its recorded times, in
//! nanoseconds since the same origin, with their errors. Times more than eleven days from the
//! origin are shown at that distance, where the format's numbers end.
//!
//! A submission that had begun and not ended at the end of the recording is a slice up to there, of
//! the category `pending`. One that had not begun has no slice, and its time before the run goes on
//! up to there. A failed one has the category `failed`, and its name says so. A run with an unknown
//! time is a slice of 2 ns at its estimated position, of the category `untimed`.
//!
//! If a wait ended before its signal, there is no arrow, and the arguments of the wait's slice say
//! so. Within the errors the viewer would turn the arrow. Beyond the errors it is a fault, which is
//! noted.

mod json;
mod layout;

use std::fmt::{self, Display, Formatter};

use syncline_core::trace::Recording;

use layout::Layout;

/// A recording that [`Display`] writes as JSON.
#[derive(Debug, Clone, Copy)]
pub struct Trace<'r> {
    recording: &'r Recording,
}

impl<'r> Trace<'r> {
    /// Wraps a recording.
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
