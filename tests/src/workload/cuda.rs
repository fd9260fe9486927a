//! Work for CUDA streams.

#![allow(unsafe_code, reason = "a kernel is launched with raw parameters")]

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use syncline::backend::Device as _;
use syncline::cuda::{Device, DeviceBuffer, Function, Recorder};
use syncline::{DeviceId, Result};

/// One thread that looks at the GPU's clock until the time is over.
const DELAY: &str = include_str!("delay.ptx");

static DELAYS: Mutex<Option<HashMap<DeviceId, Function>>> = Mutex::new(None);

pub(super) fn fill(recorder: &mut Recorder, buffer: &DeviceBuffer, value: u32) -> Result<()> {
    recorder.memset_d32(buffer, value)
}

pub(super) fn copy(recorder: &mut Recorder, from: &DeviceBuffer, to: &DeviceBuffer) -> Result<()> {
    recorder.copy(from, to)
}

/// Loads the kernel, which may synchronize the context: never while work is in flight.
pub(super) fn prepare(device: &Device) -> Result<()> {
    let delay = device.module(DELAY)?.function(c"delay")?;
    let mut delays = DELAYS.lock().unwrap_or_else(PoisonError::into_inner);
    delays.get_or_insert_default().insert(device.id(), delay);
    Ok(())
}

pub(super) fn busy(device: &Device, recorder: &mut Recorder, time: Duration) -> Result<()> {
    let delay = {
        let delays = DELAYS.lock().unwrap_or_else(PoisonError::into_inner);
        delays
            .as_ref()
            .and_then(|delays| delays.get(&device.id()).cloned())
    };
    let Some(delay) = delay else {
        return Err(super::unprepared());
    };
    let mut nanoseconds = time.as_nanos() as u64;
    let mut parameters = [std::ptr::from_mut(&mut nanoseconds).cast()];
    // SAFETY: the kernel takes one u64.
    unsafe { recorder.launch(&delay, [1; 3], [1; 3], &mut parameters) }
}
