//! The driver library: finding it, its functions and its error codes.

pub(crate) mod array;
#[cfg(test)]
pub(crate) mod emulated;
pub(crate) mod load;
pub(crate) mod memory_ops;
pub(crate) mod other_driver;
pub(crate) mod pointer;
pub(crate) mod table;
pub(crate) mod virtual_memory;
