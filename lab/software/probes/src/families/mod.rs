//! The questions, a file for each family.

mod calls;
mod capacity;
mod capture;
mod clock;
mod connections;
mod context;
mod defaults;
mod event;
mod external;
mod external_memory;
mod fault;
mod fork;
mod graph;
mod host;
mod host_memory;
mod image;
pub(crate) mod ipc;
mod kernels;
mod memory;
mod memory_ops;
mod slots;
mod user_objects;
mod version;
mod virtual_memory;
mod words;

use crate::harness::{Probe, Probes};

/// All questions.
pub(crate) fn all() -> Vec<Probe> {
    let mut all = Probes::default();
    for list in [
        version::list,
        context::list,
        calls::list,
        event::list,
        connections::list,
        capacity::list,
        memory::list,
        host_memory::list,
        kernels::list,
        fault::list,
        memory_ops::list,
        words::list,
        defaults::list,
        host::list,
        capture::list,
        graph::list,
        slots::list,
        user_objects::list,
        ipc::list,
        external::list,
        external_memory::list,
        virtual_memory::list,
        image::list,
        clock::list,
        fork::list,
    ] {
        list(&mut all);
    }
    all.0
}
