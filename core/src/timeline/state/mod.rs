//! The host-side state behind every timeline: its value, its claims, its failure.

mod ahead;
mod awaited;
mod claims;
mod dependents;
mod reached;
mod recovery;
mod signals;
mod watching;

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use crate::base::error::{Error, Failure, Object, Result};
use crate::base::info::DeviceId;
use crate::base::run::{Wake, wake_all};
use crate::base::stage::Stage;
use crate::base::sync::{AtomicBool, AtomicU64, Mutex, Ordering, fence};
use crate::port::attachment::{Attachment, Nature};
use crate::port::{Port, Watch};
use crate::timeline::held_index::{self, HeldIndex};
use crate::timeline::host_signals::HostSignalObservers;
use crate::timeline::recent_waits::RecentWaits;
use crate::timeline::times::Times;
use crate::timeline::waiters::{Ticket, Waiters, Woken};

use ahead::Owed;
pub(crate) use ahead::Tell;
pub(crate) use awaited::Registered;
use claims::Claims;
pub(crate) use claims::Interval;
use dependents::Dependents;
pub use recovery::RemainingPeers;

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
    /// The value of [`Seen::reached`]. A signalling thread reads it here: a read of `Seen` would
    /// fetch the cache line from the waiting threads before the store fetches it once more.
    reached: u64,
    claims: Claims,
    failure: Option<Failure>,
    closed: bool,
    /// What may still come from other sides of a bridge, if it is closed: less and less.
    elsewhere: Vec<Interval>,
    waiters: Waiters,
    /// The value that the home device's watcher is looking for; `None` if it never was, see `watching`.
    watched: Option<u64>,
    /// The only one who waits, if that is a thread which watches for itself. Of no meaning once it has gone.
    led: Option<Ticket>,
}

/// What is read by whoever waits in a loop. It has its cache lines to itself (processors fetch two together), so that
/// a signal takes one from him, and he none from the signaller.
#[repr(align(128))]
struct Seen {
    /// Written under the state's lock; grows.
    reached: AtomicU64,
    /// Claims of submissions that the application makes itself, and one for signals from outside the
    /// engine if there may be such: the counter may run ahead of `pending`.
    raw_claims: AtomicU64,
    /// Set once the timeline has failed or lost its last handle.
    troubled: AtomicBool,
    /// See `downstream`.
    depends_on_others: AtomicBool,
}

/// What changes with each submission that signals the timeline.
#[repr(align(128))]
struct Claimed {
    /// The highest value that has been promoted; grows. What is reached is pending too, whatever this says.
    pending: AtomicU64,
    /// True if a waiter has registered since the last promotion that found none. A registration sets
    /// this before it reads `pending`, and a promotion raises `pending` before it reads this (all
    /// `SeqCst`), so that one of the two sees the other.
    awaited: AtomicBool,
    /// The claim that was promoted last, or next to last: its value, that together with the driver queue that
    /// signals it (0 for nobody's) in one word, and the queue whose submission that was (0 for none of ours).
    promoted: AtomicU64,
    promoted_as: AtomicU64,
    promoted_by: AtomicU64,
}

/// What is under locks.
#[repr(align(128))]
struct Locked {
    state: Mutex<State>,
    /// Keeps host signals in order among themselves, across the driver call.
    host_signal: Mutex<()>,
    /// Waits for this timeline, and claims of it, in the graph of held submissions.
    held_waits: AtomicU64,
}

/// A bridge, as its sides use it. [`Wake::wake`] tells it that fewer values can still come.
pub(crate) trait Bridge: Wake {
    /// Notes that other processes have `side`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if another side is published.
    fn publish(&self, side: &Shared) -> Result<()>;

    /// Carries to the sides that other processes have that `side` is about to show `value`.
    fn carry_ahead(self: Arc<Self>, side: &Shared, value: u64);
}

/// What one device has of it: its [`Attachment`].
struct Part {
    device: DeviceId,
    port: Box<dyn Port>,
    watch: Option<Arc<dyn Watch>>,
    signalled_elsewhere: bool,
    nature: Nature,
}

impl From<Attachment> for Part {
    fn from(attachment: Attachment) -> Self {
        Self {
            device: attachment.device,
            port: attachment.port,
            watch: attachment.watch,
            signalled_elsewhere: attachment.is_signalled_elsewhere,
            nature: attachment.nature,
        }
    }
}

/// The host-side state of a timeline, shared by its handles, points and claims.
pub(crate) struct Shared {
    pub(crate) object: Object,
    /// In here, and not with the others: what is asked for mostly, without another cache line.
    home: Part,
    others: Box<[Part]>,
    max_difference: u64,
    /// There is no port but one of the host's, behind which there is nothing.
    counts_here: bool,
    /// Its home is a page that others signal, too.
    from_afar: bool,
    /// Whatever signals it comes by here, but for submissions that the application makes itself.
    noted_here: bool,
    /// What another process's timeline needs here: then this one's handles close nothing.
    followed: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// How long host waits for it have lasted of late, where they had to park.
    pub(crate) recent_waits: RecentWaits,
    /// Its part of the graph of held submissions.
    pub(crate) held_index: HeldIndex,
    /// Traces that record signals by the host.
    pub(crate) host_signals: HostSignalObservers,
    /// The bridge that it is a side of, once that is made and before anybody else has it.
    bridge: OnceLock<Weak<dyn Bridge>>,
    /// Tells other processes of it, where they have it.
    publisher: OnceLock<Arc<dyn Tell>>,
    /// True if other processes are told of a value before it shows here: see `ahead`. Never modelled, as nearly all look at it and it is set
    /// once, before what it is read behind.
    tells_ahead: std::sync::atomic::AtomicBool,
    /// Of a queue's position: the signals that other processes are told of before it shows.
    owed: OnceLock<Box<Owed>>,
    dependents: Dependents,
    /// When its last signals were made, if it was made with timestamps. Then no claim of it takes the fast path.
    pub(crate) times: OnceLock<Box<Times>>,
    seen: Seen,
    claimed: Claimed,
    locked: Locked,
}

/// A promotion in one word, since those of two threads may meet: two words that do not belong together must not look
/// like a promotion that never was. Driver queues are numbered from 1, and so far apart here as no values of a timeline are.
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
    /// A timeline at `initial`, with its home and the other devices that take part.
    pub(crate) fn new(
        object: Object,
        initial: u64,
        home: Attachment,
        others: Box<[Attachment]>,
    ) -> Self {
        let all = || [&home].into_iter().chain(&others);
        let differences = all().map(|a| a.max_value_difference);
        let max_difference = differences.min().unwrap_or(u64::MAX);
        let foreign = all().any(|a| a.is_signalled_elsewhere);
        let (home, others) = (Part::from(home), others.into_iter().map(Part::from));
        let others: Box<[Part]> = others.collect();
        let counts_here = others.is_empty() && home.nature == Nature::Value;
        let is_a_page = home.nature == Nature::Page;
        let from_afar = home.signalled_elsewhere && is_a_page;
        let noted_here = counts_here || (others.is_empty() && is_a_page && !foreign);
        let shared = Self {
            object,
            counts_here,
            from_afar,
            noted_here,
            followed: OnceLock::new(),
            max_difference,
            home,
            others,
            seen: Seen {
                reached: AtomicU64::new(initial),
                raw_claims: AtomicU64::new(foreign.into()),
                troubled: AtomicBool::new(false),
                depends_on_others: AtomicBool::new(from_afar),
            },
            claimed: Claimed {
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
            tells_ahead: false.into(),
            owed: OnceLock::new(),
            dependents: Dependents::default(),
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
            // So that watches end with what becomes pending from now on.
            shared.hear_of_pending();
        }
        shared
    }

    fn attachments(&self) -> impl Iterator<Item = &Part> {
        [&self.home].into_iter().chain(&self.others)
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.attachments().map(|attachment| attachment.device)
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

    /// As [`Shared::pending`], for the holder of the lock.
    #[inline]
    fn pending_locked(&self, state: &State) -> u64 {
        let promoted = self.claimed.pending.load(Ordering::SeqCst);
        promoted.max(state.reached)
    }

    /// Notes that `value` is reached.
    #[inline]
    fn set_reached(&self, state: &mut State, value: u64) {
        state.reached = value;
        self.seen.reached.store(value, Ordering::Release);
    }

    /// True if `value` is known to be signalled by this driver queue: only of one of the last values that were
    /// promoted.
    #[inline]
    pub(crate) fn is_from(&self, value: u64, domain: u64) -> bool {
        self.claimed.promoted_as.load(Ordering::Acquire) == promotion(value, domain)
            && self.claimed.promoted.load(Ordering::Relaxed) == value
    }

    #[inline]
    pub(crate) fn home(&self) -> &dyn Port {
        &*self.home.port
    }

    /// The ports of the other devices.
    pub(crate) fn other_ports(&self) -> impl Iterator<Item = &dyn Port> {
        self.others.iter().map(|part| &*part.port)
    }

    pub(crate) fn watch(&self) -> Option<&Arc<dyn Watch>> {
        self.home.watch.as_ref()
    }

    #[inline]
    pub(crate) fn port_on(&self, device: DeviceId) -> Option<&dyn Port> {
        if self.home.device == device {
            return Some(&*self.home.port);
        }
        let mut others = self.others.iter();
        others.find(|a| a.device == device).map(|a| &*a.port)
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

    /// The graph of held submissions has one wait for this timeline, or claim of it, more. Called under the graph's lock,
    /// as all that changes this; who enters a submission there has a fence between that and his look for trouble.
    pub(crate) fn add_held_wait(&self) {
        let waits = self.locked.held_waits.load(Ordering::Relaxed);
        self.locked.held_waits.store(waits + 1, Ordering::Relaxed);
    }

    /// The graph of held submissions has one wait for this timeline, or claim of it, less.
    pub(crate) fn drop_held_wait(&self) {
        let waits = self.locked.held_waits.load(Ordering::Relaxed);
        self.locked.held_waits.store(waits - 1, Ordering::Relaxed);
    }

    /// True if its part of the graph is not empty. To be asked under the graph's lock.
    pub(crate) fn is_in_the_graph(&self) -> bool {
        self.locked.held_waits.load(Ordering::Relaxed) > 0
    }

    /// The queue that is to signal what is pending, if it is one of ours.
    pub(crate) fn last_submitter(&self) -> Option<Object> {
        crate::base::names::queue(self.claimed.promoted_by.load(Ordering::Acquire))
    }

    /// True if somebody has claimed `value`.
    pub(crate) fn is_claimed(&self, value: u64) -> bool {
        self.locked.state.lock().claims.covers(value)
    }

    /// True if a signal can only come from beyond the engine: no raw claim but the one for that is there.
    pub(crate) fn is_signalled_outside(&self) -> bool {
        self.attachments().any(|a| a.signalled_elsewhere)
            && self.seen.raw_claims.load(Ordering::Relaxed) == 1
    }

    /// Lets every queue that holds a submission which waits for this timeline, or signals it, know that it may
    /// be hopeless. No lock may be held.
    fn tell_holders(&self) {
        // Against a queue that adds its wait and then looks for trouble: one of the two sees the other.
        fence(Ordering::SeqCst);
        if self.locked.held_waits.load(Ordering::SeqCst) > 0 || self.held_index.is_a_queues() {
            let waiting_for = held_index::waiting_for();
            wake_all(
                waiting_for
                    .map(|waiting_for| waiting_for(self))
                    .unwrap_or_default(),
            );
        }
    }

    /// Makes it a side of a bridge.
    pub(crate) fn join(&self, bridge: Weak<dyn Bridge>) {
        let _ = self.bridge.set(bridge);
    }

    /// There is no port but one of the host's, behind which there is nothing.
    #[inline]
    pub(crate) const fn is_counted_here(&self) -> bool {
        self.counts_here
    }

    #[inline]
    pub(crate) const fn is_from_afar(&self) -> bool {
        self.from_afar
    }

    /// Says that this is where it lies, to who has no more than a reference.
    pub(crate) fn know(&self, of: &Arc<Self>) {
        let _ = self.dependents.of.set(Arc::downgrade(of));
    }

    /// The right to signal it is another process's.
    pub(crate) fn follow(&self, kept: Arc<dyn Any + Send + Sync>) {
        let _ = self.followed.set(kept);
    }

    /// True if a value that is not pending may still come after the last handle has gone.
    fn may_come(state: &State, value: u64) -> bool {
        state.claims.covers(value) || state.elsewhere.iter().any(|claim| claim.covers(value))
    }

    /// The lowest value above `pending` that may still come once the last handle has gone: it is claimed, here or on another side of a bridge.
    pub(crate) fn still_to_come(&self, pending: u64) -> Option<u64> {
        let state = self.locked.state.lock();
        let all = state.claims.all().chain(state.elsewhere.iter().copied());
        let ahead = all.filter(|claim| claim.upto > pending);
        ahead.map(|claim| claim.above.max(pending) + 1).min()
    }

    /// What may still come from here to another side of a bridge: what is claimed, and what is there.
    pub(crate) fn outstanding(&self) -> Vec<Interval> {
        let state = self.locked.state.lock();
        let mut all: Vec<_> = state.claims.all().collect();
        all.push(Interval {
            above: 0,
            upto: self.pending_locked(&state),
        });
        all
    }

    /// The last handle of any side of its bridge has gone. It is closed to all but what may come from the others, which
    /// is less with each call.
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

    /// Why `value` will never come, if that is so.
    pub(crate) fn hopeless(&self, value: u64) -> Option<Failure> {
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

    /// How `value` stands, as far as the engine knows without asking the driver.
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

    /// True if `value` has come as far as `stage`, and that shows without the lock.
    #[inline]
    pub(crate) fn has_plainly_come(&self, stage: Stage, value: u64) -> bool {
        self.reached() >= value
            || (stage == Stage::Pending && !self.is_troubled() && self.pending() >= value)
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
        } else if !state.closed || Self::may_come(state, value) {
            Standing::Open
        } else {
            Standing::Cancelled
        }
    }

    /// Fails the timeline at the value that the driver tells now.
    pub(crate) fn fail(&self, cause: Failure) {
        self.refresh();
        self.fail_frozen(cause);
    }

    /// Fails the timeline at the value known; its port is not asked.
    pub(super) fn fail_frozen(&self, cause: Failure) {
        let woken = {
            let mut state = self.locked.state.lock();
            if state.failure.is_some() {
                return;
            }
            state.failure = Some(cause);
            self.seen.troubled.store(true, Ordering::Release);
            state.waiters.take_unserved(|_| false)
        };
        wake_all(woken);
        self.tell_holders();
    }

    /// The last handle has gone: nobody can make new claims, unless that is another process's to do. In a forked child the locks may be held for ever.
    pub(crate) fn close(&self) {
        if self.followed.get().is_some() || self.is_forked() {
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

/// A timeline that has just been closed, and whom that concerns.
#[must_use = "they wait"]
pub(crate) struct Closing<'s> {
    of: &'s Shared,
    woken: Woken,
    is_watched: bool,
}

impl Closing<'_> {
    /// Tells them. No lock may be held.
    pub(crate) fn end(self) {
        wake_all(self.woken);
        self.of.tell_holders();
        let publisher = self.of.publisher.get().cloned();
        wake_all(publisher.map(|publisher| publisher as Arc<dyn Wake>));
        if let Some(device) = self.of.watch().filter(|_| self.is_watched) {
            device.watcher().let_go(&**device);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::api::Device as _;

    /// Claims that the host makes good leave nothing behind, so that the next submission takes the fast path again.
    #[test]
    fn a_relayed_claim_goes_with_its_signal() {
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
        assert!(of.locked.state.lock().claims.is_empty(), "{of:?}");
    }

    /// A claim that is pending does not send the next submission to the slow path, and leaves the list
    /// with the next claim, whichever path that takes.
    #[test]
    fn a_pending_claim_is_in_no_other_claims_way() {
        let line = crate::host::Device::new().timeline("line").unwrap();
        let of = line.shared();
        let first = of.claim_alone(1).unwrap();
        assert!(of.claim_alone(2).is_none());
        of.promote(first.upto, 0, None);
        let second = of.claim_alone(2).unwrap();
        assert_eq!((second.above, second.upto), (1, 2));
        of.promote(second.upto, 0, None);
        of.claim(3, 0).unwrap();
        assert_eq!(of.locked.state.lock().claims.all().count(), 1);
    }
}
