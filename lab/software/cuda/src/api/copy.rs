//! Copies and fills.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use std::sync::Arc;

use super::Handle;
use crate::abi::{In, api};
use crate::array::Array;
use crate::capture;
use crate::code::{Answer, Code};
use crate::copy::{self, Copy, Pitches, Side};
use crate::current;
use crate::device::Device;
use crate::fill::{Fill, Value};
use crate::operation::Operation;
use crate::stream::Stream;

fn between_devices(to: u64, from: u64, bytes: usize) -> Copy {
    Copy::new(Side::Device(from), Side::Device(to), bytes as u64)
}

fn from_host(device: &Device, to: u64, from: *const u8, bytes: usize) -> Answer<Copy> {
    let bytes = bytes as u64;
    let from = Side::of_host(device, from.cast_mut(), bytes)?;
    Ok(Copy::new(from, Side::Device(to), bytes))
}

fn to_host(device: &Device, to: *mut u8, from: u64, bytes: usize) -> Answer<Copy> {
    let bytes = bytes as u64;
    let to = Side::of_host(device, to, bytes)?;
    Ok(Copy::new(Side::Device(from), to, bytes))
}

/// Copies in a stream that is not captured. Returns the number of the command.
///
/// Memory of the host that no device reaches is read or written by this call, and not touched
/// later. A copy from host memory to host memory has ended when the call returns.
fn enqueue(stream: &Stream, mut copy: Copy) -> Answer<u64> {
    copy.check(stream.context.device)?;
    copy.read_host()?;
    let write = copy.defer_host()?;
    let is_synchronous = copy.is_within_host();
    let number = stream.enqueue(Operation::Copy(copy))?;
    if is_synchronous {
        stream.wait(number)?;
    }
    if let Some(write) = write {
        stream.wait(number)?;
        write();
    }
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

/// One side of a [`Flat`]: x in bytes, y, and the first byte of memory or an array.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct FlatSide {
    start: [usize; 2],
    kind: u32,
    host: *mut u8,
    device: u64,
    array: Handle,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Flat {
    from: FlatSide,
    to: FlatSide,
    extent: [usize; 2],
}

/// One side of a [`Solid`].
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct SolidSide {
    start: [usize; 3],
    level: usize,
    kind: u32,
    host: *mut u8,
    device: u64,
    array: Handle,
    reserved: usize,
    pitch: usize,
    /// Rows from one slice to the next.
    height: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Solid {
    from: SolidSide,
    to: SolidSide,
    extent: [usize; 3],
}

const _: () = assert!(size_of::<Flat>() == 128 && size_of::<Solid>() == 200);

/// `CU_MEMORYTYPE_HOST` and the other types.
const HOST: u32 = 1;
const DEVICE: u32 = 2;
const ARRAY: u32 = 3;
const UNIFIED: u32 = 4;

impl From<FlatSide> for SolidSide {
    fn from(flat: FlatSide) -> Self {
        let [x, y] = flat.start;
        Self {
            start: [x, y, 0],
            level: 0,
            kind: flat.kind,
            host: flat.host,
            device: flat.device,
            array: flat.array,
            reserved: 0,
            pitch: flat.pitch,
            height: 0,
        }
    }
}

impl From<Flat> for Solid {
    fn from(flat: Flat) -> Self {
        let [bytes, rows] = flat.extent;
        Self {
            from: flat.from.into(),
            to: flat.to.into(),
            extent: [bytes, rows, 1],
        }
    }
}

impl SolidSide {
    /// The side and its pitches.
    fn find(&self, device: &Device, extent: [u64; 3]) -> Answer<(Side, Pitches)> {
        let start = self.start.map(|at| at as u64);
        if self.level != 0 || self.reserved != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if self.kind == ARRAY {
            let array = Array::find(self.array)?;
            let pitches = array.pitches();
            return Ok((Side::Array(array, start), pitches));
        }
        let ([x, y, z], [bytes, rows, slices]) = (start, extent);
        let (pitch, height) = (self.pitch as u64, self.height as u64);
        // Rows do not overlap, and neither do slices. A single one needs no pitch.
        let fits = |size: u64, start: u64, pitch: u64| {
            size.checked_add(start).is_some_and(|end| end <= pitch)
        };
        let is_single = rows <= 1 && slices <= 1 && y == 0 && z == 0;
        let is_slice = slices <= 1 && z == 0;
        if !is_single && !fits(bytes, x, pitch) || !is_slice && !fits(rows, y, height) {
            return Err(Code::INVALID_VALUE);
        }
        let slice = pitch.checked_mul(height).ok_or(Code::INVALID_VALUE)?;
        let pitches = [pitch, slice];
        let first = pitch.checked_mul(y).zip(slice.checked_mul(z));
        let first = first.and_then(|(row, slice)| row.checked_add(slice)?.checked_add(x));
        let first = first.ok_or(Code::INVALID_VALUE)?;
        let side = match self.kind {
            DEVICE => Side::Device(self.device.wrapping_add(first)),
            HOST | UNIFIED => {
                let given = match self.kind {
                    HOST => self.host,
                    _ => std::ptr::with_exposed_provenance_mut(self.device as usize),
                };
                let at = given.wrapping_add(first as usize);
                let bytes = copy::span(extent, pitches).ok_or(Code::INVALID_VALUE)?;
                // Null stays null.
                Side::of_host(device, if given.is_null() { given } else { at }, bytes)?
            }
            _ => return Err(Code::INVALID_VALUE),
        };
        Ok((side, pitches))
    }
}

/// Returns the copy of a box. `None` if it is empty.
fn of_box(device: &Device, asked: impl Into<Solid>) -> Answer<Option<Copy>> {
    let Solid { from, to, extent } = asked.into();
    let extent = extent.map(|size| size as u64);
    if extent.contains(&0) {
        return Ok(None);
    }
    let (from, to) = (from.find(device, extent)?, to.find(device, extent)?);
    Copy::of_rows(from, to, extent).map(Some)
}

/// Copies a box in the legacy default stream, and waits.
fn box_now(asked: impl Into<Solid>) -> Answer {
    let stream = current::context()?.legacy()?;
    let copy = of_box(stream.context.device, asked)?;
    copy.map_or(Ok(()), |copy| copy_now(&stream, copy))
}

/// Copies a box in a stream.
fn box_in(stream: Handle, asked: impl Into<Solid>) -> Answer {
    let stream = Stream::find(stream)?;
    let copy = of_box(stream.context.device, asked)?;
    copy.map_or(Ok(()), |copy| copy_in(&stream, copy))
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

    fn cuMemcpy2D_v2(asked: In<Flat>) {
        box_now(asked.get()?)
    }

    fn cuMemcpy2DAsync_v2(asked: In<Flat>, stream: Handle) {
        box_in(stream, asked.get()?)
    }

    fn cuMemcpy3D_v2(asked: In<Solid>) {
        box_now(asked.get()?)
    }

    fn cuMemcpy3DAsync_v2(asked: In<Solid>, stream: Handle) {
        box_in(stream, asked.get()?)
    }

    fn cuMemsetD8_v2(to: u64, value: u8, count: usize) {
        fill_in(0, to, Value::Byte(value), count)
    }

    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) {
        fill_in(stream, to, Value::Byte(value), count)
    }

    fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: Handle) {
        fill_in(stream, to, Value::Word(value), count)
    }
}
