//! The plan for the needs of all parties, or their conflict.

use super::conflict::{Conflict, Way};
use super::fit;
use super::mechanism::Mechanism;
use super::party::{Party, Requirements};
use super::plan::Plan;

/// Computes the plan for the needs of all parties.
///
/// The plan names the first mechanism in the order of preference that serves all parties. That is
/// the mechanism with the fewest steps from a signal to the waiters.
///
/// ```
/// use syncline::Mechanism;
/// use syncline::negotiate::{Needs, Party, Requirements, negotiate};
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

type Refused = Vec<(Mechanism, Vec<String>)>;

fn answer(needs: &Requirements) -> Result<Plan, (Vec<String>, Refused)> {
    let clashes = fit::clashes(needs);
    if !clashes.is_empty() {
        return Err((clashes, Refused::new()));
    }
    let mut refused = Refused::new();
    let mut mechanisms = fit::by_preference(needs).into_iter();
    while let Some(mechanism) = mechanisms.next() {
        match mechanism.fit(needs) {
            Ok(fit) => {
                let next_best = mechanisms
                    .find_map(|mechanism| Some((mechanism, mechanism.fit(needs).ok()?.why)));
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

impl Plan {
    /// Checks a plan that another process computed.
    ///
    /// The plan must equal the result of [`negotiate`] in this process for the same parties, and
    /// must contain `own` with exactly its needs.
    ///
    /// # Errors
    /// The [`Conflict`] of [`negotiate`]. If there is none, a conflict that states how the plan
    /// differs.
    pub fn check(&self, own: &Party) -> Result<(), Conflict> {
        let differs = |reason: String| {
            let clashes = vec![reason];
            Conflict::new(self.requirements().clone(), clashes, Vec::new(), Vec::new())
        };
        match self.parties().iter().find(|party| party.id() == own.id()) {
            None => return Err(differs(format!("{own} takes no part in the plan"))),
            Some(planned) if planned != own => {
                let reason = format!(
                    "the plan has {own} as {}, which {}, but it is {}, which {}",
                    planned.name(),
                    planned.needs(),
                    own.name(),
                    own.needs()
                );
                return Err(differs(reason));
            }
            Some(_) => {}
        }
        let found = negotiate(self.requirements().clone())?;
        if found == *self {
            return Ok(());
        }
        Err(differs(format!(
            "the plan says {}, but the answer to what these parties need is {}, made by {}",
            self.mechanism(),
            found.mechanism(),
            found.home()
        )))
    }
}
