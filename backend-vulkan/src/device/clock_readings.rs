//! The readings of a device's counter.

use std::sync::OnceLock;

use syncline_core::Result;
use syncline_core::backend::kit::{Mutex, Rounds, TimestampCounter, get_or_make};
use syncline_core::clock::{Clock, HostClock, Sample};

/// The clock of a device, and the readings of its counter.
#[derive(Default)]
pub(crate) struct DeviceClock {
    /// See [`PhysicalDevice::host_clock`](crate::device::physical::PhysicalDevice::host_clock).
    calibrated_with: Option<HostClock>,
    /// Made by the first call that needs it.
    clock: OnceLock<Clock>,
    readings: Mutex<Option<Readings>>,
}

impl DeviceClock {
    pub(crate) fn new(calibrated_with: Option<HostClock>) -> Self {
        Self {
            calibrated_with,
            ..Self::default()
        }
    }

    /// The clock of the host that the driver calibrates together with the device's clock.
    pub(crate) const fn calibrated_with(&self) -> Option<HostClock> {
        self.calibrated_with
    }

    /// The clock, if it was made.
    pub(crate) fn get(&self) -> Option<&Clock> {
        self.clock.get()
    }

    /// The clock. Calls `make` if there is none.
    ///
    /// If another thread stores a clock first, returns that clock.
    ///
    /// # Errors
    /// The error of `make`.
    pub(crate) fn get_or_make(&self, make: impl FnOnce() -> Result<Clock>) -> Result<&Clock> {
        get_or_make(&self.clock, make)
    }

    /// The clock of the host that the device's clock is compared with.
    pub(crate) fn host_clock(&self) -> HostClock {
        let clock = self.clock.get();
        clock.map_or(HostClock::Monotonic, Clock::host_clock)
    }

    /// Adds a reading of `counter`, taken in the way `by`.
    pub(crate) fn add(&self, counter: TimestampCounter, by: ReadBy, ticks: u64) {
        let mut readings = self.readings.lock();
        let readings = readings.get_or_insert_with(|| Readings::new(counter));
        readings.steps[by as usize].add(counter, ticks);
    }

    /// True once enough readings of this kind differed to know the step of the counter.
    pub(crate) fn is_step_known(&self, by: ReadBy) -> bool {
        let readings = self.readings.lock();
        let readings = readings.as_ref();
        readings.is_some_and(|readings| readings.steps[by as usize].is_known())
    }

    /// The step of the counter in nanoseconds, rounded up, as far as readings have shown it.
    pub(crate) fn step_length(&self) -> u64 {
        let readings = self.readings.lock();
        readings.as_ref().map_or(1, Readings::step_length)
    }

    /// Converts a sample of ticks to one of nanoseconds, from which later times are counted.
    ///
    /// Adds the steps of both clocks to the deviation. `host` is the clock of the host.
    pub(crate) fn follow(
        &self,
        counter: TimestampCounter,
        host: HostClock,
        ticks: Sample,
    ) -> Sample {
        let reading = ticks.device.cast_unsigned();
        let mut readings = self.readings.lock();
        let readings = readings.get_or_insert_with(|| Readings::new(counter));
        let steps = readings.step_length().saturating_add(host.resolution());
        Sample {
            device: readings.rounds.follow(reading, ticks.host),
            host: ticks.host,
            deviation: ticks.deviation.saturating_add(steps),
        }
    }

    /// Converts a time with the rounds of the counter. `None` if the counter was never read.
    pub(crate) fn convert(&self, time: impl FnOnce(&Rounds) -> Option<i64>) -> Option<i64> {
        let readings = self.readings.lock();
        time(&readings.as_ref()?.rounds)
    }

    /// Replaces all readings by one: `ticks`, read at `host` on the host's clock.
    #[cfg(test)]
    pub(crate) fn reset(&self, counter: TimestampCounter, ticks: u64, host: i64) {
        let mut readings = Readings::new(counter);
        readings.rounds.follow(ticks, host);
        *self.readings.lock() = Some(readings);
    }
}

/// The way in which a counter was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadBy {
    /// By the driver, together with the host's clock.
    Driver,
    /// By a queue, which wrote the value.
    Queue,
}

/// The number of differences whose common divisor counts as the counter's step.
///
/// Two or three differences often have several steps in common.
const ENOUGH_DIFFERENCES: u32 = 6;

/// The readings of one counter.
struct Readings {
    rounds: Rounds,
    /// The steps that each kind of readings has shown, in the order of [`ReadBy`].
    ///
    /// A driver may read another counter than the one that its queues write.
    steps: [Steps; 2],
}

/// The steps of a counter, seen in one way.
#[derive(Default)]
struct Steps {
    /// The common divisor of all differences between readings, in ticks. The counter advances by
    /// multiples of it. 0 until two readings differ.
    step: u64,
    /// The number of these differences, up to [`ENOUGH_DIFFERENCES`].
    differences: u32,
    latest: Option<u64>,
}

impl Readings {
    fn new(counter: TimestampCounter) -> Self {
        Self {
            rounds: Rounds::new(counter),
            steps: Default::default(),
        }
    }

    /// The length of the counter's step in nanoseconds, rounded up.
    ///
    /// The longest known step. Before any is known, the longest step that readings allow.
    fn step_length(&self) -> u64 {
        let known = self.steps.iter().filter(|steps| steps.is_known());
        let all = self.steps.iter();
        let longest = known.map(|steps| steps.step).max();
        let longest = longest.or_else(|| all.map(|steps| steps.step).max());
        let ticks = longest.unwrap_or(0).max(1) as f64;
        (ticks * self.rounds.counter().period()).ceil() as u64
    }
}

impl Steps {
    /// Adds a reading.
    fn add(&mut self, counter: TimestampCounter, ticks: u64) {
        let before = self.latest.replace(ticks).unwrap_or(ticks);
        let between = counter.valid(ticks.wrapping_sub(before));
        self.step = common_divisor(self.step, between);
        if between > 0 {
            self.differences = ENOUGH_DIFFERENCES.min(self.differences + 1);
        }
    }

    /// True once enough readings differed to know the step.
    const fn is_known(&self) -> bool {
        self.differences == ENOUGH_DIFFERENCES
    }
}

/// Euclid's algorithm.
const fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
