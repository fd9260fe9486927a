//! The CUDA backend: streams, timelines built from events, and what other APIs share with them.
//!
//! The folders have the order and the names of those of `syncline-vulkan`.
//!
//! | folder | contents |
//! |---|---|
//! | `driver/` | the driver library: `load` finds it, `table` has its functions and what their results mean, `other_driver` notices a second CUDA driver in the process, `memory_ops` has stream memory operations |
//! | `device/` | `context`, and `open`: an opened device and the watch over its events |
//! | `timeline/` | `port`: a timeline as a `ring` of `event`s; `counter`: a timeline in shared memory; `visibility`: values that the host may act on; `own_event`: fences with an event of their own |
//! | `memory/` | `buffer`, `module` (kernels), `deferred_free` |
//! | `queue/` | `submission`: how a submission becomes driver calls; `recorder`, `stream`; `raw_stream` and `turn`: which thread has a raw stream to itself |
//! | `share/` | `external`, `external_memory`, `semaphore`, `binary`: imported from other APIs; `imported`: waits and signals of imported timelines; `interprocess`: events of several processes |
//! | `timing/` | `stamp`: times written by streams; `clock`: the GPU's clock, sampled together with the host's |
//! | `graph/` | `capture`: fences in a stream capture; `launch`: fences that each launch of a graph records or waits for |
//! | `adopt/`, `probe` | adopting what an application has, and raw handles out; which devices there are and what each can do |
//!
//! CUDA has no timeline object. A timeline that has its home here is a ring of pooled events, because an
//! event costs a quarter of any other mechanism and the engine never parks a wait before its signal. On an
//! H200 one hop between two streams takes 0.27 µs with an event's record and wait, 1.9 µs with an external
//! semaphore, and 2.3 µs with a write to device memory and a wait for it.
//!
//! See the CUDA driver API: event management, stream management, external resource interoperability.

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
pub use device::open::Device;
pub use driver::table::Driver;
pub use memory::buffer::DeviceBuffer;
pub use memory::module::{Function, Module};
pub use probe::Candidate;
pub use queue::recorder::Recorder;
pub use queue::submission::Queue;
pub use share::binary::BinarySemaphore;
pub use share::interprocess::{EventIpcHandle, InterprocessEvent};
pub use timeline::counter::CounterPort;
pub use timeline::external::ExternalPort;
pub use timeline::port::EventPort;

/// The raw types that appear in this crate's `unsafe` functions and raw handles.
pub use cudarc::driver::sys;

const _: () = {
    const fn shared<T: Send + Sync>() {}
    shared::<Driver>();
    shared::<Device>();
    shared::<Queue>();
    shared::<BinarySemaphore>();
    shared::<EventIpcHandle>();
    shared::<InterprocessEvent>();
    shared::<EventPort>();
    shared::<ExternalPort>();
    shared::<CounterPort>();
    shared::<DeviceBuffer>();
    shared::<Function>();
};
