//! A device whose driver signals by itself, and the threads that watch its port.
//!
//! The engine's watching thread polls the port for waiting threads. No time-out ends a watch here,
//! so the thread must be nudged for each new value that it must watch for.

use std::sync::Arc;
use std::time::Instant;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use syncline_model::backend::{Attachment, ByEngine, Port, Watch, Watcher};
use syncline_model::{Error, Result, Timeline};

use crate::driver::device;
use crate::{FOREVER, interrupted, is_planted, planted};

/// A counter of the driver, and the state of a thread that watches it.
#[derive(Default)]
struct Native {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    value: u64,
    nudged: bool,
}

impl Native {
    /// Sets the counter, as the driver does.
    fn execute(&self, value: u64) {
        self.state.lock().unwrap().value = value;
        self.changed.notify_all();
    }
}

/// The port. It refers to the counter and not to the device, because the device keeps the port.
struct Counter(Arc<Native>);

impl Port for Counter {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.state.lock().unwrap().value))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.execute(value);
        Ok(())
    }
}

struct Device {
    native: Arc<Native>,
    watcher: Watcher,
    lends: bool,
    /// True while a thread is in `watch`.
    watched: AtomicBool,
}

impl Watch for Device {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, ports: &[(&dyn Port, u64)], _: Instant) -> Result<()> {
        let met = self.watched.swap(true, Ordering::SeqCst);
        assert!(!met, "two calls of watch at a time");
        let lowest = ports.iter().map(|&(_, value)| value).min().unwrap();
        let mut state = self.native.state.lock().unwrap();
        while !state.nudged && state.value < lowest {
            state = self.native.changed.wait(state).unwrap();
        }
        state.nudged = false;
        drop(state);
        self.watched.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn nudge(&self) {
        self.native.state.lock().unwrap().nudged = true;
        self.native.changed.notify_all();
    }

    fn lends(&self) -> bool {
        self.lends
    }
}

impl Device {
    fn new(lends: bool) -> Arc<Self> {
        Arc::new(Self {
            native: Arc::default(),
            watcher: Watcher::default(),
            lends,
            watched: AtomicBool::new(false),
        })
    }

    /// A timeline on the device's counter. All timelines of a device share it.
    fn timeline(self: &Arc<Self>, label: &str) -> Timeline {
        let attachment =
            Attachment::new(device(), 0, Counter(self.native.clone())).watched_by(self.clone());
        let line = Timeline::new(label, 0, |_| Ok([attachment].into_iter().collect()));
        line.unwrap()
    }
}

fn watched() -> (Timeline, Arc<Device>) {
    let device = Device::new(false);
    (device.timeline("line"), device)
}

/// A timeline of a device that lends its watch, so that a waiting thread calls `watch` itself.
fn lent() -> (Timeline, Arc<Device>) {
    let device = Device::new(true);
    (device.timeline("line"), device)
}

/// A submission of the application executes while a thread waits for it.
#[test]
fn a_driver_against_a_wait() {
    interrupted(2, || {
        let (line, device) = watched();
        let mut claim = line.claim(1).unwrap();
        claim.submitted().unwrap();
        let executing = thread::spawn(move || device.native.execute(1));
        line.at(1).wait(FOREVER).unwrap();
        executing.join().unwrap();
    });
}

/// A wait begins before its value is pending.
///
/// The watching thread watches for the value only after the claim is declared submitted.
#[test]
fn a_declaration_against_a_wait() {
    interrupted(2, || {
        let (line, device) = watched();
        let mut claim = line.claim(1).unwrap();
        let point = line.at(1).keep();
        let waiting = thread::spawn(move || point.point().wait(FOREVER).unwrap());
        device.native.execute(1);
        claim.submitted().unwrap();
        waiting.join().unwrap();
    });
}

/// A claim is withdrawn and the last handle is dropped while a thread waits for the value.
///
/// The later of the two ends the wait.
#[test]
fn a_withdrawal_against_the_last_drop() {
    interrupted(3, || {
        let (line, device) = watched();
        let claim = line.claim(1).unwrap();
        let point = line.at(1).keep();
        let withdrawing = thread::spawn(move || drop(claim));
        drop(line);
        let error = point.point().wait(FOREVER).unwrap_err();
        assert!(
            matches!(error, Error::Cancelled { value: 1, .. }),
            "{error}"
        );
        withdrawing.join().unwrap();
        // The watching thread may hold the timeline until its round ends. Without a time-out, only
        // a nudge ends the round.
        device.nudge();
    });
}

/// A thread that waits alone watches the port itself, without the watching thread.
#[test]
fn a_driver_against_a_wait_that_leads() {
    interrupted(3, || {
        let (line, device) = lent();
        let mut claim = line.claim(1).unwrap();
        claim.submitted().unwrap();
        let executing = thread::spawn(move || device.native.execute(1));
        line.at(1).wait(FOREVER).unwrap();
        executing.join().unwrap();
    });
}

#[test]
fn a_failure_against_a_wait_that_leads() {
    interrupted(3, || {
        let (line, _device) = lent();
        let mut claim = line.claim(1).unwrap();
        claim.submitted().unwrap();
        let failed = line.clone();
        let failing = thread::spawn(move || failed.fail(planted()));
        let error = line.at(1).wait(FOREVER).unwrap_err();
        assert!(is_planted(&error), "{error}");
        failing.join().unwrap();
    });
}

/// Two threads wait for a lower and a higher value, and one of them watches the port.
///
/// The higher value is signalled only after the wait for the lower one has ended. So a thread that
/// watches for the higher value must also end that wait.
#[test]
fn a_wait_that_leads_against_another() {
    interrupted(1, || {
        let (line, device) = lent();
        let mut claim = line.claim(2).unwrap();
        claim.submitted().unwrap();
        let point = line.at(1).keep();
        let executing = {
            let device = device.clone();
            thread::spawn(move || device.native.execute(1))
        };
        let other = thread::spawn(move || {
            point.point().wait(FOREVER).unwrap();
            device.native.execute(2);
        });
        line.at(2).wait(FOREVER).unwrap();
        other.join().unwrap();
        executing.join().unwrap();
    });
}

/// One value ends both waits. The thread that watches the port wakes the other.
#[test]
fn a_wait_that_leads_tells_another() {
    interrupted(2, || {
        let (line, device) = lent();
        let mut claim = line.claim(2).unwrap();
        claim.submitted().unwrap();
        let point = line.at(1).keep();
        let other = thread::spawn(move || point.point().wait(FOREVER).unwrap());
        let executing = thread::spawn(move || device.native.execute(2));
        line.at(2).wait(FOREVER).unwrap();
        other.join().unwrap();
        executing.join().unwrap();
    });
}

/// Two threads wait for two timelines of one device. The value of the counter ends both waits.
#[test]
fn a_wait_that_leads_against_one_for_another_timeline() {
    interrupted(2, || {
        let (line, device) = lent();
        let beside = device.timeline("beside");
        for line in [&line, &beside] {
            let mut claim = line.claim(1).unwrap();
            claim.submitted().unwrap();
        }
        let other = thread::spawn(move || beside.at(1).wait(FOREVER).unwrap());
        let executing = thread::spawn(move || device.native.execute(1));
        line.at(1).wait(FOREVER).unwrap();
        other.join().unwrap();
        executing.join().unwrap();
    });
}
