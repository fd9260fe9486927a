//! Conflicts: incompatible needs.

use std::fmt;

use syncline_core::Error;

use super::mechanism::Mechanism;
use super::party::{Needs, Party, PartyId, Requirements};

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
    clashes: Vec<String>,
    refused: Vec<(Mechanism, Vec<String>)>,
    ways: Vec<Way>,
}

impl Conflict {
    pub(super) const fn new(
        requirements: Requirements,
        clashes: Vec<String>,
        refused: Vec<(Mechanism, Vec<String>)>,
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

    /// The reasons that exclude every mechanism, as text.
    #[must_use]
    pub fn clashes(&self) -> &[String] {
        &self.clashes
    }

    /// The reasons against each mechanism, as text. Empty if there are
    /// [clashes](Conflict::clashes).
    #[must_use]
    pub fn refused(&self) -> &[(Mechanism, Vec<String>)] {
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
            write!(f, "\n  {mechanism}: {}", obstacles.join("; "))?;
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
