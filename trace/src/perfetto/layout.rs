//! Places everything: processes, threads, slices, and the arrows between them.

use serde_json::{Map, Value, json};
use syncline_core::trace::{Arrow, Edge, Place, Recording};

use super::json::plain;
use crate::life;
use crate::rows::{Placed, Rows};

/// The largest distance from the origin, in nanoseconds.
///
/// Within it, microseconds with three decimals have at most 15 digits, which a double keeps.
const FARTHEST: i128 = 999_999_999_000_000;
/// Shortest slice: an arrow can end inside it, between one nanosecond and the next.
const LEAST: i64 = 2;
/// Two steps of a GPU's clock. A smaller overlap of runs is not shown as one.
const TOLERANCE: i64 = 64;
/// An event that is not metadata.
///
/// Its arguments are made when it is written. That keeps the events of a long recording small.
pub(super) struct Event {
    pub(super) ts: i64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) what: What,
}

pub(super) enum What {
    /// A submission's run: indices of its track and of it.
    /// A submission's run: indices of its track and of the submission.
    Run(usize, usize, i64),
    /// A signal by the host.
    Signal(usize, i64),
    /// Beginning and end of a submission's time before its run: its indices, the asynchronous id.
    Begin(Phase, usize, usize, u64),
    End(Phase, usize, usize, u64),
    /// Beginning and end of an arrow, with its id.
    From(u64),
    To(u64),
    Note(String),
}

#[derive(Clone, Copy)]
pub(super) enum Phase {
    Before,
    Held,
    Queued,
}

/// A slice that an arrow can bind to.
#[derive(Clone, Copy)]
pub(super) struct Slice {
    pub(super) placed: Placed,
    pub(super) pid: u32,
    pub(super) tid: u32,
}

pub(super) struct Layout<'r> {
    pub(super) recording: &'r Recording,
    pub(super) origin: i64,
    pub(super) metadata: Vec<Value>,
    pub(super) events: Vec<Event>,
    /// By track and submission.
    pub(super) runs: Vec<Vec<Option<Slice>>>,
    /// By host signal.
    pub(super) signals: Vec<Option<Slice>>,
    /// By track and submission: its waits, as its slice lists them.
    pub(super) waits: Vec<Vec<Vec<Value>>>,
    pub(super) next_pid: u32,
    pub(super) next_tid: u32,
}

impl<'r> Layout<'r> {
    pub(super) fn of(recording: &'r Recording) -> Self {
        let mut layout = Self {
            recording,
            origin: origin(recording),
            metadata: Vec::new(),
            events: Vec::new(),
            runs: vec![Vec::new(); recording.tracks.len()],
            signals: vec![None; recording.host_signals.len()],
            waits: vec![Vec::new(); recording.tracks.len()],
            next_pid: 1,
            // Some viewers identify a thread by its number alone. A thread with the number of its
            // process is the main thread.
            next_tid: 1_000_001,
        };
        layout.host();
        let mut asynchronous = 0;
        for device in life::devices(recording) {
            let pid = layout.process(&device.name, device.gpu.as_deref());
            for &track in &device.tracks {
                layout.queue(pid, track);
                layout.before(pid, track, &mut asynchronous);
            }
            layout.notes(pid, &device.tracks);
        }
        layout.arrows();
        // A stable sort: events at the same time keep their order.
        layout.events.sort_by_key(|event| event.ts);
        layout
    }

    /// Returns a time as nanoseconds since the origin, within the format's range.
    pub(super) fn at(&self, time: i64) -> i64 {
        let since = i128::from(time) - i128::from(self.origin);
        i64::try_from(since.clamp(0, FARTHEST)).unwrap_or_default()
    }

    /// Returns a time as nanoseconds since the origin, for arguments, which have no range.
    pub(super) fn exactly(&self, time: i64) -> Value {
        let since = i128::from(time) - i128::from(self.origin);
        i64::try_from(since).map_or_else(|_| Value::from(since.to_string()), Value::from)
    }

    pub(super) fn process(&mut self, name: &str, label: Option<&str>) -> u32 {
        let pid = self.next_pid;
        self.next_pid += 1;
        let mut say = |what: &str, args: Value| {
            self.metadata
                .push(json!({"ph": "M", "name": what, "pid": pid, "args": args}));
        };
        say("process_name", json!({"name": plain(name)}));
        say("process_sort_index", json!({"sort_index": pid}));
        if let Some(label) = label {
            say("process_labels", json!({"labels": plain(label)}));
        }
        pid
    }

    pub(super) fn thread(&mut self, pid: u32, name: &str) -> u32 {
        let tid = self.next_tid;
        self.next_tid += 1;
        let mut say = |what: &str, args: Value| {
            self.metadata
                .push(json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}));
        };
        say("thread_name", json!({"name": plain(name)}));
        say("thread_sort_index", json!({"sort_index": tid - 1_000_000}));
        tid
    }

    /// Makes a thread for each row. The first one has the name without a number.
    pub(super) fn threads(&mut self, pid: u32, name: &str, rows: usize) -> Vec<u32> {
        let name = if name.trim().is_empty() {
            "unnamed"
        } else {
            name
        };
        (0..rows)
            .map(|row| match row {
                0 => self.thread(pid, name),
                row => self.thread(pid, &format!("{name} ({})", row + 1)),
            })
            .collect()
    }

    pub(super) fn host(&mut self) {
        let recording = self.recording;
        let threads = life::threads(recording);
        if threads.is_empty() && recording.host_lost == 0 {
            return;
        }
        let pid = self.process("Host threads", None);
        for (name, signals) in threads {
            let mut times: Vec<(i64, usize)> = signals
                .iter()
                .map(|&index| (self.at(recording.host_signals[index].at), index))
                .collect();
            times.sort_unstable();
            let mut rows = Rows::new(LEAST, TOLERANCE);
            let placed: Vec<_> = times
                .iter()
                .map(|&(at, index)| (rows.place(at, at), index))
                .collect();
            let tids = self.threads(pid, name, rows.count().max(1));
            for (placed, index) in placed {
                let slice = self.slice(placed, pid, &tids);
                self.signals[index] = Some(slice);
                let duration = placed.end - placed.begin;
                self.event(slice, placed.begin, What::Signal(index, duration));
            }
        }
        if recording.host_lost > 0 {
            let note = format!("{} more signals of the host were lost", recording.host_lost);
            self.say_notes(pid, vec![(self.at(recording.ended), note)]);
        }
    }

    pub(super) fn slice(&self, placed: Placed, pid: u32, tids: &[u32]) -> Slice {
        let tid = tids.get(placed.row).copied().unwrap_or_default();
        Slice { placed, pid, tid }
    }

    pub(super) fn event(&mut self, on: Slice, ts: i64, what: What) {
        let Slice { pid, tid, .. } = on;
        self.events.push(Event { ts, pid, tid, what });
    }

    pub(super) fn queue(&mut self, pid: u32, track: usize) {
        let recording = self.recording;
        let of = &recording.tracks[track];
        self.runs[track] = vec![None; of.submissions.len()];
        self.waits[track] = vec![Vec::new(); of.submissions.len()];
        let mut times: Vec<(i64, i64, usize)> = Vec::new();
        for (index, submission) in of.submissions.iter().enumerate() {
            if let Some(run) = life::run(recording, submission) {
                times.push((self.at(run.begin), self.at(run.end), index));
            }
        }
        times.sort_unstable_by_key(|&(begin, _, index)| (begin, index));
        let mut rows = Rows::new(LEAST, TOLERANCE);
        let placed: Vec<_> = times
            .iter()
            .map(|&(begin, end, index)| (rows.place(begin, end), index))
            .collect();
        let tids = self.threads(pid, &of.queue, rows.count().max(1));
        for (placed, index) in placed {
            let slice = self.slice(placed, pid, &tids);
            self.runs[track][index] = Some(slice);
            let duration = placed.end - placed.begin;
            self.event(slice, placed.begin, What::Run(track, index, duration));
        }
    }

    /// Adds asynchronous slices, because submissions in flight overlap.
    pub(super) fn before(&mut self, pid: u32, track: usize, asynchronous: &mut u64) {
        let recording = self.recording;
        for (index, submission) in recording.tracks[track].submissions.iter().enumerate() {
            let before = life::before(recording, submission);
            let (made, held, end) = (
                self.at(before.made),
                self.at(before.held),
                self.at(before.end),
            );
            *asynchronous += 1;
            let id = *asynchronous;
            let tid = pid;
            let mut say = |ts, what| self.events.push(Event { ts, pid, tid, what });
            say(made, What::Begin(Phase::Before, track, index, id));
            if submission.held {
                say(made, What::Begin(Phase::Held, track, index, id));
                say(held, What::End(Phase::Held, track, index, id));
            }
            if end > held {
                say(held, What::Begin(Phase::Queued, track, index, id));
                say(end, What::End(Phase::Queued, track, index, id));
            }
            say(end, What::End(Phase::Before, track, index, id));
        }
    }

    pub(super) fn notes(&mut self, pid: u32, tracks: &[usize]) {
        let recording = self.recording;
        let (begun, ended) = (self.at(recording.begun), self.at(recording.ended));
        let mut notes = Vec::new();
        for &track in tracks {
            let of = &recording.tracks[track];
            if let Some(reason) = &of.untimed {
                let note = format!("{} has no times of its device: {reason}", of.queue);
                notes.push((begun, note));
            }
            if of.lost > 0 {
                let note = format!("{}: {} more submissions were lost", of.queue, of.lost);
                notes.push((ended, note));
            }
        }
        self.say_notes(pid, notes);
    }

    pub(super) fn say_notes(&mut self, pid: u32, notes: Vec<(i64, String)>) {
        if notes.is_empty() {
            return;
        }
        let tid = self.thread(pid, "notes");
        for (ts, note) in notes {
            let what = What::Note(note);
            self.events.push(Event { ts, pid, tid, what });
        }
    }

    pub(super) fn arrows(&mut self) {
        let recording = self.recording;
        let arrows = recording.arrows();
        let mut released = arrows.iter().peekable();
        let mut contradictions = Vec::new();
        let mut id = 0;
        for (t, track) in recording.tracks.iter().enumerate() {
            for (s, submission) in track.submissions.iter().enumerate() {
                for &wait in &submission.waits {
                    let mut said = Map::new();
                    said.insert("for".into(), self.edge(wait).into());
                    let is_this = |arrow: &&Arrow| arrow.to == (t, s) && arrow.wait == wait;
                    if let Some(arrow) = released.next_if(is_this) {
                        let by = life::signaller(recording, arrow.from);
                        said.insert("signalled by".into(), plain(&by).into());
                        said.insert("signal".into(), self.edge(arrow.signal).into());
                        let apart = life::contradiction(recording, arrow);
                        if let Some(apart) = apart {
                            let note = format!(
                                "{} #{} was over its wait for {} {apart} ns before that was signalled, beyond what the clocks' errors allow",
                                track.queue,
                                submission.number,
                                self.edge(wait),
                            );
                            contradictions.push((self.at(submission.made), note));
                            let no = format!("no: it contradicts the order by {apart} ns");
                            said.insert("arrow".into(), no.into());
                        } else if let (Some(from), Some(to)) =
                            (self.from(arrow.from), self.runs[t][s])
                        {
                            if self.flow(from, to, id + 1) {
                                id += 1;
                                said.insert("arrow".into(), id.into());
                            } else {
                                let no = "no: within the errors it would run backwards";
                                said.insert("arrow".into(), no.into());
                            }
                        }
                    }
                    self.waits[t][s].push(Value::Object(said));
                }
            }
        }
        if !contradictions.is_empty() {
            let pid = self.process("Contradictions", None);
            self.say_notes(pid, contradictions);
        }
    }

    pub(super) fn from(&self, from: Place) -> Option<Slice> {
        match from {
            Place::Submission(track, index) => *self.runs.get(track)?.get(index)?,
            Place::Host(index) => *self.signals.get(index)?,
        }
    }

    /// Adds the arrow, if there is a position in both slices from which it runs forward.
    ///
    /// An arrow is bound to the last slice that has begun on its thread. Viewers differ in which of
    /// two events at the same time counts first. So the arrow ends strictly inside its slices.
    pub(super) fn flow(&mut self, from: Slice, to: Slice, id: u64) -> bool {
        if from.placed.begin > to.placed.begin
            || (from.pid, from.tid) == (to.pid, to.tid) && from.placed == to.placed
        {
            return false;
        }
        let end = to.placed.begin + 1;
        let begin = end.min(from.placed.end - 1);
        self.event(from, begin, What::From(id));
        self.event(to, end, What::To(id));
        true
    }

    pub(super) fn edge(&self, edge: Edge) -> String {
        let name = life::timeline(self.recording, edge);
        plain(&format!("{name} = {}", edge.value))
    }
}

/// Returns the begin of the recording, or the earliest time if that is earlier.
///
/// The format's importers read negative times wrongly.
fn origin(recording: &Recording) -> i64 {
    let mut origin = recording.begun;
    for submission in recording.tracks.iter().flat_map(|track| &track.submissions) {
        origin = origin.min(submission.made);
        for time in [submission.began, submission.ended].into_iter().flatten() {
            origin = origin.min(time.nanoseconds);
        }
        origin = submission.released.map_or(origin, |time| origin.min(time));
    }
    let signals = recording.host_signals.iter().map(|signal| signal.at);
    signals.fold(origin.min(recording.ended), i64::min)
}
