//! Q1–Q3, Q6–Q9: submissions, waits before signals, and what a wait makes visible.

use std::time::Duration;

use super::DELAY;
use crate::user::{Queue, Signal};
use crate::{Case, Subject, World};

mod chains;
mod crowds;
mod early;
mod graphs;
mod held;
mod order;
mod released;

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let files = [
        order::cases(),
        early::cases(),
        held::cases(),
        released::cases(),
        chains::cases(),
        crowds::cases(),
        graphs::cases(),
    ];
    files.into_iter().flatten().collect()
}

/// Submits slow work that fills `buffer` to the left side, and signals `signal`.
pub(super) fn slow_fill<S: Subject>(
    world: &World<S>,
    queue: &Queue<S>,
    buffer: &S::Buffer,
    value: u32,
    signal: Signal<'_>,
) -> syncline::Result<()> {
    fill_after(DELAY, world, queue, buffer, value, signal)
}

pub(super) fn fill_after<S: Subject>(
    delay: Duration,
    world: &World<S>,
    queue: &Queue<S>,
    buffer: &S::Buffer,
    value: u32,
    signal: Signal<'_>,
) -> syncline::Result<()> {
    let (device, buffer) = (world.left.clone(), buffer.clone());
    queue.submit(
        &[],
        move |recorder| {
            device.busy(recorder, delay)?;
            S::fill(recorder, &buffer, value)
        },
        &[signal],
    )?;
    Ok(())
}
