//! Work that depends on signals of another device or process (E3).
//!
//! If the device is lost or the process dies, recovery signals unblock the work that waits
//! natively. The work may then find incomplete data, so the timelines that it signals fail.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use super::shared::Shared;
use crate::base::error::Failure;
use crate::base::run::{Wake, run_contained};
use crate::base::stage::Stage;
use crate::base::sync::{Mutex, per_process};
use crate::timeline::interval::Interval;
use crate::timeline::point::NativePoint;

/// A submission that waits natively for signals of other devices or processes.
///
/// Its queue keeps it until it has finished. So the timelines that it waits for live until then,
/// and a loss is noticed.
pub(crate) struct Dependent {
    number: u64,
    waits: SmallVec<[(Arc<Shared>, u64); 8]>,
    signals: Signals,
}

type Signals = SmallVec<[(Weak<Shared>, u64); 8]>;

/// The dependent submissions of one queue that are not known to be finished, in order.
#[derive(Default)]
pub(crate) struct Dependents(Mutex<VecDeque<Dependent>>);

// The lists of all queues. No other lock is taken while it is held.
per_process! { static LISTS: Mutex<Vec<Weak<Dependents>>> = Mutex::new(Vec::new()) }

impl Dependents {
    pub(crate) fn new() -> Arc<Self> {
        let new = Arc::new(Self::default());
        let mut lists = LISTS.lock();
        if lists.len() == lists.capacity() {
            lists.retain(|list| list.strong_count() > 0);
        }
        lists.push(Arc::downgrade(&new));
        new
    }

    /// Adds submission `number`, which makes the signals of `claims`.
    ///
    /// Call it before the driver has the submission.
    pub(crate) fn add<'a>(
        &self,
        number: u64,
        waits: &[NativePoint<'_>],
        claims: impl Iterator<Item = (&'a Arc<Shared>, Interval)>,
    ) {
        let others = waits.iter().filter(|wait| wait.of.depends_on_others());
        let waits = others.map(|wait| (wait.of.clone(), wait.value)).collect();
        let signals = claims.map(|(of, claim)| {
            // From now on this timeline depends on others, too.
            of.note_depends_on_others();
            (Arc::downgrade(of), claim.upto)
        });
        let signals = signals.collect();
        self.0.lock().push_back(Dependent {
            number,
            waits,
            signals,
        });
    }

    /// Forgets the signals of submission `number`, because the driver has refused it.
    ///
    /// The driver may have some of its waits. Does nothing if the submission was not added.
    #[cold]
    pub(crate) fn forget_signals(&self, number: u64) {
        let mut list = self.0.lock();
        // It was added last.
        if let Some(last) = list.back_mut().filter(|last| last.number == number) {
            last.signals.clear();
        }
    }

    /// Takes out submissions up to `reached`, until `take` returns false.
    ///
    /// Drop them without a lock. Calls `if_empty` if the list is empty after that, before a
    /// submission can be added.
    pub(crate) fn take_finished(
        &self,
        reached: u64,
        mut take: impl FnMut(Dependent) -> bool,
        if_empty: impl FnOnce(),
    ) {
        let mut list = self.0.lock();
        while list.front().is_some_and(|first| first.number <= reached)
            && list.pop_front().is_some_and(&mut take)
        {}
        if list.is_empty() {
            if_empty();
        }
    }
}

/// A search for what depends on lost timelines.
#[derive(Default)]
struct Search {
    /// The timelines that have been looked for. They keep their addresses.
    seen: Vec<Arc<Shared>>,
    /// The lists that have been searched. Kept, because a reference may be the last one.
    lists: Vec<Arc<Dependents>>,
}

impl Search {
    /// The signals of all submissions that wait for a value of these timelines that is not reached.
    fn signals_behind(&mut self, lost: &[&Shared]) -> Vec<(Weak<Shared>, u64)> {
        let is_lost = |(wait, value): &(Arc<Shared>, u64)| {
            lost.iter().any(|of| std::ptr::eq(*of, &raw const **wait)) && wait.reached() < *value
        };
        let mut found = Vec::new();
        let lists = LISTS.lock().clone();
        let from = self.lists.len();
        self.lists.extend(lists.iter().filter_map(Weak::upgrade));
        for list in &self.lists[from..] {
            for dependent in &*list.0.lock() {
                if dependent.waits.iter().any(is_lost) {
                    found.extend(dependent.signals.iter().cloned());
                }
            }
        }
        found
    }

    /// Marks `of` as lost, and fails everything that depends on it.
    fn fail_behind(mut self, of: &Shared, cause: &Failure) {
        // Before the lists are read: a submission that is added later finds the mark.
        of.make_extras().set_loss(cause);
        let mut signals = self.signals_behind(&[of]);
        while !signals.is_empty() {
            let mut failed = Vec::new();
            for (of, value) in signals.drain(..) {
                let Some(of) = of.upgrade() else { continue };
                if of.refresh() < value && !self.seen.iter().any(|seen| Arc::ptr_eq(seen, &of)) {
                    of.fail(cause.clone());
                    of.make_extras().set_loss(cause);
                    failed.push(of.clone());
                    self.seen.push(of);
                } else {
                    // It may be the last reference to objects of the application.
                    run_contained(|| drop(of));
                }
            }
            if failed.is_empty() {
                break;
            }
            let lost: Vec<_> = failed.iter().map(|of| &**of).collect();
            signals = self.signals_behind(&lost);
        }
        run_contained(|| drop(self));
    }
}

impl Shared {
    /// Fails a timeline whose device or process is lost, and everything that depends on it.
    ///
    /// The timeline freezes at the value known to be reached. Dependents that are reached stay so.
    pub(crate) fn fail_with_dependents(&self, cause: &Failure) {
        self.fail_frozen(cause.clone());
        Search::default().fail_behind(self, cause);
    }

    /// Fails a signal of a submission whose wait was lost before the driver had the submission.
    #[cold]
    pub(crate) fn fail_late(&self, cause: &Failure) {
        self.fail(cause.clone());
        Search::default().fail_behind(self, cause);
    }

    /// Why a native wait for `value` may find incomplete data, if it may.
    #[inline]
    pub(crate) fn lost_before(&self, value: u64) -> Option<&Failure> {
        let loss = self.extras()?.loss();
        loss.filter(|_| self.reached() < value)
    }

    /// Makes the watching thread poll the home until `value` is reached.
    ///
    /// Does nothing unless another process signals the timeline.
    ///
    /// Call it for a native wait of another driver's queue, which E3 treats as a waiter.
    pub(crate) fn watch_for_driver(self: &Arc<Self>, value: u64) {
        if self.ports().has_remote_home() {
            let sentinel: Arc<dyn Wake> = self.make_extras().sentinel().clone();
            let _ = self.register(value, Stage::Reached, sentinel);
        }
    }
}

/// Waker that does nothing. Its registration makes the watching thread poll the timeline.
pub(super) struct Sentinel;

impl Wake for Sentinel {
    fn wake(self: Arc<Self>) {}

    fn is_prompt(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::api::Device as _;
    use crate::port::attachment::Attachment;
    use crate::timeline::state::shared_semaphore::Semaphore;
    use crate::{Timeline, host, info::DeviceId};

    /// A timeline of two devices.
    fn line() -> Timeline {
        let ports = [
            Attachment::new(DeviceId::new::<()>(), 0, Semaphore::default()),
            Attachment::imported(DeviceId::new::<()>(), Semaphore::default()),
        ];
        Timeline::new("line", 0, |_| Ok(ports.into_iter().collect())).unwrap()
    }

    fn wait_for(of: &Arc<Shared>, value: u64) -> NativePoint<'_> {
        NativePoint::new(of, of.home(), value)
    }

    fn claims(lines: &[Timeline]) -> impl Iterator<Item = (&Arc<Shared>, Interval)> {
        let claim = Interval { above: 0, upto: 1 };
        lines.iter().map(move |line| (line.shared(), claim))
    }

    #[test]
    fn finished_submissions_leave_the_list() {
        let waited = line();
        let dependents = Dependents::default();
        for number in 1..=10_000_u64 {
            let wait = wait_for(waited.shared(), number);
            dependents.add(number, &[wait], claims(&[]));
            dependents.take_finished(number.saturating_sub(10), |_| true, || unreachable!());
            let list = dependents.0.lock();
            assert_eq!(list.len(), 10.min(number as usize));
            assert!(list.capacity() <= 64, "{}", list.capacity());
        }
        let (mut taken, mut empty) = (0, 0);
        for _ in 0..3 {
            let take = |_| {
                taken += 1;
                taken % 4 != 0
            };
            dependents.take_finished(10_000, take, || empty += 1);
        }
        assert_eq!((taken, empty), (10, 1));
    }

    /// When a submission is noted, by the loss of one of its two waits.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Noted {
        Before,
        After,
        /// The driver has refused the submission.
        Refused,
        /// Its signals are reached.
        Reached,
    }

    #[rstest]
    fn a_loss_fails_each_signal_of_a_submission(
        #[values(Noted::Before, Noted::After, Noted::Refused, Noted::Reached)] noted: Noted,
    ) {
        let device = host::Device::new();
        let signalled = [1, 2].map(|_| device.timeline("signalled").unwrap());
        let waited = [1, 2].map(|_| line());
        let waits = [&waited[0], &waited[1]].map(|line| wait_for(line.shared(), 1));
        let dependents = Dependents::new();
        let cause = crate::Error::NothingToWaitFor.into_cause();
        if noted == Noted::After {
            waited[1].shared().fail_with_dependents(&cause);
        }
        dependents.add(1, &waits, claims(&signalled));
        let lost = waited[1].shared().lost_before(1);
        assert_eq!(lost.is_some(), noted == Noted::After);
        match noted {
            Noted::Before => {}
            Noted::After => {
                // The driver was so fast that the signals are reached.
                for line in &signalled {
                    line.signal(1).unwrap();
                    line.shared().fail_late(&cause);
                }
            }
            Noted::Refused => dependents.forget_signals(1),
            Noted::Reached => signalled.iter().for_each(|line| line.signal(1).unwrap()),
        }
        for line in &signalled {
            assert_eq!(line.shared().is_failed(), noted == Noted::After);
        }
        waited[1].shared().fail_with_dependents(&cause);
        for line in &signalled {
            let fails = matches!(noted, Noted::Before | Noted::After);
            assert_eq!(line.shared().is_failed(), fails);
        }
        assert!(!waited[0].shared().is_failed());
    }

    /// A submission that waits for a failed signal fails, too.
    #[test]
    fn a_loss_fails_the_dependents_of_dependents() {
        let lines = [(); 3].map(|()| line());
        let queues = [0, 1].map(|at| {
            let dependents = Dependents::new();
            let wait = wait_for(lines[at].shared(), 1);
            dependents.add(1, &[wait], claims(&lines[at + 1..at + 2]));
            dependents
        });
        let cause = crate::Error::NothingToWaitFor.into_cause();
        lines[0].shared().fail_with_dependents(&cause);
        assert!(lines.iter().all(|line| line.shared().is_failed()));
        drop(queues);
    }
}
