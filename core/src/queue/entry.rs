//! One held submission. There may be very many, so only what most of them have stands in a row.

use std::collections::VecDeque;
use std::sync::Arc;

use smallbox::{SmallBox, smallbox};

use super::graph_entries::GraphEntries;
use super::hold::{Awaited, State, Taken};
use crate::base::error::{Error, Result};
use crate::base::once::{MEDIUM, Medium, Small, TINY, Tiny};
use crate::driver::enqueue::Enqueue;
use crate::driver::keep::Keep;
use crate::fence::Fence;
use crate::held::{Lists, OwnedClaim, QueueSlot};
use crate::timeline::point::KeptPoint;

/// A held submission in the hands of who judges it or lets it go.
pub(super) struct Entry<'l, E: Enqueue> {
    pub(super) number: u64,
    /// The graph has copies if it has the submission still. None if they are empty.
    pub(super) lists: Option<Box<Lists>>,
    pub(super) job: Job<E>,
    pub(super) entries: GraphEntries<'l>,
}

impl<E: Enqueue> Entry<'_, E> {
    /// The number of a skipped submission is all that is left of it.
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

/// What a submission waits for, and what it has claimed.
pub(super) fn parts(lists: &Option<Box<Lists>>) -> (&[KeptPoint], &[OwnedClaim]) {
    lists
        .as_ref()
        .map_or((&[], &[]), |lists| (&lists.waits, &lists.claims))
}

/// Work that is recorded later, once.
pub(super) trait Work<E: Enqueue>: Send {
    /// Records it, or does nothing if that is done. Errors are boxed: what has none is returned in a register.
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<(), Box<Error>>;

    /// Moves it into the row of what is held. To be used at once: see [`State::in_row`].
    fn put_in_row(&mut self, state: &mut State<E>) -> Tiny<dyn Work<E>>;

    /// Drops what has not been recorded.
    fn discard(&mut self) {}

    /// If this only stands for work: where that is.
    fn apart(&self) -> Option<Apart> {
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

    fn put_in_row(&mut self, state: &mut State<E>) -> Tiny<dyn Work<E>> {
        state.in_row(self.take())
    }

    fn discard(&mut self) {
        *self = None;
    }
}

impl<E: Enqueue> Work<E> for Apart {
    fn record(&mut self, _: &mut E::Recorder<'_>) -> Result<(), Box<Error>> {
        Ok(())
    }

    fn put_in_row(&mut self, _: &mut State<E>) -> Tiny<dyn Work<E>> {
        smallbox!(*self)
    }

    fn apart(&self) -> Option<Apart> {
        Some(*self)
    }
}

/// Writes a fence's time. What is held has references of its own, what goes at once needs none.
pub(super) struct Write<'f, E: Enqueue> {
    pub(super) stamp: &'f Arc<E::Stamp>,
    pub(super) fence: &'f Fence,
}

impl<E: Enqueue> Write<'_, E> {
    /// The same for later. If the record is held, nobody is left to take an error but who asks the fence for its time.
    pub(super) fn kept(
        &self,
    ) -> impl for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static + use<E>
    {
        let (written, told) = (self.stamp.clone(), self.fence.clone());
        move |recorder| {
            let result = E::write_stamp(recorder, &written);
            if let Err(error) = &result {
                told.lose(written, error.clone());
            }
            result
        }
    }
}

impl<E: Enqueue> Work<E> for Write<'_, E> {
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<(), Box<Error>> {
        E::write_stamp(recorder, self.stamp).map_err(Box::new)
    }

    fn put_in_row(&mut self, state: &mut State<E>) -> Tiny<dyn Work<E>> {
        state.in_row(Some(self.kept()))
    }
}

/// Where the work is that captures more than its place in the row has budget for.
#[derive(Clone, Copy)]
pub(super) enum Apart {
    Medium(u64),
    Large(u64),
}

/// What the row has of a submission: its work, or none where it is skipped, or where it is the first and the state's
/// `front` says what to do.
pub(super) type InRow<E> = Option<Tiny<dyn Work<E>>>;

/// Work that has been taken out.
pub(super) type LargeWork<E> = Small<dyn Work<E>>;

pub(super) enum Job<E: Enqueue> {
    /// Not recorded yet, and captures little.
    Tiny(Tiny<dyn Work<E>>),
    /// Not recorded yet: its place in the state's `apart`.
    Apart(Apart),
    /// Recorded; the driver's queue was locked.
    Prepared(Box<(E::Prepared, Keep)>),
    /// Skipped; its number goes to the driver once there is budget, with what the driver may use of it.
    Pass(Option<Box<Keep>>),
}

impl<E: Enqueue> Job<E> {
    pub(super) fn from_row(in_row: InRow<E>) -> Self {
        match in_row {
            Some(work) => match work.apart() {
                Some(apart) => Self::Apart(apart),
                None => Self::Tiny(work),
            },
            None => Self::Pass(None),
        }
    }
}

/// What a skipped submission takes with it.
pub(super) fn kept(keep: Keep) -> Option<Box<Keep>> {
    let something = !keep.is_empty() || keep.units() > 0;
    something.then(|| Box::new(keep))
}

/// What is known of the first in the row, once it has been looked at or put back.
pub(super) struct Front<E: Enqueue> {
    /// The submission's number; 0 if nothing is known.
    number: u64,
    pub(super) lists: Option<Box<Lists>>,
    /// Where it is not in the row.
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

/// The work that is too large for the row, in the row's order.
pub(super) struct Works<E: Enqueue> {
    medium: InOrder<Medium<dyn Work<E>>>,
    large: InOrder<LargeWork<E>>,
}

struct InOrder<T> {
    /// The place of the first.
    first: u64,
    /// Taken out, but for what is in front of it, where one is skipped before its turn.
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
    /// Takes out what stands at a place. The caller drops it without the lock.
    pub(super) fn take(&mut self, at: Apart) -> Option<LargeWork<E>> {
        match at {
            Apart::Medium(at) => self.medium.take(at).map(SmallBox::resize),
            Apart::Large(at) => self.large.take(at),
        }
    }
}

impl<E: Enqueue> State<E> {
    /// Fills the empty `lists` with what a submission waits for and has claimed.
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

    /// What stands for `work` in the row. To be used at once: larger work stands in the row's order.
    fn in_row<W: Work<E> + 'static>(&mut self, work: W) -> Tiny<dyn Work<E>> {
        let size = size_of::<W>();
        if size <= TINY {
            return smallbox!(work);
        }
        smallbox!(if size <= MEDIUM {
            Apart::Medium(self.apart.medium.add(smallbox!(work)))
        } else {
            Apart::Large(self.apart.large.add(smallbox!(work)))
        })
    }

    /// Keeps a submission behind all others.
    pub(super) fn push_back(
        &mut self,
        number: u64,
        work: &mut dyn Work<E>,
        entries: GraphEntries<'_>,
    ) {
        let work = work.put_in_row(self);
        if self.held.is_empty() {
            self.first = number;
        }
        self.held.push_back(Some(work));
        self.stay(number, entries);
    }

    /// Puts a submission before all others.
    pub(super) fn push_front(&mut self, entry: Entry<'_, E>) {
        let Entry {
            number,
            lists,
            job,
            entries,
        } = entry;
        let (in_row, job) = match job {
            Job::Tiny(work) => (Some(work), None),
            Job::Apart(apart) => {
                let work: Tiny<dyn Work<E>> = smallbox!(apart);
                (Some(work), None)
            }
            job => (None, Some(job)),
        };
        self.first = number;
        self.held.push_front(in_row);
        self.front = Front { number, lists, job };
        self.stay(number, entries);
    }

    /// The places of a submission that goes on being held.
    fn stay(&mut self, number: u64, entries: GraphEntries<'_>) {
        if let Some(entry) = entries.entry {
            entry.stay();
        }
        // After those of all that came before: mostly all others.
        if entries.relayed.is_empty() {
            return;
        }
        let behind = self.relayed.partition_point(|&(other, _)| other <= number);
        for (relay, at) in entries.relayed.into_iter().zip(behind..) {
            self.relayed.insert(at, (number, relay));
        }
    }

    /// The number of the first, if anything is held.
    pub(super) fn first(&self) -> Option<u64> {
        (!self.held.is_empty()).then_some(self.first)
    }

    /// Learns what the first waits for and claims, if that is not known: see the state's `front`.
    pub(super) fn look_at_front(&mut self, slot: &QueueSlot) {
        if self.front.number != self.first {
            self.front.number = self.first;
            let mut lists = self.spare.take().unwrap_or_default();
            slot.look(self.first, &mut lists);
            self.front.lists = Some(lists);
        }
    }

    /// True if the first has not been skipped, and nothing is known of it but what stands in the row and the graph.
    pub(super) fn is_front_in_row(&self) -> bool {
        self.front.number != self.first && matches!(self.held.front(), Some(Some(_)))
    }

    /// True if the first has been recorded.
    pub(super) fn is_front_prepared(&self) -> bool {
        let known = self.first() == Some(self.front.number);
        known && matches!(self.front.job, Some(Job::Prepared(_)))
    }

    /// Takes out the first, which has been looked at or put back.
    pub(super) fn pop_front<'l>(&mut self, slot: &'l QueueSlot) -> Option<Entry<'l, E>> {
        let in_row = self.held.pop_front()?;
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
            job: job.unwrap_or_else(|| Job::from_row(in_row)),
            entries: GraphEntries {
                entry: Some(slot.entry(number)),
                relayed,
            },
        })
    }
}
