//! The CUDA backend: streams, timelines built from events, and what other APIs share with them.
//!
//! | file | what is in it |
//! |---|---|
//! | `driver` | the driver library, its functions, and what their results mean |
//! | `probe` | what devices there are, and what each can do |
//! | `device` | an opened device, and the watch over its events |
//! | `context`, `stream`, `event` | the driver's objects, owned or borrowed |
//! | `raw_stream` | the raw streams in use, each with its turn, which all its users share |
//! | `turn` | which thread has a stream to itself: for a submission, or for the application |
//! | `queue`, `recorder` | how one submission becomes driver calls; what its work is given |
//! | `port`, `row` | a timeline as a ring of events; the signals in it, in order |
//! | `capture`, `graph` | fences in a graph capture; fences that each launch of a graph records or waits for |
//! | `own_event`, `interprocess` | fences with an event of their own, which is recorded again and again; such events for several processes |
//! | `timing` | times written by streams |
//! | `clock` | the GPU's clock, read together with the host's |
//! | `external`, `external_memory`, `semaphore`, `binary` | timelines and memory imported from other APIs; the semaphores under them; binary ones, as fences |
//! | `counter`, `memory_ops` | timelines in shared memory, and how streams wait for words of it and write them |
//! | `imported`, `shown` | waits and signals of both in a submission; what of their values the host may act on |
//! | `memory`, `module` | what demonstrations and tests need: buffers and kernels |
//! | `put_by` | memory that is due to be freed, until somebody may wait for that |
//! | `raw` | adoption of what an application already has, and raw handles out |
//!
//! CUDA has no timeline object. A timeline that has its home here is a ring of pooled events, because an
//! event costs a quarter of any other mechanism and the engine never parks a wait before its signal. On an
//! H200 one hop between two streams takes 0.27 µs with an event's record and wait, 1.9 µs with an external
//! semaphore, and 2.3 µs with a write to device memory and a wait for it.
//!
//! See the CUDA driver API: event management, stream management, external resource interoperability.

mod binary;
mod capture;
mod clock;
mod context;
mod counter;
mod device;
mod driver;
#[cfg(test)]
mod emulated;
mod event;
mod external;
mod external_memory;
mod graph;
mod imported;
mod interprocess;
mod load;
mod memory;
mod memory_ops;
mod module;
mod other_driver;
mod own_event;
mod port;
mod probe;
mod put_by;
mod queue;
mod raw;
mod raw_stream;
mod recorder;
mod row;
mod semaphore;
mod shown;
mod stream;
mod timing;
mod turn;

pub use binary::BinarySemaphore;
pub use counter::CounterPort;
pub use device::Device;
pub use driver::Driver;
pub use external::ExternalPort;
pub use interprocess::{EventIpcHandle, InterprocessEvent};
pub use memory::DeviceBuffer;
pub use module::{Function, Module};
pub use port::EventPort;
pub use probe::Candidate;
pub use queue::Queue;
pub use raw::{EventGuard, StreamGuard};
pub use recorder::Recorder;

/// The raw types that appear in this crate's `unsafe` functions and raw handles.
pub use cudarc::driver::sys;

/// Locks. No user code runs under the locks of this crate, so what a panic left behind is whole.
#[inline]
pub(crate) fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

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
