//! Streams: the device's own, and those an application lends.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::{Error, Object, Result};

use crate::device::context::Context;
use crate::device::event::Mark;
use crate::device::raw_stream::RawStream;
use crate::device::stream_lock::{StreamLock, StreamLockGuard};
use crate::driver::table::{Code, Driver, Raw};

const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_LEGACY`; null means the same to the functions that this crate calls.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// A raw stream as one device uses it.
pub(crate) struct Stream {
    of: Arc<RawStream>,
    /// Names this use of the stream in errors. Each queue over one stream has a label of its own.
    object: Object,
    /// Dropped behind the raw stream, which needs it.
    context: Arc<Context>,
}

/// Whether a stream is being captured into a graph.
#[derive(Clone, Copy)]
pub(crate) enum Capture {
    None,
    /// It is.
    Active {
        /// The driver's number for this capture.
        id: u64,
        graph: sys::CUgraph,
    },
    /// It is, but nothing can be put into the graph, for this reason.
    Unusable(&'static str),
}

/// `CU_STREAM_CAPTURE_STATUS_NONE`, `…_ACTIVE`.
const NOT_CAPTURING: u32 = 0;
const ACTIVE: u32 = 1;
/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

impl Stream {
    /// A stream of our own, which keeps clear of the legacy default stream's barriers.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn new(context: &Arc<Context>, label: &str) -> Result<Self> {
        // SAFETY: writes one handle; the context is current.
        Self::made(context, label, |driver, raw| unsafe {
            driver.stream_create(raw, NON_BLOCKING)
        })
    }

    /// As [`Stream::new`], of the highest priority: its blocks go before those of other streams that have not begun yet, and
    /// it hardly shares a hardware connection with them.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn urgent(context: &Arc<Context>, label: &str) -> Result<Self> {
        Self::made(context, label, |driver, raw| {
            let (mut least, mut greatest) = (0, 0);
            // SAFETY: writes two integers; both are 0 where there are no priorities.
            unsafe { driver.ctx_get_stream_priority_range(&raw mut least, &raw mut greatest) }?;
            // SAFETY: writes one handle. The priority is one that the driver has named.
            unsafe { driver.stream_create_with_priority(raw, NON_BLOCKING, greatest) }
        })
    }

    fn made(
        context: &Arc<Context>,
        label: &str,
        make: impl FnOnce(&Driver, *mut sys::CUstream) -> Result<(), Code>,
    ) -> Result<Self> {
        let _bound = context.bind_outside_capture()?;
        let mut raw = null_mut();
        make(context.driver(), &raw mut raw).map_err(|code| context.error(code))?;
        let object = Object::new("stream", label);
        Ok(Self {
            // SAFETY: `make` has created the stream in the current context, which is this one, and
            // given its handle to nothing else. References are kept by streams, which keep their
            // context, and by what the context frees at its end.
            of: unsafe { RawStream::made(context, raw) },
            object,
            context: context.clone(),
        })
    }

    /// The stream behind a handle of the application's: one that it has made, or one of ours.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the per-thread default stream, [`Error::WrongDevice`] for a stream
    /// of another context; a driver error.
    ///
    /// # Safety
    /// `raw` is the legacy default stream or a live stream, and stays so while the result is kept.
    pub(crate) unsafe fn adopted(
        context: &Arc<Context>,
        raw: sys::CUstream,
        label: &str,
        device: &Object,
    ) -> Result<Self> {
        let raw = Self::name_legacy(raw);
        let object = Object::new("stream", label);
        if raw.addr() == PER_THREAD {
            return Err(Error::Unsupported {
                object,
                asked: "become a queue".into(),
                reason: "the per-thread default stream is another stream on each thread, and held work may be released by any; create a stream, or adopt the legacy default stream".into(),
            });
        }
        let of = match RawStream::known(context, raw) {
            Some(known) => known,
            None => {
                // The legacy default stream belongs to whatever context is current.
                if raw.addr() != LEGACY {
                    let mut owner = null_mut();
                    // SAFETY: the caller promises a live stream; writes one handle.
                    unsafe { context.driver().stream_get_ctx(raw, &raw mut owner) }
                        .map_err(|code| context.error(code))?;
                    if owner != context.raw() {
                        return Err(foreign(object, owner, device));
                    }
                }
                RawStream::adopted(context, raw)
            }
        };
        of.lend();
        Ok(Self {
            of,
            object,
            context: context.clone(),
        })
    }

    /// The same stream under its unmistakable name.
    pub(crate) fn name_legacy(raw: sys::CUstream) -> sys::CUstream {
        if raw.is_null() {
            std::ptr::without_provenance_mut(LEGACY)
        } else {
            raw
        }
    }

    #[inline]
    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    #[inline]
    pub(crate) fn raw(&self) -> sys::CUstream {
        self.of.raw()
    }

    /// The raw stream alone, to be kept by the context.
    pub(crate) fn into_raw_stream(self) -> Arc<RawStream> {
        self.of
    }

    /// True if nobody but the engine has ever had it: nothing is in it but what submissions put there.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.of.is_untouched()
    }

    pub(crate) fn is_owned(&self) -> bool {
        self.of.is_made_here()
    }

    /// The turn of the raw stream, which all who use that have in common.
    #[inline]
    pub(crate) fn stream_lock(&self) -> &StreamLock {
        self.of.stream_lock()
    }

    /// True for the legacy default stream, which cannot be captured, and which streams that synchronize with it
    /// cannot be captured beside.
    pub(crate) fn is_legacy(&self) -> bool {
        self.raw().addr() == LEGACY
    }

    /// The typed error for a result on this stream.
    pub(crate) fn error(&self, code: Code) -> Error {
        self.context.error_on(&self.object, code)
    }

    /// Unique among the streams of this process that are in use, and never 0.
    #[inline]
    pub(crate) fn domain(&self) -> u64 {
        self.of.domain()
    }

    /// Makes what is submitted later wait for `mark`, as it was recorded.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn wait(&self, mark: &Mark) -> Result<()> {
        // SAFETY: the mark keeps its event for the call, and a wait needs it no longer.
        unsafe { self.wait_raw(&Raw(mark.raw())) }
    }

    /// As [`Stream::wait`], for an event that is not ours.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// `event` is a live event.
    #[inline]
    pub(crate) unsafe fn wait_raw(&self, event: &Raw<sys::CUevent_st>) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: the stream is alive, and so is the event, as the caller promises. CUDA takes the
        // event as it is now (`cuStreamWaitEvent`): it may be recorded again, or destroyed, before
        // the wait ends.
        unsafe { driver.stream_wait_event(self.raw(), event.0, 0) }.map_err(|code| self.error(code))
    }

    /// Asks the stream whether it is idle, only to hear whether its context is still sound.
    ///
    /// # Errors
    /// A driver error, a lost device among them.
    pub(crate) fn check(&self) -> Result<()> {
        self.is_idle().map(|_| ())
    }

    /// True if all that was put into it has finished. Never blocks; any or no context may be current.
    ///
    /// # Errors
    /// A driver error, a lost device among them.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        let _mode = self.context.allow_during_capture();
        // SAFETY: the stream is alive; any thread may ask.
        match unsafe { self.context.driver().stream_query(self.raw()) } {
            Ok(()) => Ok(true),
            Err(code) if code.is_not_ready() => Ok(false),
            Err(code) => Err(self.error(code)),
        }
    }

    /// Records `mark` at the stream's present position. Waits issued on an earlier record of its event captured that
    /// at their call.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn record(&self, mark: &Mark) -> Result<()> {
        // SAFETY: both are alive. If they are not of one context, the driver refuses that.
        unsafe { self.context.driver().event_record(mark.raw(), self.raw()) }
            .map_err(|code| self.error(code))?;
        mark.note_recorded();
        Ok(())
    }

    /// Into a capture: each launch of the graph records `mark`, which the graph keeps.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn record_external(&self, mark: &Mark) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: both are alive, and the graph keeps the event (`OwnEvent::keep_in`).
        unsafe { driver.event_record_with_flags(mark.raw(), self.raw(), EXTERNAL) }
            .map_err(|code| self.error(code))
    }

    /// Into a capture: each launch of the graph waits for `mark`, which the graph keeps.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn wait_external(&self, mark: &Mark) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: both are alive, and the graph keeps the event (`OwnEvent::keep_in`).
        unsafe { driver.stream_wait_event(self.raw(), mark.raw(), EXTERNAL) }
            .map_err(|code| self.error(code))
    }

    /// Notes that the application may capture it from now on.
    pub(crate) fn lend(&self) {
        self.of.lend();
    }

    /// Whether it is being captured, as far as this thread can tell without blocking. `None` while
    /// another thread has the stream's turn: a submission is put off then, and asks again in its
    /// own turn.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn capture(&self) -> Result<Capture> {
        if self.is_untouched() {
            return Ok(Capture::None);
        }
        match self.stream_lock().try_lock_reentrant() {
            Some(locked) => self.capture_while_locked(&locked),
            None => Ok(Capture::None),
        }
    }

    /// Whether it is being captured, which stays as it is until the stream's turn is given up.
    /// Harms no capture.
    ///
    /// Only asked in the stream's turn: if a capture begins or ends on another thread meanwhile,
    /// the driver (580.159) has crashed.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn capture_while_locked(&self, locked: &StreamLockGuard<'_>) -> Result<Capture> {
        debug_assert!(
            locked.is_for(self.stream_lock()),
            "the turn of another stream"
        );
        if self.is_untouched() {
            return Ok(Capture::None);
        }
        // The legacy default stream is the current context's.
        let _bound = self.context.bind()?;
        let (mut status, mut id, mut graph) = (0, 0, null_mut());
        // SAFETY: the stream is alive, and no other thread begins or ends a capture of it in this
        // turn; writes two integers and a handle, and nothing where there is no place for it.
        let asked: Result<(), Code> = unsafe {
            self.context.driver().stream_get_capture_info(
                self.raw(),
                &raw mut status,
                &raw mut id,
                &raw mut graph,
                null_mut(),
                null_mut(),
            )
        };
        match asked {
            Ok(()) if status == NOT_CAPTURING => Ok(Capture::None),
            Ok(()) if status == ACTIVE => Ok(Capture::Active { id, graph }),
            Ok(()) => Ok(Capture::Unusable(
                "the capture has been invalidated; end it first",
            )),
            Err(code) if code.is_capture_implicit() => Ok(Capture::Unusable(
                "a stream that it synchronizes with is being captured",
            )),
            Err(code) => Err(self.error(code)),
        }
    }

    /// Refuses a stream that is being captured into a graph: an event recorded now would belong to the graph,
    /// and asking for it would break the capture.
    ///
    /// # Errors
    /// [`Error::Capturing`]; a driver error.
    #[inline]
    pub(crate) fn refuse_capture(&self, asked: &str) -> Result<()> {
        if self.is_untouched() {
            return Ok(());
        }
        self.ask_and_refuse_capture(asked)
    }

    fn ask_and_refuse_capture(&self, asked: &str) -> Result<()> {
        let reason = match self.capture()? {
            Capture::None => return Ok(()),
            Capture::Unusable(why) => why,
            Capture::Active { .. } => "timelines have no place in a graph; end the capture first",
        };
        Err(Error::Capturing {
            object: self.object.clone(),
            asked: asked.into(),
            reason: reason.into(),
        })
    }
}

/// The error for a stream of the context `owner`.
pub(crate) fn foreign(stream: Object, owner: sys::CUcontext, device: &Object) -> Error {
    Error::WrongDevice {
        object: stream,
        owner: Object::new("context", &format!("{owner:p}")),
        asked: device.clone(),
    }
}
