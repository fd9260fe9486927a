//! T3, and the gaps that T2 leaves for others: the order in which signals complete.

use std::thread;

use crate::blocked::{Unstick, join_all};
use crate::case::{Verdict, cases, check};
use crate::cases::{DELAY, WORDS, is_filled};
use crate::user::{Device, Queue};
use crate::{Subject, World, patience};

cases! {
    "timeline.work_ends_out_of_value_order": [T3 Q7] => ends_out_of_order;
}

/// A queue and its device.
struct Worker<'w, S: Subject> {
    device: &'w Device<S>,
    queue: Queue<S>,
}

/// Returns `count` queues, of both sides in turn.
fn workers<S: Subject>(world: &World<S>, count: usize) -> syncline::Result<Vec<Worker<'_, S>>> {
    let worker = |n: usize| {
        let device = world.side(n);
        let queue = device.queue(syncline::QueueKind::Compute, &format!("worker {n}"))?;
        Ok(Worker { device, queue })
    };
    (0..count).map(worker).collect()
}

/// The lowest value has the longest work.
fn ends_out_of_order<S: Subject>(world: &World<S>) -> Verdict {
    const VALUES: u32 = 5;
    let workers = workers(world, VALUES as usize)?;
    let line = world.timeline("line")?;
    let mut buffers = Vec::new();
    for worker in &workers {
        buffers.push(worker.device.buffer(WORDS)?);
    }
    // The work of a value is done when the value is reached.
    let look = |value: u64| {
        for (n, buffer) in buffers.iter().enumerate().take(value as usize) {
            check!(
                is_filled::<S>(buffer, n as u32 + 1),
                "at {value} the work of {} was not done",
                n + 1
            );
        }
        Ok(())
    };
    thread::scope(|scope| {
        let _unstick = Unstick(&[&line]);
        let reader = scope.spawn(|| {
            let mut value = 0;
            while value < u64::from(VALUES) {
                value = line.value()?;
                look(value)?;
                thread::yield_now();
            }
            Ok(())
        });
        for (worker, n) in workers.iter().zip(1..) {
            worker.queue.fill_after(
                DELAY / 6 * (VALUES + 1 - n),
                &buffers[n as usize - 1],
                n,
                &[line.signal_at(u64::from(n))],
            )?;
        }
        for value in 1..=u64::from(VALUES) {
            line.at(value).wait(patience())?;
            look(value)?;
        }
        join_all([reader])
    })
}
