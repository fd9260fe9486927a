//! E3: a device of this process is lost, while queues of the other device wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::process::Endpoint;
use syncline::{
    Device, Error, Mechanism, Point, Queue, QueueKind, Recorder, Signal, info::BackendKind,
};

use super::super::devices::look;
use super::super::processes::lost::in_time;
use super::super::until;
use crate::case::{Stop, Verdict, check, check_eq, end_process};
use crate::workload::{Equipped, Loss};
use crate::{Subject as _, World, patience};

linked_cases! {
    "lost_with_its_signals_pending": [E2 E3 X2] or [E2 E3 Q3] => pending;
    "lost_with_many_queues_waiting": [E3 X2] or [E3 Q3] => many;
    "lost_with_work_held": [E3 E2 Q4] or [E3 E2 Q4] => held;
    "lost_after_a_chain": [E1 E3 X2] or [E1 E3 Q3] => chain;
}

/// Skips the case if it cannot lose the device. The process ends with the case otherwise.
pub(crate) fn can_be_lost(device: &Equipped) -> Verdict {
    if let Some(reason) = device.why_not_lost() {
        return Stop::skip(reason);
    }
    end_process();
    Ok(())
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
    can_be_lost(left)?;
    let link = super::linked(world.left.library(), world.right.library());
    let (line, paid) = (link.timeline("line")?, link.timeline("paid")?);
    let right = world.right.library();
    let own = right.timeline("own")?;
    let behind = right.timeline("behind")?;

    let losing = world.left.library().queue(QueueKind::Compute, "losing")?;
    losing.submit(&[], |_| Ok(()), &[paid.signal_at(1)])?;
    paid.at(1).wait(patience())?;
    let loss = block_until_lost(world, &losing, &[line.signal_at(1)])?;
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

/// Submits work that blocks until the left device is lost, and then signals.
fn block_until_lost(
    world: &World<Equipped>,
    losing: &Queue,
    signals: &[Signal<'_>],
) -> Result<Loss, Stop> {
    let subject = world.left.subject().clone();
    let loss = subject.loss()?;
    let blocks = loss.clone();
    let work = move |recorder: &mut Recorder<'_>| subject.block_until_lost(recorder, &blocks);
    losing.submit(&[], work, signals)?;
    Ok(loss)
}

/// The left device is lost while it holds submissions and has nothing pending that is awaited.
///
/// What it holds fails, and what waits for that. The timeline that the held work waits for goes on.
/// The time-out of a wait that has nothing to do with it names the device, also of one for a peer.
fn held(world: &World<Equipped>) -> Verdict {
    let left = world.left.subject();
    can_be_lost(left)?;
    let link = super::linked(world.left.library(), world.right.library());
    let right = world.right.library();
    let (gate, own) = (right.timeline("gate")?, right.timeline("own")?);
    let behind = right.timeline("behind")?;
    let shared = link.timeline("shared")?;

    let holding = world.left.library().queue(QueueKind::Compute, "holding")?;
    let first = holding.submit(&[gate.at(2)], |_| Ok(()), &[own.signal_at(1)])?;
    check!(first.is_held(), "a wait without a signal is not held");
    holding.submit(&[], |_| Ok(()), &[shared.signal_at(1)])?;
    let waiting = right.queue(QueueKind::Compute, "waiting")?;
    let waited = [own.at(1), shared.at(1)];
    waiting.submit(&waited, |_| Ok(()), &[behind.signal_at(1)])?;

    let losing = world.left.library().queue(QueueKind::Compute, "losing")?;
    let loss = block_until_lost(world, &losing, &[])?;
    left.lose(&loss)?;
    let lost = Instant::now();
    let points = [own.at(1), shared.at(1), behind.at(1)];
    fails_and_is_released(world, &points, &[waiting], lost)?;
    let ended = first.wait_submitted(patience());
    native_code(&first, ended.clone())?;
    // The application knows the device, and not the engine's streams.
    let named = format!("{} is lost", world.left.library().object());
    let cause = ended.map_err(|error| error.root().to_string());
    let is_named = |cause: &String| cause.contains(&named);
    check!(cause.as_ref().is_err_and(is_named), "{named:?} {cause:?}");

    gate.signal(1)?;
    let told = gate.at(2).wait(Duration::ZERO);
    let Err(told @ Error::TimedOut { .. }) = told else {
        return Stop::fail(format!("the wait has no signal: {told:?}"));
    };
    check!(told.to_string().contains(&named), "no {named:?} in: {told}");
    // A peer that sends nothing may wait for the device, too.
    let (near, far) = Endpoint::pair()?;
    let peer = thread::spawn(move || Endpoint::open(far, "far", patience()));
    let near = Endpoint::open(near, "near", patience()).map_err(Error::from)?;
    // A poll asks no driver.
    for (timeout, names) in [(Duration::from_millis(1), true), (Duration::ZERO, false)] {
        let told = near.receive_point(timeout);
        let Err(told @ Error::PeerSilent { .. }) = told else {
            return Stop::fail(format!("the peer has sent nothing: {told:?}"));
        };
        check_eq!(told.to_string().contains(&named), names, "{timeout:?}");
    }
    drop((near, peer.join()));
    gate.signal(2)?;
    let further = right.queue(QueueKind::Compute, "further")?;
    further.submit(&[gate.at(2)], |_| Ok(()), &[gate.signal_at(3)])?;
    gate.at(3).wait(patience())?;
    Ok(())
}

/// The number of values before the one that is never reached.
const CHAIN: u64 = 19;

/// Both devices signal by turns, and then a kernel of the left device faults. No call asks for a
/// value before the loss is known, and where the two share natively, no thread of the engine does.
///
/// The kernel has waited for the value of the right device, so that value stays reached.
fn chain(world: &World<Equipped>) -> Verdict {
    let left = world.left.subject();
    if world.left.info().backend != BackendKind::Cuda {
        return Stop::skip("only a CUDA device is lost by its work");
    }
    can_be_lost(left)?;
    let (library, right) = (world.left.library(), world.right.library());
    let link = super::linked(library, right);
    let line = link.timeline("line")?;
    let ours = library.queue(QueueKind::Compute, "ours")?;
    let theirs = right.queue(QueueKind::Compute, "theirs")?;
    let busy = [(); 2].map(|()| Busy::default());
    // Without native sharing the watching threads carry the signals.
    if link.mechanism() != Mechanism::Engine {
        busy[0].begin(library, right)?;
        busy[1].begin(right, library)?;
    }
    for value in 1..=CHAIN {
        // The right device signals the odd values, and so the last one.
        let queue = if value % 2 == 0 { &ours } else { &theirs };
        queue.submit(&[line.at(value - 1)], |_| Ok(()), &[line.signal_at(value)])?;
    }
    let subject = left.clone();
    let fault = move |recorder: &mut Recorder<'_>| subject.fault(recorder);
    ours.submit(&[line.at(CHAIN)], fault, &[line.signal_at(CHAIN + 1)])?;
    until(|| Ok(library.check().is_err()))?;
    line.at(CHAIN).wait(Duration::ZERO)?;
    drop(busy);
    native_code(&line, line.at(CHAIN + 1).wait(patience()))?;
    line.at(CHAIN).wait(Duration::ZERO)?;
    Ok(())
}

/// Keeps the watching thread of a device busy, as on a loaded machine, until it is dropped.
#[derive(Default)]
struct Busy(Arc<(AtomicBool, AtomicBool)>);

impl Busy {
    /// Returns once the watching thread of `device` runs work of a queue of `other`.
    fn begin(&self, device: &Device, other: &Device) -> Verdict {
        let own = device.timeline("own of the watching thread")?;
        let queue = other.queue(QueueKind::Compute, "on the watching thread")?;
        let flags = self.0.clone();
        let work = move |_: &mut Recorder<'_>| {
            flags.0.store(true, Ordering::SeqCst);
            while !flags.1.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        };
        let held = queue.submit(&[own.at(1)], work, &[])?;
        check!(held.is_held(), "a wait without a port is not held");
        let signalling = device.queue(QueueKind::Compute, "signalling")?;
        signalling.submit(&[], |_| Ok(()), &[own.signal_at(1)])?;
        until(|| Ok(self.0.0.load(Ordering::SeqCst)))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.1.store(true, Ordering::SeqCst);
    }
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
    check!(codes.iter().all(|code| *code == codes[0]), "{codes:?}");
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
