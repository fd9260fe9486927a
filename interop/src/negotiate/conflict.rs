//! Conflicts: incompatible needs.

use std::fmt;

use syncline_core::Error;

use super::mechanism::Mechanism;
use super::party::{Needs, Party, PartyId, Requirements};

/// A reason why one mechanism, or every mechanism, cannot serve all parties.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The parties that the reason is about. Empty if it is about no party in particular.
    pub parties: Vec<PartyId>,
    /// The reason, as text.
    pub reason: String,
}

impl Obstacle {
    pub(super) fn of<'p>(
        parties: impl IntoIterator<Item = &'p Party>,
        reason: impl Into<String>,
    ) -> Self {
        Self {
            parties: parties.into_iter().map(Party::id).collect(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// All reasons in one line, separated by semicolons.
pub(crate) fn list(obstacles: &[Obstacle]) -> String {
    let reasons: Vec<_> = obstacles.iter().map(ToString::to_string).collect();
    reasons.join("; ")
}

/// A single need without which there would be a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The party that has the need.
    pub party: PartyId,
    /// The need.
    pub need: Needs,
    /// The mechanism of the plan without that need.
    pub mechanism: Mechanism,
}

/// Why there is no plan: the needs of all parties, the obstacles, and the needs to give up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    requirements: Requirements,
    clashes: Vec<Obstacle>,
    refused: Vec<(Mechanism, Vec<Obstacle>)>,
    ways: Vec<Way>,
}

impl Conflict {
    pub(super) const fn new(
        requirements: Requirements,
        clashes: Vec<Obstacle>,
        refused: Vec<(Mechanism, Vec<Obstacle>)>,
        ways: Vec<Way>,
    ) -> Self {
        Self {
            requirements,
            clashes,
            refused,
            ways,
        }
    }

    /// All parties, with their needs.
    #[must_use]
    pub fn parties(&self) -> &[Party] {
        self.requirements.parties()
    }

    /// Obstacles that exclude every mechanism.
    #[must_use]
    pub fn clashes(&self) -> &[Obstacle] {
        &self.clashes
    }

    /// The obstacles of each mechanism. Empty if there are [clashes](Conflict::clashes).
    #[must_use]
    pub fn refused(&self) -> &[(Mechanism, Vec<Obstacle>)] {
        &self.refused
    }

    /// Each single need without which there would be a plan.
    #[must_use]
    pub fn ways(&self) -> &[Way] {
        &self.ways
    }

    fn name(&self, id: PartyId) -> String {
        let mut parties = self.parties().iter();
        let party = parties.find(|party| party.id() == id);
        party.map_or_else(|| id.process.to_string(), ToString::to_string)
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no synchronization object serves all parties:")?;
        for party in self.parties() {
            write!(f, "\n    {party}: {}", party.needs())?;
        }
        for clash in &self.clashes {
            write!(f, "\n  {clash}")?;
        }
        for (mechanism, obstacles) in &self.refused {
            write!(f, "\n  {mechanism}: {}", list(obstacles))?;
        }
        for way in &self.ways {
            let (party, need) = (self.name(way.party), way.need);
            let mechanism = way.mechanism;
            write!(
                f,
                "\n  {mechanism} would serve all, but for one need: {party} {need}"
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for Conflict {}

impl From<Conflict> for Error {
    /// [`Error::Conflict`], in which `downcast_ref` finds the conflict.
    fn from(conflict: Conflict) -> Self {
        Self::conflict(conflict)
    }
}
