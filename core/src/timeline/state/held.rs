//! A timeline's part in the graph of held submissions: its count there, and its wakes.

use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::shared::Shared;
use crate::base::run::{Wake, wake_all};
use crate::base::sync::{Ordering, fence};

/// The value that a held submission needs of a timeline, and the waker of its queue, for each one.
///
/// A submission that signals a timeline needs the value of the signal before.
pub(crate) type HeldWaits = SmallVec<[(u64, Arc<dyn Wake>); 4]>;

/// Returns the held submissions that wait for a timeline or signal it.
pub(crate) type WaitingFor = fn(&Shared) -> HeldWaits;

/// Set by the graph with the first queue. Before that nothing is held.
static WAITING_FOR: OnceLock<WaitingFor> = OnceLock::new();

/// Registers the graph of held submissions. There is one in a process.
pub(crate) fn set_waiting_for(waiting_for: WaitingFor) {
    let _ = WAITING_FOR.set(waiting_for);
}

impl Shared {
    /// Counts one more wait or claim in the graph of held submissions. Call it under the graph's
    /// lock.
    ///
    /// The queue that enters a submission there has a fence between this call and its check for a
    /// failed or closed timeline.
    pub(crate) fn add_held_wait(&self) {
        let waits = self.held_waits().load(Ordering::Relaxed);
        self.held_waits().store(waits + 1, Ordering::Relaxed);
    }

    /// Counts one wait or claim less. Same rules as [`Shared::add_held_wait`].
    pub(crate) fn drop_held_wait(&self) {
        let waits = self.held_waits().load(Ordering::Relaxed);
        self.held_waits().store(waits - 1, Ordering::Relaxed);
    }

    /// True if the graph has waits or claims of it. Call it under the graph's lock.
    pub(crate) fn is_in_the_graph(&self) -> bool {
        self.held_waits().load(Ordering::Relaxed) > 0
    }

    /// Wakes every queue that holds a submission which needs a value that will never come.
    ///
    /// The submission waits for this timeline or signals it.
    ///
    /// No lock may be held.
    ///
    /// Call it after the timeline has failed, or after a value has lost the claim that could bring
    /// it.
    pub(super) fn wake_holders(&self) {
        // Pairs with the fence of a queue that adds its wait and then checks the timeline: one of
        // the two threads sees the other.
        fence(Ordering::SeqCst);
        if self.held_waits().load(Ordering::SeqCst) > 0 || self.held_index().is_queue_position() {
            let waiting_for = WAITING_FOR.get();
            let held = waiting_for.map(|waiting_for| waiting_for(self));
            let mut held = held.unwrap_or_default();
            // A closed timeline can still bring the values that are claimed.
            held.retain(|(value, _)| self.unreachable_cause(*value).is_some());
            wake_all(held.into_iter().map(|(_, wake)| wake));
        }
    }
}
