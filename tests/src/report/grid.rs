//! A table of rules by subjects, for terminals and as a page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Ending, Record, Report, warning};

/// Number of subjects side by side on a terminal.
const COLUMNS: usize = 12;

/// The letters of the contract's rules, in its order.
const LETTERS: &str = "DQTFMEXPH";

/// The result of the cases of one rule on one subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cell {
    /// All of them were skipped.
    Skipped,
    /// Some passed, and none failed.
    Ok,
    /// Some failed as expected, and no other failed.
    Known,
    /// Some failed.
    Failed,
}

impl Cell {
    const fn of(ending: Ending) -> Self {
        match ending {
            Ending::Passed => Self::Ok,
            Ending::Failed => Self::Failed,
            Ending::Skipped => Self::Skipped,
            Ending::Known => Self::Known,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Skipped => "skip",
            Self::Ok => "ok",
            Self::Known => "known",
            Self::Failed => "FAIL",
        }
    }
}

/// Rules by subjects.
pub(super) struct Grid<'r> {
    subjects: Vec<&'r str>,
    /// By the rule's place in the contract.
    rows: BTreeMap<(usize, u32, &'r str), BTreeMap<usize, Cell>>,
    records: &'r [Record],
}

impl<'r> Grid<'r> {
    pub(super) fn new(records: &'r [Record]) -> Self {
        let mut subjects: Vec<&str> = Vec::new();
        let mut rows: BTreeMap<_, BTreeMap<usize, Cell>> = BTreeMap::new();
        for record in records {
            let known = subjects.iter().position(|name| *name == record.subject);
            let subject = known.unwrap_or_else(|| {
                subjects.push(&record.subject);
                subjects.len() - 1
            });
            for rule in &record.rules {
                let (letter, number) = rule.split_at(1);
                let letter = LETTERS.find(letter).unwrap_or(LETTERS.len());
                let place = (letter, number.parse().unwrap_or(u32::MAX), rule.as_str());
                let cell = Cell::of(record.outcome);
                let row = rows.entry(place).or_default();
                let worst = row.entry(subject).or_insert(cell);
                *worst = (*worst).max(cell);
            }
        }
        Self {
            subjects,
            rows,
            records,
        }
    }

    fn cell(row: &BTreeMap<usize, Cell>, subject: usize) -> &'static str {
        row.get(&subject).map_or("", |cell| cell.word())
    }

    /// Groups the cases with this ending by reason, with the numbers of their subjects.
    fn reasons(&self, ending: Ending) -> Vec<(&'r str, Vec<&'r str>, Vec<usize>)> {
        let mut reasons: Vec<(&str, Vec<&str>, Vec<usize>)> = Vec::new();
        for record in self
            .records
            .iter()
            .filter(|record| record.outcome == ending)
        {
            let reason = record.reason.as_deref().unwrap_or_default();
            let at = reasons.iter().position(|(known, ..)| *known == reason);
            let at = at.unwrap_or_else(|| {
                reasons.push((reason, Vec::new(), Vec::new()));
                reasons.len() - 1
            });
            let (_, cases, subjects) = &mut reasons[at];
            if !cases.contains(&record.id.as_str()) {
                cases.push(&record.id);
            }
            let subject = self
                .subjects
                .iter()
                .position(|name| *name == record.subject);
            let number = subject.map_or(0, |index| index + 1);
            if !subjects.contains(&number) {
                subjects.push(number);
            }
        }
        reasons
    }

    /// Writes the table for a terminal.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        let numbers: Vec<usize> = (0..self.subjects.len()).collect();
        for block in numbers.chunks(COLUMNS) {
            text.push_str("rule ");
            for subject in block {
                let _ = write!(text, "{:>6}", subject + 1);
            }
            text.push('\n');
            for ((_, _, rule), row) in &self.rows {
                let _ = write!(text, "{rule:<5}");
                for &subject in block {
                    let _ = write!(text, "{:>6}", Self::cell(row, subject));
                }
                text.push('\n');
            }
            text.push('\n');
        }
        for (index, subject) in self.subjects.iter().enumerate() {
            let _ = writeln!(text, "{:>5}  {subject}", index + 1);
        }
        for (title, ending) in ENDINGS {
            let reasons = self.reasons(ending);
            if !reasons.is_empty() {
                let _ = writeln!(text, "\n{title}:");
            }
            for (reason, cases, subjects) in reasons {
                let _ = writeln!(text, "  {reason}");
                let _ = writeln!(text, "    {} on {}", cases.join(", "), join(&subjects));
            }
        }
        text
    }

    /// Writes the table as Markdown.
    fn markdown(&self) -> String {
        let mut text = String::from("| rule |");
        for index in 1..=self.subjects.len() {
            let _ = write!(text, " {index} |");
        }
        text.push_str("\n|---|");
        text.push_str(&"---|".repeat(self.subjects.len()));
        text.push('\n');
        for ((_, _, rule), row) in &self.rows {
            let _ = write!(text, "| {rule} |");
            for subject in 0..self.subjects.len() {
                let _ = write!(text, " {} |", Self::cell(row, subject));
            }
            text.push('\n');
        }
        text
    }
}

/// The headings of reports for cases that did not pass.
const ENDINGS: [(&str, Ending); 3] = [
    ("Failed", Ending::Failed),
    ("Failed, as is known", Ending::Known),
    ("Skipped", Ending::Skipped),
];

fn join(numbers: &[usize]) -> String {
    let numbers: Vec<_> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(", ")
}

/// Writes a recorded run as a page. `recorded` is its path.
pub(super) fn page(report: &Report, recorded: &str) -> String {
    let grid = Grid::new(&report.cases);
    let mut text = String::from("# What the suite shows, rule by rule\n\n");
    let _ = writeln!(
        text,
        "A recorded run of `{}` on {}, at commit `{}`: {}.\n",
        report.command,
        report.date,
        report.commit,
        report.tally()
    );
    let _ = writeln!(
        text,
        "This page is made from the recording, `{recorded}`, by `syncline conformance --matrix FILE`, and a test compares the two.\n"
    );
    text.push_str(warning(&report.devices));
    text.push_str("| device | API | driver |\n|---|---|---|\n");
    for device in &report.devices {
        let (name, backend, driver) = (device.marked_name(), &device.backend, &device.driver);
        let _ = writeln!(text, "| {name} | {backend} | {driver} |");
    }
    text.push_str(
        "\nThe subjects: one device, or two with the objects of each case split over both.\n\n",
    );
    for (index, subject) in grid.subjects.iter().enumerate() {
        let _ = writeln!(text, "{}. {subject}", index + 1);
    }
    text.push_str(
        "\n*ok*: at least one case of the rule passed and none failed. *skip*: the subject can run none of them. *known*: a case\n\
         failed that is known to fail with this driver. *FAIL*: a case failed.\n\n",
    );
    text.push_str(&grid.markdown());
    for (title, ending) in ENDINGS {
        let reasons = grid.reasons(ending);
        if reasons.is_empty() {
            continue;
        }
        let _ = write!(
            text,
            "\n## {title}\n\n| why | subjects | cases |\n|---|---|---|\n"
        );
        for (reason, cases, subjects) in reasons {
            // A bar would end the cell of the table.
            let reason = reason.replace('|', "\\|").replace('\n', " ");
            let cases: Vec<_> = cases.iter().map(|case| format!("`{case}`")).collect();
            let _ = writeln!(
                text,
                "| {reason} | {} | {} |",
                join(&subjects),
                cases.join(", ")
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::DeviceLine;

    fn record(id: &str, rules: &[&str], subject: &str, outcome: Ending) -> Record {
        Record {
            id: id.into(),
            rules: rules.iter().map(|&rule| rule.into()).collect(),
            subject: subject.into(),
            outcome,
            reason: (outcome != Ending::Passed).then(|| "for | a reason".into()),
            lost: false,
            seconds: 0.5,
        }
    }

    fn records() -> Vec<Record> {
        vec![
            record("a", &["T10", "E1"], "host", Ending::Passed),
            record("b", &["T2", "E1"], "host", Ending::Skipped),
            record("a", &["T10", "E1"], "gpu", Ending::Known),
            record("b", &["T2", "E1"], "gpu", Ending::Failed),
        ]
    }

    #[test]
    fn the_worst_result_of_a_rule_counts_and_a_skip_hides_nothing() {
        let records = records();
        let table = Grid::new(&records).table();
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(rows[0], ["rule", "1", "2"]);
        assert_eq!(rows[1], ["T2", "skip", "FAIL"]);
        assert_eq!(rows[2], ["T10", "ok", "known"]);
        assert_eq!(rows[3], ["E1", "ok", "FAIL"]);
        assert!(
            table.contains("b on 1") && table.contains("a on 2"),
            "{table}"
        );
    }

    #[test]
    fn wide_tables_are_cut() {
        let subjects = 1..=COLUMNS + 1;
        let records: Vec<_> = subjects
            .map(|n| record("a", &["T1"], &n.to_string(), Ending::Passed))
            .collect();
        let table = Grid::new(&records).table();
        assert_eq!(table.matches("rule").count(), 2, "{table}");
    }

    #[test]
    fn a_page_has_every_row_in_one_piece() {
        let report = Report {
            cases: records(),
            ..Report::new(Vec::new())
        };
        let page = page(&report, "somewhere.json");
        assert!(page.contains("| T10 | ok | known |"), "{page}");
        assert!(page.contains("for \\| a reason"), "{page}");
        assert!(!page.contains("software"), "{page}");
    }

    #[test]
    fn a_page_says_which_devices_are_software() {
        let device = DeviceLine {
            index: 0,
            backend: "vulkan".into(),
            name: "cpu".into(),
            uuid: None,
            driver: "mine".into(),
            software: true,
        };
        let page = page(&Report::new(vec![device]), "somewhere.json");
        assert!(page.contains("| cpu (software) | vulkan |"), "{page}");
        assert!(page.contains("not results of a GPU"), "{page}");
    }
}
