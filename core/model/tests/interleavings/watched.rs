//! A device whose driver signals by itself, with the engine's watching thread between it and who waits. No time-out
//! ends a watch here: the thread must be nudged whenever there is something new to look for.

use std::sync::Arc;
use std::time::Instant;

use loom::sync::{Condvar, Mutex};
use loom::thread;
use syncline_model::backend::{Attachment, Port, Watch, Watcher};
use syncline_model::{DeviceId, Error, Result, Timeline};

use crate::{FOREVER, interrupted};

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

    fn signal(&self, value: u64) -> Result<()> {
        self.0.execute(value);
        Ok(())
    }
}

struct Device {
    native: Arc<Native>,
    watcher: Watcher,
}

impl Watch for Device {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, ports: &[(&dyn Port, u64)], _: Instant) -> Result<()> {
        let lowest = ports.iter().map(|&(_, value)| value).min().unwrap();
        let mut state = self.native.state.lock().unwrap();
        while !state.nudged && state.value < lowest {
            state = self.native.changed.wait(state).unwrap();
        }
        state.nudged = false;
        Ok(())
    }

    fn nudge(&self) {
        self.native.state.lock().unwrap().nudged = true;
        self.native.changed.notify_all();
    }
}

fn watched() -> (Timeline, Arc<Device>) {
    let native = Arc::new(Native::default());
    let device = Arc::new(Device {
        native: native.clone(),
        watcher: Watcher::default(),
    });
    let attachment = Attachment {
        device: DeviceId::new(),
        port: Box::new(Counter(native)),
        watch: Some(device.clone()),
        max_value_difference: u64::MAX,
        signalled_elsewhere: false,
    };
    let line = Timeline::new("line", 0, |_| Ok([attachment].into_iter().collect()));
    (line.unwrap(), device)
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

/// The wait begins before the value is even pending: the watching thread has nothing to look for until it is.
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

/// A claim is taken back while somebody waits for it and the last handle goes: whoever does the latter last ends it.
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
        // The watching thread may hold the timeline until its round is over, which it never is here.
        device.nudge();
    });
}
