//! The producer of the frames: CUDA, on a device that Syncline opens, or the host.
#![allow(unsafe_code, reason = "launches a kernel")]

use std::ffi::c_void;
use std::sync::Arc;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Buffer, Device, Point, QueueKind, Signal, cuda};
use syncline_recipes::{Arguments, BLOCK, Host, LIMIT, PTX, Stop, WORDS};

/// Opens the first CUDA device.
///
/// An application with a context of its own adopts that, as `cudarc_ash` does.
pub(crate) fn first_cuda() -> syncline::Result<cuda::Device> {
    let devices = cuda::Driver::load()?.devices()?;
    let first = devices.first().ok_or_else(|| {
        syncline::Error::unavailable(
            syncline::info::BackendKind::Cuda,
            "the driver has no device",
        )
    })?;
    first.open()
}

pub(crate) enum Producer {
    Cuda(cuda::Queue, cuda::Function),
    Host(Host),
}

impl Producer {
    pub(crate) fn new(device: &Device) -> Result<Self, Stop> {
        if let Device::Cuda(cuda) = device {
            let kernel = cuda.module(PTX)?.function("produce")?;
            return Ok(Self::Cuda(
                cuda.queue(QueueKind::Compute, "produce")?,
                kernel,
            ));
        }
        let host = Host::new(device)?;
        Ok(Self::Host(
            host.ok_or("neither CUDA nor the host produces")?,
        ))
    }

    pub(crate) fn produce(
        &self,
        frame: u64,
        memory: &Buffer,
        arguments: &Arguments,
        waits: &[Point<'_>],
        signal: Signal<'_>,
    ) -> Result<(), Stop> {
        let (mut frame, late) = (frame as u32, arguments.late());
        match (self, memory) {
            (Self::Cuda(queue, kernel), Buffer::Cuda(words)) => {
                let (kernel, words) = (kernel.clone(), words.clone());
                let launch = move |recorder: &mut cuda::Recorder<'_>| {
                    let (mut pointer, mut count) = (words.pointer(), WORDS);
                    let mut late = late.as_nanos() as u64;
                    let mut parameters = [
                        parameter(&mut pointer),
                        parameter(&mut count),
                        parameter(&mut frame),
                        parameter(&mut late),
                    ];
                    recorder.keep(Arc::new(words.clone()));
                    let blocks = [WORDS.div_ceil(BLOCK), 1, 1];
                    // SAFETY: these are the kernel's parameters. It writes WORDS words of memory
                    // that is kept.
                    unsafe { recorder.launch(&kernel, blocks, [BLOCK, 1, 1], &mut parameters) }
                };
                queue.submit(waits, launch, &[signal])?;
            }
            (Self::Host(host), memory) => host.produce(frame, memory, late, waits, signal)?,
            _ => return Err("the producer's side of the memory is not its own".into()),
        }
        Ok(())
    }

    pub(crate) fn idle(&self) -> syncline::Result<()> {
        match self {
            Self::Cuda(queue, _) => queue.idle(LIMIT),
            Self::Host(host) => host.idle(LIMIT),
        }
    }
}

/// Returns the address of a kernel's parameter. The driver reads it during the launch.
fn parameter<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}
