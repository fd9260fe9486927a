//! Timelines of several devices or processes: bridges, and publishing to other processes.

pub(crate) mod bridge;
pub(crate) mod publish;
