//! Writes each event as JSON.

use std::fmt::{self, Formatter};

use serde_json::{Map, Value, json};
use syncline_core::trace::{Outcome, Submission};

use super::layout::{Event, Layout, Phase, What};
use crate::life::{self, Known};

impl Layout<'_> {
    pub(super) fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let recording = self.recording;
        let about = json!({
            "written by": "syncline",
            "clock": "the host's monotonic clock",
            "origin_ns": self.origin.to_string(),
            "begun_ns": recording.begun.to_string(),
            "ended_ns": recording.ended.to_string(),
        });
        write!(f, "{{\"otherData\":{about},\n\"traceEvents\":[")?;
        let mut between = "\n";
        for metadata in &self.metadata {
            write!(f, "{between}{metadata}")?;
            between = ",\n";
        }
        for event in &self.events {
            write!(f, "{between}{}", self.value(event))?;
            between = ",\n";
        }
        f.write_str("\n]}\n")
    }

    pub(super) fn value(&self, event: &Event) -> Value {
        let mut value = Map::new();
        value.insert("pid".into(), event.pid.into());
        value.insert("tid".into(), event.tid.into());
        value.insert("ts".into(), microseconds(event.ts));
        let mut say = |key: &str, what: Value| value.insert(key.into(), what);
        match &event.what {
            What::Run(track, index, duration) => {
                say("ph", "X".into());
                say("dur", microseconds(*duration));
                self.say_run(*track, *index, &mut say);
            }
            What::Signal(index, duration) => {
                let signal = &self.recording.host_signals[*index];
                say("ph", "X".into());
                say("dur", microseconds(*duration));
                say("cat", "signal".into());
                say(
                    "name",
                    format!("signal {}", self.edge(signal.signal)).into(),
                );
                say(
                    "args",
                    json!({"ended_ns": self.exactly(signal.at), "ended_error_ns": 0}),
                );
            }
            What::Begin(phase, track, index, id) | What::End(phase, track, index, id) => {
                let begins = matches!(event.what, What::Begin(..));
                let of = &self.recording.tracks[*track];
                let submission = &of.submissions[*index];
                let name = life::name(submission);
                let pending = submission.outcome == Outcome::Pending;
                // The name begins with the queue, so that the viewer shows a queue's tracks
                // together.
                let name = match phase {
                    Phase::Before => format!("{} · before the run", of.queue),
                    Phase::Held if pending && submission.released.is_none() => {
                        format!("held: {name} (not released)")
                    }
                    Phase::Held => format!("held: {name}"),
                    Phase::Queued if pending && submission.began.is_none() => {
                        format!("queued: {name} (not ended)")
                    }
                    Phase::Queued => format!("queued: {name}"),
                };
                say("ph", if begins { "b" } else { "e" }.into());
                say("cat", "before".into());
                say("id", (*id).into());
                say("name", plain(&name).into());
                if begins && matches!(phase, Phase::Before) {
                    let args = json!({"number": number(submission.number), "label": submission.label.as_deref().map(plain)});
                    say("args", args);
                }
            }
            What::From(id) | What::To(id) => {
                if matches!(event.what, What::From(_)) {
                    say("ph", "s".into());
                } else {
                    say("ph", "f".into());
                    say("bp", "e".into());
                }
                say("cat", "order".into());
                say("name", "releases".into());
                say("id", (*id).into());
            }
            What::Note(note) => {
                say("ph", "i".into());
                say("s", "t".into());
                say("cat", "note".into());
                say("name", plain(note).into());
            }
        }
        Value::Object(value)
    }

    pub(super) fn say_run(
        &self,
        track: usize,
        index: usize,
        say: &mut impl FnMut(&str, Value) -> Option<Value>,
    ) {
        let submission = &self.recording.tracks[track].submissions[index];
        let known = life::run(self.recording, submission).map_or(Known::Nothing, |run| run.known);
        let name = life::name(submission);
        let (category, name, colour) = match (&submission.outcome, known) {
            (Outcome::Failed(_), _) => ("failed", format!("failed: {name}"), Some("terrible")),
            (_, Known::Unfinished) => ("pending", format!("{name} (not ended)"), Some("grey")),
            (_, Known::Whole) => ("run", name, None),
            (_, Known::Begin) => ("untimed", format!("{name} (end unknown)"), Some("grey")),
            (_, Known::End) => (
                "untimed",
                format!("{name} (beginning unknown)"),
                Some("grey"),
            ),
            (_, Known::Nothing) => ("untimed", format!("{name} (no times)"), Some("grey")),
        };
        say("cat", category.into());
        say("name", plain(&name).into());
        if let Some(colour) = colour {
            say("cname", colour.into());
        }
        say(
            "args",
            self.arguments(submission, &self.waits[track][index]),
        );
    }

    pub(super) fn arguments(&self, submission: &Submission, waits: &[Value]) -> Value {
        let mut args = Map::new();
        let mut say = |key: &str, what: Value| args.insert(key.into(), what);
        say("number", number(submission.number));
        if let Some(label) = &submission.label {
            say("label", plain(label).into());
        }
        let outcome = match &submission.outcome {
            Outcome::Pending => "pending".to_owned(),
            Outcome::Finished => "finished".to_owned(),
            Outcome::Failed(cause) => plain(&format!("failed: {cause}")),
        };
        say("outcome", outcome.into());
        say("held", submission.held.into());
        say("made_ns", self.exactly(submission.made));
        if let Some(released) = submission.released {
            say("released_ns", self.exactly(released));
        }
        if let Some(began) = submission.began {
            say("began_ns", self.exactly(began.nanoseconds));
            say("began_error_ns", number(began.error));
        }
        if let Some(ended) = submission.ended {
            say("ended_ns", self.exactly(ended.nanoseconds));
            say("ended_error_ns", number(ended.error));
        }
        let signals = submission.signals.iter();
        let signals: Vec<Value> = signals.map(|&edge| self.edge(edge).into()).collect();
        if !signals.is_empty() {
            say("signals", signals.into());
        }
        if !waits.is_empty() {
            say("waits", waits.to_vec().into());
        }
        Value::Object(args)
    }
}

/// Converts nanoseconds to the format's microseconds.
///
/// Within [`FARTHEST`] the nearest double is written with at most three decimals, and reads back as
/// the same number of nanoseconds.
fn microseconds(nanoseconds: i64) -> Value {
    if nanoseconds % 1000 == 0 {
        return (nanoseconds / 1000).into();
    }
    #[allow(
        clippy::cast_precision_loss,
        reason = "the value is below 2 to the 53rd"
    )]
    let exact = nanoseconds as f64;
    (exact / 1000.0).into()
}

/// Writes a number. Importers read signed 64-bit integers, and convert larger ones to doubles.
fn number(value: u64) -> Value {
    i64::try_from(value).map_or_else(|_| value.to_string().into(), Value::from)
}

/// Removes control characters, at which some importers stop even if they are escaped.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => ' ',
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}
