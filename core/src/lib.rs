//! The contract of Syncline and the engine that implements it.
//!
//! The crate has one set of fences, timelines and timing queries for every API:
//!
//! * [`backend`] is the contract for authors of backends: devices, queues and ports.
//! * [`Timeline`], [`Point`] and [`Fence`] are concrete types. A timeline has a small state on the
//!   host, and one [`backend::Port`] for each device that takes part in it.
//! * The engine answers queries, wakes threads, holds submissions whose waits are not pending yet,
//!   and passes failures on. It is the same for all backends. A backend only passes values to and
//!   from its driver.
//! * [`host`] is the backend of the host and the reference: worker threads without a driver.
//!
//! This crate does not depend on CUDA or Vulkan. Applications depend on the crate `syncline`, which
//! has one set of enums for all backends.

#[cfg(not(target_os = "linux"))]
compile_error!("Syncline runs on Linux only: its handles are file descriptors, its waits futexes.");

pub mod backend;
pub mod clock;
pub mod host;
pub mod trace;
pub mod wait;

mod api;
mod base;
mod driver;
mod fence;
mod held;
mod link;
mod memory;
mod port;
mod queue;
mod timeline;

pub use api::stopwatch::Stopwatch;
pub use base::error::{Error, Result};
pub use base::error_kind::ErrorKind;
pub use base::info::QueueKind;
#[cfg(syncline_loom)]
pub use base::sync::Memory;
pub use fence::Fence;
pub use queue::{Held, Submitted};
pub use timeline::Timeline;
pub use timeline::access::{SignalOnly, WaitOnly};
pub use timeline::claim::Claim;
pub use timeline::point::{KeptPoint, Point, Signal};
pub use timeline::slots::{Slot, Slots};
pub use wait::blocking::{WaitMode, wait_all, wait_any};

/// Errors, and what they contain: names of objects, causes, ends of processes.
///
/// ```
/// # extern crate syncline_core as syncline;
/// use std::time::Duration;
/// use syncline::backend::Device as _;
/// use syncline::{Error, ErrorKind, host};
///
/// # fn main() -> syncline::Result<()> {
/// let device = host::Device::new();
/// let frames = device.timeline("frames")?;
/// frames.fail(Error::work("no camera"));
/// let failed = frames.at(1).wait(Duration::from_secs(5)).unwrap_err();
/// assert_eq!(failed.kind(), ErrorKind::Failed); // what to do
/// assert_eq!(failed.root().kind(), ErrorKind::Work); // and the cause
/// # Ok(())
/// # }
/// ```
pub mod error {
    pub use crate::base::error::{Object, WrappedError};
    pub use crate::base::peer::{PeerExit, PeerLoss};
    pub use crate::base::process::Process;
}

/// Handles of semaphores, fences and memory that other APIs and processes import.
///
/// ```
/// # extern crate syncline_core as syncline;
/// use std::os::fd::OwnedFd;
/// use std::time::Duration;
/// use syncline::backend::Device as _;
/// use syncline::host;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // A fence of a descriptor, which any queue and thread can wait for.
/// let (reader, mut writer) = std::io::pipe()?;
/// let device = host::Device::new();
/// let readable = device.import_descriptor(Some(OwnedFd::from(reader)), "pipe")?;
/// std::io::Write::write_all(&mut writer, b"go")?;
/// readable.wait(Duration::from_secs(5))?;
/// println!("exports: {:?}", device.info().capabilities.exports);
/// # Ok(())
/// # }
/// ```
pub mod handle {
    pub use crate::base::handle::{
        BinaryFd, HandleKind, MemoryContent, MemoryFd, MemoryInfo, Origin, Payload, PayloadUse,
        Rejected, SyncFd, TimelineFd,
    };
    pub use crate::memory::counter::CounterFd;
    pub use crate::memory::{SharedWords, WordsFd};
}

/// What an image is like that devices share (X9).
///
/// ```
/// # extern crate syncline_core as syncline;
/// use syncline::error::Object;
/// use syncline::image::{Format, ImageInfo, ImageUsage};
///
/// let mut info = ImageInfo::d2(Format::Rgba8Unorm, 640, 480, ImageUsage::SAMPLED);
/// assert!(info.check(&Object::new("my image", "")).is_ok());
/// info.levels = 11;
/// let refused = info.check(&Object::new("my image", "")).unwrap_err();
/// assert!(refused.to_string().contains("mipLevels 11"));
/// ```
pub mod image {
    pub use crate::base::image::{Extent, Format, ImageInfo, ImageType, ImageUsage};
}

/// What a device is and what it can do.
///
/// ```
/// # extern crate syncline_core as syncline;
/// use syncline::backend::Device as _;
/// use syncline::{host, info::BackendKind};
///
/// let device = host::Device::new();
/// let info = device.info();
/// assert_eq!(info.backend, BackendKind::Host);
/// println!("{} can wait for {:?}", info.name, info.capabilities.imports);
/// ```
pub mod info {
    pub use crate::base::info::{
        BackendKind, Capabilities, DeviceId, Info, Pooled, QueueFamily, Uuid,
    };
}

/// What the crate `syncline` uses for timelines of several processes.
///
/// Not a part of the contract. It may change in any version.
#[doc(hidden)]
pub mod internal {
    pub use crate::base::exiting::DriverCalls;
    pub use crate::base::process::{DroppedByMaker, MakerProcess};
    pub use crate::held::lost_devices;
    pub use crate::link::publish::{Page, WeakTimeline};
    pub use crate::timeline::state::RecoveryMode;
    pub use crate::timeline::times::SharedTimes;
}
