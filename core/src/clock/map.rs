//! Conversion between a device's clock and the host's, with a bound of the error.

use std::collections::VecDeque;

use super::estimate::Estimate;
use super::sample::Sample;

/// The assumed limit of the drift between two clocks of one machine: 500 parts per million.
///
/// `ntpd`, and the frequency of `adjtimex`, change the speed of the host's monotonic clock by up to
/// this.
const MAX_DRIFT: Range = Range {
    low: -500e-6,
    high: 500e-6,
};

/// The assumed distance between the drift of any interval and the mean present drift.
///
/// Half a part per million: the clock discipline corrects by that much now and then.
pub(super) const WANDER: f64 = 0.5e-6;

/// The growth of [`WANDER`] with the distance of the interval from the present.
///
/// A twentieth of a part per million per second. Quartz oscillators change with their temperature,
/// by tenths of a part per million per degree.
const WANDER_PER_NANOSECOND: f64 = 0.05e-6 / 1e9;

/// The upper limit of [`WANDER`] with its growth: 15 parts per million.
///
/// NTP allows that for any clock between two corrections (RFC 5905, PHI).
const MAX_WANDER: f64 = 15e-6;

/// The number of samples that a map keeps.
const KEPT: usize = 32;

/// How much faster the host's clock runs than the device's, in parts per million.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// 1 if the host counts 1 000 001 while the device counts 1 000 000.
    pub ppm: f64,
    /// The largest distance from the true drift, in both directions.
    pub error_ppm: f64,
}

/// A closed interval. Empty if `low` is above `high`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn intersect(self, other: Self) -> Self {
        Self {
            low: self.low.max(other.low),
            high: self.high.min(other.high),
        }
    }

    fn is_empty(self) -> bool {
        self.low > self.high
    }

    fn widen(self, by: f64) -> Self {
        Self {
            low: self.low - by,
            high: self.high + by,
        }
    }
}

/// The conversion between a device's clock and the host's clock, computed from samples of both.
///
/// A sample gives the time of the device's clock, and an interval for the host's clock at that
/// moment. Away from the sample the interval grows with the drift. All pairs of samples together
/// limit the drift. So each sample gives an interval for every time, and the truth lies in all of
/// these intervals. The result is the middle of their intersection, and its error is half of the
/// width. The error is smallest between two samples.
///
/// Conversions by one map keep the order of times. Added samples may move results within their
/// errors.
///
/// The errors are bounds under these conditions:
///
/// - The deviations of the samples are bounds.
/// - No program sets one of the clocks.
/// - The speeds of the clocks differ by at most 500 parts per million. A clock discipline that
///   changes the host's clock faster than that (`chronyd` may after its start) breaks this
///   condition for that time.
/// - The drift changes slowly. The drift over any interval lies within 0.5 parts per million of a
///   present drift, plus 0.05 for each second that the interval reaches away from the latest
///   sample, up to 15.
/// - The machine is not suspended between a sample and the converted time. During a suspension the
///   host's clock stands still, and the device's clock may go on.
///
/// A map keeps 32 samples. The older they are, the further they lie apart. Together they cover the
/// last fifty samples or so. For earlier times the error grows with the distance, by up to 15 parts
/// per million of it. A [trace](crate::trace::Trace) keeps what it needs of earlier samples.
///
/// If a new sample contradicts these conditions, the map forgets the earlier samples. From then on,
/// results are right again. Errors of earlier results, and of conversions of earlier times, may
/// then be no bounds.
#[derive(Debug, Clone, Default)]
pub struct Map {
    samples: VecDeque<Sample>,
    /// The mean present drifts that all pairs of samples allow.
    drifts: Range,
    /// True if the device's clock is the host's clock.
    exact: bool,
}

impl Map {
    /// The map of a clock to itself. It needs no samples.
    #[must_use]
    pub fn exact() -> Self {
        Self {
            exact: true,
            ..Self::default()
        }
    }

    /// Adds the latest sample. Forgets earlier samples that contradict it.
    ///
    /// A contradiction means that a clock was set, or has changed its speed.
    pub fn add(&mut self, sample: Sample) {
        if self.exact {
            return;
        }
        // Compares the intervals of the host's times and not their middles, because a deviation can
        // be large.
        let follows = |last: &Sample| {
            let both = last.deviation.saturating_add(sample.deviation);
            let ahead = last.host.saturating_sub(sample.host);
            last.device <= sample.device && ahead <= i64::try_from(both).unwrap_or(i64::MAX)
        };
        if !self.samples.back().is_none_or(follows) {
            self.samples.clear();
        }
        if self.samples.capacity() <= KEPT {
            self.samples.reserve(KEPT + 1 - self.samples.len());
        }
        self.samples.push_back(sample);
        if self.samples.len() > KEPT {
            // Of each pair in the older half, the sample with the smaller deviation stays. So older
            // samples lie further apart.
            let samples = self.samples.make_contiguous();
            for kept in 0..KEPT / 4 {
                if let [first, second, ..] = samples[2 * kept..] {
                    samples[kept] = if second.deviation < first.deviation {
                        second
                    } else {
                        first
                    };
                }
            }
            self.samples.drain(KEPT / 4..KEPT / 2);
        }
        self.drifts = self.allowed();
        while self.drifts.is_empty() && self.samples.pop_front().is_some() {
            self.drifts = self.allowed();
        }
    }

    /// The device's time of the latest sample.
    pub(super) fn latest(&self) -> Option<i64> {
        Some(self.samples.back()?.device)
    }

    /// The device's time of the earliest kept sample.
    pub(super) fn earliest(&self) -> Option<i64> {
        Some(self.samples.front()?.device)
    }

    /// How far a time of the device lies after the latest sample, in nanoseconds.
    ///
    /// Negative for a time before that sample. 0 if the map is exact. `None` without a sample.
    #[must_use]
    pub fn beyond(&self, device: i64) -> Option<i64> {
        self.after_latest(device, |sample| sample.device)
    }

    /// How far a time of the host lies after the latest sample. See [`Map::beyond`].
    pub(super) fn beyond_host(&self, host: i64) -> Option<i64> {
        self.after_latest(host, |sample| sample.host)
    }

    fn after_latest(&self, time: i64, on: impl Fn(&Sample) -> i64) -> Option<i64> {
        if self.exact {
            return Some(0);
        }
        Some(time.saturating_sub(on(self.samples.back()?)))
    }

    /// The host's time when the device's clock shows `device`; `None` before the first sample.
    #[must_use]
    pub fn to_host(&self, device: i64) -> Option<Estimate> {
        let ends = |sample: &Sample| (sample.device, sample.host);
        self.convert(device, ends, |drift| drift, |_| 1.0)
    }

    /// The device's time when the host's clock shows `host`; `None` before the first sample.
    #[must_use]
    pub fn to_device(&self, host: i64) -> Option<Estimate> {
        // 1 / (1 + d) - 1. The larger drift becomes the smaller one.
        let inverse = |drift: Range| Range {
            low: -drift.high / (1.0 + drift.high),
            high: -drift.low / (1.0 + drift.low),
        };
        // A deviation is an interval of the host's clock. It is longer on the device's clock if
        // that clock is faster.
        let scale = |drift: Range| 1.0 + drift.high.max(0.0);
        let ends = |sample: &Sample| (sample.host, sample.device);
        self.convert(host, ends, inverse, scale)
    }

    /// The drift at the time of the latest sample; `None` before the first one.
    #[must_use]
    pub fn drift(&self) -> Option<Drift> {
        if self.exact {
            return Some(Drift {
                ppm: 0.0,
                error_ppm: 0.0,
            });
        }
        self.samples.back()?;
        let Range { low, high } = self.drifts_within(0.0);
        Some(Drift {
            ppm: f64::midpoint(low, high) * 1e6,
            error_ppm: (high - low) / 2.0 * 1e6,
        })
    }

    /// Converts `time` in one of the two directions.
    ///
    /// `ends` returns a sample's times on the source clock and on the target clock.
    /// `target_drift` converts the drift of the host's clock to that of the target clock. `scale`
    /// converts a sample's deviation to the target clock.
    fn convert(
        &self,
        time: i64,
        ends: impl Fn(&Sample) -> (i64, i64),
        target_drift: impl Fn(Range) -> Range,
        scale: impl Fn(Range) -> f64,
    ) -> Option<Estimate> {
        if self.exact {
            return Some(Estimate {
                nanoseconds: time,
                error: 0,
            });
        }
        let newest = self.samples.back()?;
        // Computes with differences from the newest sample. They are small, so `f64` is exact
        // enough.
        let (from, to) = ends(newest);
        let mut common = Range {
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
        };
        for sample in &self.samples {
            let (at, shown) = ends(sample);
            let passed = time.saturating_sub(at) as f64;
            let reach = from.abs_diff(at).max(from.abs_diff(time)) as f64;
            let drift = target_drift(self.drifts_within(reach));
            let drifted = if passed < 0.0 {
                Range {
                    low: passed * drift.high,
                    high: passed * drift.low,
                }
            } else {
                Range {
                    low: passed * drift.low,
                    high: passed * drift.high,
                }
            };
            // How far this sample's result is ahead of the newest sample's result without drift.
            let offset = shown
                .saturating_sub(to)
                .saturating_sub(at.saturating_sub(from)) as f64;
            let deviation = sample.deviation as f64 * scale(drift);
            common = common.intersect(Range {
                low: offset + drifted.low - deviation,
                high: offset + drifted.high + deviation,
            });
        }
        // Never empty, except by rounding. For each pair of samples there is a line through both
        // intervals whose drift both allow, so every two intervals overlap. Intervals that overlap
        // in pairs have a common intersection.
        let middle = f64::midpoint(common.low, common.high);
        let error = (common.high - common.low).abs() / 2.0;
        let without_drift = to.saturating_add(time.saturating_sub(from));
        Some(Estimate {
            nanoseconds: without_drift.saturating_add(middle.round() as i64),
            // Plus one for the rounding.
            error: (error.ceil() as u64).saturating_add(1),
        })
    }

    /// The drifts that an interval may have which reaches `reach` nanoseconds away from the latest
    /// sample.
    fn drifts_within(&self, reach: f64) -> Range {
        self.drifts.widen(wander(reach)).intersect(MAX_DRIFT)
    }

    /// The mean present drifts that all pairs of samples allow.
    ///
    /// Uses all pairs, because any of them may be the pair with the small deviations.
    fn allowed(&self) -> Range {
        let newest = self.samples.back().map_or(0, |newest| newest.device);
        let mut range = MAX_DRIFT;
        for (at, late) in self.samples.iter().enumerate() {
            for early in self.samples.range(..at) {
                let slope = slope(early, late).intersect(MAX_DRIFT);
                if slope.is_empty() {
                    return slope;
                }
                let reach = newest.abs_diff(early.device) as f64;
                range = range.intersect(slope.widen(wander(reach)));
            }
        }
        range
    }
}

/// The largest distance of an interval's drift from the mean present drift.
///
/// The interval reaches `reach` nanoseconds away from the present.
pub(super) fn wander(reach: f64) -> f64 {
    (WANDER + reach * WANDER_PER_NANOSECOND).min(MAX_WANDER)
}

/// The drifts that two samples allow.
///
/// Any drift, if the device's clock shows the same time in both and the host's clock may, too.
fn slope(early: &Sample, late: &Sample) -> Range {
    let passed = late.device.saturating_sub(early.device);
    let gained = late.host.saturating_sub(early.host).saturating_sub(passed) as f64;
    let deviation = early.deviation.saturating_add(late.deviation) as f64;
    // If `passed` is 0, the limits are infinite or NaN. Neither sets a bound.
    Range {
        low: (gained - deviation) / passed as f64,
        high: (gained + deviation) / passed as f64,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::clock::truth::{STEADY, Truth, deviations, truth};

    proptest! {
        /// For times before, between and after the samples.
        #[test]
        fn the_error_is_a_bound(
            truth in truth(),
            samples in prop::collection::vec((0_i64..2_000_000_000, deviations(), -1.0..=1.0), 1..80),
            asked in prop::collection::vec(-1_000_000_000_i64..150_000_000_000, 1..40),
        ) {
            let (mut map, mut at) = (Map::default(), 0);
            for (later, deviation, off) in samples {
                at += later;
                map.add(truth.sample(at, deviation, off));
            }
            for device in asked {
                let host = truth.host(device);
                let there = map.to_host(device).unwrap();
                // The truth has 53 bits and is rounded.
                let slack = 1.0;
                let off = (there.nanoseconds as f64 - host).abs();
                prop_assert!(off <= there.error as f64 + slack, "{there:?} {host} {device} {at}");
                let back = map.to_device(host.round() as i64).unwrap();
                let off = back.nanoseconds.abs_diff(device);
                prop_assert!(off as f64 <= back.error as f64 + slack, "{back:?} {device} {at}");
            }
        }

        #[test]
        fn conversions_keep_the_order_of_times(
            truth in truth(),
            samples in prop::collection::vec((1_i64..2_000_000_000, 0_u64..5_000, -1.0..1.0), 1..40),
            asked in prop::collection::vec(0_i64..60_000_000_000, 2..40),
        ) {
            let (mut map, mut at) = (Map::default(), 0);
            for (later, deviation, off) in samples {
                at += later;
                map.add(truth.sample(at, deviation, off));
            }
            let mut asked = asked;
            asked.sort_unstable();
            for pair in asked.windows(2) {
                let [early, late] = [pair[0], pair[1]].map(|at| map.to_host(at).unwrap());
                prop_assert!(early.nanoseconds <= late.nanoseconds, "{early:?} {late:?}");
            }
        }
    }

    #[test]
    fn a_map_without_samples_converts_nothing() {
        let map = Map::default();
        assert_eq!(map.to_host(5), None);
        assert_eq!(map.to_device(5), None);
        assert_eq!(map.drift(), None);
    }

    #[test]
    fn one_sample_allows_the_largest_drift() {
        let mut map = Map::default();
        map.add(STEADY.sample(1_000, 100, 0.5));
        assert!(map.to_host(1_000).unwrap().error <= 103);
        // 500 ppm of a second.
        let later = map.to_host(1_000_001_000).unwrap();
        assert!((500_000..501_000).contains(&later.error), "{later:?}");
    }

    #[test]
    fn many_samples_determine_the_drift() {
        let mut map = Map::default();
        for at in 0..600 {
            map.add(STEADY.sample(at * 100_000_000, 2_000, ((at % 7) as f64 - 3.0) / 3.0));
        }
        let drift = map.drift().unwrap();
        assert!((drift.ppm - 20.0).abs() <= drift.error_ppm, "{drift:?}");
        assert!(drift.error_ppm < 0.8, "{drift:?}");
        let now = map.to_host(59_950_000_000).unwrap();
        assert!(now.error < 2_200, "{now:?}");
        assert!(map.samples.len() <= KEPT);
    }

    #[rstest]
    #[case::few(30)]
    #[case::more_than_are_kept(200)]
    fn good_samples_between_wide_ones_determine_the_drift(#[case] count: i64) {
        let mut map = Map::default();
        for at in 0..count {
            let good = (5..count - 5).contains(&at) && at % 3 == 0;
            let deviation = if good { 500 } else { 3_000_000 };
            map.add(STEADY.sample(at * 100_000_000, deviation, 0.9));
        }
        let drift = map.drift().unwrap();
        assert!((drift.ppm - 20.0).abs() <= drift.error_ppm, "{drift:?}");
        assert!(drift.error_ppm < 2.0, "{drift:?}");
        let now = map.to_host((count - 1) * 100_000_000).unwrap();
        assert!(now.error < 2_500, "{now:?}");
    }

    #[rstest]
    #[case::too_early(-1.0)]
    #[case::too_late(1.0)]
    fn a_wide_sample_does_not_enlarge_the_error(#[case] off: f64) {
        let mut map = Map::default();
        for at in 0..20 {
            map.add(STEADY.sample(at * 100_000_000, 1_000, 0.0));
        }
        // The host was interrupted for 6 ms. The next good sample comes 1 ms later.
        map.add(STEADY.sample(2_000_000_000, 3_000_000, off));
        let wide = map.to_host(2_000_000_500).unwrap();
        assert!(wide.error < 1_500, "{wide:?}");
        map.add(STEADY.sample(2_001_000_000, 1_000, 0.0));
        let good = map.to_host(2_001_000_500).unwrap();
        assert!(good.error < 1_500, "{good:?}");
        let drift = map.drift().unwrap();
        assert!(drift.error_ppm < 2.0, "{drift:?}");
    }

    #[test]
    fn a_deviation_is_larger_on_a_faster_device_clock() {
        let slow = Truth {
            ppm: -400.0,
            ..STEADY
        };
        let mut map = Map::default();
        let sample = slow.sample(5_000_000_000, 100_000_000, -1.0);
        map.add(sample);
        // The deviation is 40 µs longer on the device's clock.
        let back = map.to_device(sample.host).unwrap();
        let (early, off) = (
            sample.host + 100_000_000,
            back.nanoseconds.abs_diff(sample.device),
        );
        assert!((slow.host(5_000_000_000) - early as f64).abs() < 1.0);
        let there = map.to_device(early).unwrap();
        assert!(
            there.nanoseconds.abs_diff(5_000_000_000) <= there.error,
            "{there:?}"
        );
        assert!(off <= back.error, "{back:?}");
        assert!(back.error >= 100_040_000, "{back:?}");
    }

    /// A driver may report any values.
    #[test]
    fn samples_with_the_largest_deviation_give_the_largest_error() {
        let mut map = Map::default();
        for (device, host) in [(5, 7), (i64::MAX, i64::MIN), (i64::MIN, i64::MAX), (3, 4)] {
            map.add(Sample {
                device,
                host,
                deviation: u64::MAX,
            });
            for time in [i64::MIN, 0, i64::MAX] {
                assert!(map.to_host(time).unwrap().error > u64::MAX / 4);
                assert!(map.to_device(time).unwrap().error > u64::MAX / 4);
            }
        }
    }

    #[test]
    fn a_repeated_device_time_does_not_discard_samples() {
        let mut map = Map::default();
        for at in 0..20 {
            map.add(STEADY.sample(at * 100_000_000, 1_000, 0.0));
        }
        let before = map.drift().unwrap().error_ppm;
        let last = STEADY.sample(1_900_000_000, 1_000, 0.0);
        // The device's clock shows one value for a microsecond.
        map.add(Sample {
            host: last.host + 900,
            ..last
        });
        assert!(map.drift().unwrap().error_ppm <= before);
        // The intersection of both intervals is 1.1 µs wide.
        let now = map.to_host(last.device).unwrap();
        assert!(now.error < 600, "{now:?}");
    }

    #[rstest]
    #[case::just_above_plus_500_ppm(500.3)]
    #[case::far_above_plus_500_ppm(600.0)]
    #[case::just_below_minus_500_ppm(-500.3)]
    #[case::far_below_minus_500_ppm(-600.0)]
    fn a_drift_beyond_the_limit_keeps_the_error_large(#[case] ppm: f64) {
        // A short period, so that the cosine has almost no effect.
        let fast = Truth {
            ppm,
            period: 1.0,
            ..STEADY
        };
        let mut map = Map::default();
        for at in 0..10 {
            map.add(fast.sample(at * 1_000_000_000, 10, 0.0));
        }
        // The same error as after a first sample: 500 ppm of ten seconds.
        let later = map.to_host(19_000_000_000).unwrap();
        assert!(later.error > 4_990_000, "{later:?}");
    }

    /// A GPU that begins to work warms like this for minutes: 0.04 ppm per second.
    #[rstest]
    #[case::samples_every_100_ms(100_000_000)]
    #[case::samples_every_second(1_000_000_000)]
    #[case::samples_every_10_s(10_000_000_000)]
    fn the_error_is_a_bound_while_the_drift_changes_slowly(#[case] every: i64) {
        let warming = Truth {
            warming: 0.04,
            ..STEADY
        };
        let mut map = Map::default();
        for at in 0..200_000_000_000 / every {
            map.add(warming.sample(at * every, 1_000, 0.0));
            for beyond in [every, 10_000_000_000, 60_000_000_000] {
                let device = at * every + beyond;
                let there = map.to_host(device).unwrap();
                let off = (there.nanoseconds as f64 - warming.host(device)).abs();
                assert!(off <= there.error as f64, "{off} {there:?} {at} {beyond}");
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_is_followed_at_once() {
        let mut map = Map::default();
        for at in 0..10 {
            map.add(STEADY.sample(at * 100_000_000, 1_000, 0.0));
        }
        let set = Truth {
            offset: 7_000_000_000,
            ..STEADY
        };
        map.add(set.sample(1_000_000_000, 1_000, 0.0));
        let now = map.to_host(1_000_000_000).unwrap();
        assert!((now.nanoseconds as f64 - set.host(1_000_000_000)).abs() <= now.error as f64);
        // The clock is set back.
        map.add(STEADY.sample(1_100_000_000, 1_000, 0.0));
        let now = map.to_host(1_100_000_000).unwrap();
        assert!((now.nanoseconds as f64 - STEADY.host(1_100_000_000)).abs() <= now.error as f64);
    }
}
