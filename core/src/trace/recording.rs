//! The data of a recording.

use std::collections::BTreeMap;

use crate::base::info::{BackendKind, Uuid};
use crate::clock::Estimate;

/// What a trace has recorded.
///
/// All times are nanoseconds of the host's monotonic clock
/// ([`HostClock::Monotonic`](crate::clock::HostClock::Monotonic)). Times that a device wrote have
/// the error of their conversion. Times of two APIs whose clocks were found to be one were
/// converted together, so their differences are exact to the clocks' resolution.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// The time at which the trace began.
    pub begun: i64,
    /// The time at which the trace ended.
    pub ended: i64,
    /// One track per queue.
    pub tracks: Vec<Track>,
    /// Host signals, in the order of their times.
    pub host_signals: Vec<HostSignal>,
    /// The number of host signals beyond the trace's capacity.
    pub host_lost: u64,
    /// The names of the timelines. [`Edge::timeline`] is an index into it.
    pub timelines: Vec<String>,
    /// The value of each timeline when the trace first met it; 0 where this is shorter.
    ///
    /// The indices are those of `timelines`. No recorded signal released a wait for these values.
    pub reached_before: Vec<u64>,
}

/// The record of one queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// The queue's name.
    pub queue: String,
    /// The name of its device.
    pub device: String,
    /// The backend of its device.
    pub backend: BackendKind,
    /// The GPU; `None` for the host.
    pub gpu: Option<Uuid>,
    /// The timeline of the queue's position, which each submission signals with its number.
    pub position: usize,
    /// Its submissions, in order.
    pub submissions: Vec<Submission>,
    /// The number of submissions beyond the trace's capacity.
    pub lost: u64,
    /// Why the device wrote no times, if it wrote none.
    pub untimed: Option<String>,
}

/// The record of one submission.
///
/// What did not happen before the end of the trace, or is unknown, is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// Its number on the queue, from 1.
    pub number: u64,
    /// The application's label, from [`Trace::label`](crate::trace::Trace::label).
    pub label: Option<String>,
    /// The time of the call that submitted it.
    pub made: i64,
    /// True if it was held, because it or an earlier one could not go to the driver yet.
    pub held: bool,
    /// The time at which it went to the driver. If it was not held, that is just after `made`.
    pub released: Option<i64>,
    /// The time at which the device began its work, after its waits and all earlier work of the
    /// queue.
    pub began: Option<Estimate>,
    /// The time at which the device finished its work, before its signals.
    ///
    /// If the signals wait for lower values of their timelines, it can be known before the
    /// submission has ended.
    pub ended: Option<Estimate>,
    /// How the submission ended.
    pub outcome: Outcome,
    /// The points that it waited for.
    pub waits: Vec<Edge>,
    /// The values that it signalled, without its queue's position.
    pub signals: Vec<Edge>,
}

/// How a submission ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It had not ended when the trace ended.
    Pending,
    /// Its work is done and its signals are made.
    Finished,
    /// It did not run or it failed. Has the cause as text.
    Failed(String),
}

/// A value of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Edge {
    /// An index into [`Recording::timelines`].
    pub timeline: usize,
    /// The value.
    pub value: u64,
}

/// A signal that the host made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSignal {
    /// The time of the signal.
    pub at: i64,
    /// The name of the signalling thread, or its id.
    pub thread: String,
    /// The value that was signalled.
    pub signal: Edge,
}

/// A wait, and the signal that released it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrow {
    /// The origin of the signal.
    pub from: Place,
    /// The submission that waited.
    pub to: (usize, usize),
    /// The point that the submission waited for.
    pub wait: Edge,
    /// The value that was signalled: on the same timeline, at or above the awaited value.
    pub signal: Edge,
}

/// The origin of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A submission: the index of its track, and its index in the track.
    Submission(usize, usize),
    /// The host: an index into [`Recording::host_signals`].
    Host(usize),
}

impl Recording {
    /// Pairs each wait with the signal that released it, in the order of the waiting submissions.
    ///
    /// The signal is the recorded one with the lowest sufficient value. If the real signal was not
    /// recorded, that is a later one, which may have come after the wait was over. Waits for values
    /// [reached before](Recording::reached_before) have no arrow.
    #[must_use]
    pub fn arrows(&self) -> Vec<Arrow> {
        let mut signals: BTreeMap<Edge, Place> = BTreeMap::new();
        for (index, signal) in self.host_signals.iter().enumerate() {
            signals.entry(signal.signal).or_insert(Place::Host(index));
        }
        for (t, track) in self.tracks.iter().enumerate() {
            for (s, submission) in track.submissions.iter().enumerate() {
                let position = Edge {
                    timeline: track.position,
                    value: submission.number,
                };
                for &signal in submission.signals.iter().chain([&position]) {
                    signals.insert(signal, Place::Submission(t, s));
                }
            }
        }
        let mut arrows = Vec::new();
        for (t, track) in self.tracks.iter().enumerate() {
            for (s, submission) in track.submissions.iter().enumerate() {
                for &wait in &submission.waits {
                    let before = self.reached_before.get(wait.timeline);
                    if wait.value <= before.copied().unwrap_or_default() {
                        continue;
                    }
                    let last = Edge {
                        value: u64::MAX,
                        ..wait
                    };
                    if let Some((&signal, &from)) = signals.range(wait..=last).next() {
                        let to = (t, s);
                        arrows.push(Arrow {
                            from,
                            to,
                            wait,
                            signal,
                        });
                    }
                }
            }
        }
        arrows
    }

    /// When a signal was made, with its error.
    ///
    /// That is the end of its submission's work, or the time of the host signal.
    #[must_use]
    pub fn signalled(&self, from: Place) -> Option<Estimate> {
        match from {
            Place::Submission(track, index) => {
                self.tracks.get(track)?.submissions.get(index)?.ended
            }
            Place::Host(index) => Some(Estimate {
                nanoseconds: self.host_signals.get(index)?.at,
                error: 0,
            }),
        }
    }

    /// The submission with these indices: of its track, and in the track.
    #[must_use]
    pub fn submission(&self, (track, index): (usize, usize)) -> Option<&Submission> {
        self.tracks.get(track)?.submissions.get(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submission(number: u64, waits: &[(usize, u64)], signals: &[(usize, u64)]) -> Submission {
        let edges = |of: &[(usize, u64)]| {
            let edge = |&(timeline, value)| Edge { timeline, value };
            of.iter().map(edge).collect()
        };
        Submission {
            number,
            label: None,
            made: 0,
            held: false,
            released: None,
            began: None,
            ended: None,
            outcome: Outcome::Pending,
            waits: edges(waits),
            signals: edges(signals),
        }
    }

    fn track(position: usize, submissions: Vec<Submission>) -> Track {
        Track {
            queue: String::new(),
            device: String::new(),
            backend: BackendKind::Host,
            gpu: None,
            position,
            submissions,
            lost: 0,
            untimed: None,
        }
    }

    #[test]
    fn an_arrow_begins_at_the_lowest_signal_that_is_enough() {
        let one = track(
            1,
            vec![submission(1, &[], &[(0, 3)]), submission(2, &[], &[(0, 7)])],
        );
        let waits = [(0, 4), (0, 2), (0, 0), (0, 8), (3, 1), (1, 2), (0, 9)];
        let two = track(2, vec![submission(1, &waits, &[])]);
        let recording = Recording {
            tracks: vec![one, two],
            host_signals: vec![HostSignal {
                at: 5,
                thread: "main".into(),
                signal: Edge {
                    timeline: 0,
                    value: 8,
                },
            }],
            timelines: vec![String::new(); 4],
            ..Recording::default()
        };
        let arrows = recording.arrows();
        let from: Vec<_> = arrows
            .iter()
            .map(|arrow| ((arrow.wait.timeline, arrow.wait.value), arrow.from))
            .collect();
        assert_eq!(
            from,
            [
                ((0, 4), Place::Submission(0, 1)),
                ((0, 2), Place::Submission(0, 0)),
                ((0, 8), Place::Host(0)),
                // From the queue's position. A value without any signal has no arrow.
                ((1, 2), Place::Submission(0, 1)),
            ]
        );
        assert!(arrows.iter().all(|arrow| arrow.to == (1, 0)));
        assert_eq!(recording.signalled(Place::Host(0)).unwrap().nanoseconds, 5);
        assert_eq!(recording.signalled(Place::Submission(0, 0)), None);
    }
}
