//! How fast the demo is, with a trace of its queues and without.

use std::sync::Arc;
use std::time::Duration;

use syncline::Link;
use syncline::trace::{Recording, Trace};
use syncline_bench::frames::{Order, Pipeline, Size, expected};

use crate::failure::Failure;

/// For what was submitted to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs whose speed is measured.
pub(super) struct Runs<'l> {
    link: &'l Link,
    size: Size,
    frames: u32,
    /// The last frame of each.
    last: Vec<u32>,
}

impl<'l> Runs<'l> {
    pub(super) fn new(link: &'l Link, size: Size, frames: u32) -> Self {
        Self {
            link,
            size,
            frames,
            last: expected(size, frames),
        }
    }

    /// Frames per second of one.
    pub(super) fn fps(&self, order: Order) -> Result<f64, Failure> {
        let pipeline = Pipeline::new(self.link, self.size)?;
        Ok(pipeline.timed(self.frames, order, &self.last)?)
    }

    /// The same of one that is traced, and what is recorded of it.
    pub(super) fn traced(&self) -> Result<(f64, Recording), Failure> {
        let trace = Arc::new(Trace::new());
        let pipeline = Pipeline::new(self.link, self.size)?.traced(trace.clone())?;
        let fps = pipeline.timed(self.frames, Order::Timelines, &self.last)?;
        let trace = Arc::into_inner(trace)
            .ok_or_else(|| Failure::Words("the trace is still in use".into()))?;
        Ok((fps, trace.finish(PATIENCE)))
    }
}

/// To a tenth of a frame.
pub(super) fn rounded(fps: f64) -> f64 {
    (fps * 10.0).round() / 10.0
}
