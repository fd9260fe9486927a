//! F1–F6: fences. Every backend gives them the semantics of CUDA events.

use std::time::Duration;

use crate::user::Queue;
use crate::{Case, Subject, World};

mod elapsed;
mod lifetime;
mod order;
mod queries;
mod records;

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let files = [
        queries::cases(),
        records::cases(),
        order::cases(),
        lifetime::cases(),
        elapsed::cases(),
    ];
    files.into_iter().flatten().collect()
}

/// Keeps the left queue busy.
pub(super) fn busy<S: Subject>(
    world: &World<S>,
    queue: &Queue<S>,
    time: Duration,
) -> syncline::Result<()> {
    let device = world.left.clone();
    queue
        .submit(&[], move |recorder| device.busy(recorder, time), &[])
        .map(|_| ())
}
