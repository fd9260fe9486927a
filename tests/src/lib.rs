//! The conformance suite of Syncline, as a library that any backend can run.
//!
//! A [`Case`] is one behaviour of `docs/contract.md`, written once over [`Subject`]. A subject is a
//! device with a little neutral work. It has a hook for each thing that a user does with the
//! library, and a mutant can override a hook. A case uses the library through the types of
//! [`user`]. It runs in a [`World`]: one device, or two of any backends with the objects of the
//! case split over both. Every subject has a child process that is killed when a case hangs. A case
//! that a device cannot run is skipped, with the reason.

#[cfg(feature = "vulkan")]
mod arena;
pub mod blocked;
pub mod case;
pub mod cases;
pub mod dice;
pub mod either;
pub mod executor;
pub mod expected;
pub mod footprint;
mod forked;
pub mod inventory;
pub mod peer;
pub mod report;
pub mod runner;
mod settings;
pub mod steady;
mod subject;
#[cfg(feature = "vulkan")]
mod texels;
pub mod user;
pub mod workload;

pub use case::{Case, Stop, Verdict};
pub use either::Paired;
pub use runner::{Runner, Suite};
pub use settings::{Settings, patience};
pub use subject::{QueueOf, RecorderOf, Subject, Waiting};
pub use user::World;

/// The commit of this build, with `-dirty` if the tree had changes.
pub const COMMIT: &str = env!("SYNCLINE_COMMIT");
