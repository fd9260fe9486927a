//! The check refuses broken documents with a typed problem.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

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

const FROM: usize = 3;
const TO: usize = 4;
const START: usize = 5;
const END: usize = 6;

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

#[test]
fn fields_that_are_missing() {
    let without = |event: usize, field: &'static str, phase: char, also: &[usize]| {
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
    };
    for field in ["name", "ts", "dur", "pid", "tid"] {
        without(FROM, field, 'X', &[START]);
    }
    for field in ["name", "ts", "pid", "tid", "id"] {
        without(START, field, 's', &[END]);
        without(END, field, 'f', &[START]);
    }
    for field in ["name", "ts", "pid", "id"] {
        without(7, field, 'b', &[8]);
        without(8, field, 'e', &[7]);
    }
    for field in ["name", "ts", "pid", "tid"] {
        without(9, field, 'i', &[]);
    }
    for field in ["name", "pid", "tid", "args"] {
        without(1, field, 'M', &[]);
    }
    refused(
        0,
        Kind::Missing {
            phase: '?',
            field: "ph",
        },
        |events| {
            events[0].as_object_mut().unwrap().remove("ph");
        },
    );
}

#[test]
fn fields_of_the_wrong_kind() {
    let with = |event: usize, field: &'static str, value: Value| {
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
    };
    for (field, value) in [
        ("ts", json!("1")),
        ("ts", json!(-1)),
        ("ts", json!(1e13)),
        ("dur", json!(-0.001)),
        ("dur", json!(null)),
        ("pid", json!(0)),
        ("tid", json!(4_294_967_296_u64)),
        ("tid", json!("ten")),
        ("name", json!(3)),
    ] {
        with(FROM, field, value);
    }
    with(START, "id", json!(-1));
    with(START, "id", json!("seven"));
    with(START, "cat", json!(1));
    with(END, "bp", json!("x"));
    with(9, "s", json!("everywhere"));
    refused(
        2,
        Kind::Wrong {
            field: "args.sort_index",
            expected: "an integer",
            found: "\"1\"".into(),
        },
        |events| {
            events[2]["args"]["sort_index"] = json!("1");
        },
    );
    refused(0, Kind::Metadata("nickname".into()), |events| {
        events[0]["name"] = json!("nickname")
    });
    refused(FROM, Kind::Control("name"), |events| {
        events[FROM]["name"] = json!("a\u{1}")
    });
}

#[test]
fn slices_that_overlap() {
    let slice = |ts: f64, dur: f64| json!({"ph": "X", "name": "x", "pid": 1, "tid": 20, "ts": ts, "dur": dur});
    let two = |a: Value, b: Value| check(&[a, b]);
    // One after the other, one inside the other, both from the same time.
    for (a, b) in [
        ((0.0, 5.0), (5.0, 5.0)),
        ((0.0, 5.0), (1.0, 2.0)),
        ((0.0, 5.0), (0.0, 3.0)),
        ((0.0, 3.0), (0.0, 5.0)),
    ] {
        assert!(two(slice(a.0, a.1), slice(b.0, b.1)).is_ok(), "{a:?} {b:?}");
    }
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
    refused(8, Kind::Unbegun, |events| {
        events.remove(7);
        events.insert(
            0,
            json!({"ph": "M", "name": "process_labels", "pid": 1, "args": {"labels": "l"}}),
        );
    });
    refused(7, Kind::Unended, |events| {
        events.remove(8);
    });
    // A different id, category or process makes a different slice.
    for (field, value) in [("id", json!(2)), ("cat", json!("other")), ("pid", json!(2))] {
        let mut events = sound();
        events[8][field] = value;
        let kinds: Vec<Kind> = check(&events)
            .unwrap_err()
            .into_iter()
            .map(|problem| problem.kind)
            .collect();
        assert_eq!(kinds, [Kind::Unended, Kind::Unbegun], "{field}");
    }
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
    let kinds: Vec<Kind> = check(&events)
        .unwrap_err()
        .into_iter()
        .map(|problem| problem.kind)
        .collect();
    assert_eq!(kinds, [Kind::FlowUnended, Kind::FlowUnstarted]);
    for (field, value) in [
        ("id", json!(8)),
        ("cat", json!("other")),
        ("name", json!("other")),
    ] {
        let mut events = sound();
        events[END][field] = value;
        let kinds: Vec<Kind> = check(&events)
            .unwrap_err()
            .into_iter()
            .map(|problem| problem.kind)
            .collect();
        assert_eq!(kinds, [Kind::FlowUnended, Kind::FlowUnstarted], "{field}");
    }
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
    for (field, value) in [
        ("began_error_ns", json!(995)),
        ("began_error_ns", json!(u64::MAX.to_string())),
    ] {
        let mut events = sound();
        events[TO]["args"]["began_ns"] = json!(10_000);
        events[TO]["args"][field] = value;
        assert!(check(&events).is_ok());
    }
    // The largest and smallest numbers.
    let farthest = i128::MAX.to_string();
    for (ended, began) in [
        (&farthest[..], i128::MIN.to_string()),
        ("0", farthest.clone()),
    ] {
        let mut events = sound();
        events[FROM]["args"] = json!({"ended_ns": ended, "ended_error_ns": "-1"});
        events[TO]["args"] = json!({"began_ns": began, "began_error_ns": began});
        let problems = check(&events).map_or_else(|problems| problems.len(), |_| 0);
        assert_eq!(problems, usize::from(ended != "0"));
    }
}

#[test]
fn problems_are_said_with_their_place() {
    let mut events = sound();
    events[FROM].as_object_mut().unwrap().remove("dur");
    let problems = check(&events).unwrap_err();
    assert_eq!(
        problems[0].to_string(),
        "event 3: phase 'X' needs the field \"dur\""
    );
}
