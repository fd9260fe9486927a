//! Events and the pool they come from.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::mem::forget;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering, fence};

use cudarc::driver::sys;
use syncline_core::Result;
use syncline_core::backend::Mutex;

use crate::device::context::Context;
use crate::device::stream::Stream;
use crate::driver::table::{Code, Driver, EventHandle, Raw};

/// Plain events cost a seventh of timed ones to record.
const DISABLE_TIMING: u32 = 2;
/// Other processes can open it. CUDA asks for [`DISABLE_TIMING`] with it.
const INTERPROCESS: u32 = 4;

/// The events of one device, of one kind. They are destroyed with the device, all together, or with the last mark where that
/// is later.
#[derive(Clone)]
pub(crate) struct Events(Arc<Pool>);

impl Events {
    /// Events that only tell that they are reached.
    pub(crate) fn plain(context: &Arc<Context>) -> Self {
        Self::new(context, DISABLE_TIMING)
    }

    /// Events that also tell when.
    pub(crate) fn timed(context: &Arc<Context>) -> Self {
        Self::new(context, 0)
    }

    /// An event that other processes can open. It is destroyed with the last mark of it.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn interprocess(context: &Arc<Context>) -> Result<Mark> {
        Self::new(context, DISABLE_TIMING | INTERPROCESS).fresh()
    }

    /// The event behind another process's handle. It is let go with the last mark of it.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// `handle` is that of an interprocess event of another process, which has it, and lives, for as long as there is a mark of it, or something
    /// that the driver was given waits for it.
    pub(crate) unsafe fn opened(context: &Arc<Context>, handle: EventHandle) -> Result<Mark> {
        let none = Code::not_supported("cuIpcOpenEventHandle");
        Self::new(context, DISABLE_TIMING | INTERPROCESS).create(|driver, raw, _| {
            // SAFETY: writes one handle, which the pool destroys. That the exporter keeps the event
            // is the caller's promise.
            unsafe { driver.ipc_open_event_handle(raw, handle) }.unwrap_or(Err(none))
        })
    }

    fn new(context: &Arc<Context>, flags: u32) -> Self {
        Self(Arc::new(Pool {
            context: context.clone(),
            flags,
            events: Mutex::default(),
        }))
    }

    /// An event that nobody else uses while the mark exists, to be [recorded](Stream::record) once.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn take(&self) -> Result<Mark> {
        let free = self.0.events.lock().free.pop();
        match free {
            Some(event) => Ok(self.hand_out(event)),
            None => self.fresh(),
        }
    }

    /// The first mark of an event of this pool that nobody has.
    fn hand_out(&self, event: NonNull<Event>) -> Mark {
        // Given back with the last mark: the pool lives for as long as there is one.
        forget(self.0.clone());
        // SAFETY: from this pool's list, whose events are freed by the pool's end alone.
        unsafe { event.as_ref() }.users.store(1, Ordering::Relaxed);
        let mark = Mark(event);
        mark.renew();
        mark
    }

    /// Records such an event at the stream's present position. The context is current if the stream is a default
    /// stream.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn record(&self, stream: &Stream) -> Result<Mark> {
        let mark = self.take()?;
        stream.record(&mark)?;
        Ok(mark)
    }

    /// An event that was never recorded, and which nobody else uses while the mark exists.
    ///
    /// # Errors
    /// A driver error.
    #[cold]
    pub(crate) fn fresh(&self) -> Result<Mark> {
        // SAFETY: writes one handle, of an event of the current context, which the pool destroys.
        self.create(|driver, raw, flags| unsafe { driver.event_create(raw, flags) })
    }

    fn create(
        &self,
        make: impl FnOnce(&Driver, *mut sys::CUevent, u32) -> Result<(), Code>,
    ) -> Result<Mark> {
        let context = &self.0.context;
        let _bound = context.bind_outside_capture()?;
        let mut raw = null_mut();
        make(context.driver(), &raw mut raw, self.0.flags).map_err(|code| context.error(code))?;
        let event = NonNull::from(Box::leak(Box::new(Event {
            pool: Arc::as_ptr(&self.0),
            raw: Raw(raw),
            users: AtomicUsize::new(0),
            state: AtomicU8::new(TAKEN),
            plain: self.0.flags == DISABLE_TIMING,
        })));
        self.0.events.lock().all.push(event);
        Ok(self.hand_out(event))
    }
}

/// Where events come from and go back to.
struct Pool {
    context: Arc<Context>,
    flags: u32,
    events: Mutex<List>,
}

/// A pool's events, which are destroyed with it.
#[derive(Default)]
struct List {
    all: Vec<NonNull<Event>>,
    /// Those that nobody uses at present.
    free: Vec<NonNull<Event>>,
}

// SAFETY: it owns the events, and those are `Send` (below).
unsafe impl Send for List {}

impl Drop for Pool {
    fn drop(&mut self) {
        let _mode = self.context.allow_during_capture();
        let all = std::mem::take(&mut *self.events.lock()).all;
        for event in all {
            // SAFETY: leaked from a box where it was made, and in the list once. No reference is
            // left: a mark would keep the pool.
            let event = unsafe { Box::from_raw(event.as_ptr()) };
            // SAFETY: a live event, destroyed here alone, in a context that the pool keeps. CUDA
            // lets an event go whose record is pending, or that a stream waits for
            // (`cuEventDestroy`). An error means that the context or the driver has gone first.
            let _ = unsafe { self.context.driver().event_destroy(event.raw.0) };
        }
    }
}

/// A driver's event, in use or in its pool.
struct Event {
    /// Outlives it.
    pool: *const Pool,
    raw: Raw<sys::CUevent_st>,
    /// How many marks there are of it.
    users: AtomicUsize,
    /// One of the three below.
    state: AtomicU8,
    /// It tells no time.
    plain: bool,
}

// SAFETY: `pool` stands for a shared reference to a `Pool`, which is `Sync`; the rest is `Send`.
unsafe impl Send for Event {}
// SAFETY: as for sending; the rest is `Sync`.
unsafe impl Sync for Event {}

impl Event {
    #[inline]
    fn pool(&self) -> &Pool {
        // SAFETY: the pool frees its events at its own end, so it is there for as long as this.
        unsafe { &*self.pool }
    }

    #[inline]
    fn context(&self) -> &Context {
        &self.pool().context
    }

    /// What the driver says of its last record.
    #[inline]
    fn query(&self) -> Result<bool, Code> {
        // SAFETY: the pool destroys the driver's event together with this.
        match unsafe { self.context().driver().event_query(self.raw.0) } {
            Ok(()) => Ok(true),
            Err(code) if code.is_not_ready() => Ok(false),
            Err(code) => Err(code),
        }
    }
}

/// Not recorded yet since it was taken: the driver, which would call it complete, is not asked.
const TAKEN: u8 = 0;
/// Recorded.
const RECORDED: u8 = 1;
/// Complete: never asked again.
const DONE: u8 = 2;

/// A position in a stream: an event as it was recorded there once. Its event returns to the pool with
/// the last clone, without an allocation on either way.
pub(crate) struct Mark(NonNull<Event>);

// SAFETY: a shared reference, counted in the event, to what may be used from any thread.
unsafe impl Send for Mark {}
// SAFETY: as for sending.
unsafe impl Sync for Mark {}

impl Clone for Mark {
    #[inline]
    fn clone(&self) -> Self {
        self.event().users.fetch_add(1, Ordering::Relaxed);
        Self(self.0)
    }
}

impl Mark {
    #[inline]
    fn event(&self) -> &Event {
        // SAFETY: a mark holds one of the references that keep the pool (see `hand_out`), and the
        // pool frees its events at its own end.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn raw(&self) -> sys::CUevent {
        self.event().raw.0
    }

    /// True if both are the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Makes the event ready for another record. The caller has its only mark.
    #[inline]
    pub(crate) fn renew(&self) {
        self.event().state.store(TAKEN, Ordering::Release);
    }

    /// It stands in a stream.
    #[inline]
    pub(crate) fn note_recorded(&self) {
        self.event().state.store(RECORDED, Ordering::Release);
    }

    /// True once it stands in a stream.
    pub(crate) fn is_recorded(&self) -> bool {
        self.event().state.load(Ordering::Acquire) != TAKEN
    }

    /// True if it tells no time.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.event().plain
    }

    /// It is known to be complete, as something behind it is.
    #[inline]
    pub(crate) fn note_done(&self) {
        self.event().state.store(DONE, Ordering::Release);
    }

    /// True if it was found complete before. Asks no driver.
    #[inline]
    pub(crate) fn is_known_done(&self) -> bool {
        self.event().state.load(Ordering::Acquire) == DONE
    }

    /// True if nobody has a clone. What others did with the event before they let go of theirs comes before what is
    /// done with it now.
    #[inline]
    pub(crate) fn is_unshared(&self) -> bool {
        let alone = self.event().users.load(Ordering::Relaxed) == 1;
        if alone {
            fence(Ordering::Acquire);
        }
        alone
    }

    /// A clone, which costs less while there is none yet: no other thread counts then.
    #[inline]
    pub(crate) fn clone_cheaply(&mut self) -> Self {
        if self.event().users.load(Ordering::Relaxed) != 1 {
            return self.clone();
        }
        self.event().users.store(2, Ordering::Relaxed);
        Self(self.0)
    }

    /// True if it is recorded and everything before it has finished. Never blocks; any or no context may be current. The caller
    /// has [allowed](Context::allow_during_capture) queries.
    ///
    /// # Errors
    /// A driver error, a lost device among them.
    pub(crate) fn is_done(&self) -> Result<bool> {
        match self.event().state.load(Ordering::Acquire) {
            TAKEN => return Ok(false),
            DONE => return Ok(true),
            _ => {}
        }
        let done = self.is_done_now()?;
        if done {
            self.note_done();
        }
        Ok(done)
    }

    /// As [`Mark::is_done`], for an event that is recorded again: asked each time.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn is_done_now(&self) -> Result<bool> {
        let event = self.event();
        event.query().map_err(|code| event.context().error(code))
    }

    /// Milliseconds from `start` to this mark, both timed; `None` if one is not complete.
    ///
    /// # Errors
    /// A driver error, a lost device among them.
    pub(crate) fn milliseconds_since(&self, start: &Self) -> Result<Option<f32>> {
        let context = self.event().context();
        let _bound = context.bind_outside_capture()?;
        let mut milliseconds = 0.0;
        // SAFETY: both marks keep their events; writes one number.
        let asked: Result<(), Code> = unsafe {
            context
                .driver()
                .event_elapsed_time(&raw mut milliseconds, start.raw(), self.raw())
        };
        match asked {
            Ok(()) => Ok(Some(milliseconds)),
            Err(code) if code.is_not_ready() => Ok(None),
            Err(code) => Err(context.error(code)),
        }
    }
}

impl Drop for Mark {
    #[inline]
    fn drop(&mut self) {
        if self.event().users.fetch_sub(1, Ordering::Release) == 1 {
            self.return_to_pool();
        }
    }
}

impl Mark {
    /// The last clone lets its event go.
    fn return_to_pool(&self) {
        // What others did with the event comes before what is done with it from here on.
        fence(Ordering::Acquire);
        // SAFETY: takes back the reference that `hand_out` forgot for this event, once: only the
        // last of its marks comes here. The event is not used after `pool` is dropped.
        let pool = unsafe { Arc::from_raw(self.event().pool) };
        pool.events.lock().free.push(self.0);
    }
}

/// Events that graphs have let go of. The driver says so in a callback, where nothing may be destroyed.
#[derive(Default)]
pub(crate) struct ReleasedEvents(Mutex<Vec<Mark>>);

impl ReleasedEvents {
    pub(crate) fn push(&self, event: Mark) {
        self.0.lock().push(event);
    }

    /// Gives the events back to their pool.
    pub(crate) fn recycle(&self) {
        let events = std::mem::take(&mut *self.0.lock());
        drop(events);
    }
}
