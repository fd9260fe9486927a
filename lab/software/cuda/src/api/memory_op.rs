//! Memory operations of streams.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use super::Handle;
use crate::abi::{In, api};
use crate::bug::Bug;
use crate::capture;
use crate::code::{Answer, Code};
use crate::memory_op::{MemoryOp, Until, Width};
use crate::operation::Operation;
use crate::stream::Stream;

/// `CU_STREAM_WAIT_VALUE_FLUSH`, which the devices do not offer.
const FLUSH: u32 = 1 << 30;
/// The largest number of operations in one call.
const MOST: u32 = 255;

/// `CUstreamBatchMemOpParams`, in the layout that waits and writes have.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Params {
    pub(super) operation: u32,
    _padding: u32,
    address: u64,
    value: u64,
    flags: u32,
    _padding_too: u32,
    _rest: [u64; 2],
}

const _: () = assert!(size_of::<Params>() == 48);

fn wait(address: u64, value: u64, width: Width, flags: u32) -> Answer<MemoryOp> {
    if flags & FLUSH != 0 {
        return Err(Code::NOT_SUPPORTED);
    }
    Ok(MemoryOp::Wait {
        address,
        value,
        width,
        until: Until::from_flags(flags)?,
    })
}

const fn write(address: u64, value: u64, width: Width, flags: u32) -> Answer<MemoryOp> {
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    Ok(MemoryOp::Write {
        address,
        value,
        width,
    })
}

pub(super) fn one(params: &Params) -> Answer<MemoryOp> {
    let Params {
        address,
        value,
        flags,
        ..
    } = *params;
    let low = u64::from(value as u32);
    match params.operation {
        1 => wait(address, low, Width::Bits32, flags),
        2 => write(address, low, Width::Bits32, flags),
        4 => wait(address, value, Width::Bits64, flags),
        5 => write(address, value, Width::Bits64, flags),
        6 => Ok(MemoryOp::Barrier),
        // A flush of remote writes: the devices do not offer it.
        3 => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn submit(stream: Handle, ops: Vec<MemoryOp>) -> Answer {
    let stream = Stream::find(stream)?;
    if capture::position(&stream)?.is_none() {
        for op in &ops {
            op.check(stream.context.device)?;
        }
    }
    stream.submit(Operation::MemoryOps(ops.into()))
}

api! {
    fn cuStreamWaitValue32_v2(stream: Handle, address: u64, value: u32, flags: u32) {
        submit(stream, vec![wait(address, value.into(), Width::Bits32, flags)?])
    }

    fn cuStreamWaitValue64_v2(stream: Handle, address: u64, value: u64, flags: u32) {
        submit(stream, vec![wait(address, value, Width::Bits64, flags)?])
    }

    fn cuStreamWriteValue32_v2(stream: Handle, address: u64, value: u32, flags: u32) {
        submit(stream, vec![write(address, value.into(), Width::Bits32, flags)?])
    }

    fn cuStreamWriteValue64_v2(stream: Handle, address: u64, value: u64, flags: u32) {
        submit(stream, vec![write(address, value, Width::Bits64, flags)?])
    }

    fn cuStreamBatchMemOp_v2(stream: Handle, count: u32, params: In<Params>, flags: u32) {
        if flags != 0 || count > MOST {
            return Err(Code::INVALID_VALUE);
        }
        let mut params = params.list(count as usize)?;
        if Bug::BatchDoesTheFirst.is_planted() {
            params.truncate(1);
        }
        submit(stream, params.iter().map(one).collect::<Answer<_>>()?)
    }
}
