//! The host-side state behind every timeline: its value, its claims, its failure.

mod ahead;
mod awaited;
mod claims;
mod dependents;
mod held;
mod owed;
mod reached;
mod recovery;
#[cfg(test)]
mod shared_semaphore;
mod signals;
mod watching;

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use crate::base::error::{Error, Failure, Object, Result};
use crate::base::info::DeviceId;
use crate::base::run::{Wake, wake_all};
use crate::base::stage::Stage;
use crate::base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::port::attachment::{Attachment, DevicePort, Nature};
use crate::port::{Port, Watch};
use crate::timeline::held_index::HeldIndex;
use crate::timeline::host_signals::HostSignalObservers;
pub(crate) use crate::timeline::interval::Interval;
use crate::timeline::recent_waits::RecentWaits;
use crate::timeline::times::Times;
use crate::timeline::waiters::{Ticket, Waiters, Woken};

pub(crate) use ahead::Publish;
use ahead::UnpublishedSignals;
pub(crate) use awaited::Registered;
use claims::Claims;
use dependents::Sentinel;
pub(crate) use dependents::{Dependent, Dependents};
pub(crate) use held::set_waiting_for;
use owed::OwedSignals;
use recovery::Recovery;
pub use recovery::Survivors;

/// The standing of one value of a timeline.
#[derive(Debug, Clone)]
pub(crate) enum Standing {
    Reached,
    Pending,
    /// Claimed by a held submission, or not claimed yet.
    Open,
    Failed(Failure),
    Cancelled,
}

impl Standing {
    /// Turns `Failed` and `Cancelled` into errors about `value` of `of`.
    pub(crate) fn into_result(self, of: &Shared, value: u64) -> Result<Self> {
        match self {
            Self::Failed(cause) => Err(Error::failed(&of.object, value, cause)),
            Self::Cancelled => Err(of.cancelled(value)),
            fine => Ok(fine),
        }
    }
}

impl Stage {
    /// True if a value with this standing has come to this stage.
    pub(crate) const fn is_met(self, standing: &Standing) -> bool {
        match self {
            Self::Pending => matches!(standing, Standing::Reached | Standing::Pending),
            Self::Reached => matches!(standing, Standing::Reached),
        }
    }
}

/// The first fields are those of each signal. With the lock, they share two cache lines.
#[derive(Default)]
#[repr(C)]
struct State {
    /// Copy of [`Seen::reached`] for signalling threads.
    ///
    /// A read of `Seen` would fetch the cache line from the waiting threads before the store
    /// fetches it again.
    reached: u64,
    failure: Option<Failure>,
    closed: bool,
    waiters: Waiters,
    /// On a closed side of a bridge: the values that other sides can still bring. Only shrinks.
    elsewhere: Vec<Interval>,
    /// The value that the watching thread looks for; see `watching`. `None` if it never had the
    /// timeline.
    watched: Option<u64>,
    /// The only waiter, if it is a thread that watches the home itself. Stale once that waiter is
    /// gone.
    leader: Option<Ticket>,
}

/// Fields that a polling waiter reads.
///
/// They have two cache lines to themselves, because processors fetch lines in pairs. So signallers
/// and waiters do not slow each other down by false sharing.
#[repr(align(128))]
struct Seen {
    /// Written under the state's lock; grows.
    reached: AtomicU64,
    /// The number of open raw claims, plus one if signals from outside the engine are possible.
    ///
    /// A raw claim is one for the application's own submission. While the number is not 0, the
    /// counter may be ahead of `pending`.
    raw_claims: AtomicU64,
    /// True once the timeline has failed or its last handle is dropped.
    troubled: AtomicBool,
    /// True if a native wait for this timeline must be noted as a dependent. See `dependents`.
    depends_on_others: AtomicBool,
}

/// Fields that change with each submission that signals the timeline.
#[repr(align(128))]
struct Claimed {
    /// Locked inside the state, if both are. So a submission does not lock the state, which the
    /// thread that sees its signal reached locks.
    claims: Mutex<Claims>,
    /// The highest promoted value. Only grows, and may be below the reached value, which is pending
    /// too.
    pending: AtomicU64,
    /// True if a waiter has registered since the last promotion that found none.
    ///
    /// A registration sets this before it reads `pending`. A promotion raises `pending` before it
    /// reads this. All four accesses are `SeqCst`, so one of the two threads sees the other.
    awaited: AtomicBool,
    /// The value of the claim that was promoted last, or of the one before.
    ///
    /// `promoted_as` has the value and its driver queue (0 for none) in one word. `promoted_by` is
    /// the id of the submitting queue (0 for none of the engine).
    promoted: AtomicU64,
    promoted_as: AtomicU64,
    promoted_by: AtomicU64,
}

/// Fields under locks.
#[repr(C, align(128))]
struct Locked {
    state: Mutex<State>,
    /// Keeps host signals in order. Held across the driver call.
    host_signal: Mutex<()>,
    /// The number of waits for this timeline and claims of it in the graph of held submissions.
    held_waits: AtomicU64,
}

/// A bridge, as its sides use it. Woken when fewer values can still come.
pub(crate) trait Bridge: Wake {
    /// Notes that other processes have `side`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if another side is published.
    fn publish(&self, side: &Shared) -> Result<()>;

    /// Signals `value` on the published side before it becomes visible on `side`.
    fn carry_ahead(self: Arc<Self>, side: &Shared, value: u64);

    /// All sides.
    fn sides(&self) -> Vec<Arc<Shared>>;
}

/// The host-side state of a timeline, shared by its handles, points and claims.
pub(crate) struct Shared {
    object: Object,
    /// Stored inline, because nearly every access is to the home.
    home: DevicePort,
    others: Box<[DevicePort]>,
    max_difference: u64,
    /// True if the only port is a host value without shared memory behind it.
    is_counted_here: bool,
    /// True if the home is a page that another process signals.
    is_remote: bool,
    /// True if the engine makes or sees every signal, other than those of raw claims.
    engine_signals_all: bool,
    /// Set if another process has the right to signal. The last handle does not close it then.
    ///
    /// The value is an object that lives as long as the timeline.
    remote_signaller: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// Recent durations of host waits that had to park.
    recent_waits: RecentWaits,
    held_index: HeldIndex,
    host_signals: HostSignalObservers,
    /// The bridge of which it is a side. Set before other threads have the timeline.
    bridge: OnceLock<Weak<dyn Bridge>>,
    /// Publishes its values, if other processes have it.
    publisher: OnceLock<Arc<dyn Publish>>,
    /// True if values must be published before they are visible here; see `ahead`.
    ///
    /// Loom does not model it. Nearly all operations read it, and it is set once, before the
    /// accesses that depend on it.
    publishes_ahead: std::sync::atomic::AtomicBool,
    /// On a queue's position: the signals that must be published before it is visible.
    unpublished: OnceLock<Box<UnpublishedSignals>>,
    /// Why native waits for this timeline may find incomplete data.
    ///
    /// Set if the device or process that signals the timeline is lost. Also set if the signalling
    /// work waits natively for another timeline that has such a cause.
    lost: OnceLock<Failure>,
    /// Has the watching thread poll for the native waits of drivers; see `dependents`.
    sentinel: OnceLock<Arc<Sentinel>>,
    recovery: Recovery,
    owed: OwedSignals,
    /// The times of its last signals, if it has timestamps. No claim of it takes the fast path
    /// then.
    times: OnceLock<Box<Times>>,
    seen: Seen,
    claimed: Claimed,
    locked: Locked,
}

/// Combines a value and its order domain in one word.
///
/// A reader can so detect a torn pair of two concurrent promotions.
///
/// The multiplier keeps the domains, which are numbered from 1, further apart than any two values
/// of a timeline.
const fn promotion(value: u64, domain: u64) -> u64 {
    value ^ domain.wrapping_mul(0x9e37_79b9_7f4a_7c15)
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
    /// A timeline at `initial` with the ports of its home and of the other devices.
    pub(crate) fn new(
        object: Object,
        initial: u64,
        home: Attachment,
        others: Box<[Attachment]>,
    ) -> Self {
        let all = [&home].into_iter().chain(&others);
        let differences = all.map(Attachment::max_value_difference);
        let max_difference = differences.min().unwrap_or(u64::MAX);
        let home = home.into_port();
        let others = others.into_iter().map(Attachment::into_port);
        let others: Box<[DevicePort]> = others.collect();
        let foreign = [&home]
            .into_iter()
            .chain(&others)
            .any(DevicePort::is_signalled_elsewhere);
        let is_counted_here = others.is_empty() && home.nature() == Nature::Value;
        let is_a_page = home.nature() == Nature::Page;
        let is_remote = home.is_signalled_elsewhere() && is_a_page;
        let engine_signals_all = is_counted_here || (others.is_empty() && is_a_page && !foreign);
        let has_others = !others.is_empty();
        let shared = Self {
            object,
            is_counted_here,
            is_remote,
            engine_signals_all,
            remote_signaller: OnceLock::new(),
            max_difference,
            home,
            others,
            seen: Seen {
                reached: AtomicU64::new(initial),
                raw_claims: AtomicU64::new(foreign.into()),
                troubled: AtomicBool::new(false),
                depends_on_others: AtomicBool::new(is_remote || has_others),
            },
            claimed: Claimed {
                claims: Mutex::default(),
                pending: AtomicU64::new(initial),
                awaited: AtomicBool::new(false),
                promoted: AtomicU64::new(0),
                promoted_as: AtomicU64::new(0),
                promoted_by: AtomicU64::new(0),
            },
            recent_waits: RecentWaits::default(),
            held_index: HeldIndex::default(),
            host_signals: HostSignalObservers::default(),
            bridge: OnceLock::new(),
            publisher: OnceLock::new(),
            publishes_ahead: false.into(),
            unpublished: OnceLock::new(),
            lost: OnceLock::new(),
            sentinel: OnceLock::new(),
            recovery: Recovery::default(),
            owed: OwedSignals::default(),
            times: OnceLock::new(),
            locked: Locked {
                state: Mutex::new(State {
                    reached: initial,
                    ..State::default()
                }),
                host_signal: Mutex::new(()),
                held_waits: AtomicU64::new(0),
            },
        };
        if foreign {
            // A watch must end with what becomes pending from now on.
            shared.refresh_pending();
        }
        shared
    }

    #[inline]
    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    #[inline]
    pub(crate) const fn recent_waits(&self) -> &RecentWaits {
        &self.recent_waits
    }

    /// Its index in the graph of held submissions.
    #[inline]
    pub(crate) const fn held_index(&self) -> &HeldIndex {
        &self.held_index
    }

    /// Traces that record host signals.
    #[inline]
    pub(crate) const fn host_signals(&self) -> &HostSignalObservers {
        &self.host_signals
    }

    /// The times of its signals, if it has timestamps.
    #[inline]
    pub(crate) fn times(&self) -> Option<&Times> {
        self.times.get().map(|times| &**times)
    }

    /// Gives it timestamps. False if it has them already.
    pub(crate) fn set_times(&self, times: Times) -> bool {
        self.times.set(Box::new(times)).is_ok()
    }

    fn ports(&self) -> impl Iterator<Item = &DevicePort> {
        [&self.home].into_iter().chain(&self.others)
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.ports().map(DevicePort::device)
    }

    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.seen.reached.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn pending(&self) -> u64 {
        let promoted = self.claimed.pending.load(Ordering::Acquire);
        promoted.max(self.reached())
    }

    /// Same as [`Shared::pending`], for a caller that holds the state's lock.
    #[inline]
    fn pending_locked(&self, state: &State) -> u64 {
        let promoted = self.claimed.pending.load(Ordering::SeqCst);
        promoted.max(state.reached)
    }

    /// Sets the reached value.
    #[inline]
    fn set_reached(&self, state: &mut State, value: u64) {
        state.reached = value;
        self.seen.reached.store(value, Ordering::Release);
    }

    /// True if driver queue `domain` is known to signal `value`. Known only for the last promoted
    /// values.
    #[inline]
    pub(crate) fn is_from(&self, value: u64, domain: u64) -> bool {
        self.claimed.promoted_as.load(Ordering::Acquire) == promotion(value, domain)
            && self.claimed.promoted.load(Ordering::Relaxed) == value
    }

    #[inline]
    pub(crate) fn home(&self) -> &dyn Port {
        self.home.port()
    }

    /// The ports of the other devices.
    pub(crate) fn other_ports(&self) -> impl Iterator<Item = &dyn Port> {
        self.others.iter().map(DevicePort::port)
    }

    pub(crate) fn watch(&self) -> Option<&Arc<dyn Watch>> {
        self.home.watch()
    }

    #[inline]
    pub(crate) fn port_on(&self, device: DeviceId) -> Option<&dyn Port> {
        if self.home.device() == device {
            return Some(self.home.port());
        }
        let mut others = self.others.iter();
        let other = others.find(|other| other.device() == device);
        other.map(DevicePort::port)
    }

    #[inline]
    pub(crate) fn failure(&self) -> Option<Failure> {
        if self.is_troubled() {
            return self.failure_in_trouble();
        }
        None
    }

    #[cold]
    fn failure_in_trouble(&self) -> Option<Failure> {
        self.locked.state.lock().failure.clone()
    }

    /// True if it has failed.
    #[inline]
    pub(crate) fn is_failed(&self) -> bool {
        self.is_troubled() && self.failure().is_some()
    }

    /// The queue that last promoted a claim, if it is one of the engine.
    pub(crate) fn last_submitter(&self) -> Option<Object> {
        crate::base::queue_names::get(self.claimed.promoted_by.load(Ordering::Acquire))
    }

    /// True if a claim covers `value`.
    pub(crate) fn is_claimed(&self, value: u64) -> bool {
        self.claimed.claims.lock().covers(value)
    }

    /// The process that signals the timeline, if that is known and not this one.
    pub(crate) fn signalling_process(&self) -> Option<u32> {
        self.ports().find_map(DevicePort::signalling_process)
    }

    /// True if signals come only from outside the engine and no raw claim is open.
    pub(crate) fn is_signalled_outside(&self) -> bool {
        self.ports().any(DevicePort::is_signalled_elsewhere)
            && self.seen.raw_claims.load(Ordering::Relaxed) == 1
    }

    /// Makes it a side of `bridge`.
    pub(crate) fn set_bridge(&self, bridge: Weak<dyn Bridge>) {
        let _ = self.bridge.set(bridge);
    }

    /// The other sides of its bridge. Empty if it is a side of none.
    pub(crate) fn other_sides(&self) -> Vec<Arc<Self>> {
        let bridge = self.bridge.get().and_then(Weak::upgrade);
        let mut sides = bridge.map_or_else(Vec::new, |bridge| bridge.sides());
        sides.retain(|side| side.object() != self.object());
        sides
    }

    /// True if the only port is a host value without shared memory behind it.
    #[inline]
    pub(crate) const fn is_counted_here(&self) -> bool {
        self.is_counted_here
    }

    #[inline]
    pub(crate) const fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Stores a weak reference to itself, for methods that have only `&self`.
    pub(crate) fn set_own(&self, of: &Arc<Self>) {
        self.recovery.set_own(Arc::downgrade(of));
    }

    /// Notes that another process has the right to signal. `kept` lives as long as the timeline.
    pub(crate) fn set_remote_signaller(&self, kept: Arc<dyn Any + Send + Sync>) {
        let _ = self.remote_signaller.set(kept);
    }

    /// True if a claim can still bring `value` to a closed timeline.
    ///
    /// The claim may be on another side of its bridge.
    fn is_outstanding(&self, state: &State, value: u64) -> bool {
        // The list first: a claim leaves it after it is pending.
        self.is_claimed(value)
            || self.pending() >= value
            || state.elsewhere.iter().any(|claim| claim.covers(value))
    }

    /// The lowest value above `pending` that a claim can still bring.
    ///
    /// The claim may be on another side of its bridge.
    pub(crate) fn lowest_outstanding(&self, pending: u64) -> Option<u64> {
        let state = self.locked.state.lock();
        let claims = self.claimed.claims.lock();
        let all = claims.all().chain(state.elsewhere.iter().copied());
        let ahead = all.filter(|claim| claim.upto > pending);
        ahead.map(|claim| claim.above.max(pending) + 1).min()
    }

    /// The values that this side can still bring to another side of its bridge.
    ///
    /// These are the claimed, pending and reached ones.
    pub(crate) fn outstanding(&self) -> Vec<Interval> {
        let state = self.locked.state.lock();
        let mut all: Vec<_> = self.claimed.claims.lock().all().collect();
        all.push(Interval {
            above: 0,
            upto: self.pending_locked(&state),
        });
        all
    }

    /// Closes this side because the last handle of any side of its bridge is dropped.
    ///
    /// Other sides can still bring the values in `elsewhere`, which shrinks with each call.
    pub(crate) fn close_to(&self, elsewhere: Vec<Interval>) -> Closing<'_> {
        let mut state = self.locked.state.lock();
        state.elsewhere = elsewhere;
        self.close_locked(&mut state)
    }

    /// True if it has failed or lost its last handle.
    #[inline]
    pub(crate) fn is_troubled(&self) -> bool {
        self.seen.troubled.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.seen.troubled.load(Ordering::Acquire) && self.locked.state.lock().closed
    }

    /// The cause, if `value` will never be reached.
    pub(crate) fn unreachable_cause(&self, value: u64) -> Option<Failure> {
        match self.standing(value) {
            Standing::Failed(cause) => Some(cause),
            Standing::Cancelled => Some(self.cancelled(value).into_cause()),
            _ => None,
        }
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

    /// The standing of `value` as far as the engine knows. Makes no driver call.
    #[inline]
    pub(crate) fn standing(&self, value: u64) -> Standing {
        if self.reached() >= value {
            return Standing::Reached;
        }
        if self.seen.troubled.load(Ordering::Acquire) {
            return self.standing_in_trouble(value);
        }
        if self.pending() >= value {
            Standing::Pending
        } else {
            Standing::Open
        }
    }

    /// True if `value` is known to have come to `stage`.
    ///
    /// Takes no lock, and may miss a value that has just come.
    #[inline]
    pub(crate) fn has_plainly_come(&self, stage: Stage, value: u64) -> bool {
        let is_promoted = || self.claimed.pending.load(Ordering::Acquire) >= value;
        (stage == Stage::Pending && !self.is_troubled() && is_promoted()) || self.reached() >= value
    }

    fn standing_in_trouble(&self, value: u64) -> Standing {
        self.standing_locked(&self.locked.state.lock(), value)
    }

    fn standing_locked(&self, state: &State, value: u64) -> Standing {
        if state.reached >= value {
            Standing::Reached
        } else if let Some(cause) = &state.failure {
            Standing::Failed(cause.clone())
        } else if self.pending_locked(state) >= value {
            Standing::Pending
        } else if !state.closed || self.is_outstanding(state, value) {
            Standing::Open
        } else {
            Standing::Cancelled
        }
    }

    /// Polls the home and fails the timeline at the value found.
    pub(crate) fn fail(&self, cause: Failure) {
        self.refresh();
        self.fail_frozen(cause);
    }

    /// Fails the timeline at the known value. Makes no driver call.
    pub(super) fn fail_frozen(&self, cause: Failure) {
        let woken = {
            let mut state = self.locked.state.lock();
            if state.failure.is_some() {
                return;
            }
            state.failure = Some(cause.clone());
            self.seen.troubled.store(true, Ordering::Release);
            state.waiters.take_unserved(|_| false)
        };
        #[cfg(feature = "tracing")]
        crate::base::events::failed(&self.object, &cause);
        wake_all(woken);
        self.wake_holders();
    }

    /// Closes the timeline because its last handle is gone, so that no new claims can be made.
    ///
    /// Does nothing if another process signals it, and in a forked child, where the locks may be
    /// held forever.
    pub(crate) fn close(&self) {
        if self.remote_signaller.get().is_some() || self.is_forked() {
            return;
        }
        let closing = self.close_locked(&mut self.locked.state.lock());
        closing.end();
    }

    fn close_locked(&self, state: &mut State) -> Closing<'_> {
        let closed_before = std::mem::replace(&mut state.closed, true);
        self.seen.troubled.store(true, Ordering::Release);
        Closing {
            woken: self.take_cancelled(state),
            is_watched: !closed_before && state.watched.is_some(),
            of: self,
        }
    }
}

/// A timeline that has just been closed, with the waiters that this ends.
#[must_use = "the waiters must be woken"]
pub(crate) struct Closing<'s> {
    of: &'s Shared,
    woken: Woken,
    is_watched: bool,
}

impl Closing<'_> {
    /// Wakes the waiters, the bridge, the publisher and held submissions. No lock may be held.
    pub(crate) fn end(self) {
        wake_all(self.woken);
        self.of.wake_holders();
        let publisher = self.of.publisher.get().cloned();
        wake_all(publisher.map(|publisher| publisher as Arc<dyn Wake>));
        let home = self.of.watch().filter(|_| self.is_watched);
        let guards = self.of.guards().filter_map(DevicePort::watch);
        for device in home.into_iter().chain(guards) {
            device.watcher().let_go(&**device);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::Device as _;

    /// Claims that the host completes leave no entry behind. The next submission takes the fast
    /// path again.
    #[test]
    fn a_claim_that_the_host_completes_leaves_no_entry() {
        let device = crate::host::Device::new();
        let line = device.timeline("line").unwrap();
        let of = line.shared();
        for value in [5, 6] {
            let claim = of.claim(value, 0).unwrap();
            of.signal_claimed(claim.upto);
            assert_eq!(of.reached(), value);
        }
        line.signal(7).unwrap();
        line.signal(8).unwrap();
        assert!(of.claimed.claims.lock().is_empty(), "{of:?}");
    }

    /// A pending claim does not send the next submission to the slow path.
    ///
    /// The next claim on either path removes its entry.
    #[test]
    fn a_pending_claim_does_not_block_the_fast_path() {
        let line = crate::host::Device::new().timeline("line").unwrap();
        let of = line.shared();
        let first = of.claim_alone(1).unwrap();
        assert!(of.claim_alone(2).is_none());
        of.promote(first.upto, 0, None);
        let second = of.claim_alone(2).unwrap();
        assert_eq!((second.above, second.upto), (1, 2));
        of.promote(second.upto, 0, None);
        of.claim(3, 0).unwrap();
        assert_eq!(of.claimed.claims.lock().all().count(), 1);
    }
}
