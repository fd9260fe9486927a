//! The ports of a timeline: that of its home, and those of other devices.

use smallvec::SmallVec;

use super::owed::OwedSignals;
use crate::base::error::{Error, Result};
use crate::base::info::DeviceId;
use crate::base::process::{DroppedByMaker, MakerProcess};
use crate::port::Port;
use crate::port::attachment::{Attachment, DevicePort, Nature};

/// The ports of a timeline, home first.
pub(crate) struct Ports {
    /// Stored inline, because nearly every access is to the home.
    home: DroppedByMaker<DevicePort>,
    others: DroppedByMaker<Box<[DevicePort]>>,
    max_difference: u64,
    is_only_a_value: bool,
    has_remote_home: bool,
    engine_signals_all: bool,
    takes_promises: bool,
    /// The signals that devices owe. Empty unless several devices have the timeline.
    ///
    /// Stored inline, because each submission of two APIs together adds to it.
    owed: OwedSignals,
}

/// How much of `reached` the host may act on, as far as the device of `port` matters.
///
/// Never more than `reached`, whatever the backend of the port says (X7). A lost device writes
/// nothing any more, so nothing of it is still invisible. Its watching thread fails the timeline if
/// the device owes a signal.
fn visible(on: &DevicePort, reached: u64) -> Result<u64> {
    match on.port().visible(reached) {
        Err(Error::DeviceLost { .. }) if on.watch().is_some() => Ok(reached),
        visible => Ok(visible?.min(reached)),
    }
}

impl Ports {
    pub(super) fn new(home: Attachment, others: Box<[Attachment]>) -> Self {
        let all = [&home].into_iter().chain(&others);
        let differences = all.map(Attachment::max_value_difference);
        let max_difference = differences.min().unwrap_or(u64::MAX);
        let home = home.into_port();
        let others = others.into_iter().map(Attachment::into_port);
        let others: Box<[DevicePort]> = others.collect();
        let foreign = [&home]
            .into_iter()
            .chain(&others)
            .any(DevicePort::is_signalled_elsewhere);
        let is_only_a_value = others.is_empty() && home.nature() == Nature::Value;
        let is_a_page = home.nature() == Nature::Page;
        Self {
            max_difference,
            is_only_a_value,
            has_remote_home: home.is_signalled_elsewhere() && is_a_page,
            engine_signals_all: is_only_a_value || (others.is_empty() && is_a_page && !foreign),
            takes_promises: home.is_signalled_elsewhere() && home.nature() == Nature::Driver,
            home: DroppedByMaker::new(home),
            others: DroppedByMaker::new(others),
            owed: OwedSignals::default(),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &DevicePort> {
        [&*self.home].into_iter().chain(self.others.iter())
    }

    #[inline]
    pub(super) fn home(&self) -> &DevicePort {
        &self.home
    }

    /// The ports of the other devices.
    pub(crate) fn others(&self) -> impl Iterator<Item = &dyn Port> {
        self.others.iter().map(DevicePort::port)
    }

    /// True if it has ports on other devices than its home's.
    #[inline]
    pub(crate) fn has_others(&self) -> bool {
        !self.others.is_empty()
    }

    #[inline(always)]
    pub(super) fn on(&self, device: DeviceId) -> Option<&dyn Port> {
        if self.home.device() == device {
            return Some(self.home.port());
        }
        let mut others = self.others.iter();
        let other = others.find(|other| other.device() == device);
        other.map(DevicePort::port)
    }

    /// The process that made them.
    #[inline]
    pub(super) const fn maker(&self) -> MakerProcess {
        self.home.maker()
    }

    /// The largest difference of the values that may be signalled or waited for at a time (T7).
    #[inline]
    pub(super) const fn max_difference(&self) -> u64 {
        self.max_difference
    }

    /// True if the only port is a host value without shared memory behind it.
    #[inline]
    pub(crate) const fn is_only_a_value(&self) -> bool {
        self.is_only_a_value
    }

    /// True if the home is a page that another process signals.
    #[inline]
    pub(crate) const fn has_remote_home(&self) -> bool {
        self.has_remote_home
    }

    /// True if the engine makes or sees every signal, other than those of raw claims.
    #[inline]
    pub(super) const fn engine_signals_all(&self) -> bool {
        self.engine_signals_all
    }

    /// True if others may signal it and [promise](Shared::signalled_by_others) their signals.
    ///
    /// A counter in shared memory needs no promises, because its page has the pending value.
    #[inline]
    pub(crate) const fn takes_promises(&self) -> bool {
        self.takes_promises
    }

    /// True if signals from outside the engine are possible without a raw claim.
    pub(super) fn are_signalled_elsewhere(&self) -> bool {
        self.all().any(DevicePort::is_signalled_elsewhere)
    }

    /// The home's value, as far as it is visible. For values below `least` it polls no other port.
    #[inline]
    pub(super) fn poll(&self, least: u64) -> Result<Option<u64>> {
        if !self.has_others() {
            return self.home.port().poll();
        }
        self.poll_all(least)
    }

    /// The home's value, lowered to what is visible of every device's memory.
    ///
    /// A driver may take a hundred times as long to check visibility as to read the home, and the
    /// check may delay the awaited work. So values below `least` are not checked.
    fn poll_all(&self, least: u64) -> Result<Option<u64>> {
        let mut value = self.home.port().poll()?.filter(|&value| value >= least);
        for other in self.others.iter() {
            if let Some(reached) = value.filter(|&value| value != u64::MAX) {
                value = Some(visible(other, reached)?);
            }
        }
        Ok(value)
    }

    /// The highest value that a port shows now, as far as it is visible.
    pub(super) fn last_value(&self) -> u64 {
        let home = self.home.port();
        let value = match home.poll() {
            Ok(Some(value)) if value != u64::MAX => value,
            // Another port may still show what the lost device of the home does not.
            Ok(Some(_)) | Err(Error::DeviceLost { .. }) => {
                let polled = self.others().filter_map(|port| port.poll().ok().flatten());
                let polled = polled.filter(|&value| value != u64::MAX);
                polled.fold(home.last_polled(), u64::max)
            }
            // Another thread may have polled a higher value that it has not noted yet.
            _ => home.last_polled(),
        };
        let visible = |value, port| visible(port, value).unwrap_or(0);
        self.others.iter().fold(value, visible)
    }

    /// The highest value that a poll of a port returns now, visible or not.
    pub(super) fn highest_polled(&self) -> u64 {
        let polled = |port: &DevicePort| match port.port().poll() {
            Ok(Some(value)) if value != u64::MAX => value,
            _ => 0,
        };
        self.all().map(polled).max().unwrap_or_default()
    }

    /// The signals that devices owe. Empty unless several devices have the timeline.
    #[inline]
    pub(super) const fn owed(&self) -> &OwedSignals {
        &self.owed
    }

    /// The ports of the devices that are checked for this timeline.
    ///
    /// Their watching threads may hold it for a moment.
    pub(super) fn guards(&self) -> impl Iterator<Item = &DevicePort> {
        let guarded = match self.has_others() {
            true => self.owed.guarded(),
            false => SmallVec::new(),
        };
        self.all()
            .filter(move |port| guarded.contains(&port.device()))
    }
}
