//! What can be shown of a submission: its run, its time before the run, and its order.

use syncline_core::info::BackendKind;
use syncline_core::trace::{Arrow, Edge, Outcome, Place, Recording, Submission, Track};

/// How much of a run is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// When it began and ended.
    Whole,
    /// When it began. It had not ended at the end of the recording.
    Unfinished,
    /// When it began. It has ended, at an unknown time.
    Begin,
    /// When it ended.
    End,
    /// Neither. It is shown at the time when it went to the driver, or failed to.
    Nothing,
}

/// A submission's run on its device, in nanoseconds of the host's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) begin: i64,
    /// Not before `begin`.
    pub(crate) end: i64,
    pub(crate) known: Known,
}

/// Returns its run, or `None` if the device is not known to have begun it.
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

/// A submission's time before its run: first held on the host, then with the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Before {
    pub(crate) made: i64,
    /// The end of the time when it was held. The same as `made` if it was not held.
    pub(crate) held: i64,
    /// The end of the time when it was with the driver, as far as known.
    pub(crate) end: i64,
}

/// Returns its time before its run. An interval is empty if its times contradict each other.
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

/// Returns by how many nanoseconds a wait ended before its signal, beyond the errors of the times.
///
/// `None` if it did not, or if that is unknown.
pub(crate) fn contradiction(recording: &Recording, arrow: &Arrow) -> Option<i128> {
    let signalled = recording.signalled(arrow.from)?;
    let began = recording.submission(arrow.to)?.began?;
    let earliest = i128::from(signalled.nanoseconds) - i128::from(signalled.error);
    let latest = i128::from(began.nanoseconds) + i128::from(began.error);
    (earliest > latest).then(|| earliest - latest)
}

/// Returns the submission's label, or else its number.
pub(crate) fn name(submission: &Submission) -> String {
    match submission.label.as_deref() {
        Some(label) if !label.trim().is_empty() => label.to_owned(),
        _ => format!("#{}", submission.number),
    }
}

/// Returns the name of the edge's timeline. A broken recording may lack it.
pub(crate) fn timeline(recording: &Recording, edge: Edge) -> String {
    match recording.timelines.get(edge.timeline) {
        Some(name) if !name.is_empty() => name.clone(),
        _ => format!("timeline {}", edge.timeline),
    }
}

/// Describes the signaller in words.
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

/// Returns the API's name in its usual spelling.
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

/// Groups the tracks by device and API, in the order of their first tracks.
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

/// Lists the threads that made signals, in the order of their first signals.
///
/// Each comes with the indices of its signals.
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
