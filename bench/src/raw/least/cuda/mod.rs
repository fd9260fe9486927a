//! The floor on CUDA: a timeline is a ring of events, and an imported semaphore if it is shared.
#![allow(unsafe_code, reason = "shares the driver's handles between threads")]

mod events;
mod queue;
#[cfg(test)]
mod tests;
mod timeline;

use std::sync::{Arc, Mutex};

use crate::raw::cuda::{Calls, Event};

pub(crate) use queue::Queue;
pub(crate) use timeline::Timeline;

/// Smallest length at which a list is checked for complete entries.
///
/// A longer list is checked when it has twice the length that it had after the last check.
const CROWDED: usize = 256;

/// An event, destroyed with its last reference.
///
/// It is recorded again only if its queue has the only reference.
struct Mark {
    calls: Calls,
    event: Event,
}

// SAFETY: events may be used from any thread.
unsafe impl Send for Mark {}
// SAFETY: as for sending.
unsafe impl Sync for Mark {}

impl Drop for Mark {
    fn drop(&mut self) {
        self.calls.destroy(self.event);
    }
}

/// A place for the last record of a timed event.
#[derive(Default)]
pub(crate) struct Fence(Mutex<Option<Arc<Mark>>>);

const _: () = {
    const fn of_any_thread<T: Send + Sync>() {}
    of_any_thread::<Timeline>();
    of_any_thread::<Queue>();
    of_any_thread::<Fence>();
};
