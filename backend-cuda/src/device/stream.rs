//! Streams, created by this crate or adopted from the application.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::ptr::{null, null_mut};
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::{Error, Result, error::Object};

use crate::device::context::Context;
use crate::device::event::{Events, Mark};
use crate::device::raw_stream::RawStream;
use crate::device::stream_lock::{StreamLock, StreamLockGuard};
use crate::driver::table::{Code, Driver, Raw};

const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_LEGACY`. Null means the same to all functions on streams that this crate calls.
const LEGACY: usize = 1;
/// `CU_STREAM_PER_THREAD`.
const PER_THREAD: usize = 2;

/// A raw stream as used by one device.
pub(crate) struct Stream {
    of: Arc<RawStream>,
    /// The name of the stream in errors. Each queue over one raw stream has its own label.
    object: Object,
    /// Dropped after the raw stream, which needs it.
    context: Arc<Context>,
}

/// The capture state of a stream.
#[derive(Clone, Copy)]
pub(crate) enum Capture {
    None,
    /// The stream is being captured into a graph.
    Active {
        /// The driver's number for this capture.
        id: u64,
        graph: sys::CUgraph,
    },
    /// The stream cannot be used because of a capture, for this reason.
    Unusable(&'static str),
}

/// `CU_STREAM_CAPTURE_STATUS_NONE` and `…_ACTIVE`.
const NOT_CAPTURING: u32 = 0;
const ACTIVE: u32 = 1;
/// `CU_EVENT_RECORD_EXTERNAL` and `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

impl Stream {
    /// Creates a stream that does not synchronize with the legacy default stream.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn new(context: &Arc<Context>, label: &str) -> Result<Self> {
        // SAFETY: writes one handle. The context is current.
        Self::made(context, label, |driver, raw| unsafe {
            driver.stream_create(raw, NON_BLOCKING)
        })
    }

    /// Creates a stream of the highest priority.
    ///
    /// Its blocks run before blocks of other streams that have not started. It rarely shares a
    /// hardware connection with other streams.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn urgent(context: &Arc<Context>, label: &str) -> Result<Self> {
        Self::made(context, label, |driver, raw| {
            let (mut least, mut greatest) = (0, 0);
            // SAFETY: writes two integers. Both are 0 if the device has no priorities.
            unsafe { driver.ctx_get_stream_priority_range(&raw mut least, &raw mut greatest) }?;
            // SAFETY: writes one handle. The driver returned this priority.
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
            // SAFETY: `make` has created the stream in the current context, which is `context`.
            // Nothing else has its handle. Only streams, which keep the context, and deferred
            // frees, which the context frees at its end, keep references to it.
            of: unsafe { RawStream::made(context.driver(), context.raw(), raw) },
            object,
            context: context.clone(),
        })
    }

    /// The stream with a raw handle, which the application or this crate has created.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for the per-thread default stream, [`Error::WrongDevice`] for a
    /// stream of another context, or a driver error.
    ///
    /// # Safety
    /// `raw` is the legacy default stream or a live stream, and stays alive while the result is
    /// kept.
    pub(crate) unsafe fn adopted(
        context: &Arc<Context>,
        raw: sys::CUstream,
        label: &str,
        device: &Object,
    ) -> Result<Self> {
        let raw = Self::name_legacy(raw);
        let object = Object::new("stream", label);
        if raw.addr() == PER_THREAD {
            return Err(Error::unsupported(
                object,
                "become a queue",
                "the per-thread default stream is another stream on each thread, and held work may be released by any; create a stream, or adopt the legacy default stream",
            ));
        }
        let of = match RawStream::in_use(context.raw(), raw) {
            Some(entry) => entry,
            None => {
                // The legacy default stream belongs to the current context.
                if raw.addr() != LEGACY {
                    let mut owner = null_mut();
                    // SAFETY: the caller guarantees a live stream. Writes one handle.
                    unsafe { context.driver().stream_get_ctx(raw, &raw mut owner) }
                        .map_err(|code| context.error(code))?;
                    if owner != context.raw() {
                        return Err(foreign(object, owner, device));
                    }
                }
                RawStream::adopted(context.raw(), raw)
            }
        };
        of.lend();
        Ok(Self {
            of,
            object,
            context: context.clone(),
        })
    }

    /// Replaces null, which also means the legacy default stream, by `CU_STREAM_LEGACY`.
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

    /// True if only the engine has ever had the handle. Then the stream contains only submissions.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.of.is_untouched()
    }

    pub(crate) fn is_owned(&self) -> bool {
        self.of.is_made_here()
    }

    /// The lock of the raw stream, which all its users share.
    #[inline]
    pub(crate) fn stream_lock(&self) -> &StreamLock {
        self.of.stream_lock()
    }

    /// True for the legacy default stream.
    ///
    /// It cannot be captured. A stream that synchronizes with it cannot be captured while it is
    /// used.
    pub(crate) fn is_legacy(&self) -> bool {
        self.raw().addr() == LEGACY
    }

    /// Converts an error code of a call on this stream to the typed error.
    pub(crate) fn error(&self, code: Code) -> Error {
        self.context.error_on(&self.object, code)
    }

    /// Unique among the streams of this process that are in use, and never 0.
    #[inline]
    pub(crate) fn domain(&self) -> u64 {
        self.of.domain()
    }

    /// Makes later work of this stream wait for `mark` as it was recorded.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn wait(&self, mark: &Mark) -> Result<()> {
        // SAFETY: the mark keeps its event alive during the call, and the wait needs no longer.
        unsafe { self.wait_raw(&Raw(mark.raw())) }
    }

    /// Same as [`Stream::wait`], for an event of the application.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// `event` is a live event.
    #[inline(always)]
    pub(crate) unsafe fn wait_raw(&self, event: &Raw<sys::CUevent_st>) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: the stream is alive, and the caller guarantees a live event. The wait captures
        // the event's latest record at this call (`cuStreamWaitEvent`). So the event may be
        // recorded again or destroyed before the wait ends.
        unsafe { driver.stream_wait_event(self.raw(), event.0, 0) }.map_err(|code| self.error(code))
    }

    /// Checks that the context still works, by a query of the stream.
    ///
    /// # Errors
    /// A driver error, including a lost device.
    pub(crate) fn check(&self) -> Result<()> {
        self.is_idle().map(|_| ())
    }

    /// True if all work of the stream has finished.
    ///
    /// Never blocks. The current context is irrelevant.
    ///
    /// # Errors
    /// A driver error, including a lost device.
    pub(crate) fn is_idle(&self) -> Result<bool> {
        let _mode = self.context.allow_during_capture();
        // SAFETY: the stream is alive, and any thread may query it.
        match unsafe { self.context.driver().stream_query(self.raw()) } {
            Ok(()) => Ok(true),
            Err(code) if code.is_not_ready() => Ok(false),
            Err(code) => Err(self.error(code)),
        }
    }

    /// Records `mark` at the stream's current position.
    ///
    /// Earlier waits for the same event are not affected, because each captured the record at its
    /// call.
    ///
    /// # Errors
    /// A driver error.
    #[inline(always)]
    pub(crate) fn record(&self, mark: &Mark) -> Result<()> {
        // SAFETY: both are alive. If they belong to different contexts, the driver rejects the
        // call.
        unsafe { self.context.driver().event_record(mark.raw(), self.raw()) }
            .map_err(|code| self.error(code))?;
        mark.note_recorded();
        Ok(())
    }

    /// Takes an event of `events` and records it at the stream's current position.
    ///
    /// The context is current if the stream is a default stream.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn record_new(&self, events: &Events) -> Result<Mark> {
        let mark = events.take()?;
        self.record(&mark)?;
        Ok(mark)
    }

    /// Adds a node to the captured graph: each launch records `mark`. The graph keeps the event.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn record_external(&self, mark: &Mark) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: both are alive, and the graph keeps the event (`OwnEvent::keep_in`).
        unsafe { driver.event_record_with_flags(mark.raw(), self.raw(), EXTERNAL) }
            .map_err(|code| self.error(code))
    }

    /// Adds a node to the captured graph: each launch waits for `mark`. The graph keeps the event.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn wait_external(&self, mark: &Mark) -> Result<()> {
        let driver = self.context.driver();
        // SAFETY: both are alive, and the graph keeps the event (`OwnEvent::keep_in`).
        unsafe { driver.stream_wait_event(self.raw(), mark.raw(), EXTERNAL) }
            .map_err(|code| self.error(code))
    }

    /// Notes that the application has the handle and may capture the stream.
    pub(crate) fn lend(&self) {
        self.of.lend();
    }

    /// The capture state, as far as this thread can tell without blocking.
    ///
    /// Returns `Capture::None` while another thread holds the stream's lock. A submission is held
    /// in that case, and checks again with the lock.
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

    /// The capture state, which does not change while the caller holds the stream's lock.
    ///
    /// The query does not affect a capture. The lock is required, because the driver (580.159) has
    /// crashed when another thread began or ended a capture during the query.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn capture_while_locked(&self, locked: &StreamLockGuard<'_>) -> Result<Capture> {
        debug_assert!(
            locked.is_for(self.stream_lock()),
            "the lock of another stream"
        );
        if self.is_untouched() {
            return Ok(Capture::None);
        }
        // The handle of the legacy default stream means the stream of the current context.
        let _bound = self.context.bind()?;
        let (mut status, mut id, mut graph) = (0, 0, null_mut());
        // SAFETY: the stream is alive, and the lock keeps other threads from beginning or ending a
        // capture of it. Writes two integers and a handle, and nothing through null pointers.
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

    /// The node that the last command of this stream has added to the captured graph.
    ///
    /// The caller has added it while it held the stream's lock.
    ///
    /// # Errors
    /// [`Error::Capturing`] if the stream has no such single node, or a driver error.
    pub(crate) fn last_node(
        &self,
        locked: &StreamLockGuard<'_>,
    ) -> Result<Raw<sys::CUgraphNode_st>> {
        debug_assert!(
            locked.is_for(self.stream_lock()),
            "the lock of another stream"
        );
        let (mut status, mut nodes, mut count) = (0, null::<sys::CUgraphNode>(), 0_usize);
        // SAFETY: as in `capture_while_locked`. Also writes a pointer and a number.
        let asked = unsafe {
            self.context.driver().stream_get_capture_info(
                self.raw(),
                &raw mut status,
                null_mut(),
                null_mut(),
                (&raw mut nodes).cast(),
                (&raw mut count).cast(),
            )
        };
        asked.map_err(|code| self.error(code))?;
        if status != ACTIVE || count != 1 || nodes.is_null() {
            let reason = "the driver does not tell the node; the capture may be invalid";
            return Err(Error::capturing(&self.object, "get a slot", reason));
        }
        // SAFETY: the driver has returned a list of one node, which is valid until the next call
        // that uses the stream. The lock keeps other threads from such a call.
        Ok(Raw(unsafe { nodes.read() }))
    }

    /// Rejects a stream that is being captured into a graph.
    ///
    /// An event recorded now would become part of the graph, and a query of that event would
    /// invalidate the capture.
    ///
    /// # Errors
    /// [`Error::Capturing`], or a driver error.
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
            Capture::Active { .. } => {
                "a graph waits for timelines and signals them by its slots only; end the capture first"
            }
        };
        Err(Error::capturing(&self.object, asked, reason))
    }
}

/// The error for a stream of the context `owner`.
pub(crate) fn foreign(stream: Object, owner: sys::CUcontext, device: &Object) -> Error {
    Error::wrong_device(
        stream,
        Object::new("context", &format!("{owner:p}")),
        device,
    )
}
