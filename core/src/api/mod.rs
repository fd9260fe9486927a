//! The traits that applications and backends meet in, and the stopwatch.

pub mod backend;
pub(crate) mod stopwatch;
