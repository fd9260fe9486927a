//! The two stages of the pipeline on each backend.

#[cfg(feature = "cuda")]
mod cuda;
mod host;
#[cfg(feature = "vulkan")]
pub mod painter;
#[cfg(feature = "vulkan")]
mod vulkan;
#[cfg(feature = "vulkan")]
mod vulkan_kernel;

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "vulkan")]
use syncline::Image;
use syncline::backend::Device as _;
use syncline::{Buffer, Device, Error, Recorder, Result};

use crate::Size;
use crate::scene::View;

/// An error for a recorder or memory of another backend, which is a mistake in this program.
fn foreign() -> Error {
    Error::work(std::io::Error::other(
        "a stage was given another backend's recorder or memory",
    ))
}

/// The slots between producer and consumer, as one of them sees them.
#[derive(Clone)]
pub(crate) enum Between {
    Buffers(Vec<Buffer>),
    #[cfg(feature = "vulkan")]
    Images(Vec<Image>),
}

impl From<Vec<Buffer>> for Between {
    fn from(buffers: Vec<Buffer>) -> Self {
        Self::Buffers(buffers)
    }
}

impl Between {
    /// What both sides share. See [`Pipeline::shares`](super::Pipeline::shares).
    pub(crate) const fn shares(&self, is_relayed: bool) -> &'static str {
        match self {
            Self::Buffers(_) if is_relayed => "nothing",
            Self::Buffers(_) => "buffers",
            #[cfg(feature = "vulkan")]
            Self::Images(_) => "images",
        }
    }

    pub(crate) fn buffers(self) -> Result<Vec<Buffer>> {
        match self {
            Self::Buffers(buffers) => Ok(buffers),
            #[cfg(feature = "vulkan")]
            Self::Images(_) => Err(foreign()),
        }
    }
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
    pub(crate) fn new(device: &Device, size: Size, slots: impl Into<Between>) -> Result<Self> {
        let slots = slots.into();
        Ok(match device {
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => Self::Cuda(Arc::new(cuda::Waves::new(device, size, slots)?)),
            #[cfg(feature = "vulkan")]
            Device::Vulkan(device) => {
                Self::Vulkan(Arc::new(vulkan::Waves::new(device, size, slots)?))
            }
            _ => Self::Host(Arc::new(host::Waves::new(size, slots.buffers()?))),
        })
    }

    /// Records what comes before the first frame if the process of the producer takes new images
    /// first.
    pub(crate) fn begin(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        match (self, recorder) {
            #[cfg(feature = "vulkan")]
            (Self::Vulkan(waves), Recorder::Vulkan(recorder)) => waves.begin(recorder),
            _ => Ok(()),
        }
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

/// Draws the scene of the heights of a slot, where the host reads it.
#[derive(Clone)]
pub(crate) enum Consumer {
    Host(Arc<host::Painter>),
    #[cfg(feature = "vulkan")]
    Vulkan(Arc<painter::Painter>),
}

impl Consumer {
    /// Draws the scene.
    pub(crate) fn painter(
        device: &Device,
        view: View,
        slots: impl Into<Between>,
        readbacks: Vec<Buffer>,
    ) -> Result<Self> {
        let slots = slots.into();
        match device {
            Device::Host(_) => Ok(Self::Host(Arc::new(host::Painter::new(
                view,
                slots.buffers()?,
                readbacks,
            )))),
            #[cfg(feature = "vulkan")]
            Device::Vulkan(device) => Ok(Self::Vulkan(Arc::new(painter::Painter::new(
                device, view, slots, readbacks,
            )?))),
            _ => Err(Error::unsupported(
                device.object(),
                "draw the frames of the demo",
                "CUDA has no graphics pipeline; only Vulkan and the host draw them",
            )),
        }
    }

    /// Records what comes before the first frame.
    pub(crate) fn begin(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        match (self, recorder) {
            #[cfg(feature = "vulkan")]
            (Self::Vulkan(painter), Recorder::Vulkan(recorder)) => painter.begin(recorder),
            _ => Ok(()),
        }
    }

    /// Records the drawing of `slot` into `readback`.
    pub(crate) fn record(
        &self,
        recorder: &mut Recorder<'_>,
        slot: usize,
        readback: usize,
    ) -> Result<()> {
        match (self, recorder) {
            (Self::Host(painter), Recorder::Host(recorder)) => {
                painter.record(recorder, slot, readback)
            }
            #[cfg(feature = "vulkan")]
            (Self::Vulkan(painter), Recorder::Vulkan(recorder)) => {
                painter.record(recorder, slot, readback)
            }
            #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
            _ => Err(foreign()),
        }
    }
}
