//! Fences that a graph records or waits for anew at each of its launches, and launching graphs.
#![allow(unsafe_code, reason = "talks to the driver, which calls back")]

use std::any::Any;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::sys;
use syncline_core::backend::{Device as _, NativeMark, Queue as _};
use syncline_core::{Error, Fence, KeptPoint, Object, QueueKind, Result};

use crate::device::Device;
use crate::event::Mark;
use crate::lock;
use crate::queue::Queue;
use crate::recorder::Recorder;
use crate::stream::Capture;

/// The driver need not wait for a destructor.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// What the launch of a graph takes in commands, if the work says no more.
const GRAPH: u64 = 64;
/// The graph takes the reference over.
const MOVE: u32 = 1;

/// What a fence holds that graphs know of: an event of its own, which is recorded again and again.
pub(crate) struct GraphFence {
    device: Device,
    event: Mark,
    /// The last record by a queue, which may be held: the event knows nothing of it until then.
    last: Mutex<KeptPoint>,
    /// Something records it: a queue has, or a graph does.
    recorded: AtomicBool,
    /// Where positions are taken of the event, as it is at the time; made when needed. Each waits for one position
    /// at a time, so that no position is reached later than the record that it stands for.
    queues: Mutex<Vec<Queue>>,
}

/// Events that graphs have let go of. The driver says so in a callback, where nothing may be destroyed.
#[derive(Default)]
pub(crate) struct LetGo(Mutex<Vec<Mark>>);

impl LetGo {
    fn events(&self) -> MutexGuard<'_, Vec<Mark>> {
        lock(&self.0)
    }

    /// Gives the events back to their pool.
    fn reap(&self) {
        let events = std::mem::take(&mut *self.events());
        drop(events);
    }
}

/// What a graph keeps.
struct Kept {
    event: Mark,
    let_go: Arc<LetGo>,
}

/// Called by the driver when the last graph that keeps `kept` is gone.
///
/// # Safety
/// `kept` came from `Box::into_raw`, as a [`Kept`], and this is the only call with it.
unsafe extern "C" fn let_go(kept: *mut c_void) {
    // SAFETY: made by `GraphFence::keep_in`, and given back once.
    let Kept { event, let_go } = *unsafe { Box::from_raw(kept.cast::<Kept>()) };
    let_go.events().push(event);
    // Without the device nobody reaps, and no event may be destroyed here.
    if let Some(abandoned) = Arc::into_inner(let_go) {
        std::mem::forget(abandoned);
    }
}

impl GraphFence {
    /// What `fence` holds, if it is one of these.
    #[inline]
    pub(crate) fn of(fence: &Fence) -> Option<Arc<Self>> {
        let mark: Arc<dyn Any + Send + Sync> = fence.native_mark()?;
        mark.downcast().ok()
    }

    /// Makes `fence` one of these, of the position that it holds now.
    fn made_of(fence: &Fence, device: &Device) -> Result<Arc<Self>> {
        let recorded = fence.is_recorded();
        // A place in a capture is none; a fresh event is complete, as is a fence never recorded.
        let position = match fence.native_mark() {
            Some(_) => KeptPoint::default(),
            None => fence.point()?,
        };
        let graph_fence = Arc::new(Self {
            device: device.clone(),
            event: device.plain_events().fresh()?,
            last: Mutex::default(),
            recorded: AtomicBool::new(recorded),
            queues: Mutex::default(),
        });
        if !position.point().is_reached()? {
            let event = graph_fence.event.clone();
            let work = move |r: &mut Recorder| r.line_stream().record(&event);
            *graph_fence.last() = graph_fence.take_position(&position, work)?;
        }
        Ok(graph_fence)
    }

    fn last(&self) -> MutexGuard<'_, KeptPoint> {
        lock(&self.last)
    }

    /// The end of a submission that comes behind `after` and nothing else.
    fn take_position(
        &self,
        after: &KeptPoint,
        work: impl FnOnce(&mut Recorder) -> Result<()> + Send + 'static,
    ) -> Result<KeptPoint> {
        // Out of the list while it is in use: nobody else's position gets behind this one.
        let mut queues = std::mem::take(&mut *lock(&self.queues));
        let idle = queues
            .iter()
            .position(|queue| queue.position().is_reached().unwrap_or(false));
        let queue = idle.map(|index| queues.swap_remove(index));
        lock(&self.queues).append(&mut queues);
        let queue = match queue {
            Some(queue) => queue,
            None => self.device.queue(QueueKind::Transfer, "positions")?,
        };
        let taken = queue.submit(&[after.point()], work, &[]);
        let taken = taken.map(|sent| sent.end().keep());
        lock(&self.queues).push(queue);
        taken
    }

    /// A record by a queue that is not being captured: the next launch waits for it.
    pub(crate) fn record(self: Arc<Self>, queue: &Queue, fence: &Fence) -> Result<()> {
        queue.lane().record_natively(fence, || {
            let event = self.event.clone();
            let work = move |r: &mut Recorder| r.line_stream().record(&event);
            let end = queue.submit(&[], work, &[])?.end().keep();
            *self.last() = end;
            self.recorded.store(true, Ordering::Release);
            Ok(self.clone())
        })?;
        Ok(())
    }

    /// Lets `graph`, and whatever is instantiated from it, keep the event.
    fn keep_in(&self, graph: sys::CUgraph) -> Result<()> {
        let context = self.device.context();
        let let_go_list = self.device.let_go();
        let_go_list.reap();
        let kept = Box::into_raw(Box::new(Kept {
            event: self.event.clone(),
            let_go: let_go_list.clone(),
        }));
        let mut object = null_mut();
        // SAFETY: writes one handle; `kept` is given to the object, which gives it to `let_go` once.
        let made = unsafe {
            context.driver().user_object_create(
                &raw mut object,
                kept.cast(),
                let_go,
                1,
                NO_DESTRUCTOR_SYNC,
            )
        };
        if let Err(code) = made {
            // SAFETY: made above, and nobody has taken it.
            drop(unsafe { Box::from_raw(kept) });
            return Err(context.error(code));
        }
        // SAFETY: both are alive: the graph is being captured. The graph takes the only reference.
        let taken = unsafe {
            context
                .driver()
                .graph_retain_user_object(graph, object, 1, MOVE)
        };
        taken.map_err(|code| {
            // SAFETY: the reference is still ours.
            let _ = unsafe { context.driver().user_object_release(object, 1) };
            context.error(code)
        })
    }
}

impl NativeMark for GraphFence {
    /// The event as the driver has it now, behind what a queue recorded last.
    fn point(&self, fence: &Object) -> Result<KeptPoint> {
        if self.is_complete(fence)? {
            return Ok(KeptPoint::default());
        }
        let last = self.last().clone();
        let event = self.event.clone();
        // The wait captures the event as it is: a later launch does not move it.
        let work = move |r: &mut Recorder| r.line_stream().wait(&event);
        self.take_position(&last, work)
    }

    fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Acquire)
    }

    fn is_complete(&self, _fence: &Object) -> Result<bool> {
        let last = self.last().clone();
        if !last.point().is_reached()? {
            return Ok(false);
        }
        let _mode = self.device.context().allow_during_capture();
        self.event.is_done_now()
    }
}

impl Queue {
    /// Into a capture: each launch of the graph records `fence`, when it gets there. The fence stands for the
    /// latest record that the driver has, by a launch or by a queue that is not captured: it is complete before
    /// the first, and a wait for it waits for the latest at the time of that wait. What is said of fences
    /// elsewhere holds, but for captures: they record and wait for it only by names of their own.
    ///
    /// The fence may be dropped at any time: graphs keep what they need of it.
    ///
    /// See `cuEventRecordWithFlags` with `CU_EVENT_RECORD_EXTERNAL`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the stream is not being captured, or for a timed fence; [`Error::Capturing`] if the
    /// capture has been invalidated; [`Error::WrongDevice`], [`Error::ForeignFence`]; a driver error.
    pub fn record_external(&self, fence: &Fence) -> Result<()> {
        let graph_fence = self.of_graph(fence, "record")?;
        self.line().stream.record_external(&graph_fence.event)?;
        graph_fence.recorded.store(true, Ordering::Release);
        Ok(())
    }

    /// Into a capture: each launch of the graph waits, when it gets there, for `fence` as it is then: for the
    /// latest record that the driver has. A record that is still held is none yet: launch the graph in a
    /// submission that waits for the fence's point, or for what releases it.
    ///
    /// See `cuStreamWaitEvent` with `CU_EVENT_WAIT_EXTERNAL`, and [`Queue::record_external`].
    ///
    /// # Errors
    /// As [`Queue::record_external`].
    pub fn wait_external(&self, fence: &Fence) -> Result<()> {
        let graph_fence = self.of_graph(fence, "wait for")?;
        self.line().stream.wait_external(&graph_fence.event)
    }

    /// The fence as one that the graph being captured keeps.
    fn of_graph(&self, fence: &Fence, verb: &str) -> Result<Arc<GraphFence>> {
        let asked = || format!("{verb} {} at each launch", fence.object());
        let graph = match self.line().stream.capture()? {
            Capture::Active { graph, .. } => graph,
            Capture::Unusable(why) => return Err(self.capturing(&asked(), why)),
            Capture::None => {
                return Err(Error::Unsupported {
                    object: self.object().clone(),
                    asked: asked(),
                    reason: "it is not being captured into a graph".into(),
                });
            }
        };
        if fence.is_timed() {
            return Err(Error::Unsupported {
                object: self.object().clone(),
                asked: asked(),
                reason:
                    "it is timed, and what a graph records has no time; use a fence without timing"
                        .into(),
            });
        }
        let device = self.device();
        let make = || {
            let graph_fence = match GraphFence::of(fence) {
                Some(known) => known,
                None => GraphFence::made_of(fence, &device)?,
            };
            graph_fence.keep_in(graph)?;
            Ok(graph_fence)
        };
        self.lane().record_natively(fence, make)
    }
}

impl Recorder {
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
        let stream = self.line_stream();
        let driver = stream.context().driver();
        // SAFETY: the caller's promise; the stream is alive.
        unsafe { driver.graph_launch(graph, stream.raw()) }.map_err(|code| stream.error(code))?;
        self.count(GRAPH);
        Ok(())
    }
}
