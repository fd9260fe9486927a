//! X8, Q9, Q7: memory that two devices share, along with its synchronization.

use std::slice::from_ref;

use syncline::{Error, Mechanism, Recorder, WaitMode, handle::HandleKind};

use super::super::{DELAY, LONG_DELAY, WORDS, filled, shows};
use super::Pair;
use super::bridge::{Relay, copy, copying, fill, filling};
use crate::case::{Verdict, check, check_eq, check_error};
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
    let pair = Pair::of(world)?;
    let line = pair.line("line")?;
    let buffers = [world.left.buffer(1)?, world.right.buffer(1)?];
    for round in 1..=ROUNDS {
        let side = round as usize % 2;
        let (value, buffer) = (u64::from(round), &buffers[side]);
        pair.queues[side].fill(&[], buffer, round, &[line.signal_at(value)])?;
        line.at(value).wait_with(WaitMode::Spin, patience())?;
        check_eq!(Equipped::read(buffer)[0], round);
    }
    Ok(())
}

/// The left side fills a shared buffer, and the right side copies it to memory of the host.
///
/// Returns what the host reads once both sides are done.
fn carry(world: &World<Equipped>, synchronized: bool) -> Result<Vec<u32>, crate::Stop> {
    let pair = Pair::of(world)?;
    let (produced, carried) = (pair.line("produced")?, pair.line("carried")?);
    let shared = pair.link.buffer_or_relay(WORDS as u64 * 4)?;
    let kind = &HandleKind::MemoryOpaqueFd;
    let passes = |from: &Device<Equipped>, to: &Device<Equipped>| {
        let (from, to) = (&from.info().capabilities, &to.info().capabilities);
        from.exports.contains(kind) && to.imports.contains(kind)
    };
    let passes = passes(&world.left, &world.right) || passes(&world.right, &world.left);
    let is_one = passes && world.left.info().same_gpu(world.right.info());
    check!(pair.link.mechanism() == Mechanism::Engine || !is_one || !shared.is_relayed());
    // A program that does not copy learns that it would have to.
    match pair.link.buffer(4) {
        Ok(one) => check!(!one.is_relayed()),
        Err(Error::CannotShare { what: "memory", .. }) if shared.is_relayed() => {}
        Err(error) => return Err(error.into()),
    }
    let target = world.right.buffer(WORDS)?;
    let relay = Relay::new()?;

    let delay = if synchronized { DELAY } else { LONG_DELAY };
    let (device, source) = (world.left.clone(), shared.left().clone());
    let work = move |recorder: &mut Recorder<'_>| {
        device.busy(recorder, delay)?;
        fill(recorder, &source, 0xC0FFEE)
    };
    pair.queues[0].submit(&[], work, &[produced.signal_at(1)])?;
    let wait = |point| {
        if synchronized {
            point
        } else {
            world.left.empty_point()
        }
    };
    let ready = relay.bring(from_ref(&shared), wait(produced.at(1)), &carried)?;
    let copies = copying(shared.right(), &target);
    pair.queues[1].submit(&[wait(ready)], copies, &[])?;
    pair.queues[1].idle(patience())?;
    let words = Equipped::read(&target);
    produced.at(1).wait(patience())?;
    relay.idle()?;
    Ok(words)
}

fn memory(world: &World<Equipped>) -> Verdict {
    let words = carry(world, true)?;
    check!(words.iter().all(|&word| word == 0xC0FFEE));
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
    let pair = Pair::of(world)?;
    let (line, carried) = (pair.line("line")?, pair.line("carried")?);
    let lefts = [world.left_queue("left 0")?, world.left_queue("left 1")?];
    let (right, relay) = (&pair.queues[1], Relay::new()?);
    let mut buffers = Vec::new();
    for nth in 1..=BUFFERS {
        let shared = pair.link.buffer_or_relay(WORDS as u64 * 4)?;
        let (device, to) = (world.left.clone(), shared.left().clone());
        // Earlier work is longer: only the order of the signals makes the last one wait.
        let work = move |recorder: &mut Recorder<'_>| {
            device.busy(recorder, DELAY / nth)?;
            fill(recorder, &to, nth)
        };
        lefts[nth as usize % 2].submit(&[], work, &[line.signal_at(nth.into())])?;
        buffers.push(shared);
    }
    let ready = relay.bring(&buffers, line.at(BUFFERS.into()), &carried)?;
    let mut targets = Vec::new();
    for buffer in &buffers {
        let target = world.right.buffer(WORDS)?;
        // Only the first submission waits.
        let waits = if targets.is_empty() {
            &[ready][..]
        } else {
            &[]
        };
        right.submit(waits, copying(buffer.right(), &target), &[])?;
        targets.push(target);
    }
    right.idle(patience())?;
    relay.idle()?;
    for (nth, target) in (1..).zip(&targets) {
        filled::<Equipped>(target, nth, "a buffer after the last signal")?;
    }
    Ok(())
}

/// Both sides use one buffer and one counter in turn. Each changes the other's result.
///
/// All work is submitted before the host reads. In every other round the waiting side is first.
fn back_and_forth(world: &World<Equipped>) -> Verdict {
    const ROUNDS: u32 = 50;
    let pair = Pair::of(world)?;
    let line = pair.line("line")?;
    let shared = pair.one_buffer(64)?;
    let [left, right] = &pair.queues;
    let mut seen = Vec::new();
    for round in 0..ROUNDS {
        let (ours, theirs) = (world.left.buffer(16)?, world.right.buffer(16)?);
        let word = 3 * round;
        let at = |step: u32| line.at((word + step).into());
        let signal = |step: u32| line.signal_at((word + step).into());
        let write = || left.submit(&[], filling(shared.left(), word + 1), &[signal(1)]);
        let (memory, to) = (shared.right().clone(), theirs.clone());
        let change = move |recorder: &mut Recorder<'_>| {
            copy(recorder, &memory, &to)?;
            fill(recorder, &memory, word + 2)
        };
        if round % 2 == 0 {
            write()?;
        }
        right.submit(&[at(1)], change, &[signal(2)])?;
        if round % 2 == 1 {
            write()?;
        }
        left.submit(&[at(2)], copying(shared.left(), &ours), &[signal(3)])?;
        seen.push((word, ours, theirs));
    }
    line.at(u64::from(3 * ROUNDS)).wait(patience())?;
    for (word, ours, theirs) in &seen {
        filled::<Equipped>(theirs, word + 1, "the right side's copy")?;
        filled::<Equipped>(ours, word + 2, "the left side's copy")?;
    }
    pair.idle()
}

/// Each side's queues of each kind in turn read the other side's data, and write new data.
fn every_kind(world: &World<Equipped>) -> Verdict {
    let pair = Pair::of(world)?;
    let shared = pair.one_buffer(WORDS as u64 * 4)?;
    let line = pair.line("line")?;
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
            let writes = move |recorder: &mut Recorder<'_>| {
                device.busy(recorder, DELAY / 3)?;
                fill(recorder, &to, word)
            };
            let (from, to) = (memory.clone(), ours.clone());
            let changes = move |recorder: &mut Recorder<'_>| {
                copy(recorder, &from, &to)?;
                fill(recorder, &from, word + 1)
            };
            back.submit(&[line.at(last)], writes, &[line.signal_at(last + 1)])?;
            queue.submit(&[line.at(last + 1)], changes, &[line.signal_at(last + 2)])?;
            let reads = copying(theirs, &seen);
            back.submit(&[line.at(last + 2)], reads, &[line.signal_at(last + 3)])?;
            last += 3;
            line.at(last).wait(patience())?;
            filled::<Equipped>(&ours, word, queue.object())?;
            filled::<Equipped>(&seen, word + 1, queue.object())?;
            queue.idle(patience())?;
            back.idle(patience())?;
        }
    }
    Ok(())
}

/// Sizes from one word up, and sizes that are refused.
fn sizes(world: &World<Equipped>) -> Verdict {
    let (pair, relay) = (Pair::of(world)?, Relay::new()?);
    for bytes in [0, 1, 6] {
        check_error!(
            pair.link.buffer_or_relay(bytes),
            Error::Unsupported { asked, .. } if asked.contains(&bytes.to_string())
        );
    }
    // Worker threads that write a large buffer word by word need a long time.
    let largest = match pair.link.mechanism() {
        Mechanism::ExternalTimeline => 16 << 20,
        _ => 1 << 20,
    };
    for bytes in [4, 8, 252, 4092, 4096, 4100, (64 << 10) + 4, largest] {
        let (line, carried) = (pair.line("line")?, pair.line("carried")?);
        let shared = pair.link.buffer_or_relay(bytes)?;
        check_eq!(shared.size(), bytes);
        let target = world.right.buffer(bytes as usize / 4)?;
        let fills = filling(shared.left(), bytes as u32);
        pair.queues[0].submit(&[], fills, &[line.signal_at(1)])?;
        let ready = relay.bring(from_ref(&shared), line.at(1), &carried)?;
        pair.queues[1].submit(&[ready], copying(shared.right(), &target), &[])?;
        pair.idle()?;
        relay.idle()?;
        filled::<Equipped>(&target, bytes as u32, "a copy of the memory")?;
    }
    Ok(())
}
