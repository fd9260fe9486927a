//! Semaphores and memory of other APIs.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use std::sync::Arc;

use syncline_software_payload::Kind;

use super::Handle;
use crate::abi::{In, Out, api};
use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::current;
use crate::external::{self, MEMORY, SEMAPHORES, Semaphore, SignalSemaphore, WaitSemaphore};
use crate::operation::Operation;
use crate::stream::Stream;

/// `CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SemaphoreDesc {
    kind: u32,
    handle: Union,
    flags: u32,
    _reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct MemoryDesc {
    kind: u32,
    handle: Union,
    size: u64,
    flags: u32,
    _reserved: [u32; 16],
}

/// The union of both: a descriptor, or two pointers.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(super) struct Union {
    descriptor: i32,
    _rest: [u32; 3],
}

/// `CUDA_EXTERNAL_MEMORY_BUFFER_DESC`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct BufferDesc {
    offset: u64,
    size: u64,
    flags: u32,
    _reserved: [u32; 16],
}

/// `CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS` and `…_WAIT_PARAMS`, with the same used fields.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Params {
    pub(super) value: u64,
    _others: [u64; 8],
    flags: u32,
    _reserved: [u32; 16],
}

const _: () = assert!(size_of::<SemaphoreDesc>() == 96 && size_of::<MemoryDesc>() == 104);
const _: () = assert!(size_of::<BufferDesc>() == 88 && size_of::<Params>() == 144);

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`, and the same of semaphores.
const OPAQUE_FD: u32 = 1;
const TIMELINE_SEMAPHORE_FD: u32 = 9;
/// `CUDA_EXTERNAL_MEMORY_DEDICATED`.
const DEDICATED: u32 = 1;

/// Returns the semaphores, each with its value.
pub(super) fn list(
    semaphores: &In<Handle>,
    params: &In<Params>,
    count: u32,
) -> Answer<Vec<(Arc<Semaphore>, Params)>> {
    if count == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let count = count as usize;
    let (semaphores, params) = (semaphores.list(count)?, params.list(count)?);
    let each = semaphores.into_iter().zip(params);
    each.map(|(semaphore, params)| Ok((SEMAPHORES.get(semaphore)?, params)))
        .collect()
}

api! {
    fn cuImportExternalSemaphore(to: Out<Handle>, desc: In<SemaphoreDesc>) {
        to.require()?;
        let desc = desc.get()?;
        let context = current::context()?;
        let kind = match desc.kind {
            OPAQUE_FD => Kind::Binary,
            TIMELINE_SEMAPHORE_FD => Kind::Timeline,
            2..=10 => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_VALUE),
        };
        if desc.flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        to.set(external::import_semaphore(&context, kind, desc.handle.descriptor)?)
    }

    fn cuDestroyExternalSemaphore(semaphore: Handle) {
        if semaphore == 0 {
            return Err(Code::INVALID_VALUE);
        }
        SEMAPHORES.remove(semaphore)?.wait_until_unused();
        Ok(())
    }

    fn cuSignalExternalSemaphoresAsync(
        semaphores: In<Handle>,
        params: In<Params>,
        count: u32,
        stream: Handle,
    ) {
        let stream = Stream::find(stream)?;
        let all = list(&semaphores, &params, count)?.into_iter();
        let all = all.map(|(semaphore, params)| SignalSemaphore::new(semaphore, params.value));
        if Bug::SignalsTooEarly.is_planted() {
            all.for_each(|signal| signal.submitted().run());
            return Ok(());
        }
        stream.submit(Operation::SignalSemaphores(all.collect()))
    }

    fn cuWaitExternalSemaphoresAsync(
        semaphores: In<Handle>,
        params: In<Params>,
        count: u32,
        stream: Handle,
    ) {
        let stream = Stream::find(stream)?;
        let all = list(&semaphores, &params, count)?;
        if all.iter().any(|(_, params)| params.flags != 0) {
            return Err(Code::INVALID_VALUE);
        }
        let all = all.into_iter();
        let all = all.map(|(semaphore, params)| WaitSemaphore::new(semaphore, params.value));
        if Bug::ForgetsExternalWait.is_planted() {
            return Ok(());
        }
        stream.submit(Operation::WaitSemaphores(all.collect()))
    }

    fn cuImportExternalMemory(to: Out<Handle>, desc: In<MemoryDesc>) {
        to.require()?;
        let desc = desc.get()?;
        let context = current::context()?;
        match desc.kind {
            OPAQUE_FD => {}
            2..=8 => return Err(Code::NOT_SUPPORTED),
            _ => return Err(Code::INVALID_VALUE),
        }
        if desc.flags & !DEDICATED != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (descriptor, dedicated) = (desc.handle.descriptor, desc.flags & DEDICATED != 0);
        to.set(external::import_memory(&context, descriptor, desc.size, dedicated)?)
    }

    fn cuExternalMemoryGetMappedBuffer(to: Out<u64>, memory: Handle, desc: In<BufferDesc>) {
        to.require()?;
        let desc = desc.get()?;
        let context = current::context()?;
        if desc.flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        to.set(MEMORY.get(memory)?.map(&context, desc.offset, desc.size)?)
    }

    fn cuDestroyExternalMemory(memory: Handle) {
        if memory == 0 {
            return Err(Code::INVALID_VALUE);
        }
        MEMORY.remove(memory)?.end();
        Ok(())
    }
}
