//! The thread that watches a device's ports while somebody waits for them.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::error::{Error, Failure, Result};
use crate::base::run::{DeferWakes, Wake, wake_all};
use crate::base::sync::{
    Condvar, Instant, Mutex, Ordering, per_thread, spawn, system_time, yield_now,
};
use crate::port::{Port, Watch};

/// How long one watch lasts at most; a device that dies without a word is noticed in this time.
pub(crate) const ROUND: Duration = Duration::from_millis(100);

/// How long a queue waits before it tries a driver again that took no submissions, and the thread after a driver
/// could not be watched.
pub(crate) const RETRY: Duration = Duration::from_millis(2);

/// How long a timeline's last handle waits at most for the watching thread to let go of the timeline.
const LETTING_GO: Duration = Duration::from_millis(50);

/// A timeline, as the thread that watches its home port uses it.
pub(crate) trait Watched: Send + Sync + std::fmt::Debug {
    /// Asked in each round: the value to look for, or `None` to forget this timeline.
    fn target(&self) -> Option<u64>;

    /// The port that is watched.
    fn home(&self) -> &dyn Port;

    /// The device of that port.
    fn watch(&self) -> Option<&Arc<dyn Watch>>;

    /// The value that is known to be reached.
    fn reached(&self) -> u64;

    /// Asks the port. Returns the value reached.
    fn refresh(&self) -> u64;

    /// Fails the timeline.
    fn fail(&self, cause: Failure);
}

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
    /// The thread is wanted, and the system would not start it. Never modelled: a model's threads all start.
    blind: std::sync::atomic::AtomicBool,
}

#[derive(Default)]
struct State {
    /// Timelines that the thread has not taken up yet.
    incoming: Vec<Arc<dyn Watched>>,
    /// A thread that waits watches in the place of this one, which holds no timeline: see `wait/lead.rs`.
    led: bool,
    /// To be woken at `retry_at`.
    retries: Vec<Arc<dyn Wake>>,
    retry_at: Option<Instant>,
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

impl State {
    /// Takes out what is to be woken by now.
    fn take_due(&mut self) -> Vec<Arc<dyn Wake>> {
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            self.retry_at = None;
            std::mem::take(&mut self.retries)
        } else {
            Vec::new()
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("incoming", &self.incoming)
            .field("retries", &self.retries.len())
            .field("watching", &self.watching)
            .finish_non_exhaustive()
    }
}

per_thread! { static WATCHING: Cell<bool> = Cell::new(false) }

/// True on a watching thread, which must not rely on being woken by itself.
pub(crate) fn on_watcher_thread() -> bool {
    WATCHING.try_with(Cell::get).unwrap_or(false)
}

impl Watcher {
    /// Takes up `timeline`, or just looks again if it is `None`.
    pub(crate) fn want(&self, device: &dyn Watch, timeline: Option<Arc<dyn Watched>>) {
        self.tell(device, |state| state.incoming.extend(timeline));
    }

    /// True while the thread is wanted and the system would not start it: nobody is woken by what drivers signal.
    pub(crate) fn is_blind(&self) -> bool {
        self.0.blind.load(Ordering::Acquire)
    }

    /// Wakes `waiter` in a few milliseconds, once, however often it is asked for until then.
    pub(crate) fn retry(&self, device: &dyn Watch, waiter: Arc<dyn Wake>) {
        self.tell(device, |state| {
            if !state
                .retries
                .iter()
                .any(|known| Arc::ptr_eq(known, &waiter))
            {
                state.retries.push(waiter);
            }
            state.retry_at.get_or_insert_with(|| Instant::now() + RETRY);
        });
    }

    /// Wakes the queues that are to be tried again by now, in the place of a thread that could not be started.
    pub(crate) fn tend(&self) {
        let due = self.0.state.lock().take_due();
        wake_all(due);
    }

    fn tell(&self, device: &dyn Watch, change: impl FnOnce(&mut State)) {
        let mut state = self.0.state.lock();
        change(&mut state);
        if !state.started {
            let inner = self.0.clone();
            let spawned = spawn("syncline-watch", move || inner.run());
            // Without a thread those who wait look for themselves; each new registration tries again.
            state.started = spawned.is_ok();
            self.0.blind.store(spawned.is_err(), Ordering::Release);
        }
        let (watching, led) = (state.watching, state.led);
        drop(state);
        if watching || led {
            device.nudge();
        }
        if !watching {
            self.0.changed.notify_one();
        }
    }

    /// Takes the watching thread's place, if that has nothing to do and nobody else has taken it: see `wait/lead.rs`. Called
    /// with a timeline's lock; the watcher's comes behind it.
    pub(crate) fn lead(&self) -> bool {
        let mut state = self.0.state.lock();
        let idle = !state.started || state.parked;
        let leads = idle && !state.led && state.incoming.is_empty();
        state.led |= leads;
        leads
    }

    /// True if timelines wait for the watching thread to take them up.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.0.state.lock().incoming.is_empty()
    }

    /// The thread that [leads](Watcher::lead) does so no more.
    pub(crate) fn stop_leading(&self) {
        let wanted = {
            let mut state = self.0.state.lock();
            state.led = false;
            !state.incoming.is_empty()
        };
        if wanted {
            self.0.changed.notify_one();
        }
    }

    /// Blocks until the watching thread holds nothing that nobody waits for, so that this thread, and
    /// not that one, drops what the caller is about to let go: what the caller then looks for, such as descriptors or
    /// memory of a device, is gone. Gives up after a while, as the thread may be running work that waits for this thread.
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

/// What a watch has told of one of the timelines that were watched. True if it has got on.
pub(crate) fn take_in(
    timeline: &dyn Watched,
    watched: &Result<()>,
    refresh: impl FnOnce() -> u64,
) -> bool {
    if let Err(lost @ Error::DeviceLost { .. }) = watched {
        timeline.fail(Arc::new(lost.clone()));
        return false;
    }
    // Whose port it is that cannot be watched shows when each is asked by itself.
    let before = timeline.reached();
    refresh() > before
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.state.lock().stopped = true;
        self.0.changed.notify_one();
    }
}

impl Inner {
    fn run(&self) {
        crate::port::parker::prepare_thread();
        WATCHING.with(|watching| watching.set(true));
        let mut watched: Vec<Arc<dyn Watched>> = Vec::new();
        let mut targets = Vec::new();
        loop {
            let due = {
                let mut state = self.state.lock();
                state.watching = false;
                state.take_due()
            };
            wake_all(due);
            let until = {
                let mut state = self.state.lock();
                loop {
                    if !state.led {
                        watched.append(&mut state.incoming);
                    }
                    if state.stopped {
                        return;
                    }
                    let now = Instant::now();
                    let due = state.retry_at.is_some_and(|at| at <= now);
                    if due || !watched.is_empty() {
                        break;
                    }
                    state.parked = true;
                    if state.waiting > 0 {
                        self.listed.notify_all();
                    }
                    state = match state.retry_at {
                        None => self.changed.wait(state),
                        Some(at) => self.changed.wait_timeout(state, at - now),
                    };
                }
                state.parked = false;
                state.watching = true;
                state.lists += 1;
                let round = Instant::now() + ROUND;
                state.retry_at.map_or(round, |at| at.min(round))
            };
            targets.clear();
            watched.retain(|timeline| {
                let target = timeline.target();
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
                let ports: SmallVec<[(&dyn Port, u64); 16]> = watched
                    .iter()
                    .zip(targets.drain(..))
                    .map(|(timeline, target)| (timeline.home(), target))
                    .collect();
                device.watch(&ports, system_time(until))
            };
            // Held submissions released below may drop the last handle of the device: let go of it first.
            drop(device);
            let mut moved = false;
            {
                // What the first of them releases must not keep the rest from hearing.
                let _deferred = DeferWakes::new();
                for timeline in &watched {
                    moved |= take_in(&**timeline, &result, || timeline.refresh());
                }
            }
            if result.is_err() && !moved {
                let state = self.state.lock();
                drop(self.changed.wait_timeout(state, RETRY));
                continue;
            }
            if !moved {
                // A counter may be ahead of the memory behind it, and then the watch ends at once.
                yield_now();
            }
        }
    }
}
