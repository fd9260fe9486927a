//! The work of held submissions, and where it is stored.

use std::collections::VecDeque;
use std::sync::Arc;

use smallbox::{SmallBox, smallbox};

use crate::base::error::{Error, Result};
use crate::base::stored_closure::{Inline2, Inline9, Inline16, MAX_INLINE_2, MAX_INLINE_9};
use crate::driver::enqueue::{Enqueue, ToWrite};
use crate::fence::Fence;

/// Work that is recorded later, once.
pub(super) trait Work<E: Enqueue>: Send {
    /// Records the work, or does nothing if it has been recorded.
    ///
    /// The error is boxed to return it in a register.
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<(), Box<Error>>;

    /// Moves the work into the queue's storage. The result must be added next: see
    /// [`Works::store_inline`].
    fn store(&mut self, works: &mut Works<E>) -> Inline2<dyn Work<E>>;

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

    fn store(&mut self, works: &mut Works<E>) -> Inline2<dyn Work<E>> {
        works.store_inline(self.take())
    }

    fn discard(&mut self) {
        *self = None;
    }
}

impl<E: Enqueue> Work<E> for OutOfLine {
    fn record(&mut self, _: &mut E::Recorder<'_>) -> Result<(), Box<Error>> {
        Ok(())
    }

    fn store(&mut self, _: &mut Works<E>) -> Inline2<dyn Work<E>> {
        smallbox!(*self)
    }

    fn out_of_line(&self) -> Option<OutOfLine> {
        Some(*self)
    }
}

/// Writes a fence's time. A held record has references of its own; other records borrow.
pub(super) struct Write<'f, E: Enqueue> {
    stamp: &'f Arc<E::Stamp>,
    fence: &'f Fence,
}

impl<'f, E: Enqueue> Write<'f, E> {
    pub(super) const fn new(stamp: &'f Arc<E::Stamp>, fence: &'f Fence) -> Self {
        Self { stamp, fence }
    }

    /// The same work with its own references. An error of a held record is stored in the fence.
    pub(super) fn kept(
        &self,
    ) -> impl for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static + use<E>
    {
        let (written, fence) = (self.stamp.clone(), self.fence.clone());
        move |recorder| {
            let result = E::write_stamp(recorder, ToWrite::new(&written));
            if let Err(error) = &result {
                fence.note_unwritten(written, error.clone());
            }
            result
        }
    }
}

impl<E: Enqueue> Work<E> for Write<'_, E> {
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<(), Box<Error>> {
        E::write_stamp(recorder, ToWrite::new(self.stamp)).map_err(Box::new)
    }

    fn store(&mut self, works: &mut Works<E>) -> Inline2<dyn Work<E>> {
        works.store_inline(Some(self.kept()))
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
/// `None` if it is skipped, or if it is the first one and its job is stored elsewhere.
pub(super) type InlineWork<E> = Option<Inline2<dyn Work<E>>>;

/// Work that has been taken out of the storage.
pub(super) type LargeWork<E> = Inline16<dyn Work<E>>;

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
    /// Stores `work` inline or out of line.
    ///
    /// Out-of-line work is in submission order, so add the result next.
    pub(super) fn store_inline<W: Work<E> + 'static>(&mut self, work: W) -> Inline2<dyn Work<E>> {
        let size = size_of::<W>();
        if size <= MAX_INLINE_2 {
            return smallbox!(work);
        }
        smallbox!(if size <= MAX_INLINE_9 {
            OutOfLine::Medium(self.medium.add(smallbox!(work)))
        } else {
            OutOfLine::Large(self.large.add(smallbox!(work)))
        })
    }

    /// Takes out work. The caller drops it without the lock.
    pub(super) fn take(&mut self, at: OutOfLine) -> Option<LargeWork<E>> {
        match at {
            OutOfLine::Medium(at) => self.medium.take(at).map(SmallBox::resize),
            OutOfLine::Large(at) => self.large.take(at),
        }
    }
}
