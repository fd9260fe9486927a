//! Keeps threads from destroying a driver while the process exits.
//!
//! `exit(3)`, and so the end of `main`, runs the destructors of all libraries while other threads
//! still run. The process crashes if one of these threads unloads a driver at that time. Threads of
//! the engine can do that: the watching thread of a device can hold the device's last handle. The
//! process also crashes if a driver executes work on a thread of the process at that time.
#![allow(unsafe_code, reason = "registers what runs at exit")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Thread, ThreadId, current, sleep, yield_now};
use std::time::{Duration, Instant};

use crate::base::error::{Error, Object};
use crate::base::process::MakerProcess;
use crate::base::run::run_contained;

/// True once an exit has begun. Written once, so that reading it costs little.
static EXITING: AtomicBool = AtomicBool::new(false);

/// The number of threads inside a [`DriverCalls`] guard. A forked child has none of the others.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The number of this thread's [`DriverCalls`] guards.
    static OWN: Cell<usize> = const { Cell::new(0) };
}

/// The queues whose work an exit waits for, each with the process that has made it.
// A mutex of std: a process exits outside of every loom model, and only tries the lock.
static QUEUES: Mutex<Vec<(MakerProcess, Weak<dyn RunsInProcess>)>> = Mutex::new(Vec::new());

/// The threads that can park in a wait, so that an exit wakes them.
// A mutex of std: see above.
static PARKING: Mutex<Vec<Thread>> = Mutex::new(Vec::new());

/// The longest time for which an exit waits for those threads and queues.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// A queue whose driver executes work on threads of this process.
pub trait RunsInProcess: Send + Sync {
    /// True if no work of the queue runs or waits in the driver. Does not block.
    fn is_idle(&self) -> bool;
}

/// A guard during which an exit of the process waits, for two seconds at most.
///
/// A backend holds one while it destroys a device or an instance, on whichever thread.
#[derive(Debug)]
pub struct TeardownGuard(DriverCalls);

/// A guard while a thread may call drivers of itself. An exit waits for it.
///
/// Threads of the engine have one whenever they are not parked. All threads have one while they
/// release held submissions, and while they destroy objects of a driver. Nested guards cost no
/// atomic write.
#[derive(Debug)]
pub struct DriverCalls(PhantomData<*const ()>);

impl DriverCalls {
    /// A guard, or `None` if the process exits already. Then the caller must not call a driver.
    #[must_use]
    pub fn begin() -> Option<Self> {
        let own = Self(PhantomData);
        if OWN.replace(OWN.get() + 1) == 0 {
            // Either an exit finds this thread, or this thread finds the exit.
            INSIDE.fetch_add(1, Ordering::SeqCst);
        }
        (!is_exiting()).then_some(own)
    }
}

impl Drop for DriverCalls {
    fn drop(&mut self) {
        if OWN.replace(OWN.get() - 1) == 1 {
            INSIDE.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// True once an exit has begun. Threads of the engine then [stop](stop_for_good).
#[inline]
pub(crate) fn is_exiting() -> bool {
    EXITING.load(Ordering::SeqCst)
}

/// Parks this thread of the engine for good, with all that it holds.
///
/// Its drops could call drivers. Call it without a lock.
pub(crate) fn stop_for_good() -> ! {
    loop {
        std::thread::park();
    }
}

/// The error for the use of `object` while the process exits.
#[cold]
pub(crate) fn exit_error(object: &Object, asked: &str) -> Error {
    Error::unsupported(object, asked, "the process exits")
}

impl TeardownGuard {
    /// Makes an exit wait for the guards before it runs the destructors of libraries.
    ///
    /// Call it each time a library of a driver has been loaded. An exit first runs what was
    /// registered last, and a library registers its destructors when it is loaded or first used. So
    /// each call moves both registrations of this library to the end of the C library's list. The
    /// list grows by two places of 32 bytes.
    pub fn register() {
        if is_exiting() {
            return;
        }
        // Its fork handler forgets the guards of threads that a child does not have.
        let _ = MakerProcess::this();
        // If this library is unloaded, the C library calls this and the code is still there.
        if !PLACED.swap(true, Ordering::Relaxed) {
            // SAFETY: the function does not unwind, and lives as long as the code of this library.
            unsafe { libc::atexit(leave) };
        }
        let _moves = lock_briefly(&MOVES);
        // Each stays while the other one moves, so that an exit finds one at any time.
        for registration in [&LAST, &COVER, &LAST] {
            move_to_end(registration);
        }
    }

    /// Moves the last registration behind what other code has registered. The list does not grow.
    fn move_last() {
        if !PLACED.load(Ordering::Relaxed) {
            Self::register();
        } else if !is_exiting() {
            let _moves = lock_briefly(&MOVES);
            move_to_end(&LAST);
        }
    }

    /// A guard, or `None` if the process exits already.
    ///
    /// After `None` the caller leaves the driver as it is. The system frees everything.
    #[must_use]
    pub fn begin() -> Option<Self> {
        // Other code may have loaded or initialized drivers since the last call.
        Self::move_last();
        Self::begin_registered()
    }

    fn begin_registered() -> Option<Self> {
        DriverCalls::begin().map(Self)
    }

    /// Forgets the guards of other threads, which a forked child does not have.
    ///
    /// Called in the child, on its only thread.
    pub(crate) fn forget_other_threads() {
        INSIDE.store(usize::from(OWN.get() > 0), Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn is_any_held() -> bool {
        INSIDE.load(Ordering::Relaxed) != 0
    }

    /// Makes an exit also wait until `queue` is idle, unless the queue is gone by then.
    pub fn register_queue(queue: Weak<dyn RunsInProcess>) {
        Self::move_last();
        let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|(_, queue)| queue.strong_count() > 0);
        queues.push((MakerProcess::this(), queue));
    }

    /// Drops an object that the application gave to be kept. An exit waits for the drop.
    ///
    /// Forgets the object if the process exits already. A panic of the drop ends here. If the drop
    /// may destroy a driver, call [`TeardownGuard::register`] before.
    pub fn drop_owner<T>(owner: T) {
        match Self::begin_registered() {
            Some(_guard) => run_contained(|| drop(owner)),
            None => std::mem::forget(owner),
        }
    }
}

impl Drop for TeardownGuard {
    fn drop(&mut self) {
        // A library that was unloaded has left free places below the registration.
        Self::move_last();
    }
}

// See the Itanium C++ ABI, "DSO Object Destruction API".
unsafe extern "C" {
    fn __cxa_atexit(
        function: unsafe extern "C" fn(*mut c_void),
        argument: *mut c_void,
        handle: *mut c_void,
    ) -> c_int;

    /// Calls and removes the functions that were registered with `handle`.
    fn __cxa_finalize(handle: *mut c_void);
}

/// True once [`leave`] is registered.
static PLACED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True while this thread withdraws the registration.
    static WITHDRAWS: Cell<bool> = const { Cell::new(false) };
}

/// The address is the handle of a registration of [`exit_begins`]. No library has the same.
type Registration = AtomicBool;

/// The registration that an exit finds first.
static LAST: Registration = AtomicBool::new(false);

/// What an exit finds while [`LAST`] moves. It was moved when a driver was last loaded.
static COVER: Registration = AtomicBool::new(false);

/// Locked while a registration moves.
static MOVES: Mutex<()> = Mutex::new(());

/// Moves the registration to the end of the C library's list.
fn move_to_end(registration: &'static Registration) {
    // The C library only uses free places at the end of its list. So the registration is withdrawn
    // before it is added again.
    withdraw(registration);
    let handle = registration.as_ptr().cast();
    // SAFETY: the function does not unwind. `leave` withdraws it before its code is unloaded.
    unsafe { __cxa_atexit(exit_begins, null_mut(), handle) };
}

fn withdraw(registration: &'static Registration) {
    WITHDRAWS.set(true);
    // SAFETY: only `exit_begins` is registered with this handle. It returns at once.
    unsafe { __cxa_finalize(registration.as_ptr().cast()) };
    WITHDRAWS.set(false);
}

/// Called by an exit, and by [`withdraw`].
unsafe extern "C" fn exit_begins(_: *mut c_void) {
    if !WITHDRAWS.get() {
        wait_for_teardowns();
    }
}

/// Called by an exit after [`exit_begins`], or when this library is unloaded.
extern "C" fn leave() {
    wait_for_teardowns();
    withdraw(&LAST);
    withdraw(&COVER);
}

/// A thread in [`PARKING`].
struct Parking(ThreadId);

impl Parking {
    fn new() -> Self {
        let own = current();
        let id = own.id();
        with_parking(|threads| threads.push(own));
        Self(id)
    }
}

impl Drop for Parking {
    fn drop(&mut self) {
        with_parking(|threads| threads.retain(|thread| thread.id() != self.0));
    }
}

/// Locks the list. See [`lock_briefly`].
fn with_parking(change: impl FnOnce(&mut Vec<Thread>)) {
    if let Some(mut threads) = lock_briefly(&PARKING) {
        change(&mut threads);
    }
}

/// Gives up in a forked child if a thread of the parent has locked it.
fn lock_briefly<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..10_000 {
        if let Ok(locked) = mutex.try_lock() {
            return Some(locked);
        }
        yield_now();
    }
    None
}

/// Notes that this thread can park in a wait. An exit unparks it, and then the wait must end.
pub(crate) fn note_parking() {
    thread_local! { static NOTED: Parking = Parking::new() }
    if !cfg!(syncline_loom) {
        let _ = NOTED.try_with(|_| ());
    }
}

/// In a forked child the lock may be held by a thread that the child does not have.
fn queues_of_this_process() -> Vec<Arc<dyn RunsInProcess>> {
    let Ok(queues) = QUEUES.try_lock() else {
        return Vec::new();
    };
    let own = queues.iter().filter(|(maker, _)| maker.is_this());
    own.filter_map(|(_, queue)| queue.upgrade()).collect()
}

fn wait_for_teardowns() {
    // Only the first call comes before the destructors of all drivers.
    if EXITING.swap(true, Ordering::SeqCst) {
        return;
    }
    with_parking(|threads| threads.iter().for_each(Thread::unpark));
    // The calling thread may be inside a call that has called `exit`.
    let own = usize::from(OWN.get() > 0);
    let deadline = Instant::now() + MAX_WAIT;
    let queues = queues_of_this_process();
    let is_done = || {
        let busy = queues.iter().any(|queue| !queue.is_idle());
        INSIDE.load(Ordering::SeqCst) <= own && !busy
    };
    while !is_done() && Instant::now() < deadline {
        sleep(Duration::from_micros(100));
    }
    // A drop could wait for work, or take a driver down.
    std::mem::forget(queues);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsInDrop;

    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            panic!("the owner's drop");
        }
    }

    #[test]
    fn a_panic_of_an_owners_drop_does_not_end_the_thread() {
        TeardownGuard::drop_owner(PanicsInDrop);
    }
}
