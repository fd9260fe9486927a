//! How a timeline wakes the held submissions that need it.

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
        if !self.held_index().is_empty() || self.held_index().is_queue_position() {
            let waiting_for = WAITING_FOR.get();
            let held = waiting_for.map(|waiting_for| waiting_for(self));
            let mut held = held.unwrap_or_default();
            // A closed timeline can still bring the values that are claimed.
            held.retain(|(value, _)| self.unreachable_cause(*value).is_some());
            wake_all(held.into_iter().map(|(_, wake)| wake));
        }
    }
}
