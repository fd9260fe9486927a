//! The driver library: finding it, the table of its functions, and what their results mean.

#[cfg(test)]
pub(crate) mod emulated;
pub(crate) mod load;
pub(crate) mod memory_ops;
pub(crate) mod other_driver;
pub(crate) mod table;
