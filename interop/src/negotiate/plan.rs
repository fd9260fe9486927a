//! Plans: the mechanism, and the permission and duty of each party.

use std::fmt;

use syncline_core::handle::HandleKind;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
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

/// The result of [`negotiate`](super::negotiate()): the mechanism, and the part of each party.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    requirements: Requirements,
    mechanism: Mechanism,
    home: usize,
    why: String,
    better: Vec<(Mechanism, Vec<String>)>,
    next_best: Option<(Mechanism, String)>,
}

impl Plan {
    pub(super) fn new(
        requirements: Requirements,
        mechanism: Mechanism,
        fit: Fit,
        better: Vec<(Mechanism, Vec<String>)>,
        next_best: Option<(Mechanism, String)>,
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

    /// The mechanisms that would be preferred to this one, with the reasons against each as text.
    #[must_use]
    pub fn better(&self) -> &[(Mechanism, Vec<String>)] {
        &self.better
    }

    /// The mechanism that comes next, or `None` if no other mechanism serves all parties.
    #[must_use]
    pub fn next_best(&self) -> Option<Mechanism> {
        self.next_best.as_ref().map(|(mechanism, _)| *mechanism)
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

    /// What the plan allows a party to do, or `None` if the plan does not have that party.
    #[must_use]
    pub fn permission(&self, of: PartyId) -> Option<Permission> {
        self.party(of).map(Party::permission)
    }

    /// What a party does to make or obtain the object, as text. `None` if the plan does not have
    /// that party.
    #[must_use]
    pub fn duty(&self, of: PartyId) -> Option<String> {
        Some(self.duty_of(self.party(of)?).to_string())
    }

    pub(crate) fn party(&self, of: PartyId) -> Option<&Party> {
        self.parties().iter().find(|party| party.id() == of)
    }

    pub(crate) fn duty_of(&self, party: &Party) -> Duty {
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

impl Party {
    /// The permission that follows from its needs. Each party of a plan signals, waits or queries.
    pub(super) fn permission(&self) -> Permission {
        let needs = self.needs();
        let waits = needs.intersects(Needs::WAIT | Needs::HOST_ACCESS);
        match (needs.contains(Needs::SIGNAL), waits) {
            (true, true) => Permission::Both,
            (true, false) => Permission::SignalOnly,
            (false, _) => Permission::WaitOnly,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.mechanism, self.why)?;
        for party in self.parties() {
            let (permission, duty) = (party.permission(), self.duty_of(party));
            write!(f, "\n    {party}: {permission}; {duty}")?;
        }
        f.write_str(match self.crosses_processes() {
            false => "\n  permissions are enforced by the types that are handed out",
            true => {
                "\n  permissions are enforced by the types in each process only; a hostile process \
                 that has the handle can signal"
            }
        })?;
        for (mechanism, obstacles) in &self.better {
            write!(f, "\n  not {mechanism}: {}", obstacles.join("; "))?;
        }
        match &self.next_best {
            Some((mechanism, why)) => write!(f, "\n  next best: {mechanism}: {why}"),
            None => f.write_str("\n  no other mechanism serves all parties"),
        }
    }
}
