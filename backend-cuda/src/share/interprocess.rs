//! CUDA's own events for several processes: made and recorded by one, waited for by others.
#![allow(
    unsafe_code,
    reason = "opens what only another process can keep in being"
)]

use std::fmt;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::backend::NativeMark;
use syncline_core::{Error, Fence, KeptPoint, Object, Origin, Process, Result};

use crate::device::event::{Events, Mark};
use crate::device::limits::EVENTS_LIMIT;
use crate::device::open::Device;
use crate::driver::table::{Code, EventHandle};
use crate::queue::recorder::Recorder;
use crate::share::own_event::{OwnEvent, SharedWith};

/// What is asked where one is opened.
const IMPORT: &str = "import an event of another process";

/// What an event that several processes have is called where two devices cannot share it.
const WHAT: &str = "an interprocess event";

/// What another process needs to [open](Device::import_event) an [`InterprocessEvent`]: `CUipcEventHandle`, with the GPU and the process that it
/// comes from.
///
/// It owns nothing and keeps nothing alive: it is the event's name, good for as long as the event is there.
///
/// Bare bytes come in without a word of who has made them only through `unsafe`:
///
/// ```compile_fail,E0133
/// # use syncline_core::{Origin, Process};
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
    /// Takes a handle in, as another process has sent it.
    ///
    /// # Safety
    /// `process` has got `bytes` from `cuIpcGetEventHandle`, for an event of the GPU that `origin` names. Drivers are not known to check it.
    #[must_use]
    pub const unsafe fn from_bytes(bytes: [u8; 64], origin: Origin, process: Process) -> Self {
        Self {
            bytes: EventHandle(bytes),
            origin,
            process,
        }
    }

    /// What the driver knows it by, to be sent to another process.
    #[must_use]
    pub const fn bytes(&self) -> &[u8; 64] {
        &self.bytes.0
    }

    /// The GPU that the event is of.
    #[must_use]
    pub const fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The process that has made the event, and records it.
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

/// An event of CUDA's that other processes can wait for. Cheap to clone; destroyed with its last clone, its [fence](InterprocessEvent::fence), and what records
/// it or waits for it here.
///
/// This is for programs that already pass such events on, or whose other side does. Where both sides are Syncline's a timeline is safe, and does more:
/// see the crate `syncline`, `Plan::make_across`.
///
/// # What the driver does not tell
/// An event knows of a record once that is with the driver. Until then it is what it was before: one that was never recorded is complete (F1), and who waits
/// for it in another process goes on. Nor does the event say that it was recorded again. So the other side has to be told, by
/// whatever both have, *after* the record is with the driver: [`position`](Self::position) can be waited for until it is pending.
///
/// Nor may the event go, or this process end, while another one has it: what happens then is undefined, which is why
/// [`Device::import_event`] is `unsafe`.
///
/// See the CUDA driver API, *Event Management* (`cuEventCreate` with `CU_EVENT_INTERPROCESS`) and *Memory Management* (`cuIpcGetEventHandle`); CUDA
/// Programming Guide, *Interprocess Communication*.
#[derive(Clone)]
pub struct InterprocessEvent(Arc<Inner>);

struct Inner {
    object: Object,
    handle: EventIpcHandle,
    own: Arc<OwnEvent>,
    fence: Fence,
}

impl Device {
    /// An event that other processes can wait for, never recorded yet. It tells no time: CUDA allows none for such events.
    ///
    /// For set-up: makes a driver object. Does not block.
    ///
    /// See `cuEventCreate`, `cuIpcGetEventHandle`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason where the driver, the device or the platform has no such events; another driver error.
    pub fn interprocess_event(&self, label: &str) -> Result<InterprocessEvent> {
        const ASKED: &str = "make an event for other processes";
        self.require_interprocess_events(ASKED)?;
        let object = Object::new("interprocess event", label);
        let context = self.context();
        let event = Events::interprocess(context).map_err(|error| self.refused(ASKED, error))?;
        let mut bytes = EventHandle([0; 64]);
        let given = {
            let _bound = context.bind_outside_capture()?;
            // SAFETY: the event is alive, and made for this; writes 64 bytes.
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

    /// A fence for an event of another process. It is waited for like any other fence, by queues of any device and by the host: each wait is for
    /// the event as it was recorded last *when that wait is made*, so later records do not move it (F2), and a query asks the event as it is then. An event that its process has
    /// not recorded yet is complete (F1). Recording the fence is refused with [`Error::ForeignFence`] (F8), and it has no place in a graph capture.
    ///
    /// For set-up: makes a driver object, and the first wait a stream. Neither it nor a wait blocks; whatever waits for a record that never completes, because the other process's
    /// stream stands still, does so for ever. A host's wait has a timeout.
    ///
    /// See `cuIpcOpenEventHandle`.
    ///
    /// # Errors
    /// Before any driver is asked: [`Error::Unsupported`] if this process has made the event itself (its
    /// [fence](InterprocessEvent::fence) is the one to wait for here), or the device has no such events; [`Error::CannotShare`] for an event of another GPU. Then
    /// a driver error.
    ///
    /// # Safety
    /// Until the fence, every clone of it and everything that was made to wait for it is gone or through:
    ///
    /// * the process that has made the event keeps it, that is its [`InterprocessEvent`], and
    /// * it does not die.
    ///
    /// Either is undefined behaviour in the driver, and nothing here can see to it: the driver neither counts who has the event open nor tells that its
    /// maker has gone. A process can be killed at any time, so this is for processes that live and die together. Timelines
    /// survive the other side: they fail, with the cause.
    pub unsafe fn import_event(&self, handle: &EventIpcHandle, label: &str) -> Result<Fence> {
        self.require_importable(handle)?;
        // SAFETY: another process's event, which lives as long as it is in use here, as the caller promises.
        let event = unsafe { Events::opened(self.context(), handle.bytes) }
            .map_err(|error| self.refused(IMPORT, error))?;
        Ok(self.foreign_fence(event, label))
    }

    fn require_importable(&self, handle: &EventIpcHandle) -> Result<()> {
        if handle.process.is_this() {
            return Err(Error::Unsupported {
                object: self.object().clone(),
                asked: format!("import {WHAT} of {}", handle.process),
                reason: "this process has made it, and drivers open only those of others; wait for its own fence".into(),
            });
        }
        let own = Origin::of(self.info());
        if own.uuid.is_none() || own.uuid != handle.origin.uuid {
            return Err(Error::CannotShare {
                left: handle.origin.to_string(),
                right: own.to_string(),
                what: WHAT,
                reason: "such a handle works only on the GPU whose event it is".into(),
            });
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
            Err(Error::Unsupported {
                object: self.object().clone(),
                asked: asked.into(),
                reason: reason.clone(),
            })
        })
    }

    /// What a driver's error comes to: some platforms do not have these calls, or have them in name alone.
    fn refused(&self, asked: &str, error: Error) -> Error {
        match error {
            Error::Native {
                call, code, name, ..
            } if code == i64::from(Code::NOT_SUPPORTED) => Error::Unsupported {
                object: self.object().clone(),
                asked: asked.into(),
                reason: format!("the platform has none: {call} returned {name} ({code})"),
            },
            error => error,
        }
    }
}

impl InterprocessEvent {
    /// Its name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The device whose queues record it.
    #[must_use]
    pub fn device(&self) -> &Device {
        self.0.own.device()
    }

    /// What another process opens it by.
    #[must_use]
    pub fn handle(&self) -> &EventIpcHandle {
        &self.0.handle
    }

    /// The event as a fence of this process. A queue of the device [records](syncline_core::backend::Queue::record) it, in order with everything else that is submitted there:
    /// the event hears of it when that record goes to the driver, which is once all that stands before it on the queue is pending (Q2). In this process
    /// the fence stands for the record from the call on, held or not, as every fence does, and can be recorded again at any time.
    ///
    /// While a stream is captured into a graph it is neither recorded nor waited for there: [`Error::Capturing`].
    #[must_use]
    pub fn fence(&self) -> &Fence {
        &self.0.fence
    }

    /// The queue's position behind the last record of the [fence](Self::fence); empty, and so reached, before the first. Once it is *pending* the record is with the
    /// driver, and a wait in another process is for it, or for a later one: see [`Point::wait_pending`](syncline_core::Point::wait_pending). What is recorded
    /// by [`Recorder::record_event`] is not in it; its submission has a position of its own.
    pub fn position(&self) -> KeptPoint {
        self.0.own.last_record()
    }

    /// The raw event, to be waited for by the application's own calls while this lives. What those record the fence knows of, as
    /// the latest that the driver has.
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
    /// Records an interprocess event behind the work recorded so far, so that one submission does the work, tells other processes and signals
    /// timelines of this one. The event's [fence](InterprocessEvent::fence) stands for it once the submission is with the driver, and not before.
    ///
    /// See `cuEventRecord`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]; [`Error::Capturing`] if the work has left a capture open; a driver error. The event keeps its record then.
    pub fn record_event(&mut self, event: &InterprocessEvent) -> Result<()> {
        let own = &event.0.own;
        if own.device().id() != self.device().id() {
            return Err(Error::WrongDevice {
                object: event.object().clone(),
                owner: own.device().object().clone(),
                asked: self.queue_object().clone(),
            });
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
