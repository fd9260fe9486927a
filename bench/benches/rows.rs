//! The rows under criterion, for development: `cargo bench -p syncline-bench -- host.pingpong`.
//!
//! Each side is measured by itself, one after the other. For ratios use `syncline bench`, where the
//! sides alternate. It also measures the other figures of a row.

use std::process::ExitCode;
use std::time::Duration;

use criterion::Criterion;
use syncline::{Inventory, ProbeOptions};
use syncline_bench::measure::Options;
use syncline_bench::{Lab, Machine, Outcome, Plan, Side, Stop};

/// A lab that hands sides to criterion.
struct Development<'c> {
    criterion: &'c mut Criterion,
    name: String,
}

impl Lab for Development<'_> {
    fn race(&mut self, sides: Vec<Side<'_>>) -> Outcome<()> {
        let mut ended = Ok(());
        for mut side in sides {
            let id = format!("{}/{}", self.name, side.name());
            self.criterion.bench_function(&id, |bencher| {
                bencher.iter_custom(|n| {
                    let each = u32::try_from(side.many()).unwrap_or(u32::MAX);
                    side.run(n).map(|took| took / each).unwrap_or_else(|stop| {
                        ended = Err(stop);
                        // Criterion takes no errors, and runs again if there is no time at all.
                        Duration::from_secs(1)
                    })
                });
            });
        }
        ended
    }

    fn median(&self, _: &str) -> Option<f64> {
        None
    }

    fn rounds(&self) -> u32 {
        1
    }

    fn taken(&mut self, _: &'static str, _: &[f64]) {}

    fn figure(&mut self, _: &str, _: f64) {}

    fn note(&mut self, _: String) {}
}

fn main() -> ExitCode {
    if let Some(done) = syncline_bench::child() {
        return done;
    }
    let machine = Machine::new(Inventory::probe(&ProbeOptions::default()));
    // Criterion filters measurements. This also skips the setup of other rows. Only the first
    // argument is surely a filter, because options of criterion may take values.
    let filter = std::env::args()
        .nth(1)
        .filter(|argument| !argument.starts_with('-'));
    let entries = Plan::new(&machine, &Options::default()).map(|plan| plan.entries);
    let mut criterion = Criterion::default().configure_from_args();
    let mut fine = true;
    for entry in entries.unwrap_or_default() {
        let name = format!("{} ({})", entry.row.id, entry.name());
        if filter.as_ref().is_some_and(|filter| !name.contains(filter)) {
            continue;
        }
        let mut lab = Development {
            criterion: &mut criterion,
            name: name.clone(),
        };
        match entry.run(&machine, &mut lab) {
            Ok(()) => {}
            Err(Stop::Skipped(reason)) => eprintln!("{name}: skipped: {reason}"),
            Err(Stop::Failed(reason)) => {
                eprintln!("{name}: FAILED: {reason}");
                fine = false;
            }
        }
    }
    criterion.final_summary();
    if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
