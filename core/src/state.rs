//! The host-side state behind every timeline: its value, its claims, its failure.

use std::fmt;
use std::sync::Arc;

use crate::backend::{Port, Watch};
use crate::claim::{Claims, Interval};
use crate::error::{Error, Failure, Object, Result};
use crate::info::DeviceId;
use crate::run::{Wake, wake_all};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::timeline::Attachments;
use crate::waiters::{Stage, Ticket, Waiters, Woken};

/// How a value of a timeline stands.
#[derive(Debug, Clone)]
pub(crate) enum Standing {
    Reached,
    Pending,
    /// Claimed by a held submission, or by nobody yet.
    Open,
    Failed(Failure),
    Cancelled,
}

impl Standing {
    /// Turns the two bad ends into errors about `value` of `of`.
    pub(crate) fn into_result(self, of: &Shared, value: u64) -> Result<Self> {
        match self {
            Self::Failed(cause) => Err(Error::Failed {
                timeline: of.object.clone(),
                value,
                cause,
            }),
            Self::Cancelled => Err(of.cancelled(value)),
            fine => Ok(fine),
        }
    }
}

#[derive(Default)]
struct State {
    claims: Claims,
    failure: Option<Failure>,
    closed: bool,
    waiters: Waiters,
    /// The value that the home device's watcher is looking for, if it is.
    watched: Option<u64>,
}

impl State {
    /// Takes out the waiters that nobody will serve any more, of a timeline without handles.
    fn take_cancelled(&mut self, pending: u64) -> Woken {
        let Self {
            claims,
            waiters,
            closed,
            ..
        } = self;
        let closed = *closed;
        waiters.take_unserved(|value| !closed || value <= pending || claims.covers(value))
    }
}

/// The host-side state of a timeline, shared by its handles, points and claims.
pub(crate) struct Shared {
    pub(crate) object: Object,
    attachments: Attachments,
    max_difference: u64,
    /// Only written under the state's lock; grows.
    reached: AtomicU64,
    /// Never below `reached`; only written under the state's lock; grows.
    pending: AtomicU64,
    /// The driver queue that signals `pending`; 0 if that is nobody's.
    pending_domain: AtomicU64,
    /// Claims of submissions that the application makes itself, and one for signals from outside the
    /// engine if there may be such: the counter may run ahead of `pending`.
    raw_claims: AtomicU64,
    /// Set once the timeline has failed or lost its last handle.
    troubled: AtomicBool,
    /// Keeps host signals in order among themselves across the driver call. Nothing else takes it.
    host_signal: Mutex<()>,
    state: Mutex<State>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (reached {}, pending {})",
            self.object,
            self.reached(),
            self.pending()
        )
    }
}

impl Shared {
    /// A timeline at `initial`; there is at least one attachment.
    pub(crate) fn new(object: Object, initial: u64, attachments: Attachments) -> Self {
        let differences = attachments.iter().map(|a| a.max_value_difference);
        let foreign = attachments.iter().any(|a| a.signalled_elsewhere);
        Self {
            object,
            max_difference: differences.min().unwrap_or(u64::MAX),
            attachments,
            reached: AtomicU64::new(initial),
            pending: AtomicU64::new(initial),
            pending_domain: AtomicU64::new(0),
            raw_claims: AtomicU64::new(foreign.into()),
            troubled: AtomicBool::new(false),
            host_signal: Mutex::new(()),
            state: Mutex::default(),
        }
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.attachments.iter().map(|attachment| attachment.device)
    }

    pub(crate) fn add_raw_claim(&self) {
        self.raw_claims.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    pub(crate) fn pending(&self) -> u64 {
        self.pending.load(Ordering::Acquire)
    }

    /// The driver queue whose signal `value` is, if it is the latest pending one; else 0.
    pub(crate) fn domain_of(&self, value: u64) -> u64 {
        let domain = self.pending_domain.load(Ordering::Acquire);
        if self.pending() == value { domain } else { 0 }
    }

    pub(crate) fn home(&self) -> &dyn Port {
        &*self.attachments[0].port
    }

    pub(crate) fn watch(&self) -> Option<&Arc<dyn Watch>> {
        self.attachments[0].watch.as_ref()
    }

    pub(crate) fn port_on(&self, device: DeviceId) -> Option<&dyn Port> {
        self.attachments
            .iter()
            .find(|a| a.device == device)
            .map(|a| &*a.port)
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        if !self.troubled.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().failure.clone()
    }

    pub(crate) fn not_pending(&self, value: u64) -> Error {
        Error::NotPending {
            object: self.object.clone(),
            value,
            pending: self.pending(),
        }
    }

    pub(crate) fn cancelled(&self, value: u64) -> Error {
        Error::Cancelled {
            timeline: self.object.clone(),
            value,
            reached: self.reached(),
        }
    }

    /// How `value` stands, as far as the engine knows without asking the driver.
    pub(crate) fn standing(&self, value: u64) -> Standing {
        if self.reached() >= value {
            return Standing::Reached;
        }
        if self.troubled.load(Ordering::Acquire) {
            return self.standing_locked(&self.state.lock(), value);
        }
        if self.pending() >= value {
            Standing::Pending
        } else {
            Standing::Open
        }
    }

    fn standing_locked(&self, state: &State, value: u64) -> Standing {
        if self.reached() >= value {
            Standing::Reached
        } else if let Some(cause) = &state.failure {
            Standing::Failed(cause.clone())
        } else if self.pending() >= value {
            Standing::Pending
        } else if state.closed && !state.claims.covers(value) {
            Standing::Cancelled
        } else {
            Standing::Open
        }
    }

    /// Asks the home port for the value, unless nothing can have changed. Returns the value reached.
    pub(crate) fn refresh(&self) -> u64 {
        let reached = self.reached();
        let outstanding = self.pending() > reached || self.raw_claims.load(Ordering::Relaxed) > 0;
        if !outstanding || self.failure().is_some() {
            return reached;
        }
        match self.poll() {
            Ok(Some(u64::MAX)) => self.fail_frozen(Arc::new(Error::DeviceLost {
                object: self.object.clone(),
                call: "reading the counter",
                code: -1,
                name: "the counter reads all ones".into(),
            })),
            Ok(Some(value)) => self.advance(value),
            Ok(None) => {}
            Err(error) => self.fail_frozen(error.into_cause()),
        }
        self.reached()
    }

    /// The home's value, as far as the host sees what every side did before it signalled.
    fn poll(&self) -> Result<Option<u64>> {
        let mut value = self.home().poll()?;
        for other in self.attachments.iter().skip(1) {
            if let Some(reached) = value.filter(|&value| value != u64::MAX) {
                value = Some(other.port.visible(reached)?);
            }
        }
        Ok(value)
    }

    /// As [`Shared::refresh`], but a load if `value` is known to be reached.
    pub(crate) fn refresh_to(&self, value: u64) {
        if self.reached() < value {
            self.refresh();
        }
    }

    /// Notes that `value` is reached; wakes and releases whoever waited for it.
    pub(crate) fn advance(&self, value: u64) {
        wake_all(self.advance_quietly(value));
    }

    /// As [`Shared::advance`], for a caller who holds a lock: he wakes them once he has let go of it.
    #[must_use]
    fn advance_quietly(&self, value: u64) -> Woken {
        if value <= self.reached() {
            return Woken::new();
        }
        let mut state = self.state.lock();
        if state.failure.is_some() || value <= self.reached() {
            return Woken::new();
        }
        self.reached.store(value, Ordering::Release);
        if self.pending() < value {
            self.pending_domain.store(0, Ordering::Release);
            self.pending.store(value, Ordering::Release);
        }
        state.claims.settle(value);
        state.waiters.take_settled(value, self.pending())
    }

    /// Notes that a claim is with the driver of `domain`; releases whoever waited for that.
    pub(crate) fn promote(self: &Arc<Self>, claim: Interval, domain: u64) {
        let (woken, watch) = {
            let mut state = self.state.lock();
            state.claims.remove(claim.upto);
            if self.pending() < claim.upto {
                self.pending_domain.store(domain, Ordering::Release);
                self.pending.store(claim.upto, Ordering::Release);
            }
            let woken = state.waiters.take_settled(self.reached(), self.pending());
            (woken, self.needs_watch(&mut state))
        };
        self.tell_watcher(watch);
        wake_all(woken);
    }

    /// Takes a claim back. Whoever relied on it alone now finds out.
    pub(crate) fn withdraw(&self, claim: Interval) {
        let woken = {
            let mut state = self.state.lock();
            state.claims.remove(claim.upto);
            state.take_cancelled(self.pending())
        };
        wake_all(woken);
    }

    pub(crate) fn drop_raw_claim(&self) {
        self.raw_claims.fetch_sub(1, Ordering::Relaxed);
    }

    /// Claims `value`. Wakes nobody and asks no driver, so a lane may call it under its lock.
    pub(crate) fn claim(&self, value: u64, own_wait: u64) -> Result<Interval> {
        // A point at or below the value reached is no wait at all.
        let own_wait = if own_wait > self.reached() {
            own_wait
        } else {
            0
        };
        if own_wait >= value {
            return Err(Error::SignalBehindOwnWait {
                timeline: self.object.clone(),
                asked: value,
                waited: own_wait,
            });
        }
        let mut state = self.state.lock();
        self.check_signal(&state, value)?;
        let settled = self.pending();
        state
            .claims
            .take(value, own_wait, settled)
            .map_err(|claim| self.overlap(value, claim))
    }

    /// A host signal: checked, made through the home port, then known to be reached.
    pub(crate) fn signal_from_host(&self, value: u64) -> Result<()> {
        self.refresh();
        self.signal_in_order(value, || {
            let mut state = self.state.lock();
            self.check_signal(&state, value)?;
            let settled = self.pending();
            if settled > self.reached() {
                let outstanding = Interval {
                    above: self.reached(),
                    upto: settled,
                };
                return Err(self.overlap(value, outstanding));
            }
            if let Some(claim) = state.claims.lowest().filter(|claim| claim.above < value) {
                return Err(self.overlap(value, claim));
            }
            // A claim keeps queue signals out until the value is reached.
            state
                .claims
                .take(value, 0, settled)
                .map_err(|claim| self.overlap(value, claim))?;
            Ok(())
        })
    }

    /// Makes the signal that a queue without a port here has claimed; its predecessor is reached.
    pub(crate) fn signal_claimed(&self, value: u64) {
        if self.failure().is_none() {
            // An error has failed the timeline, which is where those who wait look for it.
            let _ = self.signal_in_order(value, || Ok(()));
        }
    }

    /// Signals through the home port if `check` allows it, one host signal at a time. Whoever waited
    /// is woken after that: what they do may signal this timeline again.
    fn signal_in_order(&self, value: u64, check: impl FnOnce() -> Result<()>) -> Result<()> {
        let order = self.host_signal.lock();
        check()?;
        let signalled = self
            .home()
            .signal(value)
            .map(|()| self.advance_quietly(value));
        drop(order);
        match signalled {
            Ok(woken) => {
                wake_all(woken);
                Ok(())
            }
            Err(error) => {
                self.fail_frozen(Arc::new(error.clone()));
                Err(error)
            }
        }
    }

    /// What no signal may do, from the host or a queue.
    fn check_signal(&self, state: &State, value: u64) -> Result<()> {
        let (reached, pending) = (self.reached(), self.pending());
        let timeline = || self.object.clone();
        if let Some(cause) = &state.failure {
            return Err(Error::Failed {
                timeline: timeline(),
                value,
                cause: cause.clone(),
            });
        }
        let largest = self.largest_legal();
        if value <= reached {
            Err(Error::SignalNotAboveReached {
                timeline: timeline(),
                asked: value,
                reached,
            })
        } else if value > largest {
            Err(Error::ValueOutOfRange {
                timeline: timeline(),
                asked: value,
                reached,
                largest,
            })
        } else if value <= pending {
            Err(self.overlap(
                value,
                Interval {
                    above: reached,
                    upto: pending,
                },
            ))
        } else {
            Ok(())
        }
    }

    /// The largest value that may be signalled or waited for at present (T7).
    fn largest_legal(&self) -> u64 {
        self.reached()
            .saturating_add(self.max_difference)
            .min(u64::MAX - 1)
    }

    /// Brings the value up to date where a signal of `value` would otherwise seem out of range.
    pub(crate) fn refresh_if_far(&self, value: u64) {
        if value > self.largest_legal() {
            self.refresh();
        }
    }

    /// Refuses a wait that the device cannot compare.
    pub(crate) fn check_wait(&self, value: u64) -> Result<()> {
        if value <= self.largest_legal() {
            return Ok(());
        }
        self.refresh();
        let largest = self.largest_legal();
        if value <= largest {
            return Ok(());
        }
        Err(Error::ValueOutOfRange {
            timeline: self.object.clone(),
            asked: value,
            reached: self.reached(),
            largest,
        })
    }

    fn overlap(&self, asked: u64, claim: Interval) -> Error {
        Error::SignalOverlapsClaim {
            timeline: self.object.clone(),
            asked,
            above: claim.above,
            upto: claim.upto,
        }
    }

    /// Fails the timeline at the value that the driver tells now.
    pub(crate) fn fail(&self, cause: Failure) {
        self.refresh();
        self.fail_frozen(cause);
    }

    /// Fails the timeline at the value known; its port is not asked.
    fn fail_frozen(&self, cause: Failure) {
        let woken = {
            let mut state = self.state.lock();
            if state.failure.is_some() {
                return;
            }
            state.failure = Some(cause);
            self.troubled.store(true, Ordering::Release);
            state.waiters.take_unserved(|_| false)
        };
        wake_all(woken);
    }

    /// The last handle has gone: nobody can make new claims.
    pub(crate) fn close(&self) {
        let (woken, watched) = {
            let mut state = self.state.lock();
            state.closed = true;
            self.troubled.store(true, Ordering::Release);
            (
                state.take_cancelled(self.pending()),
                state.watched.is_some(),
            )
        };
        wake_all(woken);
        if let Some(device) = self.watch().filter(|_| watched) {
            device.watcher().let_go(&**device);
        }
    }

    /// Registers `wake` for `value`, unless it need not or must not wait any more: then `None`.
    pub(crate) fn register(
        self: &Arc<Self>,
        value: u64,
        stage: Stage,
        wake: Arc<dyn Wake>,
    ) -> Option<Ticket> {
        let (ticket, watch) = {
            let mut state = self.state.lock();
            match (self.standing_locked(&state, value), stage) {
                (Standing::Open, _) | (Standing::Pending, Stage::Reached) => {}
                _ => return None,
            }
            let ticket = state.waiters.insert(value, stage, wake);
            (ticket, self.needs_watch(&mut state))
        };
        self.tell_watcher(watch);
        Some(ticket)
    }

    /// Removes a registration if it is still there.
    pub(crate) fn unregister(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        let removed = state.waiters.remove(ticket);
        drop(state);
        // What the waiter owned may be dropped here, never under the lock.
        drop(removed);
    }

    /// If the watcher must be told: whether the timeline is new to it.
    fn needs_watch(&self, state: &mut State) -> Option<bool> {
        self.watch()?;
        let target = self.target(state)?;
        let fresh = state.watched.is_none();
        if state.watched.is_some_and(|watched| watched <= target) {
            return None;
        }
        state.watched = Some(target);
        Some(fresh)
    }

    /// The lowest value that somebody waits for and that can come by itself.
    fn target(&self, state: &State) -> Option<u64> {
        let raw = self.raw_claims.load(Ordering::Relaxed) > 0;
        let lowest = state.waiters.lowest_for_reached()?;
        (raw || lowest <= self.pending()).then_some(lowest)
    }

    fn tell_watcher(self: &Arc<Self>, watch: Option<bool>) {
        if let (Some(fresh), Some(device)) = (watch, self.watch()) {
            device
                .watcher()
                .want(&**device, fresh.then(|| self.clone()));
        }
    }

    /// Asked by the watcher each round: the value to look for, or `None` to forget this timeline.
    pub(crate) fn watch_target(&self) -> Option<u64> {
        let mut state = self.state.lock();
        state.watched = self.target(&state);
        state.watched
    }
}
