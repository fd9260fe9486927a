//! A driver that is not ready for a while. Submissions are held and go by themselves later.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::words::{Of, Word, Words, queue};
use syncline_core::backend::{Batch, Enqueue, Flush, Keep, Stamp, SubmissionQueue, Timing};
use syncline_core::{Error, Result, error::Object, host, info::DeviceId};

const LONG: Duration = Duration::from_secs(20);

/// A lent stream that the application sometimes uses itself.
struct Lent {
    home: Of<Self>,
    number: u64,
    taken: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    /// True if the application takes the stream during the next record, which fails then.
    interrupts: Arc<AtomicBool>,
    /// True if the driver takes nothing any more.
    is_broken: Arc<AtomicBool>,
    /// True if the next call of `ready` panics.
    panics: Arc<AtomicBool>,
    /// True from `ready` to the end of `record`.
    is_locked: AtomicBool,
    /// How many submissions it was given to record.
    recorded: Arc<AtomicU64>,
    /// How many stamps it can still make.
    stamps: AtomicU64,
    counts: Arc<Counts>,
}

/// The driver queue, locked for one record.
struct Locked<'a>(&'a AtomicBool);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// A time that the device never writes.
struct Unwritten;

impl Stamp for Unwritten {
    fn nanoseconds_since(&self, _: &dyn Stamp) -> Result<i64> {
        Err(taken())
    }
}

/// What the queue says is held whenever its driver is asked.
struct Counts {
    queue: OnceLock<Weak<SubmissionQueue<Lent>>>,
    fewest: AtomicUsize,
}

impl Enqueue for Lent {
    type Device = Of<Self>;
    type Recorder<'a> = ();
    type Ready<'a> = Locked<'a>;
    type State = ();
    type Stamp = Unwritten;

    fn device(&self) -> &Of<Self> {
        &self.home
    }

    fn order_domain(&self) -> Option<u64> {
        Some(self.number)
    }

    fn ready(&self) -> Option<Locked<'_>> {
        if let Some(queue) = self.counts.queue.get().and_then(Weak::upgrade) {
            let count = queue.held().count;
            self.counts.fewest.fetch_min(count, Ordering::SeqCst);
        }
        self.asked.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics.swap(false, Ordering::SeqCst), "planted");
        if self.taken.load(Ordering::SeqCst) {
            return None;
        }
        let was_locked = self.is_locked.swap(true, Ordering::SeqCst);
        assert!(!was_locked, "the engine kept what `ready` returned");
        Some(Locked(&self.is_locked))
    }

    fn record<W>(
        &self,
        _locked: Locked<'_>,
        (): &mut (),
        batch: &Batch<'_, Self>,
        _: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        assert!(
            !self.taken.load(Ordering::SeqCst),
            "recorded although not ready"
        );
        self.recorded.fetch_add(1, Ordering::SeqCst);
        if self.interrupts.swap(false, Ordering::SeqCst) {
            self.taken.store(true, Ordering::SeqCst);
            return Err(taken());
        }
        if self.is_broken.load(Ordering::SeqCst) {
            return Err(taken());
        }
        work(&mut ())?;
        for signal in batch.signals.iter().chain([&batch.end]) {
            signal
                .port::<Word>()
                .unwrap()
                .0
                .store(signal.value(), Ordering::SeqCst);
        }
        Ok(())
    }

    fn flush(&self, (): &mut (), _: &dyn Fn() -> syncline_core::backend::Waker) -> Flush {
        Flush::Done
    }

    fn stamp(&self, _: &Object, _: Timing) -> Result<Arc<Unwritten>> {
        let one_less = |stamps: u64| stamps.checked_sub(1);
        self.stamps
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
            .map(|_| Arc::new(Unwritten))
            .map_err(|_| taken())
    }
}

fn taken() -> Error {
    Error::work(std::io::Error::other("taken"))
}

struct Setup {
    queue: Arc<SubmissionQueue<Lent>>,
    taken: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    interrupts: Arc<AtomicBool>,
    is_broken: Arc<AtomicBool>,
    panics: Arc<AtomicBool>,
    recorded: Arc<AtomicU64>,
    counts: Arc<Counts>,
    words: Arc<Words>,
    device: DeviceId,
}

fn setup() -> Setup {
    let (words, device) = (Arc::new(Words::default()), DeviceId::new::<Of<Lent>>());
    let (taken, asked) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let counts = Arc::new(Counts {
        queue: OnceLock::new(),
        fewest: AtomicUsize::new(usize::MAX),
    });
    let lent = Lent {
        home: words.of(device, Arc::default()),
        number: 1,
        taken: taken.clone(),
        asked: Arc::clone(&asked),
        interrupts: Arc::default(),
        is_broken: Arc::default(),
        panics: Arc::default(),
        is_locked: AtomicBool::new(false),
        recorded: Arc::default(),
        stamps: AtomicU64::new(1),
        counts: counts.clone(),
    };
    let (interrupts, is_broken) = (lent.interrupts.clone(), lent.is_broken.clone());
    let (panics, recorded) = (lent.panics.clone(), lent.recorded.clone());
    let queue = queue("lent", lent);
    Setup {
        queue,
        taken,
        asked,
        interrupts,
        is_broken,
        panics,
        recorded,
        counts,
        words,
        device,
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::yield_now();
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
            .submit(&waits, |()| Ok(()), &[done.signal_at(n)])
            .unwrap();
        assert!(sent.is_held());
    }
    setup.taken.store(true, Ordering::SeqCst);
    gate.signal(1).unwrap();
    // The watching thread asks again and again.
    until("the driver is not asked again", || {
        setup.asked.load(Ordering::SeqCst) > 5
    });
    assert_eq!(setup.queue.held().count, 3);
    assert_eq!(done.value().unwrap(), 0);
    setup.taken.store(false, Ordering::SeqCst);
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
        .submit(&waits, |()| Ok(()), &[done.signal_at(1)])
        .unwrap();
    assert!(sent.is_held());
    let own = Arc::downgrade(&setup.queue);
    assert!(setup.counts.queue.set(own).is_ok());
    setup.taken.store(true, Ordering::SeqCst);
    gate.signal(1).unwrap();
    until("the driver is not asked again", || {
        setup.asked.load(Ordering::SeqCst) > 5
    });
    assert_eq!(setup.counts.fewest.load(Ordering::SeqCst), 1);
    setup.taken.store(false, Ordering::SeqCst);
    done.at(1).wait(LONG).unwrap();
    setup.queue.idle(LONG).unwrap();
}

/// Notes what its queue says is held when it is dropped.
struct Probe {
    queue: Weak<SubmissionQueue<Lent>>,
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
        let work = move |_: &mut ()| {
            let _probe = &probe;
            Ok(())
        };
        setup.queue.submit(&[gate.at(1)], work, &[]).unwrap();
    }
    setup.is_broken.store(true, Ordering::SeqCst);
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
    setup.taken.store(true, Ordering::SeqCst);
    for n in 1..=2 {
        let sent = setup.queue.submit(&[], |()| Ok(()), &[done.signal_at(n)]);
        assert!(sent.unwrap().is_held());
    }
    assert_eq!(setup.queue.held().count, 2);
    setup.taken.store(false, Ordering::SeqCst);
    done.at(2).wait(LONG).unwrap();
    setup.queue.idle(LONG).unwrap();
}

#[test]
fn a_refused_submission_does_not_fail_the_queue() {
    let setup = setup();
    let done = setup.words.timeline(setup.device, "done", Arc::default());
    setup.interrupts.store(true, Ordering::SeqCst);
    let refused = setup
        .queue
        .submit(&[], |()| Ok(()), &[done.signal_at(1)])
        .map(|sent| sent.is_held());
    assert!(matches!(refused, Err(Error::Work(_))), "{refused:?}");
    // The empty submission for its number is held, and so is the next submission.
    let held = setup
        .queue
        .submit(&[], |()| Ok(()), &[done.signal_at(1)])
        .unwrap();
    assert!(held.is_held());
    assert_eq!(setup.queue.held().count, 2);
    setup.taken.store(false, Ordering::SeqCst);
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
    let never = |_: &mut ()| -> Result<()> { panic!("recorded without a stamp") };
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
    assert_eq!(setup.recorded.load(Ordering::SeqCst), 2);
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
        setup.queue.submit(&[], |()| Ok(()), &signals).unwrap();
        setup.queue.idle(LONG).unwrap();
        assert_eq!(line.value().unwrap(), value);
    }
}

#[test]
fn a_panic_of_ready_is_a_refusal() {
    let setup = setup();
    let done = setup.words.timeline(setup.device, "done", Arc::default());
    let submit = || {
        let sent = setup.queue.submit(&[], |()| Ok(()), &[done.signal_at(1)]);
        sent.map(|sent| sent.is_held())
    };
    setup.panics.store(true, Ordering::SeqCst);
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
        taken,
        words,
        device,
        ..
    } = setup();
    let gate = words.timeline(device, "gate", Arc::default());
    let done = words.timeline(device, "done", Arc::default());
    queue
        .submit(&[gate.at(1)], |()| Ok(()), &[done.signal_at(1)])
        .unwrap();
    taken.store(true, Ordering::SeqCst);
    gate.signal(1).unwrap();
    drop(queue);
    taken.store(false, Ordering::SeqCst);
    done.at(1).wait(LONG).unwrap();
}
