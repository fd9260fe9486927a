//! The shared part of a timeline: its fields, and the methods that need no other part.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::claims::Claims;
use super::extras::Extras;
use super::locked::State;
use super::ports::Ports;
use crate::base::error::{Failure, Object, Result};
use crate::base::info::DeviceId;
use crate::base::process::DroppedByMaker;
use crate::base::stage::Stage;
use crate::base::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::port::attachment::{Attachment, DevicePort};
use crate::port::{Port, Watch};
use crate::timeline::held_index::HeldIndex;
use crate::timeline::recent_spins::RecentSpins;

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
    /// If a thread locks both, it locks the state first. A submission locks only this, and a thread
    /// that sees a signal reached locks only the state.
    claims: Mutex<Claims>,
    /// The highest promoted value. Only grows, and may be below the reached value, which is pending
    /// too.
    promoted: AtomicU64,
    /// True if a waiter has registered since the last promotion that found none.
    ///
    /// A registration sets this before it reads `promoted`. A promotion raises `promoted` before it
    /// reads this. All four accesses are `SeqCst`, so one of the two threads sees the other.
    awaited: AtomicBool,
    /// The value of the claim that was promoted last, or of the one before.
    ///
    /// `last_value_and_domain` has the value and its driver queue (0 for none) in one word.
    /// `last_queue` is the id of the submitting queue (0 for none of the engine).
    last_value: AtomicU64,
    last_value_and_domain: AtomicU64,
    last_queue: AtomicU64,
}

/// Fields under locks.
#[repr(C, align(128))]
struct Locked {
    state: DroppedByMaker<Mutex<State>>,
    /// Keeps host signals in order. Held across the driver call.
    host_signal: Mutex<()>,
}

/// The host-side state of a timeline, shared by its handles, points and claims.
pub(crate) struct Shared {
    object: Object,
    ports: Ports,
    /// What few timelines have.
    ///
    /// Loom does not model it. Nearly all operations read it, and each part is set before the
    /// accesses that depend on it.
    extras: OnceLock<Box<Extras>>,
    /// Whether recent host waits have gained by polling before parking.
    recent_spins: RecentSpins,
    held_index: HeldIndex,
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
        let ports = Ports::new(home, others);
        let foreign = ports.are_signalled_elsewhere();
        let depends_on_others = ports.has_remote_home() || ports.has_others();
        let shared = Self {
            object,
            ports,
            extras: OnceLock::new(),
            seen: Seen {
                reached: AtomicU64::new(initial),
                raw_claims: AtomicU64::new(foreign.into()),
                troubled: AtomicBool::new(false),
                depends_on_others: AtomicBool::new(depends_on_others),
            },
            claimed: Claimed {
                claims: Mutex::default(),
                promoted: AtomicU64::new(initial),
                awaited: AtomicBool::new(false),
                last_value: AtomicU64::new(0),
                last_value_and_domain: AtomicU64::new(0),
                last_queue: AtomicU64::new(0),
            },
            recent_spins: RecentSpins::default(),
            held_index: HeldIndex::default(),
            locked: Locked {
                state: DroppedByMaker::new(Mutex::new(State {
                    reached: initial,
                    ..State::default()
                })),
                host_signal: Mutex::new(()),
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
    pub(crate) const fn ports(&self) -> &Ports {
        &self.ports
    }

    pub(crate) fn devices(&self) -> impl Iterator<Item = DeviceId> + '_ {
        self.ports.all().map(DevicePort::device)
    }

    #[inline]
    pub(crate) fn home(&self) -> &dyn Port {
        self.ports.home().port()
    }

    #[inline]
    pub(crate) fn port_on(&self, device: DeviceId) -> Option<&dyn Port> {
        self.ports.on(device)
    }

    pub(crate) fn watch(&self) -> Option<&Arc<dyn Watch>> {
        self.ports.home().watch()
    }

    /// The process that signals the timeline, if that is known and not this one.
    pub(crate) fn signalling_process(&self) -> Option<u32> {
        self.ports.all().find_map(DevicePort::signalling_process)
    }

    /// True if signals come only from outside the engine and no raw claim is open.
    pub(crate) fn is_signalled_outside(&self) -> bool {
        self.ports.are_signalled_elsewhere() && self.seen.raw_claims.load(Ordering::Acquire) == 1
    }

    /// True in a forked child of the process that made the timeline. One load.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        !self.ports.maker().is_this()
    }

    /// Refuses a timeline of the parent process.
    ///
    /// # Errors
    /// [`Error::MadeBeforeFork`](crate::Error::MadeBeforeFork) in a forked child.
    #[inline]
    pub(crate) fn require_maker(&self) -> Result<()> {
        self.ports.maker().require(&self.object)
    }

    /// What few timelines have, if this one has any of it.
    #[inline]
    pub(crate) fn extras(&self) -> Option<&Extras> {
        self.extras.get().map(|extras| &**extras)
    }

    /// Its extras. The first call makes them.
    pub(crate) fn make_extras(&self) -> &Extras {
        self.extras.get_or_init(Box::default)
    }

    #[inline]
    pub(crate) const fn recent_spins(&self) -> &RecentSpins {
        &self.recent_spins
    }

    /// Its index in the graph of held submissions.
    #[inline]
    pub(crate) const fn held_index(&self) -> &HeldIndex {
        &self.held_index
    }

    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.seen.reached.load(Ordering::Acquire)
    }

    /// Sets the reached value.
    #[inline]
    pub(super) fn set_reached(&self, state: &mut State, value: u64) {
        state.reached = value;
        self.seen.reached.store(value, Ordering::Release);
    }

    #[inline]
    pub(crate) fn pending(&self) -> u64 {
        self.promoted().max(self.reached())
    }

    /// Same as [`Shared::pending`], for a caller that holds the state's lock.
    #[inline]
    pub(super) fn pending_locked(&self, state: &State) -> u64 {
        self.pending_from(state.reached)
    }

    /// Same as [`Shared::pending`], for a caller that knows the reached value.
    #[inline]
    pub(super) fn pending_from(&self, reached: u64) -> u64 {
        self.claimed.promoted.load(Ordering::SeqCst).max(reached)
    }

    /// The highest promoted value. It may be below the reached value.
    #[inline]
    pub(super) fn promoted(&self) -> u64 {
        self.claimed.promoted.load(Ordering::Acquire)
    }

    /// Notes that `value` is pending. The entry of its claim stays until the next claim removes it.
    #[inline]
    pub(crate) fn raise_pending(&self, value: u64) {
        self.claimed.promoted.fetch_max(value, Ordering::SeqCst);
    }

    /// Notes which queue signals `value`.
    ///
    /// A concurrent call for the next value is possible, if the driver finished early and another
    /// thread has seen it.
    #[inline]
    pub(super) fn note_signaller(&self, value: u64, domain: u64, queue: u64) {
        self.claimed.last_queue.store(queue, Ordering::Relaxed);
        self.claimed.last_value.store(value, Ordering::Relaxed);
        self.claimed
            .last_value_and_domain
            .store(promotion(value, domain), Ordering::Release);
    }

    /// True if driver queue `domain` is known to signal `value`. Known only for the last promoted
    /// values.
    #[inline]
    pub(crate) fn is_from(&self, value: u64, domain: u64) -> bool {
        self.claimed.last_value_and_domain.load(Ordering::Acquire) == promotion(value, domain)
            && self.claimed.last_value.load(Ordering::Relaxed) == value
    }

    /// The queue that last promoted a claim, if it is one of the engine.
    pub(crate) fn last_submitter(&self) -> Option<Object> {
        crate::base::queue_names::get(self.claimed.last_queue.load(Ordering::Acquire))
    }

    /// Notes that `queue` makes all signals. Used for a queue's position, which has no claims.
    pub(crate) fn belongs_to(&self, queue: &Object) {
        self.claimed.last_queue.store(queue.id(), Ordering::Release);
    }

    /// True if `value` is known to have come to `stage`.
    ///
    /// Takes no lock, and may miss a value that has just come.
    #[inline]
    pub(crate) fn has_plainly_come(&self, stage: Stage, value: u64) -> bool {
        let is_promoted = || self.promoted() >= value;
        (stage == Stage::Pending && !self.is_troubled() && is_promoted()) || self.reached() >= value
    }

    /// The largest value that may be signalled or waited for now (T7).
    #[inline]
    pub(crate) fn largest_legal(&self) -> u64 {
        self.largest_legal_from(self.reached())
    }

    #[inline]
    pub(super) fn largest_legal_from(&self, reached: u64) -> u64 {
        let largest = reached.saturating_add(self.ports.max_difference());
        largest.min(u64::MAX - 1)
    }

    /// True if a claim covers `value`.
    pub(crate) fn is_claimed(&self, value: u64) -> bool {
        self.lock_claims().covers(value)
    }

    /// True if signals from outside the engine are possible.
    #[inline]
    pub(super) fn has_raw_claims(&self) -> bool {
        self.seen.raw_claims.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn add_raw_claim(&self) {
        self.seen.raw_claims.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drop_raw_claim(&self) {
        // After this, a thread that reads the count finds the value of the claim pending.
        self.seen.raw_claims.fetch_sub(1, Ordering::Release);
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
        self.lock().failure.clone()
    }

    /// True if it has failed.
    #[inline]
    pub(crate) fn is_failed(&self) -> bool {
        self.failure().is_some()
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_troubled() && self.lock().closed
    }

    /// True if it has failed or lost its last handle.
    #[inline]
    pub(crate) fn is_troubled(&self) -> bool {
        self.seen.troubled.load(Ordering::Acquire)
    }

    /// Notes that it has failed or lost its last handle. Call it with the state's lock.
    pub(super) fn note_troubled(&self) {
        self.seen.troubled.store(true, Ordering::Release);
    }

    /// True if native waits for it must be noted.
    #[inline]
    pub(crate) fn depends_on_others(&self) -> bool {
        self.seen.depends_on_others.load(Ordering::Relaxed)
    }

    /// Notes that native waits for it must be noted as dependents.
    ///
    /// Polling threads read the flag's cache line, so it is written only once.
    pub(super) fn note_depends_on_others(&self) {
        if !self.depends_on_others() {
            self.seen.depends_on_others.store(true, Ordering::Relaxed);
        }
    }

    /// True if a waiter may be registered.
    #[inline]
    pub(super) fn is_awaited(&self) -> bool {
        self.claimed.awaited.load(Ordering::SeqCst)
    }

    /// Notes that a waiter is about to register. Call it before the check of its value.
    #[inline]
    pub(super) fn note_awaited(&self) {
        self.claimed.awaited.store(true, Ordering::SeqCst);
    }

    /// Notes that no waiter is registered. Call it with the state's lock.
    pub(super) fn note_not_awaited(&self) {
        self.claimed.awaited.store(false, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.locked.state.lock()
    }

    /// Locks the claims. Call it with the lock of the state, if both are needed.
    #[inline]
    pub(super) fn lock_claims(&self) -> MutexGuard<'_, Claims> {
        self.claimed.claims.lock()
    }

    /// Locks out other host signals.
    #[inline]
    pub(super) fn lock_host_signals(&self) -> MutexGuard<'_, ()> {
        self.locked.host_signal.lock()
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
            let claim = of.claim(value, 0).unwrap().interval;
            of.signal_claimed(claim.upto);
            assert_eq!(of.reached(), value);
        }
        line.signal(7).unwrap();
        line.signal(8).unwrap();
        assert!(of.claimed.claims.lock().is_empty(), "{of:?}");
    }

    /// A pending claim leaves no entry behind.
    ///
    /// The next claim removes its entry.
    #[test]
    fn a_pending_claim_leaves_no_entry() {
        let line = crate::host::Device::new().timeline("line").unwrap();
        let of = line.shared();
        let first = of.claim(1, 0).unwrap().interval;
        of.promote(first.upto, 0, None);
        let second = of.claim(2, 0).unwrap().interval;
        assert_eq!((second.above, second.upto), (1, 2));
        of.promote(second.upto, 0, None);
        of.claim(3, 0).unwrap();
        assert_eq!(of.claimed.claims.lock().all().count(), 1);
    }
}
