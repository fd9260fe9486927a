//! What is asked of a row, as data.

use std::fmt;

use crate::stats::Estimate;

/// The figure that says that raw did not finish.
pub const RAW_HANGS: &str = "raw_hangs";

/// A bar. It is judged by medians, a difference also by how surely it is known, and printed in
/// words.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bar {
    /// Ours takes at most so many times as long as raw.
    Ratio(f64),
    /// Ours takes at most so many nanoseconds.
    Within(f64),
    /// Ours takes at most so many nanoseconds more than raw. Where that is less than the noise of
    /// both, it can be neither met nor missed, but [`Verdict::Unsure`].
    Over(f64),
    /// Ours is at least so many times as fast as raw: a speed, so the inverse of the ratio of
    /// times.
    Speed(f64),
    /// The figure of this name is at most so much.
    Figure(&'static str, f64),
    /// Ours finishes; where raw does too (see [`RAW_HANGS`]), ours takes at most so many times as
    /// long.
    Outlasts(f64),
    /// Ours takes at most so many times as long as in an earlier recording. One run alone only has
    /// to measure it: [`compare`](crate::compare) judges it.
    Recorded(f64),
    /// All of these.
    All(&'static [Bar]),
    /// Nothing is asked: the row is there to be read.
    Shown,
}

/// What a bar is judged by. Times are medians in nanoseconds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found<'a> {
    /// Ours.
    pub ours: Option<f64>,
    /// Raw.
    pub raw: Option<f64>,
    /// How much longer ours takes than raw, round by round: this is surer than the difference of
    /// the two medians, as a machine that slows down slows both.
    pub over: Option<Estimate>,
    /// Everything else that was measured, by name.
    pub figures: &'a [(String, f64)],
}

/// What became of a bar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is met.
    Met,
    /// It is missed: each part that is, in words.
    Missed(Vec<String>),
    /// No part of it is missed, but of these it cannot be told whether they are met.
    Unsure(Vec<String>),
}

/// What became of a bar's parts.
#[derive(Debug, Default)]
struct Short {
    missed: Vec<String>,
    unsure: Vec<String>,
}

impl Bar {
    /// Judges. What was not measured is missed: a bar is not met by silence.
    #[must_use]
    pub fn judge(&self, found: &Found<'_>) -> Verdict {
        let mut short = Short::default();
        self.collect(found, &mut short);
        if !short.missed.is_empty() {
            Verdict::Missed(short.missed)
        } else if !short.unsure.is_empty() {
            Verdict::Unsure(short.unsure)
        } else {
            Verdict::Met
        }
    }

    /// The largest allowed ratio to an earlier recording; `None` if the bar has no such limit.
    #[must_use]
    pub fn limit_to_recorded(&self) -> Option<f64> {
        match *self {
            Self::Recorded(most) => Some(most),
            Self::All(bars) => bars
                .iter()
                .filter_map(Self::limit_to_recorded)
                .reduce(f64::min),
            _ => None,
        }
    }

    fn collect(&self, found: &Found<'_>, all: &mut Short) {
        let both = found.ours.zip(found.raw);
        let short = match *self {
            Self::Shown => None,
            Self::All(bars) => {
                bars.iter().for_each(|bar| bar.collect(found, all));
                None
            }
            Self::Ratio(most) => judged(both, |(ours, raw)| {
                (ours > most * raw).then(|| format!("{:.2} times raw", ours / raw))
            }),
            Self::Recorded(_) => judged(found.ours, |_| None),
            Self::Within(most) => judged(found.ours, |ours| {
                (ours > most).then(|| format!("{ours:.1} ns"))
            }),
            Self::Over(most) => judged(found.over, |Estimate { value, low, high }| {
                let words = format!("{value:.1} ns more than raw ({low:.1}..{high:.1})");
                if low <= most && high > most {
                    all.unsure.push(format!("{self}: cannot tell: {words}"));
                    return None;
                }
                (low > most).then_some(words)
            }),
            Self::Speed(least) => judged(both, |(ours, raw)| {
                (raw < least * ours).then(|| format!("{:.3} of raw's speed", raw / ours))
            }),
            Self::Figure(name, most) => {
                let value = found.figures.iter().find(|(figure, _)| figure == name);
                judged(value, |(_, value)| {
                    (value.is_nan() || *value > most).then(|| format!("{name} is {value:.3}"))
                })
            }
            Self::Outlasts(most) => judged(found.ours, |ours| match found.raw {
                Some(raw) if ours > most * raw => Some(format!("{:.2} times raw", ours / raw)),
                None if !found.figures.iter().any(|(name, _)| name == RAW_HANGS) => {
                    Some("raw was not measured".into())
                }
                _ => None,
            }),
        };
        all.missed
            .extend(short.map(|short| format!("{self}: {short}")));
    }
}

/// In which way `value` falls short; if it is not there, in that.
fn judged<T>(value: Option<T>, short: impl FnOnce(T) -> Option<String>) -> Option<String> {
    match value {
        Some(value) => short(value),
        None => Some("was not measured".into()),
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Ratio(most) => write!(f, "ratio ≤ {most}"),
            Self::Within(most) => write!(f, "≤ {most} ns"),
            Self::Over(most) => write!(f, "≤ raw + {most} ns"),
            Self::Speed(least) => write!(f, "speed ≥ {least}"),
            Self::Figure(name, most) => write!(f, "{name} ≤ {most}"),
            Self::Outlasts(most) => write!(f, "finishes, ratio ≤ {most} where raw finishes too"),
            Self::Recorded(most) => write!(f, "≤ {most} × an earlier recording"),
            Self::All(bars) => {
                for (number, bar) in bars.iter().enumerate() {
                    let and = if number == 0 { "" } else { ", " };
                    write!(f, "{and}{bar}")?;
                }
                Ok(())
            }
            Self::Shown => f.write_str("shown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn surely(value: f64) -> Estimate {
        Estimate {
            value,
            low: value,
            high: value,
        }
    }

    fn found(ours: f64, raw: f64) -> Found<'static> {
        Found {
            ours: Some(ours),
            raw: Some(raw),
            over: Some(surely(ours - raw)),
            figures: &[],
        }
    }

    fn meets(bar: Bar, ours: f64, raw: f64) -> bool {
        bar.judge(&found(ours, raw)) == Verdict::Met
    }

    #[test]
    fn each_kind_is_met_up_to_its_limit_and_missed_beyond() {
        for (bar, ours, beyond) in [
            (Bar::Ratio(1.5), 150.0, 150.1),
            (Bar::Within(5.0), 5.0, 5.1),
            (Bar::Over(30.0), 130.0, 130.1),
            (Bar::Speed(0.5), 200.0, 200.1),
            (Bar::Outlasts(0.5), 50.0, 50.1),
        ] {
            assert!(meets(bar, ours, 100.0), "{bar}");
            assert!(!meets(bar, beyond, 100.0), "{bar}");
        }
        assert!(meets(Bar::Shown, 1e9, 1.0));
    }

    #[test]
    fn all_are_asked_and_each_miss_is_told() {
        const BOTH: Bar = Bar::All(&[Bar::Ratio(0.1), Bar::Within(5.0)]);
        assert!(meets(BOTH, 4.0, 100.0));
        for (ours, raw, count) in [(4.0, 10.0, 1), (6.0, 100.0, 1), (6.0, 10.0, 2)] {
            match BOTH.judge(&found(ours, raw)) {
                Verdict::Missed(missed) => assert_eq!(missed.len(), count, "{missed:?}"),
                verdict => panic!("{ours} beside {raw}: {verdict:?}"),
            }
        }
    }

    #[test]
    fn a_difference_that_is_not_known_well_enough_is_neither_met_nor_missed() {
        let bar = Bar::Over(5.0);
        let judged = |low, high| {
            bar.judge(&Found {
                over: Some(Estimate {
                    value: f64::midpoint(low, high),
                    low,
                    high,
                }),
                ..Found::default()
            })
        };
        assert_eq!(judged(-9.0, 5.0), Verdict::Met);
        assert!(matches!(judged(5.1, 30.0), Verdict::Missed(_)));
        for (low, high) in [(-9.0, 5.1), (5.0, 30.0), (f64::NEG_INFINITY, f64::INFINITY)] {
            match judged(low, high) {
                Verdict::Unsure(why) => assert!(why[0].contains("cannot tell"), "{why:?}"),
                verdict => panic!("between {low} and {high}: {verdict:?}"),
            }
        }
    }

    #[test]
    fn what_is_missed_is_not_hidden_by_what_cannot_be_told() {
        const BOTH: Bar = Bar::All(&[Bar::Over(5.0), Bar::Within(5.0)]);
        let unsure = Estimate {
            value: 4.0,
            low: 0.0,
            high: 8.0,
        };
        let judged = |ours| {
            BOTH.judge(&Found {
                ours: Some(ours),
                over: Some(unsure),
                ..Found::default()
            })
        };
        assert!(matches!(judged(4.0), Verdict::Unsure(_)));
        match judged(6.0) {
            Verdict::Missed(missed) => assert_eq!(missed.len(), 1, "{missed:?}"),
            verdict => panic!("{verdict:?}"),
        }
    }

    #[test]
    fn what_was_not_measured_is_missed() {
        let silence = Found::default();
        for bar in [
            Bar::Ratio(9.0),
            Bar::Within(9.0),
            Bar::Over(9.0),
            Bar::Speed(0.1),
            Bar::Figure("bytes", 9.0),
            Bar::Outlasts(9.0),
            Bar::Recorded(9.0),
        ] {
            assert!(matches!(bar.judge(&silence), Verdict::Missed(_)), "{bar}");
        }
    }

    #[test]
    fn raw_that_hangs_is_outlasted() {
        let alone = Found {
            ours: Some(1e6),
            ..Found::default()
        };
        assert!(matches!(
            Bar::Outlasts(0.8).judge(&alone),
            Verdict::Missed(_)
        ));
        let hangs = [(RAW_HANGS.to_owned(), 1.0)];
        let beside = Found {
            figures: &hangs,
            ..alone
        };
        assert_eq!(Bar::Outlasts(0.8).judge(&beside), Verdict::Met);
    }

    #[test]
    fn a_figure_is_found_by_its_name_and_no_number_is_missed() {
        let figures = [("bytes".to_owned(), 128.0), ("odd".to_owned(), f64::NAN)];
        let with = Found {
            figures: &figures,
            ..Found::default()
        };
        assert_eq!(Bar::Figure("bytes", 128.0).judge(&with), Verdict::Met);
        for missed in [("bytes", 127.0), ("threads", 9.0), ("odd", 9.0)] {
            let verdict = Bar::Figure(missed.0, missed.1).judge(&with);
            assert!(matches!(verdict, Verdict::Missed(_)), "{missed:?}");
        }
    }

    #[test]
    fn one_run_alone_meets_a_limit_to_an_earlier_one() {
        assert!(meets(Bar::Recorded(1.2), 1e9, 1.0));
        const BOTH: Bar = Bar::All(&[Bar::Recorded(1.3), Bar::Ratio(2.0), Bar::Recorded(1.2)]);
        assert_eq!(BOTH.limit_to_recorded(), Some(1.2));
        assert_eq!(Bar::Ratio(2.0).limit_to_recorded(), None);
    }

    #[test]
    fn a_bar_is_told_in_words() {
        let bar = Bar::All(&[Bar::Ratio(0.4), Bar::Figure("cpu ratio", 1.0)]);
        assert_eq!(bar.to_string(), "ratio ≤ 0.4, cpu ratio ≤ 1");
    }
}
