//! The synchronization primitives the engine is built from, in one place so that a model checker
//! can stand in for them: std's, or loom's where the sources are compiled as the crate `syncline-model`.

#[cfg(syncline_loom)]
mod modelled;
#[cfg(not(syncline_loom))]
mod native;

#[cfg(syncline_loom)]
pub(crate) use modelled::*;
#[cfg(syncline_loom)]
pub use modelled::{Memory, Mutex, MutexGuard};
#[cfg(not(syncline_loom))]
pub(crate) use native::*;
#[cfg(not(syncline_loom))]
pub use native::{Mutex, MutexGuard};
