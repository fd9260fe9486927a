//! What several parties need of a synchronization object, reconciled before it exists (X1).
//!
//! Each [`Party`] says what it is and what it [needs](Needs). [`negotiate`] answers with one [`Plan`], or with the [`Conflict`]
//! between them. Nothing is made and nobody is asked anything: the answer is a function of the needs alone, the same for any
//! order and grouping of them, and the same in every process that computes it.
//!
//! The model is that of NvSciSync, where attribute lists of all parties are reconciled before an object is allocated; see
//! "NVIDIA DRIVE OS: NvStreams, Synchronization".

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
pub(crate) use make::Lines;
pub use make::{Granted, Made};
pub use mechanism::Mechanism;
pub use party::{Needs, Party, PartyId, Process, Requirements};
pub use plan::{Duty, Enforcement, NextBest, Part, Permission, Plan};

/// One plan for what all parties need, or why there is none.
///
/// Of the mechanisms that serve everybody the plan names the one with the fewest steps from a signal to whoever waits. Pure and
/// deterministic: makes nothing, asks no driver.
///
/// ```
/// use syncline::negotiate::{Mechanism, Needs, Party, Requirements, negotiate};
///
/// # fn main() -> Result<(), syncline::negotiate::Conflict> {
/// let workers = syncline::host::Device::new();
/// let needs = Requirements::from([
///     Party::of(&workers).signals(),
///     Party::threads().waits(),
/// ]);
/// let plan = negotiate(needs.clone())?;
/// assert_eq!(plan.mechanism(), Mechanism::SameDevice);
///
/// // Nobody can both want a binary semaphore and ask for its value.
/// let refused = negotiate(needs.and(Party::threads().needing(Needs::BINARY)));
/// println!("{}", refused.unwrap_err());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The [`Conflict`]: all needs side by side, what stands between them, and which single need would have to go.
pub fn negotiate(needs: impl Into<Requirements>) -> Result<Plan, Conflict> {
    let needs = needs.into();
    match answer(&needs) {
        Ok(plan) => Ok(plan),
        Err((clashes, refused)) => Err(Conflict {
            ways: ways(&needs),
            requirements: needs,
            clashes,
            refused,
        }),
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

/// Each need that is alone in the way.
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
