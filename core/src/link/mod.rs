//! Timelines that several devices or processes have: bridges, and publishing to other processes.

pub(crate) mod bridge;
pub(crate) mod publish;
