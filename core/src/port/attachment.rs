//! A device's part in a timeline.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::error::{Error, Object, Result};
use crate::base::info::DeviceId;
use crate::port::{ByEngine, Port, Watch};

/// A device's part in a timeline, made by [`Device::port`](crate::backend::Device::port).
///
/// It says which device the port is of and at which value its counter stands. [`Timeline::new`](crate::Timeline::new) checks both, and nothing
/// takes the port out again. So a driver object stays with its device, and no counter is signalled backwards.
///
/// ```compile_fail,E0616
/// # use syncline_core::backend::Device as _;
/// # use syncline_core::host::Device;
/// # fn main() -> syncline_core::Result<()> {
/// let (left, right) = (Device::new(), Device::new());
/// let mut attachment = left.port(0)?;
/// attachment.device = right.id();
/// # Ok(()) }
/// ```
pub struct Attachment {
    pub(crate) device: DeviceId,
    /// The value of the counter, or `None` if its backend does not know it.
    pub(crate) at: Option<u64>,
    pub(crate) port: Box<dyn Port>,
    pub(crate) watch: Option<Arc<dyn Watch>>,
    pub(crate) max_value_difference: u64,
    pub(crate) is_signalled_elsewhere: bool,
    pub(crate) nature: Nature,
}

/// What the engine knows of a port that it has made itself. A backend cannot say it of its own ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nature {
    /// A counter of a driver, or whatever a backend's port stands for.
    Driver,
    /// Nothing but the value of the timeline in this process.
    Value,
    /// A counter in memory that other processes may have.
    Page,
}

impl Attachment {
    /// The part that `device` has by `port`, a fresh counter at `initial`.
    ///
    /// Nothing watches it, it has no limit on value differences, and only this engine signals it. The other methods
    /// change that.
    #[must_use]
    pub fn new(device: DeviceId, initial: u64, port: impl Port) -> Self {
        Self {
            at: Some(initial),
            ..Self::imported(device, port)
        }
    }

    /// The part that `device` has by `port`, of a counter that exists already at an unknown value, such as one behind a
    /// handle. It is read when the timeline is made, if the host can read it, so that nothing signals it backwards.
    #[must_use]
    pub fn imported(device: DeviceId, port: impl Port) -> Self {
        Self {
            device,
            at: None,
            port: Box::new(port),
            watch: None,
            max_value_difference: u64::MAX,
            is_signalled_elsewhere: false,
            nature: Nature::Driver,
        }
    }

    /// Says what the engine knows of the port.
    #[must_use]
    pub(crate) const fn of_nature(mut self, nature: Nature) -> Self {
        self.nature = nature;
        self
    }

    /// The value that the counter is known to stand at when its timeline is made. An error, or the all ones of a lost
    /// device, is found by the first query.
    pub(crate) fn shown(&self) -> Option<u64> {
        let read = || self.port.poll().ok().flatten();
        match self.at {
            None if self.port.is_readable() => read().filter(|&value| value != u64::MAX),
            at => at,
        }
    }

    /// Has `watch` wait for the port. Without, the port advances only by calls of this process's own threads.
    #[must_use]
    pub fn watched_by(mut self, watch: Arc<dyn Watch>) -> Self {
        self.watch = Some(watch);
        self
    }

    /// Lowers the limit on value differences to the device's. A larger number than before changes nothing.
    #[must_use]
    pub fn with_max_value_difference(mut self, largest: u64) -> Self {
        self.max_value_difference = self.max_value_difference.min(largest);
        self
    }

    /// Says whether something outside this engine may signal the counter: it is then read at every query.
    #[must_use]
    pub const fn signalled_elsewhere(mut self, may_be: bool) -> Self {
        self.is_signalled_elsewhere = may_be;
        self
    }

    /// What waits for the port, if something does.
    #[must_use]
    pub const fn watch(&self) -> Option<&Arc<dyn Watch>> {
        self.watch.as_ref()
    }

    /// The device's limit on value differences.
    #[must_use]
    pub const fn max_value_difference(&self) -> u64 {
        self.max_value_difference
    }

    /// The value that the counter shows, or `None` if the host cannot read it.
    ///
    /// # Errors
    /// The driver's.
    pub fn value(&self) -> Result<Option<u64>> {
        self.port.poll()
    }

    /// The port, if it is of type `P`.
    #[must_use]
    pub fn port<P: Port>(&self) -> Option<&P> {
        let port: &dyn Any = &*self.port;
        port.downcast_ref()
    }

    /// Signals the counter before a timeline has it: for tests of what a port shows.
    ///
    /// # Errors
    /// [`Error::SignalNotAboveReached`] for a value that is not above the counter's; [`Error::ValueOutOfRange`] for one beyond the
    /// device's limit, and for `u64::MAX`; [`Error::Unsupported`] if the counter's value is not known; the driver's.
    pub fn signal(&mut self, value: u64) -> Result<()> {
        let timeline = Object::new("timeline", "");
        let Some(reached) = self.at.filter(|_| !self.is_signalled_elsewhere) else {
            return Err(Error::Unsupported {
                object: timeline,
                asked: format!("be signalled to {value} before it is a timeline"),
                reason: "its value is not known: something outside this engine signals it".into(),
            });
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
            return Err(Error::ValueOutOfRange {
                timeline,
                asked: value,
                reached,
                largest,
            });
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

/// The ports of one timeline, home first.
pub type Attachments = SmallVec<[Attachment; 2]>;
