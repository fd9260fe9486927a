//! The synchronization primitives of loom, which runs a small case in every order of its threads.
//!
//! Each thread has a clock, which moves only while the thread is parked with a deadline. Such a
//! park ends exactly at its deadline. Before that, loom lets the other threads do all that they can
//! do. So a wait with a deadline ends at every moment at which it can. A wait without a deadline
//! that no thread ends is a deadlock, which loom reports.

use std::cell::Cell;
use std::ops::{Add, Sub};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

pub(crate) use std::sync::atomic::Ordering;

pub use loom::sync::MutexGuard;
use loom::sync::atomic;
pub(crate) use loom::sync::atomic::fence;
pub(crate) use loom::thread::yield_now;

/// Declares a variable of each modelled thread. All of them run on one thread of the system.
macro_rules! per_thread {
    (static $name:ident: $type:ty = $initial:expr) => {
        loom::thread_local! {
            static $name: $type = $initial;
        }
    };
}
pub(crate) use per_thread;

/// Declares a variable of each model.
macro_rules! per_process {
    (static $name:ident: $type:ty = $initial:expr) => {
        loom::lazy_static! {
            static ref $name: $type = $initial;
        }
    };
}
pub(crate) use per_process;

/// The memory model of the models that this thread of the system runs from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A load sees the last store. Every order of loads and stores is tried.
    Strong,
    /// A load sees any store that its memory order allows, as loom models it.
    ///
    /// Loom treats `SeqCst` as `AcqRel`. A fence before such a load and after such a store makes up
    /// for that.
    ///
    /// Not every order is tried, because loom remembers only the last access to an atomic. Suppose
    /// that one thread loads an atomic, and then another thread loads it and stores to it. Loom
    /// misses the order in which the store comes before the load of the first thread.
    Weak,
}

std::thread_local! {
    static MEMORY: Cell<Memory> = const { Cell::new(Memory::Strong) };
}

impl Memory {
    /// Chooses this memory model.
    pub fn select(self) {
        MEMORY.set(self);
    }
}

/// A 64-bit atomic under either memory model.
#[derive(Debug)]
struct Atomic {
    weak: atomic::AtomicU64,
    strong: std::sync::Mutex<Strong>,
}

/// A value, with objects by which loom learns which accesses conflict.
///
/// Two uses of one [`Conflict`] are a conflict for loom, so that it tries both orders. They have no
/// other effect.
#[derive(Debug)]
struct Strong {
    value: u64,
    /// Used by every store, and by each thread's first load.
    stores: Arc<Conflict>,
    /// One for each thread that has loaded the value. A later load uses that of its own thread. A
    /// store uses those of all other threads.
    loads: Vec<(loom::thread::ThreadId, Arc<Conflict>)>,
}

type Conflict = loom::sync::Condvar;

impl Atomic {
    fn new(value: u64) -> Self {
        Self {
            weak: atomic::AtomicU64::new(value),
            strong: std::sync::Mutex::new(Strong {
                value,
                stores: Arc::default(),
                loads: Vec::new(),
            }),
        }
    }

    /// Locks the value. Release it before loom may switch threads.
    ///
    /// All modelled threads are one thread of the system, so a second lock would deadlock.
    fn strong(&self) -> std::sync::MutexGuard<'_, Strong> {
        self.strong.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn load(&self, order: Ordering) -> u64 {
        if MEMORY.get() == Memory::Weak {
            if order == Ordering::SeqCst {
                fence(order);
            }
            return self.weak.load(order);
        }
        let this = loom::thread::current().id();
        let conflict = {
            let mut strong = self.strong();
            let known = strong.loads.iter().find(|(loader, _)| *loader == this);
            if let Some((_, own)) = known {
                own.clone()
            } else {
                strong.loads.push((this, Arc::default()));
                strong.stores.clone()
            }
        };
        conflict.notify_all();
        atomic::fence(Ordering::SeqCst);
        self.strong().value
    }

    fn update(&self, order: Ordering, change: impl Fn(u64) -> u64) -> u64 {
        if MEMORY.get() == Memory::Weak {
            let updated = self
                .weak
                .fetch_update(order, Ordering::Relaxed, |v| Some(change(v)));
            if order == Ordering::SeqCst {
                fence(order);
            }
            return updated.unwrap_or_default();
        }
        let this = loom::thread::current().id();
        let conflicts: Vec<_> = {
            let strong = self.strong();
            let others = strong.loads.iter().filter(|(loader, _)| *loader != this);
            let others = others.map(|(_, conflict)| conflict.clone());
            others.chain([strong.stores.clone()]).collect()
        };
        for conflict in conflicts {
            conflict.notify_all();
        }
        atomic::fence(Ordering::SeqCst);
        let mut strong = self.strong();
        let changed = change(strong.value);
        std::mem::replace(&mut strong.value, changed)
    }

    fn store(&self, value: u64, order: Ordering) {
        if MEMORY.get() == Memory::Weak {
            self.weak.store(value, order);
            if order == Ordering::SeqCst {
                fence(order);
            }
        } else {
            self.update(order, |_| value);
        }
    }
}

/// See [`std::sync::atomic::AtomicU64`].
#[derive(Debug)]
pub(crate) struct AtomicU64(Atomic);

impl AtomicU64 {
    pub(crate) fn new(value: u64) -> Self {
        Self(Atomic::new(value))
    }

    pub(crate) fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    pub(crate) fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    pub(crate) fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.0.update(order, |before| before.wrapping_add(value))
    }

    pub(crate) fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.0.update(order, |before| before.wrapping_sub(value))
    }

    pub(crate) fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.0.update(order, |before| before.max(value))
    }

    pub(crate) fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.0.update(order, |_| value)
    }

    pub(crate) fn compare_exchange(
        &self,
        from: u64,
        to: u64,
        order: Ordering,
        otherwise: Ordering,
    ) -> Result<u64, u64> {
        if MEMORY.get() == Memory::Weak {
            return self.0.weak.compare_exchange(from, to, order, otherwise);
        }
        let change = |before| if before == from { to } else { before };
        let before = self.0.update(order, change);
        if before == from {
            Ok(before)
        } else {
            Err(before)
        }
    }
}

/// See [`std::sync::atomic::AtomicBool`].
#[derive(Debug)]
pub(crate) struct AtomicBool(Atomic);

impl Default for AtomicBool {
    fn default() -> Self {
        Self::new(false)
    }
}

impl AtomicBool {
    pub(crate) fn new(value: bool) -> Self {
        Self(Atomic::new(value.into()))
    }

    pub(crate) fn load(&self, order: Ordering) -> bool {
        self.0.load(order) != 0
    }

    pub(crate) fn store(&self, value: bool, order: Ordering) {
        self.0.store(value.into(), order);
    }

    pub(crate) fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.update(order, |_| value.into()) != 0
    }
}

/// False: polling would only add states that loom tries anyway.
pub(crate) const CAN_SPIN: bool = false;

/// The mutex of loom, which is never poisoned. See the native one.
#[derive(Debug)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex that guards `value`.
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    /// Takes the lock, and blocks while another thread holds it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock if no thread holds it. Does not block.
    #[must_use]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    /// Releases the lock and blocks until notified. May also return without a notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks as long as `condition` is true.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// Waits without the time-out. Modelled code must not need it.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.wait_while(guard, condition)
    }

    /// Waits without the time-out. Modelled code must not need it.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _timeout: Duration,
    ) -> MutexGuard<'a, T> {
        self.wait(guard)
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
}

/// A thread, with the token by which it is unparked.
///
/// Loom's own `unpark` loses the token if the thread is about to take a lock. It also wakes a
/// thread that is blocked on a lock.
#[derive(Clone)]
pub(crate) struct Thread(Arc<Token>);

/// The id of a thread, unique in all models of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadId(u64);

impl ThreadId {
    pub(crate) const fn number(self) -> u64 {
        self.0
    }
}

/// The next id. Not modelled, because ids are only compared for equality.
static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);

per_thread! { static OWN: ThreadId = ThreadId(NEXT.fetch_add(1, Ordering::Relaxed)) }

struct Token {
    given: Mutex<bool>,
    changed: Condvar,
}

per_thread! { static CURRENT: Thread = Thread::new() }

pub(crate) fn this_thread() -> ThreadId {
    OWN.with(|own| *own)
}

pub(crate) fn current() -> Thread {
    CURRENT.with(Thread::clone)
}

impl Thread {
    fn new() -> Self {
        Self(Arc::new(Token {
            given: Mutex::new(false),
            changed: Condvar::default(),
        }))
    }

    pub(crate) fn unpark(&self) {
        *self.0.given.lock() = true;
        self.0.changed.notify_one();
    }
}

pub(crate) fn park() {
    let this = current();
    let mut given = this.0.given.lock();
    while !*given {
        given = this.0.changed.wait(given);
    }
    *given = false;
}

/// Ends at the deadline. Loom chooses what the other threads do before that.
pub(crate) fn park_timeout(timeout: Duration) {
    *current().0.given.lock() = false;
    CLOCK.with(|clock| clock.set(clock.get() + timeout));
}

// Starts above 0, so that the longest duration overflows it, as it overflows a real clock.
per_thread! { static CLOCK: Cell<Duration> = Cell::new(Duration::from_nanos(1)) }

/// A time on the thread's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Self {
        Self(CLOCK.with(Cell::get))
    }

    pub(crate) fn checked_add(self, duration: Duration) -> Option<Self> {
        self.0.checked_add(duration).map(Self)
    }

    pub(crate) fn duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub(crate) fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

/// Some `Instant` of std. Models do not use its value.
pub(crate) fn system_time(_: Instant) -> std::time::Instant {
    std::time::Instant::now()
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

/// Starts a detached thread.
///
/// # Errors
/// None. The native function has some.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = loom::thread::Builder::new().name(name.into());
    builder.spawn(run).map(drop)
}

/// Runs `action`. Does not catch a panic, because loom reports a failed model by a panic.
#[allow(
    clippy::unnecessary_wraps,
    reason = "the native function catches panics"
)]
pub(crate) fn caught<T>(action: impl FnOnce() -> T) -> std::thread::Result<T> {
    Ok(action())
}

/// Runs `action`. Does not catch a panic, because loom reports a failed model by a panic.
pub(crate) fn contain(action: impl FnOnce()) {
    action();
}
