//! Medians and percentiles, and how surely a small difference is known.

use serde::{Deserialize, Serialize};

/// What many samples of one quantity say.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Half of the samples are below it.
    pub median: f64,
    /// A tenth of the samples are below it.
    pub p10: f64,
    /// A tenth of the samples are above it.
    pub p90: f64,
}

impl Summary {
    /// Of these samples, in any order; `None` of none.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Self {
            median: percentile(&sorted, 0.5)?,
            p10: percentile(&sorted, 0.1)?,
            p90: percentile(&sorted, 0.9)?,
        })
    }
}

/// The value below which the part `q` (0 to 1) of the samples lies, which are sorted; between two
/// samples it is interpolated.
#[must_use]
pub fn percentile(sorted: &[f64], q: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    let part = place - below as f64;
    Some(sorted[below] + (sorted[above] - sorted[below]) * part)
}

/// The median of these samples, in any order; `None` of none.
#[must_use]
pub fn median(samples: &[f64]) -> Option<f64> {
    Summary::of(samples).map(|summary| summary.median)
}

/// Where the middle of a quantity lies that is measured over and over, and how surely that is
/// known.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The middle.
    pub value: f64,
    /// It does not lie below, with a confidence of 99 %; minus infinity where there are too few
    /// samples to say.
    pub low: f64,
    /// It does not lie above, likewise.
    pub high: f64,
}

impl Estimate {
    /// Samples that follow each other are taken together, into so many groups at the most.
    const GROUPS: usize = 64;

    /// From these samples, in the order in which they were taken; `None` of none.
    ///
    /// A machine is disturbed in ways that last: what is slow now is slow a little later, too, so
    /// that samples are not independent of each other, and few of them are far off. So each stretch
    /// of time counts as one: by the mean of the middle half of its samples, which knows nothing of
    /// those that are far off. Of the stretches the estimate is Hodges and Lehmann's, the median of
    /// the means of every two of them, and the bounds are what Wilcoxon's signed ranks do not
    /// refuse: neither asks how the samples are distributed, only that a stretch is as likely too
    /// high as too low.
    #[must_use]
    pub fn of(samples: &[f64]) -> Option<Self> {
        let size = samples.len().div_ceil(Self::GROUPS).max(1);
        let groups: Vec<f64> = samples.chunks_exact(size).filter_map(midmean).collect();
        let count = groups.len();
        let mut means: Vec<f64> = Vec::with_capacity(count * (count + 1) / 2);
        for (at, one) in groups.iter().enumerate() {
            means.extend(groups[at..].iter().map(|other| f64::midpoint(*one, *other)));
        }
        means.sort_by(f64::total_cmp);
        let value = percentile(&means, 0.5)?;
        /// Of the normal distribution, which the sum of the ranks is close to: half a percent lies
        /// above.
        const Z: f64 = 2.576;
        let (n, all) = (count as f64, means.len() as f64);
        let deviation = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        let refused = (all / 2.0 - 0.5 - Z * deviation).floor();
        let (low, high) = if refused < 0.0 {
            (f64::NEG_INFINITY, f64::INFINITY)
        } else {
            let refused = refused as usize;
            (means[refused], means[means.len() - 1 - refused])
        };
        Some(Self { value, low, high })
    }

    /// How far the value may lie from the middle.
    #[must_use]
    pub fn uncertainty(&self) -> f64 {
        (self.high - self.value).max(self.value - self.low)
    }
}

/// The mean of the middle half of these samples.
fn midmean(samples: &[f64]) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quarter = sorted.len() / 4;
    let middle = &sorted[quarter..sorted.len() - quarter];
    (!middle.is_empty()).then(|| middle.iter().sum::<f64>() / middle.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random, the same in each run.
    struct Dice(u64);

    impl Dice {
        /// Evenly between 0 and 1.
        fn roll(&mut self) -> f64 {
            // Knuth's linear congruential generator; its upper bits are good enough for this.
            let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
            self.0 = next.wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// About normal, around 0, with a deviation of 1.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.roll()).sum::<f64>() - 6.0
        }
    }

    /// How many of `experiments` estimates of samples around `truth` do not hold it between their
    /// bounds, and how uncertain they are on average.
    fn wrong(
        experiments: u32,
        truth: f64,
        mut sample: impl FnMut(&mut Dice) -> Vec<f64>,
    ) -> (u32, f64) {
        let mut dice = Dice(7);
        let (mut wrong, mut uncertainty) = (0, 0.0);
        for _ in 0..experiments {
            let samples = sample(&mut dice);
            let estimate = Estimate::of(&samples).expect("some samples");
            assert!(estimate.low <= estimate.value && estimate.value <= estimate.high);
            wrong += u32::from(truth < estimate.low || truth > estimate.high);
            uncertainty += estimate.uncertainty();
        }
        (wrong, uncertainty / f64::from(experiments))
    }

    #[test]
    fn bounds_hold_the_truth_where_few_samples_are_far_off() {
        let (wrong, uncertainty) = wrong(200, 3.0, |dice| {
            let sample = |_| {
                // One of twenty is an interrupt, in either side.
                let far = match dice.roll() {
                    r if r < 0.025 => 20_000.0,
                    r if r > 0.975 => -20_000.0,
                    _ => 0.0,
                };
                3.0 + 100.0 * dice.normal() + far
            };
            (0..6400).map(sample).collect()
        });
        assert!(wrong <= 6, "{wrong} of 200");
        // Of 6400 with a deviation of 100 the mean of the middle deviates by about 1.4, and 2.6 of
        // those are 99 %.
        assert!((2.0..6.0).contains(&uncertainty), "{uncertainty}");
    }

    #[test]
    fn bounds_hold_the_truth_where_samples_follow_each_other() {
        let (wrong, _) = wrong(200, 0.0, |dice| {
            let mut drift = 0.0;
            let sample = |_| {
                drift = 0.9 * drift + dice.normal();
                drift
            };
            (0..6400).map(sample).collect()
        });
        // As independent samples they would be wrong in half of all cases.
        assert!(wrong <= 7, "{wrong} of 200");
    }

    #[test]
    fn few_samples_say_nothing_and_more_say_more() {
        assert_eq!(Estimate::of(&[]), None);
        let few = Estimate::of(&[1.0, 2.0, 3.0]).expect("an estimate");
        assert_eq!((few.value, few.uncertainty()), (2.0, f64::INFINITY));
        let mut dice = Dice(1);
        let samples: Vec<f64> = (0..64_000).map(|_| dice.normal()).collect();
        let of = |count: usize| {
            Estimate::of(&samples[..count])
                .expect("an estimate")
                .uncertainty()
        };
        assert!(of(640) > of(6400) && of(6400) > of(64_000));
        let alike = Estimate::of(&[5.0; 100]).expect("an estimate");
        assert_eq!((alike.low, alike.value, alike.high), (5.0, 5.0, 5.0));
    }

    #[test]
    fn the_middle_half_knows_nothing_of_what_is_far_off() {
        assert_eq!(midmean(&[1e9, 1.0, 2.0, -1e9]), Some(1.5));
        assert_eq!(midmean(&[7.0]), Some(7.0));
        assert_eq!(midmean(&[]), None);
    }

    #[test]
    fn a_median_is_in_the_middle_whatever_the_order() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn one_outlier_moves_no_median() {
        let mut samples = vec![10.0; 29];
        samples.push(1e9);
        let summary = Summary::of(&samples);
        assert_eq!(summary.map(|s| (s.median, s.p90)), Some((10.0, 10.0)));
    }

    #[test]
    fn percentiles_are_interpolated() {
        let sorted: Vec<f64> = (0..=10).map(f64::from).collect();
        assert_eq!(percentile(&sorted, 0.1), Some(1.0));
        assert_eq!(percentile(&sorted, 0.9), Some(9.0));
        assert_eq!(percentile(&sorted, 0.25), Some(2.5));
        assert_eq!(percentile(&sorted, 1.0), Some(10.0));
        assert_eq!(percentile(&sorted, 0.0), Some(0.0));
    }
}
