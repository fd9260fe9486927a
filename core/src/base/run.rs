//! The run queue: released work of one thread, which runs from the thread's outermost call.
//!
//! A signal that becomes pending can release a held queue. Its submission makes the next signal
//! pending, and so on for tens of thousands of steps. Nested calls would recurse once per step. So
//! the waking thread puts all that it wakes into its run queue, and its outermost call runs the
//! entries one after the other.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::error::{Error, Object, Result};
use crate::base::exiting::{DriverCalls, is_exiting};
use crate::base::sync::{caught, contain, per_thread};

/// Something that a timeline can wake: a parked thread, a queue of held submissions, a relay.
pub(crate) trait Wake: Send + Sync {
    /// Called at most once per registration. May run an application's work.
    ///
    /// The caller holds no lock of the engine. A [prompt](Wake::is_prompt) wake may come with the
    /// lock that orders host signals.
    fn wake(self: Arc<Self>);

    /// True if `wake` is short: it notifies a thread or a descriptor, or writes a page.
    ///
    /// It is then called at once, also if the waking thread defers other wakes. So a sleeping
    /// thread does not wait while other work is recorded.
    fn is_prompt(&self) -> bool {
        false
    }
}

/// Whether a call on this thread's stack will run the run queue.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Drain {
    /// No call will.
    None,
    /// A call will, and the run queue is empty.
    Empty,
    /// A call will, and the run queue may have entries.
    Loaded,
}

per_thread! { static DRAIN: Cell<Drain> = Cell::new(Drain::None) }
// The number of `ForeignWorkScope`s.
per_thread! { static FOREIGN_WORK: Cell<u32> = Cell::new(0) }
per_thread! { static READY: RefCell<VecDeque<Arc<dyn Wake>>> = RefCell::new(VecDeque::new()) }

/// Allocates the memory of [`READY`] that this thread would otherwise allocate at its first wake
/// (H1).
pub(crate) fn prepare_thread() {
    let _ = READY.try_with(|ready| ready.borrow_mut().reserve(16));
}

/// Makes the caller the one that drains the run queue. False if an outer call does so already.
#[inline]
fn begin_drain() -> bool {
    let begun = DRAIN.try_with(|drain| {
        let free = drain.get() == Drain::None;
        if free {
            drain.set(Drain::Empty);
        }
        free
    });
    matches!(begun, Ok(true))
}

/// True if an outer call on this thread runs what is woken now, after the present call.
pub(crate) fn are_wakes_deferred() -> bool {
    matches!(DRAIN.try_with(|drain| drain.get() != Drain::None), Ok(true))
}

/// Runs `woken` and all that they wake in turn.
///
/// If an outer call on this thread drains the run queue, that call runs them later.
#[inline]
pub(crate) fn wake_all(woken: impl IntoIterator<Item = Arc<dyn Wake>>) {
    let mut woken = woken.into_iter();
    // Usually there is none.
    if let Some(first) = woken.next() {
        wake_several(first, woken);
    }
}

fn wake_several(first: Arc<dyn Wake>, others: impl Iterator<Item = Arc<dyn Wake>>) {
    let mut queued = false;
    for wake in [first].into_iter().chain(others) {
        if wake.is_prompt() {
            wake.wake();
            continue;
        }
        let mut wake = Some(wake);
        let _ = READY.try_with(|ready| ready.borrow_mut().extend(wake.take()));
        match wake {
            None => queued = true,
            // The thread ends and its thread-local variables are gone, so nothing can be deferred.
            Some(wake) => run_contained(|| wake.wake()),
        }
    }
    if queued {
        if begin_drain() {
            drain();
        } else {
            let _ = DRAIN.try_with(|drain| drain.set(Drain::Loaded));
        }
    }
}

/// A guard that defers the wakes of this thread. They run when the outermost guard is dropped.
///
/// For callers that hold a queue's place in a driver: released work may submit to the same queue.
#[must_use]
pub(crate) struct DeferWakes {
    outermost: bool,
}

impl DeferWakes {
    #[inline]
    pub(crate) fn new() -> Self {
        let outermost = begin_drain();
        Self { outermost }
    }
}

impl Drop for DeferWakes {
    #[inline]
    fn drop(&mut self) {
        if !self.outermost {
            return;
        }
        let empty = DRAIN.try_with(|drain| {
            let empty = drain.get() == Drain::Empty;
            if empty {
                drain.set(Drain::None);
            }
            empty
        });
        if !matches!(empty, Ok(true)) {
            drain();
        }
    }
}

fn drain() {
    let calls = DriverCalls::begin();
    while let Ok(Some(next)) = READY.try_with(|ready| ready.borrow_mut().pop_front()) {
        if calls.is_none() || is_exiting() {
            // It could call a driver, and so could its drop.
            std::mem::forget(next);
            continue;
        }
        // A panic of this entry must not reach the next one.
        run_contained(|| next.wake());
    }
    let _ = DRAIN.try_with(|drain| drain.set(Drain::None));
}

/// Runs `action`, which may run or drop an application's objects, and contains its panics.
///
/// The panic hook reports a panic. It must not end a queue, a worker or the watching thread, or the
/// threads that wait for them. While `action` runs, [`must_defer_free`] is true.
pub(crate) fn run_contained(action: impl FnOnce()) {
    let _foreign_work = ForeignWorkScope::new();
    contain(action);
}

/// Runs `action`, which is code of the application, and returns the message of its panic.
pub(crate) fn catch_panic<T>(action: impl FnOnce() -> T) -> Result<T, String> {
    caught(action).map_err(panic_message)
}

/// Calls a backend for `object`. A panic becomes an [`Error::Native`] of `call`.
///
/// For calls that engine threads make, or that are made between two steps of the engine's state.
#[inline]
pub(crate) fn call_backend<T>(
    object: &Object,
    call: &'static str,
    action: impl FnOnce() -> Result<T>,
) -> Result<T> {
    caught(action).unwrap_or_else(|payload| {
        let name = format!("it panicked: {}", panic_message(payload));
        Err(Error::native(object, call, -1, name))
    })
}

/// The message of a caught panic. The payload is the application's, so its drop may panic, too.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned());
    let message = text
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a payload that is not text".into());
    run_contained(|| drop(payload));
    message
}

/// A guard while this thread runs or drops work that its caller may not know.
///
/// See [`must_defer_free`].
#[must_use]
pub(crate) struct ForeignWorkScope;

impl ForeignWorkScope {
    #[inline]
    pub(crate) fn new() -> Self {
        let _ = FOREIGN_WORK.try_with(|depth| depth.set(depth.get() + 1));
        Self
    }
}

impl Drop for ForeignWorkScope {
    #[inline]
    fn drop(&mut self) {
        let _ = FOREIGN_WORK.try_with(|depth| depth.set(depth.get() - 1));
    }
}

// The number of `DropScope`s.
per_thread! { static DROPS: Cell<u32> = Cell::new(0) }

/// The largest depth of nested drops of what finished submissions kept.
const MAX_DROP_DEPTH: u32 = 4;

/// A guard while this thread drops what finished submissions kept.
///
/// These objects are the application's, and their drop may submit. That submission may drop what
/// other finished submissions kept. [`DropScope::is_too_deep`] bounds the depth, so that the stack
/// does not overflow.
#[must_use]
pub(crate) struct DropScope;

impl DropScope {
    pub(crate) fn new() -> Self {
        let _ = DROPS.try_with(|depth| depth.set(depth.get() + 1));
        Self
    }

    /// True if this call must drop nothing more. An outer call or a later call does it.
    pub(crate) fn is_too_deep() -> bool {
        matches!(
            DROPS.try_with(|depth| depth.get() >= MAX_DROP_DEPTH),
            Ok(true)
        )
    }
}

impl Drop for DropScope {
    fn drop(&mut self) {
        let _ = DROPS.try_with(|depth| depth.set(depth.get() - 1));
    }
}

/// True if an object that is dropped on this thread now must not wait for the device.
///
/// True while the engine runs or drops objects on this thread that its caller may not know: objects
/// that finished submissions kept, and work that was just released. The engine does so inside a
/// call that may have nothing to do with them, and the device may stand still until that call
/// returns. A backend puts its object on a list then (deferred free), and a later call frees it.
#[must_use]
pub fn must_defer_free() -> bool {
    matches!(FOREIGN_WORK.try_with(|depth| depth.get() > 0), Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Link(usize, Arc<AtomicUsize>);
    impl Wake for Link {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::Relaxed);
            if self.0 > 0 {
                wake_all([Arc::new(Link(self.0 - 1, self.1.clone())) as Arc<dyn Wake>]);
            }
        }
    }

    #[test]
    fn a_chain_of_a_million_wakes_does_not_recurse() {
        let count = Arc::new(AtomicUsize::new(0));
        wake_all([Arc::new(Link(1_000_000, count.clone())) as Arc<dyn Wake>]);
        assert_eq!(count.load(Ordering::Relaxed), 1_000_001);
    }
}
