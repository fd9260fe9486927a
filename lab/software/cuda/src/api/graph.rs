//! Graphs and user objects.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use std::ffi::c_void;
use std::sync::Arc;

use super::Handle;
use super::external::{Params, list};
use super::memory_op;
use crate::abi::{In, Out, api};
use crate::capture;
use crate::code::{Answer, Code};
use crate::current;
use crate::device::require_initialized;
use crate::event::Event;
use crate::external::{Semaphore, SignalSemaphore, WaitSemaphore};
use crate::graph::{EXECUTABLES, GRAPHS, executable, graph};
use crate::operation::Operation;
use crate::stream::Stream;
use crate::user_object::{Kept, USER_OBJECTS, UserObject};
use crate::workers;

/// The flags of `CUgraphInstantiate_flags` that need no stream. This driver ignores them.
const INSTANTIATE_FLAGS: u64 = 1 | 4 | 8;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, which is required.
const NO_DESTRUCTOR_SYNC: u32 = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`.
const MOVE: u32 = 1;

/// The number of low bits of a node's handle that hold the number of the node.
///
/// The other bits hold the handle of the graph.
const NODE_BITS: u32 = 24;

pub(super) const fn node(graph: Handle, index: usize) -> Handle {
    graph << NODE_BITS | (index + 1)
}

/// `CUDA_EXT_SEM_SIGNAL_NODE_PARAMS` and `CUDA_EXT_SEM_WAIT_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SemaphoreNodeParams {
    semaphores: *const Handle,
    params: *const Params,
    count: u32,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MemoryNodeParams {
    context: Handle,
    count: u32,
    ops: *const memory_op::Params,
    flags: u32,
}

/// Returns the semaphores of a node, each with its value.
fn semaphores(of: &SemaphoreNodeParams) -> Answer<Vec<(Arc<Semaphore>, Params)>> {
    list(&In::at(of.semaphores), &In::at(of.params), of.count)
}

/// Changes a node of an executable graph, which is given by the node of the original graph.
///
fn change(exec: Handle, node: Handle, to: Operation) -> Answer {
    let index = (node & ((1 << NODE_BITS) - 1)).checked_sub(1);
    let original = graph(node >> NODE_BITS)?;
    executable(exec)?.change(&original, index.ok_or(Code::INVALID_VALUE)?, to)
}

api! {
    fn cuGraphCreate(to: Out<Handle>, flags: u32) {
        require_initialized()?;
        to.require()?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        to.set(GRAPHS.add(Arc::default()))
    }

    fn cuGraphInstantiateWithFlags(to: Out<Handle>, of: Handle, flags: u64) {
        to.require()?;
        current::context()?;
        if flags & !INSTANTIATE_FLAGS != 0 {
            return Err(Code::INVALID_VALUE);
        }
        capture::permit()?;
        to.set(EXECUTABLES.add(Arc::new(graph(of)?.instantiate())))
    }

    fn cuGraphLaunch(graph: Handle, stream: Handle) {
        executable(graph)?.launch(&Stream::find(stream)?)
    }

    fn cuGraphExecExternalSemaphoresSignalNodeSetParams(
        exec: Handle,
        node: Handle,
        params: In<SemaphoreNodeParams>,
    ) {
        let all = semaphores(&params.get()?)?.into_iter();
        let all = all.map(|(semaphore, params)| SignalSemaphore::new(semaphore, params.value));
        change(exec, node, Operation::SignalSemaphores(all.collect()))
    }

    fn cuGraphExecExternalSemaphoresWaitNodeSetParams(
        exec: Handle,
        node: Handle,
        params: In<SemaphoreNodeParams>,
    ) {
        let all = semaphores(&params.get()?)?.into_iter();
        let all = all.map(|(semaphore, params)| WaitSemaphore::new(semaphore, params.value));
        change(exec, node, Operation::WaitSemaphores(all.collect()))
    }

    fn cuGraphExecEventRecordNodeSetEvent(exec: Handle, node: Handle, event: Handle) {
        change(exec, node, Operation::RecordEvent(Event::find(event)?))
    }

    fn cuGraphExecEventWaitNodeSetEvent(exec: Handle, node: Handle, event: Handle) {
        change(exec, node, Operation::WaitAtLaunch(Event::find(event)?))
    }

    fn cuGraphExecBatchMemOpNodeSetParams(
        exec: Handle,
        node: Handle,
        params: In<MemoryNodeParams>,
    ) {
        let params = params.get()?;
        if params.flags != 0 || params.context != current::context()?.handle {
            return Err(Code::INVALID_VALUE);
        }
        let ops = In::at(params.ops).list(params.count as usize)?;
        let ops: Answer<Vec<_>> = ops.iter().map(memory_op::one).collect();
        change(exec, node, Operation::MemoryOps(ops?.into()))
    }

    fn cuGraphUpload(graph: Handle, stream: Handle) {
        executable(graph)?;
        Stream::find(stream).map(drop)
    }

    fn cuGraphGetNodes(of: Handle, nodes: Out<Handle>, count: Out<usize>) {
        let known = graph(of)?.len();
        if nodes.pointer().is_null() {
            return count.set(known);
        }
        let capacity = count.get()?;
        for index in 0..capacity {
            // Handles of missing nodes are null.
            let handle = if index < known { node(of, index) } else { 0 };
            // SAFETY: the application says that so many handles fit there.
            unsafe { nodes.pointer().add(index).write_unaligned(handle) };
        }
        count.set(capacity.min(known))
    }

    fn cuGraphNodeGetType(node: Handle, kind: Out<u32>) {
        let (of, index) = (node >> NODE_BITS, (node & ((1 << NODE_BITS) - 1)).wrapping_sub(1));
        let known = graph(of)?.kind(index).ok_or(Code::INVALID_VALUE)?;
        kind.set(known)
    }

    fn cuGraphDestroy(of: Handle) {
        GRAPHS.remove(of).map(drop).map_err(|_| Code::INVALID_VALUE)
    }

    fn cuGraphExecDestroy(graph: Handle) {
        capture::permit()?;
        let gone = EXECUTABLES.remove(graph).map_err(|_| Code::INVALID_VALUE)?;
        // It may be the last that keeps an object of the application. A thread of the driver
        // destroys it.
        workers::run(move || drop(gone))
    }

    fn cuUserObjectCreate(
        to: Out<Handle>,
        pointer: *mut c_void,
        destroy: Option<extern "C" fn(*mut c_void)>,
        references: u32,
        flags: u32,
    ) {
        require_initialized()?;
        to.require()?;
        let destroy = destroy.ok_or(Code::INVALID_VALUE)?;
        if flags != NO_DESTRUCTOR_SYNC || references == 0 {
            return Err(Code::INVALID_VALUE);
        }
        to.set(USER_OBJECTS.add(UserObject::new(pointer, destroy, references)))
    }

    fn cuUserObjectRelease(handle: Handle, count: u32) {
        let object = USER_OBJECTS.get(handle).map_err(|_| Code::INVALID_VALUE)?;
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        object.release(handle, count)
    }

    fn cuGraphRetainUserObject(of: Handle, handle: Handle, count: u32, flags: u32) {
        let graph = graph(of)?;
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let object = USER_OBJECTS.get(handle).map_err(|_| Code::INVALID_VALUE)?;
        let kept = match flags {
            0 => Kept::new(object, count),
            MOVE => Kept::moved(object, handle, count)?,
            _ => return Err(Code::INVALID_VALUE),
        };
        graph.keep(kept);
        Ok(())
    }
}
