//! The questions, a file for each family.

mod capacity;
mod capture;
mod clock;
mod connections;
mod context;
mod defaults;
mod event;
mod external;
mod fault;
mod graph;
mod host;
pub(crate) mod ipc;
mod kernels;
mod memory;
mod memory_ops;
mod version;

use crate::harness::Probe;

/// All questions.
pub(crate) fn all() -> Vec<Probe> {
    [
        version::list(),
        context::list(),
        event::list(),
        connections::list(),
        capacity::list(),
        memory::list(),
        kernels::list(),
        fault::list(),
        memory_ops::list(),
        defaults::list(),
        host::list(),
        capture::list(),
        graph::list(),
        ipc::list(),
        external::list(),
        clock::list(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
