//! Fences that a graph records or waits for anew at each of its launches, and launching graphs.
#![allow(unsafe_code, reason = "talks to the driver, which calls back")]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::{Error, Fence, Result};

use crate::device::event::{Mark, ReleasedEvents};
use crate::device::stream::{Capture, Stream};
use crate::device::stream_lock::StreamLockGuard;
use crate::queue::recorder::Recorder;
use crate::queue::submission::Queue;
use crate::share::own_event::{OwnEvent, SharedWith};

/// The driver need not wait for a destructor.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// What the launch of a graph takes in commands, if the work says no more.
const GRAPH: u64 = 64;
/// Why a fence of an event that several processes have is kept out of graphs.
pub(crate) const FOR_PROCESSES: &str = "several processes have its event, which no graph records or waits for; do that before the capture or after it";
/// The graph takes the reference over.
const MOVE: u32 = 1;

/// What a graph keeps.
struct GraphReference {
    event: Mark,
    released: Arc<ReleasedEvents>,
}

const _: () = {
    const fn sent<T: Send>() {}
    sent::<GraphReference>();
};

/// Called by the driver when the last graph that keeps `kept` is gone.
///
/// # Safety
/// `kept` came from `Box::into_raw`, as a [`Kept`], and this is the only call with it.
unsafe extern "C" fn release_event(kept: *mut c_void) {
    // SAFETY: the caller's promise. The driver may call this on a thread of its own: see below.
    let GraphReference { event, released } =
        *unsafe { Box::from_raw(kept.cast::<GraphReference>()) };
    released.push(event);
    // Without the device nobody reaps, and no event may be destroyed here.
    if let Some(abandoned) = Arc::into_inner(released) {
        std::mem::forget(abandoned);
    }
}

impl OwnEvent {
    /// Lets `graph`, and whatever is instantiated from it, keep the event.
    ///
    /// # Safety
    /// `graph` is a live graph, and no other thread uses it during the call.
    unsafe fn keep_in(&self, graph: sys::CUgraph) -> Result<()> {
        let context = self.device().context();
        let released = self.device().released_events();
        released.recycle();
        let kept = Box::into_raw(Box::new(GraphReference {
            event: self.event().clone(),
            released: released.clone(),
        }));
        let mut object = null_mut();
        // SAFETY: writes one handle. If that succeeds `kept` is the object's, which calls `let_go`
        // with it once, when its last reference goes; `let_go` is a function of the type that is
        // asked for.
        let made = unsafe {
            context.driver().user_object_create(
                &raw mut object,
                kept.cast(),
                release_event,
                1,
                NO_DESTRUCTOR_SYNC,
            )
        };
        if let Err(code) = made {
            // SAFETY: from `Box::into_raw` above. The driver made no object that would take it.
            drop(unsafe { Box::from_raw(kept) });
            return Err(context.error(code));
        }
        // SAFETY: the caller promises a live graph that is this thread's; the object has one
        // reference, which the graph takes.
        let taken = unsafe {
            context
                .driver()
                .graph_retain_user_object(graph, object, 1, MOVE)
        };
        taken.map_err(|code| {
            // SAFETY: the graph has not taken the reference, which is given up here.
            let _ = unsafe { context.driver().user_object_release(object, 1) };
            context.error(code)
        })
    }
}

impl Queue {
    /// Into a capture: each launch of the graph records `fence`, when it gets there. The fence stands for the
    /// latest record that the driver has, by a launch or by a queue that is not captured: it is complete before
    /// the first, and a wait for it waits for the latest at the time of that wait. What is said of fences
    /// elsewhere holds, but for captures: they record and wait for it only by names of their own.
    ///
    /// The fence may be dropped at any time: graphs keep what they need of it. Blocks while another
    /// thread submits to the stream or has its [guard](Queue::stream).
    ///
    /// See `cuEventRecordWithFlags` with `CU_EVENT_RECORD_EXTERNAL`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the stream is not being captured, or for a timed fence, or one of an [`InterprocessEvent`](crate::InterprocessEvent); [`Error::Capturing`] if the
    /// capture has been invalidated; [`Error::WrongDevice`], [`Error::ForeignFence`]; a driver error.
    pub fn record_external(&self, fence: &Fence) -> Result<()> {
        self.put_into_graph(fence, "record", |stream, own| {
            stream.record_external(own.event())?;
            own.note_recorded();
            Ok(())
        })
    }

    /// Into a capture: each launch of the graph waits, when it gets there, for `fence` as it is then: for the
    /// latest record that the driver has. A record that is still held is none yet: launch the graph in a
    /// submission that waits for the fence's point, or for what releases it. Blocks as
    /// [`Queue::record_external`] does.
    ///
    /// See `cuStreamWaitEvent` with `CU_EVENT_WAIT_EXTERNAL`, and [`Queue::record_external`].
    ///
    /// # Errors
    /// As [`Queue::record_external`].
    pub fn wait_external(&self, fence: &Fence) -> Result<()> {
        self.put_into_graph(fence, "wait for", |stream, own| {
            stream.wait_external(own.event())
        })
    }

    /// Has the graph that is being captured keep the fence, and `put` a node for it.
    fn put_into_graph(
        &self,
        fence: &Fence,
        verb: &str,
        put: impl FnOnce(&Stream, &OwnEvent) -> Result<()>,
    ) -> Result<()> {
        let asked = || format!("{verb} {} at each launch", fence.object());
        let unsupported = |reason: &str| Error::Unsupported {
            object: self.object().clone(),
            asked: asked(),
            reason: reason.into(),
        };
        let stream = &self.queue_stream().stream;
        let graph = |locked: &StreamLockGuard<'_>| match stream.capture_while_locked(locked)? {
            Capture::Active { graph, .. } => Ok(graph),
            Capture::Unusable(why) => Err(self.capturing(&asked(), why)),
            Capture::None => Err(unsupported("it is not being captured into a graph")),
        };
        // Before anything is made.
        graph(&stream.stream_lock().lock())?;
        if fence.is_timed() {
            return Err(unsupported(
                "it is timed, and what a graph records has no time; use a fence without timing",
            ));
        }
        let device = self.device();
        let make = || {
            let own = match OwnEvent::of(fence) {
                Some(own) if own.shared_with() == SharedWith::Graphs => own,
                Some(_) => return Err(unsupported(FOR_PROCESSES)),
                None => OwnEvent::for_graphs(fence, device)?,
            };
            // Until the node is there no other thread ends the capture, or destroys the graph.
            let locked = stream.stream_lock().lock();
            // SAFETY: the driver has just named the graph that it captures into, and goes on to in
            // this turn.
            unsafe { own.keep_in(graph(&locked)?) }?;
            put(stream, &own)?;
            Ok(own)
        };
        self.engine().record_natively(fence, make).map(|_| ())
    }
}

impl Recorder<'_> {
    /// Launches a graph behind the submission's waits and before its signals. To everybody else the submission
    /// begins with every wait in the graph and ends with every signal in it.
    ///
    /// See `cuGraphLaunch`. Every node of a graph is a command to the driver; a graph is taken to have 64 of them
    /// at most: [say](Recorder::commands) how many more there are.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// `graph` is an executable graph of this device, and what it does is sound until the submission has
    /// finished: it and what it uses are [kept](Recorder::keep), or otherwise live until then. What it waits
    /// for by itself is pending with the driver.
    pub unsafe fn launch_graph(&mut self, graph: sys::CUgraphExec) -> Result<()> {
        let (stream, _bound) = self.bound_stream()?;
        let driver = stream.context().driver();
        // SAFETY: the caller's promise; the stream is alive.
        unsafe { driver.graph_launch(graph, stream.raw()) }.map_err(|code| stream.error(code))?;
        self.count(GRAPH);
        Ok(())
    }
}
