//! Q2, Q9: chains of submissions, and data that goes along them.

use syncline::QueueKind;

use crate::case::{Verdict, cases, check};
use crate::cases::{WORDS, copying, filling, is_filled};
use crate::dice::Dice;
use crate::{Subject, World, patience};

cases! {
    "queue.ping_pong_submitted_backwards": [Q2 T3] => ping_pong;
    "queue.copies_through_all_queues_backwards": [Q2 Q9] => copies_backwards;
    "queue.takes_turns_with_the_host": [Q9 Q3] => turns_with_host(dice);
    "queue.dropped_queue_of_a_waiting_chain": [Q6 T9] => dropped_in_chain;
}

fn ping_pong<S: Subject>(world: &World<S>) -> Verdict {
    const ROUNDS: u64 = 50;
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let buffer = world.left.buffer(1)?;
    // All work of the right side first.
    for n in 1..=ROUNDS {
        right.submit(&[line.at(2 * n - 1)], |_| Ok(()), &[line.signal_at(2 * n)])?;
    }
    for n in 1..=ROUNDS {
        let to = buffer.clone();
        left.submit(
            &[line.at(2 * n - 2)],
            move |recorder| S::fill(recorder, &to, n as u32),
            &[line.signal_at(2 * n - 1)],
        )?;
    }
    line.at(2 * ROUNDS).wait(patience())?;
    check!(
        u64::from(S::read(&buffer)[0]) == ROUNDS,
        "the last round left {}",
        S::read(&buffer)[0]
    );
    check!(
        left.held().count == 0 && right.held().count == 0,
        "something is still held"
    );
    Ok(())
}

fn copies_backwards<S: Subject>(world: &World<S>) -> Verdict {
    const HOPS: usize = 16;
    let line = world.timeline("line")?;
    let sides = [&world.left, &world.right];
    let mut hops = Vec::new();
    for hop in 0..HOPS {
        let kind = [QueueKind::Compute, QueueKind::Compute, QueueKind::Transfer][hop % 3];
        let queue = sides[hop % 2].queue(kind, &format!("hop {hop}"))?;
        hops.push((queue, sides[hop % 2].buffer(WORDS)?));
    }
    // Each copies the result of the last work before it on its own device.
    let apart = if world.is_pair() { 2 } else { 1 };
    for round in 1..=3 {
        let first = u64::from(round - 1) * (HOPS as u64 + 1);
        for hop in (0..HOPS).rev() {
            let (queue, to) = &hops[hop];
            let before = first + hop as u64 + 1;
            let (waits, signals) = ([line.at(before)], [line.signal_at(before + 1)]);
            match hop.checked_sub(apart) {
                Some(from) => queue.submit(&waits, copying::<S>(&hops[from].1, to), &signals)?,
                None => queue.submit(&waits, filling::<S>(to, round), &signals)?,
            };
        }
        let starter = world.left_queue("starter")?;
        starter.submit(&[], |_| Ok(()), &[line.signal_at(first + 1)])?;
        line.at(first + HOPS as u64 + 1).wait(patience())?;
        for (hop, (_, buffer)) in hops.iter().enumerate() {
            check!(
                is_filled::<S>(buffer, round),
                "round {round}: hop {hop} holds {:?}…",
                &S::read(buffer)[..4]
            );
        }
    }
    Ok(())
}

/// All work of the devices is submitted before the host does its first step.
fn turns_with_host<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    let turns = if world.is_pair() { 30 } else { 100 };
    let line = world.timeline("line")?;
    let sides = [
        (world.left_queue("left")?, world.left.buffer(WORDS)?),
        (world.right_queue("right")?, world.right.buffer(WORDS)?),
    ];
    let mut plan = Vec::new();
    let mut last = 0;
    for turn in 1..=turns {
        let side = dice.index(2);
        let (queue, buffer) = &sides[side];
        let done = last + 1 + dice.below(5);
        queue.submit(
            &[line.at(last)],
            filling::<S>(buffer, turn),
            &[line.signal_at(done)],
        )?;
        last = done + 1 + dice.below(5);
        plan.push((turn, side, done, last));
    }
    for (turn, side, done, next) in plan {
        line.at(done).wait(patience())?;
        check!(
            is_filled::<S>(&sides[side].1, turn),
            "{done} is reached, and the work of turn {turn} is not done"
        );
        check!(
            line.value()? == done,
            "the value is {} although the host has not signalled {next}",
            line.value()?
        );
        line.signal(next)?;
    }
    Ok(())
}

fn dropped_in_chain<S: Subject>(world: &World<S>) -> Verdict {
    const LINKS: usize = 12;
    for round in 0..4 {
        let line = world.timeline("line")?;
        let sides = [&world.left, &world.right];
        let mut chain = Vec::new();
        for link in 0..LINKS {
            let side = sides[link % 2];
            let queue = side.queue(QueueKind::Compute, &format!("link {link}"))?;
            let buffer = side.buffer(WORDS)?;
            let before = link as u64 + 1;
            queue.submit(
                &[line.at(before)],
                filling::<S>(&buffer, 1),
                &[line.signal_at(before + 1)],
            )?;
            chain.push((Some(queue), buffer));
        }
        // All of them, every second, the first half, the last half.
        let goes = |link: usize| match round {
            0 => true,
            1 => link % 2 == 1,
            2 => link < LINKS / 2,
            _ => link >= LINKS / 2,
        };
        for (_, (queue, _)) in chain.iter_mut().enumerate().filter(|(link, _)| goes(*link)) {
            *queue = None;
        }
        line.signal(1)?;
        line.at(LINKS as u64 + 1).wait(patience())?;
        for (link, (_, buffer)) in chain.iter().enumerate() {
            check!(
                is_filled::<S>(buffer, 1),
                "round {round}: link {link} of the chain did not run"
            );
        }
    }
    Ok(())
}
