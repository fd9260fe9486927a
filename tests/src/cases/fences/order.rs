//! F2, F4: each record is one position of one queue.

use std::time::Duration;

use super::busy;
use crate::case::{Verdict, cases, check};
use crate::cases::{WORDS, filling, is_filled};
use crate::dice::{Dice, seeds};
use crate::user::{Fence, KeptPoint};
use crate::{Subject, World, patience};

cases! {
    "fence.recorded_on_several_queues_in_turn": [F2 F4] => in_turn;
    "fence.records_in_a_row": [F2 Q7] => in_a_row;
    "fence.random_records_against_a_model": [F1 F2 F6] => random;
}

fn in_turn<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.timeline("gate")?;
    let (gated, free) = (world.left_queue("gated")?, world.left_queue("free")?);
    let right = world.right_queue("right")?;
    let buffer = world.left.buffer(WORDS)?;
    let fence = world.left.fence("fence");
    let mut behind_the_gate = Vec::new();
    for round in 1..=3 {
        let value = u64::from(round);
        gated.submit(&[gate.at(value)], filling::<S>(&buffer, round), &[])?;
        gated.record(&fence)?;
        let first = fence.point()?;
        check!(
            !fence.is_complete()?,
            "complete although its queue is gated"
        );
        free.record(&fence)?;
        let second = fence.point()?;
        fence.wait(patience())?;
        right
            .submit(&[second.point()], |_| Ok(()), &[])?
            .end()
            .wait(patience())?;
        gated.record(&fence)?;
        check!(
            !fence.is_complete()? && second.point().is_reached()? && !first.point().is_reached()?,
            "round {round}: a record on another queue moved an earlier one"
        );
        let end = right.submit(&[fence.point()?.point()], |_| Ok(()), &[])?;
        check!(
            !end.end().is_reached()?,
            "a queue did not wait for the gated record"
        );
        gate.signal(value)?;
        end.end().wait(patience())?;
        check!(
            is_filled::<S>(&buffer, round),
            "round {round}: the fence was waited for, its queue's work is not done"
        );
        behind_the_gate.push(first);
    }
    for point in &behind_the_gate {
        check!(
            point.point().is_reached()?,
            "an early record is not reached"
        );
    }
    Ok(())
}

fn in_a_row<S: Subject>(world: &World<S>) -> Verdict {
    let gate = world.timeline("gate")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let (early, late) = (world.left.buffer(WORDS)?, world.left.buffer(WORDS)?);
    let (one, two) = (world.left.fence("one"), world.left.fence("two"));
    for round in 1..=3 {
        busy(world, &left, Duration::from_millis(2))?;
        left.submit(&[], filling::<S>(&early, round), &[])?;
        // Nothing else in between, so the last record covers the same work.
        let mut records = Vec::new();
        for fence in [&one, &one, &one, &two, &one, &two, &two] {
            left.record(fence)?;
            records.push(fence.point()?);
        }
        left.submit(&[gate.at(round.into())], filling::<S>(&late, round), &[])?;
        left.record(&two)?;
        let behind = [one.point()?, two.point()?];
        // The last one first. The other side waits for each of them, too.
        for (nth, record) in records.iter().enumerate().rev() {
            right
                .submit(&[record.point()], |_| Ok(()), &[])?
                .end()
                .wait(patience())?;
            check!(
                is_filled::<S>(&early, round) && record.point().is_reached()?,
                "record {nth} does not cover the work before it"
            );
        }
        let [one_is, two_is] = [
            behind[0].point().is_reached()?,
            behind[1].point().is_reached()?,
        ];
        check!(
            one_is && !two_is && one.is_complete()? && !two.is_complete()?,
            "with gated work between them, the first record is reached: {one_is}, the second: {two_is}"
        );
        let end = right.submit(&[behind[1].point()], |_| Ok(()), &[])?;
        gate.signal(round.into())?;
        end.end().wait(patience())?;
        check!(
            is_filled::<S>(&late, round),
            "a record in a row does not cover the work before it"
        );
    }
    Ok(())
}

/// A position: a queue, and the value of its gate that it needs. `None` was never recorded.
type Mark = Option<(usize, u64)>;

/// Queues that wait for their gates, fences that record positions, and waits for the fences.
struct Model {
    /// For each queue: the value that its last submission waits for.
    asked: Vec<u64>,
    open: Vec<u64>,
    marks: Vec<Mark>,
}

impl Model {
    fn is_reached(&self, mark: Mark) -> bool {
        mark.is_none_or(|(queue, value)| self.open[queue] >= value)
    }
}

fn random<S: Subject>(world: &World<S>) -> Verdict {
    let (steps, count) = if world.is_pair() { (120, 3) } else { (250, 8) };
    seeds(count, |dice| records_at_random(world, dice, steps))
}

fn records_at_random<S: Subject>(world: &World<S>, dice: &mut Dice, steps: usize) -> Verdict {
    const FENCES: usize = 8;
    const QUEUES: usize = 4;
    let mut gates = Vec::new();
    let mut queues = Vec::new();
    for n in 0..QUEUES {
        gates.push(world.timeline(&format!("gate {n}"))?);
        queues.push(world.left_queue(&format!("left {n}"))?);
    }
    let new = |n: usize| world.left.fence(&format!("fence {n}"));
    let mut fences: Vec<Fence<S>> = (0..FENCES).map(new).collect();
    let mut model = Model {
        asked: vec![0; QUEUES],
        open: vec![0; QUEUES],
        marks: vec![None; FENCES],
    };
    // Queues of the other side, and the positions that they wait for.
    let waiting = [world.right_queue("right 0")?, world.right_queue("right 1")?];
    let mut needs: [Vec<Mark>; 2] = [Vec::new(), Vec::new()];
    let mut kept: Vec<(Mark, KeptPoint<S>)> = Vec::new();
    let mut ends: Vec<(Vec<Mark>, KeptPoint<S>)> = Vec::new();
    for step in 0..steps {
        let (n, queue) = (dice.index(FENCES), dice.index(QUEUES));
        match dice.below(10) {
            0 | 1 => {
                model.asked[queue] += 1;
                let gate = gates[queue].at(model.asked[queue]);
                queues[queue].submit(&[gate], |_| Ok(()), &[])?;
            }
            2 => {
                // Not beyond the awaited values, sometimes several at once.
                let most = model.asked[queue] - model.open[queue];
                if most > 0 {
                    model.open[queue] += 1 + dice.below(most);
                    gates[queue].signal(model.open[queue])?;
                }
            }
            3..=5 => {
                queues[queue].record(&fences[n])?;
                model.marks[n] = Some((queue, model.asked[queue]));
            }
            6 => {
                let which = dice.index(waiting.len());
                needs[which].push(model.marks[n]);
                // By its point or by the fence.
                if dice.one_in(2) {
                    waiting[which].submit(&[fences[n].point()?.point()], |_| Ok(()), &[])?;
                } else {
                    waiting[which].wait(&fences[n])?;
                }
                ends.push((needs[which].clone(), waiting[which].position().keep()));
            }
            7 => kept.push((model.marks[n], fences[n].point()?)),
            8 => {
                // Another handle of the same fence. The first one is dropped.
                fences[n] = fences[n].clone();
            }
            _ => {
                kept.push((model.marks[n], fences[n].point()?));
                fences[n] = new(n);
                model.marks[n] = None;
            }
        }
        let (mark, fence) = (model.marks[n], &fences[n]);
        if model.is_reached(mark) {
            fence.wait(patience())?;
        }
        check!(
            fence.is_complete()? == model.is_reached(mark),
            "step {step}: fence {n} holds {mark:?}, the gates are at {:?}, and it is complete: {}",
            model.open,
            fence.is_complete()?
        );
    }
    let agree = |model: &Model| {
        for (mark, point) in &kept {
            let reached = model.is_reached(*mark);
            if reached {
                point.point().wait(patience())?;
            }
            check!(
                point.point().is_reached()? == reached,
                "a kept point of {mark:?} is reached: {}, the gates are at {:?}",
                !reached,
                model.open
            );
        }
        for (marks, end) in &ends {
            let reached = marks.iter().all(|mark| model.is_reached(*mark));
            if reached {
                end.point().wait(patience())?;
            }
            check!(
                end.point().is_reached()? == reached,
                "a queue that waits for {marks:?} is through: {}, the gates are at {:?}",
                !reached,
                model.open
            );
        }
        Ok(())
    };
    agree(&model)?;
    for (queue, gate) in gates.iter().enumerate() {
        if model.asked[queue] > model.open[queue] {
            model.open[queue] = model.asked[queue];
            gate.signal(model.open[queue])?;
        }
        agree(&model)?;
    }
    Ok(())
}
