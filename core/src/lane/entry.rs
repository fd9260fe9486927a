//! One held submission. There may be very many, so what only few have stands apart.

use std::collections::VecDeque;
use std::sync::Arc;

use smallbox::smallbox;

use super::hold::{Awaited, State, Taken};
use super::places::Places;
use crate::backend::{Enqueue, Keep};
use crate::error::Result;
use crate::graph::{Lists, OwnedClaim};
use crate::once::{Small, TINY, Tiny};
use crate::point::KeptPoint;

/// How many lists are kept to be used again, so that what is held a few at a time allocates nothing.
const SPARE: usize = 64;

pub(super) struct Entry<E: Enqueue> {
    pub(super) number: u64,
    /// The graph has them, too. None if they are empty.
    pub(super) lists: Option<Arc<Lists>>,
    pub(super) job: Job<E>,
    pub(super) places: Places,
}

impl<E: Enqueue> Entry<E> {
    pub(super) fn waits(&self) -> &[KeptPoint] {
        waits_of(&self.lists)
    }

    pub(super) fn claims(&self) -> &[OwnedClaim] {
        claims_of(&self.lists)
    }
}

pub(super) fn waits_of(lists: &Option<Arc<Lists>>) -> &[KeptPoint] {
    lists.as_ref().map_or(&[], |lists| &lists.waits)
}

pub(super) fn claims_of(lists: &Option<Arc<Lists>>) -> &[OwnedClaim] {
    lists.as_ref().map_or(&[], |lists| &lists.claims)
}

/// Lists with the room that they have had, if nobody else has them.
pub(super) fn emptied(mut shared: Arc<Lists>) -> Option<Arc<Lists>> {
    let lists = Arc::get_mut(&mut shared)?;
    lists.waits.clear();
    lists.claims.clear();
    Some(shared)
}

/// Work that is recorded later, once.
pub(super) trait Work<E: Enqueue>: Send {
    /// Records it, or does nothing if that is done.
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<()>;
}

impl<E: Enqueue, W> Work<E> for Option<W>
where
    W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send,
{
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<()> {
        self.take().map_or(Ok(()), |work| work(recorder))
    }
}

/// Work that captures more than an entry has room for.
pub(super) type LargeWork<E> = Small<dyn Work<E>>;

pub(super) enum Job<E: Enqueue> {
    /// Not recorded yet, and captures little.
    Tiny(Tiny<dyn Work<E>>),
    /// Not recorded yet: its place in the state's `large`.
    Large(u64),
    /// Recorded; the driver's queue was locked.
    Prepared(Box<(E::Prepared, Keep)>),
    /// Skipped; its number goes to the driver once there is room, with what the driver may use of it.
    Pass(Option<Box<Keep>>),
}

/// What a skipped submission takes with it.
pub(super) fn kept(keep: Keep) -> Option<Box<Keep>> {
    let something = !keep.is_empty() || keep.units() > 0;
    something.then(|| Box::new(keep))
}

/// The work that is too large for its entries, in their order.
pub(super) struct Large<E: Enqueue> {
    /// The place of the first.
    first: u64,
    /// Taken out, but for what is in front of it, where one is skipped before its turn.
    works: VecDeque<Option<LargeWork<E>>>,
}

impl<E: Enqueue> Default for Large<E> {
    fn default() -> Self {
        Self {
            first: 0,
            works: VecDeque::new(),
        }
    }
}

impl<E: Enqueue> Large<E> {
    fn add(&mut self, work: LargeWork<E>) -> u64 {
        self.works.push_back(Some(work));
        self.first + self.works.len() as u64 - 1
    }

    /// Takes out what stands at a place. The caller drops it without the lock.
    pub(super) fn take(&mut self, at: u64) -> Option<LargeWork<E>> {
        let index = at.checked_sub(self.first)?;
        let work = self.works.get_mut(index as usize)?.take();
        while let Some(None) = self.works.front() {
            self.works.pop_front();
            self.first += 1;
        }
        work
    }
}

impl<E: Enqueue> State<E> {
    /// Lists of what a submission waits for and has claimed.
    pub(super) fn lists(&mut self, waits: &[Awaited<'_>], claims: &[Taken<'_>]) -> Arc<Lists> {
        let mut shared = self.spare.pop().unwrap_or_default();
        // Nobody else has it.
        if let Some(lists) = Arc::get_mut(&mut shared) {
            lists.waits.extend(waits.iter().map(Awaited::keep));
            for by_host in [false, true] {
                let some = claims
                    .iter()
                    .filter(|claim| claim.port.is_none() == by_host);
                lists.claims.extend(some.map(Taken::keep));
                if !by_host {
                    lists.native = lists.claims.len();
                }
            }
        }
        shared
    }

    /// Keeps lists that nobody has any more, and that are empty, for the next.
    pub(super) fn use_again(&mut self, spare: &mut Option<Arc<Lists>>) {
        if self.spare.len() < SPARE {
            self.spare.extend(spare.take());
        }
    }

    /// A submission that is to be held until its time comes.
    pub(super) fn entry<W>(
        &mut self,
        number: u64,
        lists: Arc<Lists>,
        work: W,
        places: Places,
    ) -> Entry<E>
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        let job = if size_of::<Option<W>>() <= TINY {
            Job::Tiny(smallbox!(Some(work)))
        } else {
            Job::Large(self.large.add(smallbox!(Some(work))))
        };
        Entry {
            number,
            lists: Some(lists),
            job,
            places,
        }
    }
}
