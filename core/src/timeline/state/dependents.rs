//! Work that depends on signals of another device or process (E3).
//!
//! If the device is lost or the process dies, recovery signals unblock the work that waits
//! natively. The work may then find incomplete data, so the timelines that it signals fail.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, Weak};

use super::Shared;
use crate::base::error::Failure;
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::base::sync::{Mutex, Ordering};

/// The signals of submissions that are with a driver and wait for one timeline.
#[derive(Default)]
pub(super) struct Dependents {
    list: Mutex<List>,
    sentinel: OnceLock<Arc<Sentinel>>,
    /// The timeline itself, if another process signals it.
    own: OnceLock<Weak<Shared>>,
    /// Set when recovery starts.
    recovery_started: OnceLock<()>,
}

impl Dependents {
    /// Stores a reference to the timeline itself.
    pub(super) fn set_own(&self, own: Weak<Shared>) {
        let _ = self.own.set(own);
    }

    /// Starts recovery. Returns the timeline itself, or `None` if recovery has started already.
    pub(super) fn start_recovery(&self) -> Option<Weak<Shared>> {
        self.recovery_started.set(()).ok()?;
        Some(self.own.get().cloned().unwrap_or_default())
    }
}

/// Waker that does nothing. Its registration makes the watching thread poll the timeline.
struct Sentinel;

impl Wake for Sentinel {
    fn wake(self: Arc<Self>) {}

    fn is_prompt(&self) -> bool {
        true
    }
}

/// Length at which the list is pruned first. After that, twice the length that pruning leaves.
const FIRST_PRUNE: usize = 64;

#[derive(Default)]
struct List {
    entries: VecDeque<Dependent>,
    prune_at: usize,
    /// The cause, once the timeline is lost. Every dependent added after that fails with it.
    lost: Option<Failure>,
}

/// A submission that waits for `waited`, by its signals.
struct Dependent {
    waited: u64,
    signals: DependentSignals,
}

/// The signals of a submission that waits for other devices or processes.
///
/// All timelines that the submission waits for share the list. So eight waits before eight signals
/// cost eight entries, and not 64.
#[derive(Clone)]
pub(crate) struct DependentSignals(Arc<[(Weak<Shared>, u64)]>);

impl DependentSignals {
    /// From now on the signalled timelines depend on others, too.
    pub(crate) fn new<'a>(signals: impl Iterator<Item = (&'a Arc<Shared>, u64)>) -> Self {
        let noted = signals.map(|(of, value)| {
            // Threads that poll read the same cache line, so it is written only once.
            if !of.depends_on_others() {
                of.seen.depends_on_others.store(true, Ordering::Relaxed);
            }
            (Arc::downgrade(of), value)
        });
        Self(noted.collect())
    }
}

impl Shared {
    /// True if native waits for it must be noted, because it depends on another process.
    #[inline]
    pub(crate) fn depends_on_others(&self) -> bool {
        self.seen.depends_on_others.load(Ordering::Relaxed)
    }

    /// Notes a submission that waits natively for `waited` before its `signals`.
    ///
    /// Call it before the driver has the submission.
    ///
    /// # Errors
    /// The cause, if this timeline is already lost. The signals must fail with it once the driver
    /// has the submission.
    pub(crate) fn note_dependent(
        &self,
        waited: u64,
        signals: &DependentSignals,
    ) -> Result<(), Failure> {
        let mut reached = self.reached();
        let mut list = self.dependents.list.lock();
        let is_long = list.entries.len() >= list.prune_at.max(FIRST_PRUNE);
        if is_long {
            // A timeline in the middle of a chain may be polled by no other thread. So this thread
            // polls it, without the lock.
            drop(list);
            reached = self.refresh();
            list = self.dependents.list.lock();
        }
        let over = |entry: &Dependent| entry.waited <= reached;
        // The list is nearly sorted.
        while list.entries.front().is_some_and(over) {
            list.entries.pop_front();
        }
        if is_long {
            list.entries.retain(|entry| !over(entry));
            list.prune_at = 2 * list.entries.len();
        }
        let lost = list.lost.clone();
        list.entries.push_back(Dependent {
            waited,
            signals: signals.clone(),
        });
        lost.map_or(Ok(()), Err)
    }

    /// Removes a noted submission, because the driver has refused it.
    #[cold]
    pub(crate) fn forget_dependent(&self, signals: &DependentSignals) {
        let mut list = self.dependents.list.lock();
        list.entries
            .retain(|entry| !Arc::ptr_eq(&entry.signals.0, &signals.0));
    }

    /// Fails the timeline and everything that depends on it, because its signalling process is
    /// dead.
    ///
    /// The timeline freezes at the value known to be reached. Dependents that are reached stay so.
    pub(crate) fn fail_with_dependents(&self, cause: &Failure) {
        self.fail_frozen(cause.clone());
        let mut dependents = self.take_unreachable(cause);
        while let Some(Dependent { signals, .. }) = dependents.pop() {
            for (of, value) in &*signals.0 {
                let Some(of) = of.upgrade() else { continue };
                if of.refresh() < *value {
                    of.fail(cause.clone());
                    dependents.extend(of.take_unreachable(cause));
                }
            }
        }
    }

    /// Has the watching thread poll the home until `value` is reached.
    ///
    /// Does nothing unless another process signals the timeline.
    ///
    /// Call it for a native wait of another driver's queue, which E3 treats as a waiter.
    pub(crate) fn watch_for_driver(self: &Arc<Self>, value: u64) {
        if self.is_remote() {
            let sentinel = self.dependents.sentinel.get_or_init(|| Arc::new(Sentinel));
            let sentinel: Arc<dyn Wake> = sentinel.clone();
            let _ = self.register(value, Stage::Reached, sentinel);
        }
    }

    fn take_unreachable(&self, cause: &Failure) -> Vec<Dependent> {
        let reached = self.reached();
        let mut list = self.dependents.list.lock();
        list.lost.get_or_insert_with(|| cause.clone());
        let all = std::mem::take(&mut list.entries);
        drop(list);
        let never = |entry: &Dependent| entry.waited > reached;
        all.into_iter().filter(never).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rstest::rstest;

    use super::*;
    use crate::api::Device as _;
    use crate::base::error::Result;
    use crate::port::attachment::Attachment;
    use crate::port::{ByEngine, Port};
    use crate::{Timeline, host, info::DeviceId};

    /// A counter that a device raises and the host never polls.
    struct Word(Arc<AtomicU64>);

    impl Port for Word {
        fn poll(&self) -> Result<Option<u64>> {
            Ok(Some(self.0.load(Ordering::SeqCst)))
        }

        fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
            self.0.store(value, Ordering::SeqCst);
            Ok(())
        }
    }

    fn line(word: &Arc<AtomicU64>) -> Timeline {
        let port = Attachment::new(DeviceId::new(), 0, Word(word.clone()));
        let port = port.signalled_elsewhere(true);
        Timeline::new("line", 0, |_| Ok([port].into_iter().collect())).unwrap()
    }

    /// The list stays short for any polling and any entry at its front.
    #[rstest]
    #[case::nothing_in_front(None)]
    #[case::an_entry_that_stays_in_front(Some(u64::MAX - 1))]
    fn reached_dependents_are_pruned(#[case] in_front: Option<u64>) {
        let later = host::Device::new().timeline("later").unwrap();
        let reached = Arc::new(AtomicU64::new(0));
        let line = line(&reached);
        let of = line.shared();
        let all = in_front.into_iter().chain(1..=10_000);
        for (waited, value) in all.zip(1_u64..) {
            // The reached value is ten submissions behind.
            reached.store(value.saturating_sub(10), Ordering::SeqCst);
            let signals = DependentSignals::new([(later.shared(), value)].into_iter());
            of.note_dependent(waited, &signals).unwrap();
            let list = of.dependents.list.lock();
            let (length, capacity) = (list.entries.len(), list.entries.capacity());
            assert!(length <= 2 * FIRST_PRUNE, "{length} at {value}");
            assert!(
                capacity <= 4 * FIRST_PRUNE,
                "capacity {capacity} at {value}"
            );
        }
    }

    /// A submission with two waits and two signals: one lost wait fails both signals.
    #[rstest]
    #[case::noted(false)]
    #[case::refused_by_the_driver(true)]
    fn a_loss_fails_each_signal_of_a_noted_submission(#[case] is_refused: bool) {
        let device = host::Device::new();
        let signalled = [1, 2].map(|_| device.timeline("signalled").unwrap());
        let waited = [1, 2].map(|_| line(&Arc::default()));
        let pairs = signalled.iter().map(|line| (line.shared(), 1));
        let signals = DependentSignals::new(pairs);
        for wait in &waited {
            wait.shared().note_dependent(1, &signals).unwrap();
            if is_refused {
                wait.shared().forget_dependent(&signals);
            }
        }
        let cause = crate::Error::NothingToWaitFor.into_cause();
        waited[1].shared().fail_with_dependents(&cause);
        for line in &signalled {
            assert_eq!(line.shared().is_failed(), !is_refused);
        }
        assert!(!waited[0].shared().is_failed());
    }
}
