//! Counters: what devices write as a time.

/// A counter that devices write times with: so many bits of it are valid, and so many nanoseconds pass for each tick.
///
/// See `VkQueueFamilyProperties::timestampValidBits` and `VkPhysicalDeviceLimits::timestampPeriod`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counter {
    bits: u32,
    period: f64,
}

impl Counter {
    /// Counts nanoseconds in all 64 bits.
    pub const NANOSECONDS: Self = Self {
        bits: 64,
        period: 1.0,
    };

    /// A counter of `bits` valid bits and `period` nanoseconds a tick; `None` unless there are 1 to 64 bits, and the period
    /// is positive and finite.
    #[must_use]
    pub fn new(bits: u32, period: f64) -> Option<Self> {
        let sound = (1..=64).contains(&bits) && period > 0.0 && period.is_finite();
        sound.then_some(Self { bits, period })
    }

    /// How many of its bits are valid, from the lowest.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// Nanoseconds for each tick.
    #[must_use]
    pub const fn period(self) -> f64 {
        self.period
    }

    /// How long it takes to come round, in nanoseconds; saturates.
    #[must_use]
    pub fn wraps_after(self) -> u64 {
        (2_f64.powi(self.bits.cast_signed()) * self.period) as u64
    }

    /// The valid bits of a reading; the others are 0.
    #[must_use]
    pub fn valid(self, reading: u64) -> u64 {
        reading & (u64::MAX >> (64 - self.bits))
    }

    /// Nanoseconds from one reading to another, negative if `to` is the earlier one: whichever way round is the shorter. So the
    /// two may lie half a round apart at most. Bits that are not valid are ignored.
    #[must_use]
    pub fn elapsed(self, from: u64, to: u64) -> i64 {
        self.nanoseconds(self.difference(from, to).into())
    }

    /// The time of a reading, in nanoseconds since the counter was 0 in the round in which `known`, the time of another
    /// reading `at`, lies: the round is chosen so that the two are as near to each other as can be.
    #[must_use]
    pub fn unwrap(self, reading: u64, at: u64, known: i64) -> i64 {
        known.saturating_add(self.elapsed(at, reading))
    }

    /// Signed ticks from one reading to another, whichever way round is the shorter.
    fn difference(self, from: u64, to: u64) -> i64 {
        let unused = 64 - self.bits;
        // Shifting the sign bit of the narrow counter into place and back extends it.
        (to.wrapping_sub(from) << unused).cast_signed() >> unused
    }

    /// So many ticks, rounded to the nearest nanosecond; saturates. Exact however many they are: a product of floating-point
    /// numbers would lose nanoseconds after some months.
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
            // Halves go away from zero, so that the way back is as long.
            let rounded = (product.unsigned_abs() + (1 << (shift - 1))) >> shift;
            rounded.cast_signed() * product.signum()
        } else {
            0
        };
        let most = if whole < 0 { i64::MIN } else { i64::MAX };
        i64::try_from(whole).unwrap_or(most)
    }
}

/// The time that a counter shows, in nanoseconds, going on where the counter comes round.
///
/// The time starts at what the counter shows at the first reading ([`Rounds::follow`]), as though it had not come round before. As long as
/// the counter does not go back, that time does not either; a counter that is reset takes it along.
#[derive(Debug, Clone)]
pub struct Rounds {
    counter: Counter,
    last: Option<Reading>,
}

/// What was read last.
#[derive(Debug, Clone, Copy)]
struct Reading {
    raw: u64,
    /// The same with all rounds.
    ticks: i128,
    host: i64,
}

impl Rounds {
    /// Of a counter that has not been read yet.
    #[must_use]
    pub const fn new(counter: Counter) -> Self {
        Self {
            counter,
            last: None,
        }
    }

    /// The counter.
    #[must_use]
    pub const fn counter(&self) -> Counter {
        self.counter
    }

    /// The time of a reading that was taken when the host's clock showed `host`, in nanoseconds. The host's clock tells how
    /// often the counter has come round since the reading before, however long ago that was: the two clocks must only not
    /// have parted by half a round, which takes those that differ by 500 parts per million a thousand rounds.
    pub fn follow(&mut self, reading: u64, host: i64) -> i64 {
        let ticks = match self.last {
            None => {
                let start = self.counter.valid(reading);
                // All 64 bits may also be used below zero.
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

    /// True if the last reading that was followed lies more than a quarter of a round before the host's clock showed
    /// `host`, or none was. If not, [`Rounds::time_of`] is right for whatever the counter has shown in the half round before that.
    #[must_use]
    pub fn are_stale(&self, host: i64) -> bool {
        self.last.is_none_or(|last| {
            let age = host.saturating_sub(last.host).max(0).unsigned_abs();
            age > self.counter.wraps_after() / 4
        })
    }

    /// True if none was followed yet, or so long before the host's clock showed `host`, or after, that the two clocks may have parted by
    /// a thirty-second of a round since, at 500 parts per million: with 36 bits of 1 ns that takes an hour and ten minutes.
    #[must_use]
    pub fn may_have_parted(&self, host: i64) -> bool {
        self.last.is_none_or(|last| {
            let away = host.saturating_sub(last.host).unsigned_abs();
            away / 2_000 > self.counter.wraps_after() / 32
        })
    }

    /// The time of a reading, in nanoseconds, that was taken when the host's clock showed `host`, or up to nine
    /// tenths of a round ([`Counter::wraps_after`]) later, however long ago that is; `None` if none was followed yet. The two
    /// clocks must not have parted by a sixteenth of a round since the last reading that was followed.
    #[must_use]
    pub fn time_after(&self, reading: u64, host: i64) -> Option<i64> {
        let last = self.last?;
        let round = 1_i128 << self.counter.bits;
        let passed = (host.saturating_sub(last.host) as f64 / self.counter.period) as i128;
        let earliest = last.ticks.saturating_add(passed);
        // The clocks have parted by less than that.
        let earliest = earliest.saturating_sub(round / 16);
        let shown = i128::from(self.counter.valid(reading));
        let ahead = shown.saturating_sub(earliest).rem_euclid(round);
        Some(self.counter.nanoseconds(earliest.saturating_add(ahead)))
    }

    /// The time of another reading, in nanoseconds, which lies at most half a round ([`Counter::wraps_after`]) from the one
    /// that was followed last; `None` if none was.
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

    use super::{Counter, Rounds};

    fn counter(bits: u32) -> Counter {
        Counter::new(bits, 1.0).unwrap()
    }

    #[test]
    fn differences_are_signed_and_survive_the_wrap() {
        assert_eq!(counter(64).elapsed(3, 7), 4);
        assert_eq!(counter(64).elapsed(7, 3), -4);
        assert_eq!(counter(36).elapsed((1 << 36) - 3, 2), 5);
        assert_eq!(counter(36).elapsed(2, (1 << 36) - 3), -5);
        // Bits above the valid ones say nothing.
        let (from, to) = (0x1230_0000_0000_0001, 0xabc0_0000_0000_0005);
        assert_eq!(counter(40).elapsed(from, to), 4);
        assert_eq!(counter(64).elapsed(u64::MAX, 1), 2);
    }

    #[test]
    fn whole_periods_are_exact() {
        assert_eq!(counter(64).elapsed(0, (1 << 60) + 1), (1 << 60) + 1);
        assert_eq!(Counter::new(64, 52.08).unwrap().elapsed(3, 0), -156);
    }

    #[test]
    fn what_is_no_counter_is_none() {
        for (bits, period) in [(0, 1.0), (65, 1.0), (36, 0.0), (36, -1.0), (36, f64::NAN)] {
            assert_eq!(Counter::new(bits, period), None);
        }
    }
    #[test]
    fn precision_does_not_depend_on_uptime() {
        // 52.5 ns, for ten years.
        let slow = Counter::new(64, 52.5).unwrap();
        let ticks = 6_011_428_571_428_571;
        assert_eq!(slow.elapsed(0, ticks + 2) - slow.elapsed(0, ticks), 105);
        assert_eq!(slow.elapsed(0, ticks), 315_600_000_000_000_000 - 22);
        assert_eq!(slow.elapsed(ticks, 0), -slow.elapsed(0, ticks));
        // Periods at the ends of what a number can say.
        for (period, told) in [(1e300, i64::MAX), (1e-300, 0), (f64::MIN_POSITIVE / 2.0, 0)] {
            let odd = Counter::new(64, period).unwrap();
            assert_eq!(odd.elapsed(0, 1 << 62), told);
            assert_eq!(odd.elapsed(0, 0), 0);
        }
    }

    /// Read long after it was written, which is up to a round after it was recorded, whatever the clocks do in between.
    #[test]
    fn a_time_that_is_read_late_is_of_the_round_it_was_written_in() {
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
                    // The host's clock is faster or slower, and a little behind.
                    for ppm in [-20, 0, 20] {
                        let host = last + (recorded - last) + (recorded - last) / 1_000_000 * ppm;
                        assert_eq!(rounds.time_after(shown, host - 900), Some(written));
                    }
                }
            }
        }
        assert_eq!(Rounds::new(counter).time_after(1, 1), None);
    }

    #[test]
    fn clocks_may_part_in_an_hour() {
        let mut rounds = Rounds::new(counter(36));
        assert!(rounds.may_have_parted(1));
        rounds.follow(1, 0);
        let minute = 60_000_000_000;
        for (minutes, parted) in [
            (0, false),
            (71, false),
            (72, true),
            (-71, false),
            (-72, true),
        ] {
            assert_eq!(
                rounds.may_have_parted(minutes * minute),
                parted,
                "{minutes}"
            );
        }
    }

    #[test]
    fn a_counter_of_36_bits_goes_on_where_it_comes_round() {
        let mut rounds = Rounds::new(counter(36));
        assert_eq!(rounds.time_of(5), None);
        assert!(rounds.are_stale(0));
        let round = 1_i64 << 36;
        assert_eq!(rounds.follow((1 << 36) - 3, 1_000), round - 3);
        assert_eq!(rounds.time_of(2), Some(round + 2));
        assert_eq!(rounds.time_of((1 << 36) - 7), Some(round - 7));
        assert!(!rounds.are_stale(1_000 + round / 4) && rounds.are_stale(1_001 + round / 4));
        // Bits above the valid ones say nothing.
        assert_eq!(rounds.follow(2 | 7 << 36, 1_005), round + 2);
        // An hour without a reading, in which it came round 52 times.
        let hour = 3_600_000_000_000;
        let then = (round + 2 + hour) as u64 % (1 << 36);
        assert_eq!(
            rounds.follow(then, 1_005 + hour + 700_000),
            round + 2 + hour
        );
        // One that is reset goes back.
        let reset = rounds.follow(then - 9, 1_005 + hour + 700_000);
        assert_eq!(reset, round + 2 + hour - 9);
    }

    #[test]
    fn all_64_bits_may_be_used() {
        let mut rounds = Rounds::new(Counter::NANOSECONDS);
        assert_eq!(rounds.follow(u64::MAX, 0), -1);
        assert_eq!(rounds.follow(4, 5), 4);
    }

    #[test]
    fn whatever_cannot_be_counted_saturates() {
        let hosts = [i64::MIN, -1, 0, 1, i64::MAX];
        let periods = (-1022..=1023).map(|power| 2_f64.powi(power));
        for counter in periods.filter_map(|period| Counter::new(64, period)) {
            for (start, then) in hosts.iter().flat_map(|&at| hosts.map(|then| (at, then))) {
                let mut rounds = Rounds::new(counter);
                rounds.follow(5, start);
                assert!(rounds.time_after(4, then).is_some());
                let told = rounds.follow(4, then);
                assert!(rounds.time_after(u64::MAX, start).is_some());
                assert_eq!(rounds.time_of(4), Some(told), "{counter:?}");
                let _ = (rounds.are_stale(start), rounds.may_have_parted(start));
            }
            let (to, from) = (counter.elapsed(7, 1_007), counter.elapsed(1_007, 7));
            assert!(to >= 0 && from <= 0, "{counter:?}: {to}, {from}");
        }
    }

    fn any_counter(least: u32) -> impl Strategy<Value = Counter> {
        (least..=64, 0.1..2_000.0).prop_map(|(bits, period)| Counter::new(bits, period).unwrap())
    }

    proptest! {
        /// Wherever it starts, however far apart its readings lie, and with whatever in the bits that are not valid: the times are those of
        /// a counter that never comes round, in their order.
        #[test]
        fn rounds_are_counted(
            // A round must be longer than the nanoseconds of the host's clock.
            counter in any_counter(8),
            start in any::<u64>(),
            junk in any::<u64>(),
            steps in prop::collection::vec((0.0..3.0, -500.0..500.0), 1..40),
            within in -0.49..0.49,
        ) {
            // It starts and goes up to three rounds at each step, but not past what 63 bits of nanoseconds hold.
            let most = (counter.wraps_after() as f64 / counter.period).min(5e16 / counter.period);
            let valid = u64::MAX >> (64 - counter.bits());
            let mut ticks = i128::from(start & valid) % (1e18 / counter.period()) as i128;
            let shown = |ticks: i128| (ticks as u64 & valid) | (junk & !valid);
            let time = |ticks: i128| ticks as f64 * counter.period();
            let (mut rounds, mut host, mut before) = (Rounds::new(counter), 0.0_f64, None);
            for (far, ppm) in steps {
                let told = rounds.follow(shown(ticks), host as i64);
                let slack = 2.0 + time(ticks).abs() * 1e-15;
                prop_assert!((told as f64 - time(ticks)).abs() <= slack, "{told} {ticks}");
                prop_assert!(before.is_none_or(|before| before <= told));
                before = Some(told);
                let near = ticks + (within * most) as i128;
                let found = rounds.time_of(shown(near)).unwrap();
                prop_assert!((found as f64 - time(near)).abs() <= slack + time(near).abs() * 1e-15, "{found} {near}");
                let passed = (far * most) as i128;
                ticks += passed;
                // The host's clock goes up to 500 parts per million faster or slower.
                host += time(passed) * (1.0 + ppm * 1e-6);
            }
        }

        #[test]
        fn there_and_back_is_as_long(counter in any_counter(1), from in any::<u64>(), to in any::<u64>()) {
            let there = counter.elapsed(from, to);
            prop_assert!(there.unsigned_abs() <= counter.wraps_after() / 2 + 1);
            // Half a round away is the same both ways.
            if there.unsigned_abs() < (counter.wraps_after() / 2).saturating_sub(1) {
                prop_assert_eq!(counter.elapsed(to, from), -there);
            }
            prop_assert_eq!(counter.unwrap(to, from, 0), there);
        }

        #[test]
        fn later_is_not_earlier(counter in any_counter(1), from in any::<u64>(), near in 0_u64..1 << 62, further in 0_u64..1 << 62) {
            let half = (u64::MAX >> (64 - counter.bits())) / 2;
            let (near, further) = (near & half, further & half);
            let (near, further) = (near.min(further), near.max(further));
            let [near, further] = [near, further].map(|by| counter.elapsed(from, from.wrapping_add(by)));
            prop_assert!(0 <= near && near <= further);
        }
    }
}
