//! What a trace has recorded, as plain data.

use std::collections::BTreeMap;

use crate::base::info::{BackendKind, Uuid};
use crate::clock::Estimate;

/// What was recorded. All times are nanoseconds of the host's monotonic clock
/// ([`HostClock::Monotonic`](crate::clock::HostClock::Monotonic)); those that a device wrote come with the error of their
/// conversion. Times of two APIs whose clocks were found to be one were converted together, so that what lies between
/// them is exact to the clocks' resolution whatever their common error.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recording {
    /// When it was begun.
    pub begun: i64,
    /// When it was ended.
    pub ended: i64,
    /// One for each queue.
    pub tracks: Vec<Track>,
    /// Signals that the host made, in the order of their times.
    pub host_signals: Vec<HostSignal>,
    /// How many more of these there were, for which there was no room.
    pub host_lost: u64,
    /// The names of timelines, which [`Edge::timeline`] is an index into.
    pub timelines: Vec<String>,
    /// What had been reached of each when the trace first met it, by the same indices; 0 where this is shorter. Nothing that is
    /// recorded has released a wait for that.
    pub reached_before: Vec<u64>,
}

/// What one queue did.
#[derive(Debug, Clone, PartialEq)]
pub struct Track {
    /// The queue's name.
    pub queue: String,
    /// Its device's name.
    pub device: String,
    /// The API.
    pub backend: BackendKind,
    /// The GPU; `None` for the host.
    pub gpu: Option<Uuid>,
    /// The timeline of the queue's position, which each submission signals with its number.
    pub position: usize,
    /// Its submissions, in order.
    pub submissions: Vec<Submission>,
    /// How many more there were, for which there was no room.
    pub lost: u64,
    /// Why its device wrote no times, if it did not.
    pub untimed: Option<String>,
}

/// One submission's life. What has not happened by the end of the trace, or could not be found out, is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct Submission {
    /// Its number on the queue, from 1.
    pub number: u64,
    /// What the application calls it.
    pub label: Option<String>,
    /// When it was submitted.
    pub made: i64,
    /// True if it was held on the host, because it or one before it could not go to the driver yet.
    pub held: bool,
    /// When it went to the driver. Without having been held that is just after it was made.
    pub released: Option<i64>,
    /// When the device came to its work: its waits were over, and what stood before it on the queue had finished.
    pub began: Option<Estimate>,
    /// When the device had finished its work, before its signals. Where these wait for lower values of their timelines it is there before the submission has
    /// ended.
    pub ended: Option<Estimate>,
    /// How it ended.
    pub outcome: Outcome,
    /// What it waited for.
    pub waits: Vec<Edge>,
    /// What it signalled, besides its queue's position.
    pub signals: Vec<Edge>,
}

/// How a submission ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It had not, when the trace ended.
    Pending,
    /// Its work is done, and its signals are made.
    Finished,
    /// It was not run, or failed; the cause in words.
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
    /// When.
    pub at: i64,
    /// The name of the thread, or its number.
    pub thread: String,
    /// What was signalled.
    pub signal: Edge,
}

/// A wait, and the signal that released it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrow {
    /// Who signalled.
    pub from: Place,
    /// The submission that waited.
    pub to: (usize, usize),
    /// What it waited for.
    pub wait: Edge,
    /// What was signalled: the same timeline, and the same value or one above it.
    pub signal: Edge,
}

/// Where a signal came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A submission: the indices of its track, and of it in the track.
    Submission(usize, usize),
    /// The host: an index into [`Recording::host_signals`].
    Host(usize),
}

impl Recording {
    /// Which wait was released by which signal: for each wait the signal, of those recorded, with the lowest value that is
    /// enough: where the signal itself was not recorded, that is a later one, which may have come after the wait was over. Waits
    /// for what had been [reached before](Recording::reached_before) have none. In the order of the submissions that wait.
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

    /// When a signal was made, with its error: when its submission had finished its work, or when the host made it.
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

    /// The submission at these indices of its track and of it in the track.
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
                // Of the queue's position, and nothing for what nobody signalled.
                ((1, 2), Place::Submission(0, 1)),
            ]
        );
        assert!(arrows.iter().all(|arrow| arrow.to == (1, 0)));
        assert_eq!(recording.signalled(Place::Host(0)).unwrap().nanoseconds, 5);
        assert_eq!(recording.signalled(Place::Submission(0, 0)), None);
    }
}
