//! Plans: the mechanism, and the permission and duty of each party.

use std::fmt;

use syncline_core::handle::HandleKind;

use super::conflict::{Obstacle, list};
use super::fit::{self, Fit};
use super::mechanism::Mechanism;
use super::party::{Needs, Party, PartyId, Requirements};

/// What a plan allows a party to do with the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Permission {
    /// Wait and query.
    WaitOnly,
    /// Signal.
    SignalOnly,
    /// Signal, wait and query.
    Both,
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WaitOnly => "may wait",
            Self::SignalOnly => "may signal",
            Self::Both => "may signal and wait",
        })
    }
}

/// What a party does to make or obtain the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Duty {
    /// Its device makes the object and exports nothing.
    Make,
    /// Its device makes the object and exports a new handle of this kind for each importer.
    Export(HandleKind),
    /// Its device imports a handle of this kind.
    Import(HandleKind),
    /// Its device makes its own timeline, and a bridge carries signals in both directions.
    Follow,
    /// Nothing. The engine holds its waits, and the host makes its signals.
    Nothing,
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make => f.write_str("makes it"),
            Self::Export(kind) => write!(f, "makes it, and exports it as {}", kind.name()),
            Self::Import(kind) => write!(f, "imports it as {}", kind.name()),
            Self::Follow => f.write_str("makes its own timeline, and a bridge carries signals"),
            Self::Nothing => f.write_str("the engine stands in"),
        }
    }
}

/// How far a plan prevents a party that may only wait from signalling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Enforcement {
    /// Enforced by Rust types. All parties are in this process.
    Types,
    /// Enforced by Rust types only. A hostile peer that has the handle can signal.
    TypesOfEachProcess,
}

impl fmt::Display for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Types => "by the types that are handed out",
            Self::TypesOfEachProcess => {
                "by the types in each process only; a hostile process that has the handle can signal"
            }
        })
    }
}

/// One party's part of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The party.
    pub party: Party,
    /// What the party may do with the object.
    pub permission: Permission,
    /// What the party does to make or obtain the object.
    pub duty: Duty,
}

/// The mechanism that a plan would use if its first choice were not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextBest {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// Why the mechanism serves all parties, as text.
    pub why: String,
}

/// The result of [`negotiate`](super::negotiate()): the mechanism, and the part of each party.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    requirements: Requirements,
    mechanism: Mechanism,
    home: usize,
    why: String,
    better: Vec<(Mechanism, Vec<Obstacle>)>,
    next_best: Option<NextBest>,
}

impl Plan {
    pub(super) fn new(
        requirements: Requirements,
        mechanism: Mechanism,
        fit: Fit,
        better: Vec<(Mechanism, Vec<Obstacle>)>,
        next_best: Option<NextBest>,
    ) -> Self {
        Self {
            requirements,
            mechanism,
            home: fit.home,
            why: fit.why,
            better,
            next_best,
        }
    }

    /// All parties, with their needs and links.
    pub(super) const fn requirements(&self) -> &Requirements {
        &self.requirements
    }

    /// The mechanism by which the parties see each other's signals.
    #[must_use]
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Why the mechanism serves all parties, as text.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The mechanisms that would be preferred to this one, with the obstacles of each.
    #[must_use]
    pub fn better(&self) -> &[(Mechanism, Vec<Obstacle>)] {
        &self.better
    }

    /// The mechanism that comes next, or `None` if no other mechanism serves all parties.
    #[must_use]
    pub const fn next_best(&self) -> Option<&NextBest> {
        self.next_best.as_ref()
    }

    /// All parties, with their needs.
    #[must_use]
    pub fn parties(&self) -> &[Party] {
        self.requirements.parties()
    }

    /// The party whose device makes the object.
    ///
    /// On a bridge each device makes a timeline, and the home's timeline is the first side. After a
    /// negotiation between processes, the home's process has an endpoint to each other process.
    #[must_use]
    pub fn home(&self) -> &Party {
        &self.parties()[self.home]
    }

    /// True if signallers write times, so that points can report when they were reached (M6).
    #[must_use]
    pub fn has_timestamps(&self) -> bool {
        let asks = |party: &Party| party.needs().contains(Needs::TIMESTAMPS);
        self.parties().iter().any(asks)
    }

    /// True if the object is a binary semaphore, false if it is a timeline.
    #[must_use]
    pub fn is_binary(&self) -> bool {
        let asks = |party: &Party| party.needs().contains(Needs::BINARY);
        self.parties().iter().any(asks)
    }

    /// True if more than one process has the object, or may have it later.
    #[must_use]
    pub fn crosses_processes(&self) -> bool {
        fit::leaves(self.parties())
    }

    /// How far the plan prevents a party that may only wait from signalling (X7).
    #[must_use]
    pub fn enforcement(&self) -> Enforcement {
        match self.crosses_processes() {
            true => Enforcement::TypesOfEachProcess,
            false => Enforcement::Types,
        }
    }

    /// The part of each party.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        self.parties().iter().map(|party| Part {
            party: party.clone(),
            permission: permission(party),
            duty: self.duty(party),
        })
    }

    /// The part of one party, or `None` if the plan does not have that party.
    #[must_use]
    pub fn part(&self, of: PartyId) -> Option<Part> {
        self.parts().find(|part| part.party.id() == of)
    }

    fn duty(&self, party: &Party) -> Duty {
        let is_home = party.id() == self.home().id();
        match (self.mechanism, self.mechanism.handle()) {
            (Mechanism::Bridge, _) if party.is_device() => Duty::Follow,
            (_, Some(kind)) if is_home => Duty::Export(kind),
            (Mechanism::SharedMemory, Some(kind)) => Duty::Import(kind),
            (_, Some(kind)) if party.is_driven() => Duty::Import(kind),
            _ if is_home => Duty::Make,
            _ => Duty::Nothing,
        }
    }

    /// The same plan with another mechanism and another home.
    #[cfg(test)]
    pub(super) fn forged(self, mechanism: Mechanism, home: usize) -> Self {
        Self {
            mechanism,
            home,
            ..self
        }
    }
}

/// The permission that follows from the needs of a party.
///
/// Each party of a plan signals, waits or queries.
fn permission(party: &Party) -> Permission {
    let needs = party.needs();
    let waits = needs.intersects(Needs::WAIT | Needs::HOST_ACCESS);
    match (needs.contains(Needs::SIGNAL), waits) {
        (true, true) => Permission::Both,
        (true, false) => Permission::SignalOnly,
        (false, _) => Permission::WaitOnly,
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.mechanism, self.why)?;
        for part in self.parts() {
            let (party, permission, duty) = (&part.party, part.permission, part.duty);
            write!(f, "\n    {party}: {permission}; {duty}")?;
        }
        write!(f, "\n  permissions are enforced {}", self.enforcement())?;
        for (mechanism, obstacles) in &self.better {
            write!(f, "\n  not {mechanism}: {}", list(obstacles))?;
        }
        match &self.next_best {
            Some(next) => write!(f, "\n  next best: {}: {}", next.mechanism, next.why),
            None => f.write_str("\n  no other mechanism serves all parties"),
        }
    }
}
