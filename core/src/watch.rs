//! The thread that watches a device's ports while somebody waits for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Port, Watch};
use crate::state::Shared;
use crate::sync::{Condvar, Mutex};

/// How long one watch lasts at most; a device that dies without a word is noticed in this time.
const ROUND: Duration = Duration::from_millis(100);

/// How long a timeline's last handle waits at most for the watching thread to let go of the timeline.
const LETTING_GO: Duration = Duration::from_millis(50);

/// A device's watching thread: started when first needed, parked while nobody waits, and gone with
/// the device.
#[derive(Debug, Default)]
pub struct Watcher(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    /// A list was made, or the thread parks.
    listed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Timelines that the thread has not taken up yet.
    incoming: Vec<Arc<Shared>>,
    started: bool,
    stopped: bool,
    /// The thread has made its list and is in, or about to enter, `Watch::watch`.
    watching: bool,
    /// Odd while the thread makes its list: one more each time that it begins or ends that.
    lists: u64,
    /// The thread holds no timeline.
    parked: bool,
    /// How many wait in [`Watcher::let_go`].
    waiting: usize,
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

    /// Blocks until the watching thread holds nothing that nobody waits for, so that this thread, and
    /// not that one, drops what the caller is about to let go: nobody joins that thread, and a driver
    /// that it unloads while the process exits takes the process down. Gives up after a while, as the
    /// thread may be running somebody's work that waits for this thread.
    pub(crate) fn let_go(&self, device: &dyn Watch) {
        if on_watcher_thread() {
            return;
        }
        let until = Instant::now() + LETTING_GO;
        let mut state = self.0.state.lock();
        if !state.started || (state.parked && state.incoming.is_empty()) {
            return;
        }
        // The list that is being made now may have the timeline already: the next one will not.
        let enough = state.lists + 2 + state.lists % 2;
        state.waiting += 1;
        drop(state);
        device.nudge();
        let mut state = self.0.state.lock();
        while state.lists < enough && !(state.parked && state.incoming.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.0.listed.wait_timeout(state, left);
        }
        state.waiting -= 1;
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
                    state.parked = true;
                    if state.waiting > 0 {
                        self.listed.notify_all();
                    }
                    state = self.changed.wait(state);
                }
                state.parked = false;
                state.watching = true;
                state.lists += 1;
            }
            let mut targets = Vec::with_capacity(watched.len());
            watched.retain(|timeline| {
                let target = timeline.watch_target();
                targets.extend(target);
                target.is_some()
            });
            {
                let mut state = self.state.lock();
                state.lists += 1;
                if state.waiting > 0 {
                    self.listed.notify_all();
                }
            }
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
            let mut moved = false;
            for timeline in &watched {
                match &result {
                    Ok(()) => {
                        let before = timeline.reached();
                        moved |= timeline.refresh() > before;
                    }
                    Err(error) => timeline.fail(Arc::new(error.clone())),
                }
            }
            if !moved {
                // A counter may be ahead of the memory behind it, and then the watch ends at once.
                std::thread::yield_now();
            }
        }
    }
}
