//! One held submission, and its work.

use std::sync::Arc;

use smallbox::smallbox;

use super::graph_entries::GraphEntries;
use super::held_list::HeldList;
use super::verdict::{Awaited, Taken};
use crate::base::error::{Error, Result};
use crate::base::stored_closure::{Inline2, Inline16};
use crate::driver::enqueue::Enqueue;
use crate::driver::keep::Keep;
use crate::fence::Fence;
use crate::held::{Lists, OwnedClaim};
use crate::timeline::point::KeptPoint;

/// A held submission while it is judged or released.
pub(super) struct Entry<'l, E: Enqueue> {
    pub(super) number: u64,
    /// The waits and claims of the submission. `None` if both lists are empty.
    ///
    /// If the submission is still in the graph, the graph has copies of these lists.
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

/// Work that is recorded later, once.
pub(super) trait Work<E: Enqueue>: Send {
    /// Records the work, or does nothing if it has been recorded.
    ///
    /// The error is boxed to return it in a register.
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<(), Box<Error>>;

    /// Moves the work into the queue's storage. The result must be added next: see
    /// [`HeldList::store_inline`].
    fn store(&mut self, held: &mut HeldList<E>) -> Inline2<dyn Work<E>>;

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

    fn store(&mut self, held: &mut HeldList<E>) -> Inline2<dyn Work<E>> {
        held.store_inline(self.take())
    }

    fn discard(&mut self) {
        *self = None;
    }
}

impl<E: Enqueue> Work<E> for OutOfLine {
    fn record(&mut self, _: &mut E::Recorder<'_>) -> Result<(), Box<Error>> {
        Ok(())
    }

    fn store(&mut self, _: &mut HeldList<E>) -> Inline2<dyn Work<E>> {
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

    fn store(&mut self, held: &mut HeldList<E>) -> Inline2<dyn Work<E>> {
        held.store_inline(Some(self.kept()))
    }
}

/// The location of work that is too large for [`InlineWork`], in the queue's [`HeldList`].
#[derive(Clone, Copy)]
pub(super) enum OutOfLine {
    Medium(u64),
    Large(u64),
}

/// The work of a held submission.
///
/// `None` if it is skipped, or if it is the first one and its job is stored elsewhere.
pub(super) type InlineWork<E> = Option<Inline2<dyn Work<E>>>;

/// Work that has been taken out of the storage.
pub(super) type LargeWork<E> = Inline16<dyn Work<E>>;

pub(super) enum Job<E: Enqueue> {
    /// Not recorded yet, with few captures.
    Tiny(Inline2<dyn Work<E>>),
    /// Not recorded yet, stored out of line.
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
