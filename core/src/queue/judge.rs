//! Whether a submission can go to the driver, and what it waits for if it cannot yet.

use std::sync::Arc;

use smallvec::SmallVec;

use super::held_list::HeldSubmission;
use super::submission_queue::SubmissionQueue;
use super::work::Work;
use crate::base::error::Failure;
use crate::base::stage::Stage;
use crate::base::steps;
use crate::driver::enqueue::Enqueue;
use crate::timeline::point::KeptPoint;
use crate::timeline::state::{Shared, Standing};

/// Points that a submission lacks, in the order of its waits.
pub(super) type Missing = SmallVec<[(KeptPoint, Stage); 2]>;

/// What the first held submission of a queue lacks.
pub(super) enum Lack {
    /// At least one point. The queue registers for all of them, because one that fails skips the
    /// submission.
    Points(Missing),
    /// The budget that the queue shares with others is used up.
    Budget,
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// True if submission `number` is within the limits of what may be in flight. Takes no lock.
    #[inline]
    pub(super) fn has_space(&self, number: u64) -> bool {
        let is_within = self.checks.allows(number)
            || self.own_shared().reached() >= number.saturating_sub(E::MAX_IN_FLIGHT);
        is_within && !self.is_full()
    }

    /// What a held submission still lacks. `None` if it can go to the driver.
    ///
    /// Makes no driver call and wakes nothing.
    ///
    /// # Errors
    /// The cause if it never can go.
    pub(super) fn judge(
        &self,
        number: u64,
        held: &HeldSubmission<E>,
    ) -> Result<Option<Lack>, Failure> {
        if let Work::Recorded(_) = held.work {
            // All its waits were pending when it was recorded.
            return Ok(None);
        }
        if let Some(cause) = self.loss() {
            return Err(cause.clone());
        }
        let mut missing = Missing::new();
        if let Some(edges) = &held.edges {
            for (of, value) in &edges.waits {
                let port = of.port_on(self.device);
                let needed = port.map_or(Stage::Reached, |_| Stage::Pending);
                add_missing(&mut missing, of, *value, needed)?;
            }
            for (of, claim) in &edges.claims {
                // A signal of the host waits for its predecessor later. A claim that would bring
                // the predecessor may not be made yet, or be withdrawn. Both can still come.
                if of.port_on(self.device).is_some() {
                    add_missing(&mut missing, of, claim.above, Stage::Pending)?;
                }
            }
        }
        // If the queue itself has failed, it never gets more of the budget.
        let finished = number.saturating_sub(E::MAX_IN_FLIGHT);
        add_missing(&mut missing, self.own_shared(), finished, Stage::Reached)?;
        Ok(match missing.is_empty() {
            false => Some(Lack::Points(missing)),
            true => self.is_full().then_some(Lack::Budget),
        })
    }

    /// True if the budget shared with other queues is used up.
    #[inline]
    fn is_full(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.is_full())
    }
}

/// Adds a point to `missing` unless it has come to the stage that is needed.
///
/// # Errors
/// The cause if it will never come there.
fn add_missing(
    missing: &mut Missing,
    of: &Arc<Shared>,
    value: u64,
    needed: Stage,
) -> Result<(), Failure> {
    steps::count(1);
    match of.standing(value) {
        Standing::Failed(cause) => Err(cause),
        Standing::Cancelled => Err(of.cancelled(value).into_cause()),
        standing if needed.is_met(&standing) => Ok(()),
        _ => {
            let of = Some(of.clone());
            missing.push((KeptPoint { of, value }, needed));
            Ok(())
        }
    }
}
