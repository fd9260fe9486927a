//! The process's graph, as queues use it.
//!
//! The entry of a queue and that of a host signal are removed on drop of their handles.

use std::sync::Arc;

use super::graph::{Graph, Points, Relayed};
use super::node::{Edges, QueueOrigin};
use crate::base::blockers::{Blockers, Signaller};
use crate::base::error::Error;
use crate::base::run::run_contained;
use crate::base::sync::{Mutex, per_process};
use crate::port::Watch;
use crate::timeline::state::{HeldWaits, Interval, Shared, set_waiting_for};

per_process! { static GRAPH: Mutex<Graph> = Mutex::new(Graph::new()) }

/// The held submissions that wait for `of` or signal it.
///
/// Each waker makes its queue check the submission again. No lock may be held when it is called.
fn waiting_for(of: &Shared) -> HeldWaits {
    GRAPH.lock().waiting_for(of)
}

/// The node that will signal `value` of `of`, and the points that it waits for.
///
/// If `first_only` is true and the node's queue holds earlier submissions, the only point is the
/// end of the first of them.
pub(super) fn signaller(
    of: &Arc<Shared>,
    value: u64,
    first_only: bool,
) -> Option<(Signaller, Points)> {
    GRAPH.lock().signaller(of, value, first_only)
}

/// The errors of the devices of all queues that a check finds lost.
///
/// Calls drivers, so no lock may be held.
#[must_use]
pub fn lost_devices() -> Vec<String> {
    // A separate statement, because a check calls the driver.
    let watches = GRAPH.lock().watches();
    let lost = |watch: &Arc<dyn Watch>| match watch.check() {
        Err(lost @ Error::DeviceLost { .. }) => Some(lost.to_string()),
        _ => None,
    };
    let errors = watches.iter().filter_map(lost).collect();
    // It may be the last handle of a device.
    run_contained(|| drop(watches));
    errors
}

/// A queue's entry in the graph, removed on drop.
pub(crate) struct QueueEntry {
    index: u32,
    origin: Arc<QueueOrigin>,
}

impl QueueEntry {
    pub(crate) fn take(origin: Arc<QueueOrigin>) -> Self {
        set_waiting_for(waiting_for);
        let index = GRAPH.lock().add_queue(origin.clone());
        Self { index, origin }
    }

    /// Enters submission `number`, after all that the queue holds or before them.
    ///
    /// # Errors
    /// The circle that the submission would close. The graph is unchanged then.
    pub(crate) fn enter(&self, number: u64, edges: &Arc<Edges>) -> Result<(), Blockers> {
        GRAPH.lock().enter(self.index, &self.origin, number, edges)
    }

    /// Takes the edges of a submission out of the graph, because it waits for nothing any more.
    ///
    /// It keeps its position.
    pub(crate) fn reduce(&self, number: u64) -> Option<Arc<Edges>> {
        GRAPH.lock().reduce(self.index, number)
    }

    /// Removes a submission that is the first or the last of its queue.
    ///
    /// Does nothing if it is not there.
    pub(crate) fn leave(&self, number: u64) {
        // Dropped without the lock.
        let left = GRAPH.lock().leave(self.index, number);
        drop(left);
    }
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        let left = GRAPH.lock().remove_queue(self.index);
        drop(left);
    }
}

/// The entry of a signal that the host will make for a submission, removed on drop.
pub(crate) struct RelayEntry(u32);

impl RelayEntry {
    /// Enters a signal that the host makes once submission `number` has ended.
    ///
    /// # Errors
    /// The circle that the signal would close. The graph is unchanged then.
    pub(crate) fn take(
        origin: Arc<QueueOrigin>,
        number: u64,
        of: Arc<Shared>,
        claim: Interval,
    ) -> Result<Self, Blockers> {
        let mut signal = Some(Relayed::new(origin, number, of, claim));
        // A refused signal is dropped after the lock is released.
        GRAPH.lock().enter_relayed(&mut signal).map(Self)
    }
}

impl Drop for RelayEntry {
    fn drop(&mut self) {
        let signal = GRAPH.lock().leave_relayed(self.0);
        drop(signal);
    }
}
