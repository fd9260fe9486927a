//! Queues that share an in-flight budget: together they stay below its bound.
//!
//! Submissions that are held for the budget are released by themselves, whichever queue filled it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::script::{Made, Script, Scripted, scripted};
use crate::until;
use crate::words::{Of, Words};
use rstest::rstest;
use syncline_core::backend::{Batch, Device as _, InFlightBudget, Keep, SubmissionQueue};
use syncline_core::{
    Error, Result, host,
    info::DeviceId,
    wait::{Signaller, Step},
};

const LONG: Duration = Duration::from_secs(20);
const BOUND: u64 = 8;

/// A driver queue whose submissions the test finishes.
struct Slow {
    budget: Arc<InFlightBudget>,
    handed: Arc<AtomicU64>,
    /// The units of all queues in the driver, and the largest number of units so far.
    total: Arc<(AtomicU64, AtomicU64)>,
    broken: Arc<AtomicBool>,
}

impl Script for Slow {
    fn budget(&self) -> Option<&Arc<InFlightBudget>> {
        Some(&self.budget)
    }

    fn record(
        &self,
        batch: &Batch<'_, Scripted<Self>>,
        keep: &mut Keep,
        _: &mut Vec<Made>,
        work: &mut dyn FnMut(&mut u64) -> Result<()>,
    ) -> Result<()> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(Error::work(std::io::Error::other("broken")));
        }
        let mut units = 0;
        let worked = work(&mut units);
        keep.take_in_flight(units);
        let before = self.total.0.fetch_add(units, Ordering::SeqCst);
        let now = before.wrapping_add(units);
        self.total.1.fetch_max(now, Ordering::SeqCst);
        worked?;
        self.handed.store(batch.end.value(), Ordering::SeqCst);
        Ok(())
    }
}

struct Setup {
    words: Arc<Words>,
    device: DeviceId,
    budget: Arc<InFlightBudget>,
    total: Arc<(AtomicU64, AtomicU64)>,
}

struct One {
    engine: Arc<SubmissionQueue<Scripted<Slow>>>,
    word: Arc<AtomicU64>,
    handed: Arc<AtomicU64>,
    total: Arc<(AtomicU64, AtomicU64)>,
    broken: Arc<AtomicBool>,
}

impl Setup {
    fn new() -> Self {
        Self {
            words: Arc::default(),
            device: DeviceId::new::<Of<Scripted<Slow>>>(),
            budget: InFlightBudget::new(BOUND),
            total: Arc::default(),
        }
    }

    fn queue(&self) -> One {
        let (word, handed) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let broken = Arc::<AtomicBool>::default();
        let driver = Slow {
            budget: self.budget.clone(),
            handed: handed.clone(),
            total: self.total.clone(),
            broken: broken.clone(),
        };
        let total = self.total.clone();
        One {
            engine: scripted(self.words.of(self.device, word.clone()), driver),
            word,
            handed,
            total,
            broken,
        }
    }
}

impl One {
    fn submit(&self, units: u64) -> bool {
        let work = move |taken: &mut u64| {
            *taken = units;
            Ok(())
        };
        self.engine.submit(&[], work, &[]).unwrap().is_held()
    }

    /// Finishes the oldest `submissions` of this queue, which took `each` units.
    fn finish(&self, submissions: u64, each: u64) {
        self.total.0.fetch_sub(submissions * each, Ordering::SeqCst);
        self.word.fetch_add(submissions, Ordering::SeqCst);
    }

    fn handed(&self) -> u64 {
        self.handed.load(Ordering::SeqCst)
    }
}

#[test]
fn a_held_submission_goes_when_another_queue_frees_the_budget() {
    let setup = Setup::new();
    let (left, right) = (setup.queue(), setup.queue());
    for _ in 0..BOUND / 2 {
        assert!(!left.submit(1));
        assert!(!right.submit(1));
    }
    assert!(left.submit(1));
    assert!(right.submit(1));
    assert_eq!((left.handed(), right.handed()), (BOUND / 2, BOUND / 2));
    assert!(right.engine.held().waiting_for.is_none());
    // The test does not query the left queue.
    left.finish(2, 1);
    until("the held submissions do not go", || {
        left.handed() + right.handed() == BOUND + 2
    });
    assert_eq!(setup.total.1.load(Ordering::SeqCst), BOUND);
    until("their units are not counted", || {
        setup.budget.taken() == BOUND
    });
    left.finish(left.handed() - 2, 1);
    right.finish(right.handed(), 1);
    left.engine.idle(LONG).unwrap();
    right.engine.idle(LONG).unwrap();
}

/// A queue that is not queried and keeps nothing looks for finished submissions now and then.
#[test]
fn refused_submissions_give_back_units_of_finished_ones() {
    let setup = Setup::new();
    let queue = setup.queue();
    assert!(!queue.submit(3));
    queue.finish(1, 3);
    let refused = |_: &mut u64| Err(Error::work(std::io::Error::other("no")));
    for _ in 0..100 {
        assert!(queue.engine.submit(&[], refused, &[]).is_err());
    }
    assert_eq!(setup.budget.taken(), 0);
}

#[test]
fn a_submission_larger_than_the_budget_goes_while_a_unit_is_free() {
    let setup = Setup::new();
    let queue = setup.queue();
    assert!(!queue.submit(10 * BOUND));
    assert!(queue.submit(1));
    queue.finish(1, 10 * BOUND);
    until("the small one does not go", || queue.handed() == 2);
    // A submission without units waits, too, because its units are known only when it is recorded.
    queue.submit(BOUND);
    until("it does not go beside one unit", || queue.handed() == 3);
    assert!(queue.submit(0));
    queue.finish(1, 1);
    queue.finish(1, BOUND);
    until("the empty one does not go", || queue.handed() == 4);
    queue.finish(1, 0);
    queue.engine.idle(LONG).unwrap();
}

/// Work may report any number of units.
#[rstest]
#[case::all_bits(u64::MAX)]
#[case::the_highest_bit(1 << 63)]
#[case::the_second_highest_bit(1 << 62)]
fn any_number_of_units_only_fills_the_budget(#[case] units: u64) {
    let setup = Setup::new();
    let queues = [setup.queue(), setup.queue()];
    assert!(!queues[0].submit(units));
    assert!(queues[0].submit(units) && queues[1].submit(units));
    until("some submissions do not go", || {
        for queue in &queues {
            queue.finish(queue.handed() - queue.word.load(Ordering::SeqCst), 0);
        }
        let mut ends = queues.iter().map(|queue| queue.engine.position());
        ends.all(|end| end.is_reached().unwrap())
    });
}

#[test]
fn a_dropped_queue_gives_its_units_back_when_its_work_has_finished() {
    let setup = Setup::new();
    let (dropped, other) = (setup.queue(), setup.queue());
    assert!(!dropped.submit(BOUND));
    assert!(other.submit(1));
    let (word, total) = (dropped.word.clone(), dropped.total.clone());
    drop(dropped);
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(other.handed(), 0);
    total.0.fetch_sub(BOUND, Ordering::SeqCst);
    word.store(1, Ordering::SeqCst);
    until("the other one does not go", || other.handed() == 1);
    other.finish(1, 1);
    other.engine.idle(LONG).unwrap();
    until("units are not given back", || setup.budget.taken() <= 1);
}

#[test]
fn a_failed_queue_takes_no_units() {
    let setup = Setup::new();
    let (failed, other) = (setup.queue(), setup.queue());
    assert!(!failed.submit(BOUND - 1));
    failed.broken.store(true, Ordering::SeqCst);
    // The driver refuses even the empty submission for its number, so the queue fails.
    assert!(failed.engine.submit(&[], |_| Ok(()), &[]).is_err());
    assert!(!other.submit(1));
    assert!(!other.submit(BOUND - 1));
    other.finish(2, 0);
    other.engine.idle(LONG).unwrap();
}

/// Only the report of the blockers polls the driver here.
#[test]
fn a_time_out_reports_no_step_that_the_driver_has_finished() {
    let setup = Setup::new();
    let queue = setup.queue();
    let gate = host::Device::new().timeline("gate").unwrap();
    let done = host::Device::new().timeline("done").unwrap();
    assert!(!queue.submit(0));
    let nothing = |_: &mut u64| Ok(());
    let held = queue
        .engine
        .submit(&[gate.at(1)], nothing, &[done.signal_at(1)])
        .unwrap();
    assert!(held.is_held());
    let steps = || match done.at(1).wait(Duration::ZERO) {
        Err(Error::TimedOut { blockers, .. }) => blockers.steps().to_vec(),
        other => panic!("no time-out: {other:?}"),
    };
    let by_the_driver = |step: &Step| matches!(step.by, Signaller::Driver { .. });
    assert_eq!(steps().into_iter().filter(by_the_driver).count(), 1);
    queue.finish(1, 0);
    let told = steps();
    assert!(!told.iter().any(by_the_driver), "{told:?}");
    assert!(
        told.iter().any(|step| step.by == Signaller::None),
        "{told:?}"
    );
    gate.signal(1).unwrap();
    queue.finish(1, 0);
    done.at(1).wait(LONG).unwrap();
}
