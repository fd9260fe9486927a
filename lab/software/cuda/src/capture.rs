//! Capture of streams into graphs.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::context::Context;
use crate::graph::{GRAPHS, Graph};
use crate::operation::Operation;
use crate::stream::{Stream, StreamKind};
use crate::{current, lock};

/// All captures that have not ended. Locked while streams begin, join and end one.
static CAPTURES: Mutex<Vec<Arc<Capture>>> = Mutex::new(Vec::new());
/// The number of captures, for a quick check.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The threads to which a capture forbids calls that may synchronize, and a thread's own mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// All threads.
    Global,
    /// The thread that began it.
    ThreadLocal,
    /// No thread.
    Relaxed,
}

impl Mode {
    pub(crate) const fn from_number(number: u32) -> Answer<Self> {
        Ok(match number {
            0 => Self::Global,
            1 => Self::ThreadLocal,
            2 => Self::Relaxed,
            _ => return Err(Code::INVALID_VALUE),
        })
    }
}

std::thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Sets the capture mode of the calling thread and returns the one before.
pub(crate) fn exchange_mode(mode: Mode) -> Mode {
    MODE.replace(mode)
}

const ACTIVE: u8 = 1;
const INVALIDATED: u8 = 2;
const ENDED: u8 = 3;

/// A capture of one stream and those that join it.
pub(crate) struct Capture {
    pub(crate) id: u64,
    mode: Mode,
    /// The thread that began it.
    thread: u64,
    context: u64,
    origin: Weak<Stream>,
    /// The table of graphs owns it, because events may have a position in it for their whole life.
    graph: Weak<Graph>,
    graph_handle: usize,
    state: AtomicU8,
    /// All captured streams, including the origin.
    streams: Mutex<Vec<Weak<Stream>>>,
}

/// A position in a graph that is captured.
#[derive(Clone)]
pub(crate) struct CapturePosition {
    pub(crate) capture: Arc<Capture>,
    /// The nodes before the next node at this position.
    behind: Vec<usize>,
}

/// The result of a capture that has ended.
struct Ended {
    /// False if it was invalid.
    was_active: bool,
    /// The last nodes of each stream.
    positions: Vec<Vec<usize>>,
}

impl Capture {
    /// True until it has ended, also if it is invalid.
    pub(crate) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) != ENDED
    }

    fn is_active(&self) -> bool {
        self.state.load(Ordering::Acquire) == ACTIVE
    }

    /// Invalidates the capture. It must still be ended.
    pub(crate) fn invalidate(&self) {
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.state.compare_exchange(ACTIVE, INVALIDATED, set, get);
    }

    fn began_in(&self, stream: &Arc<Stream>) -> bool {
        std::ptr::eq(self.origin.as_ptr(), Arc::as_ptr(stream))
    }

    /// Ends the capture of all its streams.
    fn end(&self, captures: &mut Vec<Arc<Self>>) -> Ended {
        captures.retain(|known| known.id != self.id);
        COUNT.store(captures.len(), Ordering::Release);
        let mut positions = Vec::new();
        for joined in std::mem::take(&mut *lock(&self.streams)) {
            if let Some(joined) = joined.upgrade() {
                joined.is_captured.store(false, Ordering::Release);
                let last = lock(&joined.captured).take();
                positions.extend(last.map(|last| last.behind));
            }
        }
        Ended {
            was_active: self.state.swap(ENDED, Ordering::AcqRel) == ACTIVE,
            positions,
        }
    }

    fn check(&self) -> Answer {
        if self.is_active() {
            Ok(())
        } else {
            Err(Code::STREAM_CAPTURE_INVALIDATED)
        }
    }
}

/// `cuStreamBeginCapture`.
pub(crate) fn begin(stream: &Arc<Stream>, mode: Mode) -> Answer {
    static IDS: AtomicU64 = AtomicU64::new(1);
    if stream.kind == StreamKind::Legacy {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut captures = lock(&CAPTURES);
    let mut captured = lock(&stream.captured);
    if captured.is_some() {
        return Err(Code::ILLEGAL_STATE);
    }
    let graph = Arc::new(Graph::default());
    let capture = Arc::new(Capture {
        id: IDS.fetch_add(1, Ordering::Relaxed),
        mode,
        thread: current::thread(),
        context: stream.context.id,
        origin: Arc::downgrade(stream),
        graph: Arc::downgrade(&graph),
        graph_handle: GRAPHS.add(graph),
        state: AtomicU8::new(ACTIVE),
        streams: Mutex::new(vec![Arc::downgrade(stream)]),
    });
    captures.push(capture.clone());
    COUNT.store(captures.len(), Ordering::Release);
    *captured = Some(CapturePosition {
        capture,
        behind: Vec::new(),
    });
    stream.is_captured.store(true, Ordering::Release);
    Ok(())
}

/// `cuStreamEndCapture`: returns the handle of the graph.
pub(crate) fn end(stream: &Arc<Stream>) -> Answer<usize> {
    let mut captures = lock(&CAPTURES);
    let position = lock(&stream.captured).clone();
    let CapturePosition { capture, behind } = position.ok_or(Code::ILLEGAL_STATE)?;
    if !capture.began_in(stream) {
        capture.invalidate();
        return Err(Code::STREAM_CAPTURE_UNMATCHED);
    }
    let is_wrong_thread = capture.mode != Mode::Relaxed && capture.thread != current::thread();
    let ended = capture.end(&mut captures);
    // The next steps may destroy objects of the application.
    drop(captures);
    // The application may have destroyed the graph since then.
    let graph = capture.graph.upgrade();
    let is_joined = |graph: &Graph| {
        let mut last = ended.positions.iter();
        last.all(|last| graph.are_before(last, &behind))
    };
    let code = match (&graph, ended.was_active) {
        _ if is_wrong_thread => Code::STREAM_CAPTURE_WRONG_THREAD,
        (Some(graph), true) if is_joined(graph) => return Ok(capture.graph_handle),
        (Some(_), true) => Code::STREAM_CAPTURE_UNJOINED,
        _ => Code::STREAM_CAPTURE_INVALIDATED,
    };
    let _ = GRAPHS.remove(capture.graph_handle);
    Err(code)
}

/// Handles the end of a stream. Its capture becomes invalid, and ends if the stream began it.
pub(crate) fn abandon(stream: &Arc<Stream>) {
    let mut captures = lock(&CAPTURES);
    let Some(CapturePosition { capture, .. }) = lock(&stream.captured).take() else {
        return;
    };
    stream.is_captured.store(false, Ordering::Release);
    capture.invalidate();
    if capture.began_in(stream) {
        capture.end(&mut captures);
        drop(captures);
        let _ = GRAPHS.remove(capture.graph_handle);
    }
}

/// Ends all captures of a context that is destroyed.
pub(crate) fn abandon_all(context: u64) {
    let mut captures = lock(&CAPTURES);
    let of_context = |capture: &&Arc<Capture>| capture.context == context;
    let gone: Vec<_> = captures.iter().filter(of_context).cloned().collect();
    for capture in &gone {
        capture.end(&mut captures);
    }
    drop(captures);
    for capture in gone {
        let _ = GRAPHS.remove(capture.graph_handle);
    }
}

/// Adds a node if the stream is captured. Returns false otherwise.
pub(crate) fn add(stream: &Stream, operation: &Operation) -> Answer<bool> {
    let mut captured = lock(&stream.captured);
    let Some(position) = &mut *captured else {
        return Ok(false);
    };
    position.capture.check()?;
    let graph = position.capture.graph.upgrade();
    let graph = graph.ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
    let behind = std::mem::take(&mut position.behind);
    position.behind = vec![graph.add(operation.clone(), behind)];
    Ok(true)
}

/// Returns the stream's position in a graph, or `None` if it is not captured.
///
/// An error for the legacy default stream beside captured streams that synchronize with it.
pub(crate) fn position(stream: &Stream) -> Answer<Option<CapturePosition>> {
    if stream.kind == StreamKind::Legacy {
        touch_legacy(&stream.context)?;
        return Ok(None);
    }
    if !stream.is_captured.load(Ordering::Acquire) {
        return Ok(None);
    }
    let position = lock(&stream.captured).clone();
    if let Some(position) = &position {
        position.capture.check()?;
    }
    Ok(position)
}

/// Puts the stream after a position in a graph. The stream becomes part of the capture.
pub(crate) fn join(stream: &Arc<Stream>, position: &CapturePosition) -> Answer {
    let _captures = lock(&CAPTURES);
    if !position.capture.is_open() {
        return Err(Code::INVALID_VALUE);
    }
    position.capture.check()?;
    if stream.kind == StreamKind::Legacy {
        position.capture.invalidate();
        return Err(Code::STREAM_CAPTURE_IMPLICIT);
    }
    let mut captured = lock(&stream.captured);
    match &mut *captured {
        None => {
            lock(&position.capture.streams).push(Arc::downgrade(stream));
            *captured = Some(position.clone());
            stream.is_captured.store(true, Ordering::Release);
        }
        Some(own) if own.capture.id == position.capture.id => {
            let new = position
                .behind
                .iter()
                .filter(|node| !own.behind.contains(node));
            let new: Vec<_> = new.copied().collect();
            if !Bug::CaptureForgetsEdges.is_planted() {
                own.behind.extend(new);
            }
        }
        Some(own) => {
            own.capture.invalidate();
            position.capture.invalidate();
            return Err(Code::STREAM_CAPTURE_MERGE);
        }
    }
    Ok(())
}

/// Refuses to return the progress of a captured stream. The query invalidates the capture.
pub(crate) fn refuse(stream: &Stream) -> Answer {
    match &*lock(&stream.captured) {
        None => Ok(()),
        Some(position) => {
            position.capture.invalidate();
            Err(Code::STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

/// Returns an error if the calling thread must not make a call now that may synchronize.
///
/// The attempt invalidates the captures that forbid it.
pub(crate) fn permit() -> Answer {
    if COUNT.load(Ordering::Acquire) == 0 || MODE.get() == Mode::Relaxed {
        return Ok(());
    }
    let (mode, thread) = (MODE.get(), current::thread());
    let forbids = |capture: &&Arc<Capture>| match capture.mode {
        Mode::Relaxed => false,
        Mode::ThreadLocal => capture.thread == thread,
        Mode::Global => capture.thread == thread || mode == Mode::Global,
    };
    invalidate_all(forbids, Code::STREAM_CAPTURE_UNSUPPORTED)
}

/// Returns an error if a stream of the context is captured.
///
/// Then no call can wait for the whole context.
pub(crate) fn permit_for_all(context: &Context) -> Answer {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let forbids = |capture: &&Arc<Capture>| capture.context == context.id;
    invalidate_all(forbids, Code::STREAM_CAPTURE_UNSUPPORTED)
}

/// Returns an error if the legacy default stream synchronizes with a captured stream.
pub(crate) fn touch_legacy(context: &Context) -> Answer {
    if COUNT.load(Ordering::Acquire) == 0 {
        return Ok(());
    }
    let forbids = |capture: &&Arc<Capture>| forbids_legacy(capture, context);
    invalidate_all(forbids, Code::STREAM_CAPTURE_IMPLICIT)
}

fn forbids_legacy(capture: &Capture, context: &Context) -> bool {
    let streams = lock(&capture.streams);
    let mut streams = streams.iter().filter_map(Weak::upgrade);
    capture.context == context.id && streams.any(|stream| stream.kind == StreamKind::Blocking)
}

fn invalidate_all(forbids: impl Fn(&&Arc<Capture>) -> bool, code: Code) -> Answer {
    let captures = lock(&CAPTURES);
    let mut answer = Ok(());
    for capture in captures.iter().filter(forbids) {
        capture.invalidate();
        answer = Err(code);
    }
    answer
}

/// The result of `cuStreamGetCaptureInfo`.
pub(crate) struct Info {
    /// `CU_STREAM_CAPTURE_STATUS_NONE`, `…_ACTIVE` or `…_INVALIDATED`.
    pub(crate) status: u32,
    pub(crate) id: u64,
    pub(crate) graph: usize,
    /// The nodes before the next node of the stream.
    pub(crate) behind: Vec<usize>,
}

/// Returns the state of a stream's capture. Invalidates no capture.
pub(crate) fn info(stream: &Stream) -> Answer<Info> {
    if stream.kind == StreamKind::Legacy && COUNT.load(Ordering::Acquire) > 0 {
        let captures = lock(&CAPTURES);
        let mut captures = captures.iter();
        if captures.any(|capture| forbids_legacy(capture, &stream.context)) {
            return Err(Code::STREAM_CAPTURE_IMPLICIT);
        }
    }
    Ok(match &*lock(&stream.captured) {
        None => Info {
            status: 0,
            id: 0,
            graph: 0,
            behind: Vec::new(),
        },
        Some(CapturePosition { capture, behind }) => Info {
            status: if capture.is_active() { 1 } else { 2 },
            id: capture.id,
            graph: capture.graph_handle,
            behind: behind.clone(),
        },
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use rstest::rstest;
    use std::ffi::c_void;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::user_object::{Kept, UserObject};

    /// Destroys a user object, and sets a flag if the captures are not locked then.
    extern "C" fn looks(is_free: *mut c_void) {
        let start = Instant::now();
        // Other tests lock them too, for a moment.
        while start.elapsed() < Duration::from_secs(10) {
            if CAPTURES.try_lock().is_ok() {
                // SAFETY: the test passes a flag that outlives the graph.
                #[allow(unsafe_code, reason = "follows the test's own pointer")]
                let flag = unsafe { &*is_free.cast::<AtomicBool>() };
                return flag.store(true, Ordering::SeqCst);
            }
        }
    }

    #[rstest]
    #[case::by_an_abandoned_capture(true)]
    #[case::by_a_refused_call(false)]
    fn objects_of_a_failed_capture_are_destroyed_without_a_lock(#[case] abandons: bool) {
        let context = Context::for_tests();
        let stream = Stream::new(&context, StreamKind::NonBlocking, 0).unwrap();
        begin(&stream, Mode::Relaxed).unwrap();
        let is_free = AtomicBool::new(false);
        let pointer = (&raw const is_free).cast_mut().cast();
        let graph = GRAPHS.get(info(&stream).unwrap().graph).unwrap();
        graph.keep(Kept::new(UserObject::new(pointer, looks, 0), 1));
        drop(graph);
        if abandons {
            abandon(&stream);
        } else {
            refuse(&stream).unwrap_err();
            end(&stream).unwrap_err();
        }
        assert!(is_free.load(Ordering::SeqCst));
    }
}
