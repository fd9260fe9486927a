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
use crate::code::Answer;
use crate::copy::{self, Copy, Side};
use crate::current;
use crate::device::Device;
use crate::fill::{Fill, Value};
use crate::lock;
use crate::operation::Operation;
use crate::stream::Stream;

fn between_devices(to: u64, from: u64, bytes: usize) -> Copy {
    Copy {
        from: Side::Device(from),
        to: Side::Device(to),
        bytes: bytes as u64,
    }
}

fn from_host(device: &Device, to: u64, from: *const u8, bytes: usize) -> Answer<Copy> {
    let bytes = bytes as u64;
    Ok(Copy {
        from: Side::of_host(device, from.cast_mut(), bytes)?,
        to: Side::Device(to),
        bytes,
    })
}

fn to_host(device: &Device, to: *mut u8, from: u64, bytes: usize) -> Answer<Copy> {
    let bytes = bytes as u64;
    Ok(Copy {
        from: Side::Device(from),
        to: Side::of_host(device, to, bytes)?,
        bytes,
    })
}

/// Copies in a stream that is not captured. Returns the number of the command.
///
/// Memory of the host that no device reaches is read or written by this call, and not touched
/// later.
fn enqueue(stream: &Stream, mut copy: Copy) -> Answer<u64> {
    copy.check(stream.context.device)?;
    copy.read_host()?;
    let Side::Host(to) = copy.to else {
        return stream.enqueue(Operation::Copy(copy));
    };
    let bytes = copy.bytes as usize;
    let mut room = copy::stage(copy.bytes)?;
    room.resize(bytes, 0);
    let staged = Arc::new(Mutex::new(room));
    copy.to = Side::Staged(staged.clone());
    let number = stream.enqueue(Operation::Copy(copy))?;
    stream.wait(number)?;
    // SAFETY: the application has room for so many bytes there, for the time of this call.
    unsafe { to.0.copy_from_nonoverlapping(lock(&staged).as_ptr(), bytes) };
    Ok(number)
}

/// Copies in a stream, after its earlier commands.
fn copy_in(stream: &Arc<Stream>, copy: Copy) -> Answer {
    // The memory of a graph's copies is looked up at its launch.
    if capture::position(stream)?.is_some() {
        return stream.submit(Operation::Copy(copy));
    }
    enqueue(stream, copy).map(|_| ())
}

/// Copies in the legacy default stream, and waits.
fn copy_now(stream: &Stream, copy: Copy) -> Answer {
    let number = enqueue(stream, copy)?;
    stream.wait(number)
}

/// Fills in a stream.
fn fill_in(stream: Handle, to: u64, value: Value, count: usize) -> Answer {
    let stream = Stream::find(stream)?;
    let is_captured = capture::position(&stream)?.is_some();
    let fill = Fill::new(to, value, count)?;
    // The memory of a graph's fills is looked up at its launch.
    if !is_captured {
        fill.check(stream.context.device)?;
    }
    stream.submit(Operation::Fill(fill))
}

api! {
    fn cuMemcpyHtoD_v2(to: u64, from: *const u8, bytes: usize) {
        let stream = current::context()?.legacy()?;
        if bytes == 0 {
            return Ok(());
        }
        copy_now(&stream, from_host(stream.context.device, to, from, bytes)?)
    }

    fn cuMemcpyDtoH_v2(to: *mut u8, from: u64, bytes: usize) {
        let stream = current::context()?.legacy()?;
        if bytes == 0 {
            return Ok(());
        }
        copy_now(&stream, to_host(stream.context.device, to, from, bytes)?)
    }

    fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        let stream = current::context()?.legacy()?;
        copy_now(&stream, between_devices(to, from, bytes))
    }

    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, stream: Handle) {
        let stream = Stream::find(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        copy_in(&stream, from_host(stream.context.device, to, from, bytes)?)
    }

    fn cuMemcpyDtoHAsync_v2(to: *mut u8, from: u64, bytes: usize, stream: Handle) {
        let stream = Stream::find(stream)?;
        if bytes == 0 {
            return Ok(());
        }
        copy_in(&stream, to_host(stream.context.device, to, from, bytes)?)
    }

    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) {
        copy_in(&Stream::find(stream)?, between_devices(to, from, bytes))
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
