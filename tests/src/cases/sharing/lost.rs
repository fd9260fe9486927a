//! E3: a device of this process is lost, while queues of the other device wait for it.

use std::time::Instant;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Error, QueueKind, info::BackendKind};

use super::super::devices::look;
use super::super::processes::lost::in_time;
use crate::case::{Stop, Verdict, end_process};
use crate::workload::Equipped;
use crate::{World, patience};

linked_cases! {
    "lost_with_its_signals_pending": [E2 E3 X2] or [E2 E3 Q3] => pending;
    "lost_with_many_queues_waiting": [E3 X2] or [E3 Q3] => many;
}

/// More queues than a CUDA device has hardware connections, so that their waits occupy all of them.
const MANY: u64 = 20;

fn pending(world: &World<Equipped>) -> Verdict {
    lose_the_left(world, 1)
}

fn many(world: &World<Equipped>) -> Verdict {
    lose_the_left(world, MANY)
}

/// The left device is lost while it owes signals that `count` queues of the right device wait for.
///
/// The timelines of those signals fail with the native code, and so do the signals behind the
/// waits. The queues of the right device end their waits. Timelines to which the left device owes
/// nothing go on. Afterwards a device can be opened, or there is a typed error.
fn lose_the_left(world: &World<Equipped>, count: u64) -> Verdict {
    let left = world.left.subject();
    if let Some(reason) = left.why_not_lost() {
        return Stop::skip(reason);
    }
    end_process();
    let link = super::linked(world.left.library(), world.right.library());
    let (line, paid) = (link.timeline("line")?, link.timeline("paid")?);
    let right = world.right.library();
    let own = right.timeline("own")?;
    let behind = right.timeline("behind")?;

    let losing = world.left.library().queue(QueueKind::Compute, "losing")?;
    losing.submit(&[], |_| Ok(()), &[paid.signal_at(1)])?;
    paid.at(1).wait(patience())?;
    let loss = left.loss()?;
    let (subject, blocks) = (left.clone(), loss.clone());
    losing.submit(
        &[],
        move |recorder| subject.block_until_lost(recorder, &blocks),
        &[line.signal_at(1)],
    )?;
    let mut queues = Vec::new();
    for value in 1..=count {
        let queue = right.queue(QueueKind::Compute, &format!("waiting {value}"))?;
        let after = line.at(1);
        queue.submit(&[after], |_| Ok(()), &[behind.signal_at(value)])?;
        queues.push(queue);
    }
    // Its own signal comes by itself. A release that goes too far would come before it.
    queues[0].submit(&[], |_| Ok(()), &[line.signal_at(2)])?;

    left.lose(&loss)?;
    let lost = Instant::now();
    native_code(line.at(1).wait(patience()))?;
    native_code(behind.at(count).wait(patience()))?;
    native_code(line.at(2).wait(patience()))?;
    in_time(lost)?;
    for queue in &queues {
        queue.idle(patience())?;
    }
    in_time(lost)?;

    // The right device and its timelines go on.
    let queue = &queues[0];
    queue.submit(&[paid.at(1)], |_| Ok(()), &[own.signal_at(1)])?;
    own.at(1).wait(patience())?;
    if paid.devices().next() == Some(right.id()) {
        queue.submit(&[], |_| Ok(()), &[paid.signal_at(2)])?;
        paid.at(2).wait(patience())?;
    }
    right.check()?;

    let asked = Instant::now();
    let opened = look_again(world);
    in_time(asked)?;
    match (world.left.info().backend, opened) {
        (BackendKind::Vulkan, opened) => opened?,
        // After a fault the driver opens nothing in this process.
        (_, Err(Error::DeviceLost { code, .. } | Error::Native { code, .. })) if code != 0 => {}
        (_, other) => return Stop::fail(format!("opened again after a fault: {other:?}")),
    }
    Ok(())
}

/// Checks that the wait fails because a device is lost, with the native code.
fn native_code(waited: syncline::Result<()>) -> Verdict {
    match waited.as_ref().map_err(Error::root) {
        Err(Error::DeviceLost { code, .. }) if *code != 0 => Ok(()),
        other => Stop::fail(format!("a wait for a lost device: {other:?}")),
    }
}

/// Opens the left device once more, and makes one submission.
fn look_again(world: &World<Equipped>) -> syncline::Result<()> {
    let inventory = look();
    let info = world.left.info();
    let same = |found: &&syncline::Found| {
        (found.info().backend, found.info().uuid) == (info.backend, info.uuid)
    };
    let found = inventory.devices().iter().find(same);
    let device = match found {
        Some(found) => found.open()?,
        None => inventory.select(info.backend.name())?.open()?,
    };
    let queue = device.queue(QueueKind::Compute, "again")?;
    queue.submit(&[], |_| Ok(()), &[])?;
    queue.idle(patience())
}
