//! The exported functions.

mod array;
mod context;
mod copy;
mod device;
mod event;
mod external;
mod graph;
mod memory;
mod memory_op;
mod module;
mod observe;
mod stream;
mod virtual_memory;

/// A handle, or a pointer that is only given back.
pub(super) type Handle = usize;

/// True if the driver has this function of the driver API.
pub(crate) fn has(function: &str) -> bool {
    let chapters = [
        array::NAMES,
        context::NAMES,
        copy::NAMES,
        device::NAMES,
        event::NAMES,
        external::NAMES,
        graph::NAMES,
        memory::NAMES,
        memory_op::NAMES,
        module::NAMES,
        stream::NAMES,
        virtual_memory::NAMES,
    ];
    chapters.concat().contains(&function)
}
