//! Stopwatches.

use std::fmt;
use std::time::Duration;

use syncline::clock::{Elapsed, Time};
use syncline::{Result, Signal};

use super::timeline::library;
use super::{Device, Point, Queue, Submitted};
use crate::Subject;
use crate::case::Stop;
use crate::subject::RecorderOf;

/// [`syncline::Stopwatch`].
pub struct Stopwatch<S> {
    on: S,
    library: syncline::Stopwatch,
}

impl<S: Subject> Stopwatch<S> {
    /// [`syncline::Stopwatch::between`].
    ///
    /// # Errors
    /// A skip if one of the devices has no clock or no timestamps. Also errors of the backend.
    pub fn between(start: &Device<S>, stop: &Device<S>, label: &str) -> Result<Self, Stop> {
        // A device without a clock returns the reason.
        start.clocked_fence("start")?;
        stop.clocked_fence("stop")?;
        let on = start.subject().clone();
        let library = syncline::Stopwatch::between(start.library(), stop.library(), label)?;
        Ok(Self { on, library })
    }

    /// [`syncline::Stopwatch::start`].
    pub fn start(&self, queue: &Queue<S>) -> Result<()> {
        self.on.start(&self.library, queue.library())
    }

    /// [`syncline::Stopwatch::stop`].
    pub fn stop(&self, queue: &Queue<S>) -> Result<()> {
        self.on.stop(&self.library, queue.library())
    }

    /// [`syncline::Stopwatch::time`].
    pub fn time<'q, W>(
        &'q self,
        queue: &'q Queue<S>,
        waits: &[Point<'_, S>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q, S>>
    where
        W: for<'r, 'a> FnOnce(&'r mut RecorderOf<'a, S>) -> Result<()> + Send + 'static,
    {
        let (on, waits) = (&self.on, library(waits));
        let library = on.time_submission(&self.library, queue.library(), &waits, work, signals)?;
        Ok(Submitted::new(on, library))
    }

    /// [`syncline::Stopwatch::start_time`].
    pub fn start_time(&self) -> Result<Time> {
        self.library.start_time()
    }

    /// [`syncline::Stopwatch::stop_time`].
    pub fn stop_time(&self) -> Result<Time> {
        self.library.stop_time()
    }

    /// [`syncline::Stopwatch::elapsed`].
    pub fn elapsed(&self) -> Result<Elapsed> {
        self.on.stopwatch_elapsed(&self.library)
    }

    /// [`syncline::Stopwatch::wait`].
    pub fn wait(&self, timeout: Duration) -> Result<Elapsed> {
        self.on.wait_stopwatch(&self.library, timeout)
    }
}

impl<S> fmt::Debug for Stopwatch<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.library, f)
    }
}
