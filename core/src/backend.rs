//! The page for authors of backends: the traits that a backend implements, and the kit for it.
//!
//! | trait | implemented by | what it is |
//! |---|---|---|
//! | [`Home`] | each backend | its devices: the ports of timelines |
//! | [`Backend`] | each backend | its devices: identity, and queues |
//! | [`BackendQueue`] | backends whose queues have methods of their own | contains an [`EngineQueue`] |
//! | [`Enqueue`] | each backend | hands a whole submission to the driver |
//! | [`Port`] | each backend | a timeline as one device sees it |
//! | [`SharedPort`] | backends whose ports other devices or processes use | pending values and recovery |
//! | [`Watch`] | backends whose drivers signal by themselves | blocks until a port advances |
//! | [`Stamp`] | backends with timestamps | a time written at a queue position |
//! | [`Sharing`] | backends that share timelines natively | exports and imports counters |
//! | [`NativeMark`] | backends with graphs | what a fence holds instead of a position |
//!
//! Every [`Backend`] is a [`Device`], and every [`BackendQueue`] is a [`Queue`]: the traits that
//! applications use.
//!
//! [`Timeline`](crate::Timeline), [`Point`](crate::Point), [`Signal`](crate::Signal) and
//! [`Fence`](crate::Fence) are concrete types over these traits. So one list may contain points of
//! several backends. The engine gives a backend these guarantees:
//!
//! * Only one thread at a time has the [state](Enqueue::State) of a queue.
//! * The signal of every wait in a [`Batch`] is reached, or a driver has it (Q2). A backend's queue
//!   never waits for something that only the host can still do.
//! * The engine holds no lock during a call of a backend, with the exceptions below. The calls in
//!   this table must not call the engine. All but [`SharedPort::recover`] must be quick.
//!
//! | lock | held during |
//! |---|---|
//! | that orders the host's signals of a timeline | [`Port::signal`]; also [`Stamp::time`], if other processes are told the time, and the drop of a [`Stamp`] |
//! | of a queue's state | [`Enqueue::take_unused`] |
//! | of a timeline's state | [`Watch::watcher`] and [`Watch::lends`] |
//! | of a waiting thread | [`Watch::nudge`] |
//! | of a fence | [`NativeMark::is_recorded`] |
//! | of the missing signals of a timeline | [`SharedPort::recover`], after a device was lost |
//!
//! The rules, with their ids, are in `docs/contract.md`.

pub use crate::api::author::{
    Backend, BackendQueue, Candidate, EngineQueue, EngineQueueOf, Identity,
};
pub use crate::api::sharing::Sharing;
pub use crate::api::{Device, Queue};
pub use crate::base::timing::Timing;
pub use crate::clock::sample::Sampler;
pub use crate::driver::enqueue::{
    Batch, Enqueue, Flush, InvariantLifetime, NoStamp, ToWrite, Waker,
};
pub use crate::driver::home::Home;
pub use crate::driver::in_flight::InFlightBudget;
pub use crate::driver::in_use::Unused;
pub use crate::driver::keep::Keep;
pub use crate::fence::mark::NativeMark;
pub use crate::port::attachment::{Attachment, Attachments};
pub use crate::port::watch::Watcher;
pub use crate::port::{ByEngine, Port, Recovered, SharedPort, Stamp, Watch};
pub use crate::queue::{SubmissionQueue, Traceable};
pub use crate::timeline::point::{Completion, NativePoint, Relayed};

/// Helpers of the engine that a backend may use, and no trait names: locks, pools, guards, checks.
pub mod kit {
    pub use crate::base::exiting::{RunsInProcess, TeardownGuard};
    pub use crate::base::run::must_defer_free;
    pub use crate::base::standby::StandbyThread;
    pub use crate::base::sync::{Condvar, Mutex, MutexGuard};
    pub use crate::clock::counter::{Rounds, TimestampCounter};
    pub use crate::clock::sample::Effort;
    pub use crate::driver::gate::Gate;
    pub use crate::driver::import::{ImportFd, memory_refused};
    pub use crate::driver::in_use::InUse;
    pub use crate::driver::once::get_or_make;
    pub use crate::driver::recycled::Recycled;
    pub use crate::memory::counter::Counter;
    pub use crate::memory::{require_range, require_size, size_refused};
}
