//! The work of a submission: recorded at once, or kept while the submission is held.

use std::any::Any;
use std::sync::Arc;

use crate::base::error::{Error, Result};
use crate::base::run::run_contained;
use crate::driver::enqueue::{Enqueue, ToWrite};
use crate::driver::keep::Keep;
use crate::fence::Fence;

/// Work that is recorded once, now or later.
pub(super) trait Record<E: Enqueue>: Send {
    /// Records the work, or does nothing if it has been recorded.
    ///
    /// The error is boxed to return it in a register.
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<(), Box<Error>>;

    /// Moves the work out, for a submission that is held.
    fn store(&mut self) -> Box<dyn Record<E>>;

    /// See [`Batch::is_bare`](crate::backend::Batch::is_bare).
    fn is_bare(&self) -> bool {
        true
    }

    /// See [`Batch::attached`](crate::backend::Batch::attached).
    fn attached(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        None
    }
}

/// The work of an application, and the object that the backend has attached to it.
pub(super) struct Given<W> {
    work: Option<W>,
    attached: Option<Arc<dyn Any + Send + Sync>>,
}

impl<W> Given<W> {
    #[inline]
    pub(super) const fn new<E: Enqueue>(
        work: W,
        attached: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self
    where
        W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()>,
    {
        let work = Some(work);
        Self { work, attached }
    }
}

impl<E: Enqueue, W> Record<E> for Given<W>
where
    W: for<'r, 'a> FnOnce(&'r mut E::Recorder<'a>) -> Result<()> + Send + 'static,
{
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<(), Box<Error>> {
        match self.work.take() {
            Some(work) => work(recorder).map_err(Box::new),
            None => Ok(()),
        }
    }

    fn store(&mut self) -> Box<dyn Record<E>> {
        Box::new(Self {
            work: self.work.take(),
            attached: self.attached.take(),
        })
    }

    fn is_bare(&self) -> bool {
        false
    }

    fn attached(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.attached.as_ref()
    }
}

/// The work of a submission that has none.
pub(super) struct Nothing;

impl<E: Enqueue> Record<E> for Nothing {
    fn record(&mut self, _: &mut E::Recorder<'_>) -> Result<(), Box<Error>> {
        Ok(())
    }

    fn store(&mut self) -> Box<dyn Record<E>> {
        Box::new(Self)
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
    fn kept(
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

impl<E: Enqueue> Record<E> for Write<'_, E> {
    fn record(&mut self, recorder: &mut E::Recorder<'_>) -> Result<(), Box<Error>> {
        E::write_stamp(recorder, ToWrite::new(self.stamp)).map_err(Box::new)
    }

    fn store(&mut self) -> Box<dyn Record<E>> {
        Box::new(Given::new::<E>(self.kept(), None))
    }
}

/// Drops the work of a refused submission if it was not called.
///
/// Its captures are the application's and may panic.
#[cold]
#[inline(never)]
pub(super) fn refused<E: Enqueue>(work: &mut dyn Record<E>, error: Box<Error>) -> Box<Error> {
    let work = work.store();
    run_contained(|| drop(work));
    error
}

/// What is still to be done for a held submission.
pub(super) enum Work<E: Enqueue> {
    /// To record it and to hand it to the driver.
    ToRecord(Box<dyn Record<E>>),
    /// To hand it to the driver. It is recorded and keeps these objects.
    Recorded(Box<Keep>),
}
