//! The submissions of a queue that did not run. The queue's position advances past them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::base::error::{Error, Failure, Object, Result};
use crate::base::run::{Wake, run_contained, wake_all};
use crate::base::sync::Mutex;
use crate::timeline::point::Point;
use crate::wait::wait_pending_or;

/// The number of remembered runs. A run is a range of successive submissions that one failure
/// ended.
const MAX_RUNS: usize = 256;

/// The submissions that did not run, each with its cause.
#[derive(Debug)]
pub(super) struct Skipped {
    queue: Object,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    runs: VecDeque<SkippedRun>,
    /// The highest forgotten number.
    forgotten: u64,
    /// Threads that wait for a submission.
    waiting: Vec<(u64, Arc<dyn Wake>)>,
}

#[derive(Debug)]
struct SkippedRun {
    from: u64,
    upto: u64,
    cause: Failure,
}

impl std::fmt::Debug for List {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.runs).finish()
    }
}

impl Skipped {
    pub(super) fn new(queue: Object) -> Self {
        Self {
            queue,
            list: Mutex::default(),
        }
    }

    /// Adds a skipped submission before its number goes to the driver.
    ///
    /// The queue's lock may be held, and is released before [`Told::tell`].
    pub(super) fn add(&self, number: u64, cause: &Failure) -> Told {
        let mut list = self.list.lock();
        let forgotten = list.add(number, cause);
        let waiting = list.waiting.iter().filter(|(other, _)| *other == number);
        let woken = waiting.map(|(_, wake)| wake.clone()).collect();
        Told { forgotten, woken }
    }

    /// The error of a submission that did not run, if it is remembered.
    fn cause(&self, number: u64) -> Option<Error> {
        let cause = self.list.lock().find(number)?;
        Some(Error::Skipped {
            queue: self.queue.clone(),
            submission: number,
            cause,
        })
    }

    /// The answer for a submission that the driver has, or that was skipped and then forgotten.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the two cannot be told apart.
    fn passed(&self, number: u64) -> Result<()> {
        if number > self.list.lock().forgotten {
            return Ok(());
        }
        Err(Error::unsupported(
            &self.queue,
            format!("tell whether submission {number} has run"),
            format!("it remembers the last {MAX_RUNS} failures that ended submissions"),
        ))
    }

    /// Waits until the driver has submission `end`, or it is known not to run.
    pub(super) fn wait(&self, end: Point<'_>, timeout: Duration) -> Result<()> {
        let number = end.value;
        let mut waiting = Waiting {
            list: &self.list,
            wake: None,
        };
        let ended = wait_pending_or(
            end,
            timeout,
            || self.cause(number).is_some(),
            |wake| waiting.begin(number, wake),
        );
        drop(waiting);
        // A skip counts even if something else ended the wait.
        let skipped = self.cause(number).map_or(Ok(()), Err);
        // In this order, because a held submission may still run.
        skipped.and(ended).and_then(|()| self.passed(number))
    }
}

/// What must be told of a skipped submission.
#[must_use = "threads wait for it"]
pub(super) struct Told {
    forgotten: Option<SkippedRun>,
    woken: Vec<Arc<dyn Wake>>,
}

impl Told {
    /// Wakes the threads that wait for the submission. No lock may be held.
    pub(super) fn tell(self) {
        // It may be the application's, and its drop may use this queue.
        run_contained(|| drop(self.forgotten));
        wake_all(self.woken);
    }
}

/// Registration of a waiting thread, removed on drop.
struct Waiting<'s> {
    list: &'s Mutex<List>,
    wake: Option<Arc<dyn Wake>>,
}

impl Waiting<'_> {
    fn begin(&mut self, number: u64, wake: &Arc<dyn Wake>) {
        self.list.lock().waiting.push((number, wake.clone()));
        self.wake = Some(wake.clone());
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(own) = &self.wake else { return };
        let mut list = self.list.lock();
        let mut waiting = list.waiting.iter();
        if let Some(at) = waiting.position(|(_, wake)| Arc::ptr_eq(wake, own)) {
            list.waiting.swap_remove(at);
        }
    }
}

impl List {
    fn find(&self, number: u64) -> Option<Failure> {
        let mut runs = self.runs.iter();
        let run = runs.find(|run| run.from <= number && number <= run.upto)?;
        Some(run.cause.clone())
    }

    /// Adds a submission. Returns a run to be dropped without the lock.
    fn add(&mut self, number: u64, cause: &Failure) -> Option<SkippedRun> {
        // Numbers come in any order, because a submission behind others is skipped as soon as its
        // wait has failed.
        let same = |run: &SkippedRun| is_one_cause(&run.cause, cause);
        let mut runs = self.runs.iter();
        let below = runs.position(|run| run.upto + 1 == number && same(run));
        let mut runs = self.runs.iter();
        let above = runs.position(|run| run.from == number + 1 && same(run));
        match (below, above) {
            (Some(below), Some(above)) => {
                self.runs[below].upto = self.runs[above].upto;
                return self.runs.remove(above);
            }
            (Some(below), None) => {
                self.runs[below].upto = number;
                return None;
            }
            (None, Some(above)) => {
                self.runs[above].from = number;
                return None;
            }
            (None, None) => {}
        }
        let is_full = self.runs.len() == MAX_RUNS;
        let oldest = is_full.then(|| self.runs.pop_front()).flatten();
        if let Some(oldest) = &oldest {
            self.forgotten = self.forgotten.max(oldest.upto);
        }
        self.runs.push_back(SkippedRun {
            from: number,
            upto: number,
            cause: cause.clone(),
        });
        oldest
    }
}

/// True for the same failure, and for two waits cancelled by the close of one timeline.
fn is_one_cause(one: &Failure, other: &Failure) -> bool {
    match (&**one, &**other) {
        (
            Error::Cancelled { timeline: one, .. },
            Error::Cancelled {
                timeline: other, ..
            },
        ) => one == other,
        _ => Arc::ptr_eq(one, other),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::sync::mpsc;
    use std::time::Instant;

    use super::*;
    use crate::api::Device as _;

    const LONG: Duration = Duration::from_secs(20);

    /// The queue's position does not advance, so only the waker can end the wait.
    #[test]
    fn a_waiting_thread_is_woken_at_once() {
        let device = crate::host::Device::new();
        let own = Arc::new(device.timeline("own").unwrap());
        let skipped = Arc::new(Skipped::new(Object::new("queue", "q")));
        let (sender, receiver) = mpsc::channel();
        let (of, list) = (own.clone(), skipped.clone());
        let waits = std::thread::spawn(move || {
            sender.send(list.wait(of.at(3), Duration::MAX)).unwrap();
        });
        let begin = Instant::now();
        while skipped.list.lock().waiting.is_empty() {
            assert!(begin.elapsed() < LONG, "it does not wait");
            std::thread::yield_now();
        }
        let waker = Arc::downgrade(&skipped.list.lock().waiting[0].1);
        skipped.add(2, &failure("of another")).tell();
        skipped.add(3, &failure("of this submission")).tell();
        let result = receiver.recv_timeout(LONG);
        assert!(
            matches!(&result, Ok(Err(Error::Skipped { submission: 3, .. }))),
            "{result:?}"
        );
        waits.join().unwrap();
        assert!(skipped.list.lock().waiting.is_empty());
        assert!(waker.upgrade().is_none(), "it is still registered");
        // A wait for another submission is not affected.
        let open = skipped.wait(own.at(4), Duration::ZERO);
        assert!(matches!(open, Err(Error::TimedOut { .. })), "{open:?}");
    }

    fn failure(what: &'static str) -> Failure {
        Arc::new(Error::work(std::io::Error::other(what)))
    }

    #[test]
    fn successive_submissions_with_one_cause_are_one_run() {
        let mut list = List::default();
        let (one, other) = (failure("one"), failure("other"));
        for number in 1..1000 {
            list.add(number, &one);
        }
        list.add(1000, &other);
        // First downwards, then the number between the two runs.
        for number in (2000..3000).rev().chain([1999, 3000]) {
            list.add(number, &one);
        }
        for number in (3002..4000).chain([3001]) {
            list.add(number, &one);
        }
        assert_eq!(list.runs.len(), 3);
        for (number, cause) in [
            (1, &one),
            (999, &one),
            (1000, &other),
            (1999, &one),
            (3001, &one),
            (3999, &one),
        ] {
            let found = list.find(number);
            assert!(found.is_some_and(|found| Arc::ptr_eq(&found, cause)));
        }
        for number in [1001, 1998, 4000] {
            assert!(list.find(number).is_none());
        }
    }

    #[test]
    fn a_forgotten_submission_does_not_count_as_submitted() {
        let skipped = Skipped::new(Object::new("queue", "q"));
        let last = 2 * (MAX_RUNS as u64 + 1);
        for number in (2..=last).step_by(2) {
            skipped.add(number, &failure("each its own")).tell();
        }
        assert_eq!(skipped.list.lock().runs.len(), MAX_RUNS);
        let own = crate::host::Device::new().timeline("own").unwrap();
        // A submission that has not been passed may still run.
        let held = skipped.wait(own.at(1), Duration::ZERO);
        assert!(matches!(held, Err(Error::TimedOut { .. })), "{held:?}");
        own.signal(2).unwrap();
        for number in [1, 2] {
            let result = skipped.wait(own.at(number), Duration::ZERO);
            assert!(
                matches!(result, Err(Error::Unsupported { .. })),
                "{result:?}"
            );
        }
        for number in [4, last] {
            let result = skipped.wait(own.at(number), Duration::ZERO);
            assert!(matches!(result, Err(Error::Skipped { .. })), "{result:?}");
        }
        for number in [3, 5, last + 1] {
            let result = skipped.wait(own.at(number), Duration::ZERO);
            assert!(matches!(result, Err(Error::TimedOut { .. })), "{result:?}");
        }
        own.signal(last + 1).unwrap();
        for number in [3, 5, last + 1] {
            skipped.wait(own.at(number), Duration::ZERO).unwrap();
        }
    }
}
