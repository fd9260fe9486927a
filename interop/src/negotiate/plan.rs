//! What is to be made, and by whom.

use std::fmt;

use syncline_core::HandleKind;

use super::conflict::{Conflict, Obstacle, list};
use super::fit::{self, Fit};
use super::{Mechanism, Needs, Party, PartyId, Requirements, negotiate};

/// What a party may do with the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Permission {
    /// Wait, and ask.
    WaitOnly,
    /// Signal.
    SignalOnly,
    /// Both.
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

/// What a party has to do, so that the object comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Duty {
    /// Its device makes the object, and nothing leaves it.
    Make,
    /// Its device makes the object and exports it: a new handle of this kind for each importer.
    Export(HandleKind),
    /// Its device imports a handle of this kind.
    Import(HandleKind),
    /// Its device makes a timeline of its own, to and from which signals are carried.
    Follow,
    /// Nothing: its waits are held by the engine, and its signals made by the host.
    Nothing,
}

impl fmt::Display for Duty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make => f.write_str("makes it"),
            Self::Export(kind) => write!(f, "makes it, and exports it as {}", kind.name()),
            Self::Import(kind) => write!(f, "imports it as {}", kind.name()),
            Self::Follow => f.write_str("makes one of its own, and signals are carried over"),
            Self::Nothing => f.write_str("the engine stands in"),
        }
    }
}

/// What keeps a party that may only wait from signalling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Enforcement {
    /// The types that the plan hands out. Nothing leaves the process, so nothing passes them by.
    Types,
    /// The types, in each process that keeps to them: what passes between them grants whoever has it everything.
    TypesOfEachProcess,
}

impl fmt::Display for Enforcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Types => "by the types that are handed out",
            Self::TypesOfEachProcess => {
                "by the types in each process, and by nothing between them: what is passed grants everything"
            }
        })
    }
}

/// One party's part of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Who.
    pub party: Party,
    /// What it may do.
    pub permission: Permission,
    /// What it has to do.
    pub duty: Duty,
}

/// What would be done without a plan's mechanism: the next of those that fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextBest {
    /// How.
    pub mechanism: Mechanism,
    /// Why it fits.
    pub why: String,
}

/// How all parties are served: the answer to [`negotiate`].
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

    /// How the parties see each other's signals.
    #[must_use]
    pub const fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// Why this mechanism fits, in words.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// What kept the parties from each mechanism that would have been preferred.
    #[must_use]
    pub fn better(&self) -> &[(Mechanism, Vec<Obstacle>)] {
        &self.better
    }

    /// What would have been done without this mechanism; `None` if nothing else fits.
    #[must_use]
    pub const fn next_best(&self) -> Option<&NextBest> {
        self.next_best.as_ref()
    }

    /// All parties with their needs.
    #[must_use]
    pub fn parties(&self) -> &[Party] {
        self.requirements.parties()
    }

    /// The party whose device makes the object, or, where each has one of its own, from whose the others are signalled first. After a negotiation between
    /// processes it is in a process that has an endpoint to each of the others.
    #[must_use]
    pub fn home(&self) -> &Party {
        &self.parties()[self.home]
    }

    /// True if whoever signals writes the time, so that points can tell when they were reached.
    #[must_use]
    pub fn has_timestamps(&self) -> bool {
        let asks = |party: &Party| party.needs().contains(Needs::TIMESTAMPS);
        self.parties().iter().any(asks)
    }

    /// True if what is made is a binary semaphore and no timeline.
    #[must_use]
    pub fn is_binary(&self) -> bool {
        let asks = |party: &Party| party.needs().contains(Needs::BINARY);
        self.parties().iter().any(asks)
    }

    /// True if the object comes to more than one process.
    #[must_use]
    pub fn crosses_processes(&self) -> bool {
        fit::leaves(self.parties())
    }

    /// What keeps a party that may only wait from signalling.
    #[must_use]
    pub fn enforcement(&self) -> Enforcement {
        match self.crosses_processes() {
            true => Enforcement::TypesOfEachProcess,
            false => Enforcement::Types,
        }
    }

    /// Each party's part.
    pub fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        self.parties().iter().map(|party| Part {
            party: party.clone(),
            permission: permission(party),
            duty: self.duty(party),
        })
    }

    /// The part of one party, if it takes part.
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

    /// The same plan with another mechanism in it, made by another party.
    #[cfg(test)]
    pub(super) fn forged(self, mechanism: Mechanism, home: usize) -> Self {
        Self {
            mechanism,
            home,
            ..self
        }
    }

    /// What a receiver does with a plan that somebody else has made: nothing in it is believed. It has to be the answer
    /// that [`negotiate`] gives here, and `own` to stand in it with exactly its needs.
    ///
    /// # Errors
    /// The [`Conflict`] that the receiver finds, if the parties have none but that with this plan: what differs.
    pub fn check(&self, own: &Party) -> Result<(), Conflict> {
        let differs = |reason: String| Conflict {
            requirements: self.requirements.clone(),
            clashes: vec![Obstacle::of([own], reason)],
            refused: Vec::new(),
            ways: Vec::new(),
        };
        match self.parties().iter().find(|party| party.id() == own.id()) {
            None => return Err(differs(format!("{own} takes no part in the plan"))),
            Some(told) if told != own => {
                let reason = format!(
                    "the plan has {own} as {}, which {}, but it is {}, which {}",
                    told.name(),
                    told.needs(),
                    own.name(),
                    own.needs()
                );
                return Err(differs(reason));
            }
            Some(_) => {}
        }
        let found = negotiate(self.requirements.clone())?;
        if found == *self {
            return Ok(());
        }
        Err(differs(format!(
            "the plan says {}, but the answer to what these parties need is {}, made by {}",
            self.mechanism,
            found.mechanism,
            found.home()
        )))
    }
}

/// What follows from what a party needs, which is one of the three at least.
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
        write!(f, "\n  permissions are kept {}", self.enforcement())?;
        for (mechanism, obstacles) in &self.better {
            write!(f, "\n  not {mechanism}: {}", list(obstacles))?;
        }
        match &self.next_best {
            Some(next) => write!(f, "\n  next best: {}: {}", next.mechanism, next.why),
            None => f.write_str("\n  nothing else would do"),
        }
    }
}
