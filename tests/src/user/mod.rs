//! The library as a case uses it: thin types with the library's names.
//!
//! Their methods call hooks of the [`Subject`]. So a mutant can plant its bug where a user would
//! see it.
//!
//! | here | in the library |
//! |---|---|
//! | [`World`], [`Device`] | devices, one or two |
//! | [`Timeline`], [`Point`], [`KeptPoint`] | the same |
//! | [`Queue`], [`Submitted`] | `backend::Queue`, `backend::Submitted` |
//! | [`Fence`] | the same |
//! | [`Clock`], [`Time`] | `clock::Clock`, `clock::Time` |
//! | [`Stopwatch`] | the same |
//! | [`Stall`], [`Latch`] | nothing: device-side work that blocks until the host releases it |
//! | [`wait_all`], [`wait_any`] | the same |
//! | [`all`], [`any`] | `future::all`, `future::any` |

#![allow(
    clippy::missing_errors_doc,
    reason = "the errors are those of the library's method of the same name"
)]

mod clock;
mod fence;
mod queue;
mod stall;
mod stopwatch;
mod timeline;
mod world;

pub use clock::{Clock, Time};
pub use fence::Fence;
pub use queue::{Queue, Submitted};
pub use stall::{Latch, Stall};
pub use stopwatch::Stopwatch;
pub use syncline::Signal;
pub use timeline::{KeptPoint, Point, Timeline, all, any, wait_all, wait_any};
pub use world::{Device, World};

#[cfg(doc)]
use crate::Subject;
