//! Streams, and their capture.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use std::cell::RefCell;
use std::ffi::c_void;

use super::Handle;
use super::graph::node;
use crate::abi::{Out, api};
use crate::bug::Bug;
use crate::capture::{self, Mode};
use crate::code::{Answer, Code};
use crate::current;
use crate::device::{GREATEST_PRIORITY, require_initialized};
use crate::host_thread::HostFunction;
use crate::operation::Operation;
use crate::stream::{STREAMS, Stream, StreamKind};

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

fn create(to: &Out<Handle>, flags: u32, priority: i32) -> Answer {
    to.require()?;
    let context = current::context()?;
    let kind = match flags {
        NON_BLOCKING if Bug::StreamsAreBlocking.is_planted() => StreamKind::Blocking,
        0 => StreamKind::Blocking,
        NON_BLOCKING => StreamKind::NonBlocking,
        _ => return Err(Code::INVALID_VALUE),
    };
    // Priorities outside the range are clamped.
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    to.set(STREAMS.add(Stream::new(&context, kind, priority)?))
}

std::thread_local! {
    /// The nodes that the last `cuStreamGetCaptureInfo_v2` of this thread has returned.
    static TOLD: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
}

api! {
    fn cuStreamCreate(to: Out<Handle>, flags: u32) {
        create(&to, flags, 0)
    }

    fn cuStreamCreateWithPriority(to: Out<Handle>, flags: u32, priority: i32) {
        create(&to, flags, priority)
    }

    fn cuStreamDestroy_v2(stream: Handle) {
        let found = STREAMS.get(stream)?;
        found.context.check()?;
        STREAMS.remove(stream)?;
        capture::abandon(&found);
        Ok(())
    }

    fn cuStreamQuery(stream: Handle) {
        Stream::find(stream)?.query()
    }

    fn cuStreamSynchronize(stream: Handle) {
        Stream::find(stream)?.synchronize()
    }

    fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) {
        context.set(Stream::find(stream)?.context.handle)
    }

    fn cuStreamGetPriority(stream: Handle, priority: Out<i32>) {
        priority.set(Stream::find(stream)?.priority)
    }

    fn cuLaunchHostFunc(
        stream: Handle,
        function: Option<extern "C" fn(*mut c_void)>,
        data: *mut c_void,
    ) {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        let host = HostFunction { function, data };
        Stream::find(stream)?.submit(Operation::HostFunction(host))
    }

    fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) {
        let mode = Mode::from_number(mode)?;
        capture::begin(&Stream::find(stream)?, mode)
    }

    fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) {
        graph.set(0)?;
        let ended = capture::end(&Stream::find(stream)?)?;
        graph.set(ended)
    }

    fn cuStreamIsCapturing(stream: Handle, status: Out<u32>) {
        status.set(capture::info(&*Stream::find(stream)?)?.status)
    }

    fn cuStreamGetCaptureInfo_v2(
        stream: Handle,
        status: Out<u32>,
        id: Out<u64>,
        graph: Out<Handle>,
        nodes: Out<*const Handle>,
        count: Out<usize>,
    ) {
        status.require()?;
        let info = capture::info(&*Stream::find(stream)?)?;
        status.set(info.status)?;
        if info.status != 1 {
            return Ok(());
        }
        id.set_if_wanted(info.id);
        graph.set_if_wanted(info.graph);
        count.set_if_wanted(info.behind.len());
        let told: Vec<_> = info.behind.iter().map(|at| node(info.graph, *at)).collect();
        nodes.set_if_wanted(told.as_ptr());
        // Valid until the next such call of this thread.
        TOLD.set(told);
        Ok(())
    }

    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) {
        require_initialized()?;
            // The driver accepts larger numbers too.
        let asked = Mode::from_number(mode.get()?.min(Mode::Relaxed as u32))?;
        mode.set(capture::exchange_mode(asked) as u32)
    }
}
