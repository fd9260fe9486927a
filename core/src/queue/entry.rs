//! One held submission, and its work.

use super::graph_entries::GraphEntries;
use super::work::{InlineWork, OutOfLine, Work};
use crate::base::stored_closure::Inline2;
use crate::driver::enqueue::Enqueue;
use crate::driver::keep::Keep;
use crate::held::Lists;

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

pub(super) enum Job<E: Enqueue> {
    /// Not recorded yet, with few captures.
    Tiny(Inline2<dyn Work<E>>),
    /// Not recorded yet, stored out of line.
    OutOfLine(OutOfLine),
    /// Recorded, but the driver's queue was locked. It keeps these objects.
    Recorded(Box<Keep>),
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
