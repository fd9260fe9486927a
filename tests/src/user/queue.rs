//! Queues.

use std::fmt;
use std::time::Duration;

use syncline::Held;
use syncline::backend::Queue as _;
use syncline::{Error, Result, Signal, error::Object};

use super::timeline::library;
use super::{Fence, Point, Stall, Timeline};
use crate::Subject;
use crate::case::Stop;
use crate::subject::{FAILING_WORK, QueueOf, RecorderOf};

/// Work of any type.
type BoxedWork<S> =
    Box<dyn for<'r, 'a> FnOnce(&'r mut RecorderOf<'a, S>) -> Result<()> + Send + 'static>;

/// The same work in a closure that has `WORDS` words more.
fn padded<S: Subject, const WORDS: usize>(
    work: BoxedWork<S>,
) -> impl for<'r, 'a> FnOnce(&'r mut RecorderOf<'a, S>) -> Result<()> + Send + 'static {
    let padding = [0_usize; WORDS];
    move |recorder| {
        std::hint::black_box(&padding);
        work(recorder)
    }
}

/// [`syncline::backend::Queue`].
pub struct Queue<S: Subject> {
    on: S,
    library: QueueOf<S>,
}

impl<S: Subject> Clone for Queue<S> {
    fn clone(&self) -> Self {
        Self::new(&self.on, self.library.clone())
    }
}

impl<S: Subject> Queue<S> {
    pub(super) fn new(on: &S, library: QueueOf<S>) -> Self {
        let on = on.clone();
        Self { on, library }
    }

    /// The library's queue.
    #[must_use]
    pub const fn library(&self) -> &QueueOf<S> {
        &self.library
    }

    /// Its name in errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.library.object()
    }

    /// [`syncline::backend::Queue::submit`].
    pub fn submit<W>(
        &self,
        waits: &[Point<'_, S>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'_, S>>
    where
        W: for<'r, 'a> FnOnce(&'r mut RecorderOf<'a, S>) -> Result<()> + Send + 'static,
    {
        self.submit_boxed(waits, Box::new(work), size_of::<W>(), signals)
    }

    /// Submits work whose closure has `size` bytes.
    ///
    /// The library's `submit` is compiled for three closures, and not for the closure of each case.
    /// They have the sizes for which the engine keeps held work in different places.
    fn submit_boxed(
        &self,
        waits: &[Point<'_, S>],
        work: BoxedWork<S>,
        size: usize,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'_, S>> {
        const WORD: usize = size_of::<usize>();
        let waits = library(waits);
        let library = if size <= 2 * WORD {
            self.on.submit(&self.library, &waits, work, signals)?
        } else if size <= 9 * WORD {
            let work = padded::<S, 7>(work);
            self.on.submit(&self.library, &waits, work, signals)?
        } else {
            let work = padded::<S, 14>(work);
            self.on.submit(&self.library, &waits, work, signals)?
        };
        Ok(Submitted::new(&self.on, library))
    }

    /// Submits work that blocks the device until `stall` is released.
    ///
    /// [`Device::stall`](super::Device::stall) says what a case must not do meanwhile.
    pub fn block(&self, stall: &Stall<S>) -> Result<Submitted<'_, S>> {
        let latch = stall.latch();
        self.submit(&[], move |recorder| latch.block(recorder), &[])
    }

    /// Submits no work.
    pub fn submit_empty(
        &self,
        waits: &[Point<'_, S>],
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'_, S>> {
        self.submit(waits, |_| Ok(()), signals)
    }

    /// Submits nothing but a signal.
    pub fn signal(&self, line: &Timeline<S>, value: u64) -> Result<Submitted<'_, S>> {
        self.submit_empty(&[], &[line.signal_at(value)])
    }

    /// Submits work that fills `buffer`.
    pub fn fill(
        &self,
        waits: &[Point<'_, S>],
        buffer: &S::Buffer,
        value: u32,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'_, S>> {
        let buffer = buffer.clone();
        self.submit(
            waits,
            move |recorder| S::fill(recorder, &buffer, value),
            signals,
        )
    }

    /// Submits work that keeps the device busy for `time`.
    pub fn busy(&self, time: Duration, signals: &[Signal<'_>]) -> Result<Submitted<'_, S>> {
        let on = self.on.clone();
        self.submit(&[], move |recorder| on.busy(recorder, time), signals)
    }

    /// Submits work that fails while the device runs it.
    ///
    /// # Errors
    /// A skip if no work of the device fails so. Also the backend's errors.
    pub fn fail_work(&self, signals: &[Signal<'_>]) -> Result<Submitted<'_, S>, Stop> {
        let on = self.on.clone();
        match self.submit(&[], move |recorder| on.fail_work(recorder), signals) {
            Err(Error::Unsupported { asked, reason, .. }) if asked == FAILING_WORK => {
                Stop::skip(reason)
            }
            submitted => Ok(submitted?),
        }
    }

    /// Submits work that fills `buffer` after the device was busy for `time`.
    pub fn fill_after(
        &self,
        time: Duration,
        buffer: &S::Buffer,
        value: u32,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'_, S>> {
        let (on, buffer) = (self.on.clone(), buffer.clone());
        let work = move |recorder: &mut RecorderOf<'_, S>| {
            on.busy(recorder, time)?;
            S::fill(recorder, &buffer, value)
        };
        self.submit(&[], work, signals)
    }

    /// [`syncline::backend::Queue::record`].
    pub fn record(&self, fence: &Fence<S>) -> Result<()> {
        self.on.record(&self.library, fence.library())
    }

    /// [`syncline::backend::Queue::wait`].
    pub fn wait(&self, fence: &Fence<S>) -> Result<()> {
        self.on.wait_on(&self.library, fence.library())
    }

    /// [`syncline::backend::Queue::position`].
    pub fn position(&self) -> Point<'_, S> {
        Point::new(&self.on, self.on.position(&self.library))
    }

    /// [`syncline::backend::Queue::held`].
    #[must_use]
    pub fn held(&self) -> Held {
        self.on.held(&self.library)
    }

    /// [`syncline::backend::Queue::blockers`].
    #[must_use]
    pub fn blockers(&self) -> syncline::wait::Blockers {
        self.library.blockers()
    }

    /// [`syncline::backend::Queue::idle`].
    pub fn idle(&self, timeout: Duration) -> Result<()> {
        self.on.idle(&self.library, timeout)
    }

    /// [`syncline::backend::Queue::settle`].
    pub fn settle(&self, timeout: Duration) -> Result<()> {
        self.on.settle(&self.library, timeout)
    }
}

impl<S: Subject> fmt::Debug for Queue<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.object(), f)
    }
}

/// [`syncline::Submitted`].
pub struct Submitted<'q, S> {
    on: &'q S,
    library: syncline::Submitted<'q>,
}

impl<S> Clone for Submitted<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Submitted<'_, S> {}

impl<'q, S: Subject> Submitted<'q, S> {
    pub(super) const fn new(on: &'q S, library: syncline::Submitted<'q>) -> Self {
        Self { on, library }
    }

    /// [`syncline::Submitted::end`].
    pub const fn end(self) -> Point<'q, S> {
        Point::new(self.on, self.library.end())
    }

    /// [`syncline::Submitted::wait_submitted`].
    pub fn wait_submitted(self, timeout: Duration) -> Result<()> {
        self.on.wait_submitted(self.library, timeout)
    }

    /// [`syncline::Submitted::is_held`].
    #[must_use]
    pub fn is_held(self) -> bool {
        self.on.is_held(self.library)
    }
}

impl<S> fmt::Debug for Submitted<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.library, f)
    }
}
