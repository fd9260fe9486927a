//! X2, X5, X8: counters and memory that two devices share.

use syncline::backend::{Device as _, Queue as _};
use syncline::{
    BackendKind, Error, HandleKind, Info, Mechanism, QueueKind, SharedBuffer, WaitMode, connect,
    host, share,
};

use super::{DELAY, LONG_DELAY, WORDS};
use crate::case::{Case, Stop, Verdict, check};
use crate::user::{KeptPoint, Point};
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

/// The cases of this family; they need the devices of this project.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    vec![
        Case {
            id: "share.one_counter",
            rules: &["X2", "Q3"],
            run: one_counter,
        },
        Case {
            id: "share.says_how_and_why",
            rules: &["X5", "E5"],
            run: says_how,
        },
        Case {
            id: "share.host_sees_what_a_signal_covers",
            rules: &["Q9", "X2"],
            run: host_sees,
        },
        Case {
            id: "share.memory_travels_with_the_sync",
            rules: &["X8", "Q9"],
            run: memory,
        },
        Case {
            id: "share.memory_without_the_wait_is_wrong",
            rules: &["X8"],
            run: memory_without_wait,
        },
    ]
}

fn pair_only(world: &World<Equipped>) -> Verdict {
    if world.is_pair() {
        Ok(())
    } else {
        Stop::skip("it takes two devices")
    }
}

/// Signals from left, right and the host in turn: one counter, which each side sees in order.
fn one_counter(world: &World<Equipped>) -> Verdict {
    let link = connect(world.left.library(), world.right.library());
    for initial in [0, 5, 1 << 40] {
        let line = world.left.own(link.timeline_from("shared", initial)?);
        let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
        let mut last = initial;
        for _ in 0..10 {
            left.submit(&[line.at(last)], |_| Ok(()), &[line.signal_at(last + 1)])?;
            right.submit(
                &[line.at(last + 1)],
                |_| Ok(()),
                &[line.signal_at(last + 3)],
            )?;
            line.at(last + 3).wait(patience())?;
            check!(
                line.value()? == last + 3,
                "the value is {} instead of {}",
                line.value()?,
                last + 3
            );
            line.signal(last + 4)?;
            // Each side waits for the host's signal.
            left.submit(&[line.at(last + 4)], |_| Ok(()), &[])?
                .end()
                .wait(patience())?;
            right
                .submit(&[line.at(last + 4)], |_| Ok(()), &[])?
                .end()
                .wait(patience())?;
            last += 4;
        }
    }
    Ok(())
}

fn says_how(world: &World<Equipped>) -> Verdict {
    let link = connect(world.left.library(), world.right.library());
    check!(
        !link.why().is_empty(),
        "no reason is given for {}",
        link.mechanism()
    );
    let line = link.timeline("line")?;
    match share(world.left.library(), world.right.library()) {
        Ok(native) => {
            check!(
                native.mechanism() == link.mechanism(),
                "share and connect disagree"
            );
            let devices: Vec<_> = line.devices().collect();
            for side in [&world.left, &world.right] {
                check!(
                    devices.contains(&side.id()),
                    "{} has no port",
                    side.object()
                );
            }
            let gpu = world.left.info().same_gpu(world.right.info());
            check!(
                !world.is_pair() || gpu,
                "two GPUs share {}",
                native.mechanism()
            );
        }
        Err(Error::CannotShare {
            left,
            right,
            reason,
            ..
        }) => {
            check!(
                link.mechanism() == Mechanism::Engine,
                "refused, but linked by {}",
                link.mechanism()
            );
            check!(
                !could_share(world.left.info(), world.right.info()),
                "one GPU, which exports and imports timelines, is refused: {reason}"
            );
            let names = (&world.left.info().name, &world.right.info().name);
            check!(
                left.contains(names.0) && right.contains(names.1),
                "{left} and {right} are not the sides"
            );
            check!(
                reason == link.why(),
                "two reasons: {reason:?} and {:?}",
                link.why()
            );
        }
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

/// What devices tell of themselves is enough for a native timeline: one GPU, no partition, and one
/// API that exports what the other imports.
fn could_share(left: &Info, right: &Info) -> bool {
    let pass = |from: &Info, to: &Info| {
        from.backend == BackendKind::Vulkan
            && to.backend == BackendKind::Cuda
            && from
                .capabilities
                .exports
                .contains(&HandleKind::TimelineOpaqueFd)
            && to
                .capabilities
                .imports
                .contains(&HandleKind::TimelineOpaqueFd)
            && to.parent_uuid.is_none()
    };
    left.same_gpu(right) && (pass(left, right) || pass(right, left))
}

/// Either side writes memory that the host reads and signals a shared counter: once the host sees the
/// value, it sees the memory. (Counters travel another way than data, and can be faster.)
fn host_sees(world: &World<Equipped>) -> Verdict {
    const ROUNDS: u32 = 300;
    let link = connect(world.left.library(), world.right.library());
    let line = world.left.own(link.timeline("line")?);
    let sides = [
        (
            &world.left,
            world.left_queue("left")?,
            world.left.buffer(1)?,
        ),
        (
            &world.right,
            world.right_queue("right")?,
            world.right.buffer(1)?,
        ),
    ];
    for round in 1..=ROUNDS {
        let (_, queue, buffer) = &sides[round as usize % 2];
        let to = buffer.clone();
        let value = u64::from(round);
        queue.submit(
            &[],
            move |r| Equipped::fill(r, &to, round),
            &[line.signal_at(value)],
        )?;
        line.at(value).wait_with(WaitMode::Spin, patience())?;
        let seen = Equipped::read(buffer)[0];
        check!(
            seen == round,
            "the value is {round}, but the memory behind it still reads {seen}"
        );
    }
    Ok(())
}

/// The left side fills a shared buffer, the right side copies it to where the host reads it.
/// Returns the words, and the point at which the left side was done.
fn carry(
    world: &World<Equipped>,
    synchronized: bool,
) -> Result<(Vec<u32>, KeptPoint<Equipped>), Stop> {
    let link = connect(world.left.library(), world.right.library());
    let own = |label| Ok::<_, Stop>(world.left.own(link.timeline(label)?));
    let (produced, carried) = (own("produced")?, own("carried")?);
    let shared: SharedBuffer = link.buffer(WORDS as u64 * 4)?;
    check!(
        link.mechanism() == Mechanism::Engine || !shared.is_relayed(),
        "linked natively, but the memory is copied by the host"
    );
    let target = world.right.buffer(WORDS)?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let relay = host::Device::new().queue(QueueKind::Transfer, "relay")?;

    let delay = if synchronized { DELAY } else { LONG_DELAY };
    let (device, source) = (world.left.clone(), shared.left().clone());
    left.submit(
        &[],
        move |recorder| {
            device.busy(recorder, delay)?;
            fill(recorder, &source, 0xC0FFEE)
        },
        &[produced.signal_at(1)],
    )?;
    let wait = |point| {
        if synchronized { point } else { Point::EMPTY }
    };
    let mut ready = wait(produced.at(1));
    if shared.is_relayed() {
        let buffer = shared.clone();
        let work = move |recorder: &mut host::Recorder| {
            recorder.run(move || buffer.relay());
            Ok(())
        };
        relay.submit(&[ready.library()], work, &[carried.signal_at(1)])?;
        ready = wait(carried.at(1));
    }
    let (from, to) = (shared.right().clone(), target.clone());
    right
        .submit(&[ready], move |recorder| copy(recorder, &from, &to), &[])?
        .end()
        .wait(patience())?;
    let words = Equipped::read(&target);
    let end = produced.at(1).keep();
    end.point().wait(patience())?;
    relay.idle(patience())?;
    Ok((words, end))
}

/// As [`Subject::fill`], also for memory of another device that the host addresses.
fn fill(
    recorder: &mut syncline::Recorder<'_>,
    memory: &syncline::Memory,
    value: u32,
) -> syncline::Result<()> {
    use std::sync::atomic::Ordering::Relaxed;
    match (recorder, memory.words().is_some()) {
        (syncline::Recorder::Host(recorder), true) => {
            let memory = memory.clone();
            recorder.run(move || {
                memory
                    .words()
                    .unwrap_or_default()
                    .iter()
                    .for_each(|word| word.store(value, Relaxed));
            });
            Ok(())
        }
        (recorder, _) => Equipped::fill(recorder, memory, value),
    }
}

/// As [`Subject::copy`], also for memory of another device that the host addresses.
fn copy(
    recorder: &mut syncline::Recorder<'_>,
    from: &syncline::Memory,
    to: &syncline::Memory,
) -> syncline::Result<()> {
    use std::sync::atomic::Ordering::Relaxed;
    match recorder {
        syncline::Recorder::Host(recorder) => {
            let (from, to) = (from.clone(), to.clone());
            recorder.run(move || {
                let words = from.words().unwrap_or_default().iter();
                for (from, to) in words.zip(to.words().unwrap_or_default()) {
                    to.store(from.load(Relaxed), Relaxed);
                }
            });
            Ok(())
        }
        #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
        recorder => Equipped::copy(recorder, from, to),
    }
}

fn memory(world: &World<Equipped>) -> Verdict {
    let (words, _) = carry(world, true)?;
    let right = words.iter().filter(|&&word| word == 0xC0FFEE).count();
    check!(right == WORDS, "{right} of {WORDS} words arrived");
    Ok(())
}

/// The control of the case above.
fn memory_without_wait(world: &World<Equipped>) -> Verdict {
    pair_only(world)?;
    let (words, produced) = carry(world, false)?;
    check!(
        words.contains(&0),
        "nothing went wrong without a wait: this pair cannot show a missing one"
    );
    check!(produced.point().is_reached()?, "the producer never ended");
    Ok(())
}
