//! A driver that takes no submissions for a while: what is held stays held, and goes by itself later.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use syncline_core::backend::{Attachment, Batch, Enqueue, Flush, Keep, Lane, Port, Stamp, Watch};
use syncline_core::{DeviceId, Error, Object, Result, Timeline, Watcher, host};

const LONG: Duration = Duration::from_secs(20);

/// A device whose counters are words, signalled as soon as a submission is handed over.
#[derive(Default)]
struct Words {
    watcher: Watcher,
    nudged: Mutex<bool>,
    changed: Condvar,
}

struct Word(Arc<AtomicU64>);

impl Port for Word {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.load(Ordering::SeqCst)))
    }
    fn signal(&self, value: u64) -> Result<()> {
        self.0.store(value, Ordering::SeqCst);
        Ok(())
    }
}

impl Watch for Words {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }
    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        let reached = |&(port, value): &(&dyn Port, u64)| port.poll().unwrap() >= Some(value);
        while Instant::now() < until && !ports.iter().any(reached) {
            let nudged = self.nudged.lock().unwrap();
            let (mut nudged, _) = self
                .changed
                .wait_timeout(nudged, Duration::from_millis(1))
                .unwrap();
            if std::mem::take(&mut *nudged) {
                break;
            }
        }
        Ok(())
    }
    fn nudge(&self) {
        *self.nudged.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

struct NoTime;
impl Stamp for NoTime {
    fn nanoseconds_since(&self, _: &dyn Stamp) -> Result<i64> {
        Ok(0)
    }
}

/// A stream that an application has taken for itself now and then.
struct Lent {
    number: u64,
    taken: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    /// The next record fails, because the stream is taken in the middle of it.
    interrupts: Arc<AtomicBool>,
}

impl Enqueue for Lent {
    type Recorder<'a> = ();
    type Prepared = ();
    type Stamp = NoTime;

    fn order_domain(&self) -> u64 {
        self.number
    }

    fn ready(&self) -> bool {
        self.asked.fetch_add(1, Ordering::SeqCst);
        !self.taken.load(Ordering::SeqCst)
    }

    fn record<W>(&self, batch: &Batch<'_>, _: &mut Keep, work: W) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        assert!(
            !self.taken.load(Ordering::SeqCst),
            "never without being asked"
        );
        if self.interrupts.swap(false, Ordering::SeqCst) {
            self.taken.store(true, Ordering::SeqCst);
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

    fn flush(&self, (): (), _: &dyn Fn() -> syncline_core::backend::Waker) -> Flush<()> {
        Flush::Done
    }

    fn stamp(&self) -> Result<Arc<NoTime>> {
        Ok(Arc::new(NoTime))
    }

    fn write_stamp((): &mut (), _: &Arc<NoTime>) -> Result<()> {
        Ok(())
    }
}

fn taken() -> Error {
    Error::work(std::io::Error::other("taken"))
}

struct Setup {
    lane: Arc<Lane<Lent>>,
    taken: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    interrupts: Arc<AtomicBool>,
    words: Arc<Words>,
    device: DeviceId,
}

fn setup() -> Setup {
    let (words, device) = (Arc::new(Words::default()), DeviceId::new());
    let (taken, asked) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let lent = Lent {
        number: 1,
        taken: taken.clone(),
        asked: Arc::clone(&asked),
        interrupts: Arc::default(),
    };
    let interrupts = lent.interrupts.clone();
    let own = timeline(&words, device, "position");
    let lane = Lane::new(Object::new("queue", "lent"), device, own, lent);
    Setup {
        lane,
        taken,
        asked,
        interrupts,
        words,
        device,
    }
}

fn timeline(words: &Arc<Words>, device: DeviceId, label: &str) -> Timeline {
    let attachment = Attachment {
        device,
        port: Box::new(Word(Arc::default())),
        watch: Some(words.clone()),
        max_value_difference: u64::MAX,
        signalled_elsewhere: false,
    };
    Timeline::new(label, 0, |_| Ok([attachment].into_iter().collect())).unwrap()
}

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn what_is_released_meanwhile_goes_later_by_itself() {
    let setup = setup();
    let gate = syncline_core::backend::Device::timeline(&host::Device::new(), "gate").unwrap();
    let done = timeline(&setup.words, setup.device, "done");
    for n in 1..=3 {
        let waits = [gate.at(n.min(1))];
        let sent = setup
            .lane
            .submit(&waits, |()| Ok(()), &[done.signal_at(n)])
            .unwrap();
        assert!(sent.is_held());
    }
    setup.taken.store(true, Ordering::SeqCst);
    gate.signal(1).unwrap();
    // Asked again and again, by the watching thread.
    until("nobody tried again", || {
        setup.asked.load(Ordering::SeqCst) > 5
    });
    assert_eq!(setup.lane.held().count, 3);
    assert_eq!(done.value().unwrap(), 0);
    setup.taken.store(false, Ordering::SeqCst);
    done.at(3).wait(LONG).unwrap();
    setup.lane.idle(LONG).unwrap();
    assert_eq!(setup.lane.held().count, 0);
}

#[test]
fn what_could_go_at_once_waits_too() {
    let setup = setup();
    let done = timeline(&setup.words, setup.device, "done");
    setup.taken.store(true, Ordering::SeqCst);
    for n in 1..=2 {
        let sent = setup.lane.submit(&[], |()| Ok(()), &[done.signal_at(n)]);
        assert!(sent.unwrap().is_held());
    }
    assert_eq!(setup.lane.held().count, 2);
    setup.taken.store(false, Ordering::SeqCst);
    done.at(2).wait(LONG).unwrap();
    setup.lane.idle(LONG).unwrap();
}

#[test]
fn a_refused_submission_does_not_take_the_queue_with_it() {
    let setup = setup();
    let done = timeline(&setup.words, setup.device, "done");
    setup.interrupts.store(true, Ordering::SeqCst);
    let refused = setup
        .lane
        .submit(&[], |()| Ok(()), &[done.signal_at(1)])
        .map(|sent| sent.is_held());
    assert!(matches!(refused, Err(Error::Work(_))), "{refused:?}");
    // Its number waits for its turn, and so does what comes after it.
    let held = setup
        .lane
        .submit(&[], |()| Ok(()), &[done.signal_at(1)])
        .unwrap();
    assert!(held.is_held());
    assert_eq!(setup.lane.held().count, 2);
    setup.taken.store(false, Ordering::SeqCst);
    done.at(1).wait(LONG).unwrap();
    setup.lane.idle(LONG).unwrap();
}

#[test]
fn a_queue_dropped_meanwhile_still_does_what_it_was_given() {
    let Setup {
        lane,
        taken,
        words,
        device,
        ..
    } = setup();
    let gate = timeline(&words, device, "gate");
    let done = timeline(&words, device, "done");
    lane.submit(&[gate.at(1)], |()| Ok(()), &[done.signal_at(1)])
        .unwrap();
    taken.store(true, Ordering::SeqCst);
    gate.signal(1).unwrap();
    drop(lane);
    taken.store(false, Ordering::SeqCst);
    done.at(1).wait(LONG).unwrap();
}
