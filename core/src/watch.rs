//! The thread that watches a device's ports while somebody waits for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Port, Watch};
use crate::sync::{Condvar, Mutex};
use crate::timeline::Shared;

/// How long one watch lasts at most; a device that dies without a word is noticed in this time.
const ROUND: Duration = Duration::from_millis(100);

/// A device's watching thread: started when first needed, parked while nobody waits, and gone with
/// the device.
#[derive(Debug, Default)]
pub struct Watcher(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Timelines that the thread has not taken up yet.
    incoming: Vec<Arc<Shared>>,
    started: bool,
    stopped: bool,
    /// The thread has made its list and is in, or about to enter, `Watch::watch`.
    watching: bool,
}

thread_local! {
    static WATCHING: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// True on a watching thread, which must not rely on being woken by itself.
pub(crate) fn on_watcher_thread() -> bool {
    WATCHING.try_with(std::cell::Cell::get).unwrap_or(false)
}

impl Watcher {
    /// Takes up `timeline`, or just looks again if it is `None`.
    pub(crate) fn want(&self, device: &dyn Watch, timeline: Option<Arc<Shared>>) {
        let mut state = self.0.state.lock();
        state.incoming.extend(timeline);
        if !state.started {
            let inner = self.0.clone();
            let spawned = std::thread::Builder::new()
                .name("syncline-watch".into())
                .spawn(move || inner.run());
            // Without a thread the waiting threads still poll by themselves; the next want tries again.
            state.started = spawned.is_ok();
        }
        let watching = state.watching;
        drop(state);
        if watching {
            device.nudge();
        } else {
            self.0.changed.notify_one();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.state.lock().stopped = true;
        self.0.changed.notify_one();
    }
}

impl Inner {
    fn run(&self) {
        WATCHING.set(true);
        let mut watched: Vec<Arc<Shared>> = Vec::new();
        loop {
            {
                let mut state = self.state.lock();
                state.watching = false;
                loop {
                    watched.append(&mut state.incoming);
                    if state.stopped {
                        return;
                    }
                    if !watched.is_empty() {
                        break;
                    }
                    state = self.changed.wait(state);
                }
                state.watching = true;
            }
            let mut targets = Vec::with_capacity(watched.len());
            watched.retain(|timeline| {
                let target = timeline.watch_target();
                targets.extend(target);
                target.is_some()
            });
            let Some(device) = watched.first().and_then(|first| first.watch().cloned()) else {
                continue;
            };
            let result = {
                let ports: Vec<(&dyn Port, u64)> = watched
                    .iter()
                    .zip(targets)
                    .map(|(timeline, target)| (timeline.home(), target))
                    .collect();
                device.watch(&ports, Instant::now() + ROUND)
            };
            // Held submissions released below may drop the last handle of the device: let go of it first.
            drop(device);
            for timeline in &watched {
                match &result {
                    Ok(()) => {
                        timeline.refresh();
                    }
                    Err(error) => timeline.fail(Arc::new(error.clone())),
                }
            }
        }
    }
}
