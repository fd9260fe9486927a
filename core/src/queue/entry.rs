//! Held submissions and the storage of their work. A queue may hold very many, so an entry is
//! small.

use std::collections::VecDeque;
use std::sync::Arc;

use smallbox::{SmallBox, smallbox};

use super::graph_entries::GraphEntries;
use super::hold::{Awaited, State, Taken};
use crate::base::error::{Error, Result};
use crate::base::stored_closure::{Inline2, Inline9, Inline16, MAX_INLINE_2, MAX_INLINE_9};
use crate::driver::enqueue::Enqueue;
use crate::driver::keep::Keep;
use crate::fence::Fence;
use crate::held::{Lists, OwnedClaim, QueueSlot};
use crate::timeline::point::KeptPoint;

/// A held submission while it is judged or released.
pub(super) struct Entry<'l, E: Enqueue> {
    pub(super) number: u64,
    /// The graph has copies if the submission is still in it. `None` if both lists are empty.
    pub(super) lists: Option<Box<Lists>>,
    pub(super) job: Job<E>,
    pub(super) entries: GraphEntries<'l>,
}

impl<E: Enqueue> Entry<'_, E> {
    /// A skipped submission, of which only the number is left.
    pub(super) const fn pass(
        number: u64,
        keep: Option<Box<Keep>>,
        entries: GraphEntries<'_>,
    ) -> Entry<'_, E> {
        Entry {
            number,
            lists: None,
            job: Job::Pass(keep),
            entries,
        }
    }
}

/// The waits and claims of a submission.
pub(super) fn parts(lists: &Option<Box<Lists>>) -> (&[KeptPoint], &[OwnedClaim]) {
    lists
        .as_ref()
        .map_or((&[], &[]), |lists| (&lists.waits, &lists.claims))
}

/// Work that is recorded later, once.
pub(super) trait Work<E: Enqueue>: Send {
    /// Records the work, or does nothing if it has been recorded.
    ///
    /// The error is boxed to return it in a register.
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<(), Box<Error>>;

    /// Moves the work into the queue's storage. The result must be added next: see
    /// [`State::store_inline`].
    fn store(&mut self, state: &mut State<E>) -> Inline2<dyn Work<E>>;

    /// Drops the work if it has not been recorded.
    fn discard(&mut self) {}

    /// The location of the work, if this only stands for it.
    fn out_of_line(&self) -> Option<OutOfLine> {
        None
    }
}

impl<E: Enqueue, W> Work<E> for Option<W>
where
    W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static,
{
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<(), Box<Error>> {
        match self.take() {
            Some(work) => work(recorder).map_err(Box::new),
            None => Ok(()),
        }
    }

    fn store(&mut self, state: &mut State<E>) -> Inline2<dyn Work<E>> {
        state.store_inline(self.take())
    }

    fn discard(&mut self) {
        *self = None;
    }
}

impl<E: Enqueue> Work<E> for OutOfLine {
    fn record(&mut self, _: &mut E::Recorder<'_>) -> Result<(), Box<Error>> {
        Ok(())
    }

    fn store(&mut self, _: &mut State<E>) -> Inline2<dyn Work<E>> {
        smallbox!(*self)
    }

    fn out_of_line(&self) -> Option<OutOfLine> {
        Some(*self)
    }
}

/// Writes a fence's time. A held record has references of its own; other records borrow.
pub(super) struct Write<'f, E: Enqueue> {
    pub(super) stamp: &'f Arc<E::Stamp>,
    pub(super) fence: &'f Fence,
}

impl<E: Enqueue> Write<'_, E> {
    /// The same work with its own references. An error of a held record is stored in the fence.
    pub(super) fn kept(
        &self,
    ) -> impl for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static + use<E>
    {
        let (written, fence) = (self.stamp.clone(), self.fence.clone());
        move |recorder| {
            let result = E::write_stamp(recorder, &written);
            if let Err(error) = &result {
                fence.note_unwritten(written, error.clone());
            }
            result
        }
    }
}

impl<E: Enqueue> Work<E> for Write<'_, E> {
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<(), Box<Error>> {
        E::write_stamp(recorder, self.stamp).map_err(Box::new)
    }

    fn store(&mut self, state: &mut State<E>) -> Inline2<dyn Work<E>> {
        state.store_inline(Some(self.kept()))
    }
}

/// The location of work that is too large for [`InlineWork`], in the queue's [`Works`].
#[derive(Clone, Copy)]
pub(super) enum OutOfLine {
    Medium(u64),
    Large(u64),
}

/// The work of a held submission.
///
/// `None` if it is skipped, or if it is the first one and [`Front`] has its job.
pub(super) type InlineWork<E> = Option<Inline2<dyn Work<E>>>;

/// Work that has been taken out of the storage.
pub(super) type LargeWork<E> = Inline16<dyn Work<E>>;

pub(super) enum Job<E: Enqueue> {
    /// Not recorded yet, with few captures.
    Tiny(Inline2<dyn Work<E>>),
    /// Not recorded yet, stored in the state's `out_of_line`.
    OutOfLine(OutOfLine),
    /// Recorded, but the driver's queue was locked.
    Prepared(Box<(E::Prepared, Keep)>),
    /// Skipped. Its number goes to the driver with the objects that the driver may use of it.
    Pass(Option<Box<Keep>>),
}

impl<E: Enqueue> Job<E> {
    pub(super) fn from_inline(inline: InlineWork<E>) -> Self {
        match inline {
            Some(work) => match work.out_of_line() {
                Some(at) => Self::OutOfLine(at),
                None => Self::Tiny(work),
            },
            None => Self::Pass(None),
        }
    }
}

/// What a skipped submission keeps, if anything.
pub(super) fn kept(keep: Keep) -> Option<Box<Keep>> {
    let something = !keep.is_empty() || keep.units() > 0;
    something.then(|| Box::new(keep))
}

/// The state of the first held submission, once it has been checked or put back.
pub(super) struct Front<E: Enqueue> {
    /// The submission's number; 0 if there is no such state.
    number: u64,
    pub(super) lists: Option<Box<Lists>>,
    /// The job, if it is not in the list of held submissions.
    job: Option<Job<E>>,
}

impl<E: Enqueue> Default for Front<E> {
    fn default() -> Self {
        Self {
            number: 0,
            lists: None,
            job: None,
        }
    }
}

/// The work that is too large for the list of held submissions, in the same order.
pub(super) struct Works<E: Enqueue> {
    medium: InOrder<Inline9<dyn Work<E>>>,
    large: InOrder<LargeWork<E>>,
}

struct InOrder<T> {
    /// The number of the first element.
    first: u64,
    /// An element is `None` if it was taken out before those in front of it, by a skipped
    /// submission.
    works: VecDeque<Option<T>>,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self {
            first: 0,
            works: VecDeque::new(),
        }
    }
}

impl<T> InOrder<T> {
    fn add(&mut self, work: T) -> u64 {
        self.works.push_back(Some(work));
        self.first + self.works.len() as u64 - 1
    }

    fn take(&mut self, at: u64) -> Option<T> {
        let index = at.checked_sub(self.first)?;
        let work = self.works.get_mut(index as usize)?.take();
        while let Some(None) = self.works.front() {
            self.works.pop_front();
            self.first += 1;
        }
        work
    }
}

impl<E: Enqueue> Default for Works<E> {
    fn default() -> Self {
        Self {
            medium: InOrder::default(),
            large: InOrder::default(),
        }
    }
}

impl<E: Enqueue> Works<E> {
    /// Takes out work. The caller drops it without the lock.
    pub(super) fn take(&mut self, at: OutOfLine) -> Option<LargeWork<E>> {
        match at {
            OutOfLine::Medium(at) => self.medium.take(at).map(SmallBox::resize),
            OutOfLine::Large(at) => self.large.take(at),
        }
    }
}

impl<E: Enqueue> State<E> {
    /// Fills the empty `lists` with the waits and claims of a submission.
    pub(super) fn fill(lists: &mut Lists, waits: &[Awaited<'_>], claims: &[Taken<'_>]) {
        for wait in waits {
            lists.waits.push(wait.keep());
        }
        for by_host in [false, true] {
            for claim in claims {
                if claim.port.is_none() == by_host {
                    lists.claims.push(claim.keep());
                }
            }
        }
    }

    /// Stores `work` inline or out of line.
    ///
    /// Out-of-line work is in submission order, so add the result next.
    fn store_inline<W: Work<E> + 'static>(&mut self, work: W) -> Inline2<dyn Work<E>> {
        let size = size_of::<W>();
        if size <= MAX_INLINE_2 {
            return smallbox!(work);
        }
        smallbox!(if size <= MAX_INLINE_9 {
            OutOfLine::Medium(self.out_of_line.medium.add(smallbox!(work)))
        } else {
            OutOfLine::Large(self.out_of_line.large.add(smallbox!(work)))
        })
    }

    /// Adds a submission after all others.
    pub(super) fn push_back(
        &mut self,
        number: u64,
        work: &mut dyn Work<E>,
        entries: GraphEntries<'_>,
    ) {
        let work = work.store(self);
        if self.held.is_empty() {
            self.first = number;
        }
        self.held.push_back(Some(work));
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
        self.held.push_front(inline);
        self.front = Front { number, lists, job };
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

    /// The number of the first held submission.
    pub(super) fn first(&self) -> Option<u64> {
        (!self.held.is_empty()).then_some(self.first)
    }

    /// Copies the lists of the first submission from the graph to `front`, unless they are there.
    pub(super) fn copy_front_lists(&mut self, slot: &QueueSlot) {
        if self.front.number != self.first {
            self.front.number = self.first;
            let mut lists = self.spare.take().unwrap_or_default();
            slot.copy_lists(self.first, &mut lists);
            self.front.lists = Some(lists);
        }
    }

    /// True if the first submission was neither skipped, nor checked, nor put back.
    pub(super) fn is_front_untouched(&self) -> bool {
        self.front.number != self.first && matches!(self.held.front(), Some(Some(_)))
    }

    /// True if the first submission has been recorded.
    pub(super) fn is_front_prepared(&self) -> bool {
        let known = self.first() == Some(self.front.number);
        known && matches!(self.front.job, Some(Job::Prepared(_)))
    }

    /// Removes the first submission. It must have been checked or put back.
    pub(super) fn pop_front<'l>(&mut self, slot: &'l QueueSlot) -> Option<Entry<'l, E>> {
        let inline = self.held.pop_front()?;
        let number = self.first;
        self.first += 1;
        let Front { lists, job, .. } = std::mem::take(&mut self.front);
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
