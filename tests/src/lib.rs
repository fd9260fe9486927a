//! The conformance suite of Syncline, as a library that any backend can run.
//!
//! A [`Case`] is one behaviour of `docs/contract.md`, written once over the contract traits and the
//! little neutral work of [`Subject`]. A subject is one device, or two of any backends with the
//! objects of each case split over both. Every case runs in a child process that is killed when it
//! hangs; a case that a device cannot run is skipped, with the reason.

pub mod case;
pub mod cases;
pub mod report;
pub mod runner;
mod subject;
pub mod workload;

pub use case::{Case, Stop, Verdict};
pub use subject::{RecorderOf, Subject, World};

/// The commit that this was built from; `-dirty` if the tree had changes.
pub const COMMIT: &str = env!("SYNCLINE_COMMIT");
