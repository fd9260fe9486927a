//! Measures the speed of the demo, with and without a trace of its queues.

use std::sync::Arc;
use std::time::Duration;

use syncline::Link;
use syncline::trace::{Recording, Trace};
use syncline_demo::scene::View;
use syncline_demo::{Order, Pipeline, expected};

use crate::failure::Failure;

/// Time limit for submitted work.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs whose speed is measured.
pub(super) struct Runs<'l> {
    link: &'l Link,
    view: View,
    frames: u32,
    /// The expected last frame of each run.
    last: Vec<u32>,
}

impl<'l> Runs<'l> {
    pub(super) fn new(link: &'l Link, view: View, frames: u32) -> Self {
        Self {
            link,
            view,
            frames,
            last: expected(&view, frames),
        }
    }

    /// Frames per second of one run.
    pub(super) fn fps(&self, order: Order) -> Result<f64, Failure> {
        let pipeline = Pipeline::scene(self.link, self.view)?;
        Ok(pipeline.timed(self.frames, order, &self.last)?)
    }

    /// Frames per second of one traced run, and the recording.
    pub(super) fn traced(&self) -> Result<(f64, Recording), Failure> {
        let trace = Arc::new(Trace::new());
        let pipeline = Pipeline::scene(self.link, self.view)?.traced(trace.clone())?;
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
