//! An allocator that can count allocations.
//!
//! A program that measures allocations installs it for its whole run. It counts only during
//! [`counting`]. Otherwise it costs one load of a word that is not written, and a branch: less than
//! a hundredth of the 8 ns of an allocation with its release.

#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

/// The system's allocator, which counts allocations of Rust code during [`counting`].
///
/// Allocations of drivers do not go through it.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: syncline_bench::heap::Allocator = syncline_bench::heap::Allocator;
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Allocator;

/// Number of calls of [`counting`] in progress.
static COUNTING: AtomicU64 = AtomicU64::new(0);

/// Allocations and reallocations of all threads during [`counting`].
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

// SAFETY: the system's allocator does the work. Counting uses only two static words.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller promises it.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller promises it.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: the caller promises it.
        unsafe { System.realloc(old, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller promises it.
        unsafe { System.dealloc(old, layout) }
    }
}

/// Enables counting while it lives.
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

/// Calls `go` with a function that returns the number of allocations so far, on all threads.
///
/// Reallocations count as well. Returns `None` if this program has another allocator.
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
    fn each_kind_of_allocation_is_counted_and_releases_are_not() {
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
    fn allocations_of_other_threads_are_counted() {
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
