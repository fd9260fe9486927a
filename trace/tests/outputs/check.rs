//! The check refuses broken documents with a typed problem.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use rstest::rstest;
use serde_json::{Value, json};
use syncline_trace::check::{self, Kind, Problem};

/// Two slices on two threads, and an arrow from one to the other.
fn sound() -> Vec<Value> {
    vec![
        json!({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}}),
        json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": 10, "args": {"name": "a"}}),
        json!({"ph": "M", "name": "thread_sort_index", "pid": 1, "tid": 10, "args": {"sort_index": 1}}),
        json!({"ph": "X", "name": "from", "pid": 1, "tid": 10, "ts": 1, "dur": 10, "args": {"ended_ns": 11_000, "ended_error_ns": 5}}),
        json!({"ph": "X", "name": "to", "pid": 1, "tid": 11, "ts": 12, "dur": 10.5, "args": {"began_ns": 12_000, "began_error_ns": 5}}),
        json!({"ph": "s", "name": "flow", "cat": "c", "id": 7, "pid": 1, "tid": 10, "ts": 10.5}),
        json!({"ph": "f", "name": "flow", "cat": "c", "id": 7, "pid": 1, "tid": 11, "ts": 12.5, "bp": "e"}),
        json!({"ph": "b", "name": "held", "cat": "h", "id": 1, "pid": 1, "ts": 0}),
        json!({"ph": "e", "name": "held", "cat": "h", "id": 1, "pid": 1, "ts": 1.5}),
        json!({"ph": "i", "name": "note", "s": "t", "pid": 1, "tid": 12, "ts": 3}),
    ]
}

const THREAD_NAME: usize = 1;
const FROM: usize = 3;
const TO: usize = 4;
const START: usize = 5;
const END: usize = 6;
const BEGIN: usize = 7;
const FINISH: usize = 8;
const NOTE: usize = 9;

fn check(events: &[Value]) -> Result<check::Contents, Vec<Problem>> {
    check::trace(&json!({"traceEvents": events}).to_string())
}

/// Changes one or more events of the document. The check must find this one problem.
#[track_caller]
fn refused(event: usize, kind: Kind, change: impl FnOnce(&mut Vec<Value>)) {
    let mut events = sound();
    change(&mut events);
    let event = Some(event);
    assert_eq!(check(&events), Err(vec![Problem { event, kind }]));
}

#[test]
fn a_sound_document_is_counted() {
    let contents = check(&sound()).unwrap();
    let expected = check::Contents {
        events: 10,
        slices: 2,
        instants: 1,
        asynchronous: 1,
        flows: 1,
        threads: 1,
        processes: 1,
    };
    assert_eq!(contents, expected);
    assert_eq!(
        check::trace(&Value::from(sound()).to_string()),
        Ok(expected)
    );
}

#[test]
fn what_is_no_document() {
    let only = |json: &str| {
        let problems = check::trace(json).unwrap_err();
        assert_eq!(problems.len(), 1);
        problems[0].kind.clone()
    };
    assert!(matches!(only("{\"traceEvents\":["), Kind::Syntax(_)));
    assert_eq!(only("3"), Kind::NoEvents);
    assert_eq!(only("{}"), Kind::NoEvents);
    assert_eq!(only("{\"traceEvents\":{}}"), Kind::NoEvents);
    assert_eq!(only("[3]"), Kind::NotAnObject);
    assert_eq!(only("[{\"ph\":\"?\"}]"), Kind::Phase("?".into()));
}

/// Also events that share a flow or an asynchronous slice with the changed one may be refused.
#[rstest]
#[case::slice(FROM, 'X', &[START], &["name", "ts", "dur", "pid", "tid"])]
#[case::start_of_a_flow(START, 's', &[END], &["name", "ts", "pid", "tid", "id"])]
#[case::end_of_a_flow(END, 'f', &[START], &["name", "ts", "pid", "tid", "id"])]
#[case::begin_of_an_asynchronous_slice(BEGIN, 'b', &[FINISH], &["name", "ts", "pid", "id"])]
#[case::end_of_an_asynchronous_slice(FINISH, 'e', &[BEGIN], &["name", "ts", "pid", "id"])]
#[case::instant(NOTE, 'i', &[], &["name", "ts", "pid", "tid"])]
#[case::metadata(THREAD_NAME, 'M', &[], &["name", "pid", "tid", "args"])]
fn a_missing_field_is_refused(
    #[case] event: usize,
    #[case] phase: char,
    #[case] also: &[usize],
    #[case] fields: &[&'static str],
) {
    for &field in fields {
        let mut events = sound();
        events[event].as_object_mut().unwrap().remove(field);
        let problems = check(&events).unwrap_err();
        let kind = Kind::Missing { phase, field };
        let first = problems
            .iter()
            .find(|problem| problem.event == Some(event))
            .unwrap();
        assert_eq!(first.kind, kind, "{problems:?}");
        for problem in &problems {
            let at = problem.event.unwrap();
            assert!(at == event || also.contains(&at), "{problems:?}");
        }
    }
}

#[test]
fn a_missing_phase_is_refused() {
    let kind = Kind::Missing {
        phase: '?',
        field: "ph",
    };
    refused(0, kind, |events| {
        events[0].as_object_mut().unwrap().remove("ph");
    });
}

#[rstest]
#[case::time_as_text(FROM, "ts", json!("1"))]
#[case::negative_time(FROM, "ts", json!(-1))]
#[case::too_large_a_time(FROM, "ts", json!(1e13))]
#[case::negative_duration(FROM, "dur", json!(-0.001))]
#[case::null_as_a_duration(FROM, "dur", json!(null))]
#[case::process_0(FROM, "pid", json!(0))]
#[case::thread_beyond_32_bits(FROM, "tid", json!(4_294_967_296_u64))]
#[case::thread_as_text(FROM, "tid", json!("ten"))]
#[case::number_as_a_name(FROM, "name", json!(3))]
#[case::negative_id(START, "id", json!(-1))]
#[case::id_that_is_not_hexadecimal(START, "id", json!("seven"))]
#[case::number_as_a_category(START, "cat", json!(1))]
#[case::unknown_binding_point(END, "bp", json!("x"))]
#[case::unknown_scope(NOTE, "s", json!("everywhere"))]
fn a_field_with_a_wrong_value_is_refused(
    #[case] event: usize,
    #[case] field: &str,
    #[case] value: Value,
) {
    let mut events = sound();
    events[event][field] = value;
    let problems = check(&events).unwrap_err();
    let problem = problems
        .iter()
        .find(|problem| problem.event == Some(event))
        .unwrap();
    assert!(
        matches!(problem.kind, Kind::Wrong { field: found, .. } if found == field),
        "{problems:?}"
    );
}

#[test]
fn wrong_arguments_metadata_and_control_characters_are_refused() {
    let kind = Kind::Wrong {
        field: "args.sort_index",
        expected: "an integer",
        found: "\"1\"".into(),
    };
    refused(2, kind, |events| {
        events[2]["args"]["sort_index"] = json!("1");
    });
    refused(0, Kind::Metadata("nickname".into()), |events| {
        events[0]["name"] = json!("nickname")
    });
    refused(FROM, Kind::Control("name"), |events| {
        events[FROM]["name"] = json!("a\u{1}")
    });
}

/// A slice at `ts` that takes `dur`.
fn slice(ts: f64, dur: f64) -> Value {
    json!({"ph": "X", "name": "x", "pid": 1, "tid": 20, "ts": ts, "dur": dur})
}

#[rstest]
#[case::one_after_the_other((0.0, 5.0), (5.0, 5.0))]
#[case::one_inside_the_other((0.0, 5.0), (1.0, 2.0))]
#[case::longer_one_first((0.0, 5.0), (0.0, 3.0))]
#[case::shorter_one_first((0.0, 3.0), (0.0, 5.0))]
fn slices_that_do_not_overlap_are_sound(#[case] a: (f64, f64), #[case] b: (f64, f64)) {
    let slices = [slice(a.0, a.1), slice(b.0, b.1)];
    assert_eq!(check(&slices).map(|contents| contents.slices), Ok(2));
}

#[test]
fn slices_that_overlap_are_refused() {
    let two = |a: Value, b: Value| check(&[a, b]);
    let overlap = |event, over| {
        Err(vec![Problem {
            event: Some(event),
            kind: Kind::Overlap(over),
        }])
    };
    assert_eq!(two(slice(0.0, 5.0), slice(4.999, 5.0)), overlap(1, 0));
    assert_eq!(two(slice(4.999, 5.0), slice(0.0, 5.0)), overlap(0, 1));
    // Inside one slice, but overlapping the end of the other.
    let three = [slice(0.0, 10.0), slice(1.0, 3.0), slice(2.0, 5.0)];
    assert_eq!(check(&three), overlap(2, 1));
    // A slice on another thread does not overlap.
    let mut other = slice(4.0, 5.0);
    other["tid"] = json!(21);
    assert!(two(slice(0.0, 5.0), other).is_ok());
    let deep: Vec<Value> = (0..600)
        .map(|at| slice(f64::from(at), 2_000.0 - 2.0 * f64::from(at)))
        .collect();
    let problems = check(&deep).unwrap_err();
    assert_eq!(problems.len(), 600 - 512);
    assert!(problems.iter().all(|problem| problem.kind == Kind::TooDeep));
}

#[test]
fn beginnings_and_ends() {
    let mark = |ph: &str, ts: i64| json!({"ph": ph, "name": "x", "pid": 1, "tid": 20, "ts": ts});
    let nested = [mark("B", 0), mark("B", 1), mark("E", 2), mark("E", 3)];
    assert_eq!(check(&nested).unwrap().slices, 2);
    let problem = |event, kind| {
        Err(vec![Problem {
            event: Some(event),
            kind,
        }])
    };
    assert_eq!(check(&[mark("B", 0)]), problem(0, Kind::Unended));
    assert_eq!(check(&[mark("E", 0)]), problem(0, Kind::Unbegun));
    assert_eq!(
        check(&[mark("B", 0), mark("E", 5), mark("X", 4)])
            .unwrap_err()
            .len(),
        1
    );
    refused(FINISH, Kind::Unbegun, |events| {
        events.remove(BEGIN);
        events.insert(
            0,
            json!({"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": "l"}}),
        );
    });
    refused(BEGIN, Kind::Unended, |events| {
        events.remove(FINISH);
    });
}

/// The kinds of all problems that the check finds.
fn kinds(events: &[Value]) -> Vec<Kind> {
    let problems = check(events).unwrap_err();
    problems.into_iter().map(|problem| problem.kind).collect()
}

#[rstest]
#[case::id("id", json!(2))]
#[case::category("cat", json!("other"))]
#[case::process("pid", json!(2))]
fn an_end_of_another_asynchronous_slice_ends_nothing(#[case] field: &str, #[case] value: Value) {
    let mut events = sound();
    events[FINISH][field] = value;
    assert_eq!(kinds(&events), [Kind::Unended, Kind::Unbegun]);
}

#[test]
fn flows_that_lack_an_end() {
    refused(START, Kind::FlowUnended, |events| {
        events.remove(END);
    });
    refused(END - 1, Kind::FlowUnstarted, |events| {
        events.remove(START);
    });
    // The end comes before the start.
    let mut events = sound();
    events[START]["ts"] = json!(12.6);
    events[FROM]["dur"] = json!(20);
    assert_eq!(kinds(&events), [Kind::FlowUnended, Kind::FlowUnstarted]);
    refused(10, Kind::FlowTwice, |events| {
        let mut again = events[START].clone();
        again["ts"] = json!(10.6);
        events.push(again);
    });
    refused(10, Kind::FlowTwice, |events| {
        let mut again = events[END].clone();
        again["ts"] = json!(12.6);
        events.push(again);
    });
}

#[rstest]
#[case::id("id", json!(8))]
#[case::category("cat", json!("other"))]
#[case::name("name", json!("other"))]
fn an_end_of_another_flow_ends_nothing(#[case] field: &str, #[case] value: Value) {
    let mut events = sound();
    events[END][field] = value;
    assert_eq!(kinds(&events), [Kind::FlowUnended, Kind::FlowUnstarted]);
}

#[test]
fn flows_that_are_bound_to_nothing_or_to_another() {
    refused(START, Kind::FlowUnbound, |events| {
        events[START]["ts"] = json!(0.5)
    });
    refused(START, Kind::FlowUnbound, |events| {
        events[START]["ts"] = json!(11.001)
    });
    refused(START, Kind::FlowUnbound, |events| {
        events[START]["tid"] = json!(99)
    });
    refused(END, Kind::FlowUnbound, |events| {
        events[END]["ts"] = json!(22.501)
    });
    // Without "bp" it is bound to the next slice, and there is none.
    refused(END, Kind::FlowUnbound, |events| {
        events[END].as_object_mut().unwrap().remove("bp");
    });
    // Another slice begins where its slice ends.
    refused(START, Kind::FlowAtBoundary(10), |events| {
        events[START]["ts"] = json!(11);
        events.push(json!({"ph": "X", "name": "next", "pid": 1, "tid": 10, "ts": 11, "dur": 1}));
    });
    // It is at the begin of its own slice, but some versions read the event first.
    refused(END, Kind::FlowAtBoundary(10), |events| {
        events[END]["ts"] = json!(12);
        events[TO]["tid"] = json!(98);
        events.push(json!({"ph": "X", "name": "late", "pid": 1, "tid": 11, "ts": 12, "dur": 1}));
    });
    let mut events = sound();
    events[END]["ts"] = json!(12);
    assert!(check(&events).is_ok());
}

#[test]
fn flows_that_run_backwards() {
    // Its events are in order, but the viewer draws from slice to slice.
    refused(END, Kind::FlowTurned(START), |events| {
        events[TO]["ts"] = json!(0.5);
        events[TO]["dur"] = json!(20);
    });
    // 11 000 - 5 compared with 10 000 + 5.
    refused(END, Kind::FlowBackwards { nanoseconds: 990 }, |events| {
        events[TO]["args"]["began_ns"] = json!(10_000);
    });
}

#[rstest]
#[case::small(json!(995))]
#[case::large(json!(u64::MAX.to_string()))]
fn a_flow_may_run_backwards_within_its_errors(#[case] error: Value) {
    let mut events = sound();
    events[TO]["args"]["began_ns"] = json!(10_000);
    events[TO]["args"]["began_error_ns"] = error;
    assert!(check(&events).is_ok());
}

#[rstest]
#[case::from_the_largest_to_the_smallest(i128::MAX, i128::MIN, 1)]
#[case::from_zero_to_the_largest(0, i128::MAX, 0)]
fn flows_between_extreme_times_are_checked(
    #[case] ended: i128,
    #[case] began: i128,
    #[case] expected: usize,
) {
    let [ended, began] = [ended, began].map(|time| time.to_string());
    let mut events = sound();
    events[FROM]["args"] = json!({"ended_ns": ended, "ended_error_ns": "-1"});
    events[TO]["args"] = json!({"began_ns": began, "began_error_ns": began});
    let problems = check(&events).map_or_else(|problems| problems.len(), |_| 0);
    assert_eq!(problems, expected);
}

#[test]
fn problems_name_their_place() {
    let mut events = sound();
    events[FROM].as_object_mut().unwrap().remove("dur");
    let problems = check(&events).unwrap_err();
    assert_eq!(
        problems[0].to_string(),
        "event 3: phase 'X' needs the field \"dur\""
    );
}
