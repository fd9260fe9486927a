//! Copies and fills.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use std::sync::{Arc, Mutex};

use super::Handle;
use crate::abi::api;
use crate::capture;
use crate::code::{Answer, Code};
use crate::copy::{Copy, Side};
use crate::current;
use crate::device::Device;
use crate::fill::{Fill, Value};
use crate::lock;
use crate::operation::Operation;
use crate::space;
use crate::stream::Stream;

fn copy(from: Side, to: Side, bytes: usize) -> Copy {
    Copy {
        from,
        to,
        bytes: bytes as u64,
    }
}

/// Copies in a stream, behind what is there.
fn copy_in(stream: Handle, copy: Copy) -> Answer {
    let stream = Stream::find(stream)?;
    // What a graph copies is looked up at its launch.
    if capture::place(&stream)?.is_none() {
        copy.check(stream.context.device)?;
    }
    stream.submit(Operation::Copy(copy))
}

/// Copies in the legacy default stream, and waits.
fn copy_now(copy: Copy) -> Answer {
    let stream = current::context()?.legacy();
    copy.check(stream.context.device)?;
    let number = stream.enqueue(Operation::Copy(copy))?;
    stream.wait(number)
}

/// True if devices reach the memory of the host, so that a copy need not go through memory of the driver.
fn is_reachable(device: &Device, address: usize, bytes: usize) -> bool {
    space::find(device, address as u64, bytes as u64).is_some()
}

/// Copies to memory of the host that the driver must not touch once the call has returned.
fn copy_out(stream: &Arc<Stream>, from: u64, to: *mut u8, bytes: usize) -> Answer {
    let staged = Arc::new(Mutex::new(Vec::new()));
    lock(&staged)
        .try_reserve_exact(bytes)
        .map_err(|_| Code::OUT_OF_MEMORY)?;
    lock(&staged).resize(bytes, 0);
    let copy = copy(Side::Device(from), Side::Staged(staged.clone()), bytes);
    copy.check(stream.context.device)?;
    let number = stream.enqueue(Operation::Copy(copy))?;
    stream.wait(number)?;
    // SAFETY: the application has room for so many bytes there, for the time of this call.
    unsafe { to.copy_from_nonoverlapping(lock(&staged).as_ptr(), bytes) };
    Ok(())
}

/// Fills in a stream.
fn fill_in(stream: Handle, to: u64, value: Value, count: usize) -> Answer {
    let stream = Stream::find(stream)?;
    let is_captured = capture::place(&stream)?.is_some();
    let fill = Fill::new(to, value, count)?;
    // What a graph fills is looked up at its launch.
    if !is_captured {
        fill.check(stream.context.device)?;
    }
    stream.submit(Operation::Fill(fill))
}

api! {
    fn cuMemcpyHtoD_v2(to: u64, from: *const u8, bytes: usize) {
        if bytes == 0 {
            return current::context().map(|_| ());
        }
        let from = match Side::of_host(from.cast_mut()) {
            Side::Host(pointer) if pointer.0.is_null() => return Err(Code::INVALID_VALUE),
            Side::Host(_) => Side::staged_from(from, bytes),
            other => other,
        };
        copy_now(copy(from, Side::Device(to), bytes))
    }

    fn cuMemcpyDtoH_v2(to: *mut u8, from: u64, bytes: usize) {
        let stream = current::context()?.legacy();
            if bytes == 0 {
            return Ok(());
        }
        match Side::of_host(to) {
            Side::Host(pointer) if pointer.0.is_null() => Err(Code::INVALID_VALUE),
            Side::Host(_) => copy_out(&stream, from, to, bytes),
            other => copy_now(copy(Side::Device(from), other, bytes)),
        }
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        copy_now(copy(Side::Device(from), Side::Device(to), bytes))
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) {
        copy_in(stream, copy(Side::Device(from), Side::Device(to), bytes))
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, stream: Handle) {
        let found = Stream::find(stream)?;
        let staged = !is_reachable(found.context.device, from.addr(), bytes)
            && capture::place(&found)?.is_none();
        let from = match Side::of_host(from.cast_mut()) {
            Side::Host(pointer) if pointer.0.is_null() => return Err(Code::INVALID_VALUE),
            Side::Host(_) if staged => Side::staged_from(from, bytes),
            other => other,
        };
        copy_in(stream, copy(from, Side::Device(to), bytes))
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut u8, from: u64, bytes: usize, stream: Handle) {
        let found = Stream::find(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        let staged = !is_reachable(found.context.device, to.addr(), bytes)
            && capture::place(&found)?.is_none();
        match Side::of_host(to) {
            Side::Host(pointer) if pointer.0.is_null() => Err(Code::INVALID_VALUE),
            Side::Host(_) if staged => copy_out(&found, from, to, bytes),
            other => copy_in(stream, copy(Side::Device(from), other, bytes)),
        }
    }

    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) {
        fill_in(0, to, Value::Byte(value), count)
    }

    fn cuMemsetD16_v2(to: u64, value: u16, count: usize) {
        fill_in(0, to, Value::Half(value), count)
    }

    fn cuMemsetD32_v2(to: u64, value: u32, count: usize) {
        fill_in(0, to, Value::Word(value), count)
    }

    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) {
        fill_in(stream, to, Value::Byte(value), count)
    }

    fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: Handle) {
        fill_in(stream, to, Value::Half(value), count)
    }

    fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: Handle) {
        fill_in(stream, to, Value::Word(value), count)
    }
}
