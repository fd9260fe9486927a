//! The signals that devices of this process owe to a timeline that several devices have (E3).
//!
//! A queue of one device may wait natively for a signal of another device. If that device is lost,
//! no driver ends the wait. So the lost device's watching thread fails the timeline, and then makes
//! the missing signals. Signals of other devices still come by themselves, and the counter must
//! only grow. So the missing signals are made in the order of their values, each after the value
//! before it.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;

use super::Shared;
use crate::base::info::DeviceId;
use crate::base::sync::Mutex;
use crate::port::Recovered;
use crate::port::attachment::DevicePort;
use crate::port::watch::{Guarded, RETRY, ROUND};
use crate::timeline::state::recovery::GRACE;

/// The pending signals of a timeline with several ports.
#[derive(Default)]
pub(super) struct OwedSignals(Mutex<List>);

#[derive(Default)]
struct List {
    /// Lowest value first.
    entries: VecDeque<Owed>,
    /// The devices that their watching threads check for this timeline.
    guarded: SmallVec<[DeviceId; 2]>,
    /// The devices whose loss has failed the timeline.
    lost: SmallVec<[DeviceId; 2]>,
}

struct Owed {
    value: u64,
    /// The device that signals it. `None` if the application submits the signal itself, so that any
    /// device may signal it.
    device: Option<DeviceId>,
}

impl Owed {
    fn is_owed_by(&self, device: DeviceId) -> bool {
        self.device.is_none_or(|owing| owing == device)
    }
}

impl List {
    fn prune(&mut self, reached: u64) {
        while self
            .entries
            .front()
            .is_some_and(|entry| entry.value <= reached)
        {
            self.entries.pop_front();
        }
    }

    /// The lowest signal that `device` owes, and the value before it.
    fn lowest_owed_by(&self, device: DeviceId) -> Option<(u64, u64)> {
        let mut before = 0;
        for entry in &self.entries {
            if entry.is_owed_by(device) {
                return Some((before, entry.value));
            }
            before = entry.value;
        }
        None
    }

    /// Removes the signal of `value`, which was made in place of the device.
    fn remove(&mut self, value: u64) {
        self.entries.retain(|entry| entry.value != value);
    }
}

impl Shared {
    /// Notes that `device` is about to owe the signal of `value`.
    ///
    /// Call it before the value becomes pending, so that later values are noted later.
    #[inline]
    pub(crate) fn note_owed(self: &Arc<Self>, value: u64, device: Option<DeviceId>) {
        if !self.others.is_empty() {
            self.add_owed(value, device);
        }
    }

    fn add_owed(self: &Arc<Self>, value: u64, device: Option<DeviceId>) {
        let owed = Owed { value, device };
        let reached = self.reached();
        let mut unguarded: SmallVec<[&DevicePort; 2]> = SmallVec::new();
        {
            let mut list = self.owed.0.lock();
            list.prune(reached);
            for port in self.ports().filter(|port| port.watch().is_some()) {
                let id = port.device();
                if owed.is_owed_by(id) && !list.guarded.contains(&id) {
                    list.guarded.push(id);
                    unguarded.push(port);
                }
            }
            list.entries.push_back(owed);
        }
        for port in unguarded {
            if let Some(watch) = port.watch() {
                let of = Arc::downgrade(self) as Weak<dyn Guarded>;
                watch.watcher().guard(of, port.device());
            }
        }
    }

    /// Makes the next signals that `device` owes. True if it owes none any more.
    fn release_owed(&self, device: DeviceId) -> bool {
        loop {
            let next = self.owed.0.lock().lowest_owed_by(device);
            let Some((before, value)) = next else {
                return true;
            };
            if self.recover_owed(device, before, value) == Recovered::NotYet {
                return false;
            }
            self.owed.0.lock().remove(value);
        }
    }

    /// Signals `value` through the first port that can, in place of `lost`.
    ///
    /// A port that cannot read the counter is the last choice, because it cannot see whether the
    /// counter has come to `after`.
    fn recover_owed(&self, lost: DeviceId, after: u64, value: u64) -> Recovered {
        let mut ports: SmallVec<[&DevicePort; 4]> = self.ports().collect();
        ports.sort_by_key(
            |port| match (port.device() == lost, port.port().is_readable()) {
                (false, true) => 0,
                (true, _) => 1,
                (false, false) => 2,
            },
        );
        // After an error the next port is tried.
        let mut answers = ports
            .iter()
            .filter_map(|port| port.port().recover(after, value).ok());
        answers
            .find(|&answer| answer != Recovered::Elsewhere)
            .unwrap_or(Recovered::Elsewhere)
    }

    /// The watching threads that may hold this timeline for a moment, because they guard it.
    pub(super) fn guards(&self) -> impl Iterator<Item = &DevicePort> {
        let guarded = if self.others.is_empty() {
            SmallVec::new()
        } else {
            self.owed.0.lock().guarded.clone()
        };
        self.ports()
            .filter(move |port| guarded.contains(&port.device()))
    }
}

impl Guarded for Shared {
    fn check_device(&self, device: DeviceId) -> Option<Duration> {
        let reached = self.refresh();
        {
            let mut list = self.owed.0.lock();
            list.prune(reached);
            if list.lowest_owed_by(device).is_none() {
                list.guarded.retain(|guarded| *guarded != device);
                return None;
            }
        }
        let watch = self.ports().find(|port| port.device() == device)?.watch()?;
        let Err(cause) = watch.check() else {
            return Some(ROUND);
        };
        self.fail_with_dependents(&cause.into_cause());
        let is_new = {
            let mut list = self.owed.0.lock();
            let is_new = !list.lost.contains(&device);
            if is_new {
                list.lost.push(device);
            }
            is_new
        };
        if is_new && self.publisher.get().is_some() {
            // Other processes fail what depends on the timeline before it is released.
            return Some(GRACE);
        }
        Some(if self.release_owed(device) {
            ROUND
        } else {
            RETRY
        })
    }
}
