//! The axis of time: round ticks, and times as text.

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Unit {
    name: &'static str,
    /// Nanoseconds, as a power of ten.
    power: u32,
}

const UNITS: [Unit; 4] = [
    Unit {
        name: "ns",
        power: 0,
    },
    Unit {
        name: "µs",
        power: 3,
    },
    Unit {
        name: "ms",
        power: 6,
    },
    Unit {
        name: "s",
        power: 9,
    },
];

/// Chooses the unit for a time of this size.
fn unit(nanoseconds: i128) -> Unit {
    let size = nanoseconds.unsigned_abs();
    let fits = |unit: &&Unit| size >= 10_u128.pow(unit.power);
    *UNITS.iter().rev().find(fits).unwrap_or(&UNITS[0])
}

/// Formats a time with this number of decimals, rounded towards zero.
fn say(nanoseconds: i128, unit: Unit, decimals: u32) -> String {
    let sign = if nanoseconds < 0 { "−" } else { "" };
    let size = nanoseconds.unsigned_abs();
    let one = 10_u128.pow(unit.power);
    let whole = size / one;
    let decimals = decimals.min(unit.power);
    if decimals == 0 {
        return format!("{sign}{whole} {}", unit.name);
    }
    let rest = size % one / 10_u128.pow(unit.power - decimals);
    let width = decimals as usize;
    format!("{sign}{whole}.{rest:0width$} {}", unit.name)
}

/// Formats a time with at least three digits.
pub(super) fn words(nanoseconds: i128) -> String {
    let unit = unit(nanoseconds);
    let whole = nanoseconds.unsigned_abs() / 10_u128.pow(unit.power);
    let decimals = match whole {
        _ if unit.power == 0 => 0,
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    say(nanoseconds, unit, decimals)
}

/// The positions of the ticks and their labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Axis {
    /// In nanoseconds since the begin of the recording, with their labels.
    pub(super) ticks: Vec<(i128, String)>,
    /// The time from which the labels count, if they would have too many digits otherwise.
    ///
    /// As text, since the begin of the recording.
    pub(super) base: Option<String>,
}

impl Axis {
    /// Makes at most `most` ticks between two times, at 1, 2 or 5 times a power of ten.
    pub(super) fn new(from: i128, to: i128, most: u32) -> Self {
        let most = i128::from(most.max(1));
        let (step, power) = step(to - from, most);
        let last = if to.abs() > from.abs() { to } else { from };
        let mut base = 0;
        let mut said = unit(last);
        if said.power > power + 3 {
            // Late times in a long recording would have many digits.
            base = from.div_euclid(step * 10) * (step * 10);
            said = unit(to - base);
        }
        let decimals = said.power.saturating_sub(power);
        let mut ticks = Vec::new();
        let mut at = from.div_euclid(step) * step;
        while at <= to {
            if at >= from {
                let sign = if base != 0 && at != base { "+" } else { "" };
                ticks.push((at, format!("{sign}{}", say(at - base, said, decimals))));
            }
            at += step;
        }
        let whole = unit(base);
        let base = (base != 0).then(|| {
            let decimals = whole.power.saturating_sub(power + 1);
            say(base, whole, decimals)
        });
        Self { ticks, base }
    }
}

/// Returns the smallest step of which at most `most` fit, and the power of ten in it.
fn step(length: i128, most: i128) -> (i128, u32) {
    let mut power = 0;
    loop {
        for factor in [1, 2, 5] {
            let step = factor * 10_i128.pow(power);
            if length / step <= most {
                return (step, power);
            }
        }
        power += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(from: i128, to: i128, most: u32) -> Vec<String> {
        let axis = Axis::new(from, to, most);
        axis.ticks.into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(
            labels(0, 10_000_000, 5),
            ["0 ms", "2 ms", "4 ms", "6 ms", "8 ms", "10 ms"]
        );
        assert_eq!(
            labels(1_200_001, 2_000_000, 4),
            ["1.4 ms", "1.6 ms", "1.8 ms", "2.0 ms"]
        );
        assert_eq!(labels(-3, 3, 3), ["−2 ns", "0 ns", "2 ns"]);
        assert_eq!(
            labels(0, 1_500_000_000, 3),
            ["0.0 s", "0.5 s", "1.0 s", "1.5 s"]
        );
    }

    #[test]
    fn late_times_are_counted_from_a_round_one() {
        let axis = Axis::new(5_000_123_400, 5_000_129_000, 6);
        assert_eq!(axis.base.as_deref(), Some("5.00012 s"));
        let labels: Vec<_> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(
            labels,
            ["+4 µs", "+5 µs", "+6 µs", "+7 µs", "+8 µs", "+9 µs"]
        );
    }

    #[test]
    fn the_largest_times_have_ticks() {
        let axis = Axis::new(i128::from(i64::MIN) * 2, i128::from(i64::MAX) * 2, 8);
        assert!((4..=9).contains(&axis.ticks.len()));
    }

    #[test]
    fn words_have_three_digits() {
        assert_eq!(words(0), "0 ns");
        assert_eq!(words(1_234), "1.23 µs");
        assert_eq!(words(45_600_000), "45.6 ms");
        assert_eq!(words(789_000_000_000), "789 s");
    }
}
