//! Device, queue and recorder of any backend, as enums.

use std::sync::atomic::Ordering;
use std::time::Duration;

use syncline_core::backend::{self, Attachment, Sharing, Traceable};
use syncline_core::clock::Clock;
use syncline_core::{
    Error, Fence, Point, QueueKind, Result, Signal,
    error::Object,
    host,
    info::{DeviceId, Info, Pooled},
};
use syncline_core::{Held, Submitted};

use crate::another_backend::another_backend;
#[cfg(feature = "vulkan")]
use crate::any_image::Image;
use crate::buffer::Buffer;
#[cfg(feature = "cuda")]
use crate::cuda;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// Runs `$body` on the backend's value inside an enum of this module.
macro_rules! each {
    ($enum:ident, $value:expr, $inner:pat => $body:expr) => {
        match $value {
            $enum::Host($inner) => $body,
            #[cfg(feature = "cuda")]
            $enum::Cuda($inner) => $body,
            #[cfg(feature = "vulkan")]
            $enum::Vulkan($inner) => $body,
        }
    };
}

/// Like [`each`], but wraps the result in the same variant of the enum `$to`.
macro_rules! wrap {
    ($from:ident => $to:ident, $value:expr, $inner:pat => $body:expr) => {
        match $value {
            $from::Host($inner) => $to::Host($body),
            #[cfg(feature = "cuda")]
            $from::Cuda($inner) => $to::Cuda($body),
            #[cfg(feature = "vulkan")]
            $from::Vulkan($inner) => $to::Vulkan($body),
        }
    };
}

/// A device of any backend.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Device {
    /// The host's worker threads.
    Host(host::Device),
    /// A CUDA context.
    #[cfg(feature = "cuda")]
    Cuda(cuda::Device),
    /// A Vulkan device.
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::Device),
}

/// A queue of any backend.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Queue {
    /// A worker thread.
    Host(host::Queue),
    /// A CUDA stream.
    #[cfg(feature = "cuda")]
    Cuda(cuda::Queue),
    /// A Vulkan queue.
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::Queue),
}

/// Records the work of one submission to a queue of any backend.
///
/// Holds the backend's recorder by value. The recorder of each submission has its own lifetime.
/// Therefore it cannot be swapped with another recorder, and cannot outlive the work closure.
#[derive(Debug)]
#[non_exhaustive]
pub enum Recorder<'a> {
    /// Closures for a worker thread.
    Host(host::Recorder<'a>),
    /// A CUDA stream.
    #[cfg(feature = "cuda")]
    Cuda(cuda::Recorder<'a>),
    /// A Vulkan command buffer.
    #[cfg(feature = "vulkan")]
    Vulkan(vulkan::Recorder<'a>),
}

macro_rules! from {
    ($($(#[$gate:meta])? $module:ident => $variant:ident;)+) => {
        $(
            $(#[$gate])?
            impl From<$module::Device> for Device {
                fn from(device: $module::Device) -> Self {
                    Self::$variant(device)
                }
            }

            $(#[$gate])?
            impl From<$module::Queue> for Queue {
                fn from(queue: $module::Queue) -> Self {
                    Self::$variant(queue)
                }
            }
        )+
    };
}

from! {
    host => Host;
    #[cfg(feature = "cuda")] cuda => Cuda;
    #[cfg(feature = "vulkan")] vulkan => Vulkan;
}

impl backend::Device for Device {
    type Queue = Queue;

    fn id(&self) -> DeviceId {
        each!(Device, self, device => device.id())
    }

    fn object(&self) -> &Object {
        each!(Device, self, device => device.object())
    }

    fn info(&self) -> &Info {
        each!(Device, self, device => device.info())
    }

    fn port(&self, initial: u64) -> Result<Attachment> {
        each!(Device, self, device => device.port(initial))
    }

    fn queue(&self, kind: QueueKind, label: &str) -> Result<Queue> {
        Ok(wrap!(Device => Queue, self, device => device.queue(kind, label)?))
    }

    fn check(&self) -> Result<()> {
        each!(Device, self, device => device.check())
    }

    fn trim(&self) -> Pooled {
        each!(Device, self, device => backend::Device::trim(device))
    }

    fn clock(&self) -> Result<Clock> {
        each!(Device, self, device => device.clock())
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        each!(Device, self, device => backend::Device::sharing(device))
    }
}

/// Calls the queue inside, with `$work` as work for its own recorder.
macro_rules! with_work {
    ($queue:ident, $work:ident, $inner:ident => $call:expr) => {
        match $queue {
            Queue::Host($inner) => {
                let $work =
                    move |r: &mut host::Recorder<'_>| $work(&mut Recorder::Host(r.reborrow()));
                $call
            }
            #[cfg(feature = "cuda")]
            Queue::Cuda($inner) => {
                let $work =
                    move |r: &mut cuda::Recorder<'_>| $work(&mut Recorder::Cuda(r.reborrow()));
                $call
            }
            #[cfg(feature = "vulkan")]
            Queue::Vulkan($inner) => {
                let $work =
                    move |r: &mut vulkan::Recorder<'_>| $work(&mut Recorder::Vulkan(r.reborrow()));
                $call
            }
        }
    };
}

impl backend::Queue for Queue {
    type Device = Device;
    type Recorder<'a> = Recorder<'a>;

    fn device(&self) -> Device {
        wrap!(Queue => Device, self, queue => queue.device())
    }

    fn object(&self) -> &Object {
        each!(Queue, self, queue => queue.object())
    }

    #[inline]
    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()> + Send + 'static,
    {
        with_work!(self, work, queue => queue.submit(waits, work, signals))
    }

    fn submit_timed<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
        times: [&Fence; 2],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()> + Send + 'static,
    {
        with_work!(self, work, queue => queue.submit_timed(waits, work, signals, times))
    }

    #[inline]
    fn record(&self, fence: &Fence) -> Result<()> {
        each!(Queue, self, queue => queue.record(fence))
    }

    fn wait(&self, fence: &Fence) -> Result<()> {
        each!(Queue, self, queue => queue.wait(fence))
    }

    fn position(&self) -> Point<'_> {
        each!(Queue, self, queue => queue.position())
    }

    fn held(&self) -> Held {
        each!(Queue, self, queue => queue.held())
    }

    fn idle(&self, timeout: Duration) -> Result<()> {
        each!(Queue, self, queue => queue.idle(timeout))
    }

    fn traceable(&self) -> Result<Traceable> {
        each!(Queue, self, queue => queue.traceable())
    }
}

/// Accessors of the backend's own type, and conversions to it.
macro_rules! typed {
    ($($(#[$gate:meta])? $name:ident: $module:ident => $variant:ident, $backend:literal;)+) => {
        impl Device {$(
            #[doc = concat!("The device as one of ", $backend, ".")]
            ///
            /// # Errors
            /// [`Error::Unsupported`] for a device of another backend.
            $(#[$gate])?
            pub fn $name(&self) -> Result<&$module::Device> {
                match self {
                    Self::$variant(device) => Ok(device),
                    #[allow(unreachable_patterns, reason = "reachable with several backends")]
                    other => Err(another_backend(backend::Device::object(other), $backend)),
                }
            }
        )+}

        impl Queue {$(
            #[doc = concat!("The queue as one of ", $backend, ".")]
            ///
            /// # Errors
            /// [`Error::Unsupported`] for a queue of another backend.
            $(#[$gate])?
            pub fn $name(&self) -> Result<&$module::Queue> {
                match self {
                    Self::$variant(queue) => Ok(queue),
                    #[allow(unreachable_patterns, reason = "reachable with several backends")]
                    other => Err(another_backend(backend::Queue::object(other), $backend)),
                }
            }
        )+}

        impl<'a> Recorder<'a> {$(
            #[doc = concat!("The recorder as one of ", $backend, ".")]
            ///
            /// # Errors
            /// [`Error::Unsupported`] for a recorder of another backend. If the work returns it,
            /// the submission is refused.
            $(#[$gate])?
            pub fn $name(&mut self) -> Result<&mut $module::Recorder<'a>> {
                match self {
                    Self::$variant(recorder) => Ok(recorder),
                    #[allow(unreachable_patterns, reason = "reachable with several backends")]
                    _ => Err(another_backend(&Object::new("recorder", ""), $backend)),
                }
            }
        )+}

        $(
            $(#[$gate])?
            impl TryFrom<Device> for $module::Device {
                type Error = Error;

                fn try_from(device: Device) -> Result<Self> {
                    device.$name().cloned()
                }
            }

            $(#[$gate])?
            impl TryFrom<Queue> for $module::Queue {
                type Error = Error;

                fn try_from(queue: Queue) -> Result<Self> {
                    queue.$name().cloned()
                }
            }
        )+
    };
}

typed! {
    host: host => Host, "the host";
    #[cfg(feature = "cuda")] cuda: cuda => Cuda, "CUDA";
    #[cfg(feature = "vulkan")] vulkan: vulkan => Vulkan, "Vulkan";
}

impl Recorder<'_> {
    /// Sets every word of `memory` to `word`. The submission keeps the memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for memory of another backend, and on the host for memory that the
    /// host cannot address. [`Error::WrongDevice`]. A driver error.
    pub fn fill(&mut self, memory: &Buffer, word: u32) -> Result<()> {
        match self {
            Self::Host(recorder) => {
                let memory = addressable(memory)?.clone();
                recorder.run(move || {
                    for to in memory.words().into_iter().flatten() {
                        to.store(word, Ordering::Relaxed);
                    }
                });
                Ok(())
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(recorder) => recorder.memset_d32(memory.cuda()?, word),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(recorder) => recorder.fill_buffer(memory.vulkan()?, word),
        }
    }

    /// Copies the whole of `from` to the start of `to`. The submission keeps both.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `to` is smaller, for the reasons of [`Recorder::fill`], and if
    /// both are ranges of one memory and the copy would overlap (X8). On Vulkan also for memory
    /// that may overlap: see `vulkan::Recorder::copy_buffer`.
    /// [`Error::WrongDevice`]. A driver error.
    pub fn copy(&mut self, from: &Buffer, to: &Buffer) -> Result<()> {
        if from.size() > to.size() {
            return Err(Error::unsupported(
                Object::new("memory", ""),
                format!("take the {} bytes of another one", from.size()),
                format!("it holds {}", to.size()),
            ));
        }
        match self {
            Self::Host(recorder) => {
                let (from, to) = (addressable(from)?.clone(), addressable(to)?.clone());
                if overlap(&from, &to) {
                    return Err(Error::unsupported(
                        Object::new("memory", ""),
                        "be copied onto itself",
                        "the regions would overlap",
                    ));
                }
                recorder.run(move || {
                    let words = from.words().into_iter().flatten();
                    for (from, to) in words.zip(to.words().into_iter().flatten()) {
                        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                });
                Ok(())
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(recorder) => recorder.copy(from.cuda()?, to.cuda()?),
            #[cfg(feature = "vulkan")]
            Self::Vulkan(recorder) => recorder.copy_buffer(from.vulkan()?, to.vulkan()?),
        }
    }

    /// Copies texels from the start of `from` to a level of `to`. The submission keeps both.
    ///
    /// The texels of a row follow each other without gaps, and so do rows, slices and layers. All
    /// layers are copied. On Vulkan the level's contents are kept or overwritten, and those of the
    /// other levels kept: see `vulkan::Recorder::copy_buffer_to_image`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the image has no such level, if `from` is smaller than the level,
    /// for memory of another backend, and for a queue of the host. Also if both have memory in
    /// common (X9), and on Vulkan if they may have it: see
    /// `vulkan::Recorder::copy_buffer_to_image`. [`Error::WrongDevice`]. A driver error.
    #[cfg(feature = "vulkan")]
    pub fn copy_to_image(&mut self, from: &Buffer, to: &Image, level: u32) -> Result<()> {
        match self {
            Self::Host(_) => Err(no_images(to)),
            #[cfg(feature = "cuda")]
            Self::Cuda(recorder) => recorder.copy_buffer_to_image(from.cuda()?, to.cuda()?, level),
            Self::Vulkan(recorder) => {
                recorder.copy_buffer_to_image(from.vulkan()?, to.vulkan()?, level)
            }
        }
    }

    /// Copies the texels of a level of `from` to the start of `to`. The submission keeps both.
    ///
    /// See [`Recorder::copy_to_image`].
    ///
    /// # Errors
    /// Same errors as [`Recorder::copy_to_image`].
    #[cfg(feature = "vulkan")]
    pub fn copy_from_image(&mut self, from: &Image, level: u32, to: &Buffer) -> Result<()> {
        match self {
            Self::Host(_) => Err(no_images(from)),
            #[cfg(feature = "cuda")]
            Self::Cuda(recorder) => recorder.copy_image_to_buffer(from.cuda()?, level, to.cuda()?),
            Self::Vulkan(recorder) => {
                recorder.copy_image_to_buffer(from.vulkan()?, level, to.vulkan()?)
            }
        }
    }

    /// Keeps `object` alive until the device has finished the submission.
    pub fn keep(&mut self, object: std::sync::Arc<dyn std::any::Any + Send + Sync>) {
        each!(Recorder, self, recorder => recorder.keep(object));
    }
}

/// True if a copy of all of `from` to the start of `to` would write what it reads.
fn overlap(from: &Buffer, to: &Buffer) -> bool {
    let (Some(from), Some(to)) = (from.words(), to.words()) else {
        return false;
    };
    let (one, two) = (from.as_ptr_range(), to.as_ptr());
    let end = two.wrapping_add(from.len());
    one.start < end && two < one.end
}

/// Memory that the host can address, for a host queue.
fn addressable(memory: &Buffer) -> Result<&Buffer> {
    if memory.words().is_some() {
        return Ok(memory);
    }
    Err(Error::unsupported(
        Object::new("memory", ""),
        "be used by a host queue",
        "the host cannot address it",
    ))
}

/// The error of a host queue for an image.
#[cfg(feature = "vulkan")]
#[cold]
fn no_images(image: &Image) -> Error {
    let reason = "the host has no images: copy to a buffer on a queue of the image's device";
    Error::unsupported(image.object(), "be used by a host queue", reason)
}
