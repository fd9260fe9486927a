//! Queues that are held up on their device, so that nothing ends while it is measured how it is submitted.

use syncline::backend::Queue as _;
use syncline::{Queue, Recorder};
use syncline_conformance::Subject;
use syncline_conformance::workload::Equipped;

use crate::lab::Outcome;

/// What a queue stands still before, until [`Subject::open`] opens it.
pub(super) type Latch = <Equipped as Subject>::Latch;

/// Holds `queue` up from here on.
pub(super) fn close(equipped: &Equipped, queue: &Queue) -> Outcome<Latch> {
    let latch = equipped.latch()?;
    let before = latch.clone();
    queue.submit(
        &[],
        move |recorder: &mut Recorder<'_>| Equipped::block(recorder, &before),
        &[],
    )?;
    Ok(latch)
}
