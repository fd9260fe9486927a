//! CUDA's interprocess events, sent and received over endpoints.
#![allow(
    unsafe_code,
    reason = "imports events that only another process can keep alive"
)]

use std::time::Duration;

use syncline_core::{Error, Fence, Result};
use syncline_cuda::{Device, EventIpcHandle, InterprocessEvent};

use super::closing::PeerFd;
use super::endpoint::Endpoint;
use super::handover::{OutgoingObject, hand_over};
use super::message::{Content, Offer};
use super::poll::Deadline;

impl Endpoint {
    /// Sends an interprocess event of CUDA to the peer, which [receives](Endpoint::receive_event)
    /// it.
    ///
    /// Both sides use CUDA on the same GPU. In other cases, or if a process may die, share a
    /// timeline instead ([`Plan::make_across`](crate::negotiate::Plan::make_across)). Timelines are
    /// safe, and fail if the peer dies.
    ///
    /// First the call waits until the last record of the event's [fence](InterprocessEvent::fence)
    /// is pending. Then it waits until the peer says that it has the event. So later waits of the
    /// peer are for that record or a later one. An event that was never recorded can be sent, and
    /// is complete (F1).
    ///
    /// # Later records
    /// The peer does not learn of later records. While a record is held, CUDA takes the event for
    /// what it was before, usually complete. So notify the peer of each record once it is pending.
    /// Wait until [`InterprocessEvent::position`] is *pending*
    /// ([`Point::wait_pending`](syncline_core::Point::wait_pending)). Then send the peer a message,
    /// for example a point of a shared timeline ([`send_point`](Endpoint::send_point)). A record
    /// inside a submission ([`Recorder::record_event`](syncline_cuda::Recorder::record_event)) is
    /// pending once the submission's end is pending. This call does not wait for that.
    ///
    /// # Lifetime of the event
    /// The driver's event, with its context, lives until the peer process has ended (F8). So this
    /// process may drop the event, the device and the endpoint. If the system does not let the peer
    /// [be watched](Endpoint::watches_process), the event is never destroyed. To send many events,
    /// send one event and record it again.
    ///
    /// This process must not end while the peer has the event or a queue of the peer waits for it.
    /// The peer has vouched for that by an `unsafe` call, and this process must make it true.
    ///
    /// # Blocking
    /// Up to `timeout` in total.
    ///
    /// # Errors
    /// * [`Error::TimedOut`] if the last record is held for longer. Nothing is sent.
    /// * The failure of the last record. Nothing is sent.
    /// * [`Error::PeerLost`].
    /// * [`Error::PeerSilent`] if the peer does not receive the event in time. The offer is
    ///   withdrawn.
    /// * [`Error::Import`] if the peer refuses the event, with its reason.
    /// * [`Error::Native`] if the system has no thread or no descriptor for the peer's first event.
    ///   Nothing is sent.
    pub fn send_event(
        &self,
        event: &InterprocessEvent,
        label: &str,
        timeout: Duration,
    ) -> Result<()> {
        let deadline = Deadline::after(timeout);
        event.position().point().wait_pending(timeout)?;
        // Before it is sent, because a peer that does not answer may have opened it.
        self.connection().keep_for_peer(event.keep())?;
        self.send_event_handle(event.handle(), label, deadline)
    }

    pub(super) fn send_event_handle(
        &self,
        handle: &EventIpcHandle,
        label: &str,
        deadline: Deadline,
    ) -> Result<()> {
        let offer = Offer {
            number: self.next_number(),
            content: Content::CudaEvent,
            label: label.into(),
            initial: 0,
            reached: 0,
            handles: Vec::new(),
            origin: Some(handle.origin().clone()),
            extent: None,
            event: Some(*handle.bytes()),
        };
        let object = OutgoingObject {
            peer: self,
            offer,
            fds: Vec::new(),
        };
        hand_over(&[object], deadline)
    }

    /// A fence for the event that the peer [sends](Endpoint::send_event) with this label, on
    /// `device`.
    ///
    /// `device` is CUDA's device of the same GPU. [`Device::import_event`] states what a wait for
    /// the fence waits for, and what is refused. The peer is notified of the
    /// result.
    ///
    /// Objects of another kind or label stay for the calls that ask for them. Several threads may
    /// receive at the same time.
    ///
    /// # Blocking
    /// Up to `timeout` in total. One second longer if the peer offers the event and then stops
    /// responding. The driver call does not block.
    ///
    /// # Errors
    /// The peer gets all errors except the last two.
    /// * [`Error::Message`] if the offer is incomplete.
    /// * [`Error::Import`] if the offer is withdrawn, or if the peer's [handles are not
    ///   trusted](Endpoint::trusts_handles).
    /// * The errors of [`Device::import_event`], for example for an event of another GPU or of this
    ///   process.
    /// * [`Error::PeerLost`].
    /// * [`Error::PeerSilent`], with the objects that were offered instead.
    ///
    /// # Safety
    /// The peer process does not end until the fence is dropped and everything that waits for it
    /// has completed. A violation is undefined behaviour in the driver. The endpoint notices the
    /// death of its peer too late, because the driver has the wait by then. The other condition of
    /// [`Device::import_event`] holds: [`send_event`](Endpoint::send_event) keeps the event.
    pub unsafe fn receive_event(
        &self,
        device: &Device,
        label: &str,
        timeout: Duration,
    ) -> Result<Fence> {
        self.receive_event_with(label, Deadline::after(timeout), |handle| {
            // SAFETY: the caller's promise.
            unsafe { device.import_event(handle, label) }
        })
    }

    /// Same as [`Endpoint::receive_event`], with `import` to open the event.
    pub(super) fn receive_event_with<T>(
        &self,
        label: &str,
        deadline: Deadline,
        mut import: impl FnMut(&EventIpcHandle) -> Result<T>,
    ) -> Result<T> {
        self.receive_and_settle(Content::CudaEvent, label, deadline, |offer, fds| {
            let handle = self.check_event(&offer, &fds)?;
            import(&handle).map(Some)
        })
    }

    fn check_event(&self, offer: &Offer, fds: &[PeerFd]) -> Result<EventIpcHandle> {
        let (Some(bytes), Some(origin), []) = (offer.event, &offer.origin, fds) else {
            return Err(Error::message(
                self.object(),
                format!("event \"{}\" of a GPU, without descriptors", offer.label),
                format!("one of {}, with {}", origin_or_none(offer), fds.len()),
            ));
        };
        // SAFETY: the message states the kind, and the kernel names the sending process. The
        // application trusts that process. Otherwise no event is received.
        Ok(unsafe { EventIpcHandle::from_bytes(bytes, origin.clone(), *self.peer()) })
    }
}

fn origin_or_none(offer: &Offer) -> String {
    let origin = offer.origin.as_ref();
    origin.map_or_else(|| "no device".into(), ToString::to_string)
}
