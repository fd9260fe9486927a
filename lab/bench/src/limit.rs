//! Limits of rows, as data.

use std::collections::BTreeMap;
use std::fmt;

/// A limit of a row. Times are medians over the rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Ours takes at most this many nanoseconds.
    Within(f64),
    /// Ours takes at most this many nanoseconds more than raw.
    OverRaw(f64),
    /// Ours takes at most this many times as long as raw, in the median of three runs.
    RatioToRaw(f64),
    /// The figure of this name is at most this.
    Figure(&'static str, f64),
}

/// The medians and figures that limits are judged by.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// Nanoseconds of ours.
    pub ours: Option<f64>,
    /// Nanoseconds of raw.
    pub raw: Option<f64>,
    /// All other figures, by name.
    pub figures: &'a BTreeMap<String, f64>,
}

impl Limit {
    /// Number of runs of the row that this limit needs. The run with the median ratio is judged.
    #[must_use]
    pub const fn runs(self) -> usize {
        match self {
            Self::RatioToRaw(_) => 3,
            _ => 1,
        }
    }

    /// How many times as many rounds a row with this limit takes.
    ///
    /// A difference of nanoseconds is a small part of what a row measures.
    #[must_use]
    pub const fn rounds(self) -> u32 {
        match self {
            Self::OverRaw(_) => 4,
            _ => 1,
        }
    }

    /// Returns in words how `found` misses this limit; `None` if it does not.
    ///
    /// A limit is missed if its quantity was not measured.
    #[must_use]
    pub fn missed(self, found: &Found<'_>) -> Option<String> {
        let both = found.ours.zip(found.raw);
        let (value, most) = match self {
            Self::Within(most) => (found.ours, most),
            Self::OverRaw(most) => (both.map(|(ours, raw)| ours - raw), most),
            Self::RatioToRaw(most) => (both.map(|(ours, raw)| ours / raw), most),
            Self::Figure(name, most) => (found.figures.get(name).copied(), most),
        };
        let Some(value) = value else {
            return Some(format!("{self}: was not measured"));
        };
        // A value that is no number is above every limit.
        (value.is_nan() || value > most).then(|| match self {
            Self::Within(_) => format!("{self}: {value:.1} ns"),
            Self::OverRaw(_) => format!("{self}: raw + {value:.1} ns"),
            Self::RatioToRaw(_) => format!("{self}: {value:.3} × raw"),
            Self::Figure(..) => format!("{self}: {value:.3}"),
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Within(most) => write!(f, "≤ {most} ns"),
            Self::OverRaw(most) => write!(f, "≤ raw + {most} ns"),
            Self::RatioToRaw(most) => write!(f, "≤ {most} × raw"),
            Self::Figure(name, most) => write!(f, "{name} ≤ {most}"),
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

/// The misses of all `limits` in words; `None` without limits.
#[must_use]
pub fn judge(limits: &[Limit], found: &Found<'_>) -> Option<Vec<String>> {
    let missed = limits.iter().filter_map(|limit| limit.missed(found));
    (!limits.is_empty()).then(|| missed.collect())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const BYTES: Limit = Limit::Figure("bytes", 9.0);

    #[rstest]
    #[case::within(Limit::Within(5.0), 5.0, 5.1, "≤ 5 ns: 5.1 ns")]
    #[case::over_raw(Limit::OverRaw(30.0), 120.0, 120.1, "≤ raw + 30 ns: raw + 30.1 ns")]
    #[case::ratio(Limit::RatioToRaw(2.0), 180.0, 181.0, "≤ 2 × raw: 2.011 × raw")]
    #[case::figure(BYTES, 9.0, 10.0, "bytes ≤ 9: 10.000")]
    fn a_limit_is_met_up_to_its_value_and_missed_above(
        #[case] limit: Limit,
        #[case] met: f64,
        #[case] above: f64,
        #[case] words: &str,
    ) {
        let missed = |value| {
            let figures = BTreeMap::from([("bytes".to_owned(), value)]);
            limit.missed(&Found {
                ours: Some(value),
                raw: Some(90.0),
                figures: &figures,
            })
        };
        assert_eq!(missed(met), None);
        assert_eq!(missed(above).as_deref(), Some(words));
        assert!(missed(f64::NAN).is_some());
        let nothing = Found {
            ours: None,
            raw: None,
            figures: &BTreeMap::new(),
        };
        let unmeasured = limit.missed(&nothing);
        assert!(unmeasured.is_some_and(|missed| missed.ends_with("was not measured")));
    }

    #[test]
    fn each_missed_limit_is_named() {
        let limits = [Limit::Within(5.0), Limit::OverRaw(1.0)];
        let count = |ours, raw| {
            let found = Found {
                ours: Some(ours),
                raw: Some(raw),
                figures: &BTreeMap::new(),
            };
            assert_eq!(judge(&[], &found), None);
            judge(&limits, &found).map(|missed| missed.len())
        };
        assert_eq!(
            [count(4.0, 3.0), count(4.0, 1.0), count(6.0, 1.0)],
            [Some(0), Some(1), Some(2)]
        );
        assert_eq!(words(&limits), "≤ 5 ns, ≤ raw + 1 ns");
        assert_eq!(words(&[]), "no limit");
    }
}
