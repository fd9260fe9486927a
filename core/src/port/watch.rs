//! The thread that watches the ports of a device while a thread or a queue waits for them.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;

use crate::base::error::{Error, Failure, Object, Result};
use crate::base::exiting::{DriverCalls, is_exiting, stop_for_good};
use crate::base::info::DeviceId;
use crate::base::process::DroppedByMaker;
use crate::base::run::{DeferWakes, Wake, panic_message, wake_all};
use crate::base::sync::{
    Condvar, Instant, Mutex, caught, per_thread, spawn, system_time, yield_now,
};
use crate::port::device_port::Port;

/// The longest time of one watch, and the time between two checks of a device.
///
/// The loss of a device that its driver does not report is noticed in this time.
pub(crate) const ROUND: Duration = Duration::from_millis(100);

/// The pause before a retry.
///
/// - The watching thread wakes a queue after this time if the queue's driver could not take a
///   submission.
/// - The watching thread asks the driver of a dropped failed queue again whether it is idle.
/// - The watching thread, or a thread that leads in its place, watches again after a failed watch.
/// - The watching thread makes the next step of a recovery.
pub(crate) const RETRY: Duration = Duration::from_millis(2);

/// The longest time that [`Watcher::let_go`] blocks.
pub(crate) const LETTING_GO: Duration = Duration::from_millis(50);

/// A timeline, as the thread that watches its home port uses it.
pub(crate) trait Watched: Send + Sync + std::fmt::Debug {
    /// The value to watch for in the next round. `None` ends the watch of this timeline.
    fn target(&self) -> Option<u64>;

    /// The home port, which is watched.
    fn home(&self) -> &dyn Port;

    /// The device of the home port.
    fn watch(&self) -> Option<&Arc<dyn Watch>>;

    /// The value that is known to be reached.
    fn reached(&self) -> u64;

    /// Polls the home port. Returns the value reached.
    fn refresh(&self) -> u64;

    /// Fails the timeline.
    fn fail(&self, cause: Failure);
}

/// A timeline that the watching thread recovers if a device is lost that owes it a signal.
pub(crate) trait Guarded: Send + Sync {
    /// Checks `device`. If it is lost, fails the timeline.
    fn check_device(&self, device: DeviceId) -> Health;

    /// Makes the signals that the lost `device` owes, as many as possible now.
    ///
    /// Returns the time until the next check.
    fn recover_from_loss(&self, device: DeviceId) -> Duration;
}

/// The result of [`Guarded::check_device`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// The device owes no signal, so the guard ends.
    OwesNothing,
    Works,
    /// The timeline has failed, and must be recovered.
    Lost,
}

/// The guard over one timeline against the loss of one device.
struct Guard {
    timeline: Weak<dyn Guarded>,
    device: DeviceId,
    /// When it is checked next.
    at: Instant,
}

/// A device whose driver advances ports by itself.
///
/// One thread of the engine watches all ports of the device. It starts with the first timeline. A
/// waiting thread may take its place (see [`Watch::lends`]).
pub trait Watch: Send + Sync + 'static {
    /// The device's watcher.
    fn watcher(&self) -> &Watcher;

    /// Blocks until a port reaches its value, the watch is nudged, or `until` has passed.
    ///
    /// May return early.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] or a driver error. The watched timelines fail with it.
    fn watch(&self, ports: &[(&dyn Port, u64)], until: std::time::Instant) -> Result<()>;

    /// Ends the present call of [`Watch::watch`], or the next one if there is none.
    ///
    /// Called with the lock of a waiting thread, so it must be quick.
    fn nudge(&self);

    /// Asks the driver whether the device is lost. Never blocks.
    ///
    /// The watching thread calls it every 100 ms while the device owes a signal to a timeline that
    /// other devices have, too (E3). A device that cannot be lost keeps the default.
    ///
    /// # Errors
    /// [`Error::DeviceLost`]. Any other error counts as no answer.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// True if a waiting thread may call [`Watch::watch`] itself.
    ///
    /// The waiting thread calls it if no other thread waits for this device. Then a signal wakes
    /// one thread instead of two in turn. There is never more than one call at a time.
    fn lends(&self) -> bool {
        false
    }
}

/// The watching thread of a device.
///
/// It starts with the first timeline whose home it watches, and ends with the device. It is parked
/// while no thread or submission waits.
#[derive(Debug, Default)]
pub struct Watcher(DroppedByMaker<Arc<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    /// Notified when the thread has made its list, and when it parks.
    listed: Condvar,
}

#[derive(Default)]
struct State {
    /// Timelines that the thread does not watch yet.
    incoming: Vec<Arc<dyn Watched>>,
    /// True while a waiting thread watches in place of the watching thread.
    ///
    /// Then the watching thread holds no timeline. See `wait/lead.rs`.
    led: bool,
    /// Woken at `retry_at`.
    retries: Vec<Arc<dyn Wake>>,
    retry_at: Option<Instant>,
    /// Checked at `check_at`.
    guards: VecDeque<Guard>,
    check_at: Option<Instant>,
    started: bool,
    stopped: bool,
    /// True while the thread makes its list, and until it has returned from `Watch::watch`.
    watching: bool,
    /// Incremented when the thread begins and when it ends its list. Odd while it makes the list.
    lists: u64,
    /// True while the thread is parked. It holds no timeline then.
    parked: bool,
    /// The number of threads in [`Watcher::let_go`].
    waiting: usize,
}

impl State {
    /// Starts the thread, unless it has been started.
    fn start(&mut self, inner: &Arc<Inner>) -> io::Result<()> {
        if self.started {
            return Ok(());
        }
        let inner = inner.clone();
        spawn("syncline-watch", move || inner.run())?;
        self.started = true;
        // The new thread reads this state before it makes a list.
        self.parked = true;
        Ok(())
    }

    /// Takes the retries whose time has come.
    fn take_due(&mut self) -> Vec<Arc<dyn Wake>> {
        if self.retry_at.is_some_and(|at| at <= Instant::now()) {
            self.retry_at = None;
            std::mem::take(&mut self.retries)
        } else {
            Vec::new()
        }
    }

    /// Takes the first guard whose time has come by `now`.
    ///
    /// That is usually the first of all guards, because each is added again at the end.
    fn take_guard(&mut self, now: Instant) -> Option<Guard> {
        if self.check_at.is_none_or(|at| at > now) {
            return None;
        }
        let due = self.guards.iter().position(|guard| guard.at <= now);
        let guard = due.and_then(|at| self.guards.remove(at));
        if guard.is_none() {
            self.check_at = self.guards.iter().map(|guard| guard.at).min();
        }
        guard
    }

    fn add_guard(&mut self, guard: Guard) {
        let at = guard.at;
        self.guards.push_back(guard);
        self.check_at = Some(self.check_at.map_or(at, |other| other.min(at)));
    }

    /// The time of the next retry or check.
    fn next_due(&self) -> Option<Instant> {
        self.retry_at.into_iter().chain(self.check_at).min()
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

/// True on a watching thread, which must not wait for a wake that it has to make itself.
pub(crate) fn on_watcher_thread() -> bool {
    WATCHING.try_with(Cell::get).unwrap_or(false)
}

impl Watcher {
    /// Watches `timeline`. With `None`, only asks the watched timelines for their targets again.
    pub(crate) fn want(&self, device: &dyn Watch, timeline: Option<Arc<dyn Watched>>) {
        self.tell(device, |state| state.incoming.extend(timeline));
    }

    /// Starts the thread, unless it has been started. A later wait then needs no new thread.
    ///
    /// A model starts it at the first wait instead. So models without waits have fewer threads.
    ///
    /// # Errors
    /// The error of the system if it has no thread.
    pub(crate) fn start(&self) -> io::Result<()> {
        if cfg!(syncline_loom) {
            return Ok(());
        }
        self.0.state.lock().start(&self.0)
    }

    /// Wakes `waiter` after [`RETRY`], once, even if it is registered several times until then.
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

    /// Checks `device` at least every [`ROUND`], as long as it owes `timeline` a signal.
    pub(crate) fn guard(&self, timeline: Weak<dyn Guarded>, device: DeviceId) {
        let mut state = self.0.state.lock();
        state.add_guard(Guard {
            timeline,
            device,
            at: Instant::now() + ROUND,
        });
        // The thread runs already, except in a model.
        let _ = state.start(&self.0);
        let watching = state.watching;
        drop(state);
        // A present watch ends before the guard is due.
        if !watching {
            self.0.changed.notify_one();
        }
    }

    fn tell(&self, device: &dyn Watch, change: impl FnOnce(&mut State)) {
        let mut state = self.0.state.lock();
        change(&mut state);
        // The thread runs already, except in a model, where all threads start.
        let _ = state.start(&self.0);
        let (watching, led) = (state.watching, state.led);
        drop(state);
        if watching || led {
            nudge(device);
        }
        if !watching {
            self.0.changed.notify_one();
        }
    }

    /// Lets the calling thread watch in place of an idle watching thread. See `wait/lead.rs`.
    ///
    /// False if that thread is not idle, or if another thread leads. Called with a timeline's lock.
    /// The watcher's lock comes after it.
    pub(crate) fn lead(&self) -> bool {
        let mut state = self.0.state.lock();
        let idle = !state.started || state.parked;
        let leads = idle && !state.led && state.incoming.is_empty();
        state.led |= leads;
        leads
    }

    /// True if there are timelines that the watching thread does not watch yet.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.0.state.lock().incoming.is_empty()
    }

    /// Ends the [lead](Watcher::lead) of the calling thread.
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

    /// Blocks until the watching thread holds only timelines that have waiters.
    ///
    /// The calling thread is about to drop the last handle of a timeline. After this call, that
    /// drop also frees the timeline's descriptors and device memory before it returns.
    ///
    /// Gives up at `until`, which is [`LETTING_GO`] from now, because the watching thread may run
    /// work that waits for the calling thread.
    pub(crate) fn let_go(&self, device: &dyn Watch, until: Instant) {
        // In a process that exits, the watching thread begins no further call.
        if on_watcher_thread() || is_exiting() {
            return;
        }
        let mut state = self.0.state.lock();
        if !state.started || (state.parked && state.incoming.is_empty()) {
            return;
        }
        // The list that is being made may have the timeline. The next list does not.
        let enough = state.lists + 2 + state.lists % 2;
        state.waiting += 1;
        drop(state);
        nudge(device);
        let mut state = self.0.state.lock();
        while state.lists < enough && !(state.parked && state.incoming.is_empty()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || is_exiting() {
                break;
            }
            state = self.0.listed.wait_timeout(state, left);
        }
        state.waiting -= 1;
    }
}

/// Calls [`Watch::watch`]. A panic counts as an error, so that this thread goes on.
///
/// The callers then poll each port.
pub(crate) fn watch(device: &dyn Watch, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
    let watched = caught(|| device.watch(ports, system_time(until)));
    watched.unwrap_or_else(|payload| {
        let name = format!("it panicked: {}", panic_message(payload));
        Err(Error::native(
            Object::new("device", ""),
            "Watch::watch",
            -1,
            name,
        ))
    })
}

/// Nudges the device, unless the process exits.
pub(crate) fn nudge(device: &dyn Watch) {
    if let Some(_calls) = DriverCalls::begin() {
        device.nudge();
    }
}

/// Applies the result of a watch to a watched timeline. True if the timeline's value has grown.
pub(crate) fn take_in(
    timeline: &dyn Watched,
    watched: &Result<()>,
    refresh: impl FnOnce() -> u64,
) -> bool {
    if let Err(lost @ Error::DeviceLost { .. }) = watched {
        timeline.fail(Arc::new(lost.clone()));
        return false;
    }
    // After another error, polling each port shows which port has it.
    let before = timeline.reached();
    refresh() > before
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // In a forked child there is no such thread, and another thread may have held the lock.
        if !self.0.maker().is_this() {
            return;
        }
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
        let mut calls = DriverCalls::begin();
        loop {
            if calls.is_none() || is_exiting() {
                drop(calls);
                stop_for_good();
            }
            let due = {
                let mut state = self.state.lock();
                state.watching = false;
                state.take_due()
            };
            wake_all(due);
            {
                let mut state = self.state.lock();
                loop {
                    if !state.led {
                        watched.append(&mut state.incoming);
                    }
                    if state.stopped {
                        return;
                    }
                    let now = Instant::now();
                    let next_due = state.next_due();
                    if next_due.is_some_and(|at| at <= now) || !watched.is_empty() {
                        break;
                    }
                    state.parked = true;
                    if state.waiting > 0 {
                        self.listed.notify_all();
                    }
                    // An exit does not wait for a thread that is parked.
                    drop(calls.take());
                    state = match next_due {
                        None => self.changed.wait(state),
                        Some(at) => self.changed.wait_timeout(state, at - now),
                    };
                    calls = DriverCalls::begin();
                    if calls.is_none() {
                        drop(state);
                        stop_for_good();
                    }
                }
                state.parked = false;
                state.watching = true;
                state.lists += 1;
            }
            // Counts as making the list, because this thread holds a timeline while it checks it.
            self.check_guards();
            targets.clear();
            watched.retain(|timeline| {
                let target = timeline.target();
                targets.extend(target);
                target.is_some()
            });
            let until = {
                let mut state = self.state.lock();
                state.lists += 1;
                if state.waiting > 0 {
                    self.listed.notify_all();
                }
                let round = Instant::now() + ROUND;
                state.next_due().map_or(round, |at| at.min(round))
            };
            let Some(device) = watched.first().and_then(|first| first.watch().cloned()) else {
                continue;
            };
            let result = {
                let ports: SmallVec<[(&dyn Port, u64); 16]> = watched
                    .iter()
                    .zip(targets.drain(..))
                    .map(|(timeline, target)| (timeline.home(), target))
                    .collect();
                watch(&*device, &ports, until)
            };
            // Held submissions that are released below may drop the last handle of the device.
            drop(device);
            let mut moved = false;
            {
                // Work that the first timeline releases must not delay the others.
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
                // The watch ends at once while a counter is ahead of the memory behind it (Q9).
                yield_now();
            }
        }
    }

    /// Checks the device for the guarded timelines whose time has come.
    ///
    /// All of them fail, and the waiters on the host are woken, before the first is recovered. A
    /// recovery may take long, because it may open a device.
    fn check_guards(&self) {
        let now = Instant::now();
        let mut lost = Vec::new();
        {
            // Work that a failed timeline releases must not delay the other timelines.
            let _deferred = DeferWakes::new();
            loop {
                // A separate statement, so that the lock is released before the check.
                let next = self.state.lock().take_guard(now);
                let Some(guard) = next else { break };
                // A timeline that is gone needs no guard.
                let Some(timeline) = guard.timeline.upgrade() else {
                    continue;
                };
                match timeline.check_device(guard.device) {
                    Health::OwesNothing => {}
                    Health::Works => self.guard_again(guard, ROUND),
                    Health::Lost => lost.push((guard, timeline)),
                }
            }
        }
        for (guard, timeline) in lost {
            let next = timeline.recover_from_loss(guard.device);
            self.guard_again(guard, next);
        }
    }

    fn guard_again(&self, guard: Guard, after: Duration) {
        let at = Instant::now() + after;
        self.state.lock().add_guard(Guard { at, ..guard });
    }
}
