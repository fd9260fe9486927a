//! P4: the position of a queue, and signals of its submissions that are published.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use syncline_core::backend::{
    Attachment, Batch, ByEngine, Counter, Enqueue, Flush, Keep, NativePoint, NoStamp, Port, Waker,
};
use syncline_core::internal::Page;
use syncline_core::{Error, Result, Timeline, host, info::DeviceId};

use crate::words::{Of, Word, Words, queue};

const LONG: Duration = Duration::from_secs(20);

/// Publishes `line` with a page beside it.
fn page_beside(line: &Timeline) -> Arc<Counter> {
    let (_, exporter) = host::Device::new().exportable_port(0).unwrap();
    line.publish(exporter.counter().clone(), Page::Beside)
        .unwrap();
    exporter.counter().clone()
}

/// Makes one signal.
type Signal = Box<dyn FnOnce() + Send>;

/// A driver whose signals the test makes one by one.
///
/// Of each submission, the position of the queue comes before the other signals.
struct OneByOne {
    home: Of<Self>,
    signals: Signals,
}

/// The signals that are still to be made, in order.
#[derive(Clone, Default)]
struct Signals(Arc<Mutex<VecDeque<Signal>>>);

impl Signals {
    fn signal(&self) {
        let next = self.0.lock().unwrap().pop_front();
        next.unwrap()();
    }
}

/// A port that the engine knows by its own signals only.
struct Unread;

impl Port for Unread {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
}

/// The function that makes the signal of `point`.
///
/// It stores the word that a device would write, or completes the signal through the engine.
fn signal_of(point: &NativePoint<'_>) -> Signal {
    let value = point.value();
    if let Some(Word(word)) = point.port::<Word>() {
        let word = word.clone();
        return Box::new(move || word.store(value, Ordering::SeqCst));
    }
    let completion = point.completion().unwrap();
    Box::new(move || completion.complete())
}

impl Enqueue for OneByOne {
    type Device = Of<Self>;
    type Recorder<'a> = ();
    type Ready<'a> = ();
    type State = Vec<Signal>;
    type Stamp = NoStamp;

    fn device(&self) -> &Of<Self> {
        &self.home
    }

    fn order_domain(&self) -> Option<u64> {
        Some(1)
    }

    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(
        &self,
        (): (),
        recorded: &mut Vec<Signal>,
        batch: &Batch<'_, Self>,
        _: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        work(&mut ())?;
        let all = [&batch.end].into_iter().chain(batch.signals);
        *recorded = all.map(signal_of).collect();
        Ok(())
    }
    fn flush(&self, recorded: &mut Vec<Signal>, _: &dyn Fn() -> Waker) -> Flush {
        self.signals.0.lock().unwrap().extend(recorded.drain(..));
        Flush::Done
    }
}

/// Checks that the position `own` of a queue becomes visible after the published signals.
///
/// Each of two submissions has one published signal.
fn check_position_and_signals(home: Of<OneByOne>, lines: [Timeline; 2]) {
    let signals = Signals::default();
    let driver = OneByOne {
        home,
        signals: signals.clone(),
    };
    let queue = queue("queue", driver);
    let pages = lines.each_ref().map(page_beside);
    for line in &lines {
        let submitted = queue.submit(&[], |()| Ok(()), &[line.signal_at(1)]);
        submitted.unwrap();
    }
    // Both positions come before both signals.
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

/// The device writes the words of the positions first, and those of the signals later.
#[test]
fn a_position_waits_for_signals_that_a_driver_makes_later() {
    let (words, device) = (Arc::new(Words::default()), DeviceId::new::<Of<OneByOne>>());
    let line = |label| words.timeline(device, label, Arc::default());
    let home = words.of(device, Arc::default());
    check_position_and_signals(home, [line("a"), line("b")]);
}

/// The driver completes the position through the engine once, and no thread polls a port.
#[test]
fn a_position_that_is_completed_once_becomes_visible_with_the_last_signal() {
    let device = DeviceId::new::<Of<OneByOne>>();
    let port = move || Attachment::new(device, 0, Unread);
    let line = |label| Timeline::new(label, 0, |_| Ok([port()].into_iter().collect())).unwrap();
    check_position_and_signals(Of::new(device, port), [line("a"), line("b")]);
}
