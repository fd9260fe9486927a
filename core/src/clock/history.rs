//! Conversion from a device's clock to the host's over a long time.

use std::collections::VecDeque;

use super::estimate::Estimate;
use super::map::{Map, wander};

/// The conversion from a device's clock to the host's, over all samples since its start.
///
/// A [`Map`] keeps only the latest samples, so its errors grow for earlier times. A history stores
/// one knot for each sample: the conversion of the sample's time by the map when that sample was
/// among the latest. Between two knots it interpolates linearly.
///
/// The errors are bounds under the same conditions as those of [`Map`]. Conversions keep the order
/// of times. A sample takes 24 bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    /// In ascending order on both clocks.
    knots: Vec<Knot>,
    /// The device's times of the latest samples. They are not knots yet, because later samples will
    /// make their conversion more exact.
    unsettled: VecDeque<i64>,
    /// The map of the first knot, for times before that knot.
    before: Option<Map>,
    latest: Map,
}

/// A converted time: when the device showed `device`, the host showed `host`, within `error`.
#[derive(Debug, Clone, Copy)]
struct Knot {
    device: i64,
    host: i64,
    error: u64,
}

/// The number of latest samples that are not knots yet.
///
/// Samples after that make the conversion of a time hardly more exact.
const UNSETTLED: usize = 8;

impl History {
    /// Adds the latest sample of `map`.
    ///
    /// Call it with the clock's maps in the order of their samples. A repeated call has no effect.
    pub(crate) fn update(&mut self, map: Map) {
        let (Some(now), Some(earliest)) = (map.latest(), map.earliest()) else {
            self.latest = map;
            return;
        };
        if self.unsettled.front().is_some_and(|time| *time < earliest) {
            // The new map has forgotten samples that the previous map still has.
            self.make_knots(0);
        }
        let last = self.unsettled.back().copied();
        match last.or_else(|| Some(self.knots.last()?.device)) {
            Some(last) if last == now => {}
            Some(last) if last > now => {
                // The device's clock was set back, so the earlier samples are invalid.
                *self = Self::default();
                self.unsettled.push_back(now);
            }
            _ => self.unsettled.push_back(now),
        }
        self.latest = map;
        self.make_knots(UNSETTLED);
    }

    /// The finished history, to which no more samples are added.
    pub(crate) fn finish(mut self) -> Self {
        self.make_knots(0);
        self
    }

    /// Makes knots of all but the latest `unsettled` times.
    fn make_knots(&mut self, unsettled: usize) {
        while self.unsettled.len() > unsettled
            && let Some(settled) = self.unsettled.pop_front()
        {
            self.add_knot(settled);
        }
    }

    /// Adds a knot at a time of the device, converted by the latest map.
    fn add_knot(&mut self, device: i64) {
        let Some(converted) = self.latest.to_host(device) else {
            return;
        };
        let least = self.knots.last().map_or(i64::MIN, |knot| knot.host);
        let Estimate { nanoseconds, error } = converted.at_least(least);
        self.knots.push(Knot {
            device,
            host: nanoseconds,
            error,
        });
        if self.before.is_none() {
            self.before = Some(self.latest.clone());
        }
    }

    /// The time that the host's clock showed at `device`; `None` without any sample.
    pub(crate) fn to_host(&self, device: i64) -> Option<Estimate> {
        let next = self.knots.partition_point(|knot| knot.device < device);
        let later = self.knots.get(next);
        let earlier = next.checked_sub(1).and_then(|last| self.knots.get(last));
        match (earlier, later) {
            (Some(from), Some(to)) => Some(from.interpolate(to, device)),
            (Some(last), None) => Some(self.latest.to_host(device)?.at_least(last.host)),
            // The same map made the first knot, so the result is not later than that knot.
            (None, Some(_)) => self.before.as_ref()?.to_host(device),
            (None, None) => self.latest.to_host(device),
        }
    }
}

impl Knot {
    /// Converts a time of the device between this knot and the later knot `to`.
    fn interpolate(&self, to: &Self, device: i64) -> Estimate {
        let (passed, left) = (
            device.saturating_sub(self.device),
            to.device.saturating_sub(device),
        );
        let all = passed.saturating_add(left).max(1) as f64;
        let (share, rest) = (passed as f64 / all, left as f64 / all);
        let whole = to.device.saturating_sub(self.device);
        let drifted = to.host.saturating_sub(self.host).saturating_sub(whole) as f64 * share;
        // The drift before `device` and the drift after it may each differ from a mean drift by
        // `wander`. This is the largest resulting distance from the straight line.
        let curvature = 2.0 * wander(all) * all * share * rest;
        let error = self.error as f64 * rest + to.error as f64 * share + curvature;
        Estimate {
            nanoseconds: self
                .host
                .saturating_add(passed)
                .saturating_add(drifted.round() as i64),
            // Plus one for the rounding.
            error: (error.ceil() as u64).saturating_add(1),
        }
    }
}

impl Estimate {
    /// The estimate, moved up to `least` if it is lower. The error grows by the distance.
    pub(crate) fn at_least(self, least: i64) -> Self {
        let nanoseconds = self.nanoseconds.max(least);
        let by = nanoseconds.abs_diff(self.nanoseconds);
        Self {
            nanoseconds,
            error: self.error.saturating_add(by),
        }
    }

    /// The estimate, moved down to `most` if it is higher. The error stays unchanged.
    ///
    /// The true time is known to be at most `most`, so the lower estimate is not further from it.
    pub(crate) fn at_most(self, most: i64) -> Self {
        Self {
            nanoseconds: self.nanoseconds.min(most),
            ..self
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::clock::truth::{STEADY, Truth, deviations, truth};

    /// The history of some samples. Each is given by its distance from the previous sample, its
    /// deviation, and the position of the truth in the deviation, from -1 to 1.
    fn history(truth: Truth, samples: &[(i64, u64, f64)]) -> History {
        let (mut map, mut history, mut at) = (Map::default(), History::default(), 0);
        for &(later, deviation, off) in samples {
            at += later;
            map.add(truth.sample(at, deviation, off));
            history.update(map.clone());
        }
        history.finish()
    }

    /// Samples for [`history`]: one every 250 ms, for some seconds.
    fn long(seconds: i64) -> Vec<(i64, u64, f64)> {
        let every = |nth: i64| (250_000_000, 1_000, (nth % 7 - 3) as f64 / 3.0);
        (0..seconds * 4).map(every).collect()
    }

    proptest! {
        /// Also tries samples whose distance is smaller than their deviation.
        #[test]
        fn the_error_is_a_bound_and_times_keep_their_order(
            truth in truth(),
            samples in prop::collection::vec((0_i64..2_000_000_000, deviations(), -1.0..=1.0), 1..120),
            mut asked in prop::collection::vec(-1_000_000_000_i64..150_000_000_000, 2..60),
            closer in prop::sample::select(vec![1, 1_000_000]),
        ) {
            let samples: Vec<_> = samples.iter().map(|&(later, deviation, off)| (later / closer, deviation, off)).collect();
            asked.iter_mut().for_each(|at| *at /= closer);
            let history = history(truth, &samples);
            asked.sort_unstable();
            let mut last = i64::MIN;
            for device in asked {
                let (host, found) = (truth.host(device), history.to_host(device).unwrap());
                // The truth has 53 bits and is rounded.
                let off = (found.nanoseconds as f64 - host).abs();
                prop_assert!(off <= found.error as f64 + 1.0, "{found:?} {host} {device}");
                prop_assert!(last <= found.nanoseconds, "{found:?} after {last}");
                last = found.nanoseconds;
            }
        }
    }

    /// A map has a much larger error for early times.
    #[rstest]
    #[case::steady(STEADY)]
    #[case::warming(Truth { warming: 0.01, ..STEADY })]
    fn early_times_are_as_exact_as_late_ones(#[case] truth: Truth) {
        let seconds = 1_200;
        let history = history(truth, &long(seconds));
        let mut worst = 0;
        for device in (300_000_000..seconds * 1_000_000_000).step_by(77_777_777) {
            let found = history.to_host(device).unwrap();
            let off = (found.nanoseconds as f64 - truth.host(device)).abs();
            assert!(off <= found.error as f64, "{off} {found:?} {device}");
            worst = worst.max(found.error);
        }
        assert!(worst < 1_500, "{worst}");
        let early = history.latest.to_host(300_000_000_000).unwrap();
        assert!(early.error > 1_000_000, "{early:?}");
    }

    /// No samples for a minute.
    #[test]
    fn a_gap_between_samples_enlarges_the_error_only_there() {
        let mut samples = long(10);
        samples.push((60_000_000_000, 1_000, 0.0));
        samples.extend(long(10));
        let history = history(STEADY, &samples);
        let [before, within, after] =
            [9, 40, 79].map(|second| history.to_host(second * 1_000_000_000).unwrap().error);
        assert!(before < 1_500 && after < 1_500, "{before} {after}");
        assert!((2_000..200_000).contains(&within), "{within}");
    }

    #[test]
    fn the_history_of_the_host_clock_is_exact() {
        let mut history = History::default();
        for _ in 0..20 {
            history.update(Map::exact());
        }
        let history = history.finish();
        for time in [i64::MIN, 0, i64::MAX] {
            let exact = Estimate {
                nanoseconds: time,
                error: 0,
            };
            assert_eq!(history.to_host(time), Some(exact));
        }
    }

    #[test]
    fn a_history_without_samples_converts_nothing() {
        let mut history = History::default();
        history.update(Map::default());
        assert_eq!(history.finish().to_host(5), None);
    }

    /// A suspended machine makes such a jump. The map then forgets all earlier samples.
    #[test]
    fn times_before_a_jump_stay_exact() {
        let (mut map, mut history) = (Map::default(), History::default());
        let later = Truth {
            offset: STEADY.offset - 9_000_000_000,
            ..STEADY
        };
        for nth in 0..80 {
            let truth = if nth < 40 { STEADY } else { later };
            let jumped = if nth < 40 { 0 } else { 10_000_000_000 };
            map.add(truth.sample(nth * 250_000_000 + jumped, 1_000, 0.0));
            history.update(map.clone());
        }
        let history = history.finish();
        for (truth, device) in [(STEADY, 9_700_000_000), (later, 20_100_000_000)] {
            let found = history.to_host(device).unwrap();
            let off = (found.nanoseconds as f64 - truth.host(device)).abs();
            assert!(
                off <= found.error as f64 && found.error < 3_000,
                "{off} {found:?}"
            );
        }
    }

    #[test]
    fn a_clock_that_is_set_back_starts_a_new_history() {
        let (mut map, mut history) = (Map::default(), History::default());
        for nth in 1..40 {
            map.add(STEADY.sample(nth * 250_000_000, 1_000, 0.0));
            history.update(map.clone());
        }
        let set = Truth {
            offset: 9_000_000_000,
            ..STEADY
        };
        for nth in 1..40 {
            map.add(set.sample(nth * 250_000_000, 1_000, 0.0));
            history.update(map.clone());
        }
        let history = history.finish();
        for device in [300_000_000, 9_700_000_000] {
            let found = history.to_host(device).unwrap();
            let off = (found.nanoseconds as f64 - set.host(device)).abs();
            assert!(off <= found.error as f64, "{off} {found:?}");
        }
    }
}
