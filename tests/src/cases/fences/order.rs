//! F2, F4: each record is one position of one queue.

use crate::case::{Verdict, cases, check};
use crate::dice::{Dice, seeds};
use crate::user::{Fence, KeptPoint};
use crate::{Subject, World, patience};

cases! {
    "fence.random_records_against_a_model": [F1 F2 F6 F4 Q7] => random;
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
    let gates = world.numbered(QUEUES, "gate")?;
    let queues = (0..QUEUES).map(|n| world.left_queue(&format!("left {n}")));
    let queues = queues.collect::<syncline::Result<Vec<_>>>()?;
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
                queues[queue].submit_empty(&[gate], &[])?;
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
                    waiting[which].submit_empty(&[fences[n].point()?.point()], &[])?;
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
