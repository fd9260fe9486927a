//! An allocator that can count: whoever measures allocations has it for the whole program, and it
//! counts only while that is measured.
//!
//! What it costs otherwise is one load of a word that nobody writes, and a branch that is never
//! taken: less than a hundredth of the eight nanoseconds that an allocation takes and giving it
//! back. [`counting`] says whether the program has it.

#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, which counts what Rust code allocates while somebody is [`counting`].
/// What drivers take for themselves does not come by here.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: syncline_bench::heap::Allocator = syncline_bench::heap::Allocator;
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Allocator;

/// How many are counting now.
static COUNTING: AtomicU64 = AtomicU64::new(0);

/// Allocations and reallocations, of all threads, while somebody was counting.
static COUNTED: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
fn note() {
    if COUNTING.load(Ordering::Relaxed) != 0 {
        count();
    }
}

#[cold]
fn count() {
    COUNTED.fetch_add(1, Ordering::Relaxed);
}

// SAFETY: everything is the system allocator's own, and counting touches no memory but two words
// that are always there.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller's promise.
        unsafe { System.realloc(old, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(old, layout) }
    }
}

/// Counts for as long as it lives.
struct While;

impl While {
    fn counting() -> Self {
        COUNTING.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for While {
    fn drop(&mut self) {
        COUNTING.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Calls `go` with something that tells how many allocations and reallocations there have been so
/// far, on all threads. `None` if this program has another allocator, so that nothing could be
/// counted.
pub fn counting<T>(go: impl FnOnce(&dyn Fn() -> u64) -> T) -> Option<T> {
    let _while = While::counting();
    let so_far = || COUNTED.load(Ordering::SeqCst);
    let before = so_far();
    drop(black_box(Box::new(black_box(0_u8))));
    (so_far() != before).then(|| go(&so_far))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Allocator = Allocator;

    /// Other tests allocate beside this one, so there may be more.
    #[test]
    fn each_way_to_allocate_is_counted_and_giving_back_is_not() {
        let some = counting(|so_far| {
            let before = so_far();
            let mut list: Vec<u64> = black_box(Vec::with_capacity(1));
            let zeroes = black_box(vec![0_u8; 4096]);
            list.push(1);
            list.reserve_exact(black_box(1000));
            drop((black_box(list), zeroes));
            so_far() - before
        });
        assert!(some >= Some(3), "{some:?}");
    }

    #[test]
    fn what_another_thread_allocates_is_counted() {
        let counted = counting(|so_far| {
            let before = so_far();
            let thread = std::thread::spawn(|| {
                for n in 0..1000 {
                    drop(black_box(Box::new(n)));
                }
            });
            assert!(thread.join().is_ok());
            so_far() - before
        });
        assert!(counted >= Some(1000), "{counted:?}");
    }
}
