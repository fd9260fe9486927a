//! A short run on all devices of the machine. It checks that every row runs or says why not, and
//! judges no times.

#![allow(clippy::expect_used, reason = "a test may panic")]

use syncline::{Inventory, ProbeOptions};
use syncline_bench::heap::Allocator;
use syncline_bench::lab::Pace;
use syncline_bench::measure::{Nothing, Options};
use syncline_bench::report::Record;
use syncline_bench::{Machine, Plan, Report, measure};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn machine() -> Machine {
    Machine::new(Inventory::probe(&ProbeOptions::default()))
}

fn run(machine: &Machine, options: &Options) -> Report {
    let plan = Plan::new(machine, options).expect("something to run");
    measure(machine, &plan, Pace::QUICK, |_| ())
}

#[test]
fn every_row_runs_or_says_why_not() {
    let machine = machine();
    let report = run(&machine, &Options::default());
    for row in &report.rows {
        assert_eq!(row.failed, None, "{} on {:?}", row.id, row.subject);
        match &row.skipped {
            Some(reason) => {
                assert!(!reason.is_empty(), "{}", row.id);
                assert!(row.ours_ns.is_none() && row.met.is_none(), "{row:?}");
            }
            None => {
                assert_eq!(row.met.is_some(), row.limits != "no limit", "{row:?}");
                let measured = row.ours_ns.is_some() || !row.figures.is_empty();
                assert!(measured, "{row:?}");
                let missing = row.missed.iter().find(|miss| miss.contains("not measured"));
                assert_eq!(missing, None, "{} on {:?}", row.id, row.subject);
            }
        }
    }
    assert!(report.rows.iter().any(|row| row.skipped.is_none()));
    for row in report
        .rows
        .iter()
        .filter(|row| row.id.starts_with("wait.any."))
    {
        // All are registered before the signal, so a waking takes time.
        assert!(row.figures.get("wake_ns") > Some(&0.0), "{row:?}");
    }
    let counted = |row: &&Record| row.id == "alloc" && row.skipped.is_none();
    assert!(report.rows.iter().any(|row| counted(&row)));
    for row in report.rows.iter().filter(counted) {
        // The other tests of this process allocate at the same time, so the count may be above 0.
        assert!(row.figures.contains_key("allocations_each"), "{row:?}");
    }
    for id in ["host.submit", "scale.outstanding", "frame.cpu", "held.deep"] {
        let of_host = |row: &&Record| {
            row.subject
                .as_deref()
                .is_some_and(|s| s.starts_with("host"))
        };
        let mut rows = report.rows.iter().filter(of_host);
        let ran = rows.any(|row| row.id == id && row.ours_ns > Some(0.0));
        assert!(ran, "{id} did not run on the host");
    }
}

#[test]
fn a_report_is_the_same_after_json() {
    let machine = machine();
    let options = Options {
        filters: vec!["host.submit".into()],
        device: Some("host".into()),
    };
    let report = run(&machine, &options);
    let text = report.to_json().expect("JSON");
    let again = Report::from_json(&text).expect("the same");
    assert_eq!(again.to_json().expect("JSON"), text);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for key in ["commit", "date", "command", "device", "driver", "devices"] {
        assert!(!value[key].is_null() && value[key] != "", "{key}: {text}");
    }
    let row = &value["rows"][0];
    for key in ["id", "subject", "bar", "spread", "met"] {
        assert!(row.get(key).is_some(), "{key}: {row}");
    }
    for key in ["ours_ns", "raw_ns", "ratio"] {
        assert!(row[key].as_f64() > Some(0.0), "{key}: {row}");
    }
}

#[test]
fn an_empty_plan_names_the_row_or_device_that_is_unknown() {
    let machine = machine();
    let asked = |filters: &[&str], device: Option<&str>| {
        let options = Options {
            filters: filters.iter().map(|&filter| filter.into()).collect(),
            device: device.map(Into::into),
        };
        Plan::new(&machine, &options).expect_err("nothing to run")
    };
    let unknown = asked(&["host.submit", "nosuch"], None);
    assert!(matches!(unknown, Nothing::NoSuchRow(row) if row == "nosuch"));
    let unknown = asked(&[], Some("nosuch"));
    assert!(matches!(unknown, Nothing::NoSuchDevice(_)));
}

#[test]
fn a_whole_device_name_selects_only_that_device() {
    let machine = machine();
    let options = Options {
        device: Some("host".into()),
        ..Options::default()
    };
    let plan = Plan::new(&machine, &options).expect("the host's rows");
    assert!(
        plan.entries
            .iter()
            .all(|entry| entry.subject.devices == "host")
    );
    assert!(!plan.entries.is_empty());
}
