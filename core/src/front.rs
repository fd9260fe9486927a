//! What stands first in a list, to be read without the list's lock.

use std::fmt;

use crate::sync::{AtomicU64, Ordering, fence};

/// A word for what stands first in a list that is under a lock: for a backend that asks its driver about that alone, as
/// mostly nothing has happened, and then needs no lock to say so.
///
/// Whoever changes the list [shows](Front::show) what stands first, with the lock. Whoever asks [looks](Front::look), asks,
/// and looks whether it is [still](Front::is_still) the same. What the word stands for must outlive the list, since it may be
/// taken out, and used for something else, while he asks.
pub struct Front {
    what: AtomicU64,
    /// How often that has changed; written after it.
    changes: AtomicU64,
}

/// What stood first when somebody looked.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    what: u64,
    changes: u64,
}

impl Look {
    /// The word.
    #[must_use]
    #[inline]
    pub const fn what(self) -> u64 {
        self.what
    }
}

impl Front {
    /// Nothing stands there: that is 0.
    #[must_use]
    pub fn new() -> Self {
        Self {
            what: AtomicU64::new(0),
            changes: AtomicU64::new(0),
        }
    }

    /// Something else stands first now. With the list's lock. What follows from the change for those who ask (that what stood
    /// there before has come) is to be seen before this, and what stood there is not used for anything else before.
    #[inline]
    pub fn show(&self, what: u64) {
        // Only written with the lock.
        let changes = self.changes.load(Ordering::Relaxed);
        self.what.store(what, Ordering::Release);
        self.changes
            .store(changes.wrapping_add(1), Ordering::Release);
    }

    /// What stands first.
    #[inline]
    pub fn look(&self) -> Look {
        // In this order: what is found belongs to that many changes, or to one more.
        let changes = self.changes.load(Ordering::Acquire);
        let what = self.what.load(Ordering::Acquire);
        Look { what, changes }
    }

    /// True if nothing had changed when what was done since `look` was done; or one change was being made, and `look` has found
    /// what that puts there. With the list's lock: if `look` is what stands there, and has all the time.
    #[inline]
    pub fn is_still(&self, look: Look) -> bool {
        fence(Ordering::Acquire);
        self.changes.load(Ordering::Relaxed) == look.changes
    }
}

impl Default for Front {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Front({:#x})", self.look().what)
    }
}
