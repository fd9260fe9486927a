//! A driver queue that is locked, and refuses a submission after that.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use rstest::rstest;

use super::SubmissionQueue;
use crate::base::error::Object;
use crate::driver::enqueue::{Batch, Enqueue, Flush, Waker};
use crate::driver::home::Home;
use crate::driver::keep::Keep;
use crate::port::attachment::Attachment;
use crate::port::{ByEngine, Port, Stamp};
use crate::timeline::point::Completion;
use crate::{Error, Result, Timeline, backend::Timing, clock, info::DeviceId};

/// A counter that nothing advances.
struct Stands;

impl Port for Stands {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
}

/// A counter that others signal, too.
struct Counter(Arc<AtomicU64>);

impl Port for Counter {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.load(Ordering::SeqCst)))
    }
    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
}

/// A time that the device never writes.
struct Unwritten;

impl Stamp for Unwritten {
    fn nanoseconds_since(&self, _: &dyn Stamp) -> Result<i64> {
        Err(refusal())
    }
}

fn refusal() -> Error {
    Error::work(io::Error::other("refused"))
}

/// The device of the queue.
struct Machine(DeviceId);

impl Home for Machine {
    type Enqueue = Driver;

    fn port(&self, initial: u64) -> Result<Attachment> {
        Ok(Attachment::new(self.0, initial, Stands))
    }
}

/// A driver whose queue is locked at the first flush. It refuses the submission at the second.
///
/// It takes later submissions, and finishes them in the call.
struct Driver {
    machine: Machine,
    left: Mutex<Vec<Answer>>,
    waker: Mutex<Option<Waker>>,
    /// The stamp that it made last.
    stamp: Mutex<Weak<Unwritten>>,
}

enum Answer {
    Busy,
    Refused,
}

impl Enqueue for Driver {
    type Device = Machine;
    type Recorder<'a> = ();
    type Ready<'a> = ();
    type State = Option<Completion>;
    type Stamp = Unwritten;

    fn device(&self) -> &Machine {
        &self.machine
    }

    fn order_domain(&self) -> Option<u64> {
        None
    }

    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(
        &self,
        (): (),
        end: &mut Option<Completion>,
        batch: &Batch<'_, Self>,
        _: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        *end = batch.end.completion();
        work(&mut ())
    }

    fn flush(&self, end: &mut Option<Completion>, waker: &dyn Fn() -> Waker) -> Flush {
        match self.left.lock().unwrap().pop() {
            Some(Answer::Busy) => {
                *self.waker.lock().unwrap() = Some(waker());
                Flush::Busy
            }
            Some(Answer::Refused) => Flush::Refused(refusal()),
            None => {
                end.take().unwrap().complete();
                Flush::Done
            }
        }
    }

    fn stamp(&self, _: &Object, _: Timing) -> Result<Arc<Unwritten>> {
        let stamp = Arc::new(Unwritten);
        *self.stamp.lock().unwrap() = Arc::downgrade(&stamp);
        Ok(stamp)
    }
}

/// A queue of `device` whose driver gives `answers`, the last one first.
fn queue(device: DeviceId, label: &str, answers: Vec<Answer>) -> Arc<SubmissionQueue<Driver>> {
    let driver = Driver {
        machine: Machine(device),
        left: Mutex::new(answers),
        waker: Mutex::default(),
        stamp: Mutex::default(),
    };
    SubmissionQueue::new(Object::new("queue", label), driver).unwrap()
}

fn port(device: DeviceId) -> Attachment {
    Attachment::new(device, 0, Stands)
}

fn line(label: &str, ports: Vec<Attachment>) -> Timeline {
    Timeline::new(label, 0, |_| Ok(ports.into_iter().collect())).unwrap()
}

/// A timeline of another device and of `device`.
fn shared(label: &str, device: DeviceId) -> Timeline {
    let home = port(DeviceId::new::<()>());
    line(label, vec![home, Attachment::imported(device, Stands)])
}

/// The queue notes the host signals, times and dependents of a submission before the driver has it.
///
/// If the driver refuses the submission after an unlock, the queue forgets all three.
#[rstest]
fn a_submission_that_is_refused_after_an_unlock_is_forgotten(#[values(false, true)] refused: bool) {
    let device = DeviceId::new::<Machine>();
    let other = queue(device, "other", Vec::new());
    let queue = queue(device, "locked", vec![Answer::Refused, Answer::Busy]);
    let waited = shared("of two devices", device);
    let clock = clock::Clock::new(Object::new("clock", "host"), clock::SameClock);
    let timed = line("timed", vec![port(device)]).clocked([(device, clock)]);
    let timed = timed.unwrap();
    let by_host = line("by the host", vec![port(DeviceId::new::<()>())]);
    let pending = other.submit(&[], |()| Ok(()), &[waited.signal_at(1)]);
    assert!(!pending.unwrap().is_held());
    let signals = [timed.signal_at(1), by_host.signal_at(1)];
    let held = queue.submit(&[waited.at(1)], |()| Ok(()), &signals);
    assert!(held.unwrap().is_held());

    let stamp = queue.driver().stamp.lock().unwrap().clone();
    assert_eq!(queue.lock().relays.size().0, 1);
    assert!(stamp.upgrade().is_some());
    let waker = queue.driver().waker.lock().unwrap().take().unwrap();
    if refused {
        waker.wake();
        assert_eq!(queue.held().count, 0);
        assert_eq!(queue.lock().relays.size().0, 0, "a host signal is left");
        assert!(stamp.upgrade().is_none(), "a time is left");
    }
    // Only what depends on the timeline is lost with it.
    let lost = Error::NothingToWaitFor.into_cause();
    waited.shared().fail_with_dependents(&lost);
    for signalled in [&timed, &by_host] {
        let is_lost = signalled.shared().lost_before(1).is_some();
        assert_eq!(is_lost, !refused, "{signalled:?}");
    }
}

/// E3: a submission depends on the devices for which its work waits. The value before a signal is
/// waited for after the work.
#[rstest]
fn a_loss_before_a_signal_fails_no_other_signal(#[values(false, true)] is_waited_for: bool) {
    let device = DeviceId::new::<Machine>();
    let other = queue(device, "other", Vec::new());
    let queue = queue(device, "locked", vec![Answer::Busy]);
    let [waited, before] = ["waited for", "signalled before"].map(|label| shared(label, device));
    let signalled = line("signalled", vec![port(device)]);
    let pending = [waited.signal_at(1), before.signal_at(1)];
    other.submit(&[], |()| Ok(()), &pending).unwrap();
    let signals = [before.signal_at(2), signalled.signal_at(1)];
    let noted = queue.submit(&[waited.at(1)], |()| Ok(()), &signals);
    assert!(noted.unwrap().is_held());
    let lost = if is_waited_for { &waited } else { &before };
    let cause = Error::NothingToWaitFor.into_cause();
    lost.shared().fail_with_dependents(&cause);
    assert_eq!(signalled.shared().is_failed(), is_waited_for);
}

/// T2: the counter is read again after an unlock, because the driver has no signal before that.
#[rstest]
fn a_promise_may_be_broken_while_the_driver_queue_is_locked(#[values(false, true)] broken: bool) {
    let (device, value) = (DeviceId::new::<Machine>(), Arc::new(AtomicU64::new(0)));
    let queue = queue(device, "locked", vec![Answer::Busy]);
    let home = Attachment::new(device, 0, Counter(value.clone())).signalled_elsewhere(true);
    let line = line("line", vec![home]);
    line.signalled_by_others(1).unwrap();
    let sent = queue.submit(&[line.at(1)], |()| Ok(()), &[line.signal_at(2)]);
    let sent = sent.unwrap();
    assert!(sent.is_held());
    // Others signal what they have promised, or a value above that.
    value.store(if broken { 3 } else { 1 }, Ordering::SeqCst);
    let waker = queue.driver().waker.lock().unwrap().take().unwrap();
    waker.wake();
    assert_eq!(queue.held().count, 0);
    let ended = sent.wait_submitted(Duration::ZERO);
    if broken {
        assert!(matches!(ended, Err(Error::Skipped { .. })), "{ended:?}");
        let failed = line.at(2).is_reached().unwrap_err();
        assert!(
            matches!(failed.root(), Error::Corrupted { found: 3, .. }),
            "{failed}"
        );
    } else {
        ended.unwrap();
        assert!(line.at(2).is_pending().unwrap());
    }
    // The queue goes on.
    queue.submit(&[], |()| Ok(()), &[]).unwrap();
    assert!(queue.own_shared().reached() >= 2);
}
