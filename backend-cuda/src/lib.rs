//! The CUDA backend: streams, timelines made of events, and objects shared with other APIs.
//!
//! CUDA has no timeline object. A timeline with its home here is a ring of pooled events. A ring
//! suffices because the engine submits no wait before its signal, and events are the fastest
//! mechanism. One hop between two streams of an H200 takes:
//!
//! | mechanism | time |
//! |---|---|
//! | event record and wait | 0.27 µs |
//! | external semaphore | 1.9 µs |
//! | write to device memory, and a wait for the word | 2.3 µs |
//!
//! See the CUDA driver API: event management, stream management, external resource
//! interoperability.
//!
//! ```no_run
//! use std::time::Duration;
//! use syncline_core::QueueKind;
//! use syncline_core::backend::{Device as _, Queue as _};
//!
//! # fn main() -> syncline_core::Result<()> {
//! let device = syncline_cuda::Device::open(0)?; // or `adopt` cudarc's context
//! let (words, done) = (device.host_buffer(4096)?, device.timeline("done")?);
//! let queue = device.queue(QueueKind::Compute, "simulate")?;
//! let target = words.clone();
//! // Launch kernels of your own into `recorder.stream()`.
//! queue.submit(&[], move |recorder| recorder.memset_d32(&target, 7), &[done.signal_at(1)])?;
//! done.at(1).wait(Duration::from_secs(5))?;
//! # Ok(()) }
//! ```

// The rooms. A folder imports only from folders above it in this table. `syncline-vulkan` has
// the same ones.
//
// | folder | contents |
// |---|---|
// | `driver/` | the driver library: `load` finds it, `table` has its functions and error codes, `other_driver` detects a second driver, `memory_ops` has stream memory operations, `pointer` tells what an address is, `virtual_memory` makes memory that is exported, `array` has descriptions of arrays |
// | `device/` | `context`, `capture_mode`, `stream` and `raw_stream` with the `stream_lock`, `event`, `deferred_free`, `limits`, `open`: the device, `inner`: its state, and `wake`: ends a watch |
// | `memory/` | `allocation` (imported memory), `buffer`, `image`, `module` (kernels) |
// | `timeline/` | ports: `port` (a `ring` of events), `counter` (shared memory), `word` (memory of the application; `node_word` in nodes of graphs), `external` (an imported `semaphore`); `imported`: what imported ports do in streams; `groups`: the imported ports of a submission; `visibility`: values that the host may act on; `watch`: polling ports while a thread waits |
// | `timing/` | `stamp`: times written by streams; `clock`: the GPU's clock, sampled together with the host's |
// | `queue/` | `submission`: the queue; `queue_stream`: waits and signals as driver calls; `recorder`; `raw_submission`: what a call of the application's own gets; `graph_launch`: a graph that makes the waits and signals of its submission |
// | `share/` | imports from other APIs: `external`, `external_memory`, `binary`; `interprocess` events; `own_event`: fences with an event of their own |
// | `graph/` | `capture`: fences in a stream capture; `launch`: fences that each launch of a graph records or waits for; `slots`: nodes that wait for timelines and signal them |
// | `api/` | the traits of core, implemented for `device` and `queue` |
// | `probe.rs`, `adopt/` | the devices and their capabilities; adopting objects of the application, and raw handles |

mod adopt;
mod api;
mod device;
mod driver;
mod graph;
mod memory;
mod probe;
mod queue;
mod share;
mod timeline;
mod timing;

pub use adopt::raw::{EventGuard, StreamGuard};
pub use adopt::word::Word;
pub use device::open::Device;
pub use driver::table::Driver;
pub use graph::slots::{Graph, GraphSlots, Slot, SlotValue};
pub use memory::allocation::Allocation;
pub use memory::buffer::Buffer;
pub use memory::image::{Image, Surface, Texture};
pub use memory::module::{Function, Module};
pub use probe::Candidate;
pub use queue::raw_submission::RawSubmission;
pub use queue::recorder::Recorder;
pub use queue::submission::Queue;
pub use share::binary::BinarySemaphore;
pub use share::interprocess::{EventIpcHandle, InterprocessEvent};
pub use timeline::counter::CounterPort;
pub use timeline::external::ExternalPort;
pub use timeline::port::EventPort;
pub use timeline::word::WordPort;

/// The raw types that appear in this crate's `unsafe` functions and raw handles.
#[doc(no_inline)]
pub use cudarc::driver::sys;

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Driver>();
    shared::<Device>();
    shared::<EventPort>();
    shared::<Queue>();
    shared::<BinarySemaphore>();
    shared::<EventIpcHandle>();
    shared::<InterprocessEvent>();
    shared::<ExternalPort>();
    shared::<CounterPort>();
    shared::<WordPort>();
    shared::<Allocation>();
    shared::<Buffer>();
    shared::<Image>();
    shared::<Surface>();
    shared::<Texture>();
    shared::<Function>();
    shared::<Graph>();
    shared::<GraphSlots>();
};
