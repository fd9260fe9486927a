//! Backends outside this project that take part in the command.

use std::sync::Arc;

use syncline::backend::{Candidate, Device as _};
use syncline::{Error, Result};
use syncline_conformance::Subject;
use syncline_conformance::expected::Expected;
use syncline_demo::{Producer, Size};

use crate::Checked;

/// A backend outside this project, for [`Command::with`](crate::Command::with).
///
/// All methods are called on the main thread. The command starts its own program again for the
/// conformance suite and for `--software`, and each such process asks for the devices itself.
pub trait ForeignBackend: 'static {
    /// A device before it is opened.
    type Candidate: Candidate<Device = <Self::Subject as Subject>::Device>;

    /// An opened device with what the suite's work needs.
    type Subject: Subject;

    /// Lists the devices. The command puts them behind its own in the inventory. Should not block.
    ///
    /// Their [`Info::backend`](syncline::info::Info::backend) is
    /// [`BackendKind::Other`](syncline::info::BackendKind::Other), with one name for all of them.
    /// A device with the name of a backend of this project is left out. So is a device that is not
    /// marked as software if `--software` is given.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the reason if the backend cannot be used, such as a driver that
    /// is not installed. The command lists it and uses the other devices.
    fn devices(&self) -> Result<Vec<Self::Candidate>>;

    /// Equips a device that was opened for the suite. It may block.
    ///
    /// `syncline conformance` runs the cases that any backend can run, on each device alone, on
    /// every pair of devices of the backend, and on every pair with a device of this project in
    /// both directions.
    ///
    /// # Errors
    /// A driver error. It fails every case of the subject.
    fn subject(&self, device: <Self::Subject as Subject>::Device) -> Result<Self::Subject>;

    /// Lists failures of the suite that are known and not the backend's. By default none.
    ///
    /// `subject` is a name that `syncline conformance --list` prints.
    fn expected(&self, subject: &str) -> Vec<Expected> {
        let _ = subject;
        Vec::new()
    }

    /// Returns what a validation layer of the backend has complained about so far. By default
    /// nothing.
    ///
    /// The list only grows. A new complaint fails the case that ran meanwhile.
    fn complaints(&self) -> Vec<String> {
        Vec::new()
    }

    /// Runs the backend's own checks of `syncline doctor`, in the order of repair. By default none.
    ///
    /// A check that depends on a check that has found something is left out. The checks may use the
    /// driver, and block for some seconds.
    fn checks(&self) -> Vec<Checked> {
        Vec::new()
    }

    /// Makes what simulates the waves of `syncline demo --producer` on `device`. It may block.
    ///
    /// `size` is that of the field in cells. The host copies each frame to the device that draws.
    ///
    /// # Errors
    /// By default [`Error::Unsupported`]. A driver error.
    fn producer(
        &self,
        device: &<Self::Subject as Subject>::Device,
        size: Size,
    ) -> Result<Arc<dyn Producer<<Self::Subject as Subject>::Device>>> {
        let _ = size;
        let reason = "its backend has no producer of the demo";
        let what = "simulate the frames of the demo";
        Err(Error::unsupported(device.object(), what, reason))
    }
}
