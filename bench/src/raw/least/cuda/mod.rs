//! CUDA: a timeline is a ring of events, and where Vulkan shares it an imported semaphore, too.
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

/// A list is looked through for what is complete when it is so long, or twice as long as the last
/// look has left it.
const CROWDED: usize = 256;

/// An event, destroyed when nobody has it any more. While somebody besides its queue has it, it is
/// not recorded again.
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

/// A cell for a record of a timed event.
#[derive(Default)]
pub(crate) struct Fence(Mutex<Option<Arc<Mark>>>);

const _: () = {
    const fn of_any_thread<T: Send + Sync>() {}
    of_any_thread::<Timeline>();
    of_any_thread::<Queue>();
    of_any_thread::<Fence>();
};
