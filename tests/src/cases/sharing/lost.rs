//! E3: a device of this process is lost, while queues of the other device wait for it.

use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::{Error, Point, Queue, QueueKind, Recorder, info::BackendKind};

use super::super::devices::look;
use super::super::processes::lost::in_time;
use crate::case::{Stop, Verdict, check, end_process};
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

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
/// waits. The queues of the right device end their waits, but not those for a signal of the right
/// device that still comes. Timelines to which the left device owes nothing go on. Afterwards a
/// device can be opened, or there is a typed error.
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
    // This signal of the right device comes by itself, and later than the release.
    let later = right.queue(QueueKind::Compute, "later")?;
    let latch = world.right.subject().latch()?;
    let holds = latch.clone();
    let held = move |recorder: &mut Recorder<'_>| Equipped::block(recorder, &holds);
    let native = !later
        .submit(&[line.at(1)], held, &[line.signal_at(2)])?
        .is_held();
    let further = right.queue(QueueKind::Compute, "further")?;
    let end = further.submit(&[line.at(2)], |_| Ok(()), &[])?.end().keep();

    left.lose(&loss)?;
    let lost = Instant::now();
    let points = [line.at(1), behind.at(count), line.at(2)];
    let mut released = fails_and_is_released(world, &points, &queues, lost);
    // Without a native wait the work behind the failure does not run.
    if native {
        released = released.and_then(|()| stays(end.point()));
    }
    // Also after a failure, so that the process can end.
    Equipped::open(&latch)?;
    released?;
    for queue in [&later, &further] {
        queue.idle(patience())?;
    }

    // The right device and its timelines go on.
    let queue = &queues[0];
    queue.submit(&[paid.at(1)], |_| Ok(()), &[own.signal_at(1)])?;
    own.at(1).wait(patience())?;
    if paid.devices().next() == Some(right.id()) {
        queue.submit(&[], |_| Ok(()), &[paid.signal_at(2)])?;
        paid.at(2).wait(patience())?;
    }
    right.check()?;

    match (world.left.info().backend, look_again(world)) {
        (BackendKind::Vulkan, opened) => opened?,
        // After a fault the driver opens nothing in this process.
        (_, Err(Error::DeviceLost { code, .. } | Error::Native { code, .. })) if code != 0 => {}
        (_, other) => return Stop::fail(format!("opened again after a fault: {other:?}")),
    }
    Ok(())
}

/// The points fail because the left device is lost, and `queues` end their waits.
///
/// All of it has the one cause that the device itself reports.
fn fails_and_is_released(
    world: &World<Equipped>,
    points: &[Point<'_>],
    queues: &[Queue],
    lost: Instant,
) -> Verdict {
    let mut codes = Vec::new();
    for point in points {
        codes.push(native_code(point, point.wait(patience()))?);
    }
    in_time(lost)?;
    for queue in queues {
        queue.idle(patience())?;
    }
    in_time(lost)?;
    let left = world.left.library();
    for check in ["a check", "another check"] {
        codes.push(native_code(&check, left.check())?);
    }
    check!(
        codes.iter().all(|code| *code == codes[0]),
        "the causes are {codes:?}"
    );
    Ok(())
}

/// How long a wait that should not end is watched.
const WATCHED: Duration = Duration::from_millis(50);

/// The point is not reached, because its signal is behind work that stands still.
pub(crate) fn stays(point: Point<'_>) -> Verdict {
    match point.wait(WATCHED) {
        Err(Error::TimedOut { .. }) => Ok(()),
        other => Stop::fail(format!(
            "what waits for a signal that still comes was released, too: {other:?}"
        )),
    }
}

/// Returns the native code of a failure whose cause is a lost device.
pub(crate) fn native_code(
    asked: &dyn std::fmt::Debug,
    waited: syncline::Result<()>,
) -> Result<i64, Stop> {
    match waited.as_ref().map_err(Error::root) {
        Err(Error::DeviceLost { code, .. }) if *code != 0 => Ok(*code),
        other => Stop::fail(format!("{asked:?} of a lost device: {other:?}")),
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
