//! The neutral work of [`Subject`], for the devices of this project.

#[cfg(feature = "cuda")]
mod cuda;
mod host;
#[cfg(feature = "vulkan")]
mod vulkan;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use syncline::backend::Device as _;
use syncline::{Buffer, Device, Error, Recorder, Result, Timeline, connect};

use crate::Subject;
use crate::subject::no_failing_work;

/// A device of the inventory with what the suite's work needs, such as kernels and buffers.
#[derive(Clone, Debug)]
pub struct Equipped {
    device: Device,
    kit: Kit,
}

#[derive(Clone, Debug)]
enum Kit {
    Host,
    #[cfg(feature = "cuda")]
    Cuda(cuda::Kernels),
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::Scratch),
}

/// The latch that work of an [`Equipped`] device waits for.
#[derive(Clone, Debug)]
pub enum Latch {
    /// For a worker thread.
    Host(host::Latch),
    /// For a stream.
    #[cfg(feature = "cuda")]
    Cuda(cuda::Latch),
    /// For a Vulkan queue.
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::Latch),
}

/// Work of an [`Equipped`] device that ends only with the loss of the device.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    latch: Latch,
    /// Set by work behind the latch, unless the work itself loses the device.
    begun: Buffer,
}

impl Equipped {
    /// Equips `device`. It must be idle.
    ///
    /// # Errors
    /// Errors of the backend.
    pub fn new(device: Device) -> Result<Self> {
        let kit = match &device {
            Device::Host(_) => Kit::Host,
            #[cfg(feature = "cuda")]
            Device::Cuda(device) => Kit::Cuda(cuda::prepare(device)?),
            #[cfg(feature = "vulkan")]
            Device::Vulkan(device) => Kit::Vulkan(vulkan::prepare(device)?),
            _ => return Err(foreign()),
        };
        Ok(Self { device, kit })
    }

    /// The reason why [`Equipped::lose`] cannot lose the device, if there is one.
    pub(crate) fn why_not_lost(&self) -> Option<&'static str> {
        match &self.kit {
            Kit::Host => Some("the host cannot be lost"),
            #[cfg(feature = "cuda")]
            Kit::Cuda(_) => None,
            #[cfg(feature = "vulkan")]
            Kit::Vulkan(_) if crate::Settings::from_env().validation => {
                Some("the validation layer reports the wrong call that loses the device")
            }
            #[cfg(feature = "vulkan")]
            Kit::Vulkan(_) => (!self.device.info().name.contains("llvmpipe"))
                .then_some("of Vulkan's drivers, only lavapipe's device can be lost on purpose"),
        }
    }

    /// Makes what [`Equipped::block_until_lost`] needs.
    ///
    /// # Errors
    /// Errors of the backend.
    pub(crate) fn loss(&self) -> Result<Loss> {
        Ok(Loss {
            latch: self.latch()?,
            begun: self.buffer(1)?,
        })
    }

    /// Records work that waits until [`Equipped::lose`] is called, and whose signals never come.
    ///
    /// # Errors
    /// Errors of the backend.
    pub(crate) fn block_until_lost(&self, recorder: &mut Recorder<'_>, loss: &Loss) -> Result<()> {
        Self::block(recorder, &loss.latch)?;
        match (&self.kit, &mut *recorder) {
            #[cfg(feature = "cuda")]
            (Kit::Cuda(kernels), Recorder::Cuda(recorder)) => cuda::fault(kernels, recorder),
            _ => Self::fill(recorder, &loss.begun, 1),
        }
    }

    /// Loses the device for this process for good.
    ///
    /// # Errors
    /// Errors of the backend.
    pub(crate) fn lose(&self, loss: &Loss) -> Result<()> {
        #[cfg(feature = "vulkan")]
        if let Device::Vulkan(device) = &self.device {
            vulkan::lose(device)?;
            Self::open(&loss.latch)?;
            // The driver executes the work all the same, so it must not be freed before.
            while Self::read(&loss.begun) != [1] {
                std::thread::yield_now();
            }
            return Ok(());
        }
        Self::open(&loss.latch)
    }

    /// Records work that loses the device for this process for good.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is not CUDA: no other device is lost by work.
    pub fn fault(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        match (&self.kit, recorder) {
            #[cfg(feature = "cuda")]
            (Kit::Cuda(kernels), Recorder::Cuda(recorder)) => cuda::fault(kernels, recorder),
            _ => Err(Error::unsupported(
                self.device.object(),
                "be lost on purpose",
                "only CUDA's devices can be",
            )),
        }
    }
}

/// The error for a buffer or a latch of another backend than the recorder's.
pub(crate) fn foreign() -> Error {
    Error::work(std::io::Error::other(
        "an object was used on a device of another backend",
    ))
}

impl Subject for Equipped {
    type Device = Device;
    type Buffer = Buffer;
    type Latch = Latch;

    fn device(&self) -> &Device {
        &self.device
    }

    fn buffer(&self, words: usize) -> Result<Buffer> {
        Buffer::host_visible(&self.device, words as u64 * 4)
    }

    fn read(buffer: &Buffer) -> Vec<u32> {
        let words = buffer.words().unwrap_or_default();
        words
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect()
    }

    fn fill(recorder: &mut Recorder<'_>, buffer: &Buffer, value: u32) -> Result<()> {
        recorder.fill(buffer, value)
    }

    fn copy(recorder: &mut Recorder<'_>, from: &Buffer, to: &Buffer) -> Result<()> {
        recorder.copy(from, to)
    }

    fn busy(&self, recorder: &mut Recorder<'_>, time: Duration) -> Result<()> {
        match (&self.kit, recorder) {
            (Kit::Host, Recorder::Host(recorder)) => {
                host::busy(recorder, time);
                Ok(())
            }
            #[cfg(feature = "cuda")]
            (Kit::Cuda(kernels), Recorder::Cuda(recorder)) => cuda::busy(kernels, recorder, time),
            #[cfg(feature = "vulkan")]
            (Kit::Vulkan(scratch), Recorder::Vulkan(recorder)) => {
                vulkan::busy(scratch, recorder, time)
            }
            #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
            _ => Err(foreign()),
        }
    }

    fn keep(recorder: &mut Recorder<'_>, object: Arc<dyn Any + Send + Sync>) {
        recorder.keep(object);
    }

    fn latch(&self) -> Result<Latch> {
        match (&self.device, &self.kit) {
            (Device::Host(_), _) => Ok(Latch::Host(host::Latch::default())),
            #[cfg(feature = "cuda")]
            (Device::Cuda(device), Kit::Cuda(kernels)) => {
                Ok(Latch::Cuda(cuda::latch(device, kernels)?))
            }
            #[cfg(feature = "vulkan")]
            (Device::Vulkan(device), _) => Ok(Latch::Vulkan(vulkan::latch(device)?)),
            #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
            _ => Err(foreign()),
        }
    }

    fn block(recorder: &mut Recorder<'_>, latch: &Latch) -> Result<()> {
        match (recorder, latch) {
            (Recorder::Host(recorder), Latch::Host(latch)) => {
                host::block(recorder, latch);
                Ok(())
            }
            #[cfg(feature = "cuda")]
            (Recorder::Cuda(recorder), Latch::Cuda(latch)) => cuda::block(recorder, latch),
            #[cfg(feature = "vulkan")]
            (Recorder::Vulkan(recorder), Latch::Vulkan(latch)) => vulkan::block(recorder, latch),
            #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
            _ => Err(foreign()),
        }
    }

    fn open(latch: &Latch) -> Result<()> {
        match latch {
            Latch::Host(latch) => {
                latch.open();
                Ok(())
            }
            #[cfg(feature = "cuda")]
            Latch::Cuda(latch) => {
                cuda::open(latch);
                Ok(())
            }
            #[cfg(feature = "vulkan")]
            Latch::Vulkan(latch) => vulkan::open(latch),
        }
    }

    fn fail_work(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        match recorder {
            Recorder::Host(recorder) => {
                recorder.try_run(|| Err(Error::work("this work fails")));
                Ok(())
            }
            #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
            _ => Err(no_failing_work(self.device.object())),
        }
    }

    fn timeline_with(&self, other: &Self, label: &str, initial: u64) -> Result<Timeline> {
        if self.device.id() == other.device.id() {
            return self.device.timeline_from(label, initial);
        }
        connect(&self.device, &other.device).timeline_from(label, initial)
    }
}
