//! What of a submission can be shown: where its run lies, how long it was on the host's side, who
//! was before whom.

use syncline_core::BackendKind;
use syncline_core::trace::{Arrow, Edge, Outcome, Place, Recording, Submission, Track};

/// How much of a run is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// When it began and ended.
    Whole,
    /// When it began; it had not ended when the recording did.
    Unfinished,
    /// When it began, though it has ended.
    Begin,
    /// When it ended.
    End,
    /// Neither, though it has ended: it is shown where it went to the driver, or failed to.
    Nothing,
}

/// A submission's run on its device, in nanoseconds of the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) begin: i64,
    /// No earlier than it began.
    pub(crate) end: i64,
    pub(crate) known: Known,
}

/// Where its run lies; `None` if the device had not come to it, as far as is known.
pub(crate) fn run(recording: &Recording, submission: &Submission) -> Option<Run> {
    let began = submission.began.map(|time| time.nanoseconds);
    let ended = submission.ended.map(|time| time.nanoseconds);
    let pending = submission.outcome == Outcome::Pending;
    let (begin, end, known) = match (began, ended) {
        (Some(began), Some(ended)) => (began, ended, Known::Whole),
        (Some(began), None) if pending => (began, recording.ended, Known::Unfinished),
        (Some(began), None) => (began, began, Known::Begin),
        (None, Some(ended)) => (ended, ended, Known::End),
        (None, None) if pending => return None,
        (None, None) => {
            let at = submission.released.unwrap_or(submission.made);
            (at, at, Known::Nothing)
        }
    };
    let end = end.max(begin);
    Some(Run { begin, end, known })
}

/// A submission's time before its run: held on the host, then with the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) made: i64,
    /// Until when it was held; when it was made, if it was not.
    pub(crate) held: i64,
    /// Until when it was with the driver: it began, or that is all that is known.
    pub(crate) end: i64,
}

/// Its time before its run. Times that contradict each other are taken as none between them.
pub(crate) fn before(recording: &Recording, submission: &Submission) -> Before {
    let made = submission.made;
    let pending = submission.outcome == Outcome::Pending;
    let last = if pending { recording.ended } else { made };
    let released = submission.released.unwrap_or(last);
    let held = if submission.held { released } else { made };
    let held = held.max(made);
    let end = match submission.began {
        Some(began) => began.nanoseconds,
        None if pending => recording.ended,
        None => released,
    };
    Before {
        made,
        held,
        end: end.max(held),
    }
}

/// By how many nanoseconds the wait was over before its signal was made, beyond what the errors of
/// the times allow; `None` if it was not, or if that is not known.
pub(crate) fn contradiction(recording: &Recording, arrow: &Arrow) -> Option<i128> {
    let signalled = recording.signalled(arrow.from)?;
    let began = recording.submission(arrow.to)?.began?;
    let earliest = i128::from(signalled.nanoseconds) - i128::from(signalled.error);
    let latest = i128::from(began.nanoseconds) + i128::from(began.error);
    (earliest > latest).then(|| earliest - latest)
}

/// What the submission is called: its label, else its number.
pub(crate) fn name(submission: &Submission) -> String {
    match submission.label.as_deref() {
        Some(label) if !label.trim().is_empty() => label.to_owned(),
        _ => format!("#{}", submission.number),
    }
}

/// The name of the edge's timeline, which a broken recording may lack.
pub(crate) fn timeline(recording: &Recording, edge: Edge) -> String {
    match recording.timelines.get(edge.timeline) {
        Some(name) if !name.is_empty() => name.clone(),
        _ => format!("timeline {}", edge.timeline),
    }
}

/// Who signalled, in words.
pub(crate) fn signaller(recording: &Recording, from: Place) -> String {
    match from {
        Place::Submission(track, index) => {
            let queue = recording
                .tracks
                .get(track)
                .map_or("?", |track| &track.queue);
            match recording.submission((track, index)) {
                Some(submission) => format!("{queue} #{}", submission.number),
                None => queue.to_owned(),
            }
        }
        Place::Host(index) => match recording.host_signals.get(index) {
            Some(signal) => format!("host thread {}", signal.thread),
            None => "host".to_owned(),
        },
    }
}

/// The API as it writes itself.
pub(crate) fn api(backend: BackendKind) -> &'static str {
    match backend {
        BackendKind::Host => "Host",
        BackendKind::Cuda => "CUDA",
        BackendKind::Vulkan => "Vulkan",
        other => other.name(),
    }
}

/// Queues of one device in one API.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    /// `CUDA · NVIDIA H200`.
    pub(crate) name: String,
    pub(crate) backend: BackendKind,
    /// The GPU's UUID, if it has one.
    pub(crate) gpu: Option<String>,
    /// Indices into the recording's tracks.
    pub(crate) tracks: Vec<usize>,
}

/// The tracks by device and API, in the order in which these first occur.
pub(crate) fn devices(recording: &Recording) -> Vec<Device> {
    let mut devices: Vec<(&Track, Device)> = Vec::new();
    for (index, track) in recording.tracks.iter().enumerate() {
        let same = |(first, _): &&mut (&Track, Device)| {
            (first.backend, &first.device, first.gpu) == (track.backend, &track.device, track.gpu)
        };
        if let Some((_, device)) = devices.iter_mut().find(same) {
            device.tracks.push(index);
            continue;
        }
        let device = Device {
            name: format!("{} · {}", api(track.backend), track.device),
            backend: track.backend,
            gpu: track.gpu.map(|gpu| gpu.to_string()),
            tracks: vec![index],
        };
        devices.push((track, device));
    }
    devices.into_iter().map(|(_, device)| device).collect()
}

/// The threads that made signals, in the order in which they first did, each with its signals'
/// indices.
pub(crate) fn threads(recording: &Recording) -> Vec<(&str, Vec<usize>)> {
    let mut threads: Vec<(&str, Vec<usize>)> = Vec::new();
    for (index, signal) in recording.host_signals.iter().enumerate() {
        match threads.iter_mut().find(|(name, _)| *name == signal.thread) {
            Some((_, signals)) => signals.push(index),
            None => threads.push((&signal.thread, vec![index])),
        }
    }
    threads
}
