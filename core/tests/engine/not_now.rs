//! A driver that is not ready for a while. Submissions are held and go by themselves later.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use crate::script::{Made, Script, Scripted, Time, scripted};
use crate::until;
use crate::words::{Of, Word, Words};
use syncline_core::backend::{Batch, Keep, SubmissionQueue};
use syncline_core::{Error, Result, host, info::DeviceId};

const LONG: Duration = Duration::from_secs(20);

type Queue = SubmissionQueue<Scripted<Arc<Lent>>>;

/// A lent stream that the application sometimes uses itself.
#[derive(Default)]
struct Lent {
    taken: AtomicBool,
    asked: AtomicU64,
    /// True if the application takes the stream during the next record, which fails then.
    interrupts: AtomicBool,
    /// True if the driver takes nothing any more.
    is_broken: AtomicBool,
    /// True if the next call of `ready` panics.
    panics: AtomicBool,
    /// How many submissions it was given to record.
    recorded: AtomicU64,
    /// How many stamps it has made. It makes one.
    stamps: AtomicU64,
    /// The queue, if it is asked what is held whenever the driver is asked.
    queue: OnceLock<Weak<Queue>>,
    /// The least of its answers.
    fewest: AtomicUsize,
}

impl Script for Arc<Lent> {
    fn ready(&self) -> bool {
        if let Some(queue) = self.queue.get().and_then(Weak::upgrade) {
            let count = queue.held().count;
            self.fewest.fetch_min(count, Ordering::SeqCst);
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics.swap(false, Ordering::SeqCst), "planted");
        !self.taken.load(Ordering::SeqCst)
    }

    fn record(
        &self,
        batch: &Batch<'_, Scripted<Self>>,
        _: &mut Keep,
        _: &mut Vec<Made>,
        work: &mut dyn FnMut(&mut u64) -> Result<()>,
    ) -> Result<()> {
        let is_taken = self.taken.load(Ordering::SeqCst);
        assert!(!is_taken, "recorded although not ready");
        self.recorded.fetch_add(1, Ordering::SeqCst);
        if self.interrupts.swap(false, Ordering::SeqCst) {
            self.taken.store(true, Ordering::SeqCst);
            return Err(taken());
        }
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(taken());
        }
        work(&mut 0)?;
        for signal in batch.signals.iter().chain([&batch.end]) {
            let Word(word) = signal.port().unwrap();
            word.store(signal.value(), Ordering::SeqCst);
        }
        Ok(())
    }

    fn stamp(&self) -> Result<Time> {
        match self.stamps.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(Time::At(0)),
            _ => Err(taken()),
        }
    }
}

fn taken() -> Error {
    Error::work(std::io::Error::other("taken"))
}

struct Setup {
    queue: Arc<Queue>,
    driver: Arc<Lent>,
    words: Arc<Words>,
    device: DeviceId,
}

fn setup() -> Setup {
    let words = Arc::new(Words::default());
    let device = DeviceId::new::<Of<Scripted<Arc<Lent>>>>();
    let driver = Arc::new(Lent::default());
    Setup {
        queue: scripted(words.of(device, Arc::default()), driver.clone()),
        driver,
        words,
        device,
    }
}

#[test]
fn a_submission_released_meanwhile_goes_later_by_itself() {
    let setup = setup();
    let gate = syncline_core::backend::Device::timeline(&host::Device::new(), "gate").unwrap();
    let done = setup.words.timeline(setup.device, "done", Arc::default());
    for n in 1..=3 {
        let waits = [gate.at(n.min(1))];
        let sent = setup
            .queue
            .submit(&waits, |_| Ok(()), &[done.signal_at(n)])
            .unwrap();
        assert!(sent.is_held());
    }
    setup.driver.taken.store(true, Ordering::SeqCst);
    gate.signal(1).unwrap();
    // The watching thread asks again and again.
    until("the driver is not asked again", || {
        setup.driver.asked.load(Ordering::SeqCst) > 5
    });
    assert_eq!(setup.queue.held().count, 3);
    assert_eq!(done.value().unwrap(), 0);
    setup.driver.taken.store(false, Ordering::SeqCst);
    done.at(3).wait(LONG).unwrap();
    setup.queue.idle(LONG).unwrap();
    assert_eq!(setup.queue.held().count, 0);
}

/// A thread that has the stream trusts this count.
#[test]
fn what_the_driver_is_asked_about_counts_as_held() {
    let setup = setup();
    let gate = syncline_core::backend::Device::timeline(&host::Device::new(), "gate").unwrap();
    let done = setup.words.timeline(setup.device, "done", Arc::default());
    let waits = [gate.at(1)];
    let sent = setup
        .queue
        .submit(&waits, |_| Ok(()), &[done.signal_at(1)])
        .unwrap();
    assert!(sent.is_held());
    let own = Arc::downgrade(&setup.queue);
    setup.driver.fewest.store(usize::MAX, Ordering::SeqCst);
    assert!(setup.driver.queue.set(own).is_ok());
    setup.driver.taken.store(true, Ordering::SeqCst);
    gate.signal(1).unwrap();
    until("the driver is not asked again", || {
        setup.driver.asked.load(Ordering::SeqCst) > 5
    });
    assert_eq!(setup.driver.fewest.load(Ordering::SeqCst), 1);
    setup.driver.taken.store(false, Ordering::SeqCst);
    done.at(1).wait(LONG).unwrap();
    setup.queue.idle(LONG).unwrap();
}

/// Notes what its queue says is held when it is dropped.
struct Probe {
    queue: Weak<Queue>,
    counts: Arc<Mutex<Vec<usize>>>,
}

impl Drop for Probe {
    fn drop(&mut self) {
        let count = self.queue.upgrade().unwrap().held().count;
        self.counts.lock().unwrap().push(count);
    }
}

/// A failed queue loses its held submissions, one after the other. The work of each reads the count
/// when it goes, while the queue is driven. At the end at most the last one is held.
#[test]
fn what_a_failed_queue_has_lost_does_not_count_as_held() {
    let setup = setup();
    let gate = syncline_core::backend::Device::timeline(&host::Device::new(), "gate").unwrap();
    let counts: Arc<Mutex<Vec<usize>>> = Arc::default();
    for _ in 0..3 {
        let probe = Probe {
            queue: Arc::downgrade(&setup.queue),
            counts: Arc::clone(&counts),
        };
        let work = move |_: &mut u64| {
            let _probe = &probe;
            Ok(())
        };
        setup.queue.submit(&[gate.at(1)], work, &[]).unwrap();
    }
    setup.driver.is_broken.store(true, Ordering::SeqCst);
    gate.signal(1).unwrap();
    until("the queue is driven for good", || {
        setup.queue.held().count == 0
    });
    let counts = counts.lock().unwrap();
    assert_eq!(counts.len(), 3);
    assert!(counts[2] <= 1, "{counts:?}");
}

#[test]
fn a_submission_that_could_go_at_once_is_held() {
    let setup = setup();
    let done = setup.words.timeline(setup.device, "done", Arc::default());
    setup.driver.taken.store(true, Ordering::SeqCst);
    for n in 1..=2 {
        let sent = setup.queue.submit(&[], |_| Ok(()), &[done.signal_at(n)]);
        assert!(sent.unwrap().is_held());
    }
    assert_eq!(setup.queue.held().count, 2);
    setup.driver.taken.store(false, Ordering::SeqCst);
    done.at(2).wait(LONG).unwrap();
    setup.queue.idle(LONG).unwrap();
}

#[test]
fn a_refused_submission_does_not_fail_the_queue() {
    let setup = setup();
    let done = setup.words.timeline(setup.device, "done", Arc::default());
    setup.driver.interrupts.store(true, Ordering::SeqCst);
    let refused = setup
        .queue
        .submit(&[], |_| Ok(()), &[done.signal_at(1)])
        .map(|sent| sent.is_held());
    assert!(matches!(refused, Err(Error::Work(_))), "{refused:?}");
    // The empty submission for its number is held, and so is the next submission.
    let held = setup
        .queue
        .submit(&[], |_| Ok(()), &[done.signal_at(1)])
        .unwrap();
    assert!(held.is_held());
    assert_eq!(setup.queue.held().count, 2);
    setup.driver.taken.store(false, Ordering::SeqCst);
    done.at(1).wait(LONG).unwrap();
    setup.queue.idle(LONG).unwrap();
}

/// The driver makes the stamp that shows that the queue writes times, and no other.
#[test]
fn a_submission_without_its_stamp_is_refused_before_the_record() {
    let setup = setup();
    let host = host::Device::new();
    let gate = syncline_core::backend::Device::timeline(&host, "gate").unwrap();
    let clock = syncline_core::backend::Device::clock(&host).unwrap();
    let done = setup.words.timeline(setup.device, "done", Arc::default());
    let done = done.clocked([(setup.device, clock)]).unwrap();
    let never = |_: &mut u64| -> Result<()> { panic!("recorded without a stamp") };
    let submit = |waits: &[_]| {
        let sent = setup.queue.submit(waits, never, &[done.signal_at(1)]);
        sent.map(|sent| sent.is_held())
    };
    let refused = submit(&[]);
    assert!(matches!(refused, Err(Error::Work(_))), "{refused:?}");
    assert!(submit(&[gate.at(1)]).unwrap());
    gate.signal(1).unwrap();
    let failed = done.at(1).wait(LONG);
    assert!(matches!(failed, Err(Error::Failed { .. })), "{failed:?}");
    setup.queue.idle(LONG).unwrap();
    // Only the empty submissions for the two numbers.
    assert_eq!(setup.driver.recorded.load(Ordering::SeqCst), 2);
}

/// The host makes the signal, so the queue need not write its time.
#[test]
fn a_host_signal_with_a_time_needs_no_stamp_of_the_queue() {
    let setup = setup();
    let host = host::Device::new();
    let line = syncline_core::backend::Device::clocked_timeline(&host, "line").unwrap();
    // The driver makes one stamp.
    for value in 1..=2 {
        let signals = [line.signal_at(value)];
        setup.queue.submit(&[], |_| Ok(()), &signals).unwrap();
        setup.queue.idle(LONG).unwrap();
        assert_eq!(line.value().unwrap(), value);
    }
}

#[test]
fn a_panic_of_ready_is_a_refusal() {
    let setup = setup();
    let done = setup.words.timeline(setup.device, "done", Arc::default());
    let submit = || {
        let sent = setup.queue.submit(&[], |_| Ok(()), &[done.signal_at(1)]);
        sent.map(|sent| sent.is_held())
    };
    setup.driver.panics.store(true, Ordering::SeqCst);
    let refused = submit();
    assert!(
        matches!(refused, Err(Error::WorkPanicked { .. })),
        "{refused:?}"
    );
    assert!(!submit().unwrap());
    done.at(1).wait(LONG).unwrap();
    setup.queue.idle(LONG).unwrap();
}

#[test]
fn a_queue_dropped_meanwhile_still_runs_its_submissions() {
    let Setup {
        queue,
        driver,
        words,
        device,
    } = setup();
    let gate = words.timeline(device, "gate", Arc::default());
    let done = words.timeline(device, "done", Arc::default());
    queue
        .submit(&[gate.at(1)], |_| Ok(()), &[done.signal_at(1)])
        .unwrap();
    driver.taken.store(true, Ordering::SeqCst);
    gate.signal(1).unwrap();
    drop(queue);
    driver.taken.store(false, Ordering::SeqCst);
    done.at(1).wait(LONG).unwrap();
}
