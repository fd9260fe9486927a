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

    /// Nanoseconds from one reading to another, negative if `to` is the earlier one: whichever way round is the shorter. So the
    /// two may lie half a round apart at most. Bits that are not valid are ignored.
    #[must_use]
    pub fn elapsed(self, from: u64, to: u64) -> i64 {
        self.nanoseconds(self.difference(from, to))
    }

    /// The time of a reading, in nanoseconds since the counter was 0 in the round in which `known`, the time of another
    /// reading `at`, lies: the round is chosen so that the two are as near to each other as can be.
    #[must_use]
    pub fn unwrap(self, reading: u64, at: u64, known: i64) -> i64 {
        known.saturating_add(self.elapsed(at, reading))
    }

    fn difference(self, from: u64, to: u64) -> i64 {
        let unused = 64 - self.bits;
        // Shifting the sign bit of the narrow counter into place and back extends it.
        (to.wrapping_sub(from) << unused).cast_signed() >> unused
    }

    /// Whole periods, which most devices have, are exact.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "saturates, which is what is wanted"
    )]
    fn nanoseconds(self, ticks: i64) -> i64 {
        if self.period.fract() == 0.0 {
            ticks.saturating_mul(self.period as i64)
        } else {
            (ticks as f64 * self.period).round() as i64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Counter;

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
}
