//! Scenarios of CUDA alone.

use syncline::backend::{Device as _, Queue as _};
use syncline::cuda::{Device, Driver};
use syncline::{BackendKind, Error, QueueKind};

use super::{PATIENCE, Scenario, Verdict, expect};
use crate::one_run::step;

pub(super) static SCENARIOS: &[Scenario] = &[Scenario {
    name: "cuda.submit",
    run: submit,
}];

/// Opens the first device, without the other backends of an inventory.
pub(super) fn open() -> Verdict<Device> {
    step("opening CUDA");
    let candidates = Driver::load()?.devices()?;
    let first = candidates.first().ok_or_else(|| Error::Unavailable {
        backend: BackendKind::Cuda,
        reason: "no device".into(),
    })?;
    Ok(first.open()?)
}

/// One queue, one timeline, memory, and a wait.
fn submit() -> Verdict {
    let device = open()?;
    step("set-up");
    let line = device.timeline("line")?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let buffer = device.host_buffer(64)?;
    step("submitting");
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| recorder.memset_d32(&to, 7),
        &[line.signal_at(1)],
    )?;
    step("waiting");
    line.at(1).wait(PATIENCE)?;
    expect(
        buffer.read_words()? == [7; 16],
        "the memset did not write 7",
    )?;
    queue.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
    expect(line.at(2).is_pending()?, "a submission is not pending")?;
    step("idle");
    queue.idle(PATIENCE)?;
    expect(line.value()? == 2, "the timeline is not at 2")?;
    device.check()?;
    step("dropping");
    Ok(())
}
