//! The Vulkan backend of Syncline, for Vulkan 1.2 and later.
//!
//! | file | subject |
//! |---|---|
//! | `instance`, `validation`, `probe` | the loader, the validation layer, which devices there are and what they can do |
//! | `device`, `watch` | a `VkDevice`: opening it, watching its semaphores |
//! | `queue`, `recorder`, `commands` | logical queues, what work records into, command buffers and their reuse |
//! | `driver_queue` | a `VkQueue` behind a lock that the application can take too |
//! | `port` | timeline semaphores |
//! | `timing` | timestamp queries |
//! | `clock` | the device's clock, read together with the host's |
//! | `memory`, `external` | buffers; semaphores and memory that leave or enter as file descriptors |
//! | `binary` | binary semaphores, and fences for their signals |
//! | `raw` | adopting what an engine already made, and raw handles out |
//!
//! ```no_run
//! use syncline_core::{QueueKind, backend::{Device as _, Queue as _}};
//! # fn main() -> syncline_core::Result<()> {
//! let instance = syncline_vulkan::Instance::load()?;
//! for candidate in instance.devices()? {
//!     match &candidate.rejected {
//!         None => println!("{}", candidate.info.name),
//!         Some(reason) => println!("{}: {reason}", candidate.info.name),
//!     }
//! }
//! let device = instance.open_first()?;
//! let (words, done) = (device.host_buffer(4096, Default::default())?, device.timeline("done")?);
//! let queue = device.queue(QueueKind::Transfer, "upload")?;
//! let target = words.clone();
//! queue.submit(&[], move |recorder| recorder.fill_buffer(&target, 7), &[done.signal_at(1)])?;
//! done.at(1).wait(std::time::Duration::from_secs(5))?;
//! # Ok(()) }
//! ```

mod binary;
mod clock;
mod commands;
mod device;
mod driver_queue;
mod error;
mod external;
mod instance;
mod late;
mod memory;
mod offer;
mod payload;
mod port;
mod probe;
mod queue;
mod raw;
mod recorder;
mod sync_fd;
mod timing;
mod validation;
mod watch;

pub use ash;
pub use binary::BinarySemaphore;
pub use device::Device;
pub use driver_queue::QueueGuard;
pub use external::Exporter;
pub use instance::{Instance, InstanceOptions};
pub use memory::Buffer;
pub use offer::{Handles, Offer};
pub use probe::{Candidate, Enabled};
pub use queue::Queue;
pub use raw::AdoptInfo;
pub use recorder::Recorder;

/// Everything may be used from any thread.
const _: () = {
    const fn send_and_sync<T: Send + Sync + 'static>() {}
    send_and_sync::<Instance>();
    send_and_sync::<Candidate>();
    send_and_sync::<Device>();
    send_and_sync::<Queue>();
    send_and_sync::<QueueGuard>();
    send_and_sync::<BinarySemaphore>();
    send_and_sync::<Buffer>();
    send_and_sync::<Exporter>();
};
