//! Whether a submission can go to the driver, and why not.

use std::sync::Arc;

use smallvec::SmallVec;

use super::submission::Submission;
use super::submission_queue::SubmissionQueue;
use crate::base::error::Failure;
use crate::base::stage::Stage;
use crate::base::steps;
use crate::driver::enqueue::Enqueue;
use crate::held::Edges;
use crate::timeline::point::KeptPoint;
use crate::timeline::state::{Shared, Standing};

/// What a submission lacks, in the order of its waits. Never empty in an obstacle.
pub(super) type Missing = SmallVec<[(KeptPoint, Stage); 2]>;

/// Why a held submission cannot go to the driver.
pub(super) enum Obstacle {
    /// It could, but the shared budget is used up.
    Full,
    /// It lacks something. The queue registers for all of it, because one that fails skips the
    /// submission.
    Blocked(Missing),
    /// It never can, because a timeline that it waits for has failed.
    Skip(Failure),
}

impl<E: Enqueue> SubmissionQueue<E> {
    /// True if a submission is known to be able to go to the driver. Takes no lock.
    ///
    /// May miss what has just come, or is pending on a closed timeline; see
    /// [`Submission::look_again`].
    #[inline]
    pub(super) fn can_go(&self, submission: &Submission<'_>) -> bool {
        let number = submission.number;
        let is_within = self.checks().allows(number)
            || self.own_shared().reached() >= number.saturating_sub(E::MAX_IN_FLIGHT);
        submission.is_ready && is_within && !self.is_full()
    }

    /// Why a held submission cannot go to the driver. `None` if it can.
    ///
    /// Makes no driver call and wakes nothing.
    pub(super) fn judge(&self, number: u64, edges: Option<&Edges>) -> Option<Obstacle> {
        self.find_missing(number, edges)
            .unwrap_or_else(|cause| Some(Obstacle::Skip(cause)))
    }

    /// Same as [`SubmissionQueue::judge`], with the cause as the error if it never can go.
    fn find_missing(
        &self,
        number: u64,
        edges: Option<&Edges>,
    ) -> Result<Option<Obstacle>, Failure> {
        if let Some(cause) = self.loss() {
            return Err(cause.clone());
        }
        let mut missing = Missing::new();
        if let Some(edges) = edges {
            for (of, value) in &edges.waits {
                let port = of.port_on(self.device());
                let needed = port.map_or(Stage::Reached, |_| Stage::Pending);
                add_missing(&mut missing, of, *value, needed)?;
            }
            for (of, claim) in &edges.claims {
                // A signal of the host waits for its predecessor later. A claim that would bring
                // the predecessor may not be made yet, or be withdrawn. Both can still come.
                if of.port_on(self.device()).is_some() {
                    add_missing(&mut missing, of, claim.above, Stage::Pending)?;
                }
            }
        }
        // If the queue itself has failed, it never gets more of the budget.
        let finished = number.saturating_sub(E::MAX_IN_FLIGHT);
        add_missing(&mut missing, self.own_shared(), finished, Stage::Reached)?;
        Ok(match missing.is_empty() {
            false => Some(Obstacle::Blocked(missing)),
            true => self.is_full().then_some(Obstacle::Full),
        })
    }

    /// True if the budget shared with other queues is used up.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.budget().is_some_and(|budget| budget.is_full())
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
