//! The held submissions of one queue. There may be very many, so an element is small.

use std::collections::VecDeque;
use std::sync::Arc;

use super::work::{Nothing, Work};
use crate::driver::enqueue::Enqueue;
use crate::held::Edges;

/// A submission that is held. Its number follows from its place in the list.
pub(super) struct HeldSubmission<E: Enqueue> {
    /// What it waits for and claims. `None` once it is skipped.
    pub(super) edges: Option<Arc<Edges>>,
    pub(super) work: Work<E>,
}

/// The held submissions of one queue, in order. Part of the queue's state, under its lock.
pub(super) struct HeldList<E: Enqueue> {
    /// The number of the first submission, if there is one.
    first: u64,
    list: VecDeque<HeldSubmission<E>>,
}

impl<E: Enqueue> Default for HeldList<E> {
    fn default() -> Self {
        Self {
            first: 0,
            list: VecDeque::new(),
        }
    }
}

impl<E: Enqueue> HeldList<E> {
    /// Adds submission `number` behind all others.
    pub(super) fn push_back(&mut self, number: u64, held: HeldSubmission<E>) {
        if self.is_empty() {
            self.first = number;
        }
        debug_assert_eq!(number, self.first + self.len() as u64);
        self.list.push_back(held);
    }

    /// Adds submission `number` before all others.
    pub(super) fn push_front(&mut self, number: u64, held: HeldSubmission<E>) {
        debug_assert!(self.is_empty() || number + 1 == self.first);
        self.first = number;
        self.list.push_front(held);
    }

    /// Takes out the first submission, with its number.
    pub(super) fn pop_front(&mut self) -> Option<(u64, HeldSubmission<E>)> {
        let held = self.list.pop_front()?;
        let number = self.first;
        self.first += 1;
        Some((number, held))
    }

    /// The number of held submissions.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// True if nothing is held.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The first submission, with its number.
    pub(super) fn first(&self) -> Option<(u64, &HeldSubmission<E>)> {
        Some((self.first, self.list.front()?))
    }

    /// Submission `number`, if it is held.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut HeldSubmission<E>> {
        let index = number.checked_sub(self.first)?;
        self.list.get_mut(usize::try_from(index).ok()?)
    }
}

impl<E: Enqueue> HeldSubmission<E> {
    /// What is left of a submission that will not run: its number, for the driver.
    pub(super) fn skipped() -> Self {
        Self {
            edges: None,
            work: Work::ToRecord(Box::new(Nothing)),
        }
    }
}
