//! A device whose driver signals by itself, with the engine's watching thread between it and who
//! waits. No time-out ends a watch here: the thread must be nudged whenever there is something new
//! to look for.

use std::sync::Arc;
use std::time::Instant;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use syncline_model::backend::{Attachment, ByEngine, Port, Watch, Watcher};
use syncline_model::{DeviceId, Error, Result, Timeline};

use crate::{FOREVER, interrupted, is_planted, planted};

/// A counter, and whoever watches it.
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
    /// The driver's own doing.
    fn execute(&self, value: u64) {
        self.state.lock().unwrap().value = value;
        self.changed.notify_all();
    }
}

/// Not the device: that would keep itself.
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
    /// Somebody is in `watch`.
    watched: AtomicBool,
}

impl Watch for Device {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, ports: &[(&dyn Port, u64)], _: Instant) -> Result<()> {
        let met = self.watched.swap(true, Ordering::SeqCst);
        assert!(!met, "two calls at a time");
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

    /// All of them have the one counter.
    fn timeline(self: &Arc<Self>, label: &str) -> Timeline {
        let attachment = Attachment::new(DeviceId::new(), 0, Counter(self.native.clone()))
            .watched_by(self.clone());
        let line = Timeline::new(label, 0, |_| Ok([attachment].into_iter().collect()));
        line.unwrap()
    }
}

fn watched() -> (Timeline, Arc<Device>) {
    let device = Device::new(false);
    (device.timeline("line"), device)
}

/// With a driver whose watch a thread that waits calls itself.
fn lent() -> (Timeline, Arc<Device>) {
    let device = Device::new(true);
    (device.timeline("line"), device)
}

/// The application's submission executes while a thread waits for it, and then the timeline goes.
#[test]
fn a_driver_against_a_wait() {
    interrupted(2, || {
        let (line, device) = watched();
        let mut claim = line.claim(1, 0).unwrap();
        claim.submitted().unwrap();
        let executing = thread::spawn(move || device.native.execute(1));
        line.at(1).wait(FOREVER).unwrap();
        executing.join().unwrap();
    });
}

/// The wait begins before the value is even pending: the watching thread has nothing to look for
/// until it is.
#[test]
fn a_declaration_against_a_wait() {
    interrupted(2, || {
        let (line, device) = watched();
        let mut claim = line.claim(1, 0).unwrap();
        let point = line.at(1).keep();
        let waiting = thread::spawn(move || point.point().wait(FOREVER).unwrap());
        device.native.execute(1);
        claim.submitted().unwrap();
        waiting.join().unwrap();
    });
}

/// A claim is taken back while somebody waits for it and the last handle goes: whoever does the
/// latter last ends it.
#[test]
fn a_withdrawal_against_the_last_drop() {
    interrupted(3, || {
        let (line, device) = watched();
        let claim = line.claim(1, 0).unwrap();
        let point = line.at(1).keep();
        let withdrawing = thread::spawn(move || drop(claim));
        drop(line);
        let error = point.point().wait(FOREVER).unwrap_err();
        assert!(
            matches!(error, Error::Cancelled { value: 1, .. }),
            "{error}"
        );
        withdrawing.join().unwrap();
        // The watching thread may hold the timeline until its round is over, which it never is
        // here.
        device.nudge();
    });
}

/// A thread that waits alone watches itself, and needs nobody.
#[test]
fn a_driver_against_a_wait_that_leads() {
    interrupted(3, || {
        let (line, device) = lent();
        let mut claim = line.claim(1, 0).unwrap();
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
        let mut claim = line.claim(1, 0).unwrap();
        claim.submitted().unwrap();
        let failed = line.clone();
        let failing = thread::spawn(move || failed.fail(planted()));
        let error = line.at(1).wait(FOREVER).unwrap_err();
        assert!(is_planted(&error), "{error}");
        failing.join().unwrap();
    });
}

/// Who waits for the higher value leads, or would, and makes way as the other comes: its value is
/// only signalled once the other has the lower one.
#[test]
fn a_wait_that_leads_against_another() {
    interrupted(1, || {
        let (line, device) = lent();
        let mut claim = line.claim(2, 0).unwrap();
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

/// The value comes past what both wait for: who leads by then tells the other, whichever that is.
#[test]
fn a_wait_that_leads_tells_another() {
    interrupted(2, || {
        let (line, device) = lent();
        let mut claim = line.claim(2, 0).unwrap();
        claim.submitted().unwrap();
        let point = line.at(1).keep();
        let other = thread::spawn(move || point.point().wait(FOREVER).unwrap());
        let executing = thread::spawn(move || device.native.execute(2));
        line.at(2).wait(FOREVER).unwrap();
        other.join().unwrap();
        executing.join().unwrap();
    });
}

/// The same with waits for two timelines: he who made way is served by the watching thread.
#[test]
fn a_wait_that_leads_against_one_for_another_timeline() {
    interrupted(2, || {
        let (line, device) = lent();
        let beside = device.timeline("beside");
        for line in [&line, &beside] {
            let mut claim = line.claim(1, 0).unwrap();
            claim.submitted().unwrap();
        }
        let other = thread::spawn(move || beside.at(1).wait(FOREVER).unwrap());
        let executing = thread::spawn(move || device.native.execute(1));
        line.at(1).wait(FOREVER).unwrap();
        other.join().unwrap();
        executing.join().unwrap();
    });
}
