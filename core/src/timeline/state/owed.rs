//! The signals that devices of this process owe to a timeline that several devices have (E3).
//!
//! A queue of one device may wait natively for a signal of another device. If that device is lost,
//! no driver ends the wait. So the lost device's watching thread fails the timeline, and then makes
//! the missing signals. Signals of other devices still come by themselves, and the counter must
//! only grow. So the missing signals are made in the order of their values, each after the value
//! before it.
//!
//! Others may signal a timeline, too, and wait for a value that a submission of this engine was to
//! signal. If that submission will not run, the same thread makes its signal in the same way (E2).

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use smallvec::SmallVec;

use super::ahead::Publication;
use super::ports::Ports;
use super::shared::Shared;
use crate::base::error::Error;
use crate::base::info::DeviceId;
use crate::base::sync::{Instant, Mutex};
use crate::port::attachment::DevicePort;
use crate::port::watch::{Guarded, Health, RETRY, ROUND};
use crate::port::{ByEngine, Recovered};
use crate::timeline::interval::Interval;
use crate::timeline::state::recovery::GRACE;

/// The pending signals of a timeline with several ports.
#[derive(Default)]
pub(super) struct OwedSignals {
    list: Mutex<List>,
    /// Held while a missing signal is made, so that two threads do not make the same one.
    recovering: Mutex<()>,
}

#[derive(Default)]
struct List {
    /// Lowest value first.
    entries: VecDeque<Owed>,
    /// The devices that their watching threads check for this timeline.
    guarded: SmallVec<[DeviceId; 2]>,
    /// The devices whose loss has failed the timeline, and when.
    lost: SmallVec<[(DeviceId, Instant); 2]>,
    /// The id that stands for submissions that were skipped, once there is one.
    skipped: Option<DeviceId>,
    /// The timeline itself, until the signals in place of such submissions are made.
    ///
    /// The application may drop it before, and others still wait for the signals.
    kept: Option<Arc<Shared>>,
}

/// The type whose id [`List::skipped`] is.
struct Skipped;

/// Pending signals of one device that follow each other without another device's between them.
struct Owed {
    /// The highest of them.
    value: u64,
    /// The value that must come before them, beside those of the entries before. 0 for none.
    after: u64,
    by: Owing,
}

/// What signals a pending value of a timeline that several devices have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owing {
    Device(DeviceId),
    /// Any device, because the application has not named the device of its own submission.
    AnyDevice,
    /// Others, which have promised it. No signal is made in their place.
    Others,
}

impl Owed {
    fn is_owed_by(&self, device: DeviceId) -> bool {
        match self.by {
            Owing::Device(owing) => owing == device,
            Owing::AnyDevice => true,
            Owing::Others => false,
        }
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

    /// Adds a signal to the last entry.
    ///
    /// False if that entry is another device's, or if other signals can still come between.
    #[inline]
    fn extend_last(&mut self, claim: Interval, by: Owing) -> bool {
        let last = self.entries.back_mut();
        let last = last.filter(|last| last.by == by && last.value == claim.above);
        let Some(last) = last else { return false };
        last.value = claim.upto;
        true
    }

    /// The first entry that `device` owes: the value before the entry, and its highest value.
    fn lowest_owed_by(&self, device: DeviceId) -> Option<(u64, u64)> {
        let mut before = 0;
        for entry in &self.entries {
            if entry.is_owed_by(device) {
                return Some((before.max(entry.after), entry.value));
            }
            before = entry.value;
        }
        None
    }

    /// Takes out the timeline, if no signal in place of a submission is left to be made.
    ///
    /// It may be the last reference, so it is dropped without the lock.
    #[must_use]
    fn take_kept(&mut self) -> Option<Arc<Shared>> {
        let owes = self
            .skipped
            .is_some_and(|none| self.lowest_owed_by(none).is_some());
        match owes {
            true => None,
            false => self.kept.take(),
        }
    }

    /// Removes the signals up to `value`, which was made in place of the device.
    ///
    /// An entry that has grown meanwhile stays. Its new highest value is made next.
    fn remove(&mut self, value: u64) {
        self.entries.retain(|entry| entry.value != value);
    }
}

impl OwedSignals {
    /// The devices that their watching threads check for the timeline.
    pub(super) fn guarded(&self) -> SmallVec<[DeviceId; 2]> {
        self.list.lock().guarded.clone()
    }

    /// Notes that `device` will not make its signals, and since when.
    fn note_lost(&self, device: DeviceId) {
        let mut list = self.list.lock();
        if list.lost.iter().all(|(lost, _)| *lost != device) {
            list.lost.push((device, Instant::now()));
        }
    }

    /// Makes the next signals that `device` owes, through `ports`. True if it owes none any more.
    fn recover(&self, ports: &Ports, device: DeviceId) -> bool {
        loop {
            let _recovering = self.recovering.lock();
            let (next, is_skipped) = {
                let list = self.list.lock();
                let is_skipped = list.skipped == Some(device);
                (list.lowest_owed_by(device), is_skipped)
            };
            let Some((before, value)) = next else {
                return true;
            };
            let recovered = match is_skipped {
                true => ports.signal_at_home(before, value),
                false => ports.recover_value(device, before, value),
            };
            if recovered == Recovered::NotYet {
                return false;
            }
            let kept = {
                let mut list = self.list.lock();
                list.remove(value);
                list.take_kept()
            };
            drop(kept);
        }
    }
}

impl Ports {
    /// Signals `value` through the first port that can, in place of `lost`.
    ///
    /// A port that cannot read the counter is the last choice, because it cannot see whether the
    /// counter has come to `after`.
    fn recover_value(&self, lost: DeviceId, after: u64, value: u64) -> Recovered {
        let mut ports: SmallVec<[&DevicePort; 4]> = self.all().collect();
        ports.sort_by_key(
            |port| match (port.device() == lost, port.port().is_readable()) {
                (false, true) => 0,
                (true, _) => 1,
                (false, false) => 2,
            },
        );
        for port in ports {
            match port.port().recover(after, value) {
                Ok(Recovered::Elsewhere)
                | Err(Error::DeviceLost { .. } | Error::Unsupported { .. }) => {}
                Ok(answer) => return answer,
                // For example a lack of memory. The next call tries again.
                Err(_) => return Recovered::NotYet,
            }
        }
        Recovered::Elsewhere
    }

    /// Signals `value` through the home, in place of a submission that will not run.
    fn signal_at_home(&self, after: u64, value: u64) -> Recovered {
        let home = self.home().port();
        let signalled = match home.poll() {
            Ok(Some(u64::MAX) | None) => return Recovered::Elsewhere,
            Ok(Some(reached)) if reached < after => return Recovered::NotYet,
            Ok(Some(reached)) if reached >= value => return Recovered::Signalled,
            Ok(Some(_)) => home.signal(value, ByEngine::new(home)),
            Err(error) => Err(error),
        };
        match signalled {
            Ok(()) => Recovered::Signalled,
            // The device is lost, or the host cannot write the counter.
            Err(Error::DeviceLost { .. } | Error::Unsupported { .. }) => Recovered::Elsewhere,
            // For example a lack of memory. The next call tries again.
            Err(_) => Recovered::NotYet,
        }
    }

    /// The loss of a device of this process that has made the home fail with `error`.
    ///
    /// Such a device fails the page of a counter for other processes. This process may read that
    /// before it has checked the device.
    pub(super) fn own_loss(&self, error: &Error) -> Option<Error> {
        if !matches!(error, Error::FailedElsewhere { .. }) || !self.home().port().is_lost() {
            return None;
        }
        let lost = |port: &DevicePort| match port.watch()?.check() {
            Err(lost @ Error::DeviceLost { .. }) => Some(lost),
            _ => None,
        };
        self.guards().find_map(lost)
    }
}

impl Shared {
    /// Notes what is about to owe the signal of `claim`.
    ///
    /// Call it before the value becomes pending.
    #[inline]
    pub(crate) fn note_owed(self: &Arc<Self>, claim: Interval, by: Owing) {
        if self.ports().has_others() {
            self.add_owed(claim, by);
        }
    }

    /// Adds a signal. The watching threads of the devices that may make it check them from now on.
    #[inline(never)]
    fn add_owed(self: &Arc<Self>, claim: Interval, by: Owing) {
        // A device is checked as long as an entry of it is listed, so a longer entry needs nothing
        // new.
        if self.ports().owed().list.lock().extend_last(claim, by) {
            return;
        }
        let value = claim.upto;
        let owed = Owed {
            value,
            after: 0,
            by,
        };
        let watched = || self.ports().all().filter(|port| port.watch().is_some());
        if watched().next().is_none() {
            // No thread would ever check the device.
            return;
        }
        let mut unguarded: SmallVec<[&DevicePort; 2]> = SmallVec::new();
        {
            let mut list = self.ports().owed().list.lock();
            let reached = self.reached();
            list.prune(reached);
            if value <= reached {
                return;
            }
            for port in watched() {
                let id = port.device();
                if owed.is_owed_by(id) && !list.guarded.contains(&id) {
                    list.guarded.push(id);
                    unguarded.push(port);
                }
            }
            let at = list.entries.partition_point(|entry| entry.value < value);
            list.entries.insert(at, owed);
        }
        for port in unguarded {
            if let Some(watch) = port.watch() {
                let of = Arc::downgrade(self) as Weak<dyn Guarded>;
                watch.watcher().guard(of, port.device());
            }
        }
    }

    /// True if others still get the signals that submissions of this engine have claimed.
    ///
    /// After a broken promise the counter may be above these values.
    pub(crate) fn serves_others(&self) -> bool {
        let is_broken = || {
            let cause = self.failure();
            cause.is_some_and(|cause| matches!(*cause, Error::Corrupted { .. }))
        };
        self.ports().takes_promises() && !is_broken()
    }

    /// Makes the signal of `claim`, because the submission that was to make it will not run (E2).
    ///
    /// Only on a timeline that others signal, too, because they may wait for the value. The
    /// watching thread makes it, after the value before it. Call it before the timeline fails.
    #[cold]
    pub(crate) fn signal_in_place(self: &Arc<Self>, claim: Interval) {
        let Some(watch) = self.watch().filter(|_| self.serves_others()) else {
            return;
        };
        // Without a promise the signal before may never come.
        let kept = (self.pending() >= claim.above).then(|| self.clone());
        let device;
        {
            let mut list = self.ports().owed().list.lock();
            let new = || DeviceId::new::<Skipped>();
            device = *list.skipped.get_or_insert_with(new);
            let Interval { above, upto } = claim;
            let at = list.entries.partition_point(|entry| entry.value < upto);
            let owed = Owed {
                value: upto,
                after: above,
                by: Owing::Device(device),
            };
            list.entries.insert(at, owed);
            if kept.is_some() {
                list.kept = kept;
            }
            if list.guarded.contains(&device) {
                return;
            }
            list.guarded.push(device);
        }
        let of = Arc::downgrade(self) as Weak<dyn Guarded>;
        watch.watcher().guard(of, device);
    }

    /// [`Guarded::recover_from_loss`] at the time `now`.
    fn recover_from_loss_at(&self, device: DeviceId, now: Instant) -> Duration {
        let owed = self.ports().owed();
        let since = {
            let list = owed.list.lock();
            let mut lost = list.lost.iter();
            lost.find(|(lost, _)| *lost == device)
                .map_or(Duration::ZERO, |&(_, at)| now.saturating_duration_since(at))
        };
        if since < GRACE && self.publication().is_some_and(Publication::is_published) {
            // Other processes fail what depends on the timeline before it is recovered.
            return GRACE - since;
        }
        if owed.recover(self.ports(), device) || since > 10 * ROUND {
            ROUND
        } else {
            RETRY
        }
    }
}

impl Guarded for Shared {
    fn check_device(&self, device: DeviceId) -> Health {
        let mut reached = self.refresh();
        if self.is_failed() {
            // A failed timeline does not store it.
            reached = reached.max(self.ports().highest_polled());
        }
        let owed = self.ports().owed();
        let is_skipped = {
            let mut list = owed.list.lock();
            list.prune(reached);
            if list.lowest_owed_by(device).is_none() {
                list.guarded.retain(|guarded| *guarded != device);
                let kept = list.take_kept();
                drop(list);
                drop(kept);
                return Health::OwesNothing;
            }
            list.skipped == Some(device)
        };
        if is_skipped {
            owed.note_lost(device);
            return Health::Lost;
        }
        let watch = self.ports().all().find(|port| port.device() == device);
        let cause = match watch.and_then(DevicePort::watch).map(|watch| watch.check()) {
            Some(Err(lost @ Error::DeviceLost { .. })) => lost,
            // Another error does not mean that the device has stopped.
            _ => return Health::Works,
        };
        // Once more, because a value that was reached before the loss may have come since the poll
        // above.
        self.refresh();
        self.fail_with_dependents(&cause.into_cause());
        owed.note_lost(device);
        Health::Lost
    }

    fn recover_from_loss(&self, device: DeviceId) -> Duration {
        self.recover_from_loss_at(device, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::link::publish::Page;
    use crate::port::attachment::Attachment;
    use crate::timeline::state::shared_semaphore::Semaphore;
    use crate::{Timeline, host};

    /// Signals become one entry only if no signal of another device can come between them.
    #[rstest]
    #[case::in_a_row((0, 1), (1, 2), 0, &[2])]
    #[case::after_a_gap((0, 1), (2, 3), 0, &[1, 3])]
    #[case::of_another_device((0, 1), (1, 2), 1, &[1, 2])]
    fn signals_in_a_row_are_one_entry(
        #[case] first: (u64, u64),
        #[case] second: (u64, u64),
        #[case] by: usize,
        #[case] entries: &[u64],
    ) {
        let devices = [DeviceId::new::<()>(), DeviceId::new::<()>()];
        let mut list = List::default();
        for ((above, upto), by) in [(first, 0), (second, by)] {
            let by = Owing::Device(devices[by]);
            if !list.extend_last(Interval { above, upto }, by) {
                let value = upto;
                list.entries.push_back(Owed {
                    value,
                    after: 0,
                    by,
                });
            }
        }
        let values: Vec<_> = list.entries.iter().map(|entry| entry.value).collect();
        assert_eq!(values, entries);
    }

    /// The engine makes no signal in place of others, and its next one comes after theirs.
    #[test]
    fn a_promised_value_is_owed_by_no_device() {
        let device = DeviceId::new::<()>();
        let mut list = List::default();
        for (value, by) in [(1, Owing::Others), (2, Owing::Device(device))] {
            let after = 0;
            list.entries.push_back(Owed { value, after, by });
        }
        assert_eq!(list.lowest_owed_by(device), Some((1, 2)));
        // A signal in place of a submission comes after the value before its claim.
        list.entries[1].after = 4;
        assert_eq!(list.lowest_owed_by(device), Some((4, 2)));
        list.remove(2);
        assert_eq!(list.lowest_owed_by(device), None);
    }

    /// Other processes have [`GRACE`] to fail what depends on the timeline. The times are made up.
    #[rstest]
    #[case::at_once(true, Duration::ZERO, false)]
    #[case::just_before(true, GRACE - Duration::from_nanos(1), false)]
    #[case::just_after(true, GRACE, true)]
    #[case::no_other_process(false, Duration::ZERO, true)]
    fn other_processes_have_time_before_a_recovery(
        #[case] is_published: bool,
        #[case] after: Duration,
        #[case] is_recovered: bool,
    ) {
        let (semaphore, lost) = (Semaphore::default(), DeviceId::new::<()>());
        let port = Attachment::new(DeviceId::new::<()>(), 0, semaphore.clone());
        let line = Timeline::new("line", 0, |_| Ok([port].into_iter().collect())).unwrap();
        if is_published {
            let exporter = host::Device::new().exportable_port(0).unwrap().1;
            line.publish(exporter.counter().clone(), Page::Beside)
                .unwrap();
        }
        let (of, at) = (line.shared(), Instant::now());
        {
            let mut list = of.ports().owed().list.lock();
            list.lost.push((lost, at));
            list.entries.push_back(Owed {
                value: 1,
                after: 0,
                by: Owing::Device(lost),
            });
        }
        let next = of.recover_from_loss_at(lost, at + after);
        assert_eq!(semaphore.value(), u64::from(is_recovered));
        // The recovery is not forgotten. It is tried again when the time is over.
        let again = if is_recovered { ROUND } else { GRACE - after };
        assert_eq!(next, again);
    }
}
