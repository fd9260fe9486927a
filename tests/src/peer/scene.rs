//! Two processes that act together.

use syncline::Mechanism;
use syncline::error::Process;
use syncline::negotiate::Needs;

use super::{Half, Peer, with_peer};
use crate::case::{Stop, check, check_eq, note, wrong};
use crate::workload::Equipped;
use crate::{Verdict, World};

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The process that signals.
    Signaller,
    /// The process that waits.
    Waiter,
}

impl Side {
    /// Returns the role of the other process.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Signaller => Self::Waiter,
            Self::Waiter => Self::Signaller,
        }
    }
}

/// Two processes. The case runs in one of them.
pub struct Scene<'p> {
    here: Half,
    peer: &'p mut Peer,
    /// The role of this process.
    is: Side,
}

impl Scene<'_> {
    /// Runs `act` twice, with this process as the signaller and as the waiter.
    ///
    /// # Errors
    /// The verdict of `act`, or the reason why there are no two processes.
    pub fn both_ways(
        world: &World<Equipped>,
        mut act: impl FnMut(&mut Scene<'_>) -> Verdict,
    ) -> Verdict {
        for is in [Side::Signaller, Side::Waiter] {
            with_peer(|peer| act(&mut Scene::of(world, peer, is)))?;
        }
        Ok(())
    }

    /// Runs `act` for each mechanism that a plan can choose, with this process in each role.
    ///
    /// `act` gets the needs that lead to the mechanism. Everything is dropped before the next.
    ///
    /// # Errors
    /// The verdict of `act`, or the reason why there are no two processes or no plan.
    pub fn each_way(
        world: &World<Equipped>,
        mut act: impl FnMut(&mut Scene<'_>, Needs) -> Verdict,
    ) -> Verdict {
        Self::both_ways(world, |scene| {
            each_mechanism(|besides| {
                let found = scene.plan(besides)?;
                if found.is_some() {
                    act(scene, besides)?;
                    scene.by(Side::Signaller, "clean")?;
                    scene.by(Side::Waiter, "clean")?;
                }
                Ok(found)
            })
        })
    }

    /// As [`Scene::each_way`], but this process is always `is`.
    ///
    /// Each mechanism gets a second process of its own, which may be killed.
    ///
    /// # Errors
    /// Same errors.
    pub fn each_peer(
        world: &World<Equipped>,
        is: Side,
        mut act: impl FnMut(&mut Scene<'_>, Needs) -> Verdict,
    ) -> Verdict {
        each_mechanism(|besides| {
            let mut peer = Peer::start()?;
            let mut scene = Scene::of(world, &mut peer, is);
            let found = scene.plan(besides)?;
            if found.is_some() {
                act(&mut scene, besides)?;
            }
            Ok(found)
        })
    }

    /// Negotiates with these needs, and returns the mechanism, if there is a plan.
    fn plan(&mut self, besides: Needs) -> Result<Option<Mechanism>, Stop> {
        match self.negotiate(besides)?.as_str() {
            "conflict" => Ok(None),
            _ => self.here.mechanism().map(Some),
        }
    }

    /// Creates a scene in which this process is `is`.
    pub fn of<'p>(world: &World<Equipped>, peer: &'p mut Peer, is: Side) -> Scene<'p> {
        let device = world.left.subject().clone();
        Scene {
            here: Half::over(device, peer.endpoint()),
            peer,
            is,
        }
    }

    /// Returns the second process.
    pub fn peer(&mut self) -> &mut Peer {
        self.peer
    }

    /// Returns the role of this process.
    #[must_use]
    pub const fn this(&self) -> Side {
        self.is
    }

    /// Returns this process's half.
    pub const fn here(&mut self) -> &mut Half {
        &mut self.here
    }

    /// Runs `round` repeatedly. Fails if it leaves descriptors open in one of the processes.
    ///
    /// A leak grows in each round. A thread that closes a descriptor late does not, nor does a
    /// driver that opens some more for a few rounds and then closes all of them.
    ///
    /// # Errors
    /// The verdict of `round`. A failure if a process has more descriptors after every round.
    pub fn keeps_no_descriptors(&mut self, mut round: impl FnMut(&mut Self) -> Verdict) -> Verdict {
        /// NVIDIA's driver takes more for up to four rounds, and then returns them.
        const ROUNDS: usize = 8;
        // Drivers open some descriptors in the first rounds.
        for _ in 0..ROUNDS / 2 {
            round(self)?;
        }
        for side in [Side::Signaller, Side::Waiter] {
            let before = self.by(side, "descriptors")?;
            for _ in 0..ROUNDS {
                round(self)?;
            }
            let after = self.by(side, "descriptors")?;
            check!(
                count(&after)? < count(&before)? + ROUNDS / 2,
                "descriptors became more in {ROUNDS} rounds, in the process of the {side:?}: {before}, then {after}"
            );
        }
        Ok(())
    }

    /// Makes one of the processes obey a command.
    ///
    /// # Errors
    /// The command failed.
    pub fn by(&mut self, side: Side, words: &str) -> Result<String, Stop> {
        if side == self.is {
            return self.here.run(words);
        }
        self.peer.tell(words)?;
        self.peer.hear()
    }

    /// Makes one of the processes obey a command, which must answer `expected`.
    ///
    /// # Errors
    /// The command failed, or its answer is another one.
    #[track_caller]
    pub fn expect(&mut self, side: Side, words: &str, expected: impl AsRef<str>) -> Verdict {
        let (said, expected) = (self.by(side, words)?, expected.as_ref());
        check_eq!(said, expected, "{side:?}, {words}");
        Ok(())
    }

    /// Makes both processes obey a command, the signaller first.
    ///
    /// # Errors
    /// The command failed.
    pub fn both(&mut self, words: &str) -> Verdict {
        self.by(Side::Signaller, words)?;
        self.by(Side::Waiter, words).map(drop)
    }

    /// Signals a value by the signaller's queue, and waits for it in the other process.
    ///
    /// # Errors
    /// One of the commands failed.
    pub fn pass(&mut self, label: &str, value: u64) -> Verdict {
        self.by(Side::Signaller, &format!("signal {label} {value}"))?;
        self.by(Side::Waiter, &format!("wait {label} {value}"))
            .map(drop)
    }

    /// Makes both processes obey a command at the same time.
    ///
    /// # Errors
    /// One of the commands failed.
    pub fn together(&mut self, signaller: &str, waiter: &str) -> Result<[String; 2], Stop> {
        let (own, other) = match self.is {
            Side::Signaller => (signaller, waiter),
            Side::Waiter => (waiter, signaller),
        };
        self.peer.tell(other)?;
        let own = self.here.run(own);
        let other = self.peer.hear();
        // Reads both answers, so that the next answer belongs to the next command.
        let (own, other) = (own?, other?);
        Ok(match self.is {
            Side::Signaller => [own, other],
            Side::Waiter => [other, own],
        })
    }

    /// Has both processes negotiate, the signaller and the waiter, with these needs besides.
    ///
    /// Returns the name of the mechanism, or `conflict`.
    ///
    /// # Errors
    /// The results of the processes differ.
    pub fn negotiate(&mut self, besides: Needs) -> Result<String, Stop> {
        let needs = |doing: Needs| format!("negotiate {}", (doing | besides).bits());
        let [one, other] = self.together(&needs(Needs::SIGNAL), &needs(Needs::WAIT))?;
        if one == other {
            Ok(one)
        } else {
            Stop::fail(format!("one says {one}, and the other {other}"))
        }
    }

    /// Makes a binary semaphore in both processes. Skips the case if these needs have no plan.
    ///
    /// # Errors
    /// They cannot make it.
    pub fn make_binary(&mut self, besides: Needs, label: &str) -> Verdict {
        if self.negotiate(besides | Needs::BINARY)? == "conflict" {
            return Stop::skip("the two have no binary semaphore in common");
        }
        let make = format!("binary {label}");
        self.together(&make, &make).map(|_| ())
    }

    /// Checks that a process without a device that shares memory gets an error for `make` (X8).
    ///
    /// Both processes have a plan. In a new one, only the process of its home shares memory.
    ///
    /// # Errors
    /// It gets something else, or waits for the home's process, which does not call.
    pub fn only_the_home_shares(&mut self, make: &str) -> Verdict {
        let is_here =
            |half: &Half| Ok::<_, Stop>(half.plan()?.home().id().process == Process::this());
        let was_here = is_here(&self.here)?;
        let signals = was_here == (self.is == Side::Signaller);
        let needs = |doing: Needs, shares: bool| {
            let memory = if shares {
                Needs::MEMORY
            } else {
                Needs::empty()
            };
            format!("negotiate {}", (doing | memory).bits())
        };
        let (one, other) = (needs(Needs::SIGNAL, signals), needs(Needs::WAIT, !signals));
        self.together(&one, &other)?;
        check_eq!(was_here, is_here(&self.here)?);
        let without = if signals {
            Side::Waiter
        } else {
            Side::Signaller
        };
        fails(self.by(without, make), "has no device with `Needs::MEMORY`")
    }

    /// Makes a timeline at `initial` in both processes. Skips the case if the needs have no plan.
    ///
    /// # Errors
    /// They cannot make it.
    pub fn make(&mut self, besides: Needs, label: &str, initial: u64) -> Verdict {
        if self.negotiate(besides)? == "conflict" {
            return Stop::skip(format!("there is no plan with the needs {besides}"));
        }
        let make = format!("make {label} {initial}");
        self.together(&make, &make).map(|_| ())
    }
}

/// Checks that a command failed for a reason that contains `part`.
///
/// # Errors
/// It did not.
#[track_caller]
pub fn fails<T: std::fmt::Debug>(told: Result<T, Stop>, part: &str) -> Verdict {
    match told {
        Err(Stop::Failed(reason)) if reason.contains(part) => Ok(()),
        Err(skipped @ Stop::Skipped(_)) => Err(skipped),
        told => wrong(
            format!("{told:?} is no failure with {part:?}"),
            format_args!(""),
        ),
    }
}

/// Runs `round` with needs that lead to each mechanism, the best first, until it finds no plan.
fn each_mechanism(mut round: impl FnMut(Needs) -> Result<Option<Mechanism>, Stop>) -> Verdict {
    let mut besides = Needs::empty();
    let mut shown = Vec::new();
    while let Some(mechanism) = round(besides)? {
        shown.push(mechanism.name());
        besides |= mechanism.avoided();
    }
    if shown.is_empty() {
        return Stop::skip("there is no plan for the two");
    }
    note(shown.join("; "));
    Ok(())
}

/// Returns the number before the list of [`descriptors`](super::half).
fn count(descriptors: &str) -> Result<usize, Stop> {
    let number = descriptors.split(':').next().unwrap_or_default();
    number
        .parse()
        .map_or_else(|_| Stop::fail(format!("no number in {descriptors:?}")), Ok)
}
