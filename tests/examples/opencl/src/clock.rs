//! The clock of profiling, read together with the host's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline_core::backend::Sampler;
use syncline_core::backend::kit::Effort;
use syncline_core::clock::Sample;
use syncline_core::{Error, Result, error::Object, info::Uuid};

use crate::cl::{CommandQueue, Context};

/// A reading may be interrupted, so the best of several counts.
const EFFORT: Effort = Effort {
    limit: Duration::from_millis(2),
    samples: 8,
    enough: 1_000,
};

/// A marker that takes longer stands behind other work.
const PATIENCE: Duration = Duration::from_millis(100);

/// Reads the end of a marker between two readings of the host's clock (M2).
///
/// It keeps the context, not the device: the device keeps its clock.
pub(crate) struct Ticks {
    object: Object,
    queue: CommandQueue,
    resolution: u64,
    gpu: Option<Uuid>,
}

impl Ticks {
    pub(crate) fn new(
        object: &Object,
        context: &Arc<Context>,
        resolution: u64,
        gpu: Option<Uuid>,
    ) -> Result<Self> {
        Ok(Self {
            object: object.clone(),
            queue: CommandQueue::new(context)?,
            resolution,
            gpu,
        })
    }

    /// When a marker ended that begins now.
    fn read(&self) -> Result<i64> {
        let begun = Instant::now();
        let marker = self.queue.mark()?;
        self.queue.flush()?;
        while !marker.is_complete(&self.object)? {
            if begun.elapsed() > PATIENCE {
                let reason = "a marker did not end in time";
                return Err(Error::clock_silent(&self.object, PATIENCE, reason));
            }
            std::thread::yield_now();
        }
        marker.ended(&self.object)
    }
}

impl Sampler for Ticks {
    fn sample(&self) -> Result<Sample> {
        let host = self.host_clock();
        EFFORT.best(|| {
            let before = host.now();
            let device = self.read()?;
            let sample = Sample::between(before, device, host.now());
            Ok(Sample {
                // It may have shown this for a whole step.
                deviation: sample.deviation + self.resolution,
                ..sample
            })
        })
    }

    fn resolution(&self) -> u64 {
        self.resolution
    }

    fn gpu(&self) -> Option<Uuid> {
        self.gpu
    }
}
