//! The Vulkan backend of Syncline, for Vulkan 1.2 and later.
//!
//! ```no_run
//! use syncline_core::{QueueKind, backend::{Device as _, Queue as _}};
//! # fn main() -> syncline_core::Result<()> {
//! let device = syncline_vulkan::Device::open(0)?; // or `adopt` a `VkDevice`
//! let (words, done) = (device.host_buffer(4096, Default::default())?, device.timeline("done")?);
//! let queue = device.queue(QueueKind::Transfer, "upload")?;
//! let target = words.clone();
//! queue.submit(&[], move |recorder| recorder.fill_buffer(&target, 7), &[done.signal_at(1)])?;
//! done.at(1).wait(std::time::Duration::from_secs(5))?;
//! # Ok(()) }
//! ```

// The rooms. A folder imports only from folders above it in this table. `syncline-cuda` has
// the same ones.
//
// | folder | contents |
// |---|---|
// | `driver/` | the loader and the `instance`, the `validation` layer, and typed errors of driver calls (`error`) |
// | `device/` | `open`: a `VkDevice`; `application_memory`: the application's allocators; `inner`: its state; `native`: its raw handles; `physical`: a physical device, what it can do, and creating a `VkDevice` of it; `limits`: why it cannot do more; `driver_queue`: a `VkQueue` behind a gate; `query_pools`; `memory_pool`: blocks of private memory; `clock_readings`; `wake`: ends a watch; `deferred_destroy` of semaphores; `external`: functions for handles; `file_kind`: checks descriptors; `spare`: a second `VkDevice` after a loss |
// | `memory/` | `ownership`: barriers for another API; `allocation`; `buffer`: ranges of `VkBuffer`s; `image`; `unbound`: what memory both need; `from_application`: buffers in memory of the application's allocator; `gpu_allocator`: such an allocator |
// | `timeline/` | `port`: a timeline `semaphore` as a port; `watch`: watches ports while a thread waits; `attach`: attaches ports to timelines; `raw_binary`: binary semaphores and the uses of their payload |
// | `timing/` | `stamp`: timestamp queries; `clock`: the device's clock, read by the driver together with the host's |
// | `queue/` | `submission`: how a submission becomes a `vkQueueSubmit`; `recorder`: what work records with; `recording`: the work of one submission; `images` in it; `submit_lists`: its semaphores and its `vkQueueSubmit`; `raw_submission`: what a `vkQueueSubmit` of the application's own gets; `command_pool`: command buffers and their reuse; `choose`: the driver queue of a new queue; `guard`: the application's lock; `submitted_clock`: the device's clock, read with submitted timestamps if the driver calibrates none |
// | `share/` | file descriptors of timelines (`external`) and memory (`external_memory`); `binary` semaphores, their `payload`, and `sync_fd` |
// | `api/` | the traits of core, implemented for `device` and `queue` |
// | `probe.rs`, `adopt/` | the devices and their capabilities; adopting objects of the application (`raw`, `offer`), and raw handles |

mod adopt;
mod api;
mod device;
mod driver;
mod memory;
mod probe;
mod queue;
mod share;
mod timeline;
mod timing;

pub use adopt::offer::{Handles, Offer};
pub use adopt::raw::AdoptInfo;
#[doc(no_inline)]
pub use ash;
pub use device::application_memory::{MemoryRange, MemoryRequest, MemorySource};
pub use device::open::Device;
pub use device::physical::Enabled;
pub use driver::instance::{Instance, InstanceOptions};
pub use memory::adopted::AllocationInfo;
pub use memory::allocation::Allocation;
pub use memory::buffer::Buffer;
pub use memory::from_application::ApplicationMemory;
#[cfg(feature = "gpu-allocator")]
pub use memory::gpu_allocator::GpuAllocator;
pub use memory::image::{Contents, Image};
pub use memory::ownership::{ImageBarrier, OwnershipBarrier};
pub use probe::Candidate;
pub use queue::guard::QueueGuard;
pub use queue::raw_submission::RawSubmission;
pub use queue::recorder::Recorder;
pub use queue::submission::Queue;
pub use share::binary::BinarySemaphore;
pub use share::external::Exporter;

/// Compile-time check: these types may be used from any thread.
const _: () = {
    const fn send_and_sync<T: Send + Sync + 'static>() {}
    send_and_sync::<Instance>();
    send_and_sync::<Candidate>();
    send_and_sync::<Device>();
    send_and_sync::<Queue>();
    send_and_sync::<BinarySemaphore>();
    send_and_sync::<Buffer>();
    send_and_sync::<Image>();
    send_and_sync::<ApplicationMemory>();
    send_and_sync::<Exporter>();
};
