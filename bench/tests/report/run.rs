//! A short run on all devices of the machine. It checks that every row runs or says why not, and
//! judges no times.

#![allow(clippy::expect_used, reason = "a test may panic")]

use syncline::{Inventory, ProbeOptions};
use syncline_bench::heap::Allocator;
use syncline_bench::lab::Pace;
use syncline_bench::measure::{Nothing, Options};
use syncline_bench::report::Record;
use syncline_bench::rows::{self, Floor};
use syncline_bench::{Limit, Machine, Plan, Report, measure};

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
                let subject = row.subject.as_deref().expect("a subject");
                let limits = rows::limits_of(&row.id, subject).expect("a row of this build");
                let is_judged = limits
                    .iter()
                    .any(|limit| !matches!(limit, Limit::Recorded(_)));
                assert_eq!(row.met.is_some(), is_judged, "{row:?}");
                let measured = row.ours_ns.is_some() || !row.figures.is_empty();
                assert!(measured, "{row:?}");
                let missing = row.missed.iter().find(|miss| miss.contains("not measured"));
                assert_eq!(missing, None, "{} on {:?}", row.id, row.subject);
                let rows = rows::all();
                let floor = rows
                    .iter()
                    .find(|all| all.id == row.id)
                    .map(|all| all.floor);
                let expected = matches!(floor, Some(Floor::Side(_)));
                assert_eq!(row.floor_ns.is_some(), expected, "{row:?}");
                let ratios = row.ratio_to_floor.is_some() && row.spread.floor_ns.is_some();
                assert_eq!(ratios, expected, "{row:?}");
                let to_raw = expected && row.raw_ns.is_some();
                assert_eq!(row.floor_ratio.is_some(), to_raw, "{row:?}");
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
        for name in ["wake_ns", "return_ns", "waker_ns"] {
            assert!(row.figures.get(name) > Some(&0.0), "{name}: {row:?}");
        }
    }
    let counted = |row: &&Record| row.id == "alloc" && row.skipped.is_none();
    assert!(report.rows.iter().any(|row| counted(&row)));
    for row in report.rows.iter().filter(counted) {
        // The other tests of this process allocate at the same time, so the count may be above 0.
        assert!(row.figures.contains_key("allocations_each"), "{row:?}");
    }
    let host = |id: &str| {
        let of_host =
            |subject: &Option<String>| subject.as_deref().is_some_and(|s| s.starts_with("host"));
        report
            .rows
            .iter()
            .any(|row| row.id == id && of_host(&row.subject) && row.ours_ns > Some(0.0))
    };
    for id in [
        "host.pingpong",
        "host.submit",
        "counter.pingpong",
        "wait.any.10000",
        "any.dispatch",
        "scale.outstanding",
        "contend",
        "frame.cpu",
        "held.wide",
        "held.deep",
    ] {
        assert!(host(id), "{id} did not run on the host");
    }
}

#[test]
fn a_report_is_the_same_after_json() {
    let machine = machine();
    let options = Options {
        filters: vec!["host.pingpong".into()],
        device: Some("host".into()),
    };
    let report = run(&machine, &options);
    let text = report.to_json().expect("JSON");
    let again = Report::from_json(&text).expect("the same");
    assert_eq!(again.to_json().expect("JSON"), text);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for key in [
        "commit", "date", "command", "device", "driver", "devices", "rows",
    ] {
        assert!(value.get(key).is_some(), "{key}: {text}");
    }
    let row = &value["rows"][0];
    for key in [
        "id", "subject", "ours_ns", "raw_ns", "ratio", "bar", "spread", "met",
    ] {
        assert!(row.get(key).is_some(), "{key}: {row}");
    }
    assert!(row["ratio"].as_f64() > Some(0.0), "{row}");
    assert!(value["devices"][0]["driver"].is_string(), "{text}");
    let device = value["device"].as_str().expect("a name");
    assert!(!device.is_empty() && value["driver"].is_string(), "{text}");
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
    let unknown = asked(&["host.pingpong", "nosuch"], None);
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
