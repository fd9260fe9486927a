//! Captured graphs whose nodes get other values at each launch, by hand.
#![allow(unsafe_code, reason = "calls the driver, as the baseline")]

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use cudarc::driver::sys;

use super::table::judge;
use super::{Calls, External, Hand, NodeParams, Stream, signal_params, wait_params};
use crate::side::{Outcome, Stop};

pub(crate) type Node = sys::CUgraphNode;

/// A graph and its executable form. The drop destroys both.
pub(crate) struct Graph {
    calls: Calls,
    pub(crate) graph: sys::CUgraph,
    pub(crate) executable: sys::CUgraphExec,
}

// SAFETY: any thread may use graphs, one at a time. The rows launch from one thread.
unsafe impl Send for Graph {}
// SAFETY: as for sending.
unsafe impl Sync for Graph {}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: destroyed once, after the work of all launches.
        unsafe {
            let _ = (self.calls.table.graph_exec_destroy)(self.executable);
            let _ = (self.calls.table.graph_destroy)(self.graph);
        }
    }
}

impl Hand {
    /// Captures what `work` adds to the stream, and instantiates the graph.
    pub(crate) fn capture(
        &self,
        stream: Stream,
        work: impl FnOnce() -> Outcome<()>,
    ) -> Outcome<Graph> {
        let table = self.table;
        // SAFETY: a live stream.
        judge("cuStreamBeginCapture", unsafe {
            (table.stream_begin_capture)(stream, super::RELAXED)
        })?;
        let worked = work();
        let (mut graph, mut executable) = (null_mut(), null_mut());
        // SAFETY: this thread has begun the capture. Writes one handle.
        judge("cuStreamEndCapture", unsafe {
            (table.stream_end_capture)(stream, &raw mut graph)
        })?;
        // SAFETY: a live graph. Writes one handle.
        let made = unsafe { (table.graph_instantiate)(&raw mut executable, graph, 0) };
        let graph = Graph {
            calls: **self,
            graph,
            executable,
        };
        worked?;
        judge("cuGraphInstantiateWithFlags", made)?;
        Ok(graph)
    }

    /// The node that the last call has added to the capture of the stream.
    pub(crate) fn node(&self, stream: Stream) -> Outcome<Node> {
        let (mut status, mut nodes, mut count) = (0_u32, null::<Node>(), 0_usize);
        // SAFETY: a live stream. Writes two numbers and a pointer.
        judge("cuStreamGetCaptureInfo", unsafe {
            (self.table.stream_get_capture_info)(
                stream,
                &raw mut status,
                null_mut(),
                null_mut(),
                (&raw mut nodes).cast::<c_void>(),
                (&raw mut count).cast::<c_void>(),
            )
        })?;
        if count != 1 || nodes.is_null() {
            return Err(Stop::Failed(format!("a captured call is {count} nodes")));
        }
        // SAFETY: the driver has written one node there.
        Ok(unsafe { nodes.read() })
    }
}

impl Graph {
    /// `cuGraphExecExternalSemaphoresWaitNodeSetParams`.
    #[inline]
    pub(crate) fn set_wait(&self, node: Node, semaphore: External, value: u64) -> Outcome<()> {
        let (semaphores, params) = ([semaphore], [wait_params(value)]);
        let params = NodeParams {
            semaphores: semaphores.as_ptr(),
            params: params.as_ptr().cast(),
            count: 1,
        };
        // SAFETY: a node of this graph, and arrays of one element.
        judge("cuGraphExecExternalSemaphoresWaitNodeSetParams", unsafe {
            (self.calls.table.graph_set_wait)(self.executable, node, &raw const params)
        })
    }

    /// `cuGraphExecExternalSemaphoresSignalNodeSetParams`.
    #[inline]
    pub(crate) fn set_signal(&self, node: Node, semaphore: External, value: u64) -> Outcome<()> {
        let (semaphores, params) = ([semaphore], [signal_params(value)]);
        let params = NodeParams {
            semaphores: semaphores.as_ptr(),
            params: params.as_ptr().cast(),
            count: 1,
        };
        // SAFETY: as for waits.
        judge("cuGraphExecExternalSemaphoresSignalNodeSetParams", unsafe {
            (self.calls.table.graph_set_signal)(self.executable, node, &raw const params)
        })
    }

    /// `cuGraphLaunch`.
    #[inline]
    pub(crate) fn launch(&self, stream: Stream) -> Outcome<()> {
        // SAFETY: a live graph and a live stream.
        judge("cuGraphLaunch", unsafe {
            (self.calls.table.graph_launch)(self.executable, stream)
        })
    }
}
