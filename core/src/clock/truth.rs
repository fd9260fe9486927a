//! Two clocks with a known relation, for tests of conversions.

use proptest::prelude::*;

use super::map::WANDER;
use super::sample::Sample;

/// Two clocks with a known relation.
///
/// The drift is a constant, plus a linear growth, plus a cosine with the amplitude [`WANDER`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Truth {
    /// The host's time at the device's time 0, in nanoseconds.
    pub offset: i64,
    /// The drift at the device's time 0, without the cosine.
    pub ppm: f64,
    /// The growth of the drift, in parts per million per second.
    pub warming: f64,
    /// The period of the cosine, in nanoseconds.
    pub period: f64,
}

impl Truth {
    pub(super) fn host(self, device: i64) -> f64 {
        let turn = std::f64::consts::TAU * device as f64 / self.period;
        // The derivative of this is the cosine in the drift.
        let wander = WANDER * self.period / std::f64::consts::TAU * turn.sin();
        let device = device as f64;
        let warmed = self.warming * 1e-15 * device * device / 2.0;
        self.offset as f64 + device * (1.0 + self.ppm * 1e-6) + warmed + wander
    }

    /// A sample whose host time is off by `off` times its deviation. `off` is from -1 to 1.
    pub(super) fn sample(self, device: i64, deviation: u64, off: f64) -> Sample {
        let host = self.host(device) + off * deviation as f64;
        Sample {
            device,
            host: host.round() as i64,
            // Plus one for the rounding.
            deviation: deviation + 1,
        }
    }
}

pub(super) const STEADY: Truth = Truth {
    offset: 5_000_000,
    ppm: 20.0,
    warming: 0.0,
    period: 1e10,
};

/// Small and very large deviations.
pub(super) fn deviations() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..5_000, 1_000_000_u64..200_000_000]
}

pub(super) fn truth() -> impl Strategy<Value = Truth> {
    let offsets = -1_000_000_000_i64..1_000_000_000;
    (offsets, -200.0..200.0, -0.05..0.05, 1e9..1e11).prop_map(|(offset, ppm, warming, period)| {
        Truth {
            offset,
            ppm,
            warming,
            period,
        }
    })
}
