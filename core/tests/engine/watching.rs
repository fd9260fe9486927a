//! The watching thread of a device whose driver signals by itself, and the waits that it ends.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::script::{Made, Script, Scripted, scripted};
use crate::words::Of;
use syncline_core::backend::{
    Attachment, Batch, ByEngine, Device as _, Flush, Keep, Port, Queue as _, SubmissionQueue,
    Waker, Watch, Watcher,
};
use syncline_core::{Error, QueueKind, Result, Timeline, error::Object, host, info::DeviceId};

const LONG: Duration = Duration::from_secs(20);

/// A device whose counters advance when the test says so.
#[derive(Default)]
struct Driver {
    watcher: Watcher,
    nudged: Mutex<bool>,
    changed: Condvar,
    /// True if `watch` returns an error.
    cannot_watch: AtomicBool,
    /// Called by each nudge.
    on_nudge: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Driver {
    /// Wakes the watching thread, as the driver does after a signal.
    fn tick(&self) {
        *self.nudged.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn timeline(
        self: &Arc<Self>,
        device: DeviceId,
        label: &str,
        outside: bool,
    ) -> (Timeline, Arc<Counter>) {
        let counter = Arc::new(Counter::default());
        let port = At(counter.clone());
        let line = Timeline::new(label, 0, |_| {
            let attachment = Attachment::new(device, 0, port)
                .watched_by(self.clone())
                .signalled_elsewhere(outside);
            Ok([attachment].into_iter().collect())
        });
        (line.unwrap(), counter)
    }
}

impl Watch for Driver {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        if self.cannot_watch.load(Ordering::SeqCst) {
            return Err(trouble("watching"));
        }
        let mut nudged = self.nudged.lock().unwrap();
        loop {
            let reached = |&(port, value): &(&dyn Port, u64)| {
                port.poll()
                    .is_ok_and(|reached| reached.is_some_and(|reached| reached >= value))
            };
            if std::mem::take(&mut *nudged) || ports.iter().any(reached) {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            nudged = self.changed.wait_timeout(nudged, left).unwrap().0;
        }
    }

    fn nudge(&self) {
        if let Some(check) = &*self.on_nudge.lock().unwrap() {
            check();
        }
        self.tick();
    }
}

fn trouble(call: &'static str) -> Error {
    Error::native(Object::new("counter", ""), call, 2, "OUT_OF_MEMORY")
}

#[derive(Default)]
struct Counter {
    value: AtomicU64,
    broken: AtomicBool,
}

struct At(Arc<Counter>);

impl Port for At {
    fn poll(&self) -> Result<Option<u64>> {
        if self.0.broken.load(Ordering::SeqCst) {
            return Err(trouble("reading"));
        }
        Ok(Some(self.0.value.load(Ordering::SeqCst)))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.value.store(value, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn a_signal_from_outside_is_pending_once_it_is_reached() {
    let driver = Arc::new(Driver::default());
    let device = DeviceId::new::<Of<Scripted<Prompt>>>();
    let (line, counter) = driver.timeline(device, "imported", true);
    assert!(!line.at(1).is_pending().unwrap());
    let told = line.at(1).wait_pending(Duration::ZERO).unwrap_err();
    assert!(told.to_string().contains("to be pending at 1"), "{told}");
    counter.value.store(1, Ordering::SeqCst);
    assert!(line.at(1).is_pending().unwrap());
    counter.value.store(2, Ordering::SeqCst);
    line.at(2).wait_pending(Duration::ZERO).unwrap();
    counter.value.store(3, Ordering::SeqCst);
    line.at(3).require_pending().unwrap();
    // A submission that waits for it is not held.
    counter.value.store(4, Ordering::SeqCst);
    let queue = queue(&driver, device);
    assert!(
        !queue
            .submit(&[line.at(4)], |_| Ok(()), &[])
            .unwrap()
            .is_held()
    );
}

#[test]
fn an_error_of_watch_fails_only_timelines_that_cannot_be_read() {
    let driver = Arc::new(Driver::default());
    let device = DeviceId::new::<Of<Scripted<Prompt>>>();
    let (sound, counter) = driver.timeline(device, "sound", true);
    let (broken, other) = driver.timeline(device, "broken", true);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| sound.at(1).wait(LONG));
        let failing = scope.spawn(|| broken.at(1).wait(LONG));
        std::thread::sleep(Duration::from_millis(5));
        driver.cannot_watch.store(true, Ordering::SeqCst);
        other.broken.store(true, Ordering::SeqCst);
        driver.tick();
        let error = failing.join().unwrap().unwrap_err();
        assert!(matches!(error, Error::Failed { .. }), "{error}");
        counter.value.store(1, Ordering::SeqCst);
        waiting
            .join()
            .unwrap()
            .expect("the other timeline failed it");
    });
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
    std::thread::scope(|scope| {
        scope.spawn(|| {
            line.at(1)
                .wait_with(syncline_core::WaitMode::Block, 2 * LONG)
                .unwrap();
            woke.send(()).unwrap();
        });
        // The waiter probably sleeps by now. The result is the same if it does not.
        std::thread::sleep(Duration::from_millis(20));
        line.signal(1).unwrap();
    });
    assert!(
        in_time.load(Ordering::SeqCst),
        "the sleeper was woken only after the work"
    );
}

#[test]
fn released_work_of_one_timeline_does_not_delay_waiters_of_another() {
    let driver = Arc::new(Driver::default());
    let near = DeviceId::new::<()>();
    let device = host::Device::new();
    let queue = device.queue(QueueKind::Compute, "held").unwrap();
    let (first, one) = driver.timeline(near, "first", true);
    let (second, two) = driver.timeline(near, "second", true);
    let (woke, heard) = channel();
    let in_time = Arc::new(AtomicBool::new(false));
    let noted = in_time.clone();
    let record = move |_: &mut host::Recorder| {
        noted.store(heard.recv_timeout(LONG).is_ok(), Ordering::SeqCst);
        Ok(())
    };
    // The watching thread releases it.
    queue.submit(&[first.at(1)], record, &[]).unwrap();
    let parked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            parked.store(true, Ordering::SeqCst);
            second
                .at(1)
                .wait_with(syncline_core::WaitMode::Block, 2 * LONG)
                .unwrap();
            woke.send(()).unwrap();
        });
        while !parked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        one.value.store(1, Ordering::SeqCst);
        two.value.store(1, Ordering::SeqCst);
        driver.tick();
    });
    queue.idle(LONG).unwrap();
    assert!(
        in_time.load(Ordering::SeqCst),
        "the other timeline's waiter had to wait for the work"
    );
}

/// A driver that signals the counters of a submission in `flush`.
struct Prompt(Arc<Driver>);

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
            let (counter, value) = (signal.port::<At>().unwrap().0.clone(), signal.value());
            made.push(Box::new(move || {
                counter.value.store(value, Ordering::SeqCst)
            }));
        }
        Ok(())
    }

    fn flush(&self, made: &mut Vec<Made>, _: &dyn Fn() -> Waker) -> Flush {
        made.drain(..).for_each(|signal| signal());
        self.0.tick();
        if let Some(check) = &*self.0.on_nudge.lock().unwrap() {
            check();
        }
        Flush::Done
    }
}

fn queue(driver: &Arc<Driver>, device: DeviceId) -> Arc<SubmissionQueue<Scripted<Prompt>>> {
    let watch = driver.clone();
    let home = Of::new(device, move || {
        let at = At(Arc::new(Counter::default()));
        Attachment::new(device, 0, at).watched_by(watch.clone())
    });
    scripted(home, Prompt(driver.clone()))
}

/// The driver may complete a submission before the engine has promoted its signals.
///
/// A query at that time never finds the queue's position reached without the signal before it.
#[test]
fn a_fast_drivers_position_waits_for_its_signals() {
    let driver = Arc::new(Driver::default());
    let device = DeviceId::new::<Of<Scripted<Prompt>>>();
    let queue = queue(&driver, device);
    let (line, _) = driver.timeline(device, "line", false);
    // A pending submission makes a query of the position poll the driver.
    queue.submit(&[], |_| Ok(()), &[]).unwrap();
    let (asked, at, seen) = (queue.clone(), line.at(1).keep(), Arc::new(Mutex::new(None)));
    let told = seen.clone();
    *driver.on_nudge.lock().unwrap() = Some(Box::new(move || {
        let position = asked.position().is_reached().unwrap();
        let signal = at.point().is_reached().unwrap();
        *told.lock().unwrap() = Some((position, signal));
    }));
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
    driver.on_nudge.lock().unwrap().take();
    let (position, signal) = seen.lock().unwrap().expect("asked in the driver's call");
    assert!(signal || !position, "the position came before the signal");
    assert!(queue.position().is_reached().unwrap());
    assert!(line.at(1).is_reached().unwrap());
    line.signal(2).unwrap();
}
