//! One end of a connection to another process.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use syncline_core::{Error, Object, Rejected, Result};

use super::Survivor;
use super::message::Offer;
use super::plan::Lines;
use crate::negotiate::Process;

/// One end of a connection to another process.
#[derive(Clone)]
pub struct Endpoint {
    object: Object,
}

impl Endpoint {
    /// Two connected sockets.
    ///
    /// # Errors
    /// [`Error::Native`].
    pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
        Err(todo())
    }

    /// Over a connected socket.
    ///
    /// # Errors
    /// With the descriptor.
    pub fn open(fd: OwnedFd, label: &str, timeout: Duration) -> Result<Self, Rejected<OwnedFd>> {
        let _ = (label, timeout);
        Err(Rejected {
            handle: fd,
            error: todo(),
        })
    }

    /// To a listener.
    ///
    /// # Errors
    /// Any.
    pub fn connect(path: impl AsRef<Path>, label: &str, timeout: Duration) -> Result<Self> {
        let _ = (path, label, timeout);
        Err(todo())
    }

    /// The other process.
    #[must_use]
    pub fn peer(&self) -> &Process {
        unimplemented!()
    }

    /// For errors.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Whether it is lost.
    ///
    /// # Errors
    /// [`Error::PeerLost`], [`Error::Message`].
    pub fn check(&self) -> Result<()> {
        Err(todo())
    }

    /// Whether opaque handles are taken from the other process.
    #[must_use]
    pub fn trusts_handles(&self) -> bool {
        false
    }

    /// Takes opaque handles from it, whoever it runs as.
    ///
    /// # Safety
    /// They are what it says.
    #[allow(
        unsafe_code,
        reason = "the kind of a foreign descriptor cannot be checked"
    )]
    pub unsafe fn trust_handles(&self) {}
}

/// For what carries plans out.
#[allow(dead_code, clippy::unused_self, reason = "not there yet")]
impl Endpoint {
    /// The next number for an object that this side offers.
    pub(crate) fn next_number(&self) -> u32 {
        0
    }

    /// Sends an object with its descriptors, one for each of its handles; they are duplicated on the way, and stay the caller's.
    pub(crate) fn send_object(
        &self,
        offer: &Offer,
        fds: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<()> {
        let _ = (offer, fds, timeout);
        Err(todo())
    }

    /// The next object that the other side offers, with as many descriptors as it has handles, none of them looked at. One with opaque handles from a
    /// process that is not trusted is refused here, and answered.
    pub(crate) fn receive_object(&self, timeout: Duration) -> Result<(Offer, Vec<OwnedFd>)> {
        let _ = timeout;
        Err(todo())
    }

    /// Tells the other side what became of its object.
    pub(crate) fn answer(
        &self,
        number: u32,
        taken: Result<(), &str>,
        timeout: Duration,
    ) -> Result<()> {
        let _ = (number, taken, timeout);
        Err(todo())
    }

    /// What became of an object that this side has offered: taken, or refused for this reason.
    pub(crate) fn await_answer(
        &self,
        number: u32,
        timeout: Duration,
    ) -> Result<Result<(), String>> {
        let _ = (number, timeout);
        Err(todo())
    }

    /// Sends a point. Allocates nothing.
    pub(crate) fn send_point_of(&self, number: u32, value: u64, timeout: Duration) -> Result<()> {
        let _ = (number, value, timeout);
        Err(todo())
    }

    /// The next point: an object's number and a value. Allocates nothing.
    pub(crate) fn receive_point_of(&self, timeout: Duration) -> Result<(u32, u64)> {
        let _ = timeout;
        Err(todo())
    }

    pub(crate) fn lines(&self) -> &Lines {
        unimplemented!()
    }

    /// Tells `survivor` when the other process is lost; at once, if it is.
    pub(crate) fn survive(&self, survivor: Arc<dyn Survivor>) {
        let _ = survivor;
    }

    /// Tells it no more.
    pub(crate) fn forget(&self, survivor: &Arc<dyn Survivor>) {
        let _ = survivor;
    }
}

fn todo() -> Error {
    Error::NothingToWaitFor
}
