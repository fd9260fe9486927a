//! Q2, Q9: chains of submissions, and data that goes along them.

use syncline::QueueKind;

use crate::case::{Verdict, cases, check_eq};
use crate::cases::{WORDS, copying, filled};
use crate::dice::Dice;
use crate::{Subject, World, patience};

cases! {
    "queue.copies_through_all_queues_backwards": [Q2 Q9 T3] => copies_backwards;
    "queue.takes_turns_with_the_host": [Q9 Q3] => turns_with_host(dice);
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
                None => queue.fill(&waits, to, round, &signals)?,
            };
        }
        let starter = world.left_queue("starter")?;
        starter.signal(&line, first + 1)?;
        line.at(first + HOPS as u64 + 1).wait(patience())?;
        for (hop, (_, buffer)) in hops.iter().enumerate() {
            filled::<S>(buffer, round, format_args!("hop {hop}"))?;
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
        queue.fill(&[line.at(last)], buffer, turn, &[line.signal_at(done)])?;
        last = done + 1 + dice.below(5);
        plan.push((turn, side, done, last));
    }
    for (turn, side, done, next) in plan {
        line.at(done).wait(patience())?;
        filled::<S>(&sides[side].1, turn, format_args!("done {done}"))?;
        check_eq!(line.value()?, done, "next {next}");
        line.signal(next)?;
    }
    Ok(())
}
