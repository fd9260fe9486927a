//! The `main` of a program that runs a suite.

use std::process::ExitCode;

use crate::Settings;
use crate::report::{Ending, Tally};
use crate::runner::{Runner, Suite, child};

/// Runs the suite that `suite` makes: the whole `main` of a backend's test.
///
/// The settings are those of the [environment](Settings::from_env). Each argument is a part of
/// `SUBJECT: CASE`, and only cases that contain all of them run; options are ignored. Prints each
/// case that did not pass, and a line for each subject. Fails if a case fails, or if none ran.
pub fn main<S: Suite>(suite: impl Fn(&Settings) -> S) -> ExitCode {
    if let Some(done) = child(&suite) {
        return done;
    }
    let settings = Settings::from_env();
    let suite = suite(&settings);
    let mut parts: Vec<String> = std::env::args().skip(1).collect();
    parts.retain(|part| !part.starts_with('-')); // of a test program, such as `--nocapture`
    let (mut failed, mut ran) = (false, false);
    for subject in suite.subjects() {
        let asked = |id: &str| {
            let name = format!("{subject}: {id}");
            parts.iter().all(|part| name.contains(part))
        };
        let mut cases = suite.cases();
        cases.retain(|case| asked(case.id));
        if cases.is_empty() {
            continue;
        }
        let mut runner = Runner::new(&subject, &settings).expecting(suite.expected(&subject));
        let mut records: Vec<_> = cases.iter().map(|case| runner.run(case)).collect();
        records.push(runner.finish());
        let mut tally = Tally::default();
        for record in records {
            tally.count(record.outcome);
            let (ended, id) = (record.outcome, &record.id);
            if let Some(reason) = &record.reason {
                println!("{subject}: {ended:?}: {id}: {reason}");
            }
            if ended == Ending::Failed {
                println!("  which shows {}", record.rules.join(", "));
            }
        }
        println!("{subject}: {tally}");
        (failed, ran) = (failed || tally.failed > 0, true);
    }
    if !ran {
        println!(
            "no case ran: the suite has {:?}, asked for were {parts:?}",
            suite.subjects()
        );
    }
    if ran && !failed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
