//! Queues: one submission becomes waits, work, one event record and external signals on a stream.
#![allow(unsafe_code, reason = "launches work, which the driver cannot check")]

use std::any::Any;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys;
use syncline_core::backend::{
    self, Batch, Device as _, Enqueue, Flush, Held, Keep, Lane, NativePoint, Submitted, Waker,
};
use syncline_core::{Error, Fence, Object, Point, Result, Signal};

use crate::context::Owner;
use crate::device::Device;
use crate::driver::Code;
use crate::external::{External, ExternalPort};
use crate::memory::DeviceBuffer;
use crate::module::Function;
use crate::port::EventPort;
use crate::stream::{Capture, Stream};
use crate::timing::Stamp;

/// Runs submissions in the order of one stream.
#[derive(Clone, Debug)]
pub struct Queue {
    device: Device,
    lane: Arc<Lane<Feed>>,
}

impl Queue {
    /// A queue over `stream`, whose owner is kept as long as work is in flight.
    pub(crate) fn new(
        device: Device,
        stream: Arc<Stream>,
        owner: Owner,
        label: &str,
    ) -> Result<Self> {
        let object = Object::new("cuda queue", label);
        let own = device.timeline(&format!("{label} (position)"))?;
        let feed = Feed(Arc::new(Line {
            object: object.clone(),
            stream,
            _owner: owner,
            device: device.clone(),
        }));
        let lane = Lane::new(object, device.id(), own, feed);
        Ok(Self { device, lane })
    }

    pub(crate) fn raw_stream(&self) -> sys::CUstream {
        self.line().stream.raw()
    }

    pub(crate) const fn lane(&self) -> &Arc<Lane<Feed>> {
        &self.lane
    }

    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.lane.driver().0
    }
}

impl backend::Queue for Queue {
    type Device = Device;
    type Recorder<'a> = Recorder;

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn object(&self) -> &Object {
        self.lane.object()
    }

    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder) -> Result<()> + Send + 'static,
    {
        // Here too, because a refusal by the lane would leave the queue's position without an event.
        self.line().stream.refuse_capture("take a submission")?;
        self.lane.submit(waits, work, signals)
    }

    /// While the stream is being captured into a graph, `fence` becomes a place in it.
    fn record(&self, fence: &Fence) -> Result<()> {
        self.record_anywhere(fence)
    }

    /// For a fence of a graph capture, an edge of the graph; the stream becomes part of the capture by it, if
    /// it is not already.
    fn wait(&self, fence: &Fence) -> Result<()> {
        self.wait_anywhere(fence)
    }

    fn position(&self) -> Point<'_> {
        self.lane.position()
    }

    fn held(&self) -> Held {
        self.lane.held()
    }

    fn idle(&self, timeout: Duration) -> Result<()> {
        self.lane.idle(timeout)
    }
}

/// What work is given: the stream, and a few things to put into it.
///
/// While work runs, the device's context is current on the thread, so that other libraries can launch
/// into [`Recorder::stream`] too.
pub struct Recorder {
    line: Arc<Line>,
    keep: Keep,
}

impl Recorder {
    /// The stream. The work that is put there runs after the submission's waits and before its signals.
    #[must_use]
    pub fn stream(&self) -> sys::CUstream {
        self.line.stream.raw()
    }

    pub(crate) fn line_stream(&self) -> &Stream {
        &self.line.stream
    }

    pub(crate) fn queue_object(&self) -> &Object {
        &self.line.object
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.line.device
    }

    /// Keeps `object` alive until the submission has finished.
    pub fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.keep.push(object);
    }

    /// Sets every word of `buffer` to `value`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]; a driver error.
    pub fn memset_d32(&mut self, buffer: &DeviceBuffer, value: u32) -> Result<()> {
        buffer.require_device(self.device().id(), &self.line.object)?;
        self.keep.push(buffer.keep());
        let context = self.line.stream.context();
        // SAFETY: that many words of memory that lives until the submission has finished.
        let done = unsafe {
            context.driver().memset_d32_async(
                buffer.pointer(),
                value,
                buffer.words(),
                self.stream(),
            )
        };
        self.done(done)
    }

    /// Copies the whole of `from` to the start of `to`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it does not fit; [`Error::WrongDevice`]; a driver error.
    pub fn copy(&mut self, from: &DeviceBuffer, to: &DeviceBuffer) -> Result<()> {
        for buffer in [from, to] {
            buffer.require_device(self.device().id(), &self.line.object)?;
        }
        if from.bytes() > to.bytes() {
            return Err(Error::Unsupported {
                object: to.object().clone(),
                asked: format!("take the {} bytes of {}", from.bytes(), from.object()),
                reason: format!("it holds {}", to.bytes()),
            });
        }
        self.keep.push(from.keep());
        self.keep.push(to.keep());
        let context = self.line.stream.context();
        // SAFETY: both hold that many bytes, and live until the submission has finished.
        let done = unsafe {
            context.driver().memcpy_dtod_async(
                to.pointer(),
                from.pointer(),
                from.words() * 4,
                self.stream(),
            )
        };
        self.done(done)
    }

    /// Launches `function` over `grid` blocks of `block` threads. `params` point to its parameters, in
    /// order, which are read during the call.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]; a driver error.
    ///
    /// # Safety
    /// `params` are as many and of such types as the function declares, and what the function does with
    /// them on the device is sound until the submission has finished: buffers it uses are
    /// [kept](Recorder::keep).
    pub unsafe fn launch(
        &mut self,
        function: &Function,
        grid: [u32; 3],
        block: [u32; 3],
        params: &mut [*mut c_void],
    ) -> Result<()> {
        function.require_device(self.device().id(), &self.line.object)?;
        self.keep.push(function.keep());
        let context = self.line.stream.context();
        // SAFETY: the caller's promise. The driver copies the parameters during the call.
        let done = unsafe {
            context.driver().launch_kernel(
                function.raw(),
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                0,
                self.stream(),
                params.as_mut_ptr(),
                null_mut(),
            )
        };
        self.done(done)
    }

    fn done(&self, result: Result<(), Code>) -> Result<()> {
        result.map_err(|code| self.line.stream.context().error(code))
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda Recorder ({})", self.line.object)
    }
}

/// The engine's way to a stream.
pub(crate) struct Feed(Arc<Line>);

pub(crate) struct Line {
    object: Object,
    pub(crate) stream: Arc<Stream>,
    _owner: Owner,
    pub(crate) device: Device,
}

impl Line {
    fn wait(&self, points: &[NativePoint<'_>], keep: &mut Keep) -> Result<()> {
        let mut external = External::default();
        for point in points {
            if let Some(port) = point.port::<EventPort>() {
                let domain = Some(self.stream.domain());
                if let Some(mark) = port.awaited(point.value(), domain, point.object())? {
                    self.stream.wait(&mark)?;
                }
            } else {
                self.push(&mut external, *point, keep)?;
            }
        }
        external.wait(&self.stream)
    }

    /// External signals, then the event that stands for everything, so that what the signals use is
    /// not let go before they are made. Until the event is recorded nothing is signalled that the
    /// engine could see.
    fn signal(&self, batch: &Batch<'_>, keep: &mut Keep) -> Result<()> {
        let mut external = External::default();
        for signal in batch.signals {
            if signal.port::<EventPort>().is_none() {
                self.push(&mut external, *signal, keep)?;
            }
        }
        external.announce();
        let mark = external
            .signal(&self.stream)
            .and_then(|()| self.device.plain_events().record(&self.stream));
        external.settle(mark.as_ref().ok());
        let mark = mark?;
        for signal in batch.signals.iter().chain([&batch.end]) {
            if let Some(port) = signal.port::<EventPort>() {
                port.push(signal.value(), mark.clone(), Some(self.stream.domain()));
            }
        }
        Ok(())
    }

    fn push<'p>(
        &self,
        to: &mut External<'p>,
        point: NativePoint<'p>,
        keep: &mut Keep,
    ) -> Result<()> {
        let port = point
            .port::<ExternalPort>()
            .ok_or_else(|| Error::Unsupported {
                object: self.object.clone(),
                asked: format!("use {}", point.object()),
                reason: "its port on this device was not made by this backend".into(),
            })?;
        to.push(port, point.value());
        keep.push(port.semaphore().clone());
        Ok(())
    }
}

impl Enqueue for Feed {
    type Recorder<'a> = Recorder;
    type Prepared = ();
    type Stamp = Stamp;
    /// A stream takes about a thousand commands behind a closed gate and then blocks the caller.
    const MAX_IN_FLIGHT: u64 = 512;

    fn order_domain(&self) -> u64 {
        self.0.stream.domain()
    }

    /// A stream that is being captured takes none: an event recorded there would belong to the graph.
    fn ready(&self) -> bool {
        // If the driver does not say, the record meets the error.
        !matches!(
            self.0.stream.capture(),
            Ok(Capture::Active { .. } | Capture::Unusable(_))
        )
    }

    fn record<W>(&self, batch: &Batch<'_>, keep: &mut Keep, work: W) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder) -> Result<()>,
    {
        let line = &self.0;
        // For the work, and for the legacy default stream, which is the current context's.
        let _bound = line.device.context().bind()?;
        line.stream.refuse_capture("take a submission")?;
        line.wait(batch.waits, keep)?;
        let mut recorder = Recorder {
            line: line.clone(),
            keep: Keep::default(),
        };
        let worked = work(&mut recorder);
        // Also if it failed: the driver may have taken a part.
        keep.append(&mut recorder.keep);
        worked?;
        line.wait(batch.order, keep)?;
        line.signal(batch, keep)
    }

    fn flush(&self, (): (), _lane: &dyn Fn() -> Waker) -> Flush<()> {
        Flush::Done
    }

    fn stamp(&self) -> Result<Arc<Stamp>> {
        Ok(Arc::new(Stamp::new(&self.0.object)))
    }

    fn write_stamp(recorder: &mut Recorder, stamp: &Arc<Stamp>) -> Result<()> {
        let line = &recorder.line;
        stamp.write(line.device.timed_events().record(&line.stream)?);
        Ok(())
    }
}
