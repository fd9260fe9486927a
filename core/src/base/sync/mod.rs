//! The synchronization primitives of the engine: std's, or loom's in the crate `syncline-model`.
//!
//! The engine uses no others, so that the model checker loom can replace all of them.

#[cfg(syncline_loom)]
mod modelled;
#[cfg(not(syncline_loom))]
mod native;

#[cfg(syncline_loom)]
pub(crate) use modelled::*;
#[cfg(syncline_loom)]
pub use modelled::{Condvar, Memory, Mutex, MutexGuard};
#[cfg(not(syncline_loom))]
pub(crate) use native::*;
#[cfg(not(syncline_loom))]
pub use native::{Condvar, Mutex, MutexGuard};
