//! Negotiation between processes.

use std::fmt;
use std::time::Duration;

use syncline_core::Error;

use super::Endpoint;
use crate::negotiate::{Conflict, Plan, Requirements};

/// Why processes have not come to a plan.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Disagreement {
    /// Their needs do not go together. All of them have found this.
    Conflict(Conflict),
    /// They could not find out.
    Error(Error),
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict(conflict) => fmt::Display::fmt(conflict, f),
            Self::Error(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for Disagreement {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Conflict(conflict) => Some(conflict),
            Self::Error(error) => Some(error),
        }
    }
}

impl From<Error> for Disagreement {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Conflict> for Disagreement {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl Endpoint {
    /// One plan for the needs of both processes.
    ///
    /// # Errors
    /// The disagreement.
    pub fn negotiate(
        &self,
        own: impl Into<Requirements>,
        timeout: Duration,
    ) -> Result<Plan, Disagreement> {
        negotiate_among(own, &[self], timeout)
    }
}

/// One plan for the needs of this process and of all others.
///
/// # Errors
/// The disagreement.
pub fn negotiate_among(
    own: impl Into<Requirements>,
    peers: &[&Endpoint],
    timeout: Duration,
) -> Result<Plan, Disagreement> {
    let _ = (own.into(), peers, timeout);
    Err(Error::NothingToWaitFor.into())
}
