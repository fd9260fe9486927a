//! Finds out whether the clocks of two APIs are one clock.
//!
//! Two APIs on one GPU usually read the same counter, but no API reports that. So it is measured.
//! If the two are one clock, both show the same time at every moment. The difference of two samples
//! is then 0 within their error.
//!
//! Two counters with different starts could show the same within some microseconds only by chance.
//! Two counters that were set to the same time drift apart again. So the comparison is repeated
//! while its result is used.

use std::time::{Duration, Instant};

use super::comparison::{Comparison, Finding};
use super::device_clock::Clock;
use crate::base::error::Result;

/// The number of measurements that must agree before two clocks are found to be one, or two.
const MEASUREMENTS: u32 = 3;

/// True if a result of the time `at` needs no new measurement yet.
fn is_current(found: Comparison, at: Instant) -> bool {
    found.finding == Finding::Two || at.elapsed() < Clock::COMPARE_AGAIN
}

impl Clock {
    /// The largest error in nanoseconds of a measurement from which two clocks are found to be one.
    pub const CLOSE: u64 = 50_000;
    /// The time after which two clocks are measured again, unless they were found to be two.
    pub const COMPARE_AGAIN: Duration = Duration::from_secs(1);

    /// Measures whether this clock and `other` are one clock, as those of CUDA and Vulkan may be.
    ///
    /// A measurement samples both clocks together with the host's clock. The first comparison makes
    /// up to three measurements. After [`Clock::COMPARE_AGAIN`], a comparison makes one
    /// measurement, or up to three if it is inexact or contradicts the earlier result. Before that
    /// time, it returns the earlier result. Clocks of different GPUs, and clocks that were found to
    /// be two, are not sampled.
    ///
    /// # Errors
    /// A driver error if a clock cannot be sampled and there is no earlier result.
    pub fn compare(&self, other: &Self) -> Result<Comparison> {
        self.compared(other, true)
    }

    /// Compares like [`Clock::compare`].
    ///
    /// With `again`, samples a clock also during the pause after a failed sample. That may take as
    /// long as the failed sample took.
    pub(super) fn compared(&self, other: &Self, again: bool) -> Result<Comparison> {
        if self.is_same(other) {
            return Ok(Comparison {
                ahead: 0,
                error: 0,
                finding: Finding::One,
            });
        }
        if !self.is_comparable(other) {
            return Ok(Comparison::unmeasured(Finding::Two));
        }
        let swapped = !self.stores_comparisons_with(other);
        let (first, second) = if swapped {
            (other, self)
        } else {
            (self, other)
        };
        let found = match first.latest_comparison(second) {
            Some((found, at)) if is_current(found, at) => found,
            before => {
                let before = before.map(|(found, _)| found);
                let failure = || first.recent_failure().or_else(|| second.recent_failure());
                let measured = match failure().filter(|_| !again) {
                    Some(error) => Err(error),
                    None => first.measure(second, before.is_some_and(|found| found.are_one())),
                };
                match measured {
                    Ok(found) => {
                        first.remember_comparison(second, found);
                        found
                    }
                    Err(error) => before.ok_or(error)?,
                }
            }
        };
        Ok(if swapped {
            Comparison {
                ahead: found.ahead.saturating_neg(),
                ..found
            }
        } else {
            found
        })
    }

    /// True if the two can be one clock: one GPU, and one clock of the host.
    fn is_comparable(&self, other: &Self) -> bool {
        let gpus = [self, other].map(|clock| clock.gpu());
        gpus[0].is_some() && gpus[0] == gpus[1] && self.host_clock() == other.host_clock()
    }

    /// Makes up to [`MEASUREMENTS`] measurements.
    ///
    /// `were_one`: the two were found to be one before. A single exact measurement then confirms
    /// it.
    fn measure(&self, other: &Self, were_one: bool) -> Result<Comparison> {
        let (mut equal, mut different) = (0, 0);
        let mut found = Comparison::unmeasured(Finding::Unknown);
        for measurements in 1..=MEASUREMENTS {
            found = self.measure_once(other)?;
            match found.finding {
                Finding::One => equal += 1,
                Finding::Two => different += 1,
                Finding::Unknown => {}
            }
            if were_one && equal == 1 && different == 0 {
                return Ok(found);
            }
            let inexact = equal + different < measurements;
            if (equal > 0 && different > 0) || (inexact && !were_one) {
                break;
            }
        }
        found.finding = match (equal, different) {
            (MEASUREMENTS, _) => Finding::One,
            (_, MEASUREMENTS) => Finding::Two,
            _ => Finding::Unknown,
        };
        Ok(found)
    }

    fn measure_once(&self, other: &Self) -> Result<Comparison> {
        let (mine, its) = (self.sample()?.sample, other.sample()?.sample);
        // Both are converted at the later of the two moments. Each map has a sample just before it.
        let at = mine.host.max(its.host);
        let (mine, its) = (self.to_device(at)?, other.to_device(at)?);
        let ahead = its.nanoseconds.saturating_sub(mine.nanoseconds);
        let error = mine.error.saturating_add(its.error);
        let finding = if ahead.unsigned_abs() > error {
            Finding::Two
        } else if error > Self::CLOSE {
            Finding::Unknown
        } else {
            Finding::One
        };
        Ok(Comparison {
            ahead,
            error,
            finding,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use rstest::rstest;

    use super::*;
    use crate::backend::Sampler;
    use crate::base::error::{Error, Object};
    use crate::base::info::Uuid;
    use crate::base::sync::Mutex;
    use crate::clock::{Axis, Elapsed, HostClock, Sample, Time};

    /// A clock that is ahead of the host's clock by a given time.
    struct Synthetic {
        /// In nanoseconds. With `i64::MAX`, sampling fails.
        ahead: Arc<AtomicI64>,
        deviation: u64,
        /// The error of each sample, as a part of its deviation, from -1 to 1.
        off: f64,
        gpu: Option<Uuid>,
        host: HostClock,
    }

    impl Sampler for Synthetic {
        fn sample(&self) -> Result<Sample> {
            let now = self.host.now();
            let ahead = self.ahead.load(Ordering::SeqCst);
            if ahead == i64::MAX {
                return Err(Error::clock_silent(
                    Object::new("clock", "synthetic"),
                    Duration::ZERO,
                    "the test says so",
                ));
            }
            Ok(Sample {
                device: now + ahead,
                host: now + (self.deviation as f64 * self.off) as i64,
                deviation: self.deviation,
            })
        }

        fn host_clock(&self) -> HostClock {
            self.host
        }

        fn resolution(&self) -> u64 {
            32
        }

        fn gpu(&self) -> Option<Uuid> {
            self.gpu
        }
    }

    const GPU: Option<Uuid> = Some(Uuid([7; 16]));
    const FAR: i64 = 1_700_000_000_000_000_000;

    fn clock(ahead: i64, deviation: u64, off: f64, gpu: Option<Uuid>) -> (Clock, Arc<AtomicI64>) {
        let ahead = Arc::new(AtomicI64::new(ahead));
        let sampler = Synthetic {
            ahead: ahead.clone(),
            deviation,
            off,
            gpu,
            host: HostClock::Monotonic,
        };
        (
            Clock::new(Object::new("clock", "synthetic"), sampler),
            ahead,
        )
    }

    /// A clock with a given lead and deviation for each sample.
    ///
    /// After the script ends, the lead is [`FAR`] and the deviation 900 ns. The host's clock is
    /// simulated: each sample advances it by a microsecond.
    #[derive(Clone, Default)]
    struct Scripted {
        script: Arc<Mutex<VecDeque<(i64, u64)>>>,
        asked: Arc<AtomicI64>,
        host: Arc<AtomicI64>,
    }

    impl Scripted {
        /// Two such clocks on one host clock, and the sampler of the second.
        fn pair() -> (Clock, Clock, Self) {
            let host = Arc::default();
            let [one, other] = [(); 2].map(|()| Self {
                host: Arc::clone(&host),
                ..Self::default()
            });
            (one.clock(), other.clock(), other)
        }

        fn set_script(&self, script: &[(i64, u64)]) {
            *self.script.lock() = script.iter().copied().collect();
        }

        /// The number of samples since the last call.
        fn asked(&self) -> i64 {
            self.asked.swap(0, Ordering::SeqCst)
        }

        fn clock(&self) -> Clock {
            Clock::new(Object::new("clock", "scripted"), self.clone())
        }
    }

    impl Sampler for Scripted {
        fn sample(&self) -> Result<Sample> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let (ahead, deviation) = self.script.lock().pop_front().unwrap_or((FAR, 900));
            let host = self.host.fetch_add(1_000, Ordering::SeqCst);
            Ok(Sample {
                device: host + ahead,
                host,
                deviation,
            })
        }

        fn gpu(&self) -> Option<Uuid> {
            GPU
        }
    }

    /// Lets the latest comparisons be older than [`Clock::COMPARE_AGAIN`].
    fn expire_comparisons(clocks: [&Clock; 2]) {
        for clock in clocks {
            clock.age_comparisons(2 * Clock::COMPARE_AGAIN);
        }
    }

    fn times(one: &Clock, other: &Clock) -> (Time, Time) {
        (
            Time::new(one.clone(), FAR + 1_000),
            Time::new(other.clone(), FAR + 5_000),
        )
    }

    #[test]
    fn two_clocks_over_one_counter_are_found_to_be_one() {
        let (cuda, vulkan) = (clock(FAR, 900, 0.8, GPU).0, clock(FAR, 2_800, -0.9, GPU).0);
        let found = cuda.compare(&vulkan).unwrap();
        assert_eq!(found.finding, Finding::One, "{found:?}");
        assert!(found.error >= 3_700, "{found:?}");
        let (start, end) = times(&cuda, &vulkan);
        let forward = end.since(&start).unwrap();
        let exact = Elapsed {
            nanoseconds: 4_000,
            error: 64,
            axis: Axis::One,
        };
        assert_eq!(forward, exact);
        assert_eq!(start.since(&end).unwrap().nanoseconds, -4_000);
        let itself = start.since(&start).unwrap();
        assert_eq!((itself.nanoseconds, itself.axis), (0, Axis::Same));
    }

    #[rstest]
    #[case::of_another_gpu(FAR, Some(Uuid([8; 16])))]
    #[case::of_no_gpu(FAR, None)]
    #[case::ahead_by_more_than_both_errors(FAR + 20_000, GPU)]
    fn times_of_two_clocks_are_compared_on_the_host_clock(
        #[case] ahead: i64,
        #[case] gpu: Option<Uuid>,
    ) {
        let ours = clock(FAR, 900, 0.0, GPU).0;
        let other = clock(ahead, 900, 0.0, gpu).0;
        for (one, two) in [(&ours, &other), (&other, &ours)] {
            assert_eq!(one.compare(two).unwrap().finding, Finding::Two);
            let (start, end) = times(one, two);
            let elapsed = end.since(&start).unwrap();
            assert_eq!(elapsed.axis, Axis::Host);
            assert!(elapsed.error >= 1_800, "{elapsed:?}");
        }
    }

    /// The deviation is above [`Clock::CLOSE`].
    #[test]
    fn times_of_a_coarse_clock_are_compared_on_the_host_clock() {
        let ours = || clock(FAR, 900, 0.0, GPU).0;
        let coarse = clock(FAR, 60_000, 0.0, GPU).0;
        let found = ours().compare(&coarse).unwrap();
        assert_eq!(found.finding, Finding::Unknown);
        let (start, end) = times(&ours(), &coarse);
        assert_eq!(end.since(&start).unwrap().axis, Axis::Host);
    }

    /// A counter that was set to the same time once. The next measurement finds that, and it is
    /// final.
    #[test]
    fn clocks_that_drift_apart_later_are_found_to_be_two() {
        let (one, (other, ahead)) = (clock(FAR, 900, 0.0, GPU).0, clock(FAR, 900, 0.0, GPU));
        assert!(one.compare(&other).unwrap().are_one());
        ahead.fetch_add(100_000, Ordering::SeqCst);
        assert!(one.compare(&other).unwrap().are_one(), "measured too soon");
        expire_comparisons([&one, &other]);
        assert_eq!(one.compare(&other).unwrap().finding, Finding::Two);
        ahead.fetch_sub(100_000, Ordering::SeqCst);
        expire_comparisons([&one, &other]);
        assert_eq!(other.compare(&one).unwrap().finding, Finding::Two);
    }

    /// A scripted sample that agrees with the other clock.
    const RIGHT: (i64, u64) = (FAR, 900);
    /// A scripted sample that contradicts the other clock.
    const OFF: (i64, u64) = (FAR + 100_000, 900);

    /// Three consecutive contradictions are final. One or two are not.
    #[rstest]
    #[case::in_the_first_sample(&[OFF])]
    #[case::in_the_second_sample(&[RIGHT, OFF])]
    #[case::in_the_third_sample(&[RIGHT, RIGHT, OFF])]
    #[case::in_the_first_two_samples(&[OFF, OFF, RIGHT])]
    fn a_single_contradiction_is_not_final(#[case] first: &[(i64, u64)]) {
        let (one, other, scripted) = Scripted::pair();
        scripted.set_script(first);
        assert_eq!(one.compare(&other).unwrap().finding, Finding::Unknown);
        expire_comparisons([&one, &other]);
        assert!(one.compare(&other).unwrap().are_one());
        for later in [&[OFF][..], &[OFF, OFF]] {
            expire_comparisons([&one, &other]);
            scripted.set_script(later);
            assert_eq!(
                one.compare(&other).unwrap().finding,
                Finding::Unknown,
                "{later:?}"
            );
            expire_comparisons([&one, &other]);
            assert!(one.compare(&other).unwrap().are_one(), "{later:?}");
        }
        expire_comparisons([&one, &other]);
        scripted.set_script(&[OFF; 3]);
        assert_eq!(one.compare(&other).unwrap().finding, Finding::Two);
    }

    /// An inexact result is not measured again for each pair of times, but after `COMPARE_AGAIN`.
    #[test]
    fn an_unknown_result_is_kept_for_a_while() {
        let (one, other, scripted) = Scripted::pair();
        let coarse = (FAR, 2 * Clock::CLOSE);
        scripted.set_script(&[coarse]);
        let (start, end) = times(&one, &other);
        assert_eq!(end.since(&start).unwrap().axis, Axis::Host);
        assert_eq!(scripted.asked(), 1);
        for _ in 0..20 {
            assert_eq!(end.since(&start).unwrap().axis, Axis::Host);
            assert_eq!(other.compare(&one).unwrap().finding, Finding::Unknown);
        }
        assert_eq!(scripted.asked(), 0);
        expire_comparisons([&one, &other]);
        assert_eq!(end.since(&start).unwrap().axis, Axis::One);
        assert_eq!(scripted.asked(), 3);
        // The third measurement is exact and confirms the result. The map is emptied, because with
        // its earlier samples a measurement would not be coarse.
        expire_comparisons([&one, &other]);
        other.forget_samples();
        scripted.set_script(&[coarse, coarse]);
        assert_eq!(end.since(&start).unwrap().axis, Axis::One);
        assert_eq!(scripted.asked(), 3);
        // No measurement is exact.
        expire_comparisons([&one, &other]);
        other.forget_samples();
        scripted.set_script(&[coarse, coarse, coarse]);
        assert_eq!(end.since(&start).unwrap().axis, Axis::Host);
        assert_eq!(scripted.asked(), 3);
    }

    #[rstest]
    #[case::of_no_gpu(None)]
    #[case::of_another_gpu(Some(Uuid([8; 16])))]
    fn clocks_of_different_gpus_are_not_sampled(#[case] gpu: Option<Uuid>) {
        let scripted = Scripted::default();
        let other = scripted.clock();
        let one = clock(FAR, 900, 0.0, gpu).0;
        for (one, other) in [(&one, &other), (&other, &one)] {
            let found = one.compare(other).unwrap();
            assert_eq!((found.finding, found.error), (Finding::Two, u64::MAX));
        }
        assert_eq!(scripted.asked(), 0);
    }

    #[test]
    fn a_failed_sample_leaves_the_earlier_result() {
        let (one, (other, ahead)) = (clock(FAR, 900, 0.0, GPU).0, clock(FAR, 900, 0.0, GPU));
        ahead.store(i64::MAX, Ordering::SeqCst);
        assert!(matches!(
            one.compare(&other),
            Err(Error::ClockSilent { .. })
        ));
        let (start, end) = times(&one, &other);
        assert!(matches!(end.since(&start), Err(Error::ClockSilent { .. })));
        ahead.store(FAR, Ordering::SeqCst);
        assert!(one.compare(&other).unwrap().are_one());
        ahead.store(i64::MAX, Ordering::SeqCst);
        expire_comparisons([&one, &other]);
        assert_eq!(end.since(&start).unwrap().axis, Axis::One);
    }

    #[test]
    fn a_failing_clock_is_not_sampled_for_each_comparison() {
        struct Silent(Arc<AtomicI64>);
        impl Sampler for Silent {
            fn sample(&self) -> Result<Sample> {
                self.0.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                Err(Error::clock_silent(
                    Object::new("clock", "silent"),
                    Duration::from_millis(20),
                    "the test says so",
                ))
            }
        }
        let asked = Arc::new(AtomicI64::new(0));
        let silent = Clock::new(Object::new("clock", "silent"), Silent(asked.clone()));
        let (start, end) = times(&clock(FAR, 900, 0.0, GPU).0, &silent);
        let started = Instant::now();
        for _ in 0..20 {
            assert!(matches!(end.since(&start), Err(Error::ClockSilent { .. })));
        }
        // One sample of 20 ms, and another one after each pause of 200 ms.
        let most = 1 + started.elapsed().as_millis() as i64 / 200;
        let asked = asked.load(Ordering::SeqCst);
        assert!(asked <= most, "{asked} samples, at most {most}");
    }

    #[test]
    fn times_with_different_host_clocks_are_not_compared() {
        let raw = Synthetic {
            ahead: Arc::new(AtomicI64::new(FAR)),
            deviation: 900,
            off: 0.0,
            gpu: GPU,
            host: HostClock::MonotonicRaw,
        };
        let raw = Clock::new(Object::new("clock", "raw"), raw);
        let (start, end) = times(&clock(FAR, 900, 0.0, GPU).0, &raw);
        assert!(matches!(end.since(&start), Err(Error::Unsupported { .. })));
    }
}
