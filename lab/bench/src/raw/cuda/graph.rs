//! A captured graph that waits for a semaphore and signals one, by hand.
#![allow(unsafe_code, reason = "calls the driver, as the baseline")]

use std::ptr::null_mut;

use cudarc::driver::sys;

use super::{External, Hand, Stream, call, signal_params, wait_params};
use crate::side::{Outcome, Stop};

type Node = sys::CUgraphNode;
use sys::CUgraphNodeType_enum as Kind;

/// A graph and its executable form. The drop destroys both.
pub(crate) struct Graph {
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
            let _ = sys::cuGraphExecDestroy(self.executable);
            let _ = sys::cuGraphDestroy(self.graph);
        }
    }
}

impl Graph {
    /// Captures what `work` adds to the stream, and instantiates the graph.
    pub(crate) fn capture(
        _current: &Hand,
        stream: Stream,
        work: impl FnOnce() -> Outcome<()>,
    ) -> Outcome<Self> {
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: a live stream.
        unsafe { call!(cuStreamBeginCapture_v2(stream, mode)) }?;
        let worked = work();
        let mut made = Self {
            graph: null_mut(),
            executable: null_mut(),
        };
        // SAFETY: this thread has begun the capture. Writes one handle.
        unsafe { call!(cuStreamEndCapture(stream, &raw mut made.graph)) }?;
        worked?;
        let (to, graph) = (&raw mut made.executable, made.graph);
        // SAFETY: a live graph. Writes one handle.
        unsafe { call!(cuGraphInstantiateWithFlags(to, graph, 0)) }?;
        Ok(made)
    }

    /// The node that waits for an external semaphore, and the one that signals one.
    pub(crate) fn nodes(&self) -> Outcome<[Node; 2]> {
        let (mut nodes, mut count) = ([null_mut(); 8], 8);
        // SAFETY: writes at most 8 handles, and their number.
        unsafe {
            call!(cuGraphGetNodes(
                self.graph,
                nodes.as_mut_ptr(),
                &raw mut count
            ))
        }?;
        let find = |wanted: Kind| -> Outcome<Node> {
            for node in &nodes[..count.min(8)] {
                let mut kind = Kind::CU_GRAPH_NODE_TYPE_EMPTY;
                // SAFETY: a node of this graph. Writes one number.
                unsafe { call!(cuGraphNodeGetType(*node, &raw mut kind)) }?;
                if kind == wanted {
                    return Ok(*node);
                }
            }
            Err(Stop::Failed(format!("the graph has no {wanted:?}")))
        };
        Ok([
            find(Kind::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT)?,
            find(Kind::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL)?,
        ])
    }

    #[inline]
    pub(crate) fn set_wait(&self, node: Node, semaphore: External, value: u64) -> Outcome<()> {
        let (mut semaphores, params) = ([semaphore], [wait_params(value)]);
        let params = sys::CUDA_EXT_SEM_WAIT_NODE_PARAMS {
            extSemArray: semaphores.as_mut_ptr(),
            paramsArray: params.as_ptr(),
            numExtSems: 1,
        };
        let (executable, params) = (self.executable, &raw const params);
        // SAFETY: a node of this graph, and arrays of one element.
        unsafe {
            call!(cuGraphExecExternalSemaphoresWaitNodeSetParams(
                executable, node, params
            ))
        }
    }

    #[inline]
    pub(crate) fn set_signal(&self, node: Node, semaphore: External, value: u64) -> Outcome<()> {
        let (mut semaphores, params) = ([semaphore], [signal_params(value)]);
        let params = sys::CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
            extSemArray: semaphores.as_mut_ptr(),
            paramsArray: params.as_ptr(),
            numExtSems: 1,
        };
        let (executable, params) = (self.executable, &raw const params);
        // SAFETY: as for waits.
        unsafe {
            call!(cuGraphExecExternalSemaphoresSignalNodeSetParams(
                executable, node, params
            ))
        }
    }

    #[inline]
    pub(crate) fn launch(&self, stream: Stream) -> Outcome<()> {
        // SAFETY: a live graph and a live stream.
        unsafe { call!(cuGraphLaunch(self.executable, stream)) }
    }
}
