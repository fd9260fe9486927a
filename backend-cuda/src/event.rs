//! Events and the pool they come from.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Arc, Mutex};

use cudarc::driver::sys;
use syncline_core::Result;

use crate::context::Context;
use crate::driver::{Code, Raw};
use crate::lock;
use crate::stream::Stream;

/// Plain events cost a seventh of timed ones to record.
const DISABLE_TIMING: u32 = 2;

/// The events of one device, of one kind. Dropped with the device, and what is in use then with its last mark.
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

    fn new(context: &Arc<Context>, flags: u32) -> Self {
        Self(Arc::new(Pool {
            context: context.clone(),
            flags,
            free: Mutex::new(Some(Vec::new())),
        }))
    }

    /// An event that nobody else uses while the mark exists, to be [recorded](Stream::record) once.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn take(&self) -> Result<Mark> {
        let free = lock(&self.0.free).as_mut().and_then(Vec::pop);
        match free {
            Some(event) => {
                let mark = Mark(event);
                mark.renew();
                Ok(mark)
            }
            None => self.fresh(),
        }
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
        let context = &self.0.context;
        let _bound = context.bind_apart()?;
        let mut raw = null_mut();
        // SAFETY: writes one handle; destroyed on drop.
        unsafe { context.driver().event_create(&raw mut raw, self.0.flags) }
            .map_err(|code| context.error(code))?;
        Ok(Mark(Arc::new(Event {
            context: context.clone(),
            pool: self.0.clone(),
            raw: Raw(raw),
            state: AtomicU8::new(TAKEN),
        })))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // The events have their pool, so it lets go of them first.
        let free = lock(&self.0.free).take();
        drop(free);
    }
}

/// Where events come from and go back to.
struct Pool {
    context: Arc<Context>,
    flags: u32,
    /// Those that nobody uses at present; `None` once there is no device to use them.
    free: Mutex<Option<Vec<Arc<Event>>>>,
}

/// A driver's event, in use or in its pool.
struct Event {
    context: Arc<Context>,
    pool: Arc<Pool>,
    raw: Raw<sys::CUevent_st>,
    /// One of the three below.
    state: AtomicU8,
}

/// Not recorded yet since it was taken: the driver, which would call it complete, is not asked.
const TAKEN: u8 = 0;
/// Recorded.
const RECORDED: u8 = 1;
/// Complete: never asked again.
const DONE: u8 = 2;

impl Drop for Event {
    fn drop(&mut self) {
        let _mode = self.context.allow_during_capture();
        // SAFETY: nobody has the handle any more; a pending event may be destroyed. An error means
        // that the context or the driver has gone first.
        let _ = unsafe { self.context.driver().event_destroy(self.raw.0) };
    }
}

/// A position in a stream: an event as it was recorded there once. Its event returns to the pool with
/// the last clone, without an allocation on either way.
#[derive(Clone)]
pub(crate) struct Mark(Arc<Event>);

impl Mark {
    pub(crate) fn raw(&self) -> sys::CUevent {
        self.0.raw.0
    }

    /// True if both are the same.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// For another record: nobody has another clone.
    pub(crate) fn renew(&self) {
        self.0.state.store(TAKEN, Ordering::Relaxed);
    }

    /// It stands in a stream.
    #[inline]
    pub(crate) fn note_recorded(&self) {
        self.0.state.store(RECORDED, Ordering::Release);
    }

    /// True once it stands in a stream.
    pub(crate) fn is_recorded(&self) -> bool {
        self.0.state.load(Ordering::Acquire) != TAKEN
    }

    /// True if it tells no time.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.0.pool.flags == DISABLE_TIMING
    }

    /// It is known to be complete, as something behind it is.
    #[inline]
    pub(crate) fn note_done(&self) {
        self.0.state.store(DONE, Ordering::Release);
    }

    /// True if it was found complete before. Asks no driver.
    #[inline]
    pub(crate) fn known_done(&self) -> bool {
        self.0.state.load(Ordering::Acquire) == DONE
    }

    /// True if nobody has a clone. What others did with the event before they let go of theirs comes before what is
    /// done with it now.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        let alone = Arc::strong_count(&self.0) == 1;
        if alone {
            fence(Ordering::Acquire);
        }
        alone
    }

    /// True if it is recorded and everything before it has finished. Never blocks; any or no context may be current. The caller
    /// has [allowed](Context::allow_during_capture) queries.
    ///
    /// # Errors
    /// A driver error, a lost device among them.
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

    /// As [`Mark::is_done`], for an event that is recorded again: asked each time.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn is_done_now(&self) -> Result<bool> {
        let event = &*self.0;
        // SAFETY: the event is alive.
        match unsafe { event.context.driver().event_query(event.raw.0) } {
            Ok(()) => Ok(true),
            Err(code) if code.is_not_ready() => Ok(false),
            Err(code) => Err(event.context.error(code)),
        }
    }

    /// Milliseconds from `start` to this mark, both timed; `None` if one is not complete.
    ///
    /// # Errors
    /// A driver error, a lost device among them.
    pub(crate) fn milliseconds_since(&self, start: &Self) -> Result<Option<f32>> {
        let context = &*self.0.context;
        let _bound = context.bind_apart()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive; writes one number.
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
        // If two clones go at once neither may find itself the last; the event is then destroyed
        // instead of reused, which costs a little and harms nothing.
        if self.is_alone() {
            self.give_back();
        }
    }
}

impl Mark {
    /// The last clone lets its event go.
    fn give_back(&self) {
        if let Some(free) = &mut *lock(&self.0.pool.free) {
            free.push(self.0.clone());
        }
    }
}
