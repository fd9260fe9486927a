//! The held submissions of one queue. There may be very many, so an element is small.

use std::collections::VecDeque;
use std::sync::Arc;

use super::work::Work;
use crate::driver::enqueue::Enqueue;
use crate::driver::keep::Keep;
use crate::held::{Edges, RelayEntry};

/// A submission that is held.
pub(super) struct HeldSubmission<E: Enqueue> {
    pub(super) number: u64,
    /// What it waits for and claims. `None` once it is skipped.
    pub(super) edges: Option<Arc<Edges>>,
    pub(super) work: Work<E>,
    /// The entry of each signal of the host in the graph.
    pub(super) relays: Vec<RelayEntry>,
}

/// The held submissions of one queue, in order. Part of the queue's state, under its lock.
pub(super) struct HeldList<E: Enqueue>(VecDeque<HeldSubmission<E>>);

impl<E: Enqueue> Default for HeldList<E> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<E: Enqueue> HeldList<E> {
    pub(super) fn push_back(&mut self, held: HeldSubmission<E>) {
        self.0.push_back(held);
    }

    pub(super) fn push_front(&mut self, held: HeldSubmission<E>) {
        self.0.push_front(held);
    }

    pub(super) fn pop_front(&mut self) -> Option<HeldSubmission<E>> {
        self.0.pop_front()
    }

    /// The number of held submissions.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// True if nothing is held.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first submission.
    pub(super) fn first(&self) -> Option<&HeldSubmission<E>> {
        self.0.front()
    }

    /// Submission `number`, if it is held.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut HeldSubmission<E>> {
        let index = number.checked_sub(self.first()?.number)?;
        self.0.get_mut(usize::try_from(index).ok()?)
    }
}

impl<E: Enqueue> HeldSubmission<E> {
    /// What is left of a submission that will not run.
    ///
    /// That is its number, and objects that the driver may still use.
    pub(super) fn skipped(number: u64, keep: Keep) -> Self {
        Self {
            number,
            edges: None,
            work: Work::Skipped(Box::new(keep)),
            relays: Vec::new(),
        }
    }
}
