//! Both outputs of a real trace of host queues.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::sync::mpsc::channel;
use std::time::Duration;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::trace::{Outcome, Recording, Trace};
use syncline_core::{Error, QueueKind, host};
use syncline_trace::check;
use syncline_trace::perfetto;
use syncline_trace::svg::{Options, Picture};

const LONG: Duration = Duration::from_secs(20);

/// Records twelve frames through two queues, then a failed frame and one that does not end.
///
/// The first frame waits for a timeline that the host signals.
fn recording() -> Recording {
    let device = host::Device::new();
    let queue = |label| device.queue(QueueKind::Compute, label).unwrap();
    let (draw, encode) = (queue("draw"), queue("encode"));
    let timeline = |label| device.timeline(label).unwrap();
    let (gate, drawn) = (timeline("gate"), timeline("drawn"));
    let trace = Trace::new();
    trace.follow(&draw).unwrap();
    trace.follow(&encode).unwrap();
    let work = || std::thread::sleep(Duration::from_micros(200));
    for frame in 1..=12 {
        let opened = [gate.at(1)];
        let waits = if frame == 1 { &opened[..] } else { &[] };
        let run = move |r: &mut host::Recorder| {
            r.run(work);
            Ok(())
        };
        let submitted = draw.submit(waits, run, &[drawn.signal_at(frame)]).unwrap();
        trace.label(submitted.end(), &format!("draw {frame}"));
        let submitted = encode.submit(&[drawn.at(frame)], run, &[]).unwrap();
        trace.label(submitted.end(), &format!("encode {frame}"));
    }
    gate.signal(1).unwrap();
    encode.idle(LONG).unwrap();
    let fails = |_: &mut host::Recorder| Err(Error::work(std::io::Error::other("no <paper>")));
    let _ = draw.submit(&[], fails, &[]);
    let (release, released) = channel::<()>();
    let (begins, begun) = channel();
    let waits = move |r: &mut host::Recorder| {
        r.run(move || {
            begins.send(()).unwrap();
            assert!(released.recv().is_err());
        });
        Ok(())
    };
    let _ = encode.submit(&[], waits, &[]).unwrap();
    begun.recv_timeout(LONG).unwrap();
    let recording = trace.finish(Duration::ZERO);
    drop(release);
    encode.idle(LONG).unwrap();
    recording
}

/// Draws the recording between two times of the host's clock.
///
/// The interval is wide enough to be drawn, however long the rest has taken.
fn between(recording: &Recording, from: i64, to: i64) -> String {
    let options = Options {
        from: Some(from - recording.begun),
        to: Some(to - recording.begun),
        ..Options::default()
    };
    let svg = Picture::new(recording, options).to_string();
    roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}: {svg}"));
    svg
}

#[test]
fn a_real_recording_is_taken_in_whole_with_all_its_arrows() {
    let recording = recording();
    let json = perfetto::Trace::new(&recording).to_string();
    let contents = check::trace(&json).unwrap_or_else(|problems| panic!("{problems:?}\n{json}"));
    // Each encoding waits for its drawing. The first drawing waits for the host.
    assert_eq!(recording.arrows().len(), 13);
    assert_eq!(contents.flows, 13, "{json}");
    assert!(contents.slices > 24, "{contents:?}");
    let pending = |of: &&syncline_core::trace::Submission| of.outcome == Outcome::Pending;
    let submissions = recording.tracks.iter().flat_map(|track| &track.submissions);
    assert_eq!(submissions.filter(pending).count(), 1);
    assert!(json.contains("(not ended)"), "{json}");

    let svg = Picture::new(&recording, Options::default()).to_string();
    roxmltree::Document::parse(&svg).unwrap();
    for track in &recording.tracks {
        for submission in &track.submissions {
            let Some(began) = submission.began else {
                assert!(matches!(submission.outcome, Outcome::Failed(_)));
                continue;
            };
            let ended = submission
                .ended
                .map_or(recording.ended, |time| time.nanoseconds);
            let svg = between(&recording, began.nanoseconds, ended);
            let name = format!("<title>{} #{}", track.queue, submission.number);
            assert!(svg.contains(&name), "{name} is not in {svg}");
            let said = svg.contains(", not ended");
            assert_eq!(said, submission.outcome == Outcome::Pending, "{svg}");
        }
    }
    let first = recording.submission((0, 0)).unwrap();
    let svg = between(&recording, first.made, first.released.unwrap());
    for word in ["draw 1 #1: held for", "gate = 1", "held on the host"] {
        assert!(svg.contains(word), "{word} is not in {svg}");
    }
}

/// A recording of a GPU by `syncline demo --trace`: Perfetto accepts it with all its arrows.
#[test]
fn the_recorded_trace_is_taken_in_whole() {
    let text = include_str!("../../../results/h200/trace.json");
    let contents = check::trace(text).unwrap_or_else(|problems| panic!("{problems:?}"));
    // 24 frames on two queues, and all but the first few waits have a signal.
    assert!(contents.slices >= 48, "{contents:?}");
    assert!(contents.flows >= 2 * 24 - 3, "{contents:?}");
}
