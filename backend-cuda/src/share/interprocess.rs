//! CUDA's interprocess events: one process creates and records an event, others wait for it.
#![allow(
    unsafe_code,
    reason = "opens what only another process can keep in being"
)]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::backend::NativeMark;
use syncline_core::{
    Error, Fence, KeptPoint, Result, error::Object, error::Process, handle::Origin,
};

use crate::device::event::{Events, Mark};
use crate::device::limits::EVENTS_LIMIT;
use crate::device::open::Device;
use crate::driver::table::{Code, EventHandle};
use crate::queue::recorder::Recorder;
use crate::share::own_event::{OwnEvent, SharedWith};

/// The action that errors of an import name.
const IMPORT: &str = "import an event of another process";

/// What errors call such an event if two devices cannot share it.
const WHAT: &str = "an interprocess event";

/// The handle by which another process [opens](Device::import_event) an [`InterprocessEvent`].
///
/// It contains `CUipcEventHandle`, the GPU and the exporting process. It owns nothing and keeps
/// nothing alive. It is valid as long as the event exists.
///
/// A handle can be made of plain bytes only with `unsafe`:
///
/// ```compile_fail,E0133
/// # use syncline_core::{handle::Origin, error::Process};
/// # use syncline_cuda::EventIpcHandle;
/// fn adopt(bytes: [u8; 64], origin: Origin, process: Process) -> EventIpcHandle {
///     EventIpcHandle::from_bytes(bytes, origin, process)
/// }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct EventIpcHandle {
    bytes: EventHandle,
    origin: Origin,
    process: Process,
}

impl EventIpcHandle {
    /// Makes a handle of bytes that another process has sent.
    ///
    /// # Safety
    /// `process` has obtained `bytes` from `cuIpcGetEventHandle`, for an event of the GPU that
    /// `origin` names. Drivers are not known to check this.
    #[must_use]
    pub const unsafe fn from_bytes(bytes: [u8; 64], origin: Origin, process: Process) -> Self {
        Self {
            bytes: EventHandle(bytes),
            origin,
            process,
        }
    }

    /// The bytes to send to another process.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 64] {
        &self.bytes.0
    }

    /// The GPU of the event.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The process that has created the event and records it.
    #[must_use]
    pub const fn process(&self) -> Process {
        self.process
    }
}

impl fmt::Debug for EventIpcHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventIpcHandle({} of {})", self.origin, self.process)
    }
}

/// A CUDA event that other processes can wait for. Cheap to clone.
///
/// The event is destroyed after the last clone and the [fence](InterprocessEvent::fence) are gone,
/// and all work of this process that records the event or waits for it has finished.
///
/// This type is for programs that already share such events, or whose peer does. If both sides use
/// Syncline, a timeline is safe and does more: see `Plan::make_across` in the crate `syncline`.
///
/// # What the driver does not tell
/// An event has a record once the record is with the driver. Until then it has its previous record,
/// and an event that was never recorded is complete (F1). So another process that waits too early
/// does not wait for the new record. Another process cannot detect a new record either. Therefore
/// notify the peer by other means *after* the record is with the driver: wait until
/// [`position`](Self::position) is pending.
///
/// If the event is destroyed or this process ends while another process has the event open, the
/// behaviour of the driver is undefined. Therefore [`Device::import_event`] is `unsafe`. An event
/// that `Endpoint::send_event` has sent is destroyed only after the receiving process has ended.
///
/// See the CUDA driver API, *Event Management* (`cuEventCreate` with `CU_EVENT_INTERPROCESS`) and
/// *Memory Management* (`cuIpcGetEventHandle`), and the CUDA Programming Guide, *Interprocess
/// Communication*.
#[derive(Clone)]
pub struct InterprocessEvent(Arc<Inner>);

struct Inner {
    object: Object,
    handle: EventIpcHandle,
    own: Arc<OwnEvent>,
    fence: Fence,
}

impl Device {
    /// Creates an event that other processes can wait for.
    ///
    /// It has no timing, because CUDA does not allow timing for such events. It is not recorded
    /// yet. Creates a driver object, so call it at set-up. Does not block.
    ///
    /// See `cuEventCreate` and `cuIpcGetEventHandle`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason if the driver, the device or the platform has no such
    /// events, or another driver error.
    pub fn interprocess_event(&self, label: &str) -> Result<InterprocessEvent> {
        const ASKED: &str = "make an event for other processes";
        self.require_interprocess_events(ASKED)?;
        let object = Object::new("interprocess event", label);
        let context = self.context();
        let event = Events::interprocess(context).map_err(|error| self.refused(ASKED, error))?;
        let mut bytes = EventHandle([0; 64]);
        let given = {
            let _bound = context.bind_outside_capture()?;
            // SAFETY: the event is alive and was created with `CU_EVENT_INTERPROCESS`. Writes 64
            // bytes.
            unsafe {
                context
                    .driver()
                    .ipc_get_event_handle(&raw mut bytes, event.raw())
            }
        };
        let none = Code::not_supported("cuIpcGetEventHandle");
        given
            .unwrap_or(Err(none))
            .map_err(|code| self.refused(ASKED, context.error_on(&object, code)))?;
        let own = Arc::new(OwnEvent::new(self, event, SharedWith::Importers));
        let fence = Fence::native(self.id(), self.object(), label, own.clone());
        Ok(InterprocessEvent(Arc::new(Inner {
            object,
            handle: EventIpcHandle {
                bytes,
                origin: Origin::of(self.info()),
                process: Process::this(),
            },
            own,
            fence,
        })))
    }

    /// Opens an event of another process as a fence.
    ///
    /// Queues of any device and the host wait for it like for any other fence. Each wait is for the
    /// latest record *at the time of the wait*, and later records do not affect it (F2). A query
    /// asks for the latest record too. An event that its process has not recorded yet is complete
    /// (F1). Recording the fence fails with [`Error::ForeignFence`] (F8), and the fence cannot be
    /// used in a graph capture.
    ///
    /// Creates a driver object, and the first wait creates a stream, so call it at set-up. Neither
    /// this call nor a wait of a queue blocks. If the other process's stream never executes a
    /// record, waits for it never end. Waits of the host have a timeout.
    ///
    /// See `cuIpcOpenEventHandle`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if this process has created the event, or if the device has no such
    /// events. In this process use the event's [fence](InterprocessEvent::fence) instead.
    /// [`Error::CannotShare`] for an event of another GPU. All are checked before any driver call.
    /// A driver error.
    ///
    /// # Safety
    /// Until the fence, all its clones and all work that waits for it are gone or finished:
    ///
    /// * the process that has created the event keeps its [`InterprocessEvent`], and
    /// * that process does not end.
    ///
    /// Otherwise the behaviour of the driver is undefined. Nothing here can ensure this: the driver
    /// neither counts the processes that have the event open nor reports that the creating process
    /// has ended. A process can be killed at any time, so use this only for processes that live and
    /// end together. Timelines survive the end of the peer: they fail, with the cause.
    pub unsafe fn import_event(&self, handle: &EventIpcHandle, label: &str) -> Result<Fence> {
        self.require_importable(handle)?;
        // SAFETY: an event of another process, which the caller guarantees to exist as long as it
        // is used here.
        let event = unsafe { Events::opened(self.context(), handle.bytes) }
            .map_err(|error| self.refused(IMPORT, error))?;
        Ok(self.foreign_fence(event, label))
    }

    fn require_importable(&self, handle: &EventIpcHandle) -> Result<()> {
        if handle.process.is_this() {
            return Err(Error::unsupported(
                self.object(),
                format!("import {WHAT} of {}", handle.process),
                "this process has made it, and drivers open only those of others; wait for its own fence",
            ));
        }
        let own = Origin::of(self.info());
        if own.uuid.is_none() || own.uuid != handle.origin.uuid {
            return Err(Error::cannot_share(
                handle.origin.to_string(),
                own.to_string(),
                WHAT,
                "such a handle works only on the GPU whose event it is",
                None,
            ));
        }
        self.require_interprocess_events(IMPORT)
    }

    fn foreign_fence(&self, event: Mark, label: &str) -> Fence {
        let own: Arc<dyn NativeMark> = Arc::new(OwnEvent::new(self, event, SharedWith::Exporter));
        Fence::foreign_native(self.id(), self.object(), label, own)
    }

    fn require_interprocess_events(&self, asked: &str) -> Result<()> {
        let limits = &self.info().capabilities.limits;
        let limit = limits.iter().find(|(what, _)| *what == EVENTS_LIMIT);
        limit.map_or(Ok(()), |(_, reason)| {
            Err(Error::unsupported(self.object(), asked, reason.clone()))
        })
    }

    /// Converts an error of these calls: platforms without them return "not supported".
    fn refused(&self, asked: &str, error: Error) -> Error {
        match error {
            Error::Native {
                call, code, name, ..
            } if code == i64::from(Code::NOT_SUPPORTED) => Error::unsupported(
                self.object(),
                asked,
                format!("the platform has none: {call} returned {name} ({code})"),
            ),
            error => error,
        }
    }
}

impl InterprocessEvent {
    /// The name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The device whose queues record the event.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.0.own.device()
    }

    /// The handle by which another process opens the event.
    #[must_use]
    pub fn handle(&self) -> &EventIpcHandle {
        &self.0.handle
    }

    /// The event as a fence of this process.
    ///
    /// Queues of the device [record](syncline_core::backend::Queue::record) it, in order with their
    /// other submissions. The record goes to the driver, and into the event, once all earlier
    /// submissions of the queue are pending (Q2). In this process the fence stands for the record
    /// from the call on, even if the record is held. It can be recorded again at any time.
    ///
    /// In a stream capture it can neither be recorded nor waited for: [`Error::Capturing`].
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.0.fence
    }

    /// The queue position behind the last record of the [fence](Self::fence).
    ///
    /// It is empty, and so reached, before the first record. Once it is *pending*, the record is
    /// with the driver, and a wait in another process is for this record or a later one. See
    /// [`Point::wait_pending`](syncline_core::Point::wait_pending). Records by
    /// [`Recorder::record_event`] do not change it, because their submissions have their own
    /// positions.
    pub fn position(&self) -> KeptPoint {
        self.0.own.last_record()
    }

    /// The driver's event, to keep it after this object.
    ///
    /// It keeps the context, but not the device. If the application has adopted the context without
    /// an owner, the event is never destroyed, because the context may be gone by then.
    #[doc(hidden)]
    #[must_use]
    pub fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.own.event().keep()
    }

    /// The raw event, for calls of the application while this object lives.
    ///
    /// The fence treats a record by such a call as the latest record.
    #[must_use]
    pub fn raw(&self) -> sys::CUevent {
        self.0.own.event().raw()
    }
}

impl fmt::Debug for InterprocessEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.object, f)
    }
}

impl Recorder<'_> {
    /// Records an interprocess event after the work recorded so far.
    ///
    /// So one submission can do the work, record the event and signal timelines. The event's
    /// [fence](InterprocessEvent::fence) stands for this record once the submission is with the
    /// driver, and not before.
    ///
    /// See `cuEventRecord`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], [`Error::Capturing`] if the work has left a capture open, or a
    /// driver error. The event keeps its previous record then.
    pub fn record_event(&mut self, event: &InterprocessEvent) -> Result<()> {
        let own = &event.0.own;
        if own.device().id() != self.device().id() {
            return Err(Error::wrong_device(
                event.object(),
                own.device().object(),
                self.queue_object(),
            ));
        }
        let (stream, _bound) = self.bound_stream()?;
        stream.refuse_capture("record an event for other processes")?;
        stream.record(own.event())?;
        own.note_recorded();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
