//! Fences that a graph records or waits for at each launch, and launches of graphs.
#![allow(unsafe_code, reason = "talks to the driver, which calls back")]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::{Error, Fence, Result};

use crate::device::event::{Mark, ReleasedEvents};
use crate::device::stream::{Capture, Stream};
use crate::device::stream_lock::StreamLockGuard;
use crate::queue::graph_launch::GRAPH;
use crate::queue::recorder::Recorder;
use crate::queue::submission::Queue;
use crate::share::own_event::{OwnEvent, SharedWith};

/// The reason why graphs cannot use a fence of an interprocess event.
pub(crate) const FOR_PROCESSES: &str = "several processes have its event, which no graph records or waits for; do that before the capture or after it";

/// What a graph keeps of a fence.
struct GraphReference {
    event: Mark,
    released: Arc<ReleasedEvents>,
}

/// Called by the driver when the last graph that keeps `kept` is destroyed.
///
/// # Safety
/// `kept` came from `Box::into_raw` as a [`GraphReference`], and this is the only call with it.
unsafe extern "C" fn release_event(kept: *mut c_void) {
    // SAFETY: the caller guarantees it. `GraphReference` is `Send`, because the driver may call
    // this on any thread.
    let GraphReference { event, released } =
        *unsafe { Box::from_raw(kept.cast::<GraphReference>()) };
    released.push(event);
    // Without the device another thread destroys them, because this callback must not call the
    // driver.
    if let Some(abandoned) = Arc::into_inner(released) {
        abandoned.destroy_elsewhere();
    }
}

impl OwnEvent {
    /// Makes `graph`, and all graphs instantiated from it, keep the event.
    ///
    /// # Safety
    /// `graph` is a live graph, and no other thread uses it during the call.
    unsafe fn keep_in(&self, graph: sys::CUgraph) -> Result<()> {
        let context = self.device().context();
        let released = self.device().inner().released_events();
        released.recycle();
        released.start(self.device().object())?;
        let kept = Box::new(GraphReference {
            event: self.event().clone(),
            released: released.clone(),
        });
        // SAFETY: the caller guarantees the graph. `release_event` has the required type.
        unsafe { context.keep_in_graph(graph, kept, release_event) }
    }
}

impl Queue {
    /// Adds a node to the captured graph: each launch records `fence`.
    ///
    /// The fence stands for the latest record that the driver has, by a launch or by a queue that
    /// is not captured. Before the first record the fence is complete. A wait for the fence
    /// captures the latest record at the time of the wait. In captures the fence can only be used
    /// with this method and [`Queue::wait_external`]. Otherwise it behaves like other fences.
    ///
    /// The fence may be dropped at any time, because graphs keep its event. Blocks while another
    /// thread submits to the stream or has its [guard](Queue::stream).
    ///
    /// See `cuEventRecordWithFlags` with `CU_EVENT_RECORD_EXTERNAL`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the stream is not being captured, for a timed fence, or for the
    /// fence of an [`InterprocessEvent`](crate::InterprocessEvent). [`Error::Capturing`] if the
    /// capture has been invalidated. [`Error::WrongDevice`], [`Error::ForeignFence`], or a driver
    /// error.
    pub fn record_external(&self, fence: &Fence) -> Result<()> {
        self.put_into_graph(fence, "record", |stream, own| {
            stream.record_external(own.event())?;
            own.note_recorded();
            Ok(())
        })
    }

    /// Adds a node to the captured graph: each launch waits for `fence`.
    ///
    /// Each wait is for the latest record that the driver has at the time of the wait.
    ///
    /// A held record is not with the driver yet. For such a record, launch the graph in a
    /// submission that waits for the fence's point, or for what the held record waits for. Blocks
    /// like [`Queue::record_external`].
    ///
    /// See `cuStreamWaitEvent` with `CU_EVENT_WAIT_EXTERNAL`.
    ///
    /// # Errors
    /// Same errors as [`Queue::record_external`].
    pub fn wait_external(&self, fence: &Fence) -> Result<()> {
        self.put_into_graph(fence, "wait for", |stream, own| {
            stream.wait_external(own.event())
        })
    }

    /// Makes the captured graph keep the fence's event, and adds a node with `put`.
    fn put_into_graph(
        &self,
        fence: &Fence,
        verb: &str,
        put: impl FnOnce(&Stream, &OwnEvent) -> Result<()>,
    ) -> Result<()> {
        let asked = || format!("{verb} {} at each launch", fence.object());
        let unsupported = |reason: &str| Error::unsupported(self.object(), asked(), reason);
        let stream = self.queue_stream().stream();
        let graph = |locked: &StreamLockGuard<'_>| match stream.capture_while_locked(locked)? {
            Capture::Active { graph, .. } => Ok(graph),
            Capture::Unusable(why) => Err(self.capturing(&asked(), why)),
            Capture::None => Err(unsupported("it is not being captured into a graph")),
        };
        // Checked before anything is created.
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
            // Locked until the node is added, so that no other thread ends the capture or destroys
            // the graph.
            let locked = stream.stream_lock().lock();
            // SAFETY: the driver has just returned the graph of the capture, which lasts while the
            // stream is locked.
            unsafe { own.keep_in(graph(&locked)?) }?;
            put(stream, &own)?;
            Ok(own)
        };
        self.submissions().record_natively(fence, make).map(|_| ())
    }
}

impl Recorder<'_> {
    /// Launches a graph after the submission's waits and before its signals.
    ///
    /// For all other work, the submission begins with every wait in the graph and ends with every
    /// signal in it. Each node of a graph is a command of the driver. A launch counts as 64
    /// commands, so [declare](Recorder::commands) the number of further nodes.
    ///
    /// See `cuGraphLaunch`.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// `graph` is an executable graph of this device. What it does is sound until the submission
    /// has finished: the graph and what it uses are [kept](Recorder::keep), or live until then
    /// otherwise. What the graph itself waits for is pending with the driver.
    pub unsafe fn launch_graph(&mut self, graph: sys::CUgraphExec) -> Result<()> {
        let (stream, _bound) = self.bound_stream()?;
        let driver = stream.context().driver();
        // SAFETY: the caller guarantees it, and the stream is alive.
        unsafe { driver.graph_launch(graph, stream.raw()) }.map_err(|code| stream.error(code))?;
        self.count(GRAPH);
        Ok(())
    }
}
