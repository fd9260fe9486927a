//! The position of a queue and the signals of its submissions that other processes are told of
//! (P4).

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use syncline_core::backend::{
    Batch, Counter, Device as _, Enqueue, Flush, Keep, NativePoint, NoStamp, SubmissionQueue, Waker,
};
use syncline_core::internal::Page;
use syncline_core::{DeviceId, Error, Object, Result, Timeline, host};

use crate::words::{Word, Words};

const LONG: Duration = Duration::from_secs(20);

/// A page beside `line`.
fn page_beside(line: &Timeline) -> Arc<Counter> {
    let (_, exporter) = host::Device::new().exportable_port(0).unwrap();
    line.publish(exporter.counter().clone(), Page::Beside)
        .unwrap();
    exporter.counter().clone()
}

/// Makes one signal.
type Signal = Box<dyn FnOnce() + Send>;

/// A driver whose signals the test makes, one by one: first the position of the queue, then the
/// others.
#[derive(Default)]
struct OneByOne(Arc<Mutex<VecDeque<Signal>>>);

impl OneByOne {
    fn signal(&self) {
        let next = self.0.lock().unwrap().pop_front();
        next.unwrap()();
    }
}

/// What a device writes by itself shows to who looks. What a thread of the process signals is told
/// to the engine.
fn signal_of(point: &NativePoint<'_>) -> Signal {
    let value = point.value();
    if let Some(Word(word)) = point.port::<Word>() {
        let word = word.clone();
        return Box::new(move || word.store(value, Ordering::SeqCst));
    }
    let completion = point.completion();
    Box::new(move || completion.complete())
}

impl Enqueue for OneByOne {
    type Recorder<'a> = ();
    type Prepared = Vec<Signal>;
    type Stamp = NoStamp;

    fn order_domain(&self) -> Option<u64> {
        Some(1)
    }
    fn record<W>(&self, batch: &Batch<'_>, _: &mut Keep, work: W) -> Result<Vec<Signal>>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        work(&mut ())?;
        let all = [&batch.end].into_iter().chain(batch.signals);
        Ok(all.map(signal_of).collect())
    }
    fn flush(&self, signals: Vec<Signal>, _: &dyn Fn() -> Waker) -> Flush<Vec<Signal>> {
        self.0.lock().unwrap().extend(signals);
        Flush::Done
    }
}

/// Two submissions, each with a published signal, on a queue with this position.
fn a_position_shows_behind_its_signals(device: DeviceId, own: Timeline, lines: [Timeline; 2]) {
    let driver = OneByOne::default();
    let signals = OneByOne(driver.0.clone());
    let queue = SubmissionQueue::new(Object::new("queue", "queue"), device, own, driver);
    let pages = lines.each_ref().map(page_beside);
    for line in &lines {
        let submitted = queue.submit(&[], |()| Ok(()), &[line.signal_at(1)]);
        submitted.unwrap();
    }
    // Both positions first, though the driver's own order is that of the submissions.
    signals.0.lock().unwrap().swap(1, 2);
    let (tell, told) = channel();
    let waits = queue.clone();
    let pages_then = pages.clone();
    let thread = thread::spawn(move || {
        let idle = waits.idle(LONG);
        tell.send((idle, pages_then.map(|page| page.value())))
            .unwrap();
    });
    signals.signal();
    signals.signal();
    let is_idle = || queue.idle(Duration::ZERO);
    for signalled in 0..2 {
        for _ in 0..10 {
            let open = is_idle();
            let fine = matches!(open, Err(Error::TimedOut { reached, .. }) if reached == signalled);
            assert!(fine, "{signalled} signalled: {open:?}");
        }
        signals.signal();
    }
    let (idle, pages) = told.recv_timeout(2 * LONG).unwrap();
    idle.unwrap();
    for page in pages {
        assert_eq!(page.unwrap(), 1);
    }
    is_idle().unwrap();
    thread.join().unwrap();
}

/// P4, with a driver that takes its time between the two.
#[test]
fn a_position_waits_for_signals_that_a_driver_makes_later() {
    let (words, device) = (Arc::new(Words::default()), DeviceId::new());
    let line = |label| words.timeline(device, label, Arc::default());
    a_position_shows_behind_its_signals(device, line("position"), [line("a"), line("b")]);
}

/// P4, where the position is told to the engine once and no thread looks at a port.
#[test]
fn a_position_that_is_told_once_shows_with_the_last_signal() {
    let device = host::Device::new();
    let line = |label| device.timeline(label).unwrap();
    a_position_shows_behind_its_signals(device.id(), line("position"), [line("a"), line("b")]);
}
