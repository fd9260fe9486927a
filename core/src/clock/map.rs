//! From one clock to another, with a bound of the error.

use std::collections::VecDeque;

use super::Sample;

/// The most by which the speeds of two clocks of one machine are taken to differ: 500 parts per million, which is also by
/// how much `ntpd`, and the frequency of `adjtimex`, make the host's monotonic clock faster or slower.
const MOST_DRIFT: Range = Range {
    low: -500e-6,
    high: 500e-6,
};

/// How much the drift of some stretch of time is taken to differ from a middle one of the present, either way: half a part per
/// million, as the clock discipline corrects now and then, ...
const WANDER: f64 = 0.5e-6;

/// ... and a twentieth of one more for each second that the stretch reaches away from the present, as quartzes
/// change with their temperature, by tenths of one for each degree, ...
const WANDER_PER_NANOSECOND: f64 = 0.05e-6 / 1e9;

/// ... up to 15 parts per million, which NTP allows for any clock between two corrections (RFC 5905, PHI).
const MOST_WANDER: f64 = 15e-6;

/// So many samples are kept.
const KEPT: usize = 32;

/// A time on the clock that was asked for, and how far it may be off, in nanoseconds.
///
/// The bound rests on what [`Map`] says of clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// The time.
    pub nanoseconds: i64,
    /// The true time lies no further than this from it, either way.
    pub error: u64,
}

/// How much faster the host's clock runs than the device's, in parts per million.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// 1 if the host counts 1 000 001 where the device counts 1 000 000.
    pub ppm: f64,
    /// How far that may be off.
    pub error_ppm: f64,
}

/// From a lowest to a highest.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Range {
    low: f64,
    high: f64,
}

impl Range {
    fn both(self, other: Self) -> Self {
        Self {
            low: self.low.max(other.low),
            high: self.high.min(other.high),
        }
    }

    fn is_empty(self) -> bool {
        self.low > self.high
    }

    fn wider(self, by: f64) -> Self {
        Self {
            low: self.low - by,
            high: self.high + by,
        }
    }
}

/// What samples of two clocks say of how one goes beside the other.
///
/// Each sample says that the host's clock stood within its deviation of a value when the device's clock stood at another.
/// Away from a sample the two part with their drift, and how much that can be is what all pairs of samples say together. So
/// each sample gives an interval for every time, and the truth lies in all of them: the answer is the middle of what they
/// have in common, and its error is half of that. It is least between two samples. Of one map, answers are in the order of what was
/// asked; samples that are added may move them, within their errors.
///
/// The errors are bounds for samples whose deviations are, of clocks that nobody sets and that go on together:
///
/// - Their speeds differ by 500 parts per million at most (a discipline that turns the host's clock faster than that, as `chronyd` may after
///   a start, breaks this for as long), and hardly change from one second to the next: the drift over any stretch
///   of time is within 0.5 parts per million of a present one, and 0.05 more for each second that it reaches away from the latest sample,
///   up to 15.
/// - The machine is not suspended between a sample and the time asked for, during which the host's clock stands still and
///   the device's may not.
///
/// Of the samples 32 are kept, which lie the further apart the older they are and reach back over some fifty: a time before these is the less
/// well known the longer ago it is, by up to 15 parts per million of what lies between. A [trace](crate::trace::Trace) keeps what it needs of them.
///
/// If a later sample shows that they have not kept to this, the earlier ones are forgotten, so that answers are right again from
/// then on; what was answered before, and what is asked of times before, may be further off than it says.
#[derive(Debug, Clone, Default)]
pub struct Map {
    samples: VecDeque<Sample>,
    /// The middle drifts of the present that all pairs of samples allow.
    drifts: Range,
    /// Both are one clock.
    exact: bool,
}

impl Map {
    /// Of a clock beside itself: every time is itself, without samples.
    #[must_use]
    pub fn exact() -> Self {
        Self {
            exact: true,
            ..Self::default()
        }
    }

    /// Takes in what was read now. Earlier samples that contradict it are forgotten: a clock has been set, or runs at another
    /// speed than it did.
    pub fn add(&mut self, sample: Sample) {
        if self.exact {
            return;
        }
        // What both hosts' times may really have been: of a wide sample the middle says little.
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
            // Of every two of the older half the better one stays, so that they lie the further apart the older they are.
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

    /// The device's time of the earliest sample that is kept.
    pub(super) fn earliest(&self) -> Option<i64> {
        Some(self.samples.front()?.device)
    }

    /// How far beyond the latest sample a time of the device lies, in nanoseconds; negative if before it, 0 if the map is exact, `None` if
    /// there is no sample.
    #[must_use]
    pub fn beyond(&self, device: i64) -> Option<i64> {
        self.behind_latest(device, |sample| sample.device)
    }

    /// As [`Map::beyond`], for a time of the host.
    #[must_use]
    pub fn beyond_host(&self, host: i64) -> Option<i64> {
        self.behind_latest(host, |sample| sample.host)
    }

    fn behind_latest(&self, time: i64, on: impl Fn(&Sample) -> i64) -> Option<i64> {
        if self.exact {
            return Some(0);
        }
        Some(time.saturating_sub(on(self.samples.back()?)))
    }

    /// What the host's clock shows when the device's shows `device`; `None` before the first sample.
    #[must_use]
    pub fn to_host(&self, device: i64) -> Option<Estimate> {
        let ends = |sample: &Sample| (sample.device, sample.host);
        self.convert(device, ends, |drift| drift, |_| 1.0)
    }

    /// What the device's clock shows when the host's shows `host`; `None` before the first sample.
    #[must_use]
    pub fn to_device(&self, host: i64) -> Option<Estimate> {
        // 1 / (1 + d) - 1; the greater drift is the lesser one the other way round.
        let other_way = |drift: Range| Range {
            low: -drift.high / (1.0 + drift.high),
            high: -drift.low / (1.0 + drift.low),
        };
        // A deviation is the host's: the device's clock counts more meanwhile if it is the faster one.
        let deviate = |drift: Range| 1.0 + drift.high.max(0.0);
        let ends = |sample: &Sample| (sample.host, sample.device);
        self.convert(host, ends, other_way, deviate)
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

    fn convert(
        &self,
        time: i64,
        ends: impl Fn(&Sample) -> (i64, i64),
        way: impl Fn(Range) -> Range,
        deviate: impl Fn(Range) -> f64,
    ) -> Option<Estimate> {
        if self.exact {
            return Some(Estimate {
                nanoseconds: time,
                error: 0,
            });
        }
        let newest = self.samples.back()?;
        // Relative to what the newest sample says, as differences are small where times are large.
        let (from, to) = ends(newest);
        let mut common = Range {
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
        };
        for sample in &self.samples {
            let (at, shown) = ends(sample);
            let passed = time.saturating_sub(at) as f64;
            let reach = from.abs_diff(at).max(from.abs_diff(time)) as f64;
            let drift = way(self.drifts_within(reach));
            let parted = if passed < 0.0 {
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
            // Where this sample's line stands beside the newest one's at equal speed.
            let beside = shown
                .saturating_sub(to)
                .saturating_sub(at.saturating_sub(from)) as f64;
            let deviation = sample.deviation as f64 * deviate(drift);
            common = common.both(Range {
                low: beside + parted.low - deviation,
                high: beside + parted.high + deviation,
            });
        }
        // Never empty, but for rounding: a line through two of the samples' intervals, of a drift that both allow, is there for every pair, and
        // intervals of which every two have something in common all have.
        let middle = f64::midpoint(common.low, common.high);
        let error = (common.high - common.low).abs() / 2.0;
        let equal = to.saturating_add(time.saturating_sub(from));
        Some(Estimate {
            nanoseconds: equal.saturating_add(middle.round() as i64),
            // One more for the rounding.
            error: (error.ceil() as u64).saturating_add(1),
        })
    }

    /// The drifts that a stretch of time may have that reaches so many nanoseconds away from the latest sample.
    fn drifts_within(&self, reach: f64) -> Range {
        self.drifts.wider(wander(reach)).both(MOST_DRIFT)
    }

    /// What all pairs of samples allow: any of them may be the good ones.
    fn allowed(&self) -> Range {
        let newest = self.samples.back().map_or(0, |newest| newest.device);
        let mut range = MOST_DRIFT;
        for (at, late) in self.samples.iter().enumerate() {
            for early in self.samples.range(..at) {
                let slope = slope(early, late).both(MOST_DRIFT);
                if slope.is_empty() {
                    return slope;
                }
                let reach = newest.abs_diff(early.device) as f64;
                range = range.both(slope.wider(wander(reach)));
            }
        }
        range
    }
}

/// How much the drift of a stretch of time that reaches so many nanoseconds away from the present may differ from a middle one.
pub(super) fn wander(reach: f64) -> f64 {
    (WANDER + reach * WANDER_PER_NANOSECOND).min(MOST_WANDER)
}

/// Which drifts two samples allow, the later one second: all of them, if the device's clock shows the same in both and the host's may have, too.
fn slope(early: &Sample, late: &Sample) -> Range {
    let passed = late.device.saturating_sub(early.device);
    let gained = late.host.saturating_sub(early.host).saturating_sub(passed) as f64;
    let deviation = early.deviation.saturating_add(late.deviation) as f64;
    // Where nothing has passed these are infinite, or no numbers, which set no bound.
    Range {
        low: (gained - deviation) / passed as f64,
        high: (gained + deviation) / passed as f64,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two clocks whose relation is known: the host's gains `ppm` on the device's when that shows 0, and `warming` more
    /// each second; and it wanders by as much as is allowed at once, a whole round each `period` nanoseconds.
    #[derive(Debug, Clone, Copy)]
    pub(in crate::clock) struct Truth {
        pub(in crate::clock) offset: i64,
        pub(in crate::clock) ppm: f64,
        pub(in crate::clock) warming: f64,
        pub(in crate::clock) period: f64,
    }

    impl Truth {
        pub(in crate::clock) fn host(self, device: i64) -> f64 {
            let turn = std::f64::consts::TAU * device as f64 / self.period;
            // Its speed differs by the derivative of this.
            let wander = WANDER * self.period / std::f64::consts::TAU * turn.sin();
            let device = device as f64;
            let warmed = self.warming * 1e-15 * device * device / 2.0;
            self.offset as f64 + device * (1.0 + self.ppm * 1e-6) + warmed + wander
        }

        /// A sample that is off by `off` of its deviation, from -1 to 1.
        pub(in crate::clock) fn sample(self, device: i64, deviation: u64, off: f64) -> Sample {
            let host = self.host(device) + off * deviation as f64;
            Sample {
                device,
                host: host.round() as i64,
                // One more for the rounding.
                deviation: deviation + 1,
            }
        }
    }

    /// Those of good samples, and of wide ones.
    pub(in crate::clock) fn deviations() -> impl Strategy<Value = u64> {
        prop_oneof![0_u64..5_000, 1_000_000_u64..200_000_000]
    }

    pub(in crate::clock) fn truth() -> impl Strategy<Value = Truth> {
        let offsets = -1_000_000_000_i64..1_000_000_000;
        (offsets, -200.0..200.0, -0.05..0.05, 1e9..1e11).prop_map(
            |(offset, ppm, warming, period)| Truth {
                offset,
                ppm,
                warming,
                period,
            },
        )
    }

    proptest! {
        /// Whatever is sampled, early or late, well or badly: the truth lies within the bound, before, between and beyond.
        #[test]
        fn the_bound_holds(
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
                // The truth is computed in 53 bits, and rounded.
                let slack = 1.0;
                let off = (there.nanoseconds as f64 - host).abs();
                prop_assert!(off <= there.error as f64 + slack, "{there:?} {host} {device} {at}");
                let back = map.to_device(host.round() as i64).unwrap();
                let off = back.nanoseconds.abs_diff(device);
                prop_assert!(off as f64 <= back.error as f64 + slack, "{back:?} {device} {at}");
            }
        }

        #[test]
        fn time_never_goes_backwards(
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

    pub(in crate::clock) const STEADY: Truth = Truth {
        offset: 5_000_000,
        ppm: 20.0,
        warming: 0.0,
        period: 1e10,
    };

    #[test]
    fn before_the_first_sample_nothing_is_known() {
        let map = Map::default();
        assert_eq!(map.to_host(5), None);
        assert_eq!(map.to_device(5), None);
        assert_eq!(map.drift(), None);
    }

    #[test]
    fn one_sample_leaves_the_drift_open() {
        let mut map = Map::default();
        map.add(STEADY.sample(1_000, 100, 0.5));
        assert!(map.to_host(1_000).unwrap().error <= 103);
        // 500 ppm of a second.
        let later = map.to_host(1_000_001_000).unwrap();
        assert!((500_000..501_000).contains(&later.error), "{later:?}");
    }

    #[test]
    fn samples_find_the_drift_and_keep_the_error_small() {
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

    #[test]
    fn good_samples_between_wide_ones_tell_the_drift() {
        for looks in [30, 200] {
            let mut map = Map::default();
            for at in 0..looks {
                let good = (5..looks - 5).contains(&at) && at % 3 == 0;
                let deviation = if good { 500 } else { 3_000_000 };
                map.add(STEADY.sample(at * 100_000_000, deviation, 0.9));
            }
            let drift = map.drift().unwrap();
            assert!((drift.ppm - 20.0).abs() <= drift.error_ppm, "{drift:?}");
            assert!(drift.error_ppm < 2.0, "{looks}: {drift:?}");
            let now = map.to_host((looks - 1) * 100_000_000).unwrap();
            assert!(now.error < 2_500, "{looks}: {now:?}");
        }
    }

    #[test]
    fn a_wide_sample_takes_nothing_away() {
        for off in [-1.0, 1.0] {
            let mut map = Map::default();
            for at in 0..20 {
                map.add(STEADY.sample(at * 100_000_000, 1_000, 0.0));
            }
            // The host was interrupted for 6 ms, and the next good one comes 1 ms later.
            map.add(STEADY.sample(2_000_000_000, 3_000_000, off));
            let wide = map.to_host(2_000_000_500).unwrap();
            assert!(wide.error < 1_500, "{wide:?}");
            map.add(STEADY.sample(2_001_000_000, 1_000, 0.0));
            let good = map.to_host(2_001_000_500).unwrap();
            assert!(good.error < 1_500, "{good:?}");
            let drift = map.drift().unwrap();
            assert!(drift.error_ppm < 2.0, "{drift:?}");
        }
    }

    #[test]
    fn a_wide_bracket_is_the_wider_on_the_other_clock() {
        let slow = Truth {
            ppm: -400.0,
            ..STEADY
        };
        let mut map = Map::default();
        let sample = slow.sample(5_000_000_000, 100_000_000, -1.0);
        map.add(sample);
        // 40 µs more of the device's time than of the host's.
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

    /// A driver may say anything.
    #[test]
    fn what_says_nothing_is_as_wide_as_can_be() {
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
    fn a_clock_that_has_not_moved_since_makes_the_map_forget_nothing() {
        let mut map = Map::default();
        for at in 0..20 {
            map.add(STEADY.sample(at * 100_000_000, 1_000, 0.0));
        }
        let before = map.drift().unwrap().error_ppm;
        let last = STEADY.sample(1_900_000_000, 1_000, 0.0);
        // The device's clock shows the same for a microsecond.
        map.add(Sample {
            host: last.host + 900,
            ..last
        });
        assert!(map.drift().unwrap().error_ppm <= before);
        // What both say: from 100 ns before the one to 900 ns after it.
        let now = map.to_host(last.device).unwrap();
        assert!(now.error < 600, "{now:?}");
    }

    #[test]
    fn clocks_that_part_faster_than_taken_are_not_known_well() {
        for ppm in [500.3, 600.0, -500.3, -600.0] {
            // Which hardly wanders.
            let fast = Truth {
                ppm,
                period: 1.0,
                ..STEADY
            };
            let mut map = Map::default();
            for at in 0..10 {
                map.add(fast.sample(at * 1_000_000_000, 10, 0.0));
            }
            // As after a first sample: 500 ppm of ten seconds.
            let later = map.to_host(19_000_000_000).unwrap();
            assert!(later.error > 4_990_000, "{ppm}: {later:?}");
        }
    }

    /// As a GPU that has got work: four hundredths of a ppm each second, for minutes.
    #[test]
    fn a_drift_that_changes_slowly_stays_within_the_bound() {
        let warming = Truth {
            warming: 0.04,
            ..STEADY
        };
        for every in [100_000_000, 1_000_000_000, 10_000_000_000] {
            let mut map = Map::default();
            for at in 0..200_000_000_000 / every {
                map.add(warming.sample(at * every, 1_000, 0.0));
                for beyond in [every, 10_000_000_000, 60_000_000_000] {
                    let device = at * every + beyond;
                    let there = map.to_host(device).unwrap();
                    let off = (there.nanoseconds as f64 - warming.host(device)).abs();
                    assert!(
                        off <= there.error as f64,
                        "{off} {there:?} {at} {every} {beyond}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_clock_that_was_set_is_believed_at_once() {
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
        // And one that was set back.
        map.add(STEADY.sample(1_100_000_000, 1_000, 0.0));
        let now = map.to_host(1_100_000_000).unwrap();
        assert!((now.nanoseconds as f64 - STEADY.host(1_100_000_000)).abs() <= now.error as f64);
    }
}
