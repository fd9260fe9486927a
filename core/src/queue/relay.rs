//! Signals that the host makes for a queue without a port on its device.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Weak};

use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::held::RelayEntry;
use crate::timeline::state::{Interval, Shared, Standing};

/// Makes one such signal once the submission has finished and the predecessor is reached.
pub(super) struct Relay {
    own: Arc<Shared>,
    number: u64,
    of: Arc<Shared>,
    claim: Interval,
    /// The signal's graph entry. Removed once the signal is made.
    _entry: Option<RelayEntry>,
}

impl Relay {
    /// The relay of `claim` of `of` by submission `number` of the queue with position `own`.
    pub(super) fn new(
        own: &Arc<Shared>,
        number: u64,
        of: &Arc<Shared>,
        claim: Interval,
        entry: Option<RelayEntry>,
    ) -> Arc<Self> {
        Arc::new(Self {
            own: own.clone(),
            number,
            of: of.clone(),
            claim,
            _entry: entry,
        })
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        loop {
            // First the submission, then the predecessor. After each wait `wake` is called again.
            let (of, value) = match self.own.standing(self.number) {
                Standing::Reached => match self.of.standing(self.claim.above) {
                    Standing::Reached if !self.of.is_failed() => {
                        return self.of.signal_claimed(self.claim.upto);
                    }
                    // Others that signal the timeline, too, still get it (E2).
                    Standing::Reached | Standing::Failed(_) => {
                        return self.of.signal_in_place(self.claim);
                    }
                    // Without its predecessor this signal never comes either.
                    Standing::Cancelled => return self.of.withdraw(self.claim),
                    Standing::Pending | Standing::Open => (&self.of, self.claim.above),
                },
                Standing::Failed(cause) => {
                    self.of.signal_in_place(self.claim);
                    return self.of.fail(cause);
                }
                Standing::Cancelled => return self.of.withdraw(self.claim),
                Standing::Pending | Standing::Open => (&self.own, self.number),
            };
            if of.register(value, Stage::Reached, self.clone()).is_some() {
                return;
            }
        }
    }
}

/// The number of relays at which settled ones are removed first. After that, twice what removal
/// leaves.
pub(super) const FIRST_PRUNE: usize = 64;

/// A signal that the host will make for submission `number`.
///
/// Dropped without the queue's lock, because its entry may be the last reference to a timeline.
pub(super) struct OutstandingRelay {
    number: u64,
    of: Weak<Shared>,
    value: u64,
    /// Its entry in the graph of held submissions, until the driver has the submission.
    entry: Option<RelayEntry>,
}

/// The signals that the host will make for a queue, in order.
#[derive(Default)]
pub(super) struct Relays {
    list: VecDeque<OutstandingRelay>,
    /// Settled relays are removed when there are so many, at least [`FIRST_PRUNE`].
    prune_at: usize,
}

impl Relays {
    /// Adds a signal of submission `number`, which is the last one of the queue.
    pub(super) fn add(&mut self, number: u64, of: &Arc<Shared>, value: u64, entry: RelayEntry) {
        self.list.push_back(OutstandingRelay {
            number,
            of: Arc::downgrade(of),
            value,
            entry: Some(entry),
        });
    }

    /// Removes settled signals if the list is long. Returns what must be dropped without the lock.
    pub(super) fn prune(&mut self) -> Vec<(Arc<Shared>, Option<RelayEntry>)> {
        let mut dropped = Vec::new();
        if self.list.len() >= self.prune_at.max(FIRST_PRUNE) {
            self.list.retain_mut(|relayed| {
                // An entry keeps its timeline.
                let Some(of) = relayed.of.upgrade() else {
                    return false;
                };
                let standing = of.standing(relayed.value);
                let is_open = matches!(standing, Standing::Open | Standing::Pending);
                let entry = match is_open {
                    true => None,
                    false => relayed.entry.take(),
                };
                dropped.push((of, entry));
                is_open
            });
            self.prune_at = 2 * self.list.len();
        }
        dropped
    }

    /// The indices of the signals of submission `number`.
    fn of_submission(&self, number: u64) -> Range<usize> {
        let from = self.list.partition_point(|one| one.number < number);
        let upto = self.list.partition_point(|one| one.number <= number);
        from..upto
    }

    /// Takes out the graph entry of the signal of `of` by submission `number`.
    pub(super) fn take_entry(&mut self, number: u64, of: &Arc<Shared>) -> Option<RelayEntry> {
        let signals = self.of_submission(number);
        let mut signals = self.list.range_mut(signals);
        let signal = signals.find(|one| one.of.as_ptr() == Arc::as_ptr(of))?;
        signal.entry.take()
    }

    /// Removes the signals of submission `number`.
    pub(super) fn forget(&mut self, number: u64) -> Vec<OutstandingRelay> {
        self.list.drain(self.of_submission(number)).collect()
    }

    /// The first signal, if it is of a submission up to `number`.
    pub(super) fn first_upto(&self, number: u64) -> Option<(Weak<Shared>, u64)> {
        let first = self.list.front();
        let first = first.filter(|first| first.number <= number)?;
        Some((first.of.clone(), first.value))
    }

    /// Removes the first signal, if it is `value` of `of`.
    pub(super) fn remove_first(
        &mut self,
        of: &Weak<Shared>,
        value: u64,
    ) -> Option<OutstandingRelay> {
        let front = self.list.front()?;
        let is_it = front.value == value && Weak::ptr_eq(&front.of, of);
        is_it.then(|| self.list.pop_front())?
    }

    /// The length of the list, and its capacity.
    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.list.len(), self.list.capacity())
    }
}
