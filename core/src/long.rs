//! Lists that may become very long.

use std::collections::VecDeque;

/// Makes room for one more where there is none, and for some to come: an eighth more, not as many again as std's lists
/// do, since of what is outstanding there may be very many.
pub(crate) trait Grow {
    /// To be called before one is added.
    #[inline]
    fn grow(&mut self) {
        self.grow_by(1);
    }

    /// To be called before so many are added.
    fn grow_by(&mut self, many: usize);
}

const fn more(len: usize) -> usize {
    len / 8 + 4
}

impl<T> Grow for VecDeque<T> {
    #[inline]
    fn grow_by(&mut self, many: usize) {
        if self.capacity() - self.len() < many {
            self.reserve_exact(many.max(more(self.len())));
        }
    }
}

impl<T> Grow for Vec<T> {
    #[inline]
    fn grow_by(&mut self, many: usize) {
        if self.capacity() - self.len() < many {
            self.reserve_exact(many.max(more(self.len())));
        }
    }
}
