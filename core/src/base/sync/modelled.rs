//! The primitives of loom, a scheduler that runs a small case in every order its threads can take.
//!
//! Time does not pass by itself here: a thread's clock moves only while the thread is parked with a
//! deadline, and such a park ends exactly when the time is over. Everything that another thread can do before
//! that, loom lets it do, so a wait with a deadline is cancelled at every moment that it can be. A wait without
//! one that nobody ends is a deadlock, which loom reports.

use std::cell::Cell;
use std::ops::{Add, Sub};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

pub(crate) use std::sync::atomic::Ordering;

pub use loom::sync::MutexGuard;
use loom::sync::atomic;
pub(crate) use loom::sync::atomic::fence;
pub(crate) use loom::thread::yield_now;

/// A variable of each modelled thread; those all run on one thread of the system.
macro_rules! per_thread {
    (static $name:ident: $type:ty = $initial:expr) => {
        loom::thread_local! {
            static $name: $type = $initial;
        }
    };
}
pub(crate) use per_thread;

/// A variable of each model.
macro_rules! per_process {
    (static $name:ident: $type:ty = $initial:expr) => {
        loom::lazy_static! {
            static ref $name: $type = $initial;
        }
    };
}
pub(crate) use per_process;

/// What a load may see, in the models that this thread of the system runs from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The last store. Every order of loads and stores is tried.
    Strong,
    /// Any store that its memory order allows, as loom models it. Loom takes `SeqCst` for `AcqRel`; a
    /// fence before such a load and after such a store makes up for that. Not every order is tried: loom remembers only
    /// the last access to an atomic, so it misses that a store could have gone before another thread's load
    /// where the storing thread has loaded the same atomic in between.
    Weak,
}

std::thread_local! {
    static MEMORY: Cell<Memory> = const { Cell::new(Memory::Strong) };
}

impl Memory {
    /// Chooses.
    pub fn select(self) {
        MEMORY.set(self);
    }
}

/// An atomic of 64 bits under either memory.
#[derive(Debug)]
struct Atomic {
    weak: atomic::AtomicU64,
    strong: std::sync::Mutex<Strong>,
}

/// A value, and objects without effect, any two uses of one of which loom takes for a race.
#[derive(Debug)]
struct Strong {
    value: u64,
    /// Used by every store, and by each thread's first load.
    stores: Arc<Race>,
    /// The threads that have loaded it. A further load uses its thread's own, a store those of all others.
    loads: Vec<(loom::thread::ThreadId, Arc<Race>)>,
}

type Race = loom::sync::Condvar;

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

    /// Not held while loom may switch threads, all of which are one thread of the system.
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
        let race = {
            let mut strong = self.strong();
            let known = strong.loads.iter().find(|(loader, _)| *loader == this);
            if let Some((_, own)) = known {
                own.clone()
            } else {
                strong.loads.push((this, Arc::default()));
                strong.stores.clone()
            }
        };
        race.notify_all();
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
        let races: Vec<_> = {
            let strong = self.strong();
            let others = strong.loads.iter().filter(|(loader, _)| *loader != this);
            let others = others.map(|(_, race)| race.clone());
            others.chain([strong.stores.clone()]).collect()
        };
        for race in races {
            race.notify_all();
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

/// See std's.
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

/// See std's.
#[derive(Debug)]
pub(crate) struct AtomicBool(Atomic);

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

/// Polling adds nothing but the same states again.
pub(crate) const CAN_SPIN: bool = false;

/// See the native one; loom's never is poisoned.
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
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// A condition variable for [`Mutex`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Without the time-out: what is modelled must not need it.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        _timeout: Duration,
    ) -> MutexGuard<'a, T> {
        self.wait(guard)
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }
}

/// A thread's identity and the token it is unparked with. Loom's own unpark forgets the token where the thread
/// is about to take a lock, and frees a thread that is blocked on one.
#[derive(Clone)]
pub(crate) struct Thread(Arc<Token>);

/// A thread of any model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadId(u64);

/// The next thread's. No part of a model: nobody compares more than whether two are the same.
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

/// Ends when the time is over; what others do before is loom's to choose, here and before here.
pub(crate) fn park_timeout(timeout: Duration) {
    *current().0.given.lock() = false;
    CLOCK.with(|clock| clock.set(clock.get() + timeout));
}

// Not 0, so that the longest of durations overflows it, as it does every real clock.
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

/// The time as those outside the engine know it; a model has no use for that.
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

/// Starts a thread that nobody joins.
///
/// # Errors
/// None; the native one has some.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let builder = loom::thread::Builder::new().name(name.into());
    builder.spawn(run).map(drop)
}

/// Runs `action`: a panic is loom's verdict on the model, which must not be swallowed.
pub(crate) fn contain(action: impl FnOnce()) {
    action();
}
