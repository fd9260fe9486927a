//! Events and the pool they come from.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cudarc::driver::sys;
use syncline_core::Result;

use crate::context::Context;
use crate::driver::{Code, Raw};
use crate::lock;
use crate::stream::Stream;

/// Plain events cost a seventh of timed ones to record.
const DISABLE_TIMING: u32 = 2;

/// The events of one device that nobody uses at present, of one kind.
pub(crate) struct Pool {
    context: Arc<Context>,
    flags: u32,
    free: Mutex<Vec<Arc<Event>>>,
    /// For events to find the way back; they do not keep the pool alive.
    this: Weak<Self>,
}

impl Pool {
    /// Events that only tell that they are reached.
    pub(crate) fn plain(context: &Arc<Context>) -> Arc<Self> {
        Self::new(context, DISABLE_TIMING)
    }

    /// Events that also tell when.
    pub(crate) fn timed(context: &Arc<Context>) -> Arc<Self> {
        Self::new(context, 0)
    }

    fn new(context: &Arc<Context>, flags: u32) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            context: context.clone(),
            flags,
            free: Mutex::default(),
            this: this.clone(),
        })
    }

    /// An event that nobody else uses while the mark exists, to be [recorded](Stream::record) once.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn take(&self) -> Result<Mark> {
        let free = lock(&self.free).pop();
        let event = match free {
            Some(event) => event,
            None => Arc::new(self.create()?),
        };
        event.done.store(false, Ordering::Relaxed);
        Ok(Mark(event))
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
    pub(crate) fn fresh(&self) -> Result<Mark> {
        Ok(Mark(Arc::new(self.create()?)))
    }

    fn create(&self) -> Result<Event> {
        let _bound = self.context.bind_apart()?;
        let mut raw = null_mut();
        // SAFETY: writes one handle; destroyed on drop.
        unsafe { self.context.driver().event_create(&raw mut raw, self.flags) }
            .map_err(|code| self.context.error(code))?;
        Ok(Event {
            context: self.context.clone(),
            pool: self.this.clone(),
            raw: Raw(raw),
            done: AtomicBool::new(false),
        })
    }
}

/// A driver's event, in use or in its pool.
struct Event {
    context: Arc<Context>,
    pool: Weak<Pool>,
    raw: Raw<sys::CUevent_st>,
    /// The driver has said that it is complete: never asked again.
    done: AtomicBool,
}

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

    /// True if it was found complete before. Asks no driver.
    pub(crate) fn known_done(&self) -> bool {
        self.0.done.load(Ordering::Acquire)
    }

    /// True if everything before it has finished. Never blocks; any or no context may be current. The caller
    /// has [allowed](Context::allow_during_capture) queries.
    ///
    /// # Errors
    /// A driver error, a lost device among them.
    pub(crate) fn is_done(&self) -> Result<bool> {
        if self.known_done() {
            return Ok(true);
        }
        let done = self.is_done_now()?;
        if done {
            self.0.done.store(true, Ordering::Release);
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
    fn drop(&mut self) {
        // If two clones go at once neither may find itself the last; the event is then destroyed
        // instead of reused, which costs a little and harms nothing.
        if Arc::get_mut(&mut self.0).is_none() {
            return;
        }
        if let Some(pool) = self.0.pool.upgrade() {
            lock(&pool.free).push(self.0.clone());
        }
    }
}
