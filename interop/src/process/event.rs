//! CUDA's own events for several processes, handed over by endpoints.
#![allow(
    unsafe_code,
    reason = "takes in what only another process can keep in being"
)]

use std::time::Duration;

use syncline_core::{Error, Fence, Result};
use syncline_cuda::{Device, EventIpcHandle, InterprocessEvent};

use super::Endpoint;
use super::closing::PeerFd;
use super::handover::{OutgoingObject, hand_over};
use super::message::{Content, Offer};
use super::socket::Deadline;

impl Endpoint {
    /// Hands an event of CUDA's to the other process, which [receives](Endpoint::receive_event) it:
    /// both sides are CUDA, on one GPU. Where that is not given, or where a process may die,
    /// timelines are what to share ([`Plan::make_across`](crate::negotiate::Plan::make_across)):
    /// they are safe, and fail when the other side does.
    ///
    /// First this waits until the last record of the event's [fence](InterprocessEvent::fence) is
    /// with the driver, then for the other process to say that it has the event. So a wait that it
    /// makes then is for that record, or a later one. An event that was never recorded can be sent,
    /// and is complete (F1).
    ///
    /// # What is recorded later
    /// Of later records the other side hears nothing, and CUDA takes an event whose record is still
    /// held for what it was before: complete, mostly. So tell it of each one, after that is with
    /// the driver: wait until [`InterprocessEvent::position`] is *pending*
    /// ([`Point::wait_pending`](syncline_core::Point::wait_pending)), and send something then, a
    /// point of a timeline that both have for example ([`send_point`](Endpoint::send_point)). What
    /// is recorded inside a submission
    /// ([`Recorder::record_event`](syncline_cuda::Recorder::record_event)) is with the driver once
    /// the submission's end is pending; this call does not wait for that.
    ///
    /// # How long the event is to live
    /// For as long as the other process has it, waits of its queues included: neither may the
    /// event's last clone be dropped here, nor this process end. The other side has vouched for
    /// that, by an `unsafe` call; it is this process that has to keep it.
    ///
    /// # Blocking
    /// Up to `timeout`, for all of it.
    ///
    /// # Errors
    /// Nothing is sent with the first two: [`Error::TimedOut`] if the last record is held for
    /// longer; that record's failure. [`Error::PeerLost`]; [`Error::PeerSilent`] if the other
    /// process does not receive it in time, which withdraws it; [`Error::Import`] if it refuses it,
    /// with what it says.
    pub fn send_event(
        &self,
        event: &InterprocessEvent,
        label: &str,
        timeout: Duration,
    ) -> Result<()> {
        let deadline = Deadline::after(timeout);
        event.position().point().wait_pending(timeout)?;
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

    /// A fence for the event that the other process [sends](Endpoint::send_event) under this label,
    /// on `device`, which is CUDA's view of the same GPU. See [`Device::import_event`] for what
    /// waits for it wait for, and what it refuses. The other side is told whether it was taken.
    ///
    /// Objects of another kind or label stay, for who asks for those: several threads may receive
    /// at once, each what it asks for.
    ///
    /// # Blocking
    /// Up to `timeout`, for all of it; a second longer where the other process offers it and then
    /// says nothing more. The driver's call does not block.
    ///
    /// # Errors
    /// The other side is told of all but the last two: [`Error::Message`] if it is not whole;
    /// [`Error::Import`] if it is withdrawn, or the other process is not one whose [handles are
    /// taken](Endpoint::trusts_handles); what [`Device::import_event`] refuses, another GPU's event
    /// and one of this very process among it. [`Error::PeerLost`]; [`Error::PeerSilent`], with the
    /// objects that are there instead.
    ///
    /// # Safety
    /// As for [`Device::import_event`]: until the fence and everything that was made to wait for it
    /// is gone or through, the other process keeps the event ([`InterprocessEvent`]), and does not
    /// die. Otherwise the behaviour is undefined, in the driver. That the endpoint notices the
    /// death of its peer does not help: the driver has the wait by then.
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

    /// As [`Endpoint::receive_event`], opened by `import`.
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
            return Err(Error::Message {
                endpoint: self.object().clone(),
                expected: format!("event \"{}\" of a GPU, without descriptors", offer.label),
                found: format!("one of {}, with {}", origin_or_none(offer), fds.len()),
            });
        };
        // SAFETY: the process at the other end, which the kernel names, says so. The application
        // has said that it is trusted: otherwise nothing with an event is received.
        Ok(unsafe { EventIpcHandle::from_bytes(bytes, origin.clone(), *self.peer()) })
    }
}

fn origin_or_none(offer: &Offer) -> String {
    let origin = offer.origin.as_ref();
    origin.map_or_else(|| "no device".into(), ToString::to_string)
}
