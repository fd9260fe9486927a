//! CUDA events, and the pools that recycle them.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::any::Any;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use cudarc::driver::sys;
use syncline_core::backend::kit::{Mutex, Recycled, StandbyThread};
use syncline_core::{Result, error::Object};

use crate::device::context::Context;
use crate::driver::table::{Code, Driver, EventHandle, Raw};

/// `CU_EVENT_DISABLE_TIMING`. Recording such an event takes a seventh of the time of a timed one.
const DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`. CUDA requires [`DISABLE_TIMING`] with it.
const INTERPROCESS: u32 = 4;

/// A pool of events of one device and one kind. Cheap to clone.
///
/// It keeps its events until a trim, and hands out those that no mark refers to.
#[derive(Clone)]
pub(crate) struct Events(Arc<Pool>);

struct Pool {
    context: Arc<Context>,
    flags: u32,
    events: Recycled<Event>,
}

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
        let event = Event::new(context, DISABLE_TIMING | INTERPROCESS)?;
        Ok(Mark(Arc::new(event)))
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
        let event = Event::create(context, DISABLE_TIMING | INTERPROCESS, |driver, raw, _| {
            // SAFETY: writes one handle, which the `Event` owns. The caller guarantees that the
            // exporter keeps the event.
            unsafe { driver.ipc_open_event_handle(raw, handle) }.unwrap_or(Err(none))
        })?;
        Ok(Mark(Arc::new(event)))
    }

    fn new(context: &Arc<Context>, flags: u32) -> Self {
        Self(Arc::new(Pool {
            context: context.clone(),
            flags,
            events: Recycled::default(),
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
        let pool = &*self.0;
        let renew = |event: &Event| {
            event.renew();
            true
        };
        let taken = pool
            .events
            .take_fit(renew, || Event::new(&pool.context, pool.flags));
        taken.map(Mark)
    }

    /// Destroys the events without a mark. Returns the number of the others.
    pub(crate) fn trim(&self) -> usize {
        self.0.events.trim()
    }

    /// Creates an event that was never recorded. It has no other user while the mark exists.
    ///
    /// # Errors
    /// A driver error.
    #[cold]
    pub(crate) fn fresh(&self) -> Result<Mark> {
        let event = Event::new(&self.0.context, self.0.flags)?;
        Ok(Mark(self.0.events.add(event)))
    }
}

/// An event of the driver, which it destroys at its drop.
struct Event {
    context: Arc<Context>,
    raw: Raw<sys::CUevent_st>,
    /// [`TAKEN`], [`RECORDED`] or [`DONE`].
    state: AtomicU8,
    /// True if the event has no timing.
    plain: bool,
}

impl Event {
    fn new(context: &Arc<Context>, flags: u32) -> Result<Self> {
        // SAFETY: writes one handle, which the `Event` owns. The context is current.
        let make = |driver: &Driver, raw, flags| unsafe { driver.event_create(raw, flags) };
        Self::create(context, flags, make)
    }

    /// Makes an event with `make`, which gets the place for the handle and the flags.
    ///
    /// # Errors
    /// A driver error.
    fn create(
        context: &Arc<Context>,
        flags: u32,
        make: impl FnOnce(&Driver, *mut sys::CUevent, u32) -> Result<(), Code>,
    ) -> Result<Self> {
        let _bound = context.bind_outside_capture()?;
        let mut raw = null_mut();
        make(context.driver(), &raw mut raw, flags).map_err(|code| context.error(code))?;
        Ok(Self {
            context: context.clone(),
            raw: Raw(raw),
            state: AtomicU8::new(TAKEN),
            plain: flags == DISABLE_TIMING,
        })
    }

    /// Prepares the event for another record.
    #[inline]
    fn renew(&self) {
        self.state.store(TAKEN, Ordering::Release);
    }

    /// Asks the driver whether the last record is complete.
    #[inline]
    fn query(&self) -> Result<bool, Code> {
        // SAFETY: the event lives as long as this struct.
        match unsafe { self.context.driver().event_query(self.raw.0) } {
            Ok(()) => Ok(true),
            Err(code) if code.is_not_ready() => Ok(false),
            Err(code) => Err(code),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        let Some(_calls) = self.context.for_destroy() else {
            return;
        };
        let _mode = self.context.allow_during_capture();
        // SAFETY: a live event that is destroyed only here, in a context that the struct keeps.
        // CUDA allows destroying an event whose record is pending or that a stream waits for
        // (`cuEventDestroy`). An error means that the context or the driver is already gone.
        let _ = unsafe { self.context.driver().event_destroy(self.raw.0) };
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
/// The event can be used again once its last mark is dropped.
#[derive(Clone)]
pub(crate) struct Mark(Arc<Event>);

impl Mark {
    #[inline]
    pub(crate) fn raw(&self) -> sys::CUevent {
        self.0.raw.0
    }

    /// The event of an [`interprocess`](Events::interprocess) mark, to keep it alive.
    ///
    /// Leaks the event in a context that is adopted without an owner, because the application may
    /// destroy that context.
    pub(crate) fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        if self.0.context.is_unowned() {
            std::mem::forget(self.0.clone());
        }
        self.0.clone()
    }

    /// True if both are marks of the same event.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Prepares the event for another record. The caller has its only mark.
    #[inline]
    pub(crate) fn renew(&self) {
        self.0.renew();
    }

    /// Notes that the event was recorded in a stream.
    #[inline]
    pub(crate) fn note_recorded(&self) {
        self.0.state.store(RECORDED, Ordering::Release);
    }

    /// True if the event was recorded in a stream.
    pub(crate) fn is_recorded(&self) -> bool {
        self.0.state.load(Ordering::Acquire) != TAKEN
    }

    /// True if the event has no timing.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.0.plain
    }

    /// Notes that the event is complete, because a later one is.
    #[inline]
    pub(crate) fn note_done(&self) {
        self.0.state.store(DONE, Ordering::Release);
    }

    /// True if the event is known to be complete. Does not query the driver.
    #[inline]
    pub(crate) fn is_known_done(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == DONE
    }

    /// True if this is the only mark of the event. A pool has handed out the event, and exists.
    #[inline]
    pub(crate) fn is_unshared(&self) -> bool {
        Recycled::is_unshared(&self.0)
    }

    /// True if the event is recorded and complete. Never blocks. The current context is irrelevant.
    ///
    /// The caller has [allowed](Context::allow_during_capture) queries.
    ///
    /// # Errors
    /// A driver error, including a lost device.
    pub(crate) fn is_done(&self) -> Result<bool> {
        match self.0.state.load(Ordering::Acquire) {
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
        self.0.query().map_err(|code| self.0.context.error(code))
    }

    /// Milliseconds from `start` to this mark, or `None` if one of them is not complete.
    ///
    /// Both events have timing.
    ///
    /// # Errors
    /// A driver error, including a lost device.
    pub(crate) fn milliseconds_since(&self, start: &Self) -> Result<Option<f32>> {
        let context = &self.0.context;
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

    /// Drops the marks, so that the pool can use the events again.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use crate::driver::emulated;

    #[test]
    fn an_event_is_used_again_once_its_last_mark_is_dropped() {
        let device = emulated::device();
        let events = device.plain_events();
        let mark = events.take().unwrap();
        mark.note_recorded();
        let (raw, clone) = (mark.raw(), mark.clone());
        assert!(!mark.is_unshared());
        drop(mark);
        assert!(clone.is_unshared());
        let other = events.take().unwrap();
        assert_ne!(other.raw(), raw, "the event has a mark");
        drop(clone);
        let again = events.take().unwrap();
        assert_eq!(again.raw(), raw);
        assert!(!again.is_recorded());
        assert!(again.is_unshared());
    }

    /// The emulated driver ends the process when a destroyed event is used.
    #[test]
    fn events_are_destroyed_with_the_device_or_their_last_mark() {
        let device = emulated::device();
        let mark = device.plain_events().take().unwrap();
        let unused = device.plain_events().fresh().unwrap().raw();
        drop(device);
        assert!(emulated::is_destroyed(unused));
        mark.note_recorded();
        assert!(mark.is_done().is_ok());
        let raw = mark.raw();
        let clone = mark.clone();
        drop(mark);
        assert!(!emulated::is_destroyed(raw));
        drop(clone);
        assert!(emulated::is_destroyed(raw));
    }
}
