//! The machine's clock beside the host's.

use std::sync::Arc;
use std::time::Duration;

use syncline::Result;
use syncline::clock::Sample;
use syncline_core::backend::Sampler;
use syncline_core::backend::kit::Effort;

use super::driver::{Machine, TICK};

/// How often the clock is read for one sample, and for how long.
///
/// The thread may be interrupted between two readings.
const EFFORT: Effort = Effort {
    limit: Duration::from_micros(200),
    samples: 8,
    enough: TICK,
};

/// The time that so many ticks show, in nanoseconds. Clocks of fewer bits, or of a period that is
/// not whole, need a [`Rounds`](syncline_core::backend::kit::Rounds), which also undoes the wrap.
pub(crate) fn time(ticks: u64) -> i64 {
    (ticks * TICK).cast_signed()
}

/// Reads the clock between two readings of the host's. It keeps the machine, not the device: the
/// device keeps its clock.
pub(crate) struct Ticks(pub(crate) Arc<Machine>);

impl Ticks {
    /// What the machine's clock shows, in nanoseconds.
    pub(crate) fn now(&self) -> i64 {
        time(self.0.clock())
    }
}

impl Sampler for Ticks {
    fn sample(&self) -> Result<Sample> {
        let host = self.host_clock();
        EFFORT.best(|| {
            let before = host.now();
            let device = self.now();
            let sample = Sample::between(before, device, host.now());
            Ok(Sample {
                // It may have shown this for a whole tick.
                deviation: sample.deviation + TICK,
                ..sample
            })
        })
    }

    fn resolution(&self) -> u64 {
        TICK
    }
}
