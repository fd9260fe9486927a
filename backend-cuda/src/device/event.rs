//! CUDA events, and the pools that recycle them.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::mem::forget;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering, fence};

use cudarc::driver::sys;
use syncline_core::backend::{Mutex, StandbyThread};
use syncline_core::{Result, error::Object};

use crate::device::context::Context;
use crate::driver::table::{Code, Driver, EventHandle, Raw};

/// `CU_EVENT_DISABLE_TIMING`. Recording such an event takes a seventh of the time of a timed one.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`. CUDA requires [`DISABLE_TIMING`] with it.
const INTERPROCESS: u32 = 4;

/// A pool of events of one device and one kind.
///
/// The events are destroyed together, with the device or with the last mark, whichever is later.
#[derive(Clone)]
pub(crate) struct Events(Arc<Pool>);

impl Events {
    /// Events without timing.
    pub(crate) fn plain(context: &Arc<Context>) -> Self {
        Self::new(context, DISABLE_TIMING)
    }

    /// Events with timing.
    pub(crate) fn timed(context: &Arc<Context>) -> Self {
        Self::new(context, 0)
    }

    /// An event that other processes can open. It is destroyed with its last mark.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn interprocess(context: &Arc<Context>) -> Result<Mark> {
        Self::new(context, DISABLE_TIMING | INTERPROCESS).fresh()
    }

    /// Opens an event of another process by its handle. It is destroyed with its last mark.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// `handle` is that of an interprocess event of another process. That process lives, and keeps
    /// the event, as long as a mark of it exists or work given to the driver waits for it.
    pub(crate) unsafe fn opened(context: &Arc<Context>, handle: EventHandle) -> Result<Mark> {
        let none = Code::not_supported("cuIpcOpenEventHandle");
        Self::new(context, DISABLE_TIMING | INTERPROCESS).create(|driver, raw, _| {
            // SAFETY: writes one handle, which the pool destroys. The caller guarantees that the
            // exporter keeps the event.
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

    /// Takes an event that has no other user while the mark exists.
    ///
    /// It may be recorded once.
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

    /// Takes a free event of this pool into use and returns its first mark.
    fn hand_out(&self, event: NonNull<Event>) -> Mark {
        // Dropped with the last mark (`return_to_pool`), so each event in use keeps the pool.
        forget(self.0.clone());
        // SAFETY: from this pool's list. Only the end of the pool frees its events.
        unsafe { event.as_ref() }.users.store(1, Ordering::Relaxed);
        let mark = Mark(event);
        mark.renew();
        mark
    }

    /// Creates an event that was never recorded. It has no other user while the mark exists.
    ///
    /// # Errors
    /// A driver error.
    #[cold]
    pub(crate) fn fresh(&self) -> Result<Mark> {
        // SAFETY: writes one handle of an event of the current context, which the pool destroys.
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

/// The events of a pool, and how to create more.
struct Pool {
    context: Arc<Context>,
    flags: u32,
    events: Mutex<List>,
}

/// All events of a pool. They are destroyed with the pool.
#[derive(Default)]
struct List {
    all: Vec<NonNull<Event>>,
    /// Events without a user.
    free: Vec<NonNull<Event>>,
}

// SAFETY: the list owns the events, which are `Send` (below).
unsafe impl Send for List {}

impl Drop for Pool {
    fn drop(&mut self) {
        let _mode = self.context.allow_during_capture();
        let all = std::mem::take(&mut *self.events.lock()).all;
        for event in all {
            // SAFETY: leaked from a box at its creation, and in the list once. There are no other
            // references, because a mark would keep the pool.
            let event = unsafe { Box::from_raw(event.as_ptr()) };
            // SAFETY: a live event that is destroyed only here, in a context that the pool keeps.
            // CUDA allows destroying an event whose record is pending or that a stream waits for
            // (`cuEventDestroy`). An error means that the context or the driver is already gone.
            let _ = unsafe { self.context.driver().event_destroy(event.raw.0) };
        }
    }
}

/// An event of the driver, in use or free.
struct Event {
    /// Outlives the event.
    pool: *const Pool,
    raw: Raw<sys::CUevent_st>,
    /// The number of marks.
    users: AtomicUsize,
    /// [`TAKEN`], [`RECORDED`] or [`DONE`].
    state: AtomicU8,
    /// True if the event has no timing.
    plain: bool,
}

// SAFETY: `pool` is a shared reference to a `Pool`, which is `Sync`. The other fields are `Send`.
unsafe impl Send for Event {}
// SAFETY: as for `Send`. The other fields are `Sync`.
unsafe impl Sync for Event {}

impl Event {
    #[inline]
    fn pool(&self) -> &Pool {
        // SAFETY: dropping the pool frees its events, so the pool outlives this event.
        unsafe { &*self.pool }
    }

    #[inline]
    fn context(&self) -> &Context {
        &self.pool().context
    }

    /// Asks the driver whether the last record is complete.
    #[inline]
    fn query(&self) -> Result<bool, Code> {
        // SAFETY: the pool destroys the driver's event together with this struct.
        match unsafe { self.context().driver().event_query(self.raw.0) } {
            Ok(()) => Ok(true),
            Err(code) if code.is_not_ready() => Ok(false),
            Err(code) => Err(code),
        }
    }
}

/// Taken and not recorded yet. The driver would report it complete, so it is not queried.
const TAKEN: u8 = 0;
/// Recorded.
const RECORDED: u8 = 1;
/// Complete. Never queried again.
const DONE: u8 = 2;

/// A position in a stream: one record of an event. Cheap to clone, without an allocation.
///
/// The event returns to its pool with the last clone.
pub(crate) struct Mark(NonNull<Event>);

// SAFETY: a counted shared reference to an `Event`, which is `Sync`.
unsafe impl Send for Mark {}
// SAFETY: as for `Send`.
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
        // SAFETY: a mark owns one of the references that keep the pool (see `hand_out`). The pool
        // frees its events when it is dropped.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(crate) fn raw(&self) -> sys::CUevent {
        self.event().raw.0
    }

    /// True if both are marks of the same event.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// Prepares the event for another record. The caller has its only mark.
    #[inline]
    pub(crate) fn renew(&self) {
        self.event().state.store(TAKEN, Ordering::Release);
    }

    /// Notes that the event was recorded in a stream.
    #[inline]
    pub(crate) fn note_recorded(&self) {
        self.event().state.store(RECORDED, Ordering::Release);
    }

    /// True if the event was recorded in a stream.
    pub(crate) fn is_recorded(&self) -> bool {
        self.event().state.load(Ordering::Acquire) != TAKEN
    }

    /// True if the event has no timing.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.event().plain
    }

    /// Notes that the event is complete, because a later one is.
    #[inline]
    pub(crate) fn note_done(&self) {
        self.event().state.store(DONE, Ordering::Release);
    }

    /// True if the event is known to be complete. Does not query the driver.
    #[inline]
    pub(crate) fn is_known_done(&self) -> bool {
        self.event().state.load(Ordering::Acquire) == DONE
    }

    /// True if this is the only mark.
    ///
    /// Acquire ordering: what other threads did with the event before they dropped their marks
    /// happened before this call.
    #[inline]
    pub(crate) fn is_unshared(&self) -> bool {
        let alone = self.event().users.load(Ordering::Relaxed) == 1;
        if alone {
            fence(Ordering::Acquire);
        }
        alone
    }

    /// Clones the mark. Faster than `clone` for the only mark, because no other thread counts then.
    #[inline]
    pub(crate) fn clone_cheaply(&mut self) -> Self {
        if self.event().users.load(Ordering::Relaxed) != 1 {
            return self.clone();
        }
        self.event().users.store(2, Ordering::Relaxed);
        Self(self.0)
    }

    /// True if the event is recorded and complete. Never blocks. The current context is irrelevant.
    ///
    /// The caller has [allowed](Context::allow_during_capture) queries.
    ///
    /// # Errors
    /// A driver error, including a lost device.
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

    /// Same as [`Mark::is_done`], but always queries, as the event may be recorded again.
    ///
    /// # Errors
    /// Same errors as [`Mark::is_done`].
    pub(crate) fn is_done_now(&self) -> Result<bool> {
        let event = self.event();
        event.query().map_err(|code| event.context().error(code))
    }

    /// Milliseconds from `start` to this mark, or `None` if one of them is not complete.
    ///
    /// Both events have timing.
    ///
    /// # Errors
    /// A driver error, including a lost device.
    pub(crate) fn milliseconds_since(&self, start: &Self) -> Result<Option<f32>> {
        let context = self.event().context();
        let _bound = context.bind_outside_capture()?;
        let mut milliseconds = 0.0;
        // SAFETY: both marks keep their events. Writes one number.
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
    /// Returns the event to its pool after the last mark was dropped.
    fn return_to_pool(&self) {
        // What other threads did with the event happens before its next use.
        fence(Ordering::Acquire);
        // SAFETY: takes back the reference that `hand_out` forgot for this event. This runs once,
        // for the last mark. The event is not used after `pool` is dropped.
        let pool = unsafe { Arc::from_raw(self.event().pool) };
        pool.events.lock().free.push(self.0);
    }
}

/// Events that destroyed graphs no longer need.
///
/// The driver reports this in a callback, where no event may be destroyed.
#[derive(Default)]
pub(crate) struct ReleasedEvents {
    events: Mutex<Vec<Mark>>,
    /// Destroys events of graphs that outlive their device.
    thread: StandbyThread,
}

impl ReleasedEvents {
    /// Starts the thread, unless it has been started.
    ///
    /// # Errors
    /// [`Error::Native`](syncline_core::Error::Native) if the system has no thread.
    pub(crate) fn start(&self, device: &Object) -> Result<()> {
        self.thread.start("syncline-graphs", device)
    }

    pub(crate) fn push(&self, event: Mark) {
        self.events.lock().push(event);
    }

    /// Returns the events to their pool.
    pub(crate) fn recycle(&self) {
        let events = std::mem::take(&mut *self.events.lock());
        drop(events);
    }

    /// Destroys the events on another thread. For callbacks, which must not call the driver.
    pub(crate) fn destroy_elsewhere(self) {
        let Self { events, thread } = self;
        thread.run(move || drop(events));
    }
}
