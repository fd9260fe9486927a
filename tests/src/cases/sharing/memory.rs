//! X8, Q9, Q7: memory that two devices share, along with its synchronization.

use std::sync::atomic::Ordering;

use syncline::{Error, Mechanism, SharedBuffer, WaitMode, handle::HandleKind};

use super::super::{DELAY, LONG_DELAY, WORDS, shows};
use super::bridge::{Relay, copy, fill};
use crate::case::{Stop, Verdict, check, check_error};
use crate::user::Device;
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

linked_cases! {
    "host_sees_what_a_signal_covers": [Q9 X2] or [Q9 Q3] => host_sees;
    "memory_travels_with_the_sync": [X8 Q9] or [Q9 Q3] => memory;
    "memory_without_the_wait_is_wrong": [X8] or [Q9] => memory_without_wait;
    "last_signal_covers_all_earlier_work": [Q7 X2 X8] or [Q7 Q3] => last_covers;
    "data_back_and_forth": [X8 Q9] or [Q9 Q3] => back_and_forth;
    "memory_on_every_kind_of_queue": [X8 Q9] or [Q9 Q3] => every_kind;
    "buffers_of_many_sizes": [X8 E5] or [Q9 E5] => sizes;
}

/// Either side writes memory that the host reads, and signals a shared counter.
///
/// Once the host sees the value, it sees the memory. Counters can be faster than data, because they
/// take another way.
fn host_sees(world: &World<Equipped>) -> Verdict {
    const ROUNDS: u32 = 300;
    let link = super::linked(world.left.library(), world.right.library());
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

/// The left side fills a shared buffer, and the right side copies it to memory of the host.
///
/// Returns what the host reads once both sides are done.
fn carry(world: &World<Equipped>, synchronized: bool) -> Result<Vec<u32>, Stop> {
    let link = super::linked(world.left.library(), world.right.library());
    let own = |label| Ok::<_, Stop>(world.left.own(link.timeline(label)?));
    let (produced, carried) = (own("produced")?, own("carried")?);
    let shared: SharedBuffer = link.buffer_or_relay(WORDS as u64 * 4)?;
    let kind = &HandleKind::MemoryOpaqueFd;
    let can = |side: &Device<Equipped>| side.info().capabilities.clone();
    let (ours, theirs) = (can(&world.left), can(&world.right));
    let same = world.left.info().same_gpu(world.right.info());
    let one_way = ours.exports.contains(kind) && theirs.imports.contains(kind);
    let passes = same && (one_way || theirs.exports.contains(kind) && ours.imports.contains(kind));
    check!(
        link.mechanism() == Mechanism::Engine || !passes || !shared.is_relayed(),
        "linked natively, but the memory is copied by the host"
    );
    // A program that does not copy learns that it would have to.
    match link.buffer(4) {
        Ok(one) => check!(!one.is_relayed(), "one buffer is two"),
        Err(Error::CannotShare { what: "memory", .. }) if shared.is_relayed() => {}
        Err(error) => return Err(error.into()),
    }
    let target = world.right.buffer(WORDS)?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let relay = Relay::new()?;

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
        if synchronized {
            point
        } else {
            world.left.empty_point()
        }
    };
    let ready = relay.bring(
        std::slice::from_ref(&shared),
        wait(produced.at(1)),
        &carried,
    )?;
    let ready = wait(ready);
    let (from, to) = (shared.right().clone(), target.clone());
    right
        .submit(&[ready], move |recorder| copy(recorder, &from, &to), &[])?
        .end()
        .wait(patience())?;
    let words = Equipped::read(&target);
    produced.at(1).wait(patience())?;
    relay.idle()?;
    Ok(words)
}

fn memory(world: &World<Equipped>) -> Verdict {
    let words = carry(world, true)?;
    let right = words.iter().filter(|&&word| word == 0xC0FFEE).count();
    check!(right == WORDS, "{right} of {WORDS} words arrived");
    Ok(())
}

/// The control of the case above.
fn memory_without_wait(world: &World<Equipped>) -> Verdict {
    shows(
        || Ok(carry(world, false)?.contains(&0)),
        "nothing went wrong without a wait: this pair cannot show a missing one",
    )
}

/// The left side writes many buffers from two queues, each with its own signal.
///
/// The right side waits for the last signal only.
fn last_covers(world: &World<Equipped>) -> Verdict {
    const BUFFERS: u32 = 16;
    let link = super::linked(world.left.library(), world.right.library());
    let own = |label| Ok::<_, Stop>(world.left.own(link.timeline(label)?));
    let (line, carried) = (own("line")?, own("carried")?);
    let lefts = [world.left_queue("left 0")?, world.left_queue("left 1")?];
    let (right, relay) = (world.right_queue("right")?, Relay::new()?);
    let mut buffers: Vec<SharedBuffer> = Vec::new();
    for nth in 0..BUFFERS {
        buffers.push(link.buffer_or_relay(WORDS as u64 * 4)?);
        let to = buffers[nth as usize].left().clone();
        let device = world.left.clone();
        // Earlier work is longer: only the order of the signals makes the last one wait.
        let delay = DELAY / (1 + nth);
        lefts[nth as usize % 2].submit(
            &[],
            move |recorder| {
                device.busy(recorder, delay)?;
                fill(recorder, &to, nth + 1)
            },
            &[line.signal_at(u64::from(nth) + 1)],
        )?;
    }
    let ready = relay.bring(&buffers, line.at(u64::from(BUFFERS)), &carried)?;
    let mut targets = Vec::new();
    for buffer in &buffers {
        let target = world.right.buffer(WORDS)?;
        let (from, to) = (buffer.right().clone(), target.clone());
        // Only the first submission waits.
        let waits = if targets.is_empty() {
            vec![ready]
        } else {
            Vec::new()
        };
        right.submit(&waits, move |recorder| copy(recorder, &from, &to), &[])?;
        targets.push(target);
    }
    right.idle(patience())?;
    relay.idle()?;
    for (nth, target) in (1..).zip(&targets) {
        let words = Equipped::read(target);
        let wrong = words.iter().filter(|&&word| word != nth).count();
        check!(
            wrong == 0,
            "{wrong} words of buffer {nth} are not there after the last signal"
        );
    }
    Ok(())
}

/// Both sides use one buffer and one counter in turn. Each changes the other's result.
///
/// All work is submitted before the host reads. In every other round the waiting side is first.
fn back_and_forth(world: &World<Equipped>) -> Verdict {
    const ROUNDS: u64 = 50;
    let link = super::linked(world.left.library(), world.right.library());
    let line = world.left.own(link.timeline("line")?);
    let shared = link.buffer_or_relay(64)?;
    if shared.is_relayed() {
        return Stop::skip("the two have no memory in common");
    }
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let mut seen = Vec::new();
    for round in 0..ROUNDS {
        let (ours, theirs) = (world.left.buffer(16)?, world.right.buffer(16)?);
        let base = 3 * round;
        let word = base as u32;
        let write = || {
            let to = shared.left().clone();
            left.submit(
                &[],
                move |recorder| fill(recorder, &to, word + 1),
                &[line.signal_at(base + 1)],
            )
            .map(drop)
        };
        let change = || {
            let (memory, to) = (shared.right().clone(), theirs.clone());
            right
                .submit(
                    &[line.at(base + 1)],
                    move |recorder| {
                        copy(recorder, &memory, &to)?;
                        fill(recorder, &memory, word + 2)
                    },
                    &[line.signal_at(base + 2)],
                )
                .map(drop)
        };
        if round % 2 == 0 {
            write()?;
            change()?;
        } else {
            change()?;
            write()?;
        }
        let (memory, to) = (shared.left().clone(), ours.clone());
        left.submit(
            &[line.at(base + 2)],
            move |recorder| copy(recorder, &memory, &to),
            &[line.signal_at(base + 3)],
        )?;
        seen.push((word, ours, theirs));
    }
    line.at(3 * ROUNDS).wait(patience())?;
    for (word, ours, theirs) in &seen {
        for (memory, expected, side) in [(theirs, word + 1, "right"), (ours, word + 2, "left")] {
            let words = Equipped::read(memory);
            check!(
                words.iter().all(|&found| found == expected),
                "the {side} side found {words:?} instead of {expected}"
            );
        }
    }
    left.idle(patience())?;
    right.idle(patience())?;
    Ok(())
}

/// Each side's queues of each kind in turn read the other side's data, and write new data.
fn every_kind(world: &World<Equipped>) -> Verdict {
    let link = super::linked(world.left.library(), world.right.library());
    let shared = link.buffer_or_relay(WORDS as u64 * 4)?;
    if shared.is_relayed() {
        return Stop::skip("the two have no memory in common");
    }
    let line = world.left.own(link.timeline("line")?);
    let sides = [
        (&world.left, shared.left(), &world.right, shared.right()),
        (&world.right, shared.right(), &world.left, shared.left()),
    ];
    let mut last = 0;
    for (side, memory, other, theirs) in sides {
        for family in &side.info().capabilities.queues {
            let queue = side.queue(family.kind, family.kind.name())?;
            let back = other.queue(syncline::QueueKind::Compute, "other")?;
            let (ours, seen) = (side.buffer(WORDS)?, other.buffer(WORDS)?);
            let word = last as u32 + 1;
            let (device, to) = (other.clone(), theirs.clone());
            back.submit(
                &[line.at(last)],
                move |recorder| {
                    device.busy(recorder, DELAY / 3)?;
                    fill(recorder, &to, word)
                },
                &[line.signal_at(last + 1)],
            )?;
            let (from, to) = (memory.clone(), ours.clone());
            queue.submit(
                &[line.at(last + 1)],
                move |recorder| {
                    copy(recorder, &from, &to)?;
                    fill(recorder, &from, word + 1)
                },
                &[line.signal_at(last + 2)],
            )?;
            let (from, to) = (theirs.clone(), seen.clone());
            back.submit(
                &[line.at(last + 2)],
                move |recorder| copy(recorder, &from, &to),
                &[line.signal_at(last + 3)],
            )?;
            last += 3;
            line.at(last).wait(patience())?;
            for (found, expected) in [(&ours, word), (&seen, word + 1)] {
                let words = Equipped::read(found);
                let wrong = words.iter().filter(|&&found| found != expected).count();
                check!(
                    wrong == 0,
                    "{wrong} words are wrong with a {} queue of {}",
                    family.kind,
                    side.object()
                );
            }
            queue.idle(patience())?;
            back.idle(patience())?;
        }
    }
    Ok(())
}

/// Sizes from one word up, and sizes that are refused.
fn sizes(world: &World<Equipped>) -> Verdict {
    let link = super::linked(world.left.library(), world.right.library());
    let relay = Relay::new()?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for bytes in [0, 1, 6] {
        check_error!(
            link.buffer_or_relay(bytes),
            Error::Unsupported { asked, .. } if asked.contains(&bytes.to_string())
        );
    }
    // Worker threads that write a large buffer word by word need a long time.
    let largest = match link.mechanism() {
        Mechanism::ExternalTimeline => 16 << 20,
        _ => 1 << 20,
    };
    for bytes in [4, 8, 252, 4092, 4096, 4100, (64 << 10) + 4, largest] {
        let own = |label| Ok::<_, Stop>(world.left.own(link.timeline(label)?));
        let (line, carried) = (own("line")?, own("carried")?);
        let shared = link.buffer_or_relay(bytes)?;
        check!(
            shared.size() == bytes,
            "{bytes} bytes became {}",
            shared.size()
        );
        let count = bytes as usize / 4;
        let target = world.right.buffer(count)?;
        let source = shared.left().clone();
        left.submit(
            &[],
            move |recorder| fill(recorder, &source, bytes as u32),
            &[line.signal_at(1)],
        )?;
        let ready = relay.bring(std::slice::from_ref(&shared), line.at(1), &carried)?;
        let (from, to) = (shared.right().clone(), target.clone());
        right.submit(&[ready], move |recorder| copy(recorder, &from, &to), &[])?;
        right.idle(patience())?;
        relay.idle()?;
        let words = target.words().unwrap_or_default();
        check!(
            words.len() == count,
            "{} words instead of {count}",
            words.len()
        );
        for index in [0, count / 2, count - 1] {
            let word = words[index].load(Ordering::Relaxed);
            check!(
                u64::from(word) == bytes,
                "of {bytes} bytes, word {index} is {word}"
            );
        }
    }
    left.idle(patience())?;
    Ok(())
}
