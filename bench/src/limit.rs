//! Limits of rows, as data.

use std::collections::BTreeMap;
use std::fmt;

/// The figure that says that the raw side did not finish.
pub const RAW_HANGS: &str = "raw_hangs";

/// Number of runs of a row with a [`Limit::RatioToRaw`]. The run with the median ratio is judged.
pub const RATIO_RUNS: usize = 3;

/// A limit of a row. Times are medians over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Ours takes at most this many nanoseconds.
    Within(f64),
    /// Ours takes at most this many nanoseconds more than raw.
    OverRaw(f64),
    /// Ours takes at most this many nanoseconds more than the floor.
    OverFloor(f64),
    /// Ours takes at most this many times as long as the floor.
    RatioToFloor(f64),
    /// Ours takes at most this many times as long as raw, in the median of [`RATIO_RUNS`] runs.
    RatioToRaw(f64),
    /// The figure of this name is at most this.
    Figure(&'static str, f64),
    /// The ratio to the floor, or else to raw, is at most this many times that of an earlier
    /// recording. Only [`compare`](crate::compare) judges it.
    Recorded(f64),
}

/// The medians and figures that limits are judged by.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// Nanoseconds of ours.
    pub ours: Option<f64>,
    /// Nanoseconds of raw.
    pub raw: Option<f64>,
    /// Nanoseconds of the floor.
    pub floor: Option<f64>,
    /// All other figures, by name.
    pub figures: &'a BTreeMap<String, f64>,
}

impl Limit {
    /// Number of runs of the row that this limit needs.
    #[must_use]
    pub const fn runs(self) -> usize {
        match self {
            Self::RatioToRaw(_) => RATIO_RUNS,
            _ => 1,
        }
    }

    /// How many times as many rounds a row with this limit takes.
    ///
    /// A difference of nanoseconds is a small part of what a row measures.
    #[must_use]
    pub const fn rounds(self) -> u32 {
        match self {
            Self::OverRaw(_) | Self::OverFloor(_) => 4,
            _ => 1,
        }
    }

    /// Returns in words how `found` misses this limit; `None` if it does not.
    ///
    /// A limit is missed if its quantity was not measured. One run never misses a
    /// [`Limit::Recorded`].
    #[must_use]
    pub fn missed(self, found: &Found<'_>) -> Option<String> {
        let Found {
            ours, raw, floor, ..
        } = *found;
        // How far `value` is above `most`; a value that is no number is above every limit.
        let above = |value: Option<f64>, most: f64, words: fn(f64) -> String| match value {
            None => Some("was not measured".into()),
            Some(value) => (value.is_nan() || value > most).then(|| words(value)),
        };
        let less = |other: Option<f64>| ours.zip(other).map(|(ours, other)| ours - other);
        let missed = match self {
            Self::Within(most) => above(ours, most, |ours| format!("{ours:.1} ns")),
            Self::OverRaw(most) => above(less(raw), most, |over| format!("raw + {over:.1} ns")),
            Self::OverFloor(most) => {
                above(less(floor), most, |over| format!("floor + {over:.1} ns"))
            }
            Self::RatioToFloor(most) => {
                let ratio = ours.zip(floor).map(|(ours, floor)| ours / floor);
                above(ratio, most, |ratio| format!("{ratio:.2} × floor"))
            }
            Self::RatioToRaw(most) => {
                let ratio = ours.zip(raw).map(|(ours, raw)| ours / raw);
                above(ratio, most, |ratio| format!("{ratio:.3} × raw"))
            }
            Self::Figure(name, most) => above(found.figures.get(name).copied(), most, |value| {
                format!("{value:.3}")
            }),
            Self::Recorded(_) => None,
        };
        missed.map(|missed| format!("{self}: {missed}"))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Within(most) => write!(f, "≤ {most} ns"),
            Self::OverRaw(most) => write!(f, "≤ raw + {most} ns"),
            Self::OverFloor(most) => write!(f, "≤ floor + {most} ns"),
            Self::RatioToFloor(most) => write!(f, "≤ {most} × floor"),
            Self::RatioToRaw(most) => write!(f, "≤ {most} × raw"),
            Self::Figure(name, most) => write!(f, "{name} ≤ {most}"),
            Self::Recorded(most) => write!(f, "≤ {most} × an earlier recording"),
        }
    }
}

/// All `limits` in words.
#[must_use]
pub fn words(limits: &[Limit]) -> String {
    if limits.is_empty() {
        return "no limit".into();
    }
    let each: Vec<_> = limits.iter().map(ToString::to_string).collect();
    each.join(", ")
}

/// Returns the misses of all `limits` in words. `None` if one run judges none of them.
#[must_use]
pub fn judge(limits: &[Limit], found: &Found<'_>) -> Option<Vec<String>> {
    let judged = |limit: &Limit| !matches!(limit, Limit::Recorded(_));
    let missed = limits.iter().filter_map(|limit| limit.missed(found));
    limits.iter().any(judged).then(|| missed.collect())
}

/// The largest allowed growth since an earlier recording.
#[must_use]
pub fn to_recorded(limits: &[Limit]) -> Option<f64> {
    let recorded = limits.iter().filter_map(|limit| match limit {
        Limit::Recorded(most) => Some(*most),
        _ => None,
    });
    recorded.reduce(f64::min)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const NOTHING: BTreeMap<String, f64> = BTreeMap::new();

    fn missed(limit: Limit, ours: f64) -> bool {
        let found = Found {
            ours: Some(ours),
            raw: Some(90.0),
            floor: Some(100.0),
            figures: &NOTHING,
        };
        limit.missed(&found).is_some()
    }

    #[rstest]
    #[case::within(Limit::Within(5.0), 5.0, 5.1)]
    #[case::over_raw(Limit::OverRaw(30.0), 120.0, 120.1)]
    #[case::over_floor(Limit::OverFloor(30.0), 130.0, 130.1)]
    #[case::ratio_to_floor(Limit::RatioToFloor(1.2), 120.0, 120.1)]
    #[case::ratio_to_raw(Limit::RatioToRaw(2.0), 180.0, 180.1)]
    fn a_limit_is_met_up_to_its_value_and_missed_above(
        #[case] limit: Limit,
        #[case] ours: f64,
        #[case] above: f64,
    ) {
        assert!(!missed(limit, ours));
        assert!(missed(limit, above));
        assert!(missed(limit, f64::NAN));
    }

    #[rstest]
    #[case::within(Limit::Within(9.0))]
    #[case::over_raw(Limit::OverRaw(9.0))]
    #[case::over_floor(Limit::OverFloor(9.0))]
    #[case::ratio_to_floor(Limit::RatioToFloor(9.0))]
    #[case::ratio_to_raw(Limit::RatioToRaw(9.0))]
    #[case::figure(Limit::Figure("bytes", 9.0))]
    fn a_quantity_that_was_not_measured_misses_its_limit(#[case] limit: Limit) {
        let found = Found {
            ours: None,
            raw: None,
            floor: None,
            figures: &NOTHING,
        };
        let missed = limit.missed(&found);
        assert!(missed.is_some_and(|missed| missed.ends_with("was not measured")));
    }

    #[rstest]
    #[case::equal("bytes", 128.0, false)]
    #[case::above("bytes", 127.0, true)]
    #[case::unknown_name("threads", 9.0, true)]
    #[case::not_a_number("odd", 9.0, true)]
    fn a_figure_is_judged_by_its_name(
        #[case] name: &'static str,
        #[case] most: f64,
        #[case] expected: bool,
    ) {
        let figures = [("bytes", 128.0), ("odd", f64::NAN)];
        let figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
        let found = Found {
            ours: None,
            raw: None,
            floor: None,
            figures: &figures,
        };
        let missed = Limit::Figure(name, most).missed(&found);
        assert_eq!(missed.is_some(), expected, "{missed:?}");
    }

    #[test]
    fn each_missed_limit_is_named() {
        let limits = [Limit::Within(5.0), Limit::OverFloor(1.0)];
        let count = |ours, floor| {
            let found = Found {
                ours: Some(ours),
                raw: None,
                floor: Some(floor),
                figures: &NOTHING,
            };
            judge(&limits, &found).map(|missed| missed.len())
        };
        assert_eq!(count(4.0, 3.0), Some(0));
        assert_eq!(count(4.0, 1.0), Some(1));
        assert_eq!(count(6.0, 1.0), Some(2));
    }

    #[test]
    fn one_run_does_not_judge_a_limit_to_a_recording() {
        let found = Found {
            ours: Some(1e9),
            raw: Some(1.0),
            floor: None,
            figures: &NOTHING,
        };
        assert_eq!(judge(&[Limit::Recorded(1.2)], &found), None);
        assert_eq!(judge(&[], &found), None);
        let both = [
            Limit::Recorded(1.3),
            Limit::Within(2e9),
            Limit::Recorded(1.2),
        ];
        assert_eq!(judge(&both, &found), Some(Vec::new()));
        assert_eq!(to_recorded(&both), Some(1.2));
        assert_eq!(to_recorded(&[Limit::Within(2.0)]), None);
    }

    #[test]
    fn limits_are_printed_in_words() {
        let limits = [Limit::RatioToFloor(1.2), Limit::Figure("bytes", 1.0)];
        assert_eq!(words(&limits), "≤ 1.2 × floor, bytes ≤ 1");
        assert_eq!(words(&[]), "no limit");
    }
}
