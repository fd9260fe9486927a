//! Queues: one submission becomes waits, work, external signals and an event on a stream, or less where that says the same.
#![allow(
    unsafe_code,
    reason = "knows the type of the port of a queue's own timeline"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use syncline_core::backend::{
    self, Batch, Device as _, Enqueue, Flush, Held, InFlightBudget, InUse, Keep, NativePoint,
    Recycled, SubmissionQueue, Submitted, Timing, Traceable, Waker,
};
use syncline_core::{Error, Fence, Object, Point, Result, Signal};

use crate::device::context::{Bound, Owner};
use crate::device::open::Device;
use crate::queue::recorder::{Left, Put, Recorder};
use crate::queue::stream::{Capture, Stream};
use crate::share::imported::All;
use crate::share::semaphore::Semaphore;
use crate::timeline::counter::Word;
use crate::timeline::event::Mark;
use crate::timeline::port::{EventPort, Marks, no_event};
use crate::timing::stamp::Stamp;

/// What the wait for an external semaphore or a word of memory, or its signal, takes in commands.
pub(crate) const EXTERNAL: u64 = 2;
/// What work that was given the raw stream is taken to have put there, if it does not say.
const UNSAID: u64 = 4;

/// Runs submissions in the order of one stream.
#[derive(Clone, Debug)]
pub struct Queue {
    device: Device,
    engine: Arc<SubmissionQueue<Feed>>,
}

impl Queue {
    /// A queue over `stream`, whose owner is kept as long as work is in flight.
    pub(crate) fn new(device: Device, stream: Stream, owner: Owner, label: &str) -> Result<Self> {
        let object = Object::new("cuda queue", label);
        let own = device.timeline(&format!("{label} (position)"))?;
        let feed = Feed(Arc::new(Line {
            object: object.clone(),
            stream,
            owner,
            device: device.clone(),
            stamps: Recycled::default(),
            clock_stamps: Recycled::default(),
            semaphores: InUse::default(),
            words: InUse::default(),
            unmarked: AtomicBool::new(false),
        }));
        let engine = SubmissionQueue::new(object, device.id(), own, feed);
        Ok(Self { device, engine })
    }

    #[inline]
    pub(crate) const fn engine(&self) -> &Arc<SubmissionQueue<Feed>> {
        &self.engine
    }

    #[inline]
    pub(crate) fn line(&self) -> &Arc<Line> {
        &self.engine.driver().0
    }
}

impl backend::Queue for Queue {
    type Device = Device;
    type Recorder<'a> = Recorder<'a>;

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn object(&self) -> &Object {
        self.engine.object()
    }

    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()> + Send + 'static,
    {
        // What meets a capture later than here waits for its end.
        self.line().stream.refuse_capture("take a submission")?;
        self.engine.submit(waits, work, signals)
    }

    /// While the stream is being captured into a graph, `fence` becomes a place in it. While
    /// another thread has the stream's [guard](Queue::stream), the record is held like a
    /// submission, and comes behind the capture.
    fn record(&self, fence: &Fence) -> Result<()> {
        self.record_anywhere(fence)
    }

    /// For a fence of a graph capture, an edge of the graph; the stream becomes part of the capture by it, if
    /// it is not already.
    ///
    /// For such a fence this takes the guards of two streams until it returns: of this queue's, and
    /// of the one where the fence was recorded. It blocks while another thread has either. So two
    /// threads block each other for good if each holds the [guard](Queue::stream) of one stream and
    /// waits for a fence captured on the other.
    fn wait(&self, fence: &Fence) -> Result<()> {
        self.wait_anywhere(fence)
    }

    fn position(&self) -> Point<'_> {
        self.engine.position()
    }

    fn held(&self) -> Held {
        self.engine.held()
    }

    fn idle(&self, timeout: Duration) -> Result<()> {
        self.engine.idle(timeout)
    }

    fn traceable(&self) -> Result<Traceable> {
        Ok(self
            .engine
            .traceable(self.device.info(), self.device.clock()))
    }
}

/// The event of another stream that a stream waits for.
type Waited = Option<Mark>;

/// The engine's way to a stream.
pub(crate) struct Feed(Arc<Line>);

pub(crate) struct Line {
    pub(crate) object: Object,
    pub(crate) stream: Stream,
    owner: Owner,
    pub(crate) device: Device,
    stamps: Recycled<Stamp>,
    clock_stamps: Recycled<Stamp>,
    /// Imported timelines.
    semaphores: InUse<Semaphore>,
    /// Counters in shared memory.
    words: InUse<Word>,
    /// Something may stand in the stream behind the last event that the queue's position knows of. Only used in
    /// the stream's turn.
    unmarked: AtomicBool,
}

impl Line {
    #[inline]
    const fn stamps(&self, timing: Timing) -> &Recycled<Stamp> {
        match timing {
            Timing::Clock => &self.clock_stamps,
            _ => &self.stamps,
        }
    }

    /// True if the stream lives as long as this.
    pub(crate) fn keeps_stream(&self) -> bool {
        self.stream.is_owned() || self.owner.is_some()
    }

    /// Makes the device's context current for the legacy default stream, which is that of the
    /// current context. Needed wherever work has run: it may have made another context current.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn bind_legacy(&self) -> Result<Option<Bound<'_>>> {
        let binds = self.stream.is_legacy();
        binds.then(|| self.device.context().bind()).transpose()
    }

    /// Makes the stream wait for what `batch` waits for. Tells what it waits for of other streams, if
    /// that is all, and one event at the most.
    #[inline(always)]
    fn wait(&self, batch: &Batch<'_>, keep: &mut Keep) -> Result<Option<Waited>> {
        match batch.waits {
            [] => return Ok(Some(None)),
            [point] => {
                if let Some(port) = point.port::<EventPort>()
                    && let Some(mark) = port.awaited_alone(point.value(), self.stream.domain())
                {
                    if let Some(mark) = &mark {
                        self.stream.wait(mark)?;
                    }
                    return Ok(Some(mark));
                }
            }
            _ => {}
        }
        self.wait_for_all(batch.waits, batch.end, keep)
    }

    #[inline(never)]
    fn wait_for_all(
        &self,
        points: &[NativePoint<'_>],
        end: NativePoint<'_>,
        keep: &mut Keep,
    ) -> Result<Option<Waited>> {
        let mut external = false;
        let mut marks = Marks::new();
        for point in points {
            if let Some(port) = point.port::<EventPort>() {
                let unseen = || no_event(point.object(), point.value());
                port.awaited(point.value(), self.stream.domain(), &mut marks, unseen)?;
            } else {
                external = true;
            }
        }
        for mark in &marks {
            self.stream.wait(mark)?;
        }
        if external {
            self.wait_for_external(points, end, keep)?;
        }
        let all = !external && marks.len() <= 1;
        Ok(all.then(|| marks.pop()))
    }

    /// Puts what makes the signals behind the work: mostly one event, which stands for the whole submission.
    #[inline(always)]
    fn signal(&self, batch: &Batch<'_>, last: Option<Mark>, keep: &mut Keep) -> Result<()> {
        let last = match (batch.signals, last) {
            // The work has ended with an event, and that stands for the whole submission.
            ([], Some(mark)) => {
                let own = self.own(batch.end)?;
                own.push(batch.end.value(), mark, self.stream.domain());
                return Ok(());
            }
            (_, last) => last,
        };
        if let ([signal], None) = (batch.signals, &last)
            && let Some(port) = signal.port::<EventPort>()
        {
            let own = self.own(batch.end)?;
            let (number, domain) = (batch.end.value(), self.stream.domain());
            let mark = own.begin(number, domain, self.device.plain_events())?;
            if let Err(error) = self.stream.record(&mark) {
                own.withdraw(number);
                return Err(error);
            }
            port.push(signal.value(), mark, domain);
            return Ok(());
        }
        self.signal_all(batch, last, keep)
    }

    /// External signals, then the event that stands for everything, so that what the signals use is
    /// not let go before they are made. Until the event is recorded nothing is signalled that the
    /// engine could see. The event was taken before: nothing is left to fail behind the signals but the stream itself.
    fn signal_all<'p>(&self, batch: &Batch<'p>, last: Option<Mark>, keep: &mut Keep) -> Result<()> {
        let here = |signal: &NativePoint<'p>| signal.port::<EventPort>();
        let count = batch.signals.iter().filter_map(here).count();
        let only_here = count == batch.signals.len();
        let domain = self.stream.domain();
        let own = self.own(batch.end)?;
        let number = batch.end.value();
        let mark = match last.filter(|_| only_here) {
            Some(mark) => {
                own.push(number, mark.clone(), domain);
                mark
            }
            None => {
                let mark = own.begin(number, domain, self.device.plain_events())?;
                let made = if only_here {
                    self.stream.record(&mark)
                } else {
                    self.external(batch.signals, batch.end, keep)
                        .and_then(|external| external.make(&self.stream, &mark))
                };
                if let Err(error) = made {
                    own.withdraw(number);
                    return Err(error);
                }
                mark
            }
        };
        if count > 0 {
            for signal in batch.signals {
                if let Some(port) = here(signal) {
                    port.push(signal.value(), mark.clone(), domain);
                }
            }
        }
        Ok(())
    }

    /// Ends a submission that has put nothing into the stream but a wait: its position is reached with the
    /// one before and with that, and no event need say so. False if one must.
    #[inline]
    fn follow(&self, batch: &Batch<'_>, waited: Waited) -> bool {
        self.own(batch.end)
            .is_ok_and(|own| own.follow(batch.end.value(), waited, self.stream.domain()))
    }

    /// The port of the queue's own timeline, as `end` has it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is none of this backend's.
    #[inline]
    fn own<'p>(&self, end: NativePoint<'p>) -> Result<&'p EventPort> {
        end.port::<EventPort>().ok_or_else(|| self.foreign(end))
    }

    #[cold]
    fn foreign(&self, point: NativePoint<'_>) -> Error {
        Error::Unsupported {
            object: self.object.clone(),
            asked: format!("use {}", point.object()),
            reason: "its port on this device was not made by this backend, or in another context"
                .into(),
        }
    }

    #[inline(never)]
    fn wait_for_external(
        &self,
        points: &[NativePoint<'_>],
        end: NativePoint<'_>,
        keep: &mut Keep,
    ) -> Result<()> {
        self.external(points, end, keep)?.wait(&self.stream)
    }

    /// Those of `points` that are imported, which are kept until the submission that `end` ends has finished.
    #[inline]
    fn external<'p>(
        &self,
        points: &'p [NativePoint<'p>],
        end: NativePoint<'_>,
        keep: &mut Keep,
    ) -> Result<All<'p>> {
        let external =
            All::of(points, self.device.context()).map_err(|point| self.foreign(point))?;
        keep.take_in_flight(EXTERNAL * external.count() as u64);
        let (number, reached) = (end.value(), self.own(end)?.reached());
        let All {
            semaphores,
            counters,
        } = &external;
        if semaphores.count() > 0 {
            self.semaphores.add(semaphores.used(), number, reached);
        }
        if counters.count() > 0 {
            self.words.add(counters.used(), number, reached);
        }
        Ok(external)
    }
}

/// Gives the turn up, and returns false, if the stream is being captured.
#[cold]
fn stays_if_not_captured(stream: &Stream) -> bool {
    let turn = stream.turn().taken();
    // If the driver does not say, the record meets the error.
    let captured = matches!(
        stream.capture_during(&turn),
        Ok(Capture::Active { .. } | Capture::Unusable(_))
    );
    if !captured {
        // The record gives it up.
        std::mem::forget(turn);
    }
    !captured
}

impl Enqueue for Feed {
    type Recorder<'a> = Recorder<'a>;
    type Prepared = ();
    type Stamp = Stamp;
    /// For submissions without any command, so that what they keep is bounded too.
    const MAX_IN_FLIGHT: u64 = 512;

    #[inline]
    fn in_flight_budget(&self) -> Option<&Arc<InFlightBudget>> {
        Some(self.0.device.in_flight_budget())
    }

    #[inline]
    fn order_domain(&self) -> Option<u64> {
        Some(self.0.stream.domain())
    }

    /// A stream that the application has taken for itself takes none, and none that is being captured: an event
    /// recorded there would belong to the graph. Takes the stream's turn, which the record gives up.
    #[inline]
    fn ready(&self) -> bool {
        let stream = &self.0.stream;
        if !stream.turn().try_enter() {
            return false;
        }
        stream.is_untouched() || stays_if_not_captured(stream)
    }

    #[inline]
    fn record<W>(&self, batch: &Batch<'_>, keep: &mut Keep, work: W) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()>,
    {
        let line = &self.0;
        // Taken by `ready`.
        let _turn = line.stream.turn().taken();
        // For the work, and for the legacy default stream, which is the current context's. Events are recorded and waited for with any
        // context current, or none.
        let binds = !batch.is_bare || line.stream.is_legacy();
        let _bound = binds.then(|| line.device.context().bind()).transpose()?;
        // Stays so if this is refused: what passes over it has to record an event then.
        let marked = !line.unmarked.load(Ordering::Relaxed);
        line.unmarked.store(true, Ordering::Relaxed);
        let waited = line.wait(batch, keep)?;
        let mut left = Left::default();
        let worked = work(&mut Recorder::new(line, keep, &mut left));
        let early = left.lets_a_time_begin_early();
        let (said, raw, mut put) = (left.said, left.raw.get(), left.put);
        if raw || said > 0 {
            // Also if it failed: the driver may have taken a part.
            keep.take_in_flight(if said > 0 { said } else { UNSAID });
        }
        worked?;
        let _legacy = line.bind_legacy()?;
        if raw {
            // The work may have begun a capture and left it open.
            line.stream.refuse_capture("end a submission")?;
        }
        if !batch.order.is_empty() {
            line.wait_for_all(batch.order, batch.end, keep)?;
        }
        if let Some(stamp) = batch.stamp::<Stamp>() {
            put = Put::Something;
            // Before the call, which may fail with the kernel in the stream.
            keep.push(stamp.clone());
            keep.take_in_flight(1);
            stamp.launch(&line.stream, early && batch.order.is_empty())?;
        }
        // Work that has the stream from elsewhere need not ask the recorder for it.
        let said = batch.order.is_empty() && line.stream.is_untouched();
        let followed =
            matches!(put, Put::Nothing) && batch.signals.is_empty() && said && marked && {
                // Only a call tells what became of the device since, and only a lost one is known to have something to tell.
                let sound = !line.device.context().is_lost();
                sound && waited.is_some_and(|waited| line.follow(batch, waited))
            };
        if !followed {
            let last = match put {
                Put::Event(mark) if said => Some(mark),
                _ => None,
            };
            line.signal(batch, last, keep)?;
        }
        line.unmarked.store(false, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn flush(&self, (): (), _waker: &dyn Fn() -> Waker) -> Flush<()> {
        Flush::Done
    }

    fn rest(&self, reached: u64) {
        self.0.semaphores.let_go(reached);
        self.0.words.let_go(reached);
    }

    #[inline]
    fn stamp(&self, _: &Object, timing: Timing) -> Result<Arc<Stamp>> {
        let line = &self.0;
        let make = || Stamp::new(&line.device, &line.object, timing);
        line.stamps(timing).take_fit(Stamp::renew, make)
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
    fn write_stamp(recorder: &mut Recorder<'_>, stamp: &Arc<Stamp>) -> Result<()> {
        recorder.write(stamp)
    }
}
