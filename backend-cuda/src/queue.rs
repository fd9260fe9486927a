//! Queues: one submission becomes waits, work, external signals and an event on a stream, or less where that says the same.
#![allow(unsafe_code, reason = "launches work, which the driver cannot check")]

use std::any::Any;
use std::cell::Cell;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cudarc::driver::sys;
use syncline_core::backend::{
    self, Batch, Device as _, Enqueue, Flush, Held, InUse, Keep, Lane, NativePoint, Port, Recycled,
    Room, Submitted, Timing, Waker,
};
use syncline_core::trace::Trace;
use syncline_core::{Error, Fence, Object, Point, Result, Signal};

use crate::context::Owner;
use crate::device::Device;
use crate::driver::Code;
use crate::event::Mark;
use crate::external::{External, ExternalPort, external};
use crate::memory::DeviceBuffer;
use crate::module::Function;
use crate::port::{EventPort, Marks, no_event};
use crate::semaphore::Semaphore;
use crate::stream::{Capture, Stream};
use crate::timing::Stamp;

/// What the wait for an external semaphore, or its signal, takes in commands.
pub(crate) const EXTERNAL: u64 = 2;
/// What work that was given the raw stream is taken to have put there, if it does not say.
const UNSAID: u64 = 4;

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
            owner,
            device: device.clone(),
            stamps: Recycled::default(),
            clock_stamps: Recycled::default(),
            semaphores: InUse::default(),
            unmarked: AtomicBool::new(false),
        }));
        let lane = Lane::new(object, device.id(), own, feed);
        Ok(Self { device, lane })
    }

    #[inline]
    pub(crate) const fn lane(&self) -> &Arc<Lane<Feed>> {
        &self.lane
    }

    #[inline]
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
        // What meets a capture later than here waits for its end.
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

    fn trace(&self, trace: &Trace) -> Result<()> {
        self.lane.trace(&self.device, trace)
    }
}

/// What work is given: the stream, and a few things to put into it.
///
/// While work runs, the device's context is current on the thread, so that other libraries can launch
/// into [`Recorder::stream`] too.
pub struct Recorder {
    line: Lent,
    keep: LentKeep,
    /// Said by the work, for what it puts into the stream by itself.
    said: u64,
    raw: Cell<bool>,
    /// It has launched a kernel, which waits for all that stands before it.
    launched: bool,
    put: Put,
}

/// A line that somebody else keeps, without a reference of its own: to count one for each submission costs as much as
/// some of the driver's calls.
struct Lent(ManuallyDrop<Arc<Line>>);

impl Lent {
    /// # Safety
    /// `line` lives longer than the result.
    unsafe fn new(line: &Arc<Line>) -> Self {
        // SAFETY: never dropped, so the count stays right; and not used any more once `line` is gone, as the caller promises.
        Self(ManuallyDrop::new(unsafe { std::ptr::read(line) }))
    }
}

impl Deref for Lent {
    type Target = Line;

    fn deref(&self) -> &Line {
        &self.0
    }
}

/// As [`Lent`], what the submission keeps: to make another list and to move it is more than most submissions keep.
struct LentKeep(NonNull<Keep>);

// SAFETY: as for a mutable reference, which this stands for.
unsafe impl Send for LentKeep {}
// SAFETY: as for sending.
unsafe impl Sync for LentKeep {}

impl LentKeep {
    /// # Safety
    /// `keep` lives longer than the result, and nobody else uses it meanwhile.
    const unsafe fn new(keep: &mut Keep) -> Self {
        Self(NonNull::from_mut(keep))
    }

    fn push(&mut self, object: Arc<dyn Any + Send + Sync>) {
        // SAFETY: as promised where it was made.
        unsafe { self.0.as_mut() }.push(object);
    }

    #[inline]
    fn take_room(&mut self, units: u64) {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }.take_room(units);
    }
}

/// What the work has put into the stream, as far as that matters to what comes behind it.
enum Put {
    Nothing,
    /// An event, and nothing behind it.
    Event(Mark),
    Something,
}

impl Recorder {
    /// The stream. The work that is put there runs after the submission's waits and before its signals. If it
    /// is captured into a graph there, that ends before the work returns.
    ///
    /// If more than four commands are put there, [say so](Recorder::commands).
    #[must_use]
    pub fn stream(&self) -> sys::CUstream {
        self.raw.set(true);
        self.line.stream.lend();
        self.line.stream.raw()
    }

    /// Says that the work puts so many commands into the [stream](Recorder::stream) by itself: launches, copies,
    /// fills, memory operations, each node of a launched graph. What goes through the methods of this type is counted by them.
    ///
    /// CUDA blocks whoever submits while about a thousand commands stand on one of its hardware connections, which
    /// all streams of a process share. So further submissions are held on the host while 480 commands of the
    /// device's queues are in flight. For that, one submission has 500 commands at most; a larger one is
    /// split, or never sent behind work that waits for this thread.
    pub const fn commands(&mut self, commands: u64) {
        self.said = self.said.saturating_add(commands);
    }

    /// The stream, to put something into it.
    #[inline]
    pub(crate) fn line_stream(&mut self) -> &Stream {
        self.put = Put::Something;
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
        let stream = self.line_stream();
        let driver = stream.context().driver();
        // SAFETY: that many words of memory that lives until the submission has finished.
        let done = unsafe {
            driver.memset_d32_async(buffer.pointer(), value, buffer.words(), stream.raw())
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
        let stream = self.line_stream();
        let driver = stream.context().driver();
        // SAFETY: both hold that many bytes, and live until the submission has finished.
        let done = unsafe {
            driver.memcpy_dtod_async(to.pointer(), from.pointer(), from.words() * 4, stream.raw())
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
        let stream = self.line_stream();
        let driver = stream.context().driver();
        // SAFETY: the caller's promise. The driver copies the parameters during the call.
        let done = unsafe {
            driver.launch_kernel(
                function.raw(),
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                0,
                stream.raw(),
                params.as_mut_ptr(),
                null_mut(),
            )
        };
        self.launched |= done.is_ok();
        self.done(done)
    }

    /// One command more, if the driver took it.
    fn done(&mut self, result: Result<(), Code>) -> Result<()> {
        result.map_err(|code| self.line.stream.error(code))?;
        self.count(1);
        Ok(())
    }

    /// So many commands more are in the stream.
    #[inline]
    pub(crate) fn count(&mut self, commands: u64) {
        self.keep.take_room(commands);
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cuda Recorder ({})", self.line.object)
    }
}

/// The event of another stream that a stream waits for.
type Waited = Option<Mark>;

/// The engine's way to a stream.
pub(crate) struct Feed(Arc<Line>);

pub(crate) struct Line {
    object: Object,
    pub(crate) stream: Arc<Stream>,
    owner: Owner,
    pub(crate) device: Device,
    stamps: Recycled<Stamp>,
    clock_stamps: Recycled<Stamp>,
    /// Imported timelines.
    semaphores: InUse<Semaphore>,
    /// Something may stand in the stream behind the last event that the queue's position knows of. Only used in
    /// the stream's turn.
    unmarked: AtomicBool,
}

impl Line {
    /// True if the stream lives as long as this.
    pub(crate) fn keeps_stream(&self) -> bool {
        self.stream.is_owned() || self.owner.is_some()
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
                let own = Self::own(batch.end);
                own.push(batch.end.value(), mark, self.stream.domain());
                return Ok(());
            }
            (_, last) => last,
        };
        if let ([signal], None) = (batch.signals, &last)
            && let Some(port) = signal.port::<EventPort>()
        {
            let own = Self::own(batch.end);
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
        let own = Self::own(batch.end);
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
        let own = Self::own(batch.end);
        own.follow(batch.end.value(), waited, self.stream.domain())
    }

    /// The port of the queue's own timeline, as `end` has it.
    #[inline]
    fn own(end: NativePoint<'_>) -> &EventPort {
        debug_assert!(end.port::<EventPort>().is_some());
        let port: *const dyn Port = end.any_port();
        // SAFETY: that timeline is made with the queue, by this backend, and the end of a batch is never anything else's.
        unsafe { &*port.cast::<EventPort>() }
    }

    #[cold]
    fn foreign(&self, point: NativePoint<'_>) -> Error {
        Error::Unsupported {
            object: self.object.clone(),
            asked: format!("use {}", point.object()),
            reason: "its port on this device was not made by this backend".into(),
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
    ) -> Result<External<impl Iterator<Item = (&'p ExternalPort, u64)> + Clone + use<'p>>> {
        let external = external(points).map_err(|point| self.foreign(point))?;
        keep.take_room(EXTERNAL * external.count() as u64);
        let reached = Self::own(end).reached();
        self.semaphores.add(external.used(), end.value(), reached);
        Ok(external)
    }
}

/// Gives the turn up, and returns false, if the stream is being captured.
#[cold]
fn stays_if_not_captured(stream: &Stream) -> bool {
    // If the driver does not say, the record meets the error.
    let captured = matches!(
        stream.capture(),
        Ok(Capture::Active { .. } | Capture::Unusable(_))
    );
    if captured {
        drop(stream.turn().taken());
    }
    !captured
}

impl Enqueue for Feed {
    type Recorder<'a> = Recorder;
    type Prepared = ();
    type Stamp = Stamp;
    /// For submissions without any command, so that what they keep is bounded too.
    const MAX_IN_FLIGHT: u64 = 512;

    #[inline]
    fn room(&self) -> Option<&Arc<Room>> {
        Some(self.0.device.room())
    }

    #[inline]
    fn order_domain(&self) -> u64 {
        self.0.stream.domain()
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
        W: for<'r, 'a> FnOnce(&'r mut Recorder) -> Result<()>,
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
        let mut recorder = Recorder {
            // SAFETY: `line` is borrowed for longer than the recorder lives, and work, which is given a mutable borrow of it
            // alone, and which has none of another's, cannot make it live longer.
            line: unsafe { Lent::new(line) },
            // SAFETY: so is `keep`, which is not used again before the recorder is gone.
            keep: unsafe { LentKeep::new(keep) },
            said: 0,
            raw: Cell::new(false),
            launched: false,
            put: Put::Nothing,
        };
        let worked = work(&mut recorder);
        let (said, raw, put) = (recorder.said, recorder.raw.get(), recorder.put);
        if raw || said > 0 {
            // Also if it failed: the driver may have taken a part.
            keep.take_room(if said > 0 { said } else { UNSAID });
        }
        worked?;
        if raw {
            // The work may have begun a capture and left it open.
            line.stream.refuse_capture("end a submission")?;
        }
        if !batch.order.is_empty() {
            line.wait_for_all(batch.order, batch.end, keep)?;
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
    fn flush(&self, (): (), _lane: &dyn Fn() -> Waker) -> Flush<()> {
        Flush::Done
    }

    fn rest(&self, reached: u64) {
        self.0.semaphores.let_go(reached);
    }

    #[inline]
    fn stamp(&self, timing: Timing) -> Result<Arc<Stamp>> {
        let line = &self.0;
        let stamps = match timing {
            Timing::Clock => &line.clock_stamps,
            _ => &line.stamps,
        };
        let make = || Stamp::new(&line.device, &line.object, timing);
        stamps.take_fit(Stamp::renew, make)
    }

    #[inline]
    fn write_stamp(recorder: &mut Recorder, stamp: &Arc<Stamp>) -> Result<()> {
        let line = &recorder.line;
        // A capture that the work has left open gets no node of ours.
        line.stream.refuse_capture("write a time")?;
        if let Some(mark) = stamp.event(line.device.timed_events())? {
            line.stream.record(&mark)?;
            recorder.put = Put::Event(mark);
        } else {
            // Before the call, which may fail with the kernel in the stream.
            recorder.keep.push(stamp.clone());
            // A kernel that the application has put there itself may have been let in before what stands before that has ended.
            let early = recorder.launched && !recorder.raw.get();
            stamp.launch(recorder.line_stream(), early)?;
        }
        recorder.count(1);
        Ok(())
    }
}
