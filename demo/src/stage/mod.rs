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
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[cfg(feature = "vulkan")]
use syncline::Image;
use syncline::backend;
use syncline::{Buffer, Device, Error, Recorder, Result};

use crate::Size;
use crate::scene::View;

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
            Self::Images(_) => Err(crate::wrong("a stage that was given images")),
        }
    }
}

/// Simulates the field of waves on a device, and puts the heights of each frame into a slot.
///
/// A slot has one height for each cell, row by row. The heights are those of
/// [`Reference`](crate::compute::reference::Reference), bit for bit.
pub trait Producer<D: backend::Device = Device>: Send + Sync {
    /// Records what comes before the first frame, in a submission of its own. By default nothing.
    ///
    /// Called only if the producer and the consumer are two processes and this one takes new images
    /// first.
    ///
    /// # Errors
    /// A driver error.
    fn begin(&self, recorder: &mut <D::Queue as backend::Queue>::Recorder<'_>) -> Result<()> {
        let _ = recorder;
        Ok(())
    }

    /// Records the steps of `frame`, and the copy of the heights into `slot`.
    ///
    /// Frames are counted from 0 and come in order, each once, on one queue. The field is zero
    /// before the first step. Step `n` of all frames has the parameters
    /// [`StepParams::at`](crate::compute::StepParams::at)`(width, height, n)`. `slot` is below
    /// [`SLOTS`](crate::SLOTS), and nothing reads it while the work runs, unless the waits are off.
    /// If `late` is given, the work takes about that time longer before it writes the slot. Must
    /// not block.
    ///
    /// # Errors
    /// A driver error. The frame and the run end with it.
    fn record(
        self: Arc<Self>,
        recorder: &mut <D::Queue as backend::Queue>::Recorder<'_>,
        frame: u32,
        slot: usize,
        late: Option<Duration>,
    ) -> Result<()>;

    /// Copies the heights of `slot` to `heights`. Only for devices that share no memory.
    ///
    /// Called on a worker thread of the host, after the work of the frame has finished and before
    /// the slot is written again, unless the waits are off. Then the heights may be of any frame.
    /// It may block.
    ///
    /// # Errors
    /// A driver error. The frame and the run end with it.
    fn read(&self, slot: usize, heights: &[AtomicU32]) -> Result<()>;
}

/// Copies words. `from` is `None` if the host cannot address them.
fn copy(from: Option<&[AtomicU32]>, to: &[AtomicU32]) {
    for (from, to) in from.into_iter().flatten().zip(to) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Makes the producer of a device of this project.
pub(crate) fn producer(device: &Device, size: Size, slots: Between) -> Result<Arc<dyn Producer>> {
    Ok(match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => Arc::new(cuda::Waves::new(device, size, slots)?),
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => Arc::new(vulkan::Waves::new(device, size, slots)?),
        _ => Arc::new(host::Waves::new(size, slots.buffers()?)),
    })
}

/// Draws the scene of the heights of a slot, where the host reads it.
pub(crate) trait Consumer: Send + Sync {
    /// Records what comes before the first frame. By default nothing.
    fn begin(&self, _: &mut Recorder<'_>) -> Result<()> {
        Ok(())
    }

    /// Records the drawing of `slot` into `readback`.
    fn record(
        self: Arc<Self>,
        recorder: &mut Recorder<'_>,
        slot: usize,
        readback: usize,
    ) -> Result<()>;
}

/// Makes what draws the scene on a device of this project.
pub(crate) fn painter(
    device: &Device,
    view: View,
    slots: Between,
    readbacks: Vec<Buffer>,
) -> Result<Arc<dyn Consumer>> {
    Ok(match device {
        Device::Host(_) => Arc::new(host::Painter::new(view, slots.buffers()?, readbacks)),
        #[cfg(feature = "vulkan")]
        Device::Vulkan(device) => Arc::new(painter::Painter::new(device, view, slots, readbacks)?),
        _ => {
            return Err(Error::unsupported(
                backend::Device::object(device),
                "draw the frames of the demo",
                "CUDA has no graphics pipeline; only Vulkan and the host draw them",
            ));
        }
    })
}
