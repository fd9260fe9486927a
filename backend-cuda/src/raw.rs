//! Adoption of what an application already has, and raw handles out.
#![allow(unsafe_code, reason = "takes raw handles")]

use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, sys};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Claim, Error, Object, Point, Result, Timeline};

use crate::context::{Context, Owner};
use crate::device::Device;
use crate::driver::Driver;
use crate::event::Mark;
use crate::port::EventPort;
use crate::queue::Queue;
use crate::stream::{Stream, foreign};

impl Device {
    /// A device over cudarc's context, which is kept.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; a driver error.
    pub fn adopt(context: &Arc<CudaContext>) -> Result<Self> {
        // SAFETY: cudarc's context lives as long as its handle, which is kept.
        unsafe { Self::adopt_raw(context.cu_ctx(), context.cu_device(), Some(context.clone())) }
    }

    /// A device over a raw context of `device`. `owner` is kept as long as the context is used.
    ///
    /// # Errors
    /// As [`Device::adopt`].
    ///
    /// # Safety
    /// `context` is a live context of `device`, and stays so while `owner` is kept; without an owner,
    /// until the device and everything made from it are gone.
    pub unsafe fn adopt_raw(
        context: sys::CUcontext,
        device: sys::CUdevice,
        owner: Owner,
    ) -> Result<Self> {
        let driver = Driver::load()?;
        let unnamed = Object::new("device", "cuda, adopted");
        let info = driver
            .info(device)
            .map_err(|code| driver.error(&unnamed, code))?;
        let object = Object::new("device", &format!("cuda {}, adopted", info.name));
        // SAFETY: the caller's promise.
        let context = unsafe { Context::adopted(&driver, context, &object, owner) };
        Self::new(context, object, info)
    }

    /// The raw context. It lives as long as the device.
    #[must_use]
    pub fn raw_context(&self) -> sys::CUcontext {
        self.context().raw()
    }

    /// A queue over cudarc's stream, which is kept. The legacy default stream keeps its barriers.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a stream of another context, [`Error::Unsupported`] for the per-thread
    /// default stream; a driver error.
    pub fn adopt_stream(&self, stream: &Arc<CudaStream>, label: &str) -> Result<Queue> {
        let owner = stream.context().cu_ctx();
        if owner != self.raw_context() {
            let object = Object::new("stream", label);
            return Err(foreign(object, owner, self.object()));
        }
        // SAFETY: cudarc's stream lives as long as its handle, which is kept.
        unsafe { self.adopt_raw_stream(stream.cu_stream(), Some(stream.clone()), label) }
    }

    /// A queue over a raw stream. `owner` is kept as long as work is in flight. Null, or
    /// `CU_STREAM_LEGACY`, is the legacy default stream, which keeps its barriers.
    ///
    /// # Errors
    /// As [`Device::adopt_stream`].
    ///
    /// # Safety
    /// `stream` is a live stream, and stays so while `owner` is kept; without an owner, until every
    /// queue made from it is gone and its work has finished.
    pub unsafe fn adopt_raw_stream(
        &self,
        stream: sys::CUstream,
        owner: Owner,
        label: &str,
    ) -> Result<Queue> {
        let address = Stream::name_legacy(stream).addr();
        let shared = self.shared_stream(address, || {
            // SAFETY: the caller's promise.
            unsafe { Stream::adopted(self.context(), stream, label, self.object()) }
        })?;
        Queue::new(self.clone(), shared, owner, label)
    }

    /// The raw event behind a pending or reached `point` of a timeline with its home on this device, for
    /// a stream that the application drives itself: `cuStreamWaitEvent` waits for the point. A point that
    /// is reached already has no event any more.
    ///
    /// # Errors
    /// [`Error::NotPending`] if the point's submission is still held (CUDA would take its event for complete);
    /// [`Error::Unsupported`] if this device has no event for it; the timeline's failure.
    pub fn event(&self, point: Point<'_>) -> Result<Option<EventGuard>> {
        point.require_pending()?;
        if point.is_reached()? {
            return Ok(None);
        }
        let port = point
            .port::<EventPort>(self.id())
            .ok_or_else(|| self.no_events(format!("give an event for {point:?}")))?;
        let mark = port.awaited(point.value(), None, self.object())?;
        Ok(mark.map(EventGuard))
    }

    /// Signals `claim` of `timeline` behind what the application has put into `stream` itself, and
    /// tells the engine.
    ///
    /// # Errors
    /// [`Error::NotPending`] if the claim's predecessor is still held (wait for
    /// [`Claim::wait_ready`] first); [`Error::Unsupported`] if the timeline has no events on this device;
    /// [`Error::Capturing`] if the stream is being captured; [`Error::WrongDevice`]; a driver error. The claim stays open then. Once it
    /// has succeeded further calls do nothing.
    ///
    /// # Safety
    /// `claim` is one of `timeline`, and `stream` is a live stream, the legacy default stream included.
    pub unsafe fn submit_claimed(
        &self,
        timeline: &Timeline,
        claim: &mut Claim,
        stream: sys::CUstream,
    ) -> Result<()> {
        let port = timeline
            .port::<EventPort>(self.id())
            .ok_or_else(|| self.no_events(format!("signal {}", timeline.object())))?;
        if timeline.at(claim.value()).is_pending()? {
            return Ok(());
        }
        let before = timeline.at(claim.predecessor());
        before.require_pending()?;
        let _bound = self.context().bind()?;
        let address = Stream::name_legacy(stream).addr();
        let stream = self.shared_stream(address, || {
            // SAFETY: the caller's promise.
            unsafe { Stream::adopted(self.context(), stream, "the application's", self.object()) }
        })?;
        stream.refuse_capture("signal a claimed value")?;
        if let Some(mark) =
            port.awaited(before.value(), Some(stream.domain()), timeline.object())?
        {
            stream.wait(&mark)?;
        }
        let mark = self.plain_events().record(&stream)?;
        // The application's stream may be gone tomorrow: a later wait never skips this event.
        port.push(claim.value(), mark, None);
        claim.submitted()
    }

    fn no_events(&self, asked: String) -> Error {
        Error::Unsupported {
            object: self.object().clone(),
            asked,
            reason: "only timelines with their home on this device are made of its events".into(),
        }
    }
}

impl Queue {
    /// The raw stream. Raw work that is to come behind everything submitted here must not be put there
    /// while the guard tells of held submissions:
    /// [`Queue::settle`](syncline_core::backend::Queue::settle) drains them.
    #[must_use]
    pub fn stream(&self) -> StreamGuard<'_> {
        self.line().stream.lend();
        StreamGuard {
            raw: self.raw_stream(),
            held: self.held().count,
            _queue: PhantomData,
        }
    }
}

/// A queue's raw stream. The queue keeps it alive.
#[derive(Debug)]
pub struct StreamGuard<'q> {
    raw: sys::CUstream,
    held: usize,
    _queue: PhantomData<&'q Queue>,
}

impl StreamGuard<'_> {
    /// The stream.
    #[must_use]
    pub const fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// How many submissions were held on the host, and so not in the stream, when it was handed out.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }
}

/// A raw event. It stands for its point, and is not recorded again, as long as this lives.
pub struct EventGuard(Mark);

impl EventGuard {
    /// The event: to be waited for or queried, never to be recorded or destroyed.
    #[must_use]
    pub fn raw(&self) -> sys::CUevent {
        self.0.raw()
    }
}

impl std::fmt::Debug for EventGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EventGuard({:p})", self.raw())
    }
}
