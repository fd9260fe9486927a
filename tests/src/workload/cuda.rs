//! Work for CUDA streams.

#![allow(unsafe_code, reason = "kernels are launched with raw parameters")]

use std::sync::atomic::Ordering;
use std::time::Duration;

use syncline::Result;
use syncline::cuda::{Buffer, Device, Function, Recorder};

/// A kernel of one thread that polls the GPU's clock until the time is over.
const DELAY: &str = include_str!("delay.ptx");

/// A kernel of one thread that polls a word of the host until it is not zero.
const HOLD: &str = include_str!("hold.ptx");

/// A kernel of one thread that writes to an invalid address.
const FAULT: &str = include_str!("fault.ptx");

/// The loaded kernels.
#[derive(Clone, Debug)]
pub(super) struct Kernels {
    delay: Function,
    hold: Function,
    fault: Function,
}

/// A word that a kernel of one thread polls.
///
/// It is a kernel and not a memory operation of the stream. Every device can run it, and it
/// certainly blocks the stream on the device.
#[derive(Clone, Debug)]
pub struct Latch {
    hold: Function,
    word: Buffer,
}

/// Loads the kernels. That may synchronize the context, so call it while no work is in flight.
pub(super) fn prepare(device: &Device) -> Result<Kernels> {
    Ok(Kernels {
        delay: device.module(DELAY)?.function("delay")?,
        hold: device.module(HOLD)?.function("hold")?,
        fault: device.module(FAULT)?.function("fault")?,
    })
}

pub(super) fn busy(kernels: &Kernels, recorder: &mut Recorder<'_>, time: Duration) -> Result<()> {
    let mut nanoseconds = time.as_nanos() as u64;
    let mut parameters = [std::ptr::from_mut(&mut nanoseconds).cast()];
    // SAFETY: the kernel takes one u64.
    unsafe { recorder.launch(&kernels.delay, [1; 3], [1; 3], &mut parameters) }
}

pub(super) fn latch(device: &Device, kernels: &Kernels) -> Result<Latch> {
    Ok(Latch {
        hold: kernels.hold.clone(),
        word: device.host_buffer(4)?,
    })
}

pub(super) fn block(recorder: &mut Recorder<'_>, latch: &Latch) -> Result<()> {
    recorder.keep(std::sync::Arc::new(latch.word.clone()));
    let mut address = latch.word.pointer();
    let mut parameters = [std::ptr::from_mut(&mut address).cast()];
    // SAFETY: the kernel takes the address of a word, which the submission keeps.
    unsafe { recorder.launch(&latch.hold, [1; 3], [1; 3], &mut parameters) }
}

/// Causes a fault, which loses the device for this process for good.
pub(super) fn fault(kernels: &Kernels, recorder: &mut Recorder<'_>) -> Result<()> {
    // SAFETY: the kernel takes no parameters. Its fault is intended.
    unsafe { recorder.launch(&kernels.fault, [1; 3], [1; 3], &mut []) }
}

pub(super) fn open(latch: &Latch) {
    for word in latch.word.as_words().unwrap_or_default() {
        word.store(1, Ordering::Release);
    }
}
