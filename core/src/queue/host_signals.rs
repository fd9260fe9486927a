//! The signals that the host makes for a queue: listed, started, forgotten and waited for.

use std::sync::Arc;
use std::time::Duration;

use super::relay::Relay;
use super::state::State;
use super::submission::Submission;
use super::submission_queue::SubmissionQueue;
use crate::base::blockers::Blockers;
use crate::base::error::{Error, Result};
use crate::base::run::{Wake, are_wakes_deferred, wake_all};
use crate::base::sync::Instant;
use crate::driver::enqueue::Enqueue;
use crate::held::RelayEntry;
use crate::timeline::point::Point;

impl<E: Enqueue> SubmissionQueue<E> {
    /// Enters the host signals of a submission into the graph of held submissions.
    ///
    /// # Errors
    /// The circle that one of them would close. No signal is in the graph then.
    #[cold]
    pub(super) fn enter_relays(
        &self,
        state: &mut State<E>,
        submission: &Submission<'_>,
    ) -> Result<(), Blockers> {
        let number = submission.number;
        for &(of, claim) in submission.host_signals() {
            match RelayEntry::take(self.origin.clone(), number, of.clone(), claim) {
                Ok(entry) => state.relays.add(number, of, claim.upto, entry),
                Err(circle) => {
                    // The caller has handles of the timelines.
                    drop(state.relays.forget(number));
                    return Err(circle);
                }
            }
        }
        Ok(())
    }

    /// Starts the host signals of a submission that the driver has.
    #[cold]
    pub(super) fn start_relays(&self, submission: &Submission<'_>) {
        let settled = self.lock().relays.prune();
        drop(settled);
        for &(of, claim) in submission.host_signals() {
            let entry = self.lock().relays.take_entry(submission.number, of);
            let relay = Relay::new(self.own_shared(), submission.number, of, claim, entry);
            wake_all([relay as Arc<dyn Wake>]);
        }
    }

    /// Forgets the host signals of submission `number`, which was refused or skipped.
    pub(super) fn forget_relays(&self, number: u64) {
        let forgotten = self.lock().relays.forget(number);
        drop(forgotten);
    }

    /// Waits until the host has made its signals of all submissions up to `number`, which have
    /// finished.
    ///
    /// A signal that will never be made ends the wait, too.
    ///
    /// # Errors
    /// [`Error::TimedOut`].
    pub(super) fn wait_for_relays(
        &self,
        number: u64,
        begun: Instant,
        timeout: Duration,
    ) -> Result<()> {
        // The signals that this thread must make itself come only after its present call.
        if are_wakes_deferred() {
            return Ok(());
        }
        let next = || self.lock().relays.first_upto(number);
        while let Some((relayed, value)) = next() {
            // Not under the lock, because this may be the last reference to the timeline.
            if let Some(of) = relayed.upgrade() {
                let gone = Instant::now().duration_since(begun);
                let of = Some(&of);
                match (Point { of, value }).wait(timeout.saturating_sub(gone)) {
                    Ok(()) | Err(Error::Failed { .. } | Error::Cancelled { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            let settled = self.lock().relays.remove_first(&relayed, value);
            drop(settled);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use rstest::rstest;

    use super::*;
    use crate::api::{Device as _, Queue as _};
    use crate::backend::BackendQueue as _;
    use crate::queue::relay::FIRST_PRUNE;
    use crate::{QueueKind, host};

    /// The list stays short, also behind a signal that waits for its predecessor.
    #[rstest]
    #[case::in_front(false)]
    #[case::behind_a_stuck_one(true)]
    fn settled_relays_are_removed(#[case] is_stuck: bool) {
        let device = host::Device::new();
        let queue = device.queue(QueueKind::Compute, "queue").unwrap();
        let other = host::Device::new();
        let first = other.timeline("first").unwrap();
        let predecessor = first.shared().claim(1, 0).unwrap().interval;
        if is_stuck {
            let signals = [first.signal_at(2)];
            queue.submit(&[], |_| Ok(()), &signals).unwrap();
        }
        let mut kept = Vec::new();
        for number in 0..10 * FIRST_PRUNE {
            let line = other.timeline("line").unwrap();
            let signals = [line.signal_at(1)];
            queue.submit(&[], |_| Ok(()), &signals).unwrap();
            line.at(1).wait(Duration::from_secs(20)).unwrap();
            let (length, capacity) = queue.engine().submissions().lock().relays.size();
            assert!(length <= 2 * FIRST_PRUNE, "{length}");
            assert!(capacity <= 4 * FIRST_PRUNE, "capacity {capacity}");
            if number % 2 == 0 {
                kept.push(line);
            }
        }
        // The outstanding signal is still in the list.
        let idle = queue.idle(Duration::ZERO);
        assert_eq!(idle.is_err(), is_stuck, "{idle:?}");
        first.shared().withdraw(predecessor);
        first.signal(1).unwrap();
        queue.idle(Duration::from_secs(20)).unwrap();
    }
}
