//! The part of a timeline that the lock of its state protects.

use crate::base::error::Failure;
use crate::timeline::interval::Interval;
use crate::timeline::waiters::{Ticket, Waiters};

/// Each signal uses the first fields. They and the lock lie in two cache lines.
#[derive(Default)]
#[repr(C)]
pub(super) struct State {
    /// Copy of `Seen::reached` for signalling threads.
    ///
    /// A read of `Seen` would move its cache line from the waiting threads, and the store would
    /// move it once more.
    pub(super) reached: u64,
    pub(super) failure: Option<Failure>,
    pub(super) closed: bool,
    pub(super) waiters: Waiters,
    /// On a closed side of a bridge: the values that other sides can still bring. Only shrinks.
    pub(super) elsewhere: Vec<Interval>,
    /// The value that the watching thread looks for; see `watching`. `None` if it never had the
    /// timeline.
    pub(super) watched: Option<u64>,
    /// The only waiter, if it is a thread that watches the home itself. Stale once that waiter is
    /// gone.
    pub(super) leader: Option<Ticket>,
}
