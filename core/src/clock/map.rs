//! From one clock to another, with a bound of the error.

use std::collections::VecDeque;

use super::Sample;

/// The most by which the speeds of two clocks of one machine are taken to differ: 500 parts per million, which is also how
/// much faster or slower a system's clock discipline makes the host's monotonic clock.
const MOST_DRIFT: f64 = 500e-6;

/// How much the drift at any one moment is taken to differ from a middle one, either way: half a part per million. Quartzes
/// change with their temperature, and the clock discipline corrects now and then.
const WANDER: f64 = 0.5e-6;

/// So many samples are kept.
const KEPT: usize = 32;

/// A time on the clock that was asked for, and how far it may be off, in nanoseconds.
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
#[derive(Debug, Clone, Copy, Default)]
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
/// have in common, and its error is half of that. It is least between two samples, and the answer never goes backwards.
#[derive(Debug, Clone, Default)]
pub struct Map {
    samples: VecDeque<Sample>,
    /// The middle drifts that all pairs of samples allow.
    drifts: Range,
}

impl Map {
    /// Takes in what was read now. Earlier samples that contradict it are forgotten: a clock has been set, or runs at another
    /// speed than it did.
    pub fn add(&mut self, sample: Sample) {
        // What both hosts' times may really have been: of a wide sample the middle says little.
        let follows = |last: &Sample| {
            let both = last.deviation.saturating_add(sample.deviation);
            let ahead = last.host.saturating_sub(sample.host);
            last.device < sample.device && ahead <= i64::try_from(both).unwrap_or(i64::MAX)
        };
        if !self.samples.back().is_none_or(follows) {
            self.samples.clear();
        }
        self.samples.push_back(sample);
        if self.samples.len() > KEPT {
            // Of every two of the older half the better one stays, so that they lie the further apart the older they are.
            let older: Vec<_> = self.samples.drain(..KEPT / 2).collect();
            for pair in older.chunks(2).rev() {
                if let Some(better) = pair.iter().min_by_key(|sample| sample.deviation) {
                    self.samples.push_front(*better);
                }
            }
        }
        self.drifts = self.allowed();
        while self.drifts.is_empty() && self.samples.pop_front().is_some() {
            self.drifts = self.allowed();
        }
    }

    /// How far beyond the latest sample a time of the device lies, in nanoseconds; negative if before it, `None` if there is no
    /// sample.
    #[must_use]
    pub fn beyond(&self, device: i64) -> Option<i64> {
        Some(device.saturating_sub(self.samples.back()?.device))
    }

    /// As [`Map::beyond`], for a time of the host.
    #[must_use]
    pub fn beyond_host(&self, host: i64) -> Option<i64> {
        Some(host.saturating_sub(self.samples.back()?.host))
    }

    /// What the host's clock shows when the device's shows `device`; `None` before the first sample.
    #[must_use]
    pub fn to_host(&self, device: i64) -> Option<Estimate> {
        self.convert(device, |sample| (sample.device, sample.host), |drift| drift)
    }

    /// What the device's clock shows when the host's shows `host`; `None` before the first sample.
    #[must_use]
    pub fn to_device(&self, host: i64) -> Option<Estimate> {
        // 1 / (1 + d) - 1; the greater drift is the lesser one the other way round.
        let other_way = |drift: Range| Range {
            low: -drift.high / (1.0 + drift.high),
            high: -drift.low / (1.0 + drift.low),
        };
        self.convert(host, |sample| (sample.host, sample.device), other_way)
    }

    /// The drift over the time of the samples; `None` before the first one.
    #[must_use]
    pub fn drift(&self) -> Option<Drift> {
        self.samples.back()?;
        let Range { low, high } = self.drifts;
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
    ) -> Option<Estimate> {
        let newest = self.samples.back()?;
        let most = Range {
            low: -MOST_DRIFT,
            high: MOST_DRIFT,
        };
        let drift = way(self.drifts.wider(WANDER).both(most));
        // Relative to what the newest sample says, as differences are small where times are large.
        let (from, to) = ends(newest);
        let mut common = Range {
            low: f64::NEG_INFINITY,
            high: f64::INFINITY,
        };
        for sample in &self.samples {
            let (at, shown) = ends(sample);
            let passed = time.saturating_sub(at) as f64;
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
            let deviation = sample.deviation as f64;
            common = common.both(Range {
                low: beside + parted.low - deviation,
                high: beside + parted.high + deviation,
            });
        }
        // Empty only where drift has wandered further than it is taken to: then what both say.
        let middle = f64::midpoint(common.low, common.high);
        let error = (common.high - common.low).abs() / 2.0;
        let equal = to.saturating_add(time.saturating_sub(from));
        Some(Estimate {
            nanoseconds: equal.saturating_add(middle.round() as i64),
            // One more for the rounding.
            error: error.ceil() as u64 + 1,
        })
    }

    /// What all pairs of samples allow: any of them may be the good ones.
    fn allowed(&self) -> Range {
        let mut range = Range {
            low: -MOST_DRIFT,
            high: MOST_DRIFT,
        };
        for (at, late) in self.samples.iter().enumerate() {
            for early in self.samples.range(..at) {
                range = range.both(slope(early, late).wider(WANDER));
            }
        }
        range
    }
}

/// Which drifts two samples allow, the later one second.
fn slope(early: &Sample, late: &Sample) -> Range {
    let passed = late.device.saturating_sub(early.device);
    let gained = late.host.saturating_sub(early.host).saturating_sub(passed) as f64;
    let deviation = early.deviation.saturating_add(late.deviation) as f64;
    Range {
        low: (gained - deviation) / passed as f64,
        high: (gained + deviation) / passed as f64,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two clocks whose relation is known: the host's gains `ppm` on the device's, and wanders by as much as is
    /// allowed, a whole round each `period` nanoseconds.
    #[derive(Debug, Clone, Copy)]
    struct Truth {
        offset: i64,
        ppm: f64,
        period: f64,
    }

    impl Truth {
        fn host(self, device: i64) -> f64 {
            let turn = std::f64::consts::TAU * device as f64 / self.period;
            // Its speed differs by the derivative of this.
            let wander = WANDER * self.period / std::f64::consts::TAU * turn.sin();
            self.offset as f64 + device as f64 * (1.0 + self.ppm * 1e-6) + wander
        }

        /// A sample that is off by `off` of its deviation, from -1 to 1.
        fn sample(self, device: i64, deviation: u64, off: f64) -> Sample {
            let host = self.host(device) + off * deviation as f64;
            Sample {
                device,
                host: host.round() as i64,
                // One more for the rounding.
                deviation: deviation + 1,
            }
        }
    }

    fn truth() -> impl Strategy<Value = Truth> {
        (-1_000_000_000_i64..1_000_000_000, -200.0..200.0, 1e9..1e11).prop_map(
            |(offset, ppm, period)| Truth {
                offset,
                ppm,
                period,
            },
        )
    }

    proptest! {
        /// Whatever is sampled, early or late, well or badly: the truth lies within the bound, before, between and beyond.
        #[test]
        fn the_bound_holds(
            truth in truth(),
            samples in prop::collection::vec((1_i64..2_000_000_000, 0_u64..5_000, -1.0..1.0), 1..80),
            asked in prop::collection::vec(-1_000_000_000_i64..90_000_000_000, 1..40),
        ) {
            let (mut map, mut at) = (Map::default(), 0);
            for (later, deviation, off) in samples {
                at += later;
                map.add(truth.sample(at, deviation, off));
            }
            for device in asked {
                let host = truth.host(device);
                let there = map.to_host(device).unwrap();
                // The truth is computed in 53 bits.
                let slack = 64.0;
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

    const STEADY: Truth = Truth {
        offset: 5_000_000,
        ppm: 20.0,
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
        assert!(drift.error_ppm < 0.6, "{drift:?}");
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
            assert!(drift.error_ppm < 1.5, "{looks}: {drift:?}");
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
