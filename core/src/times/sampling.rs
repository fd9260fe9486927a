//! A thread that keeps conversions of devices' times exact, for who must not wait for a sample: whoever tells other processes of signals may be a device's
//! watching thread.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::error::{Error, Object, Result};
use crate::sync::{Condvar, Instant, Mutex, contain, spawn};

/// How long it is waited at the end for a sample that is being taken: see [`Watcher::let_go`](crate::Watcher).
const LETTING_GO: Duration = Duration::from_millis(50);

/// The thread, which sleeps until somebody asks for a sample, and ends with this.
pub(super) struct Sampling(Arc<Inner>);

struct Inner {
    clocks: Vec<Clock>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    wanted: bool,
    over: bool,
    /// It has a clock in its hands, and so perhaps a device.
    busy: bool,
}

impl Sampling {
    /// For these clocks, none of which keeps its device; nothing if there are none. Samples each of them.
    ///
    /// # Errors
    /// A driver error; [`Error::Native`] if the system gives no thread.
    pub(super) fn of(clocks: Vec<Clock>) -> Result<Option<Self>> {
        let Some(first) = clocks.first() else {
            return Ok(None);
        };
        for clock in &clocks {
            clock.sample()?;
        }
        let object = first.object().clone();
        let inner = Arc::new(Inner {
            clocks,
            state: Mutex::default(),
            changed: Condvar::default(),
        });
        let own = inner.clone();
        spawn("syncline-times", move || own.run()).map_err(|error| no_thread(object, &error))?;
        Ok(Some(Self(inner)))
    }

    /// Has those clocks sampled whose latest sample is old. Does not wait for it.
    pub(super) fn refresh(&self) {
        if !self.0.clocks.iter().any(Clock::wants_a_sample) {
            return;
        }
        let mut state = self.0.state.lock();
        let wanted = std::mem::replace(&mut state.wanted, true);
        drop(state);
        if !wanted {
            self.0.changed.notify_all();
        }
    }
}

fn no_thread(object: Object, error: &std::io::Error) -> Error {
    Error::Native {
        object,
        call: "starting a thread",
        code: error.raw_os_error().unwrap_or(0).into(),
        name: error.to_string(),
    }
}

impl Inner {
    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            state.busy = false;
            if state.over {
                drop(state);
                self.changed.notify_all();
                return;
            }
            while !state.wanted && !state.over {
                state = self.changed.wait(state);
            }
            if state.over {
                return;
            }
            state.wanted = false;
            state.busy = true;
            drop(state);
            for clock in self.clocks.iter().filter(|clock| clock.wants_a_sample()) {
                // One that fails leaves the conversion as it is, with the larger error of its age.
                contain(|| drop(clock.sample()));
            }
        }
    }
}

impl Drop for Sampling {
    /// Mostly nobody samples. If so the end of that is awaited, so that a device goes on the thread that lets go of it.
    fn drop(&mut self) {
        let until = Instant::now() + LETTING_GO;
        let mut state = self.0.state.lock();
        state.over = true;
        self.0.changed.notify_all();
        while state.busy {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            state = self.0.changed.wait_timeout(state, left);
        }
    }
}
