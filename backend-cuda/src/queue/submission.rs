//! Queues: a submission becomes waits, work, external signals and an event on a stream.
//!
//! Calls that would change nothing are left out.

use std::sync::Arc;

use syncline_core::backend::{
    Attachment, Batch, EngineQueue, Enqueue, Flush, Home, InFlightBudget, Keep, SubmissionQueue,
    Timing, ToWrite, Unused, Waker,
};
use syncline_core::{Error, Result, error::Object};

use crate::device::context::Owner;
use crate::device::open::Device;
use crate::device::stream::{Capture, Stream};
use crate::device::stream_lock::StreamLockGuard;
use crate::queue::graph_launch::{Launch, Points};
use crate::queue::queue_stream::{QueueStream, StreamState};
use crate::queue::recorder::{Left, Recorder};
use crate::timing::stamp::Stamp;

/// Executes submissions in the order of one stream. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Queue(EngineQueue<Feed>);

/// The kind of queues in errors.
pub(crate) const QUEUE: &str = "cuda queue";

impl Queue {
    /// Creates a queue over `stream`, whose owner is kept while work is in flight.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn new(device: &Device, stream: Stream, owner: Owner, label: &str) -> Result<Self> {
        let object = Object::new(QUEUE, label);
        let feed = Feed::new(&object, stream, owner, device);
        Ok(Self(EngineQueue::new(object, feed)?))
    }

    pub(crate) const fn with_engine(engine: EngineQueue<Feed>) -> Self {
        Self(engine)
    }

    #[inline]
    pub(crate) const fn inner(&self) -> &EngineQueue<Feed> {
        &self.0
    }

    /// Creates a queue over a non-blocking stream of its own.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn on_own_stream(device: &Device, label: &str) -> Result<Self> {
        let stream = Stream::new(device.context(), label)?;
        Self::new(device, stream, Owner::default(), label)
    }

    /// Refuses a submission while the stream is being captured into a graph.
    ///
    /// # Errors
    /// [`Error::Capturing`](syncline_core::Error::Capturing).
    #[inline]
    pub(crate) fn refuse_capture(&self) -> Result<()> {
        let stream = self.queue_stream().stream();
        stream.refuse_capture("take a submission")
    }

    pub(crate) fn device(&self) -> &Device {
        self.0.device()
    }

    pub(crate) fn object(&self) -> &Object {
        self.submissions().object()
    }

    #[inline]
    pub(crate) const fn submissions(&self) -> &Arc<SubmissionQueue<Feed>> {
        self.0.submissions()
    }

    #[inline]
    pub(crate) fn queue_stream(&self) -> &Arc<QueueStream> {
        &self.0.enqueue().0
    }
}

/// Gives the submissions of a queue to its stream.
pub struct Feed(Arc<QueueStream>);

impl Feed {
    pub(crate) fn new(queue: &Object, stream: Stream, owner: Owner, device: &Device) -> Self {
        Self(Arc::new(QueueStream::new(queue, stream, owner, device)))
    }
}

/// A stream that can take a submission now, because this thread has its lock.
pub struct Ready<'a> {
    locked: StreamLockGuard<'a>,
    /// The error of the query whether the stream is being captured. `record` returns it.
    unknown_capture: Option<Box<Error>>,
}

/// `None` if the stream, which is locked, is being captured.
#[cold]
fn ready_unless_captured<'a>(stream: &Stream, locked: StreamLockGuard<'a>) -> Option<Ready<'a>> {
    let unknown_capture = match stream.capture_while_locked(&locked) {
        Ok(Capture::None) => None,
        Ok(_) => return None,
        Err(error) => Some(Box::new(error)),
    };
    Some(Ready {
        locked,
        unknown_capture,
    })
}

impl Home for Device {
    type Enqueue = Feed;

    fn port(&self, initial: u64) -> Result<Attachment> {
        // An event ring makes no driver call at first.
        self.context().require_maker()?;
        Ok(self.event_port(initial))
    }
}

impl Enqueue for Feed {
    type Device = Device;
    type Recorder<'a> = Recorder<'a>;
    type Ready<'a> = Ready<'a>;
    type State = StreamState;
    type Stamp = Stamp;
    /// For submissions without any command, so that what they keep is bounded too.
    const MAX_IN_FLIGHT: u64 = 512;

    #[inline]
    fn device(&self) -> &Device {
        self.0.device()
    }

    #[inline]
    fn in_flight_budget(&self) -> Option<&Arc<InFlightBudget>> {
        Some(self.0.device().inner().in_flight_budget())
    }

    #[inline]
    fn order_domain(&self) -> Option<u64> {
        Some(self.0.stream().domain())
    }

    /// Takes the stream's lock until the end of `record`.
    ///
    /// `None` while the application holds the stream, and while the stream is being captured: an
    /// event recorded then would belong to the graph.
    #[inline]
    fn ready(&self) -> Option<Ready<'_>> {
        let stream = self.0.stream();
        let locked = stream.stream_lock().try_lock()?;
        if !stream.is_untouched() {
            return ready_unless_captured(stream, locked);
        }
        Some(Ready {
            locked,
            unknown_capture: None,
        })
    }

    #[inline]
    fn record<W>(
        &self,
        ready: Ready<'_>,
        state: &mut StreamState,
        batch: &Batch<'_, Self>,
        keep: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()>,
    {
        let queue = &self.0;
        let Ready {
            locked: _locked,
            unknown_capture,
        } = ready;
        if let Some(error) = unknown_capture {
            return Err(*error);
        }
        // For the work, and for the legacy default stream, which is that of the current context.
        // Event records and waits work with any current context.
        let binds = !batch.is_bare || queue.stream().is_legacy();
        let _bound = binds.then(|| queue.device().context().bind()).transpose()?;
        let marked = state.begin_submission();
        let end = queue.end(batch.end, batch.signalled())?;
        if let Some(launch) = batch.attached::<Launch>() {
            let mut left = Left::default();
            let points = Points {
                waits: batch.waits,
                order: batch.order,
                signals: batch.signals,
            };
            queue.record_launch(state, &points, end, &launch, keep, |keep| {
                work(&mut Recorder::new(queue, keep, &mut left))
            })?;
            state.note_marked();
            return Ok(());
        }
        let waited = queue.wait(state, batch.waits, end, keep)?;
        let mut left = Left::default();
        let worked = work(&mut Recorder::new(queue, keep, &mut left));
        // Also if the work failed, because the driver may have taken a part of it.
        if let Some(commands) = left.raw_commands() {
            keep.take_in_flight(commands);
        }
        worked?;
        let _legacy = queue.bind_legacy()?;
        if left.has_raw_stream() {
            // The work may have begun a capture and left it open.
            queue.stream().refuse_capture("end a submission")?;
        }
        let has_order = !batch.order.is_empty();
        if has_order {
            queue.wait_for_all(state, batch.order, end, keep)?;
        }
        if let Some(stamp) = batch.stamp::<Stamp>() {
            left.note_something();
            // Before the call, which may fail with the kernel already in the stream.
            keep.push(stamp.clone());
            keep.take_in_flight(1);
            let early = left.lets_a_time_begin_early() && !has_order;
            stamp.launch(queue.stream(), early)?;
        }
        // The recorder does not see commands of the work if the application has the raw stream from
        // elsewhere.
        if has_order || !queue.stream().is_untouched() {
            left.note_something();
        }
        // A submission that has added only a wait needs no event. A lost device is noticed only by
        // driver calls, so after a loss an event is recorded.
        let needs_no_event = left.is_nothing()
            && batch.signals.is_empty()
            && marked
            && !queue.device().context().is_lost();
        if !(needs_no_event && end.follow(&waited, queue.stream().domain())) {
            queue.signal(state, batch.signals, end, left.into_event(), keep)?;
        }
        state.note_marked();
        Ok(())
    }

    #[inline]
    fn flush(&self, _: &mut StreamState, _waker: &dyn Fn() -> Waker) -> Flush {
        Flush::Done
    }

    fn take_unused(&self, state: &mut StreamState, reached: u64, unused: &mut Unused) {
        state.take_unused(reached, unused);
    }

    fn is_idle(&self) -> Option<bool> {
        let queue = &self.0;
        let stream = queue.stream();
        // The application may have destroyed its stream or its context.
        if !queue.keeps_stream() || !queue.device().context().is_kept() {
            return None;
        }
        let Some(locked) = stream.stream_lock().try_lock() else {
            return Some(false);
        };
        // A query of a captured stream would invalidate the capture.
        if !stream.is_untouched()
            && !matches!(stream.capture_while_locked(&locked), Ok(Capture::None))
        {
            return Some(false);
        }
        // The legacy default stream is that of the current context.
        let Ok(_bound) = queue.device().context().bind() else {
            return Some(false);
        };
        Some(matches!(stream.is_idle(), Ok(true)))
    }

    #[inline]
    fn stamp(&self, _: &Object, timing: Timing) -> Result<Arc<Stamp>> {
        let queue = &self.0;
        let make = || Stamp::new(queue.device(), queue.object(), timing);
        queue.stamps(timing).take_fit(Stamp::renew, make)
    }

    #[inline]
    fn stamp_again(
        &self,
        queue: &Object,
        timing: Timing,
        before: Arc<Stamp>,
    ) -> Result<Arc<Stamp>> {
        let stamps = self.0.stamps(timing);
        let again = stamps.take_again(before, Stamp::renew);
        again.map_or_else(|| self.stamp(queue, timing), Ok)
    }

    #[inline]
    fn write_stamp(recorder: &mut Recorder<'_>, stamp: ToWrite<'_, Self>) -> Result<()> {
        recorder.write(&stamp)
    }
}
