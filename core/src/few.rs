//! Short lists in place.
#![allow(unsafe_code, reason = "has places that nothing was written to yet")]

use std::mem::MaybeUninit;
use std::ops::Deref;

/// As many as it has places for, on the stack: without a heap to fall back to there is nothing to be asked at each turn, and
/// nothing to be dropped.
pub(crate) struct Few<T, const N: usize> {
    /// The first `count` are written.
    places: [MaybeUninit<T>; N],
    count: usize,
}

impl<T: Copy, const N: usize> Few<T, N> {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self {
            places: [const { MaybeUninit::uninit() }; N],
            count: 0,
        }
    }

    /// False if there is no place for it.
    #[inline]
    pub(crate) const fn push(&mut self, item: T) -> bool {
        let found = self.count < N;
        if found {
            self.places[self.count].write(item);
            self.count += 1;
        }
        found
    }
}

impl<T: Copy, const N: usize> Deref for Few<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: `push` counts a place only after it has written it, and `count` is never above `N`. A `MaybeUninit<T>` is
        // laid out as a `T`, and the slice borrows `self`.
        unsafe { std::slice::from_raw_parts(self.places.as_ptr().cast(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_what_was_pushed_and_no_more_than_it_has_places() {
        let mut few = Few::<u8, 2>::new();
        assert!(few.is_empty());
        assert!(few.push(1) && few.push(2) && !few.push(3));
        assert_eq!(*few, [1, 2]);
    }
}
