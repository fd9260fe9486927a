//! Checks calibrated readings of a device's clock by times that the device has written.
//!
//! A driver that reads both clocks at once may read another counter than the one that queues write.
//! It then states a small deviation, and each time is wrong by the distance between the counters. A
//! written time before its submission, or after it was seen written, is impossible and shows that.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::estimate::Estimate;
use super::map::Map;
use super::sample::{Sample, Sampler};
use crate::base::error::Result;
use crate::base::sync::{AtomicBool, Mutex, Ordering};

/// The number of consecutive contradictions after which calibrated readings are refused.
///
/// A single one may come from a machine that was suspended between the two readings.
const CONTRADICTIONS: u32 = 3;

/// How long a check waits for a written time if no sample may be used without it.
const REQUIRED_WITHIN: Duration = Duration::from_millis(250);
/// How long a repeated check waits. A check behind other work of the device is skipped.
const REPEATED_WITHIN: Duration = Duration::from_millis(2);

/// The largest deviation of a written time that can confirm calibrated readings, in nanoseconds.
///
/// A round trip to a device that switches between two APIs takes 0.3 ms.
const CONCLUSIVE: u64 = 500_000;
/// How long a required check tries to get such a time on a busy machine.
const TRIED_FOR: Duration = Duration::from_millis(50);

/// Whether calibrated readings of a clock are of the counter that the device writes.
#[derive(Default)]
pub(super) struct Check {
    /// When readings were last checked, or a repeated check was skipped.
    last: Mutex<Option<Instant>>,
    /// Set by an impossible time, until the next check.
    doubted: AtomicBool,
    /// Why calibrated readings are not used any more.
    refused: OnceLock<String>,
}

impl Check {
    /// The time after which calibrated readings are checked again.
    pub(super) const AGAIN: Duration = Duration::from_secs(5);

    /// Why calibrated readings are refused, if they are.
    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.get().map(String::as_str)
    }

    /// Requires a check before any sample is used again.
    pub(super) fn doubt(&self) {
        // No doubt remains about refused readings.
        self.doubted
            .store(self.refused.get().is_none(), Ordering::Release);
    }

    /// True if an impossible time was found, and no check has been made since.
    pub(super) fn is_doubted(&self) -> bool {
        self.doubted.load(Ordering::Acquire)
    }

    /// Lets the last check be older by `age`.
    #[cfg(test)]
    pub(super) fn age(&self, age: Duration) {
        let mut last = self.last.lock();
        *last = last.and_then(|at| at.checked_sub(age));
    }

    /// Takes a sample that may be used: a calibrated one of a checked clock, or a written time.
    ///
    /// Calls `forget` if earlier samples must not be used any more. Called by one thread at a time.
    ///
    /// # Errors
    /// A driver error, or that of a required check that could not be made.
    pub(super) fn sample(&self, sampler: &dyn Sampler, forget: impl Fn()) -> Result<Sample> {
        if self.refused.get().is_some() {
            let written = sampler.written(REQUIRED_WITHIN);
            return written.unwrap_or_else(|| sampler.sample());
        }
        let mut sample = sampler.sample()?;
        let last = *self.last.lock();
        let doubted = self.is_doubted();
        let mut required = doubted || last.is_none();
        if !required && last.is_some_and(|at| at.elapsed() < Self::AGAIN) {
            return Ok(sample);
        }
        let mut found = String::new();
        for _ in 0..CONTRADICTIONS {
            let written = match written(sampler, required) {
                Some(Ok(written)) => written,
                Some(Err(error)) if required => return Err(error),
                Some(Err(_)) => {
                    *self.last.lock() = Some(Instant::now());
                    return Ok(sample);
                }
                // No written time can contradict the sample.
                None => return Ok(sample),
            };
            match contradiction(sample, written) {
                Some(contradiction) => found = contradiction,
                None if !required || written.deviation <= CONCLUSIVE => {
                    *self.last.lock() = Some(Instant::now());
                    if doubted {
                        self.doubted.store(false, Ordering::Release);
                        forget();
                    }
                    return Ok(sample);
                }
                None => {
                    // The calibrated sample may be as wrong as the written one is inexact.
                    if doubted {
                        forget();
                    }
                    return Ok(written);
                }
            }
            // Whether the contradiction is an accident must be known now.
            required = true;
            sample = sampler.sample()?;
        }
        let _ = self.refused.set(found);
        self.doubted.store(false, Ordering::Release);
        forget();
        let written = sampler.written(REQUIRED_WITHIN);
        written.unwrap_or(Ok(sample))
    }
}

/// The written time with the smallest deviation of several, if the device writes any.
///
/// A repeated check that is not required takes one.
fn written(sampler: &dyn Sampler, required: bool) -> Option<Result<Sample>> {
    if !required {
        return sampler.written(REPEATED_WITHIN);
    }
    let started = Instant::now();
    let mut best: Option<Sample> = None;
    loop {
        match (sampler.written(REQUIRED_WITHIN)?, best) {
            (Ok(written), None) => best = Some(written),
            (Ok(written), Some(last)) if written.deviation < last.deviation => {
                best = Some(written);
            }
            (Err(error), None) => return Some(Err(error)),
            _ => {}
        }
        let enough = best.is_some_and(|best| best.deviation <= CONCLUSIVE);
        if enough || started.elapsed() >= TRIED_FOR {
            return best.map(Ok);
        }
    }
}

/// Why a written time is impossible by a calibrated sample of the same moment, or `None`.
fn contradiction(calibrated: Sample, written: Sample) -> Option<String> {
    let mut map = Map::default();
    map.add(calibrated);
    let converted = map.to_host(written.device)?;
    let from = written.host.saturating_sub_unsigned(written.deviation);
    let to = written.host.saturating_add_unsigned(written.deviation);
    let apart = distance(converted, from, to)?;
    let side = if converted.nanoseconds < from {
        "before it was submitted"
    } else {
        "after it was seen written"
    };
    Some(format!(
        "its driver's calibrated timestamps are not of the clock that its queues write: by them, a \
         written time lies {apart:?} {side}, ± {:?}",
        Duration::from_nanos(converted.error)
    ))
}

/// How far an estimate lies outside of an interval, or `None` if its bound reaches the interval.
pub(super) fn distance(estimate: Estimate, from: i64, to: i64) -> Option<Duration> {
    let Estimate { nanoseconds, error } = estimate;
    let outside = if nanoseconds < from {
        from.abs_diff(nanoseconds)
    } else if nanoseconds > to {
        nanoseconds.abs_diff(to)
    } else {
        0
    };
    (outside > error).then(|| Duration::from_nanos(outside))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use rstest::rstest;

    use super::*;
    use crate::base::error::{Error, Object};
    use crate::clock::{Clock, HostClock};

    /// The device's clock is ahead of the host's by this.
    const FAR: i64 = 1_700_000_000_000_000_000;
    /// A written time is seen and submitted by this much more than it takes to read a clock.
    const HALF_A_TRIP: i64 = 20_000;
    const FIVE_MS: i64 = 5_000_000;

    /// How the device answers for written times.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Written {
        InTime,
        /// Behind other work.
        Late,
        Never,
    }

    /// A driver whose calibrated readings are off by nanoseconds that a test sets.
    #[derive(Clone)]
    struct Driver(Arc<Mutex<State>>);

    struct State {
        /// For the next readings. After the last one, readings are off by `off`.
        script: VecDeque<i64>,
        off: i64,
        written: Written,
        half_a_trip: i64,
        /// Number of written times that were asked for.
        asked: u32,
    }

    impl Driver {
        fn new(off: i64, written: Written) -> (Clock, Self) {
            let state = State {
                script: VecDeque::new(),
                off,
                written,
                half_a_trip: HALF_A_TRIP,
                asked: 0,
            };
            let driver = Self(Arc::new(Mutex::new(state)));
            let clock = Clock::new(Object::new("clock", "test"), driver.clone());
            (clock, driver)
        }
    }

    impl Sampler for Driver {
        fn sample(&self) -> Result<Sample> {
            let mut state = self.0.lock();
            let off = state.script.pop_front().unwrap_or(state.off);
            let now = self.host_clock().now();
            Ok(Sample {
                device: now + FAR + off,
                host: now,
                deviation: 11,
            })
        }

        fn written(&self, within: Duration) -> Option<Result<Sample>> {
            let mut state = self.0.lock();
            state.asked += 1;
            let before = self.host_clock().now();
            let device = self.host_clock().now() + FAR;
            let after = self.host_clock().now();
            match state.written {
                Written::InTime => Some(Ok(Sample::between(
                    before - state.half_a_trip,
                    device,
                    after + state.half_a_trip,
                ))),
                Written::Late => {
                    let reason = "it is a test";
                    let silent = Error::clock_silent(Object::new("clock", "test"), within, reason);
                    Some(Err(silent))
                }
                Written::Never => None,
            }
        }
    }

    /// Checks that the clock converts the present within its bound, and the bound is useful.
    #[track_caller]
    fn converts_the_present(clock: &Clock) {
        let before = HostClock::Monotonic.now();
        let device = HostClock::Monotonic.now() + FAR;
        let after = HostClock::Monotonic.now();
        let host = clock.to_host(device).unwrap();
        assert_eq!(distance(host, before, after), None, "{host:?} {before}");
    }

    #[rstest]
    #[case::ahead(FIVE_MS)]
    #[case::behind(-FIVE_MS)]
    #[case::far_ahead(11_850_000_000)]
    #[case::far_behind(-11_850_000_000)]
    fn readings_of_another_clock_are_refused_before_the_first_is_used(#[case] off: i64) {
        let (clock, _) = Driver::new(off, Written::InTime);
        let sampled = clock.sample().unwrap();
        assert!(clock.refused_calibration().is_some());
        assert!(sampled.sample.deviation >= HALF_A_TRIP.unsigned_abs());
        converts_the_present(&clock);
        clock.sample().unwrap();
        converts_the_present(&clock);
    }

    #[rstest]
    #[case::the_same_clock(0, Written::InTime)]
    #[case::within_the_round_trip(HALF_A_TRIP / 2, Written::InTime)]
    #[case::no_written_times_to_contradict(FIVE_MS, Written::Never)]
    fn other_readings_are_used(#[case] off: i64, #[case] written: Written) {
        let (clock, driver) = Driver::new(off, written);
        let started = Instant::now();
        for _ in 0..10 {
            assert_eq!(clock.sample().unwrap().sample.deviation, 11);
        }
        assert_eq!(clock.refused_calibration(), None);
        if written == Written::InTime {
            // Not for each sample.
            let most = 1 + started.elapsed().as_secs() / Check::AGAIN.as_secs();
            assert!(u64::from(driver.0.lock().asked) <= most);
        }
    }

    #[test]
    fn readings_that_go_wrong_later_are_refused_by_the_next_check() {
        let (clock, driver) = Driver::new(0, Written::InTime);
        clock.sample().unwrap();
        driver.0.lock().off = FIVE_MS;
        clock.age_check(2 * Check::AGAIN);
        // The earlier samples are not used with the new ones.
        assert_eq!(clock.sample().unwrap().expected, None);
        assert!(clock.refused_calibration().is_some());
        converts_the_present(&clock);
    }

    /// The device or the machine is so busy that a written time would hide the difference.
    #[test]
    fn readings_that_no_check_confirms_are_not_used() {
        let (clock, driver) = Driver::new(FIVE_MS, Written::InTime);
        driver.0.lock().half_a_trip = 2 * FIVE_MS;
        let sampled = clock.sample().unwrap();
        assert!(sampled.sample.deviation >= 2 * FIVE_MS.unsigned_abs());
        assert_eq!(clock.refused_calibration(), None);
        converts_the_present(&clock);
        driver.0.lock().half_a_trip = HALF_A_TRIP;
        clock.sample().unwrap();
        assert!(clock.refused_calibration().is_some());
        converts_the_present(&clock);
    }

    #[test]
    fn an_accident_is_no_reason_to_refuse() {
        let (clock, driver) = Driver::new(0, Written::InTime);
        driver.0.lock().script = [FIVE_MS, -FIVE_MS].into();
        assert_eq!(clock.sample().unwrap().sample.deviation, 11);
        assert_eq!(clock.refused_calibration(), None);
        converts_the_present(&clock);
    }

    #[rstest]
    #[case::before_its_submission(1)]
    #[case::after_it_was_seen(-1)]
    fn an_impossible_time_is_checked_before_it_is_converted(#[case] side: i64) {
        let (clock, driver) = Driver::new(0, Written::InTime);
        clock.sample().unwrap();
        let now = HostClock::Monotonic.now();
        clock.seen(now + FAR, now - 1_000_000, now + 1_000_000);
        assert!(clock.to_monotonic(now + FAR).is_some());
        let off = side * FIVE_MS;
        driver.0.lock().off = off;
        clock.sample().unwrap();
        let now = HostClock::Monotonic.now();
        clock.seen(now + FAR, now - 1_000_000, now + 1_000_000);
        assert_eq!(clock.to_monotonic(now + FAR), None);
        converts_the_present(&clock);
        assert!(clock.refused_calibration().is_some());
    }

    #[test]
    fn a_doubt_without_a_reason_costs_a_check() {
        let (clock, driver) = Driver::new(0, Written::InTime);
        clock.sample().unwrap();
        let now = HostClock::Monotonic.now();
        clock.seen(now + FAR, now + 1_000_000, now + 2_000_000);
        converts_the_present(&clock);
        assert_eq!(clock.refused_calibration(), None);
        assert!(driver.0.lock().asked >= 2);
    }

    #[test]
    fn readings_are_not_used_before_their_first_check() {
        let (clock, driver) = Driver::new(0, Written::Late);
        assert!(matches!(clock.sample(), Err(Error::ClockSilent { .. })));
        assert!(matches!(clock.to_host(FAR), Err(Error::ClockSilent { .. })));
        driver.0.lock().written = Written::InTime;
        clock.sample().unwrap();
        // Later checks are skipped behind other work.
        driver.0.lock().written = Written::Late;
        clock.age_check(2 * Check::AGAIN);
        clock.sample().unwrap();
        assert_eq!(driver.0.lock().asked, 3);
        converts_the_present(&clock);
        // A doubt is not.
        let now = HostClock::Monotonic.now();
        clock.seen(now + FAR, now + 1_000_000, now + 2_000_000);
        assert!(matches!(clock.to_host(FAR), Err(Error::ClockSilent { .. })));
    }
}
