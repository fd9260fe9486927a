//! What a driver signals by itself, seen by queries, and waits that end before released work runs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use syncline_core::backend::{Batch, Device as _, Flush, Keep, Queue as _, Waker};
use syncline_core::{QueueKind, Result, Timeline, WaitMode, host, info::DeviceId};

use crate::script::{Made, Script, Scripted, scripted};
use crate::words::{Of, Word, Words};

const LONG: Duration = Duration::from_secs(20);

type Then = Mutex<Option<Box<dyn Fn() + Send>>>;

/// A driver that makes the signals of a submission in `flush`, and then calls the function.
#[derive(Default)]
struct Prompt(Arc<Then>);

impl Script for Prompt {
    fn record(
        &self,
        batch: &Batch<'_, Scripted<Self>>,
        _: &mut Keep,
        made: &mut Vec<Made>,
        work: &mut dyn FnMut(&mut u64) -> Result<()>,
    ) -> Result<()> {
        work(&mut 0)?;
        for signal in batch.signals.iter().chain([&batch.end]) {
            let (Word(word), value) = (signal.port().unwrap(), signal.value());
            let word = word.clone();
            made.push(Box::new(move || word.store(value, Ordering::SeqCst)));
        }
        Ok(())
    }

    fn flush(&self, made: &mut Vec<Made>, _: &dyn Fn() -> Waker) -> Flush {
        made.drain(..).for_each(|signal| signal());
        if let Some(check) = &*self.0.lock().unwrap() {
            check();
        }
        Flush::Done
    }
}

#[test]
fn a_signal_from_outside_is_pending_once_it_is_reached() {
    let (words, word) = (Arc::new(Words::default()), Arc::<AtomicU64>::default());
    let device = DeviceId::new::<Of<Scripted<Prompt>>>();
    let port = words.port(device, word.clone()).signalled_elsewhere(true);
    let line = Timeline::new("imported", 0, |_| Ok([port].into_iter().collect())).unwrap();
    assert!(!line.at(1).is_pending().unwrap());
    let told = line.at(1).wait_pending(Duration::ZERO).unwrap_err();
    assert!(told.to_string().contains("to be pending at 1"), "{told}");
    word.store(1, Ordering::SeqCst);
    assert!(line.at(1).is_pending().unwrap());
    word.store(2, Ordering::SeqCst);
    line.at(2).wait_pending(Duration::ZERO).unwrap();
    word.store(3, Ordering::SeqCst);
    line.at(3).require_pending().unwrap();
    // A submission that waits for it is not held.
    word.store(4, Ordering::SeqCst);
    let queue = scripted(words.of(device, Arc::default()), Prompt::default());
    let sent = queue.submit(&[line.at(4)], |_| Ok(()), &[]).unwrap();
    assert!(!sent.is_held());
}

#[test]
fn a_sleeping_waiter_is_woken_before_released_work_runs() {
    let device = host::Device::new();
    let queue = device.queue(QueueKind::Compute, "held").unwrap();
    let line = device.timeline("line").unwrap();
    let (woke, heard) = channel();
    let in_time = Arc::new(AtomicBool::new(false));
    let noted = in_time.clone();
    // The submission is registered first, so the signalling thread releases it first. Its work
    // runs on that thread until the waiter is awake.
    let record = move |_: &mut host::Recorder| {
        noted.store(heard.recv_timeout(LONG).is_ok(), Ordering::SeqCst);
        Ok(())
    };
    queue.submit(&[line.at(1)], record, &[]).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            line.at(1).wait_with(WaitMode::Block, 2 * LONG).unwrap();
            woke.send(()).unwrap();
        });
        // The waiter probably sleeps by now. The result is the same if it does not.
        thread::sleep(Duration::from_millis(20));
        line.signal(1).unwrap();
    });
    assert!(
        in_time.load(Ordering::SeqCst),
        "the sleeper was woken only after the work"
    );
}

/// The driver may complete a submission before the engine has promoted its signals.
///
/// A query at that time never finds the queue's position reached without the signal before it.
#[test]
fn a_fast_drivers_position_waits_for_its_signals() {
    let words = Arc::new(Words::default());
    let device = DeviceId::new::<Of<Scripted<Prompt>>>();
    let then = Arc::<Then>::default();
    let home = words.of(device, Arc::default());
    let queue = scripted(home, Prompt(then.clone()));
    let line = words.timeline(device, "line", Arc::default());
    // A pending submission makes a query of the position poll the driver.
    queue.submit(&[], |_| Ok(()), &[]).unwrap();
    let (asked, at, seen) = (queue.clone(), line.at(1).keep(), Arc::new(Mutex::new(None)));
    let told = seen.clone();
    *then.lock().unwrap() = Some(Box::new(move || {
        let position = asked.position().is_reached().unwrap();
        let signal = at.point().is_reached().unwrap();
        *told.lock().unwrap() = Some((position, signal));
    }));
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
    then.lock().unwrap().take();
    let (position, signal) = seen.lock().unwrap().expect("asked in the driver's call");
    assert!(signal || !position, "the position came before the signal");
    assert!(queue.position().is_reached().unwrap());
    assert!(line.at(1).is_reached().unwrap());
    line.signal(2).unwrap();
}
