//! The two stages of the pipeline on each backend.

#[cfg(feature = "cuda")]
pub(crate) mod cuda;
mod host;
#[cfg(feature = "vulkan")]
pub(crate) mod vulkan;
#[cfg(feature = "vulkan")]
mod vulkan_kernel;

use std::sync::Arc;
use std::time::Duration;

use syncline::{Buffer, Device, Error, Recorder, Result};

use crate::frames::Size;

/// An error for a recorder or memory of another backend, which is a mistake in this program.
fn foreign() -> Error {
    Error::work(std::io::Error::other(
        "a stage was given another backend's recorder or memory",
    ))
}

/// Advances the wave field and puts each frame's heights into a slot.
#[derive(Clone)]
pub(crate) enum Producer {
    Host(Arc<host::Waves>),
    #[cfg(feature = "cuda")]
    Cuda(Arc<cuda::Waves>),
    #[cfg(feature = "vulkan")]
    Vulkan(Arc<vulkan::Waves>),
}

impl Producer {
    pub(crate) fn new(device: &Device, size: Size, slots: Vec<Buffer>) -> Result<Self> {
        Ok(match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => Self::Cuda(Arc::new(cuda::Waves::new(device, size, slots)?)),
            #[cfg(feature = "vulkan")]
            Device::Vulkan(device) => {
                Self::Vulkan(Arc::new(vulkan::Waves::new(device, size, slots)?))
            }
            _ => Self::Host(Arc::new(host::Waves::new(size, slots))),
        })
    }

    /// Records the steps of `frame` and the copy into `slot`, delayed by `late`.
    pub(crate) fn record(
        &self,
        recorder: &mut Recorder<'_>,
        frame: u32,
        slot: usize,
        late: Option<Duration>,
    ) -> Result<()> {
        match (self, recorder) {
            (Self::Host(waves), Recorder::Host(recorder)) => {
                waves.record(recorder, frame, slot, late)
            }
            #[cfg(feature = "cuda")]
            (Self::Cuda(waves), Recorder::Cuda(recorder)) => {
                waves.record(recorder, frame, slot, late)
            }
            #[cfg(feature = "vulkan")]
            (Self::Vulkan(waves), Recorder::Vulkan(recorder)) => {
                waves.record(recorder, frame, slot, late)
            }
            #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
            _ => Err(foreign()),
        }
    }
}

/// Shades the heights of a slot and puts the pixels where the host reads them.
#[derive(Clone)]
pub(crate) enum Consumer {
    Host(Arc<host::Shader>),
    #[cfg(feature = "cuda")]
    Cuda(Arc<cuda::Shader>),
    #[cfg(feature = "vulkan")]
    Vulkan(Arc<vulkan::Shader>),
}

impl Consumer {
    pub(crate) fn new(
        device: &Device,
        size: Size,
        slots: Vec<Buffer>,
        readbacks: Vec<Buffer>,
    ) -> Result<Self> {
        Ok(match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => {
                Self::Cuda(Arc::new(cuda::Shader::new(device, size, slots, readbacks)?))
            }
            #[cfg(feature = "vulkan")]
            Device::Vulkan(device) => Self::Vulkan(Arc::new(vulkan::Shader::new(
                device, size, slots, readbacks,
            )?)),
            _ => Self::Host(Arc::new(host::Shader::new(size, slots, readbacks))),
        })
    }

    /// Records the shading of `slot` into `readback`.
    pub(crate) fn record(
        &self,
        recorder: &mut Recorder<'_>,
        slot: usize,
        readback: usize,
    ) -> Result<()> {
        match (self, recorder) {
            (Self::Host(shader), Recorder::Host(recorder)) => {
                shader.record(recorder, slot, readback)
            }
            #[cfg(feature = "cuda")]
            (Self::Cuda(shader), Recorder::Cuda(recorder)) => {
                shader.record(recorder, slot, readback)
            }
            #[cfg(feature = "vulkan")]
            (Self::Vulkan(shader), Recorder::Vulkan(recorder)) => {
                shader.record(recorder, slot, readback)
            }
            #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
            _ => Err(foreign()),
        }
    }
}
