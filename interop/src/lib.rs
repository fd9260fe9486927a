//! Fences, timelines and timing queries for CUDA, Vulkan and the host, with one API.
//!
//! A [`Timeline`] is a counter that only grows. Queues of any device wait for its values and signal
//! them. A submission may come before the signal that it waits for: it is held on the host until
//! the signal is on its way. So no driver queue ever waits for work that comes later.
//!
//! ```no_run
//! use std::time::Duration;
//! use syncline::prelude::*;
//!
//! # fn main() -> syncline::Result<()> {
//! // 1. Choose devices. Here: CUDA and Vulkan on one GPU.
//! let inventory = Inventory::probe(&ProbeOptions::default());
//! let (cuda, vulkan) = inventory.pair()?;
//! // 2. Share a timeline and memory.
//! let link = share(&cuda, &vulkan)?;
//! let (frames, heights) = (link.timeline("frames")?, link.buffer(4096)?);
//! // 3. Submit, in any order.
//! let picture = vulkan.host_buffer(4096, Default::default())?;
//! let (from, to) = (heights.right().clone(), picture.clone());
//! vulkan.queue(QueueKind::Compute, "shade")?.submit(
//!     &[frames.at(1)],
//!     move |commands| commands.copy_buffer(&from, &to),
//!     &[frames.signal_at(2)],
//! )?;
//! let words = heights.left().clone();
//! cuda.queue(QueueKind::Compute, "simulate")?.submit(
//!     &[],
//!     move |stream| stream.memset_d32(&words, 7),
//!     &[frames.signal_at(1)],
//! )?;
//! // 4. Wait. A time-out names the signal that is missing.
//! frames.at(2).wait(Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```
//!
//! | to | see |
//! |---|---|
//! | choose devices | [`Inventory`], `cuda::Device::open`, `vulkan::Device::open`, [`host::Device`] |
//! | choose them at run time | [`Device`], [`Queue`], [`Recorder`]: enums over the backends |
//! | share timelines and memory | [`share`](fn@share), [`connect`], [`Link`], [`SharedBuffer`], `SharedImage` |
//! | submit work | `submit` of a queue: [`backend::Queue::submit`] |
//! | have frames in flight | [`Slots`] |
//! | submit by a driver call of your own | `vulkan::Queue::submit_raw`, `cuda::Queue::submit_raw`, [`Claim`] |
//! | wait on the host | [`Point::wait`], [`wait_any`], [`wait::future`] |
//! | understand an error | [`Error::kind`], [`Error::root`], [`error`] |
//! | measure | [`Stopwatch`], [`clock`], [`trace`] |
//! | use several processes | [`process`], [`negotiate`] |
//! | import and export handles | [`handle`] |
//! | write a backend | [`syncline_core::backend`] |
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `cuda` | yes | the module `cuda`, and CUDA in [`Device`], [`Queue`] and [`Recorder`] |
//! | `vulkan` | yes | the module `vulkan`, and Vulkan in the same enums |
//! | `gpu-allocator` | no | `vulkan::GpuAllocator`, a source of memory over the crate `gpu-allocator` |
//! | `tracing` | no | events of submissions, waits and failures, for a subscriber of `tracing` |
//!
//! A build with a feature needs no driver. Drivers are opened at run time, and [`Inventory`] says
//! why one is missing. Without both features the backend of the host is left.
//!
//! # Public dependencies
//!
//! Types of these crates are in signatures. Another major version of one is a breaking change here.
//!
//! | crate | where |
//! |---|---|
//! | `ash` 0.38 | raw handles of Vulkan; re-exported as `vulkan::ash` |
//! | `cudarc` 0.19 | contexts and streams to adopt; its `driver::sys` is re-exported as `cuda::sys` |
//! | `bitflags` 2 | the traits of [`negotiate::Needs`] |
//! | `smallvec` 1 | lists for authors of backends, such as [`syncline_core::backend::Attachments`] |

// All of core but `internal`, which is for this crate only.
#[doc(inline)]
pub use syncline_core::{
    Claim, Error, ErrorKind, Fence, Held, KeptPoint, Point, QueueKind, Result, Signal, SignalOnly,
    Slot, Slots, Stopwatch, Submitted, Timeline, WaitMode, WaitOnly, clock, error, handle, image,
    info, trace, wait, wait_all, wait_any,
};

/// The host backend: queues are worker threads, and work is closures.
///
/// It needs no driver. See [`syncline_core::host`].
pub mod host {
    #[doc(inline)]
    pub use syncline_core::host::{Buffer, Device, Queue, Recorder};
}

/// The CUDA backend: the crate [`syncline_cuda`].
#[cfg(feature = "cuda")]
pub mod cuda {
    #[doc(no_inline)]
    pub use syncline_cuda::sys;
    #[doc(inline)]
    pub use syncline_cuda::{
        Allocation, BinarySemaphore, Buffer, Candidate, Device, Driver, EventGuard, Function,
        Graph, GraphSlots, Image, InterprocessEvent, Module, Queue, RawSubmission, Recorder, Slot,
        SlotValue, StreamGuard, Surface, Texture, Word,
    };
}

/// The Vulkan backend: the crate [`syncline_vulkan`].
#[cfg(feature = "vulkan")]
pub mod vulkan {
    #[cfg(feature = "gpu-allocator")]
    #[doc(inline)]
    pub use syncline_vulkan::GpuAllocator;
    #[doc(no_inline)]
    pub use syncline_vulkan::ash;
    #[doc(inline)]
    pub use syncline_vulkan::{
        AdoptInfo, Allocation, AllocationInfo, ApplicationMemory, BinarySemaphore, Buffer,
        Candidate, Contents, Device, Enabled, Handles, Image, ImageBarrier, Instance,
        InstanceOptions, MemoryRange, MemoryRequest, MemorySource, Offer, OwnershipBarrier, Queue,
        QueueGuard, RawSubmission, Recorder,
    };
}

/// What nearly every program uses: the methods of devices and queues, and the usual types.
///
/// ```
/// use syncline::prelude::*;
/// ```
pub mod prelude {
    pub use syncline_core::backend::{Device as _, Queue as _};
    pub use syncline_core::{Error, Fence, Point, QueueKind, Timeline};

    pub use crate::{Inventory, Link, ProbeOptions, connect, share};
}

/// The traits of devices and queues, for code that is written for devices of any backend.
///
/// ```
/// use std::time::Duration;
/// use syncline::{QueueKind, Result, backend, host};
/// use syncline::backend::Queue as _;
///
/// fn run_to_the_end<D: backend::Device>(device: &D) -> Result<()> {
///     let queue = device.queue(QueueKind::Compute, "queue")?;
///     let line = device.timeline("line")?;
///     queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
///     line.at(1).wait(Duration::from_secs(10))
/// }
///
/// # fn main() -> Result<()> {
/// run_to_the_end(&host::Device::new())
/// # }
/// ```
///
/// The author of a backend depends on the crate `syncline-core` alone:
/// [`syncline_core::backend`] has the traits to implement, and says what the engine guarantees. The
/// page `docs/write-a-backend.md` leads through them. [`Inventory::add`] lists such devices.
pub mod backend {
    #[doc(inline)]
    pub use syncline_core::backend::{Candidate, Device, Queue};
}

mod another_backend;
mod any;
#[cfg(feature = "vulkan")]
mod any_image;
mod binary;
mod buffer;
mod duplicate;
mod foreign;
mod link;
mod memory_device;
pub mod negotiate;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
mod pass;
mod probe;
pub mod process;
mod shared_buffer;
#[cfg(feature = "vulkan")]
mod shared_image;

pub use any::{Device, Queue, Recorder};
#[cfg(feature = "vulkan")]
pub use any_image::Image;
pub use binary::BinarySemaphore;
pub use buffer::Buffer;
pub use link::{Link, connect, share};
pub use memory_device::MemoryDevice;
pub use negotiate::mechanism::Mechanism;
pub use probe::{Found, Inventory, ProbeOptions};
pub use shared_buffer::SharedBuffer;
#[cfg(feature = "vulkan")]
pub use shared_image::SharedImage;
