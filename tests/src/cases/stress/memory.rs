//! H2, T9: finished objects leave nothing behind.

use std::collections::VecDeque;

use syncline::QueueKind;

use crate::case::{Verdict, cases, check};
use crate::cases::{filling, is_filled};
use crate::dice::Dice;
use crate::footprint::grows_nothing;
use crate::{Subject, World, patience};

cases! {
    "stress.objects_come_and_go": [H2 T9] => come_and_go;
    "stress.values_leave_nothing_behind": [H2] => values(dice);
}

/// Timelines, queues, fences and buffers are dropped in many orders, with work in flight.
fn come_and_go<S: Subject>(world: &World<S>) -> Verdict {
    let times = if world.is_pair() { 50 } else { 300 };
    let timed = world.left.info().capabilities.timestamp_bits > 0;
    grows_nothing(|| {
        for n in 0..times {
            let line = world.timeline("line")?;
            let gate = world.right.timeline("gate")?;
            let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
            let (source, target) = (world.left.buffer(16)?, world.right.buffer(16)?);
            let fence = if timed && n % 2 == 0 {
                world.left.timed_fence("fence")
            } else {
                world.left.fence("fence")
            };
            let value = n + 1;
            left.submit(&[], filling::<S>(&source, value), &[line.signal_at(1)])?;
            left.record(&fence)?;
            let recorded = fence.point()?;
            right.submit(
                &[line.at(1), recorded.point(), gate.at(1)],
                filling::<S>(&target, value),
                &[line.signal_at(2)],
            )?;
            let end = line.at(2).keep();
            gate.signal(1)?;
            // The object that is dropped first has work in flight.
            match n % 4 {
                0 => drop((left, right, fence, line)),
                1 => drop((line, fence, right, left)),
                2 => drop((fence, left)),
                _ => {}
            }
            end.point().wait(patience())?;
            check!(
                is_filled::<S>(&source, value) && is_filled::<S>(&target, value),
                "time {n}: work of objects that were dropped is lost"
            );
        }
        Ok(())
    })
}

/// One line passes many values. A few waits for some of them are always outstanding.
fn values<S: Subject>(world: &World<S>, dice: &mut Dice) -> Verdict {
    const DISTANCE: u64 = 64;
    let count: u64 = if world.is_pair() { 3000 } else { 10_000 };
    let line = world.timeline("line")?;
    let (left, right) = (
        world.left_queue("left")?,
        world.right.queue(QueueKind::Compute, "right")?,
    );
    let mut now = 0;
    let mut waiting = VecDeque::new();
    grows_nothing(|| {
        for _ in 0..count {
            now += 1;
            if dice.one_in(64) {
                left.submit(&[line.at(now - 1)], |_| Ok(()), &[line.signal_at(now)])?;
                line.at(now).wait(patience())?;
            } else {
                line.signal(now)?;
            }
            match dice.below(64) {
                0 => {
                    let point = line.at(now + dice.below(DISTANCE));
                    right.submit(&[point], |_| Ok(()), &[])?;
                }
                1..8 => waiting.push_back(line.at(now + dice.below(DISTANCE)).keep()),
                _ => {}
            }
            while let Some(point) = waiting.front().map(|point| point.point()) {
                let reached = point.is_reached()?;
                check!(
                    reached == (point.value() <= now),
                    "the value is {now}, and {} is reached: {reached}",
                    point.value()
                );
                if !reached {
                    break;
                }
                waiting.pop_front();
            }
        }
        Ok(())
    })?;
    // The outstanding waits get their signal.
    line.signal(now + DISTANCE)?;
    right.idle(patience())?;
    Ok(())
}
