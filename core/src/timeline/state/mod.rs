//! The host-side state behind every timeline: its value, its claims, its failure.
//!
//! `shared` has the fields. The other files have the steps, as methods of [`Shared`].

mod ahead;
mod awaited;
mod claims;
mod dependents;
mod end;
mod extras;
mod held;
mod locked;
mod owed;
mod ports;
mod promises;
mod reached;
mod recovery;
mod shared;
#[cfg(test)]
mod shared_semaphore;
mod signals;
mod standing;
mod watching;

pub(crate) use crate::timeline::interval::Interval;
pub(crate) use ahead::{Bridge, Publication, Publish};
pub(crate) use awaited::Registered;
pub(crate) use dependents::{Dependent, Dependents};
pub(crate) use end::Closing;
pub(crate) use extras::Extras;
pub(crate) use held::{HeldWaits, set_waiting_for};
pub(crate) use owed::Owing;
pub use recovery::RecoveryMode;
pub(crate) use shared::Shared;
pub(crate) use signals::NewClaim;
pub(crate) use standing::Standing;
