//! Timelines, points and signals, and the host-side state behind them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::backend::{Port, Watch};
use crate::claim::{Claim, Claims, Interval};
use crate::error::{Error, Failure, Object, Result};
use crate::info::DeviceId;
use crate::run::{Wake, wake_all};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::wait::{WaitMode, wait_stage};

/// A 64-bit counter that only grows, which queues of any backend and the host signal and wait for.
///
/// A handle is the right to signal: when the last one goes, waits that no claim covers end with
/// [`Error::Cancelled`]. Points of it own only memory.
///
/// See VkSemaphore with `VK_SEMAPHORE_TYPE_TIMELINE` (Vulkan 1.3, 7.4.1) for the semantics this
/// keeps, and `docs/contract.md` (T1–T10) for what is added.
#[derive(Clone)]
pub struct Timeline(Arc<Owner>);

struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Timeline {
    /// A timeline over the ports that `attach` makes at the given initial value; the first is its home.
    ///
    /// # Errors
    /// [`Error::ValueOutOfRange`] for `u64::MAX`, [`Error::NothingToWaitFor`] never; what `attach` returns.
    pub fn new(
        label: &str,
        initial: u64,
        attach: impl FnOnce(u64) -> Result<Attachments>,
    ) -> Result<Self> {
        let object = Object::new("timeline", label);
        if initial == u64::MAX {
            return Err(Error::ValueOutOfRange {
                timeline: object,
                asked: initial,
                reached: 0,
                largest: u64::MAX - 1,
            });
        }
        let attachments = attach(initial)?;
        if attachments.is_empty() {
            return Err(Error::Unsupported {
                object,
                asked: "exist".into(),
                reason: "a timeline needs a port on at least one device".into(),
            });
        }
        let max_difference = attachments
            .iter()
            .map(|a| a.max_value_difference)
            .min()
            .unwrap_or(u64::MAX);
        let foreign = attachments.iter().any(|a| a.signalled_elsewhere);
        Ok(Self(Arc::new(Owner(Arc::new(Shared {
            object,
            attachments,
            max_difference,
            reached: AtomicU64::new(initial),
            pending: AtomicU64::new(initial),
            pending_domain: AtomicU64::new(0),
            raw_claims: AtomicU64::new(foreign.into()),
            troubled: AtomicBool::new(false),
            host_signal: Mutex::new(()),
            state: Mutex::default(),
        })))))
    }

    /// Its name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.0.object
    }

    /// The value reached by now. A driver call if something is outstanding, else a load.
    ///
    /// # Errors
    /// [`Error::Failed`]: the timeline failed; the value it froze at is in [`Timeline::frozen_value`].
    pub fn value(&self) -> Result<u64> {
        let value = self.0.0.refresh();
        match self.0.0.failure() {
            None => Ok(value),
            Some(cause) => Err(Error::Failed {
                timeline: self.object().clone(),
                value: value + 1,
                cause,
            }),
        }
    }

    /// The value that the engine knows to be reached, whether or not the timeline has failed since. A load.
    #[must_use]
    pub fn frozen_value(&self) -> u64 {
        self.0.0.reached()
    }

    /// The point at `value`: something to wait for.
    pub fn at(&self, value: u64) -> Point<'_> {
        Point {
            of: Some(&self.0.0),
            value,
        }
    }

    /// The signal of `value`: something for a submission to make.
    pub fn signal_at(&self, value: u64) -> Signal<'_> {
        Signal {
            of: &self.0.0,
            value,
        }
    }

    /// Signals `value` from the host, and releases what was held for it, on this thread.
    ///
    /// # Errors
    /// [`Error::SignalNotAboveReached`], [`Error::SignalOverlapsClaim`] or [`Error::ValueOutOfRange`],
    /// with the numbers and nothing changed; [`Error::Failed`]; a driver error, which fails the timeline.
    pub fn signal(&self, value: u64) -> Result<()> {
        self.0.0.signal_from_host(value)
    }

    /// Fails the timeline: it freezes at the value it has, and every present and future wait above
    /// that ends with `cause`. The first failure stays. Work already with a driver still runs.
    pub fn fail(&self, cause: Error) {
        self.0.0.fail(cause.into_cause());
    }

    /// Claims `value` for a submission that the application makes itself.
    /// `own_wait` is the highest value of this timeline that the submission waits for, else 0.
    ///
    /// # Errors
    /// As for a signal in [`Queue::submit`](crate::backend::Queue::submit).
    pub fn claim(&self, value: u64, own_wait: u64) -> Result<Claim> {
        self.0.0.refresh_if_far(value);
        let interval = self.0.0.claim(value, own_wait)?;
        self.0.0.raw_claims.fetch_add(1, Ordering::Relaxed);
        Ok(Claim::new(self.0.0.clone(), interval))
    }

    /// The port of this timeline on `device`, if it has one and it is of type `P`. Backends use this
    /// to hand raw semaphores out.
    #[must_use]
    pub fn port<P: Port>(&self, device: DeviceId) -> Option<&P> {
        let port: &dyn std::any::Any = self.0.0.port_on(device)?;
        port.downcast_ref()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// The devices on which queues wait for it and signal it natively; its home comes first.
    pub fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.0
            .0
            .attachments
            .iter()
            .map(|attachment| attachment.device)
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.0, f)
    }
}

/// A value of a timeline to wait for, by a host thread or a submission. Borrowed, small and `Copy`.
#[must_use = "a point does nothing until it is waited for"]
#[derive(Clone, Copy)]
pub struct Point<'t> {
    pub(crate) of: Option<&'t Arc<Shared>>,
    pub(crate) value: u64,
}

impl<'t> Point<'t> {
    /// A point that is always reached.
    pub const EMPTY: Point<'static> = Point { of: None, value: 0 };

    /// The value it stands for.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.value
    }

    /// True once the value is reached. Never blocks; a load if that is known already.
    ///
    /// # Errors
    /// [`Error::Failed`] or [`Error::Cancelled`] if it never will be.
    pub fn is_reached(self) -> Result<bool> {
        let Some(of) = self.of else { return Ok(true) };
        of.refresh_to(self.value);
        of.standing(self.value)
            .into_result(of, self.value)
            .map(|s| matches!(s, Standing::Reached))
    }

    /// Blocks this thread until the value is reached: spins briefly, then parks.
    ///
    /// `timeout` of zero polls; a long one saturates. Never returns early.
    ///
    /// # Errors
    /// [`Error::TimedOut`] (nothing has changed then), [`Error::Failed`] or [`Error::Cancelled`].
    pub fn wait(self, timeout: Duration) -> Result<()> {
        self.wait_with(WaitMode::Adaptive, timeout)
    }

    /// As [`Point::wait`], with the way to wait chosen by the caller.
    ///
    /// # Errors
    /// As [`Point::wait`].
    pub fn wait_with(self, mode: WaitMode, timeout: Duration) -> Result<()> {
        crate::wait::wait_points(&[self], crate::wait::Quantity::All, mode, timeout).map(|_| ())
    }

    /// Blocks until the value is pending: its signal, and everything before it, is with the driver and needs no
    /// more host action. An engine asks this before it presents or submits by itself.
    ///
    /// # Errors
    /// As [`Point::wait`].
    pub fn wait_pending(self, timeout: Duration) -> Result<()> {
        let Some(of) = self.of else { return Ok(()) };
        wait_stage(of, self.value, Stage::Pending, Instant::now(), timeout)
    }

    /// True once the value is pending or reached. Never blocks.
    ///
    /// # Errors
    /// [`Error::Failed`] or [`Error::Cancelled`] if it never will be.
    pub fn is_pending(self) -> Result<bool> {
        let Some(of) = self.of else { return Ok(true) };
        let standing = of.standing(self.value).into_result(of, self.value)?;
        Ok(matches!(standing, Standing::Reached | Standing::Pending))
    }

    /// An owned copy, for keeping beyond the timeline's borrow.
    pub fn keep(self) -> KeptPoint {
        KeptPoint {
            of: self.of.cloned(),
            value: self.value,
        }
    }

    /// The port on `device`, if the timeline has one there and it is of type `P`.
    #[must_use]
    pub fn port<P: Port>(self, device: DeviceId) -> Option<&'t P> {
        let port: &dyn std::any::Any = self.of?.port_on(device)?;
        port.downcast_ref()
    }

    /// Refuses points whose signal is not yet with the driver, for handing raw semaphores or events out.
    ///
    /// # Errors
    /// [`Error::NotPending`], [`Error::Failed`], [`Error::Cancelled`].
    pub fn require_pending(self) -> Result<()> {
        match self.of {
            Some(of) if !self.is_pending()? => Err(of.not_pending(self.value)),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Point<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.of {
            Some(of) => write!(f, "{} at {}", of.object, self.value),
            None => f.write_str("empty point"),
        }
    }
}

/// An owned [`Point`]. Keeps the timeline's memory, not the right to signal it.
#[must_use = "a point does nothing until it is waited for"]
#[derive(Clone, Default)]
pub struct KeptPoint {
    pub(crate) of: Option<Arc<Shared>>,
    pub(crate) value: u64,
}

impl KeptPoint {
    /// The point, for waiting.
    pub fn point(&self) -> Point<'_> {
        Point {
            of: self.of.as_ref(),
            value: self.value,
        }
    }
}

impl fmt::Debug for KeptPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.point(), f)
    }
}

/// A value of a timeline for a submission to signal. Only an owner of the timeline has one.
#[must_use = "a signal does nothing until it is submitted"]
#[derive(Clone, Copy)]
pub struct Signal<'t> {
    pub(crate) of: &'t Arc<Shared>,
    pub(crate) value: u64,
}

impl fmt::Debug for Signal<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.of.object, self.value)
    }
}

/// A device's part in a timeline, made by [`Device::port`](crate::backend::Device::port).
pub struct Attachment {
    /// The device.
    pub device: DeviceId,
    /// Its port.
    pub port: Box<dyn Port>,
    /// Who watches the port; `None` if it only advances by calls of this process's own threads.
    pub watch: Option<Arc<dyn Watch>>,
    /// The device's limit on value differences.
    pub max_value_difference: u64,
    /// True if somebody outside this engine may signal the counter: it is then read at every query.
    pub signalled_elsewhere: bool,
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attachment({:?})", self.device)
    }
}

/// The ports of one timeline, home first.
pub type Attachments = SmallVec<[Attachment; 2]>;

/// A point as a backend sees it: a port of its own device, and a value.
#[derive(Clone, Copy)]
pub struct NativePoint<'a> {
    pub(crate) of: &'a Arc<Shared>,
    pub(crate) port: &'a dyn Port,
    pub(crate) value: u64,
}

impl<'a> NativePoint<'a> {
    /// The value.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.value
    }

    /// The port, if it is of type `P`; a port of the queue's own device always is of the backend's type.
    #[must_use]
    pub fn port<P: Port>(self) -> Option<&'a P> {
        (self.port as &dyn std::any::Any).downcast_ref()
    }

    /// The timeline's name.
    #[must_use]
    pub fn object(self) -> &'a Object {
        &self.of.object
    }

    /// The signal as a thing to carry out, for backends whose devices are threads of this process.
    #[must_use]
    pub fn completion(self) -> Completion {
        Completion(self.of.clone(), self.value)
    }

    /// An owned copy to wait for.
    pub fn keep(self) -> KeptPoint {
        KeptPoint {
            of: Some(self.of.clone()),
            value: self.value,
        }
    }
}

impl fmt::Debug for NativePoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.of.object, self.value)
    }
}

/// A signal that a backend's own thread carries out once the work is done.
#[derive(Debug, Clone)]
pub struct Completion(Arc<Shared>, u64);

impl Completion {
    pub(crate) fn new(of: &Arc<Shared>, value: u64) -> Self {
        Self(of.clone(), value)
    }

    /// The value is reached: wakes and releases whoever waits for it, on this thread.
    pub fn complete(self) {
        self.0.advance(self.1);
    }

    /// The value never will be reached: fails the timeline.
    pub fn fail(self, cause: Error) {
        self.0.fail(cause.into_cause());
    }
}

impl Error {
    /// The failure to pass on: the first cause if this error only reports one.
    pub(crate) fn into_cause(self) -> Failure {
        match self {
            Self::Failed { cause, .. } => cause,
            other => Arc::new(other),
        }
    }
}

/// What a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Pending,
    Reached,
}

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

/// One registration in a timeline.
struct Waiter {
    value: u64,
    ticket: u64,
    wake: Arc<dyn Wake>,
}

/// What a registration is cancelled with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    stage: Stage,
    ticket: u64,
    value: u64,
}

type Woken = SmallVec<[Arc<dyn Wake>; 4]>;

#[derive(Default)]
struct State {
    claims: Claims,
    failure: Option<Failure>,
    closed: bool,
    /// Lowest value first, in order of arrival where equal.
    for_reached: VecDeque<Waiter>,
    for_pending: VecDeque<Waiter>,
    next_ticket: u64,
    /// The value that the home device's watcher is looking for, if it is.
    watched: Option<u64>,
}

impl State {
    fn list(&mut self, stage: Stage) -> &mut VecDeque<Waiter> {
        match stage {
            Stage::Reached => &mut self.for_reached,
            Stage::Pending => &mut self.for_pending,
        }
    }

    /// Takes out every waiter whose value is settled now.
    fn take_settled(&mut self, reached: u64, pending: u64) -> Woken {
        let mut woken = Woken::new();
        for (list, value) in [
            (&mut self.for_pending, pending),
            (&mut self.for_reached, reached),
        ] {
            while list.front().is_some_and(|waiter| waiter.value <= value) {
                woken.extend(list.pop_front().map(|waiter| waiter.wake));
            }
        }
        woken
    }

    /// Takes out every waiter, of a timeline that has failed.
    fn take_all(&mut self) -> Woken {
        let (reached, pending) = (&mut self.for_reached, &mut self.for_pending);
        reached
            .drain(..)
            .chain(pending.drain(..))
            .map(|waiter| waiter.wake)
            .collect()
    }

    /// Takes out the waiters that nobody will serve any more, of a timeline without handles.
    fn take_cancelled(&mut self, pending: u64) -> Woken {
        let mut woken = Woken::new();
        if !self.closed {
            return woken;
        }
        let claims = &self.claims;
        for list in [&mut self.for_pending, &mut self.for_reached] {
            list.retain(|waiter| {
                let served = waiter.value <= pending || claims.covers(waiter.value);
                if !served {
                    woken.push(waiter.wake.clone());
                }
                served
            });
        }
        woken
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
        state.take_settled(value, self.pending())
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
            let woken = state.take_settled(self.reached(), self.pending());
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
    fn signal_from_host(&self, value: u64) -> Result<()> {
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
            state.take_all()
        };
        wake_all(woken);
    }

    /// The last handle has gone: nobody can make new claims.
    fn close(&self) {
        let woken = {
            let mut state = self.state.lock();
            state.closed = true;
            self.troubled.store(true, Ordering::Release);
            state.take_cancelled(self.pending())
        };
        wake_all(woken);
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
            state.next_ticket += 1;
            let ticket = state.next_ticket;
            let list = state.list(stage);
            let at = list.partition_point(|waiter| waiter.value <= value);
            list.insert(
                at,
                Waiter {
                    value,
                    ticket,
                    wake,
                },
            );
            (
                Ticket {
                    stage,
                    ticket,
                    value,
                },
                self.needs_watch(&mut state),
            )
        };
        self.tell_watcher(watch);
        Some(ticket)
    }

    /// Removes a registration if it is still there.
    pub(crate) fn unregister(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        let list = state.list(ticket.stage);
        let from = list.partition_point(|waiter| waiter.value < ticket.value);
        let found = list
            .range(from..)
            .take_while(|waiter| waiter.value == ticket.value)
            .position(|waiter| waiter.ticket == ticket.ticket);
        let removed = found.and_then(|at| list.remove(from + at));
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
        let lowest = state.for_reached.front()?.value;
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
