//! F7: other queues begin in the middle of a graph, and a graph waits there.

use std::time::Duration;

use super::super::captures::{Stall, cuda_queue};
use super::{SHORT, Slotted, lines, pass_on, shows_value};
use crate::case::{Verdict, check, check_eq, check_error, equipped_cases};
use crate::cases::{WORDS, filling};
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};
use syncline::Error;

equipped_cases! {
    "slot.others_begin_in_the_middle": [F7 Q2] => begin_in_the_middle;
    "slot.waits_in_the_middle": [F7 Q1] => waits_in_the_middle;
}

fn begin_in_the_middle(world: &World<Equipped>) -> Verdict {
    let [half, whole, answer, never] = lines(world, ["half", "whole", "answer", "never"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let (right, other) = (world.right_queue("right")?, world.right_queue("other")?);
    let (before, after) = (world.left.buffer(WORDS)?, world.left.buffer(WORDS)?);
    let stall = Stall::released();
    let mut slotted = Slotted::begin(world, &native)?;
    slotted.set(&before, 1)?;
    let middle = slotted.signal(&half)?;
    slotted.stall(&stall)?;
    slotted.set(&after, 2)?;
    let end = slotted.signal(&whole)?;
    let graph = slotted.end()?;
    for round in 1..=3 {
        stall.hold();
        native.launch(&graph, &[middle.at(round), end.at(round)])?;
        check!(
            half.at(round).is_pending()? && whole.at(round).is_pending()?,
            "the signals of a launch are not pending"
        );
        pass_on(&right, &half, round, &answer, round)?;
        pass_on(&other, &whole, round, &never, round)?;
        // The graph has not ended, and cannot.
        let begun = answer.at(round).wait(patience());
        check!(begun.is_ok());
        check_eq!(Equipped::read(&before)[0], 1);
        // The control: what waits for the end of the graph has not begun.
        check_error!(never.at(round).wait(SHORT), TimedOut);
        check_error!(queue.position().wait(Duration::ZERO), TimedOut);
        stall.release();
        never.at(round).wait(patience())?;
        half.at(round).wait(patience())?;
        whole.at(round).wait(patience())?;
        check_eq!(Equipped::read(&after)[0], 2);
        queue.idle(patience())?;
    }
    Ok(())
}

/// A launch begins although the value that it waits for in the middle is only pending.
fn waits_in_the_middle(world: &World<Equipped>) -> Verdict {
    let [gate, ready] = lines(world, ["gate", "ready"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let (blocked, right) = (world.left_queue("blocked")?, world.right_queue("right")?);
    let (early, late) = (world.left.buffer(WORDS)?, world.left.buffer(WORDS)?);
    let mut slotted = Slotted::begin(world, &native)?;
    slotted.set(&early, 1)?;
    let wait = slotted.wait(&ready)?;
    slotted.set(&late, 2)?;
    let graph = slotted.end()?;
    for round in 1..=3 {
        for buffer in [&early, &late] {
            queue.submit(&[], filling::<Equipped>(buffer, 0), &[])?;
        }
        queue.idle(patience())?;
        let stall = world.left.stall()?;
        blocked.block(&stall)?;
        blocked.signal(&gate, round)?;
        pass_on(&right, &gate, round, &ready, round)?;
        let launch = native.launch(&graph, &[wait.at(round)])?;
        check!(!launch.is_held(), "held, although its wait is pending");
        shows_value(&early, 1, "the graph did not begin before its wait")?;
        let end = queue.position().wait(SHORT);
        check!(
            matches!(end, Err(Error::TimedOut { .. })) && Equipped::read(&late)[0] == 0,
            "the graph did not wait in the middle: {end:?}"
        );
        stall.release()?;
        queue.idle(patience())?;
        check!(Equipped::read(&late)[0] == 2, "the graph did not go on");
        // A value that is reached needs no wait.
        native.launch(&graph, &[wait.at(round)])?;
        queue.idle(patience())?;
        blocked.idle(patience())?;
        right.idle(patience())?;
    }
    Ok(())
}
