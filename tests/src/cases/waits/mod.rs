//! T4, T5, T6, T10: waits of host threads.

mod interrupted;
mod latency;
mod lists;
mod mixes;
mod models;
mod timeouts;
mod wakeups;

use std::time::Duration;

use syncline::{Claim, Error, WaitMode};

use crate::user::{Fence, Queue, Timeline, wait_all, wait_any};
use crate::{Case, Subject, World};

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let parts = [
        timeouts::cases(),
        interrupted::cases(),
        wakeups::cases(),
        latency::cases(),
        lists::cases(),
        mixes::cases(),
        models::cases(),
    ];
    parts.into_iter().flatten().collect()
}

/// A held submission, and everything of it that a thread can wait for.
pub(crate) struct Behind<S: Subject> {
    pub(crate) gate: Timeline<S>,
    pub(crate) line: Timeline<S>,
    pub(crate) queue: Queue<S>,
    fence: Fence<S>,
    /// A claim of the value after the submission's, if a driver signals the timeline.
    claim: Option<Claim>,
}

/// A wait and its name.
pub(crate) type Wait<'b> = (
    &'static str,
    Box<dyn Fn(Duration) -> syncline::Result<()> + Send + Sync + 'b>,
);

impl<S: Subject> Behind<S> {
    pub(crate) fn new(world: &World<S>) -> syncline::Result<Self> {
        let (gate, line) = (world.timeline("gate")?, world.timeline("line")?);
        let queue = world.right_queue("behind")?;
        let fence = world.right.fence("fence");
        queue.submit_empty(&[gate.at(1)], &[line.signal_at(1)])?;
        queue.record(&fence)?;
        let claim = match line.claim(2) {
            Ok(claim) => Some(claim),
            Err(Error::Unsupported { .. }) => None,
            Err(other) => return Err(other),
        };
        Ok(Self {
            gate,
            line,
            queue,
            fence,
            claim,
        })
    }

    /// Returns every kind of wait that parks.
    pub(crate) fn parking(&self) -> Vec<Wait<'_>> {
        let point = || self.line.at(1);
        let mut waits: Vec<Wait<'_>> = vec![
            (
                "Point::wait_with(Block)",
                Box::new(move |timeout| point().wait_with(WaitMode::Block, timeout)),
            ),
            (
                "Point::wait_with(Adaptive)",
                Box::new(move |timeout| point().wait_with(WaitMode::Adaptive, timeout)),
            ),
            (
                "wait_all",
                Box::new(move |timeout| wait_all(&[self.line.at(0), point()], timeout)),
            ),
            (
                "wait_any",
                Box::new(move |timeout| wait_any(&[point(), self.line.at(2)], timeout).map(|_| ())),
            ),
            (
                "Point::wait_pending",
                Box::new(move |timeout| point().wait_pending(timeout)),
            ),
            ("Fence::wait", Box::new(|timeout| self.fence.wait(timeout))),
            ("Queue::idle", Box::new(|timeout| self.queue.idle(timeout))),
            (
                "Queue::settle",
                Box::new(|timeout| self.queue.settle(timeout)),
            ),
        ];
        if let Some(claim) = &self.claim {
            waits.push((
                "Claim::wait_ready",
                Box::new(|timeout| claim.wait_ready(timeout)),
            ));
        }
        waits
    }

    /// Returns the wait that does not park.
    pub(crate) fn spinning(&self) -> Wait<'_> {
        let spin = |timeout| self.line.at(1).wait_with(WaitMode::Spin, timeout);
        ("Point::wait_with(Spin)", Box::new(spin))
    }
}
