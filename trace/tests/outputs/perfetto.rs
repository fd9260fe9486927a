//! The JSON: what it says about a recording. Perfetto accepts the document of any recording.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use crate::frames::{edge, frames};
use proptest::prelude::*;
use serde_json::Value;
use syncline_core::clock::Estimate;
use syncline_core::trace::{Outcome, Recording};
use syncline_trace::check;
use syncline_trace::perfetto::Trace;

fn events(recording: &Recording) -> Vec<Value> {
    let json: Value = serde_json::from_str(&Trace::new(recording).to_string()).unwrap();
    json["traceEvents"].as_array().unwrap().clone()
}

fn valid(recording: &Recording) -> check::Contents {
    let json = Trace::new(recording).to_string();
    check::trace(&json).unwrap_or_else(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        panic!("{problems:#?}\n{json}")
    })
}

fn named<'e>(events: &'e [Value], phase: &str, name: &str) -> &'e Value {
    let mut found = events
        .iter()
        .filter(|event| event["ph"] == phase && event["name"] == name);
    let event = found.next().unwrap_or_else(|| panic!("no {phase} {name}"));
    assert!(found.next().is_none(), "two of {phase} {name}");
    event
}

#[test]
fn frames_are_a_slice_for_each_submission_and_an_arrow_for_each_wait() {
    let recording = frames(12);
    let contents = valid(&recording);
    // Five submissions per frame. The host signals from the fourth frame on.
    assert_eq!(contents.slices, 12 * 5 + 9);
    // Each submission but the uploads waits for the one before it. From the fourth frame on the
    // drawing also waits for a signal of the host.
    assert_eq!(contents.flows, 12 * 4 + 9);
    assert_eq!(contents.flows, recording.arrows().len());
    assert_eq!(contents.processes, 4);
    assert_eq!(contents.threads, 6);
    assert_eq!(contents.instants, 0);
}

#[test]
fn times_keep_their_nanoseconds() {
    let mut recording = frames(1);
    let begun = recording.begun;
    let submission = &mut recording.tracks[2].submissions[0];
    let at = |nanoseconds| {
        Some(Estimate {
            nanoseconds: begun + nanoseconds,
            error: 3,
        })
    };
    submission.began = at(123_456_789_001);
    submission.ended = at(123_456_789_358);
    let json = Trace::new(&recording).to_string();
    assert!(json.contains("\"ts\":123456789.001"), "{json}");
    assert!(json.contains("\"dur\":0.357"), "{json}");
    let events = events(&recording);
    let slice = named(&events, "X", "filter 1");
    assert_eq!(slice["args"]["began_ns"], 123_456_789_001_i64);
    assert_eq!(slice["args"]["ended_ns"], 123_456_789_358_i64);
    assert_eq!(slice["args"]["ended_error_ns"], 3);
}

#[test]
fn a_slice_says_what_the_recording_knows() {
    let recording = frames(4);
    let events = events(&recording);
    let slice = named(&events, "X", "draw 4");
    let args = &slice["args"];
    assert_eq!(args["number"], 4);
    assert_eq!(args["label"], "draw 4");
    assert_eq!(args["outcome"], "finished");
    assert_eq!(args["held"], true);
    assert_eq!(args["signals"][0], "drawn = 4");
    assert_eq!(args["waits"][0]["for"], "uploaded = 4");
    assert_eq!(args["waits"][0]["signalled by"], "transfer #4");
    assert_eq!(args["waits"][1]["signalled by"], "host thread main");
    let arrow = &args["waits"][1]["arrow"];
    let flow = |phase: &str| {
        let mut flows = events.iter().filter(|event| event["ph"] == phase);
        flows.find(|flow| flow["id"] == *arrow).unwrap()
    };
    let (from, to) = (flow("s"), flow("f"));
    let thread = |event: &Value| (event["pid"].clone(), event["tid"].clone());
    assert_eq!(thread(to), thread(slice));
    assert_eq!(
        thread(from),
        thread(named(&events, "X", "signal slots = 4"))
    );
    assert_ne!(thread(from), thread(to));
}

#[test]
fn what_did_not_end_well_is_said() {
    let mut recording = frames(3);
    let ended = recording.ended;
    recording.tracks[2].submissions[1].outcome = Outcome::Failed("lost".into());
    recording.tracks[2].lost = 5;
    let last = &mut recording.tracks[4].submissions[2];
    (last.outcome, last.ended) = (Outcome::Pending, None);
    let began = last.began.unwrap().nanoseconds;
    recording.tracks[1].untimed = Some("no valid bits".into());
    for submission in &mut recording.tracks[1].submissions {
        (submission.began, submission.ended) = (None, None);
    }
    recording.host_lost = 4;
    let contents = valid(&recording);
    assert_eq!(contents.instants, 3);
    let events = events(&recording);
    let failed = named(&events, "X", "failed: filter 2");
    assert_eq!(
        (&failed["cat"], &failed["args"]["outcome"]),
        (&"failed".into(), &"failed: lost".into())
    );
    let pending = named(&events, "X", "encode 3 (not ended)");
    assert_eq!(pending["cat"], "pending");
    #[allow(clippy::cast_precision_loss)]
    let open = (ended - began) as f64 / 1000.0;
    assert_eq!(pending["dur"].as_f64(), Some(open));
    assert_eq!(named(&events, "X", "upload 2 (no times)")["cat"], "untimed");
    named(&events, "i", "4 more signals of the host were lost");
    named(&events, "i", "filter: 5 more submissions were lost");
    named(
        &events,
        "i",
        "transfer has no times of its device: no valid bits",
    );
}

#[test]
fn submissions_that_overlap_are_on_threads_of_their_own() {
    let mut recording = frames(3);
    for submission in &mut recording.tracks[0].submissions {
        submission.began.as_mut().unwrap().nanoseconds -= 100_000;
    }
    valid(&recording);
    let events = events(&recording);
    let name =
        |event: &Value| event["name"] == "thread_name" && event["args"]["name"] == "graphics (2)";
    assert!(events.iter().any(name));
    assert_ne!(
        named(&events, "X", "draw 2")["tid"],
        named(&events, "X", "draw 3")["tid"]
    );
}

#[test]
fn a_wait_that_was_over_too_early_has_no_arrow_but_a_note() {
    let mut recording = frames(2);
    let filter = recording.tracks[2].submissions[0].began.as_mut().unwrap();
    filter.nanoseconds -= 2 * 2_700 + 20_000;
    let contents = valid(&recording);
    assert_eq!(contents.flows, recording.arrows().len() - 1);
    assert_eq!(contents.instants, 1);
    let events = events(&recording);
    let arrow = &named(&events, "X", "filter 1")["args"]["waits"][0]["arrow"];
    assert!(arrow.as_str().unwrap().contains("contradicts"), "{arrow}");
}

#[test]
fn a_wait_that_was_over_too_early_within_the_errors_has_its_arrow() {
    let mut recording = frames(2);
    let began = recording.tracks[0].submissions[0]
        .ended
        .unwrap()
        .nanoseconds
        - 2_000;
    recording.tracks[2].submissions[0]
        .began
        .as_mut()
        .unwrap()
        .nanoseconds = began;
    let contents = valid(&recording);
    assert_eq!(contents.flows, recording.arrows().len());
    assert_eq!(contents.instants, 0);
}

#[test]
fn an_empty_recording_is_a_document_too() {
    let contents = valid(&Recording::default());
    assert_eq!(contents, check::Contents::default());
}

#[test]
fn what_was_recorded_out_of_order_and_out_of_range_is_taken() {
    let mut recording = frames(2);
    (recording.begun, recording.ended) = (i64::MAX, i64::MIN);
    let submission = &mut recording.tracks[0].submissions[0];
    submission.made = i64::MIN;
    submission.released = Some(i64::MAX);
    submission.waits.push(edge(usize::MAX, u64::MAX));
    submission.label = Some("\u{0}\u{7f}\n\"\\<&>".into());
    valid(&recording);
}

#[test]
fn equal_recordings_give_equal_text() {
    assert_eq!(
        Trace::new(&frames(5)).to_string(),
        Trace::new(&frames(5)).to_string()
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_recording_makes_a_document_that_is_taken_in_whole(recording in crate::random::recording()) {
        let contents = valid(&recording);
        let submissions: usize = recording.tracks.iter().map(|track| track.submissions.len()).sum();
        prop_assert_eq!(contents.slices >= recording.host_signals.len(), true);
        prop_assert!(contents.slices <= submissions + recording.host_signals.len());
        prop_assert!(contents.asynchronous >= submissions);
        prop_assert!(contents.flows <= recording.arrows().len());
        for event in events(&recording) {
            let began = &event["args"]["began_ns"];
            // Numbers outside the range of `i64` are strings.
            let Some(began) = began.as_i64().map(i128::from).or_else(|| began.as_str()?.parse().ok()) else {
                continue;
            };
            prop_assert!(began >= 0, "before the origin: {}", event);
            #[allow(clippy::cast_possible_truncation)]
            let drawn = (event["ts"].as_f64().unwrap() * 1000.0).round() as i128;
            let edge = 999_999_999_000_000;
            let near = (began.min(edge)..=began.min(edge) + 64).contains(&drawn);
            prop_assert!(near, "drawn elsewhere: {}", event);
        }
    }
}
