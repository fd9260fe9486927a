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
mod fit;
mod make;
mod mechanism;
mod party;
mod plan;

pub use binary::{BinarySignalOnly, BinaryWaitOnly, MadeBinary};
pub(crate) use conflict::list;
pub use conflict::{Conflict, Obstacle, Way};
pub(crate) use make::Timelines;
pub use make::{Granted, Made};
pub use mechanism::Mechanism;
pub(crate) use party::Queues;
pub use party::{Needs, Party, PartyId, Process, Requirements};
pub use plan::{Duty, Enforcement, NextBest, Part, Permission, Plan};

/// Computes the plan for the needs of all parties.
///
/// The plan names the first mechanism in the order of preference that serves all parties. That is
/// the mechanism with the fewest steps from a signal to the waiters.
///
/// ```
/// use syncline::negotiate::{Mechanism, Needs, Party, Requirements, negotiate};
///
/// # fn main() -> syncline::Result<()> {
/// let workers = syncline::host::Device::new();
/// let needs = Requirements::from([
///     Party::of(&workers).signals(),
///     Party::threads().waits(),
/// ]);
/// let plan = negotiate(needs.clone())?;
/// assert_eq!(plan.mechanism(), Mechanism::SameDevice);
///
/// // A binary semaphore has no value that the host could query.
/// let refused = negotiate(needs.and(Party::threads().needing(Needs::BINARY)));
/// println!("{}", refused.unwrap_err());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The [`Conflict`]: the needs of all parties, what makes them incompatible, and each single need
/// without which there would be a plan.
pub fn negotiate(needs: impl Into<Requirements>) -> Result<Plan, Conflict> {
    let needs = needs.into();
    match answer(&needs) {
        Ok(plan) => Ok(plan),
        Err((clashes, refused)) => {
            let ways = ways(&needs);
            Err(Conflict::new(needs, clashes, refused, ways))
        }
    }
}

type Refused = Vec<(Mechanism, Vec<Obstacle>)>;

fn answer(needs: &Requirements) -> Result<Plan, (Vec<Obstacle>, Refused)> {
    let clashes = fit::clashes(needs);
    if !clashes.is_empty() {
        return Err((clashes, Refused::new()));
    }
    let mut refused = Refused::new();
    let mut mechanisms = fit::by_preference(needs).into_iter();
    while let Some(mechanism) = mechanisms.next() {
        match mechanism.fit(needs) {
            Ok(fit) => {
                let next_best = mechanisms.find_map(|mechanism| {
                    let why = mechanism.fit(needs).ok()?.why;
                    Some(NextBest { mechanism, why })
                });
                return Ok(Plan::new(needs.clone(), mechanism, fit, refused, next_best));
            }
            Err(obstacles) => refused.push((mechanism, obstacles)),
        }
    }
    Err((Vec::new(), refused))
}

/// Each single need without which there would be a plan.
fn ways(needs: &Requirements) -> Vec<Way> {
    let mut ways = Vec::new();
    for party in needs.parties() {
        for need in party.needs() {
            if let Ok(plan) = answer(&needs.without(party.id(), need)) {
                ways.push(Way {
                    party: party.id(),
                    need,
                    mechanism: plan.mechanism(),
                });
            }
        }
    }
    ways
}

#[cfg(test)]
mod tests;
