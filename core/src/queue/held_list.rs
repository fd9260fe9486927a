//! The list of a queue's held submissions. It may be very long, so its elements are small.

use std::collections::VecDeque;

use smallbox::smallbox;

use super::entry::{Entry, Job};
use super::graph_entries::GraphEntries;
use super::waits_and_claims::parts;
use super::work::{InlineWork, LargeWork, OutOfLine, Work, Works};
use crate::base::stored_closure::Inline2;
use crate::driver::enqueue::Enqueue;
use crate::held::{Lists, OwnedClaim, QueueSlot, RelayEntry};
use crate::timeline::point::KeptPoint;

/// The held submissions of one queue, in order. Part of the queue's state, under its lock.
pub(super) struct HeldList<E: Enqueue> {
    /// The work of each submission.
    works: VecDeque<InlineWork<E>>,
    /// The number of the first submission.
    first: u64,
    front: First<E>,
    /// The work of submissions whose closures are not small.
    out_of_line: Works<E>,
    /// The graph entries of host signals, by submission number.
    relayed: VecDeque<(u64, RelayEntry)>,
    /// Empty lists with capacity, for a submission that leaves the graph.
    spare: Option<Box<Lists>>,
}

impl<E: Enqueue> Default for HeldList<E> {
    fn default() -> Self {
        Self {
            works: VecDeque::new(),
            first: 0,
            front: First::default(),
            out_of_line: Works::default(),
            relayed: VecDeque::new(),
            spare: None,
        }
    }
}

/// What [`HeldList::take_work`] takes out. The caller drops it without the lock.
pub(super) struct SkippedWork<E: Enqueue> {
    pub(super) inline: InlineWork<E>,
    pub(super) out_of_line: Option<LargeWork<E>>,
    pub(super) relayed: Vec<RelayEntry>,
}

impl<E: Enqueue> HeldList<E> {
    /// Adds a submission after all others.
    pub(super) fn push_back(
        &mut self,
        number: u64,
        work: &mut dyn Work<E>,
        entries: GraphEntries<'_>,
    ) {
        let work = work.store(&mut self.out_of_line);
        if self.works.is_empty() {
            self.first = number;
        }
        self.works.push_back(Some(work));
        self.stay(number, entries);
    }

    /// Puts a submission back before all others.
    pub(super) fn push_front(&mut self, entry: Entry<'_, E>) {
        let Entry {
            number,
            lists,
            job,
            entries,
        } = entry;
        let (inline, job) = match job {
            Job::Tiny(work) => (Some(work), None),
            Job::OutOfLine(at) => {
                let work: Inline2<dyn Work<E>> = smallbox!(at);
                (Some(work), None)
            }
            job => (None, Some(job)),
        };
        self.first = number;
        self.works.push_front(inline);
        self.front = First { number, lists, job };
        self.stay(number, entries);
    }

    /// Keeps the graph entries of a submission that stays held.
    fn stay(&mut self, number: u64, entries: GraphEntries<'_>) {
        if let Some(entry) = entries.entry {
            entry.stay();
        }
        // After the entries of all earlier submissions, which are usually all others.
        if entries.relayed.is_empty() {
            return;
        }
        let after = self.relayed.partition_point(|&(other, _)| other <= number);
        for (relay, at) in entries.relayed.into_iter().zip(after..) {
            self.relayed.insert(at, (number, relay));
        }
    }

    /// The number of held submissions.
    pub(super) fn len(&self) -> usize {
        self.works.len()
    }

    /// True if nothing is held.
    pub(super) fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    /// True if submission `number` is held.
    pub(super) fn contains(&self, number: u64) -> bool {
        self.index(number).is_some()
    }

    /// True if submission `number` is held with its work in this list.
    pub(super) fn has_work(&self, number: u64) -> bool {
        let index = self.index(number);
        index.is_some_and(|index| self.works[index].is_some())
    }

    fn index(&self, number: u64) -> Option<usize> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (index < self.works.len()).then_some(index)
    }

    /// Takes the work of a submission that will be skipped. Its number stays in the list.
    pub(super) fn take_work(&mut self, number: u64) -> SkippedWork<E> {
        let inline = self
            .index(number)
            .and_then(|index| self.works[index].take());
        let at = inline.as_ref().and_then(|work| work.out_of_line());
        let from = self.relayed.partition_point(|&(other, _)| other < number);
        let upto = self.relayed.partition_point(|&(other, _)| other <= number);
        let relayed = self.relayed.drain(from..upto);
        SkippedWork {
            relayed: relayed.map(|(_, relay)| relay).collect(),
            out_of_line: at.and_then(|at| self.out_of_line.take(at)),
            inline,
        }
    }

    /// The storage of work that is not small. What is stored must be added next.
    pub(super) const fn out_of_line(&mut self) -> &mut Works<E> {
        &mut self.out_of_line
    }

    /// Takes work that is stored out of line. The caller drops it without the lock.
    pub(super) fn take_out_of_line(&mut self, at: OutOfLine) -> Option<LargeWork<E>> {
        self.out_of_line.take(at)
    }

    /// Empty lists, with capacity if there are some to reuse.
    pub(super) fn empty_lists(&mut self) -> Box<Lists> {
        self.spare.take().unwrap_or_default()
    }

    /// Keeps empty lists for [`HeldList::empty_lists`].
    pub(super) fn recycle(&mut self, lists: Box<Lists>) {
        self.spare = Some(lists);
    }

    /// The number of the first held submission.
    pub(super) fn first(&self) -> Option<u64> {
        (!self.works.is_empty()).then_some(self.first)
    }

    /// The waits and claims of the first submission, which are copied from the graph at first use.
    pub(super) fn front_lists(&mut self, slot: &QueueSlot) -> (&[KeptPoint], &[OwnedClaim]) {
        if self.front.number != self.first {
            self.front.number = self.first;
            let mut lists = self.empty_lists();
            slot.copy_lists(self.first, &mut lists);
            self.front.lists = Some(lists);
        }
        parts(&self.front.lists)
    }

    /// True if the first submission was neither skipped, nor checked, nor put back.
    pub(super) fn is_front_untouched(&self) -> bool {
        self.front.number != self.first && matches!(self.works.front(), Some(Some(_)))
    }

    /// True if the first submission has been recorded.
    pub(super) fn is_front_recorded(&self) -> bool {
        let known = self.first() == Some(self.front.number);
        known && matches!(self.front.job, Some(Job::Recorded(_)))
    }

    /// Removes the first submission. It must have been checked or put back.
    pub(super) fn pop_front<'l>(&mut self, slot: &'l QueueSlot) -> Option<Entry<'l, E>> {
        let inline = self.works.pop_front()?;
        let number = self.first;
        self.first += 1;
        let First { lists, job, .. } = std::mem::take(&mut self.front);
        let mut relayed = Vec::new();
        while let Some((other, _)) = self.relayed.front()
            && *other <= number
        {
            relayed.extend(self.relayed.pop_front().map(|(_, relay)| relay));
        }
        Some(Entry {
            number,
            lists,
            job: job.unwrap_or_else(|| Job::from_inline(inline)),
            entries: GraphEntries {
                entry: Some(slot.entry(number)),
                relayed,
            },
        })
    }
}

/// The state of the first held submission, once it has been checked or put back.
struct First<E: Enqueue> {
    /// The submission's number; 0 if there is no such state.
    number: u64,
    lists: Option<Box<Lists>>,
    /// The job, if it is not in the list of held submissions.
    job: Option<Job<E>>,
}

impl<E: Enqueue> Default for First<E> {
    fn default() -> Self {
        Self {
            number: 0,
            lists: None,
            job: None,
        }
    }
}
