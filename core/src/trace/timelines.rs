//! The timelines of a trace, and the host signals of those that are waited for.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::thread;

use super::recording::{Edge, HostSignal, Recording};
use crate::base::sync::Mutex;
use crate::timeline::host_signals::ObserveHostSignals;
use crate::timeline::state::Shared;

/// The timelines that traced submissions wait for or signal.
pub(super) struct Timelines {
    /// The most host signals.
    capacity: usize,
    known: Mutex<Known>,
    host: Mutex<HostSignals>,
}

#[derive(Default)]
struct Known {
    /// By the timeline's id.
    indices: HashMap<u64, usize>,
    names: Vec<String>,
    /// Their values when the trace first met them.
    reached: Vec<u64>,
    /// The timelines whose host signals are recorded.
    watched: Vec<Weak<Shared>>,
}

#[derive(Default)]
struct HostSignals {
    noted: Vec<HostSignal>,
    /// The number of signals beyond the capacity.
    lost: u64,
}

impl Timelines {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            known: Mutex::default(),
            host: Mutex::default(),
        }
    }

    /// The index of a timeline that is known.
    pub(super) fn index(&self, of: &Shared) -> Option<usize> {
        self.known.lock().indices.get(&of.object().id()).copied()
    }

    /// Records no further host signals.
    pub(super) fn stop(self: &Arc<Self>) {
        let watched = std::mem::take(&mut self.known.lock().watched);
        for timeline in watched {
            if let Some(timeline) = timeline.upgrade() {
                let observer: Arc<dyn ObserveHostSignals> = self.clone();
                timeline.make_extras().host_signals().remove(&observer);
            }
        }
    }

    /// Moves the timelines and the host signals to `recording`.
    pub(super) fn take(&self, recording: &mut Recording) {
        let HostSignals { mut noted, lost } = std::mem::take(&mut *self.host.lock());
        noted.sort_by_key(|signal| signal.at);
        let known = std::mem::take(&mut *self.known.lock());
        recording.host_signals = noted;
        recording.host_lost = lost;
        recording.timelines = known.names;
        recording.reached_before = known.reached;
    }

    /// The index of a timeline. If it is `awaited`, its host signals are recorded from now on.
    pub(super) fn timeline(self: &Arc<Self>, of: &Arc<Shared>, awaited: bool) -> usize {
        let id = of.object().id();
        let (index, is_new) = {
            let mut known = self.known.lock();
            match known.indices.get(&id) {
                Some(&index) => (index, false),
                None => {
                    let index = known.names.len();
                    known.names.push(of.object().label().to_owned());
                    known.reached.push(0);
                    known.indices.insert(id, index);
                    (index, true)
                }
            }
        };
        // After the index, which `note` needs.
        let observer: Arc<dyn ObserveHostSignals> = self.clone();
        if awaited && of.make_extras().host_signals().add(&observer) {
            self.known.lock().watched.push(Arc::downgrade(of));
        }
        if is_new {
            // After that, so that each later signal is noted, and each earlier one is part of the
            // value. A signal that a thread is making at this moment may be neither.
            let reached = of.reached();
            if let Some(before) = self.known.lock().reached.get_mut(index) {
                *before = reached;
            }
        }
        index
    }
}

impl ObserveHostSignals for Timelines {
    /// Removes the signal that was noted with the same arguments and then refused.
    fn forget(&self, timeline: &Shared, value: u64, at: i64) {
        let Some(timeline) = self.index(timeline) else {
            return;
        };
        let signal = Edge { timeline, value };
        let mut host = self.host.lock();
        let same = |one: &HostSignal| one.signal == signal && one.at == at;
        match host.noted.iter().rposition(same) {
            Some(index) => drop(host.noted.remove(index)),
            None => host.lost = host.lost.saturating_sub(1),
        }
    }

    /// Notes a host signal of `value`.
    fn note(&self, timeline: &Shared, value: u64, at: i64) {
        let Some(timeline) = self.index(timeline) else {
            return;
        };
        let thread = thread::current();
        let thread = match thread.name() {
            Some(name) => name.to_owned(),
            None => format!("{:?}", thread.id()),
        };
        let mut host = self.host.lock();
        if host.noted.len() < self.capacity {
            let signal = Edge { timeline, value };
            host.noted.push(HostSignal { at, thread, signal });
        } else {
            host.lost += 1;
        }
    }
}
