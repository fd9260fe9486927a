//! M2–M5: the clocks of devices compared with the host's, and times on them.

use syncline::clock::{Estimate, HostClock, Sampled};
use syncline::{Error, QueueKind};

use crate::case::{Stop, Verdict, check};
use crate::user::{Clock, Device, Queue};
use crate::{Case, Subject, World, patience};

mod conversions;
mod order;
mod samples;
mod stamps;
mod synthetic;

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let files = [
        samples::cases(),
        stamps::cases(),
        order::cases(),
        synthetic::cases(),
        conversions::cases(),
    ];
    files.into_iter().flatten().collect()
}

/// Returns the sides whose queues write times on a clock.
pub(super) fn sides<S: Subject>(world: &World<S>) -> Result<Vec<&Device<S>>, Stop> {
    let mut sides = Vec::new();
    let mut refused = None;
    let both = [&world.left, &world.right];
    for side in both.into_iter().take(if world.is_pair() { 2 } else { 1 }) {
        match side.clocked_fence("asked for") {
            Ok(_) => sides.push(side),
            Err(Stop::Skipped(why)) => refused = Some(why),
            Err(failed) => return Err(failed),
        }
    }
    match refused {
        Some(why) if sides.is_empty() => Stop::skip(why),
        _ => Ok(sides),
    }
}

pub(super) fn queue<S: Subject>(device: &Device<S>) -> syncline::Result<Queue<S>> {
    device.queue(QueueKind::Compute, "clocked")
}

/// Takes a sample, and retries if the clock was silent.
///
/// A busy machine may delay a sample that must be submitted beyond its time limit.
pub(super) fn sampled<S: Subject>(clock: &Clock<S>) -> Result<Sampled, Stop> {
    let start = std::time::Instant::now();
    loop {
        match clock.sample() {
            Err(Error::ClockSilent { .. }) if start.elapsed() < patience() => {}
            Ok(sampled) => return Ok(sampled),
            Err(other) => return Err(other.into()),
        }
    }
}

/// The host's clock before an event and after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) from: i64,
    pub(super) to: i64,
}

impl Seen {
    /// Reads the host's clock before and after `what`.
    pub(super) fn around<T>(host: HostClock, what: impl FnOnce() -> T) -> (Self, T) {
        let from = host.now();
        let done = what();
        let to = host.now();
        (Self { from, to }, done)
    }

    /// Checks that the event may have happened at `estimate`, within its bound.
    pub(super) fn allows(self, what: &str, estimate: Estimate) -> Verdict {
        let Estimate { nanoseconds, error } = estimate;
        let latest = nanoseconds.saturating_add_unsigned(error);
        let earliest = nanoseconds.saturating_sub_unsigned(error);
        check!(
            latest >= self.from && earliest <= self.to,
            "{what} is said to be {} ns after the host saw that it had not come, and {} ns before it was there, with an error \
             of {error} ns",
            nanoseconds.saturating_sub(self.from),
            self.to.saturating_sub(nanoseconds)
        );
        Ok(())
    }
}
