//! Data of the calling thread: its stack of current contexts, and its number.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::code::{Answer, Code};
use crate::context::{CONTEXTS, Context};

/// The largest number of contexts that one thread can push.
const DEPTH: usize = 64;

static THREADS: AtomicU64 = AtomicU64::new(1);

// Nothing here has a destructor, so it works until the thread has ended. Applications call the
// driver from destructors of thread-local values.
std::thread_local! {
    static STACK: [Cell<usize>; DEPTH] = const { [const { Cell::new(0) }; DEPTH] };
    static USED: Cell<usize> = const { Cell::new(0) };
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// Returns the handle of the current context, or 0.
pub(crate) fn handle() -> usize {
    match USED.get() {
        0 => 0,
        used => STACK.with(|stack| stack[used - 1].get()),
    }
}

/// Returns the current context, which must be alive and have no error.
pub(crate) fn context() -> Answer<Arc<Context>> {
    let context = context_even_if_lost()?;
    context.check()?;
    Ok(context)
}

/// Returns the current context, which must be alive.
pub(crate) fn context_even_if_lost() -> Answer<Arc<Context>> {
    crate::device::devices()?;
    match handle() {
        0 => Err(Code::INVALID_CONTEXT),
        handle => CONTEXTS.get(handle).map_err(|_| Code::CONTEXT_IS_DESTROYED),
    }
}

pub(crate) fn push(handle: usize) -> Answer {
    let used = USED.get();
    if used == DEPTH {
        return Err(Code::INVALID_VALUE);
    }
    STACK.with(|stack| stack[used].set(handle));
    USED.set(used + 1);
    Ok(())
}

pub(crate) fn pop() -> Answer<usize> {
    match USED.get() {
        0 => Err(Code::INVALID_CONTEXT),
        used => {
            USED.set(used - 1);
            Ok(STACK.with(|stack| stack[used - 1].get()))
        }
    }
}

/// Replaces the current context. 0 pops it.
pub(crate) fn set(handle: usize) -> Answer {
    match (USED.get(), handle) {
        (0, 0) => Ok(()),
        (_, 0) => pop().map(|_| ()),
        (0, _) => push(handle),
        (used, _) => {
            STACK.with(|stack| stack[used - 1].set(handle));
            Ok(())
        }
    }
}

/// Returns a number that no other thread of this process has. Never 0.
pub(crate) fn thread() -> u64 {
    if NUMBER.get() == 0 {
        NUMBER.set(THREADS.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_none_pops_what_is_current() {
        assert_eq!(pop(), Err(Code::INVALID_CONTEXT));
        assert_eq!(set(0), Ok(()));
        assert_eq!(set(16), Ok(()));
        assert_eq!(push(32), Ok(()));
        assert_eq!(set(48), Ok(()));
        assert_eq!(handle(), 48);
        assert_eq!(set(0), Ok(()));
        assert_eq!(handle(), 16);
        assert_eq!(pop(), Ok(16));
        assert_eq!(handle(), 0);
    }

    #[test]
    fn a_stack_has_an_end() {
        for _ in 0..DEPTH {
            assert_eq!(push(16), Ok(()));
        }
        assert_eq!(push(16), Err(Code::INVALID_VALUE));
    }

    #[test]
    fn threads_have_numbers() {
        let here = thread();
        assert_eq!(here, thread());
        let there = std::thread::spawn(thread).join();
        assert!(there.is_ok_and(|there| there != here));
    }
}
