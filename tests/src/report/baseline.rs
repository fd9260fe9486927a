//! Compares a run with a recorded one. What passed there must pass here.

use super::{Ending, Record, Report};
use crate::cases::merged::current;

/// A case that is known not to pass here, although it passed in the recorded run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exception {
    /// The case.
    pub case: String,
    /// The backends of the subject, such as `cuda -> host`.
    pub backends: String,
    /// Why it cannot pass here.
    pub why: String,
}

/// Reads a list of exceptions: lines of `case | backends | reason`.
///
/// Empty lines and lines that begin with `#` are skipped.
///
/// # Errors
/// The number of the first line of another form, and the line.
pub fn exceptions(text: &str) -> Result<Vec<Exception>, (usize, String)> {
    let lines = text.lines().enumerate();
    let lines = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|(number, line)| {
            let mut words = line.splitn(3, '|').map(str::trim);
            match (words.next(), words.next(), words.next()) {
                (Some(case), Some(backends), Some(why)) if !why.is_empty() => Ok(Exception {
                    case: case.into(),
                    backends: backends.into(),
                    why: why.into(),
                }),
                _ => Err((number + 1, line.into())),
            }
        })
        .collect()
}

/// Returns the backends of a subject: `cuda -> host` for `cuda NVIDIA H200 -> host`.
///
/// Names of devices differ between machines, but backends do not.
fn backends(subject: &str) -> String {
    let sides = subject.split(" -> ");
    let words = sides.map(|side| side.split(' ').next().unwrap_or_default());
    words.collect::<Vec<_>>().join(" -> ")
}

impl Record {
    fn is(&self, case: &str, kind: &str) -> bool {
        current(&self.id) == current(case) && backends(&self.subject) == kind
    }
}

impl Report {
    /// Whether this run has a subject of the same backends.
    #[must_use]
    pub fn has_backends_of(&self, subject: &str) -> bool {
        let kind = backends(subject);
        self.cases
            .iter()
            .any(|record| backends(&record.subject) == kind)
    }

    /// Lists what passed in `recorded` and did not pass in this run, in the recorded order.
    ///
    /// There is one line for each case and kind of subject. Also lists wrong exceptions: those
    /// whose case passed, and those whose case is unknown.
    ///
    /// Subjects are compared by their backends. A case counts as passed where it passed on one
    /// subject of these backends and failed on none. `chosen` says of a recorded subject, case and
    /// its rules whether it is compared.
    #[must_use]
    pub fn behind(
        &self,
        recorded: &Self,
        exceptions: &[Exception],
        chosen: impl Fn(&str, &str, &[String]) -> bool,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        let passed_before = || {
            let cases = recorded.cases.iter();
            cases.filter(|record| record.outcome == Ending::Passed)
        };
        for before in passed_before() {
            if !chosen(&before.subject, &before.id, &before.rules) {
                continue;
            }
            let kind = backends(&before.subject);
            let now = self.cases.iter();
            let now: Vec<_> = now.filter(|now| now.is(&before.id, &kind)).collect();
            let passed = now.iter().any(|record| record.outcome == Ending::Passed)
                && now.iter().all(|record| record.outcome != Ending::Failed);
            let excepted = exceptions
                .iter()
                .find(|known| before.is(&known.case, &known.backends));
            let line = match (passed, excepted) {
                (true, None) | (false, Some(_)) => continue,
                (true, Some(_)) => "passes although it is an exception".into(),
                (false, None) => now.first().map_or_else(
                    || "was not run".to_owned(),
                    |record| {
                        record
                            .reason
                            .clone()
                            .unwrap_or_else(|| "did not pass".into())
                    },
                ),
            };
            let line = format!("{} on {kind}: {line}", before.id);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        for Exception { case, backends, .. } in exceptions {
            if !passed_before().any(|before| before.is(case, backends)) {
                let line = "an exception, but it did not pass in the recorded run";
                lines.push(format!("{case} on {backends}: {line}"));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cases: &[(&str, &str, Ending)]) -> Report {
        let mut report = Report::new(Vec::new());
        report.cases = cases
            .iter()
            .map(|&(id, subject, outcome)| Record {
                id: id.into(),
                rules: Vec::new(),
                subject: subject.into(),
                outcome,
                reason: (outcome != Ending::Passed).then(|| "a reason".into()),
                lost: false,
                seconds: 0.0,
            })
            .collect();
        report
    }

    #[test]
    fn what_passed_before_must_pass() {
        let recorded = run(&[
            ("passes", "cuda Big -> host", Ending::Passed),
            ("skipped", "cuda Big", Ending::Passed),
            ("failed.on.one", "cuda Big", Ending::Passed),
            ("not.there", "cuda Big", Ending::Passed),
            ("excepted", "cuda Big", Ending::Passed),
            ("out.of.date", "cuda Big", Ending::Passed),
            ("never.passed", "cuda Big", Ending::Skipped),
            ("another", "host", Ending::Passed),
        ]);
        let now = run(&[
            ("passes", "cuda Small 1 -> host", Ending::Passed),
            ("passes", "cuda Small 2 -> host", Ending::Skipped),
            ("skipped", "cuda Small 1", Ending::Skipped),
            ("failed.on.one", "cuda Small 1", Ending::Failed),
            ("failed.on.one", "cuda Small 2", Ending::Passed),
            ("excepted", "cuda Small 1", Ending::Skipped),
            ("out.of.date", "cuda Small 1", Ending::Passed),
        ]);
        let exceptions = exceptions(
            "# a comment\n\nexcepted | cuda | why\nout.of.date | cuda | why\nmisspelt | cuda | why",
        )
        .unwrap();
        let behind = now.behind(&recorded, &exceptions, |subject, _, _| {
            subject.contains("cuda")
        });
        assert_eq!(
            behind,
            [
                "skipped on cuda: a reason",
                "failed.on.one on cuda: a reason",
                "not.there on cuda: was not run",
                "out.of.date on cuda: passes although it is an exception",
                "misspelt on cuda: an exception, but it did not pass in the recorded run",
            ]
        );
    }

    #[test]
    fn subjects_are_the_same_by_their_backends() {
        let run = run(&[("passes", "cuda Small 1 -> host", Ending::Passed)]);
        assert!(run.has_backends_of("cuda Big -> host"));
        for other in ["cuda Big", "host", "host -> cuda Big", "vulkan Big -> host"] {
            assert!(!run.has_backends_of(other), "{other}");
        }
    }

    #[test]
    fn an_exception_needs_a_reason() {
        assert_eq!(exceptions("a | b | c\na | b").unwrap_err().0, 2);
        assert_eq!(exceptions("a | b | ").unwrap_err().0, 1);
    }
}
