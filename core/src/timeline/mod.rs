//! Timelines: their handles, points, claims and state.

pub(crate) mod access;
pub(crate) mod claim;
mod handle;
pub(crate) mod held_index;
pub(crate) mod host_signals;
pub(crate) mod interval;
pub(crate) mod point;
pub(crate) mod recent_spins;
pub(crate) mod slots;
pub(crate) mod state;
pub(crate) mod times;
pub(crate) mod waiters;

pub(crate) use handle::JoinedSides;
pub use handle::Timeline;
