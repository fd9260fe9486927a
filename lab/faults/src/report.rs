//! The table of calls by outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::judge::Class;
use crate::plan::Run;

/// What all runs have shown.
#[derive(Debug, Default)]
pub(crate) struct Report {
    classes: BTreeMap<String, BTreeMap<Class, u64>>,
    defects: Vec<(Run, Class, String)>,
    runs: u64,
    called: BTreeSet<String>,
}

impl Report {
    pub(crate) fn add(&mut self, run: &Run, class: Class, why: String) {
        self.runs += 1;
        *self
            .classes
            .entry(run.function.clone())
            .or_default()
            .entry(class)
            .or_default() += 1;
        if class.is_defect() {
            self.defects.push((run.clone(), class, why));
        }
    }

    pub(crate) fn note_called(&mut self, functions: Vec<String>) {
        self.called.extend(functions);
    }

    /// True if a run has called the function.
    pub(crate) fn has_called(&self, function: &str) -> bool {
        self.called.contains(function)
    }

    pub(crate) fn has_defects(&self) -> bool {
        !self.defects.is_empty()
    }

    /// The table, and the list of defects.
    pub(crate) fn text(&self, missing: &[&str]) -> String {
        let mut text = String::new();
        let used: Vec<_> = Class::ALL
            .into_iter()
            .filter(|class| {
                self.classes
                    .values()
                    .any(|classes| classes.contains_key(class))
            })
            .collect();
        let _ = write!(text, "{:40}", "function");
        for class in &used {
            let _ = write!(text, " {:>11}", class.to_string());
        }
        text.push('\n');
        for (function, classes) in &self.classes {
            let _ = write!(text, "{function:40}");
            for class in &used {
                let count = classes.get(class).copied().unwrap_or(0);
                let cell = if count == 0 {
                    ".".into()
                } else {
                    count.to_string()
                };
                let _ = write!(text, " {cell:>11}");
            }
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "\n{} functions, {} runs, {} defects",
            self.classes.len(),
            self.runs,
            self.defects.len()
        );
        for name in missing {
            let _ = writeln!(text, "no scenario calls {name}");
        }
        // One line for each kind of defect, with the first run that shows it.
        let mut kinds: BTreeMap<(String, Class, &str), (u64, String)> = BTreeMap::new();
        for (run, class, why) in &self.defects {
            let order = run.order.split(":cu").next().unwrap_or_default();
            let shown = || (0, format!("{} {order}: {why}", run.scenario));
            let key = (run.function.clone(), *class, run.mode);
            kinds.entry(key).or_insert_with(shown).0 += 1;
        }
        for ((function, class, mode), (count, first)) in kinds {
            let _ = writeln!(
                text,
                "{function} {class} ({mode}), {count} runs; first: {first}"
            );
        }
        text
    }
}
