//! Adopts contexts, streams and events of the application, and gives out raw handles.
#![allow(unsafe_code, reason = "takes raw handles")]

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, sys};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Claim, Error, Fence, Point, Result, Timeline, error::Object};

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
use crate::timeline::word::WordPort;

impl Device {
    /// Creates a device over cudarc's context, which the device keeps.
    ///
    /// # Errors
    /// [`Error::Unavailable`]. [`Error::Unsupported`] if cudarc, or another library of the process,
    /// has loaded another CUDA driver than [`Driver::load`]. A driver error.
    pub fn adopt(context: &Arc<CudaContext>) -> Result<Self> {
        // SAFETY: cudarc's context lives as long as its handle, which is kept.
        unsafe { Self::adopt_context(context.cu_ctx(), Some(context.clone())) }
    }

    /// Creates a device over a raw context. The driver returns the context's device.
    ///
    /// `owner` is kept as long as the context is used. When the process exits, it waits for at most
    /// two seconds while `owner` is being dropped. An owner that is still kept when the exit begins
    /// is not dropped.
    ///
    /// # Errors
    /// Same errors as [`Device::adopt`], and [`Error::Unsupported`] for a null context.
    ///
    /// # Safety
    /// `context` is a live context, and stays alive while `owner` is kept. Without an owner, it
    /// stays alive until the device and everything made from it are gone.
    pub unsafe fn adopt_context(
        context: sys::CUcontext,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Result<Self> {
        let owner = Owner::new(owner);
        let driver = Driver::load()?;
        let unnamed = Object::new("device", "cuda, adopted");
        if context.is_null() {
            return Err(Error::unsupported(unnamed, "adopt a context", "it is null"));
        }
        driver.require_alone(&unnamed, "adopt a context")?;
        // SAFETY: the caller guarantees it. No owner, because this lives only during this call.
        let borrowed = unsafe { Context::adopted(&driver, context, &unnamed, Owner::default()) };
        let info = driver
            .info(borrowed.device()?)
            .map_err(|code| driver.error(&unnamed, code))?;
        drop(borrowed);
        let object = Object::new("device", &format!("cuda {}, adopted", info.marked_name()));
        // SAFETY: the caller guarantees it.
        let context = unsafe { Context::adopted(&driver, context, &object, owner) };
        Self::new(context, object, info)
    }

    /// The raw context, which lives as long as the device.
    #[must_use]
    pub fn raw_context(&self) -> sys::CUcontext {
        self.context().raw()
    }

    /// Creates a queue over cudarc's stream, which the queue keeps.
    ///
    /// The legacy default stream keeps its implicit synchronization.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a stream of another context. [`Error::Unsupported`] for the
    /// per-thread default stream, or while the process has another CUDA driver loaded. A driver
    /// error.
    ///
    /// # Safety
    /// A capture of the stream begins and ends under the [guard](Queue::stream) of a queue over the
    /// stream. cudarc's calls do not take the guard. Drivers (580.159) have crashed when a capture
    /// ended while another thread queried it.
    pub unsafe fn adopt_stream(&self, stream: &Arc<CudaStream>, label: &str) -> Result<Queue> {
        let owner = stream.context().cu_ctx();
        if owner != self.raw_context() {
            let object = Object::new("stream", label);
            return Err(foreign(object, owner, self.object()));
        }
        // SAFETY: cudarc's stream lives as long as its handle, which is kept. The caller guarantees
        // the rest.
        unsafe { self.adopt_raw_stream(stream.cu_stream(), Some(stream.clone()), label) }
    }

    /// Creates a queue over a raw stream. `owner` is kept while work is in flight.
    ///
    /// When the process exits, it waits for at most two seconds while `owner` is being dropped. An
    /// owner that is still kept when the exit begins is not dropped.
    ///
    /// Null or `CU_STREAM_LEGACY` is the legacy default stream, which keeps its implicit
    /// synchronization. A stream may be adopted several times, and on several devices of its
    /// context. This includes streams of this crate. All these queues share one
    /// [guard](Queue::stream).
    ///
    /// # Errors
    /// Same errors as [`Device::adopt_stream`].
    ///
    /// # Safety
    /// `stream` is a live stream, and stays alive while `owner` is kept. Without an owner, the
    /// stream stays alive until every queue over it is gone and its work has finished. A capture of
    /// the stream begins and ends under the guard of such a queue. Drivers (580.159) have crashed
    /// when a capture ended while another thread queried it. After the stream is gone, no thread
    /// waits for a fence that was recorded in a capture of it.
    pub unsafe fn adopt_raw_stream(
        &self,
        stream: sys::CUstream,
        owner: Option<Arc<dyn Any + Send + Sync>>,
        label: &str,
    ) -> Result<Queue> {
        let owner = Owner::new(owner);
        let object = Object::new("stream", label);
        let driver = self.context().driver();
        driver.require_alone(&object, "become a queue")?;
        // SAFETY: the caller guarantees it.
        let stream = unsafe { Stream::adopted(self.context(), stream, label, self.object()) }?;
        Queue::new(self, stream, owner, label)
    }

    /// Creates a fence for the latest record of `event`, an event of the application.
    ///
    /// The fence is complete once that record is, or at once if the event was never recorded. Later
    /// records do not affect it, so adopt the event again for those. The fence can be waited for
    /// like any other fence, and recording it fails. Creates a stream for this purpose.
    ///
    /// The event is used only during the call. Afterwards it may be recorded again or destroyed.
    ///
    /// See `cuStreamWaitEvent`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] while the process has another CUDA driver loaded, or a driver error.
    ///
    /// # Safety
    /// `event` is a live event of this process, and its latest record was not in a stream capture.
    pub unsafe fn adopt_event(&self, event: sys::CUevent, label: &str) -> Result<Fence> {
        let object = Object::new("fence", label);
        let driver = self.context().driver();
        driver.require_alone(&object, "become a fence")?;
        // None of these driver calls blocks. A destroyed stream still finishes its work.
        let stream = Stream::new(self.context(), label)?;
        // SAFETY: the caller guarantees it.
        unsafe { stream.wait_raw(&Raw(event)) }?;
        let occurred = self.timeline(label)?;
        let mut claim = occurred.claim(1)?;
        self.signal_behind(&occurred, &mut claim, || Ok(stream))?;
        let point = occurred.at(1).keep();
        Ok(Fence::foreign(self.id(), self.object(), label, point))
    }

    /// The raw event behind a pending `point`, for a stream that the application uses directly.
    ///
    /// The timeline has its home on this device. `cuStreamWaitEvent` with the event waits for the
    /// point. Returns `None` for a reached point, which has no event any more.
    ///
    /// # Errors
    /// [`Error::NotPending`] if the point's submission is still held, because CUDA would treat its
    /// event as complete. [`Error::Unsupported`] if this device has no event for the point. The
    /// timeline's failure.
    pub fn event(&self, point: Point<'_>) -> Result<Option<EventGuard>> {
        point.require_pending()?;
        if point.is_reached()? {
            return Ok(None);
        }
        let port = point
            .port::<EventPort>(self.id())
            .ok_or_else(|| self.no_events(format!("give an event for {point:?}")))?;
        let mut marks = Marks::new();
        port.add_awaited(point.value(), NO_STREAM, &mut marks, || {
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

    /// One event that completes after all of `marks`.
    fn join(&self, marks: &Marks) -> Result<EventGuard> {
        // A destroyed stream still finishes its work.
        let stream = Stream::new(self.context(), "joined events")?;
        for mark in marks {
            stream.wait(mark)?;
        }
        stream.record_new(self.plain_events()).map(EventGuard)
    }

    /// Signals `claim` of `timeline` after the work that the application has added to `stream`.
    ///
    /// The call also tells the engine. The timeline has its home on this device, or was
    /// [imported](Device::import_timeline). For an imported timeline the call also signals the
    /// semaphore. For an [adopted word](Device::adopt_word) it also writes the word, so do not use
    /// it if your own work does.
    ///
    /// The calling thread holds the stream until the signal is in it. So the call blocks while
    /// another thread submits to the stream or has its [guard](Queue::stream). The calling thread
    /// may have the guard.
    ///
    /// # Errors
    /// [`Error::NotPending`] if the claim's predecessor is still held (wait for
    /// [`Claim::wait_ready`] first). [`Error::Unsupported`] if the timeline has no port on this
    /// device, or for the per-thread default stream. [`Error::Capturing`] if the stream is being
    /// captured. [`Error::WrongDevice`]. A driver error. After an error the claim stays open. If
    /// the stream has the signal by then, the timeline fails with the error. After a success
    /// further calls do nothing.
    ///
    /// # Safety
    /// `claim` belongs to `timeline`. `stream` is a live stream or the legacy default stream. No
    /// other thread begins or ends a capture of it during the call, except under the guard of a
    /// queue over it. An imported timeline is kept until the stream has made the signal.
    pub unsafe fn submit_claimed(
        &self,
        timeline: &Timeline,
        claim: &mut Claim,
        stream: sys::CUstream,
    ) -> Result<()> {
        self.signal_behind(timeline, claim, || {
            // SAFETY: the caller guarantees it for the duration of this call.
            unsafe { Stream::adopted(self.context(), stream, "the application's", self.object()) }
        })
    }

    /// Same as [`Device::submit_claimed`]. Calls `stream` only if the claim is ready.
    fn signal_behind(
        &self,
        timeline: &Timeline,
        claim: &mut Claim,
        stream: impl FnOnce() -> Result<Stream>,
    ) -> Result<()> {
        let (own, imported, counter, word) = (
            timeline.port::<EventPort>(self.id()),
            self.imported::<ExternalPort>(timeline),
            self.imported::<CounterPort>(timeline),
            self.imported::<WordPort>(timeline),
        );
        if own.is_none() && imported.is_none() && counter.is_none() && word.is_none() {
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
        // Locked from the capture query to the signal. Unlocked before waiters of the signal are
        // released, because they may submit to the same stream.
        let locked = stream.stream_lock().lock();
        stream.refuse_capture("signal a claimed value")?;
        if let Some(port) = own {
            let unseen = || no_event(timeline.object(), before.value());
            let mut marks = Marks::new();
            port.add_awaited(before.value(), stream.domain(), &mut marks, unseen)?;
            for mark in &marks {
                stream.wait(mark)?;
            }
            stream.record(&mark)?;
            // The application may destroy its stream later, so a later wait must not skip this
            // event.
            port.push(claim.value(), mark, NO_STREAM);
        } else if let Some(port) = imported {
            signal_claimed(port, timeline, (before, claim.value()), &stream, &mark)?;
        } else if let Some(port) = counter {
            signal_claimed(port, timeline, (before, claim.value()), &stream, &mark)?;
        } else if let Some(port) = word {
            signal_claimed(port, timeline, (before, claim.value()), &stream, &mark)?;
        }
        drop(locked);
        claim.submitted_on(self.id())
    }

    /// The port of an imported timeline, if this device's context has made it.
    fn imported<'t, P: Imported>(&self, timeline: &'t Timeline) -> Option<&'t P> {
        let port = timeline.port::<P>(self.id());
        port.filter(|port| std::ptr::eq(port.context(), &**self.context()))
    }

    fn no_events(&self, asked: String) -> Error {
        Error::unsupported(
            self.object(),
            asked,
            "only timelines with their home on this device are made of its events, and only those imported here besides are signalled by its streams",
        )
    }
}

/// Signals a claimed value of an imported timeline after its predecessor.
fn signal_claimed<P: Imported>(
    port: &P,
    timeline: &Timeline,
    (before, value): (Point<'_>, u64),
    stream: &Stream,
    mark: &Mark,
) -> Result<()> {
    if !before.is_reached()? {
        Group::one(port, before.value()).wait(stream)?;
    }
    let signalled = Cell::new(false);
    let made = Group::one(port, value).signal_and_record(stream, mark, &signalled);
    if let (Err(error), true) = (&made, signalled.get()) {
        // The stream makes the signal, so the value must not be signalled again.
        timeline.fail(error.clone());
    }
    made
}

impl Queue {
    /// Takes the raw stream for the calling thread until the guard is dropped.
    ///
    /// Meanwhile submissions to this queue and to every other queue over this stream are held. They
    /// go to the driver at most a few milliseconds after the guard was dropped.
    /// [`Device::submit_claimed`] blocks on other threads.
    ///
    /// Blocks while another thread submits to the stream or has a guard of it. One thread may have
    /// several guards. Raw work needs the guard only if it must not mix with submissions of other
    /// threads, and when a capture begins or ends.
    ///
    /// Threads that have guards of several streams must take them in the same order, or they
    /// deadlock. A [wait](syncline_core::backend::Queue::wait) for a fence of a capture takes a
    /// second guard, of the stream where the fence was recorded. So while a thread has a guard, it
    /// may wait for a fence captured on another stream only if the thread with the guard of that
    /// stream drops it without needing the first guard.
    ///
    /// If raw work must execute after all earlier submissions, the guard must report no held
    /// submissions. [`Queue::settle`](syncline_core::backend::Queue::settle), called before this,
    /// waits for them.
    #[must_use]
    pub fn stream(&self) -> StreamGuard<'_> {
        let stream = self.queue_stream().stream();
        let locked = stream.stream_lock().lock();
        stream.lend();
        StreamGuard {
            raw: stream.raw(),
            held: self.held().count,
            _locked: locked,
        }
    }
}

/// The raw stream of a queue, which submits nothing while the guard lives.
///
/// The queue keeps the stream alive.
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
    /// The raw stream.
    #[must_use]
    pub const fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// The number of submissions that were held on the host when the guard was taken.
    ///
    /// These submissions are not in the stream.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.held
    }
}

/// A raw event that stands for a point. The event is not recorded again while the guard lives.
pub struct EventGuard(Mark);

impl EventGuard {
    /// The raw event, to wait for or to query. Never record or destroy it.
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
