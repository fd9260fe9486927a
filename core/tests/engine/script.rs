//! The driver's half of a queue, of which a test decides what it needs.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;

use syncline_core::backend::{
    Batch, Enqueue, Flush, InFlightBudget, Keep, Stamp, SubmissionQueue, Timing, ToWrite, Waker,
};
use syncline_core::{Error, Result, error::Object};

use crate::words::{Of, queue};

/// What a test decides of a driver. By default it takes every submission, and executes none.
///
/// A recorder is the number of units that the work takes.
pub(crate) trait Script: Send + Sync + 'static {
    const MAX_IN_FLIGHT: u64 = u64::MAX;

    fn budget(&self) -> Option<&Arc<InFlightBudget>> {
        None
    }

    fn ready(&self) -> bool {
        true
    }

    /// Adds what makes the signals to `made`, and calls `work` at most once.
    fn record(
        &self,
        _batch: &Batch<'_, Scripted<Self>>,
        _keep: &mut Keep,
        _made: &mut Vec<Made>,
        work: &mut dyn FnMut(&mut u64) -> Result<()>,
    ) -> Result<()>
    where
        Self: Sized,
    {
        work(&mut 0)
    }

    fn flush(&self, _made: &mut Vec<Made>, _waker: &dyn Fn() -> Waker) -> Flush {
        Flush::Done
    }

    fn stamp(&self) -> Result<Time> {
        Ok(Time::At(0))
    }
}

/// Makes one signal.
pub(crate) type Made = Box<dyn FnOnce() + Send>;

/// A stamp of a script.
pub(crate) enum Time {
    At(i64),
    /// The device cannot write it.
    Never(Error),
}

impl Stamp for Time {
    fn nanoseconds_since(&self, start: &dyn Stamp) -> Result<i64> {
        let start: &dyn std::any::Any = start;
        match (self, start.downcast_ref().unwrap()) {
            (Self::At(end), Self::At(start)) => Ok(end - start),
            (Self::Never(error), _) | (_, Self::Never(error)) => Err(error.clone()),
        }
    }
}

/// The driver's half that does what `script` says.
pub(crate) struct Scripted<S: Script> {
    pub(crate) home: Of<Self>,
    pub(crate) script: S,
}

impl<S: Script> Enqueue for Scripted<S> {
    type Device = Of<Self>;
    type Recorder<'a> = u64;
    type Ready<'a> = ();
    type State = Vec<Made>;
    type Stamp = Time;
    const MAX_IN_FLIGHT: u64 = S::MAX_IN_FLIGHT;

    fn device(&self) -> &Of<Self> {
        &self.home
    }

    fn in_flight_budget(&self) -> Option<&Arc<InFlightBudget>> {
        self.script.budget()
    }

    fn ready(&self) -> Option<()> {
        self.script.ready().then_some(())
    }

    fn record<W>(
        &self,
        (): (),
        made: &mut Vec<Made>,
        batch: &Batch<'_, Self>,
        keep: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut u64) -> Result<()>,
    {
        let mut work = Some(work);
        let mut once = |units: &mut u64| work.take().unwrap()(units);
        self.script.record(batch, keep, made, &mut once)
    }

    fn flush(&self, made: &mut Vec<Made>, waker: &dyn Fn() -> Waker) -> Flush {
        self.script.flush(made, waker)
    }

    fn stamp(&self, _: &Object, _: Timing) -> Result<Arc<Time>> {
        self.script.stamp().map(Arc::new)
    }

    fn write_stamp(_: &mut u64, stamp: ToWrite<'_, Self>) -> Result<()> {
        match &**stamp {
            Time::At(_) => Ok(()),
            Time::Never(error) => Err(error.clone()),
        }
    }
}

/// A queue of the device `home` whose driver does what `script` says.
pub(crate) fn scripted<S: Script>(
    home: Of<Scripted<S>>,
    script: S,
) -> Arc<SubmissionQueue<Scripted<S>>> {
    queue("scripted", Scripted { home, script })
}
