//! H2, T9: finished objects leave nothing behind.

use crate::case::{Verdict, cases, check};
use crate::cases::is_filled;
use crate::footprint::grows_nothing;
use crate::{Subject, World, patience};

cases! {
    "stress.objects_come_and_go": [H2 T9] => come_and_go;
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
            left.fill(&[], &source, value, &[line.signal_at(1)])?;
            left.record(&fence)?;
            let recorded = fence.point()?;
            right.fill(
                &[line.at(1), recorded.point(), gate.at(1)],
                &target,
                value,
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
