//! An allocator that can count allocations.
//!
//! A program that measures allocations installs it for its whole run. It counts only during
//! `counting`. Otherwise it costs one load of a word that is not written, and a branch: less than
//! a hundredth of the 8 ns of an allocation with its release.

#![allow(unsafe_code, reason = "an allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::side::{Outcome, Stop};

/// The system's allocator, which counts allocations of Rust code during `counting`.
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

/// Bytes that all threads have allocated during [`counting`], less those that they have freed.
static BYTES: AtomicI64 = AtomicI64::new(0);

#[inline(always)]
fn note(allocations: u64, more: usize, less: usize) {
    if COUNTING.load(Ordering::Relaxed) != 0 {
        count(allocations, more, less);
    }
}

#[cold]
fn count(allocations: u64, more: usize, less: usize) {
    COUNTED.fetch_add(allocations, Ordering::Relaxed);
    BYTES.fetch_add(more as i64 - less as i64, Ordering::Relaxed);
}

// SAFETY: the system's allocator does the work. Counting uses only static words.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), 0);
        // SAFETY: the caller promises it.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size(), 0);
        // SAFETY: the caller promises it.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size, layout.size());
        // SAFETY: the caller promises it.
        unsafe { System.realloc(old, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        note(0, 0, layout.size());
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
pub(crate) fn counting<T>(go: impl FnOnce(&dyn Fn() -> u64) -> T) -> Option<T> {
    let _while = While::counting();
    let so_far = || COUNTED.load(Ordering::SeqCst);
    let before = so_far();
    drop(black_box(Box::new(black_box(0_u8))));
    (so_far() != before).then(|| go(&so_far))
}

/// Calls `go`. Returns the bytes that all threads have allocated meanwhile and not freed.
///
/// A skip if this program has another allocator.
pub(crate) fn growth(go: impl FnOnce() -> Outcome<()>) -> Outcome<f64> {
    let counted = counting(|_| {
        let before = BYTES.load(Ordering::SeqCst);
        go().map(|()| (BYTES.load(Ordering::SeqCst) - before) as f64)
    });
    counted
        .ok_or_else(|| Stop::Skipped("this program has an allocator that does not count".into()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Allocator = Allocator;

    /// Other tests allocate beside this one, so there may be more.
    #[test]
    fn each_kind_of_allocation_of_each_thread_is_counted_and_releases_are_not() {
        let work = || {
            let mut list: Vec<u64> = black_box(Vec::with_capacity(1));
            let zeroes = black_box(vec![0_u8; 4096]);
            list.reserve_exact(black_box(1000));
            drop((black_box(list), zeroes));
        };
        let some = counting(|so_far| {
            let before = so_far();
            std::thread::scope(|scope| {
                for _ in 0..100 {
                    scope.spawn(work);
                }
            });
            so_far() - before
        });
        assert!(some >= Some(300), "{some:?}");
    }

    /// Other tests allocate and free beside this one, so it is a large block.
    #[test]
    fn bytes_that_are_freed_do_not_count() {
        const LARGE: usize = 1 << 28;
        let mut kept = Vec::<u8>::new();
        let grown = growth(|| {
            drop(black_box(Vec::<u8>::with_capacity(3 * LARGE)));
            kept.reserve_exact(LARGE);
            Ok(())
        });
        let expected = LARGE as f64;
        assert!(grown.is_ok_and(|grown| (grown - expected).abs() < expected / 2.0));
    }
}
