//! Plans for synchronization objects that several parties share, made before the object (X1).
//!
//! Each [`Party`] states what it is and what it [needs](Needs). [`negotiate`] returns one [`Plan`]
//! for all parties, or the [`Conflict`] between them. It is a pure function of the needs: it makes
//! no object and calls no driver. Order and grouping of the needs do not change the result, and
//! every process computes the same one.
//!
//! ```
//! use syncline::negotiate::{Party, Requirements, negotiate};
//! use syncline::{Device, host};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::from(host::Device::new());
//! let needs = [Party::of(&device).signals(), Party::threads().waits()];
//! let plan = negotiate(Requirements::from(needs))?;
//! println!("{}, because {}", plan.mechanism(), plan.why());
//! # Ok(())
//! # }
//! ```
//!
//! The model is NvSciSync, which reconciles the attribute lists of all parties before it allocates
//! an object. See "NVIDIA DRIVE OS: NvStreams, Synchronization".

mod binary;
mod conflict;
mod decide;
mod fit;
mod make;
pub(crate) mod mechanism;
mod party;
mod plan;
mod poller;
mod semaphore;
mod waits;

pub use binary::{BinarySignalOnly, BinaryWaitOnly, MadeBinary};
pub use conflict::{Conflict, Way};
pub use decide::negotiate;
pub(crate) use fit::memory_obstacles;
pub(crate) use make::Timelines;
pub use make::{Granted, Made};
pub(crate) use mechanism::Mechanism;
pub(crate) use party::Process;
pub(crate) use party::Queues;
pub use party::{Needs, Party, PartyId, Requirements};
pub(crate) use plan::Duty;
pub use plan::{Permission, Plan};
pub(crate) use semaphore::DeviceSemaphore;
pub(crate) use waits::SemaphoreWaits;

#[cfg(test)]
mod tests;
