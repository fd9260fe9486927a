//! From a device's clock to the host's over a long time.

use std::collections::VecDeque;

use super::map::{Estimate, Map, wander};

/// How two clocks went beside each other over a long time, of which a [`Map`] keeps the latest samples alone: what it says of times
/// before these grows wide. This has what maps said of a time of each sample while that was among the latest, and goes in straight lines
/// from one to the next.
///
/// The errors are bounds under the same conditions as those of [`Map`], and answers are in the order of what was asked. A sample takes 24 bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Course {
    /// In their order on both clocks.
    knots: Vec<Knot>,
    /// The device's times of the latest samples: those to come still say more of them.
    open: VecDeque<i64>,
    /// What was known when the first knot was made, for times before it.
    before: Option<Map>,
    latest: Map,
}

/// When the device's clock showed `device`, the host's stood no further than `error` from `host`.
#[derive(Debug, Clone, Copy)]
struct Knot {
    device: i64,
    host: i64,
    error: u64,
}

/// So many later samples say almost all that there is to say of a time.
const SETTLED: usize = 8;

impl Course {
    /// Takes in that a sample was taken, which is the latest in `map`. To be called in the order in which the map came to be; more often does no harm.
    pub(crate) fn go_on(&mut self, map: Map) {
        let (Some(now), Some(earliest)) = (map.latest(), map.earliest()) else {
            self.latest = map;
            return;
        };
        if self.open.front().is_some_and(|open| *open < earliest) {
            // It has forgotten what was before, which the earlier one still knows.
            self.settle(0);
        }
        let last = self.open.back().copied();
        match last.or_else(|| Some(self.knots.last()?.device)) {
            Some(last) if last == now => {}
            Some(last) if last > now => {
                // It has been set back: nothing holds any more.
                *self = Self::default();
                self.open.push_back(now);
            }
            _ => self.open.push_back(now),
        }
        self.latest = map;
        self.settle(SETTLED);
    }

    /// No more samples will come.
    pub(crate) fn ended(mut self) -> Self {
        self.settle(0);
        self
    }

    /// Makes knots of all but the latest `open` times.
    fn settle(&mut self, open: usize) {
        while self.open.len() > open
            && let Some(settled) = self.open.pop_front()
        {
            self.tie(settled);
        }
    }

    /// A knot at a time of the device, as the latest map has it.
    fn tie(&mut self, device: i64) {
        let Some(told) = self.latest.to_host(device) else {
            return;
        };
        let least = self.knots.last().map_or(i64::MIN, |knot| knot.host);
        let Estimate { nanoseconds, error } = told.at_least(least);
        self.knots.push(Knot {
            device,
            host: nanoseconds,
            error,
        });
        if self.before.is_none() {
            self.before = Some(self.latest.clone());
        }
    }

    /// What the host's clock showed when the device's showed `device`; `None` if there was no sample.
    pub(crate) fn to_host(&self, device: i64) -> Option<Estimate> {
        let next = self.knots.partition_point(|knot| knot.device < device);
        let later = self.knots.get(next);
        let earlier = next.checked_sub(1).and_then(|last| self.knots.get(last));
        match (earlier, later) {
            (Some(from), Some(to)) => Some(from.on_the_way(to, device)),
            (Some(last), None) => Some(self.latest.to_host(device)?.at_least(last.host)),
            // What the first one was made by, and so not later than that.
            (None, Some(_)) => self.before.as_ref()?.to_host(device),
            (None, None) => self.latest.to_host(device),
        }
    }
}

impl Knot {
    /// A time of the device between this and `to`, which is later.
    fn on_the_way(&self, to: &Self, device: i64) -> Estimate {
        let (passed, left) = (
            device.saturating_sub(self.device),
            to.device.saturating_sub(device),
        );
        let all = passed.saturating_add(left).max(1) as f64;
        let (share, rest) = (passed as f64 / all, left as f64 / all);
        let whole = to.device.saturating_sub(self.device);
        let parted = to.host.saturating_sub(self.host).saturating_sub(whole) as f64 * share;
        // The drifts of both parts are this far from a middle one at most, either way; so far they lead away from the straight line.
        let bent = 2.0 * wander(all) * all * share * rest;
        let error = self.error as f64 * rest + to.error as f64 * share + bent;
        Estimate {
            nanoseconds: self
                .host
                .saturating_add(passed)
                .saturating_add(parted.round() as i64),
            // One more for the rounding.
            error: (error.ceil() as u64).saturating_add(1),
        }
    }
}

impl Estimate {
    /// The same, moved to what it is known to be at least.
    pub(crate) fn at_least(self, least: i64) -> Self {
        let nanoseconds = self.nanoseconds.max(least);
        let by = nanoseconds.abs_diff(self.nanoseconds);
        Self {
            nanoseconds,
            error: self.error.saturating_add(by),
        }
    }

    /// The same, moved to what it is known to be at most: what lies between here and there, it is known not to be.
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

    use super::super::map::tests::{STEADY, Truth, deviations, truth};
    use super::*;

    /// The course of these samples: how much later than the one before, how exact, and where in their deviation.
    fn course(truth: Truth, samples: &[(i64, u64, f64)]) -> Course {
        let (mut map, mut course, mut at) = (Map::default(), Course::default(), 0);
        for &(later, deviation, off) in samples {
            at += later;
            map.add(truth.sample(at, deviation, off));
            course.go_on(map.clone());
        }
        course.ended()
    }

    /// Every 250 ms, for so many seconds.
    fn long(seconds: i64) -> Vec<(i64, u64, f64)> {
        let every = |nth: i64| (250_000_000, 1_000, (nth % 7 - 3) as f64 / 3.0);
        (0..seconds * 4).map(every).collect()
    }

    proptest! {
        /// Also where samples come so close that each may be more off than lies between.
        #[test]
        fn the_bound_holds_and_time_rises(
            truth in truth(),
            samples in prop::collection::vec((0_i64..2_000_000_000, deviations(), -1.0..=1.0), 1..120),
            mut asked in prop::collection::vec(-1_000_000_000_i64..150_000_000_000, 2..60),
            closer in prop::sample::select(vec![1, 1_000_000]),
        ) {
            let samples: Vec<_> = samples.iter().map(|&(later, deviation, off)| (later / closer, deviation, off)).collect();
            asked.iter_mut().for_each(|at| *at /= closer);
            let course = course(truth, &samples);
            asked.sort_unstable();
            let mut last = i64::MIN;
            for device in asked {
                let (host, told) = (truth.host(device), course.to_host(device).unwrap());
                // The truth is computed in 53 bits, and rounded.
                let off = (told.nanoseconds as f64 - host).abs();
                prop_assert!(off <= told.error as f64 + 1.0, "{told:?} {host} {device}");
                prop_assert!(last <= told.nanoseconds, "{told:?} after {last}");
                last = told.nanoseconds;
            }
        }
    }

    /// However long it lasts, early times are known as well as late ones. Of a map they are not.
    #[test]
    fn what_is_long_past_is_known_as_well() {
        let seconds = 1_200;
        let warming = Truth {
            warming: 0.01,
            ..STEADY
        };
        for truth in [STEADY, warming] {
            let course = course(truth, &long(seconds));
            let mut worst = 0;
            for device in (300_000_000..seconds * 1_000_000_000).step_by(77_777_777) {
                let told = course.to_host(device).unwrap();
                let off = (told.nanoseconds as f64 - truth.host(device)).abs();
                assert!(off <= told.error as f64, "{off} {told:?} {device}");
                worst = worst.max(told.error);
            }
            assert!(worst < 1_500, "{worst}");
            let early = course.latest.to_host(300_000_000_000).unwrap();
            assert!(early.error > 1_000_000, "{early:?}");
        }
    }

    /// A clock that was silent for a minute.
    #[test]
    fn a_gap_is_as_wide_as_it_is_long() {
        let mut samples = long(10);
        samples.push((60_000_000_000, 1_000, 0.0));
        samples.extend(long(10));
        let course = course(STEADY, &samples);
        let [before, within, after] =
            [9, 40, 79].map(|second| course.to_host(second * 1_000_000_000).unwrap().error);
        assert!(before < 1_500 && after < 1_500, "{before} {after}");
        assert!((2_000..200_000).contains(&within), "{within}");
    }

    #[test]
    fn the_hosts_own_clock_is_exact() {
        let mut course = Course::default();
        for _ in 0..20 {
            course.go_on(Map::exact());
        }
        let course = course.ended();
        for time in [i64::MIN, 0, i64::MAX] {
            let exact = Estimate {
                nanoseconds: time,
                error: 0,
            };
            assert_eq!(course.to_host(time), Some(exact));
        }
    }

    #[test]
    fn without_a_sample_nothing_is_known() {
        let mut course = Course::default();
        course.go_on(Map::default());
        assert_eq!(course.ended().to_host(5), None);
    }

    /// As where the machine was suspended: the map knows nothing of the time before then.
    #[test]
    fn what_was_before_a_jump_stays_known() {
        let (mut map, mut course) = (Map::default(), Course::default());
        let later = Truth {
            offset: STEADY.offset - 9_000_000_000,
            ..STEADY
        };
        for nth in 0..80 {
            let truth = if nth < 40 { STEADY } else { later };
            let jumped = if nth < 40 { 0 } else { 10_000_000_000 };
            map.add(truth.sample(nth * 250_000_000 + jumped, 1_000, 0.0));
            course.go_on(map.clone());
        }
        let course = course.ended();
        for (truth, device) in [(STEADY, 9_700_000_000), (later, 20_100_000_000)] {
            let told = course.to_host(device).unwrap();
            let off = (told.nanoseconds as f64 - truth.host(device)).abs();
            assert!(
                off <= told.error as f64 && told.error < 3_000,
                "{off} {told:?}"
            );
        }
    }

    #[test]
    fn a_clock_that_is_set_back_begins_anew() {
        let (mut map, mut course) = (Map::default(), Course::default());
        for nth in 1..40 {
            map.add(STEADY.sample(nth * 250_000_000, 1_000, 0.0));
            course.go_on(map.clone());
        }
        let set = Truth {
            offset: 9_000_000_000,
            ..STEADY
        };
        for nth in 1..40 {
            map.add(set.sample(nth * 250_000_000, 1_000, 0.0));
            course.go_on(map.clone());
        }
        let course = course.ended();
        for device in [300_000_000, 9_700_000_000] {
            let told = course.to_host(device).unwrap();
            let off = (told.nanoseconds as f64 - set.host(device)).abs();
            assert!(off <= told.error as f64, "{off} {told:?}");
        }
    }
}
