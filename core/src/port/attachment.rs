//! A device's part in a timeline: its port, before and after the timeline is made.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::port::{ByEngine, Port, Watch};

/// A port with its device and the value of its counter, from which a timeline is made.
///
/// [`Device::port`](crate::backend::Device::port) makes one.
/// [`Timeline::new`](crate::Timeline::new) checks the device and the value. Nothing takes the port
/// out again. So a driver object stays with its device, and no counter is signalled backwards (T1).
///
/// ```compile_fail,E0616
/// # extern crate syncline_core as syncline;
/// # use syncline::backend::Device as _;
/// # use syncline::host::Device;
/// # fn main() -> syncline::Result<()> {
/// let (left, right) = (Device::new(), Device::new());
/// let mut attachment = left.port(0)?;
/// attachment.device = right.id();
/// # Ok(()) }
/// ```
pub struct Attachment {
    device: DeviceId,
    /// The value of the counter, or `None` if the backend does not know it.
    at: Option<u64>,
    port: Box<dyn Port>,
    watch: Option<Arc<dyn Watch>>,
    max_value_difference: u64,
    is_signalled_elsewhere: bool,
    /// The process that signals it, if that is known and not this one.
    signalling_process: Option<u32>,
    nature: Nature,
}

/// The kind of a port, if core has made the port. The ports of backends are all `Driver`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// A port of a backend, such as a counter of a driver.
    Driver,
    /// No counter but the timeline's value in this process.
    Value,
    /// A counter in shared memory, which other processes may have.
    Page,
    /// A descriptor. The engine claims its only value, and another program signals it.
    Descriptor,
}

impl Attachment {
    /// An attachment of `device` by `port`, a new counter at `initial`. For the home of a timeline.
    ///
    /// No thread watches the port, its value differences have no limit, and only this engine
    /// signals it. The methods below change this.
    #[must_use]
    pub fn new(device: DeviceId, initial: u64, port: impl Port) -> Self {
        Self {
            at: Some(initial),
            ..Self::imported(device, port)
        }
    }

    /// An attachment of `device` by `port`, a counter that exists already at an unknown value.
    ///
    /// An example is an imported semaphore. If the host can read the counter, its value is read
    /// when the timeline is made, so that it is not signalled backwards.
    #[must_use]
    pub fn imported(device: DeviceId, port: impl Port) -> Self {
        Self {
            device,
            at: None,
            port: Box::new(port),
            watch: None,
            max_value_difference: u64::MAX,
            is_signalled_elsewhere: false,
            signalling_process: None,
            nature: Nature::Driver,
        }
    }

    /// Sets the kind of the port.
    #[must_use]
    pub(crate) const fn of_nature(mut self, nature: Nature) -> Self {
        self.nature = nature;
        self
    }

    /// The value up to which the counter is signalled when its timeline is made at `initial`.
    ///
    /// # Errors
    /// The value of the counter, if the timeline must not be made with it (T1).
    pub(crate) fn signalled(&self, initial: u64, is_home: bool) -> Result<u64, u64> {
        let known = self.known_value();
        let is_refused = |at: u64| match self.at {
            Some(_) => at != initial,
            None => is_home && at < initial,
        };
        match known {
            Some(at) if is_refused(at) => Err(at),
            known => Ok(known.unwrap_or(initial)),
        }
    }

    /// The value of the counter, or `None` if it is not known.
    ///
    /// Ignores an error and the `u64::MAX` of a lost device. The first query finds both.
    fn known_value(&self) -> Option<u64> {
        let read = || self.port.poll().ok().flatten();
        match self.at {
            None if self.port.is_readable() => read().filter(|&value| value != u64::MAX),
            at => at,
        }
    }

    pub(crate) const fn device(&self) -> DeviceId {
        self.device
    }

    /// True for a port of a new counter, and not of one that another port has, too.
    pub(crate) const fn is_new(&self) -> bool {
        self.at.is_some()
    }

    /// True for a page that another process raises to what it signals.
    pub(crate) fn is_page_of_a_peer(&self) -> bool {
        self.nature == Nature::Page && self.is_signalled_elsewhere
    }

    /// True if the host can read the counter.
    pub(crate) fn is_readable(&self) -> bool {
        self.port.is_readable()
    }

    /// The port for a timeline. The value and the limit are no longer needed then.
    pub(crate) fn into_port(self) -> DevicePort {
        DevicePort {
            device: self.device,
            port: self.port,
            watch: self.watch,
            is_signalled_elsewhere: self.is_signalled_elsewhere,
            signalling_process: self.signalling_process,
            nature: self.nature,
        }
    }

    /// Sets the watch of the port, for a port that the driver advances.
    ///
    /// A port without a watch advances only by calls of this process. Has no effect if the port has
    /// a watch: what that says of its device is true.
    #[must_use]
    pub fn watched_by(mut self, watch: Arc<dyn Watch>) -> Self {
        self.watch.get_or_insert(watch);
        self
    }

    /// Replaces the watch of the port, which a test observes.
    #[cfg(test)]
    pub(crate) fn watched_instead_by(mut self, watch: Arc<dyn Watch>) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Lowers the limit on value differences (T7) to `largest`.
    ///
    /// Has no effect if the limit is lower already.
    #[must_use]
    pub fn with_max_value_difference(mut self, largest: u64) -> Self {
        self.max_value_difference = self.max_value_difference.min(largest);
        self
    }

    /// Sets whether the counter may also be signalled outside this engine.
    ///
    /// The engine reads such a counter at each query.
    #[must_use]
    pub const fn signalled_elsewhere(mut self, may_be: bool) -> Self {
        self.is_signalled_elsewhere = may_be;
        self
    }

    /// Sets the process that signals the counter, which is not this one.
    ///
    /// The counter is [signalled elsewhere](Self::signalled_elsewhere) then. Reports of what blocks
    /// a point name the process.
    #[must_use]
    pub const fn signalled_by_process(mut self, id: u32) -> Self {
        self.signalling_process = Some(id);
        self.signalled_elsewhere(true)
    }

    /// The watch of the port, or `None` if it has none.
    #[must_use]
    pub const fn watch(&self) -> Option<&Arc<dyn Watch>> {
        self.watch.as_ref()
    }

    /// The limit on value differences (T7).
    #[must_use]
    pub const fn max_value_difference(&self) -> u64 {
        self.max_value_difference
    }

    /// Reads the counter. `None` if the host cannot read it.
    ///
    /// # Errors
    /// Same errors as [`Port::poll`].
    pub fn value(&self) -> Result<Option<u64>> {
        self.port.poll()
    }

    /// The port, if it is of type `P`.
    #[must_use]
    pub fn port<P: Port>(&self) -> Option<&P> {
        let port: &dyn Any = &*self.port;
        port.downcast_ref()
    }

    /// Signals the counter before a timeline is made from it. For tests of ports.
    ///
    /// # Errors
    /// - [`Error::SignalNotAboveReached`] if `value` is not above the counter's value.
    /// - [`Error::ValueOutOfRange`] if `value` is beyond the device's limit or is `u64::MAX`.
    /// - [`Error::Unsupported`] if the counter's value is not known.
    /// - A driver error.
    pub fn signal(&mut self, value: u64) -> Result<()> {
        let timeline = Object::new("timeline", "");
        let Some(reached) = self.at.filter(|_| !self.is_signalled_elsewhere) else {
            return Err(Error::unsupported(
                timeline,
                format!("be signalled to {value} before it is a timeline"),
                "its value is not known: something outside this engine signals it",
            ));
        };
        let largest = reached.saturating_add(self.max_value_difference);
        let largest = largest.min(u64::MAX - 1);
        if value <= reached {
            return Err(Error::SignalNotAboveReached {
                timeline,
                asked: value,
                reached,
            });
        }
        if value > largest {
            return Err(Error::value_out_of_range(timeline, value, reached, largest));
        }
        self.port.signal(value, ByEngine::new(&*self.port))?;
        self.at = Some(value);
        Ok(())
    }
}

impl fmt::Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Attachment({:?})", self.device)
    }
}

/// The port of a timeline on one device.
pub(crate) struct DevicePort {
    device: DeviceId,
    port: Box<dyn Port>,
    watch: Option<Arc<dyn Watch>>,
    is_signalled_elsewhere: bool,
    signalling_process: Option<u32>,
    nature: Nature,
}

impl DevicePort {
    #[inline]
    pub(crate) const fn device(&self) -> DeviceId {
        self.device
    }

    #[inline]
    pub(crate) fn port(&self) -> &dyn Port {
        &*self.port
    }

    /// The watch of the port, or `None` if it has none.
    #[inline]
    pub(crate) const fn watch(&self) -> Option<&Arc<dyn Watch>> {
        self.watch.as_ref()
    }

    /// True if the counter may also be signalled outside this engine.
    #[inline]
    pub(crate) const fn is_signalled_elsewhere(&self) -> bool {
        self.is_signalled_elsewhere
    }

    /// The process that signals the counter, if that is known and not this one.
    pub(crate) const fn signalling_process(&self) -> Option<u32> {
        self.signalling_process
    }

    pub(crate) const fn nature(&self) -> Nature {
        self.nature
    }
}

/// The ports of one timeline, home first.
pub type Attachments = SmallVec<[Attachment; 2]>;
