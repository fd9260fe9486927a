//! Adoption of what an application already has, and raw handles out.
#![allow(unsafe_code, reason = "takes raw handles")]

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, sys};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Claim, Error, Fence, Object, Point, Result, Timeline};

use crate::device::context::{Context, Owner};
use crate::device::event::Mark;
use crate::device::open::Device;
use crate::device::stream::{Stream, foreign};
use crate::device::stream_lock::StreamLockGuard;
use crate::driver::table::{Driver, Raw};
use crate::queue::submission::Queue;
use crate::timeline::counter::CounterPort;
use crate::timeline::external::ExternalPort;
use crate::timeline::imported::{Group, Imported};
use crate::timeline::port::{EventPort, Marks, no_event};
use crate::timeline::ring::NO_STREAM;

impl Device {
    /// A device over cudarc's context, which is kept.
    ///
    /// # Errors
    /// [`Error::Unavailable`]; [`Error::Unsupported`] if cudarc, or anything else in the process, has loaded another CUDA
    /// driver than the one of [`Driver::load`]; a driver error.
    pub fn adopt(context: &Arc<CudaContext>) -> Result<Self> {
        // SAFETY: cudarc's context lives as long as its handle, which is kept.
        unsafe { Self::adopt_context(context.cu_ctx(), Some(context.clone())) }
    }

    /// A device over a raw context. The driver tells which device the context is of.
    ///
    /// `owner` is kept as long as the context is used. An exit of the process waits while it is dropped, for two
    /// seconds at most; once that has begun it is not dropped any more.
    ///
    /// # Errors
    /// Same errors as [`Device::adopt`], and [`Error::Unsupported`] for a null context.
    ///
    /// # Safety
    /// `context` is a live context, and stays so while `owner` is kept; without an owner, until the device and
    /// everything made from it are gone.
    pub unsafe fn adopt_context(context: sys::CUcontext, owner: Owner) -> Result<Self> {
        let driver = Driver::load()?;
        let unnamed = Object::new("device", "cuda, adopted");
        if context.is_null() {
            return Err(Error::Unsupported {
                object: unnamed,
                asked: "adopt a context".into(),
                reason: "it is null".into(),
            });
        }
        driver.require_alone(&unnamed, "adopt a context")?;
        // SAFETY: the caller's promise. Without the owner: it only lives for this call.
        let borrowed = unsafe { Context::adopted(&driver, context, &unnamed, None) };
        let info = driver
            .info(borrowed.device()?)
            .map_err(|code| driver.error(&unnamed, code))?;
        drop(borrowed);
        let object = Object::new("device", &format!("cuda {}, adopted", info.marked_name()));
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
    /// default stream, or while another CUDA driver than the device's is loaded; a driver error.
    ///
    /// # Safety
    /// A capture of the stream begins and ends under the [guard](Queue::stream) of a queue over it:
    /// cudarc's calls do not take that, and drivers (580.159) have crashed where a capture ended
    /// while another thread asked for it.
    pub unsafe fn adopt_stream(&self, stream: &Arc<CudaStream>, label: &str) -> Result<Queue> {
        let owner = stream.context().cu_ctx();
        if owner != self.raw_context() {
            let object = Object::new("stream", label);
            return Err(foreign(object, owner, self.object()));
        }
        // SAFETY: cudarc's stream lives as long as its handle, which is kept. The rest is the
        // caller's promise.
        unsafe { self.adopt_raw_stream(stream.cu_stream(), Some(stream.clone()), label) }
    }

    /// A queue over a raw stream. `owner` is kept as long as work is in flight. Null, or
    /// `CU_STREAM_LEGACY`, is the legacy default stream, which keeps its barriers.
    ///
    /// A stream may be adopted several times, also one that was made here, and on several devices
    /// of its context. Its [guard](Queue::stream) is the same for all of these queues.
    ///
    /// # Errors
    /// As [`Device::adopt_stream`].
    ///
    /// # Safety
    /// `stream` is a live stream, and stays so while `owner` is kept; without an owner, until every
    /// queue made from it is gone and its work has finished. A capture of it begins and ends under
    /// the guard of such a queue: drivers (580.159) have crashed where a capture ended while
    /// another thread asked for it. A fence that was recorded in a capture of it is not waited for
    /// once the stream is gone.
    pub unsafe fn adopt_raw_stream(
        &self,
        stream: sys::CUstream,
        owner: Owner,
        label: &str,
    ) -> Result<Queue> {
        let object = Object::new("stream", label);
        let driver = self.context().driver();
        driver.require_alone(&object, "become a queue")?;
        // SAFETY: the caller's promise.
        let stream = unsafe { Stream::adopted(self.context(), stream, label, self.object()) }?;
        Queue::new(self.clone(), stream, owner, label)
    }

    /// A fence for what `event` was recorded for last: an event of the application's own, or of another library. The
    /// fence is complete once that is, at once if the event was never recorded; later records do not move it (adopt
    /// the event again for those). It is waited for like any other fence; recording it is refused. Makes a
    /// stream for the purpose.
    ///
    /// The event is only lent, and only for the call: it may be recorded again or destroyed once this has returned.
    ///
    /// See `cuStreamWaitEvent`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] while another CUDA driver than the device's is loaded; a driver error.
    ///
    /// # Safety
    /// `event` is a live event of this process, and was not recorded in a stream capture last.
    pub unsafe fn adopt_event(&self, event: sys::CUevent, label: &str) -> Result<Fence> {
        let object = Object::new("fence", label);
        let driver = self.context().driver();
        driver.require_alone(&object, "become a fence")?;
        // Driver calls that never block. The stream finishes what is in it after its handle has gone.
        let stream = Stream::new(self.context(), label)?;
        // SAFETY: the caller's promise.
        unsafe { stream.wait_raw(&Raw(event)) }?;
        let occurred = self.timeline(label)?;
        let mut claim = occurred.claim(1, 0)?;
        self.signal_behind(&occurred, &mut claim, || Ok(stream))?;
        let point = occurred.at(1).keep();
        Ok(Fence::foreign(self.id(), self.object(), label, point))
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
        let mut marks = Marks::new();
        port.awaited(point.value(), NO_STREAM, &mut marks, || {
            self.no_events(format!("give an event for {point:?}"))
        })?;
        match marks.pop() {
            Some(mark) if !marks.is_empty() => {
                marks.push(mark);
                self.join(&marks).map(Some)
            }
            mark => Ok(mark.map(EventGuard)),
        }
    }

    /// One event for all of `marks`.
    fn join(&self, marks: &Marks) -> Result<EventGuard> {
        // Finishes what is in it after its handle has gone.
        let stream = Stream::new(self.context(), "joined events")?;
        for mark in marks {
            stream.wait(mark)?;
        }
        self.plain_events().record(&stream).map(EventGuard)
    }

    /// Signals `claim` of `timeline` behind what the application has put into `stream` itself, and
    /// tells the engine. The timeline has its home on this device, or was [imported](Device::import_timeline): then
    /// this signals the semaphore too.
    ///
    /// The stream is this thread's until the signal is in it. So the call blocks while another
    /// thread submits to the stream or has its [guard](Queue::stream). The calling thread may have
    /// the guard.
    ///
    /// # Errors
    /// [`Error::NotPending`] if the claim's predecessor is still held (wait for
    /// [`Claim::wait_ready`] first); [`Error::Unsupported`] if the timeline has no port on this
    /// device, or for the per-thread default stream; [`Error::Capturing`] if the stream is being
    /// captured; [`Error::WrongDevice`]; a driver error. The claim stays open then. Once it has
    /// succeeded further calls do nothing.
    ///
    /// # Safety
    /// `claim` is one of `timeline`, and `stream` is a live stream, the legacy default stream
    /// included. No other thread begins or ends a capture of it during the call, except under the
    /// guard of a queue over it. An imported timeline is kept until the stream has made the signal.
    pub unsafe fn submit_claimed(
        &self,
        timeline: &Timeline,
        claim: &mut Claim,
        stream: sys::CUstream,
    ) -> Result<()> {
        self.signal_behind(timeline, claim, || {
            // SAFETY: the caller's promise, for the time of this call.
            unsafe { Stream::adopted(self.context(), stream, "the application's", self.object()) }
        })
    }

    /// As [`Device::submit_claimed`], in a stream that is looked up once the claim is known to be
    /// ready.
    fn signal_behind(
        &self,
        timeline: &Timeline,
        claim: &mut Claim,
        stream: impl FnOnce() -> Result<Stream>,
    ) -> Result<()> {
        let (own, imported, counter) = (
            timeline.port::<EventPort>(self.id()),
            self.imported::<ExternalPort>(timeline),
            self.imported::<CounterPort>(timeline),
        );
        if own.is_none() && imported.is_none() && counter.is_none() {
            return Err(self.no_events(format!("signal {}", timeline.object())));
        }
        if timeline.at(claim.value()).is_pending()? {
            return Ok(());
        }
        let before = timeline.at(claim.predecessor());
        before.require_pending()?;
        let _bound = self.context().bind()?;
        let stream = stream()?;
        let mark = self.plain_events().take()?;
        // From the look for a capture to the signal the stream is this thread's. Given up before
        // what waits for the signal is released, as that may go to the same stream.
        let locked = stream.stream_lock().lock();
        stream.refuse_capture("signal a claimed value")?;
        if let Some(port) = own {
            let unseen = || no_event(timeline.object(), before.value());
            let mut marks = Marks::new();
            port.awaited(before.value(), stream.domain(), &mut marks, unseen)?;
            for mark in &marks {
                stream.wait(mark)?;
            }
            stream.record(&mark)?;
            // The application's stream may be gone tomorrow: a later wait never skips this event.
            port.push(claim.value(), mark, NO_STREAM);
        } else if let Some(port) = imported {
            signal_claimed(port, before, claim.value(), &stream, &mark)?;
        } else if let Some(port) = counter {
            signal_claimed(port, before, claim.value(), &stream, &mark)?;
        }
        drop(locked);
        claim.submitted()
    }

    /// The port of an imported timeline, if this device's context has made it.
    fn imported<'t, P: Imported>(&self, timeline: &'t Timeline) -> Option<&'t P> {
        let port = timeline.port::<P>(self.id());
        port.filter(|port| std::ptr::eq(port.context(), &**self.context()))
    }

    fn no_events(&self, asked: String) -> Error {
        Error::Unsupported {
            object: self.object().clone(),
            asked,
            reason: "only timelines with their home on this device are made of its events, and only those imported here besides are signalled by its streams".into(),
        }
    }
}

/// Signals a claimed value of an imported timeline behind its predecessor.
fn signal_claimed<P: Imported>(
    port: &P,
    before: Point<'_>,
    value: u64,
    stream: &Stream,
    mark: &Mark,
) -> Result<()> {
    if !before.is_reached()? {
        Group::one(port, before.value()).wait(stream)?;
    }
    Group::one(port, value).signal_and_record(stream, mark)
}

impl Queue {
    /// The raw stream, to the application alone while the guard lives. Submissions to this queue
    /// are held until then, and go a few milliseconds later at most. The same holds for every other
    /// queue over this stream, and for [`Device::submit_claimed`].
    ///
    /// Blocks while another thread submits to the stream or holds a guard of it. The same thread
    /// may have several. Raw work needs the guard only where it must not mix with submissions of
    /// other threads, and where a capture begins or ends.
    ///
    /// Threads that hold guards of several streams take them in the same order, or they block each
    /// other. A [wait](syncline_core::backend::Queue::wait) for a fence of a capture takes a second
    /// guard, too: that of the stream where the fence was recorded. So a thread that holds a guard
    /// must not wait for a fence captured on a stream whose guard another thread holds, unless that
    /// thread gives it up without needing the first one.
    ///
    /// Raw work that is to come behind everything submitted here must not be put there
    /// while the guard tells of held submissions:
    /// [`Queue::settle`](syncline_core::backend::Queue::settle), before taking the guard, drains them.
    #[must_use]
    pub fn stream(&self) -> StreamGuard<'_> {
        let stream = &self.queue_stream().stream;
        let locked = stream.stream_lock().lock();
        stream.lend();
        StreamGuard {
            raw: stream.raw(),
            held: self.held().count,
            _locked: locked,
        }
    }
}

/// A queue's raw stream, which the queue keeps alive, and to which it submits nothing while this lives.
pub struct StreamGuard<'q> {
    raw: sys::CUstream,
    held: usize,
    _locked: StreamLockGuard<'q>,
}

impl std::fmt::Debug for StreamGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamGuard({:p}, {} held)", self.raw, self.held)
    }
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

#[cfg(test)]
mod tests;
