//! Measures the speed of the demo, with and without a trace of its queues.

use std::sync::Arc;
use std::time::Duration;

use syncline::backend;
use syncline::trace::{Recording, Trace};
use syncline_demo::scene::View;
use syncline_demo::{Order, Pipeline, expected};

use crate::failure::Failure;

/// Time limit for submitted work.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs whose speed is measured.
pub(super) struct Runs<'m, P: backend::Device> {
    make: &'m dyn Fn() -> syncline::Result<Pipeline<P>>,
    frames: u32,
    /// The expected last frame of each run.
    last: Vec<u32>,
}

impl<'m, P: backend::Device> Runs<'m, P> {
    /// Runs of so many frames, each on a pipeline that `make` makes.
    pub(super) fn new(
        make: &'m dyn Fn() -> syncline::Result<Pipeline<P>>,
        view: View,
        frames: u32,
    ) -> Self {
        Self {
            make,
            frames,
            last: expected(&view, frames),
        }
    }

    /// Frames per second of one run.
    pub(super) fn fps(&self, order: Order) -> Result<f64, Failure> {
        Ok((self.make)()?.timed(self.frames, order, &self.last)?)
    }

    /// Frames per second of one traced run, and the recording.
    pub(super) fn traced(&self) -> Result<(f64, Recording), Failure> {
        let trace = Arc::new(Trace::new());
        let pipeline = (self.make)()?.traced(trace.clone())?;
        let fps = pipeline.timed(self.frames, Order::Timelines, &self.last)?;
        let trace = Arc::into_inner(trace)
            .ok_or_else(|| Failure::Words("the trace is still in use".into()))?;
        Ok((fps, trace.finish(PATIENCE)))
    }
}

/// Rounds to a tenth of a frame.
pub(super) fn rounded(fps: f64) -> f64 {
    (fps * 10.0).round() / 10.0
}
