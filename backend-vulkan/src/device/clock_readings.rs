//! The readings of a device's counter.

use std::sync::{Mutex, OnceLock};

use syncline_core::clock::{Clock, Counter, HostClock, Rounds};

/// The clock of a device, and the readings of its counter.
#[derive(Default)]
pub(crate) struct DeviceClock {
    /// Made by the first call that needs it.
    pub(crate) clock: OnceLock<Clock>,
    pub(crate) readings: Mutex<Option<Readings>>,
}

impl DeviceClock {
    /// The clock of the host that the device's clock is compared with.
    pub(crate) fn host_clock(&self) -> HostClock {
        let clock = self.clock.get();
        clock.map_or(HostClock::Monotonic, Clock::host_clock)
    }
}

/// The number of differences whose common divisor counts as the counter's step.
///
/// Two or three differences often have several steps in common.
const ENOUGH_DIFFERENCES: u32 = 6;

/// The readings of one counter.
pub(crate) struct Readings {
    pub(crate) rounds: Rounds,
    /// The common divisor of all differences between readings, in ticks. The counter advances by
    /// multiples of it. 0 until two readings differ.
    step: u64,
    /// The number of these differences, up to [`ENOUGH_DIFFERENCES`].
    differences: u32,
    latest: u64,
}

impl Readings {
    pub(crate) fn new(counter: Counter, first: u64) -> Self {
        Self {
            rounds: Rounds::new(counter),
            step: 0,
            differences: 0,
            latest: first,
        }
    }

    /// Adds a reading.
    pub(crate) fn add(&mut self, ticks: u64) {
        let before = std::mem::replace(&mut self.latest, ticks);
        let between = self.rounds.counter().valid(ticks.wrapping_sub(before));
        self.step = common_divisor(self.step, between);
        if between > 0 {
            self.differences = ENOUGH_DIFFERENCES.min(self.differences + 1);
        }
    }

    /// True once enough readings differed to know the step.
    pub(crate) const fn is_step_known(&self) -> bool {
        self.differences == ENOUGH_DIFFERENCES
    }

    /// The length of the counter's step in nanoseconds, rounded up.
    pub(crate) fn step_length(&self) -> u64 {
        let ticks = self.step.max(1) as f64;
        (ticks * self.rounds.counter().period()).ceil() as u64
    }
}

/// Euclid's algorithm.
const fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
