//! Timestamp counters of devices, and their conversion to nanoseconds.

/// A timestamp counter: its valid bits and its period in nanoseconds per tick.
///
/// See `VkQueueFamilyProperties::timestampValidBits` and `VkPhysicalDeviceLimits::timestampPeriod`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimestampCounter {
    bits: u32,
    period: f64,
}

impl TimestampCounter {
    /// A counter of `bits` valid bits and `period` nanoseconds per tick.
    ///
    /// `None` if `bits` is not from 1 to 64, or if `period` is not positive and finite.
    #[must_use]
    pub fn new(bits: u32, period: f64) -> Option<Self> {
        let sound = (1..=64).contains(&bits) && period > 0.0 && period.is_finite();
        sound.then_some(Self { bits, period })
    }

    /// The number of valid bits, from the lowest.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Nanoseconds per tick.
    #[must_use]
    pub const fn period(self) -> f64 {
        self.period
    }

    /// The length of a round: the time until the counter wraps, in nanoseconds; saturates.
    #[must_use]
    pub fn wraps_after(self) -> u64 {
        (2_f64.powi(self.bits.cast_signed()) * self.period) as u64
    }

    /// The reading with its invalid bits set to 0.
    #[must_use]
    pub fn valid(self, reading: u64) -> u64 {
        reading & (u64::MAX >> (64 - self.bits))
    }

    /// Nanoseconds from one reading to another; negative if `to` is earlier.
    ///
    /// Right if the readings lie at most half a round apart. Ignores invalid bits.
    #[must_use]
    pub fn elapsed(self, from: u64, to: u64) -> i64 {
        self.nanoseconds(self.difference(from, to).into())
    }

    /// Signed ticks from one reading to another, in the shorter direction.
    fn difference(self, from: u64, to: u64) -> i64 {
        let unused = 64 - self.bits;
        // The two shifts extend the sign bit of the narrow counter.
        (to.wrapping_sub(from) << unused).cast_signed() >> unused
    }

    /// Converts ticks to nanoseconds, rounded to the nearest; saturates.
    ///
    /// Computes with integers, so the result is exact for any number of ticks. A floating-point
    /// product would lose nanoseconds after some months.
    fn nanoseconds(self, ticks: i128) -> i64 {
        // The period is `mantissa` times 2 to the power of `exponent`.
        let bits = self.period.to_bits();
        let fraction = i128::from(bits & ((1 << 52) - 1));
        let (mantissa, exponent) = match bits >> 52 {
            0 => (fraction, -1074),
            biased => (fraction | 1 << 52, biased as i32 - 1075),
        };
        let product = ticks.saturating_mul(mantissa);
        let shift = exponent.unsigned_abs();
        let whole = if exponent >= 0 {
            let factor = if shift < 127 { 1 << shift } else { i128::MAX };
            product.saturating_mul(factor)
        } else if shift < 127 {
            // Rounds halves away from zero, so that negative ticks give the negated result.
            let rounded = (product.unsigned_abs() + (1 << (shift - 1))) >> shift;
            rounded.cast_signed() * product.signum()
        } else {
            0
        };
        let most = if whole < 0 { i64::MIN } else { i64::MAX };
        i64::try_from(whole).unwrap_or(most)
    }
}

/// The time of a counter in nanoseconds, continued when the counter wraps.
///
/// A round is one pass of the counter through its valid bits ([`TimestampCounter::wraps_after`]).
/// The time of the first reading ([`Rounds::follow`]) is that reading itself, in the first round.
/// The time does not go back unless the counter goes back. If the counter is reset, the time goes
/// back with it.
#[derive(Debug, Clone)]
pub struct Rounds {
    counter: TimestampCounter,
    /// The latest reading that was followed.
    last: Option<Reading>,
}

/// A reading of the counter.
#[derive(Debug, Clone, Copy)]
struct Reading {
    raw: u64,
    /// The ticks with all rounds.
    ticks: i128,
    /// The host's time, in nanoseconds.
    host: i64,
}

impl Rounds {
    /// The time of a counter that has not been read yet.
    #[must_use]
    pub const fn new(counter: TimestampCounter) -> Self {
        Self {
            counter,
            last: None,
        }
    }

    /// The counter.
    #[must_use]
    pub const fn counter(&self) -> TimestampCounter {
        self.counter
    }

    /// Follows a reading that was taken at the host time `host`. Returns its time in nanoseconds.
    ///
    /// The host time determines how often the counter has wrapped since the previous reading. That
    /// reading may be any time ago, as long as the two clocks have drifted apart by less than half
    /// a round. With a drift of 500 parts per million, that takes a thousand rounds.
    pub fn follow(&mut self, reading: u64, host: i64) -> i64 {
        let ticks = match self.last {
            None => {
                let start = self.counter.valid(reading);
                // A counter of 64 bits is read as a signed number.
                if self.counter.bits == 64 {
                    i128::from(start.cast_signed())
                } else {
                    i128::from(start)
                }
            }
            Some(last) => {
                let ahead = self.counter.valid(reading.wrapping_sub(last.raw));
                let expected = host.saturating_sub(last.host) as f64 / self.counter.period;
                let round = 1_i128 << self.counter.bits;
                let rounds = ((expected - ahead as f64) / round as f64).round() as i128;
                let passed = rounds
                    .saturating_mul(round)
                    .saturating_add(i128::from(ahead));
                last.ticks.saturating_add(passed)
            }
        };
        let raw = reading;
        self.last = Some(Reading { raw, ticks, host });
        self.counter.nanoseconds(ticks)
    }

    /// True if the latest followed reading is older than a quarter of a round at `host`, or
    /// missing.
    ///
    /// If false, [`Rounds::time_of`] is right for all readings of the half round before `host`.
    #[must_use]
    pub fn are_stale(&self, host: i64) -> bool {
        self.last.is_none_or(|last| {
            let age = host.saturating_sub(last.host).max(0).unsigned_abs();
            age > self.counter.wraps_after() / 4
        })
    }

    /// True if the clocks may have drifted apart by 1/32 of a round since the latest followed
    /// reading.
    ///
    /// Assumes a drift of 500 parts per million. A counter of 36 bits and 1 ns takes 70 minutes for
    /// that. `host` may lie before or after the reading. True if no reading was followed.
    #[must_use]
    pub fn may_have_parted(&self, host: i64) -> bool {
        self.last.is_none_or(|last| {
            let away = host.saturating_sub(last.host).unsigned_abs();
            away / 2_000 > self.counter.wraps_after() / 32
        })
    }

    /// The time in nanoseconds of a reading that the device took after the host time `host`.
    ///
    /// The device took it at most nine tenths of a round after `host`. Both may be any time ago.
    /// The two clocks must have drifted apart by less than 1/16 of a round since the latest
    /// followed reading. `None` if no reading was followed.
    #[must_use]
    pub fn time_after(&self, reading: u64, host: i64) -> Option<i64> {
        let last = self.last?;
        let round = 1_i128 << self.counter.bits;
        let passed = (host.saturating_sub(last.host) as f64 / self.counter.period) as i128;
        let earliest = last.ticks.saturating_add(passed);
        // The clocks have drifted apart by less than 1/16 of a round.
        let earliest = earliest.saturating_sub(round / 16);
        let shown = i128::from(self.counter.valid(reading));
        let ahead = shown.saturating_sub(earliest).rem_euclid(round);
        Some(self.counter.nanoseconds(earliest.saturating_add(ahead)))
    }

    /// The time in nanoseconds of a reading at most half a round from the latest followed reading.
    ///
    /// `None` if no reading was followed.
    #[must_use]
    pub fn time_of(&self, reading: u64) -> Option<i64> {
        let last = self.last?;
        let away = i128::from(self.counter.difference(last.raw, reading));
        let ticks = last.ticks.saturating_add(away);
        Some(self.counter.nanoseconds(ticks))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::{Rounds, TimestampCounter};

    fn counter(bits: u32) -> TimestampCounter {
        TimestampCounter::new(bits, 1.0).unwrap()
    }

    #[test]
    fn differences_are_signed_and_right_across_a_wrap() {
        assert_eq!(counter(64).elapsed(3, 7), 4);
        assert_eq!(counter(64).elapsed(7, 3), -4);
        assert_eq!(counter(36).elapsed((1 << 36) - 3, 2), 5);
        assert_eq!(counter(36).elapsed(2, (1 << 36) - 3), -5);
        // Bits above the valid ones are ignored.
        let (from, to) = (0x1230_0000_0000_0001, 0xabc0_0000_0000_0005);
        assert_eq!(counter(40).elapsed(from, to), 4);
        assert_eq!(counter(64).elapsed(u64::MAX, 1), 2);
    }

    #[test]
    fn elapsed_is_exact_and_rounded() {
        assert_eq!(counter(64).elapsed(0, (1 << 60) + 1), (1 << 60) + 1);
        assert_eq!(
            TimestampCounter::new(64, 52.08).unwrap().elapsed(3, 0),
            -156
        );
    }

    #[rstest]
    #[case::no_bits(0, 1.0)]
    #[case::too_many_bits(65, 1.0)]
    #[case::no_period(36, 0.0)]
    #[case::negative_period(36, -1.0)]
    #[case::period_is_not_a_number(36, f64::NAN)]
    fn new_refuses_invalid_bits_and_periods(#[case] bits: u32, #[case] period: f64) {
        assert_eq!(TimestampCounter::new(bits, period), None);
    }

    #[test]
    fn precision_does_not_depend_on_uptime() {
        // 52.5 ns, for ten years.
        let slow = TimestampCounter::new(64, 52.5).unwrap();
        let ticks = 6_011_428_571_428_571;
        assert_eq!(slow.elapsed(0, ticks + 2) - slow.elapsed(0, ticks), 105);
        assert_eq!(slow.elapsed(0, ticks), 315_600_000_000_000_000 - 22);
        assert_eq!(slow.elapsed(ticks, 0), -slow.elapsed(0, ticks));
    }

    #[rstest]
    #[case::large(1e300, i64::MAX)]
    #[case::small(1e-300, 0)]
    #[case::subnormal(f64::MIN_POSITIVE / 2.0, 0)]
    fn an_extreme_period_saturates_or_gives_zero(#[case] period: f64, #[case] elapsed: i64) {
        let extreme = TimestampCounter::new(64, period).unwrap();
        assert_eq!(extreme.elapsed(0, 1 << 62), elapsed);
        assert_eq!(extreme.elapsed(0, 0), 0);
    }

    /// The device writes the time up to a round after it was recorded. It is read much later.
    #[test]
    fn time_after_finds_the_round_in_which_a_time_was_written() {
        let counter = counter(36);
        let round = counter.wraps_after() as i64;
        for last in [0, round / 3, 5 * round, 1_000 * round] {
            let mut rounds = Rounds::new(counter);
            rounds.follow(0, 0);
            rounds.follow((last as u64) & ((1 << 36) - 1), last);
            for recorded in [0, round / 2, round, 7 * round + 5, 400 * round] {
                for took in [0, 1, round / 2, round * 9 / 10] {
                    let written = recorded + took;
                    let shown = written as u64 & ((1 << 36) - 1) | 0xABC << 36;
                    // The host's clock is faster or slower, and 900 ns behind.
                    for ppm in [-20, 0, 20] {
                        let host = last + (recorded - last) + (recorded - last) / 1_000_000 * ppm;
                        assert_eq!(rounds.time_after(shown, host - 900), Some(written));
                    }
                }
            }
        }
        assert_eq!(Rounds::new(counter).time_after(1, 1), None);
    }

    #[rstest]
    #[case::at_once(0, false)]
    #[case::just_before(71, false)]
    #[case::just_after(72, true)]
    #[case::just_before_backwards(-71, false)]
    #[case::just_after_backwards(-72, true)]
    fn clocks_may_have_parted_after_71_minutes(#[case] minutes: i64, #[case] parted: bool) {
        let mut rounds = Rounds::new(counter(36));
        assert!(rounds.may_have_parted(1));
        rounds.follow(1, 0);
        assert_eq!(rounds.may_have_parted(minutes * 60_000_000_000), parted);
    }

    #[test]
    fn the_time_of_a_36_bit_counter_continues_across_wraps() {
        let mut rounds = Rounds::new(counter(36));
        assert_eq!(rounds.time_of(5), None);
        assert!(rounds.are_stale(0));
        let round = 1_i64 << 36;
        assert_eq!(rounds.follow((1 << 36) - 3, 1_000), round - 3);
        assert_eq!(rounds.time_of(2), Some(round + 2));
        assert_eq!(rounds.time_of((1 << 36) - 7), Some(round - 7));
        assert!(!rounds.are_stale(1_000 + round / 4) && rounds.are_stale(1_001 + round / 4));
        // Bits above the valid ones are ignored.
        assert_eq!(rounds.follow(2 | 7 << 36, 1_005), round + 2);
        // An hour without a reading, in which the counter wraps 52 times.
        let hour = 3_600_000_000_000;
        let then = (round + 2 + hour) as u64 % (1 << 36);
        assert_eq!(
            rounds.follow(then, 1_005 + hour + 700_000),
            round + 2 + hour
        );
        // The time of a counter that is reset goes back.
        let reset = rounds.follow(then - 9, 1_005 + hour + 700_000);
        assert_eq!(reset, round + 2 + hour - 9);
    }

    #[test]
    fn a_64_bit_counter_is_signed() {
        let mut rounds = Rounds::new(counter(64));
        assert_eq!(rounds.follow(u64::MAX, 0), -1);
        assert_eq!(rounds.follow(4, 5), 4);
    }

    #[test]
    fn extreme_times_and_periods_saturate() {
        let hosts = [i64::MIN, -1, 0, 1, i64::MAX];
        let periods = (-1022..=1023).map(|power| 2_f64.powi(power));
        for counter in periods.filter_map(|period| TimestampCounter::new(64, period)) {
            for (start, then) in hosts.iter().flat_map(|&at| hosts.map(|then| (at, then))) {
                let mut rounds = Rounds::new(counter);
                rounds.follow(5, start);
                assert!(rounds.time_after(4, then).is_some());
                let time = rounds.follow(4, then);
                assert!(rounds.time_after(u64::MAX, start).is_some());
                assert_eq!(rounds.time_of(4), Some(time), "{counter:?}");
                let _ = (rounds.are_stale(start), rounds.may_have_parted(start));
            }
            let (to, from) = (counter.elapsed(7, 1_007), counter.elapsed(1_007, 7));
            assert!(to >= 0 && from <= 0, "{counter:?}: {to}, {from}");
        }
    }

    fn any_counter(least: u32) -> impl Strategy<Value = TimestampCounter> {
        (least..=64, 0.1..2_000.0)
            .prop_map(|(bits, period)| TimestampCounter::new(bits, period).unwrap())
    }

    proptest! {
        /// The times are those of a counter that never wraps, in their order. The start, the
        /// distance of the readings and the invalid bits are arbitrary.
        #[test]
        fn times_are_those_of_a_counter_that_never_wraps(
            // A round must be longer than the nanoseconds of the host's clock.
            counter in any_counter(8),
            start in any::<u64>(),
            junk in any::<u64>(),
            steps in prop::collection::vec((0.0..3.0, -500.0..500.0), 1..40),
            within in -0.49..0.49,
        ) {
            // Each step is up to three rounds. The sum stays below 63 bits of nanoseconds.
            let most = (counter.wraps_after() as f64 / counter.period).min(5e16 / counter.period);
            let valid = u64::MAX >> (64 - counter.bits());
            let mut ticks = i128::from(start & valid) % (1e18 / counter.period()) as i128;
            let shown = |ticks: i128| (ticks as u64 & valid) | (junk & !valid);
            let time = |ticks: i128| ticks as f64 * counter.period();
            let (mut rounds, mut host, mut before) = (Rounds::new(counter), 0.0_f64, None);
            for (far, ppm) in steps {
                let followed = rounds.follow(shown(ticks), host as i64);
                let slack = 2.0 + time(ticks).abs() * 1e-15;
                prop_assert!((followed as f64 - time(ticks)).abs() <= slack, "{followed} {ticks}");
                prop_assert!(before.is_none_or(|before| before <= followed));
                before = Some(followed);
                let near = ticks + (within * most) as i128;
                let found = rounds.time_of(shown(near)).unwrap();
                prop_assert!((found as f64 - time(near)).abs() <= slack + time(near).abs() * 1e-15, "{found} {near}");
                let passed = (far * most) as i128;
                ticks += passed;
                // The host's clock is up to 500 parts per million faster or slower.
                host += time(passed) * (1.0 + ppm * 1e-6);
            }
        }

        #[test]
        fn elapsed_backwards_is_negated(counter in any_counter(1), from in any::<u64>(), to in any::<u64>()) {
            let there = counter.elapsed(from, to);
            prop_assert!(there.unsigned_abs() <= counter.wraps_after() / 2 + 1);
            // At half a round, both directions have the same sign.
            if there.unsigned_abs() < (counter.wraps_after() / 2).saturating_sub(1) {
                prop_assert_eq!(counter.elapsed(to, from), -there);
            }
        }

        #[test]
        fn elapsed_grows_with_the_reading(counter in any_counter(1), from in any::<u64>(), near in 0_u64..1 << 62, further in 0_u64..1 << 62) {
            let half = (u64::MAX >> (64 - counter.bits())) / 2;
            let (near, further) = (near & half, further & half);
            let (near, further) = (near.min(further), near.max(further));
            let [near, further] = [near, further].map(|by| counter.elapsed(from, from.wrapping_add(by)));
            prop_assert!(0 <= near && near <= further);
        }
    }
}
