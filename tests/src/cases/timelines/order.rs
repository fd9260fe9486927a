//! T3, and the gaps that T2 leaves for others: the order in which signals complete.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use crate::blocked::{Unstick, join_all};
use crate::case::{Verdict, cases, check};
use crate::cases::{DELAY, WORDS, is_filled};
use crate::dice::seeds;
use crate::user::{Device, Queue, Timeline};
use crate::{Subject, World, patience};

cases! {
    "timeline.signals_complete_in_value_order": [T3 Q7] => value_order;
    "timeline.submitted_out_of_value_order": [T2 T3 Q2] => submitted_out_of_order;
    "timeline.work_ends_out_of_value_order": [T3 Q7] => ends_out_of_order;
    "timeline.ring_of_buffers": [T2 Q1] => ring;
    "timeline.two_threads_ping_pong": [T6] => ping_pong;
}

fn value_order<S: Subject>(world: &World<S>) -> Verdict {
    let line = world.timeline("line")?;
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let buffer = world.left.buffer(WORDS)?;
    let (device, target) = (world.left.clone(), buffer.clone());
    left.submit(
        &[],
        move |recorder| {
            device.busy(recorder, DELAY)?;
            S::fill(recorder, &target, 7)
        },
        &[line.signal_at(1)],
    )?;
    // It has no waits and no work, and its signal still comes after the left one's.
    right.submit(&[], |_| Ok(()), &[line.signal_at(2)])?;
    line.at(2).wait(patience())?;
    check!(
        is_filled::<S>(&buffer, 7),
        "2 was reached before the work behind 1 was done"
    );
    Ok(())
}

/// A queue and its device.
struct Worker<'w, S: Subject> {
    device: &'w Device<S>,
    queue: Queue<S>,
}

/// Returns `count` queues, of both sides in turn.
fn workers<S: Subject>(world: &World<S>, count: usize) -> syncline::Result<Vec<Worker<'_, S>>> {
    let worker = |n: usize| {
        let device = if n.is_multiple_of(2) {
            &world.left
        } else {
            &world.right
        };
        let queue = device.queue(syncline::QueueKind::Compute, &format!("worker {n}"))?;
        Ok(Worker { device, queue })
    };
    (0..count).map(worker).collect()
}

/// Each value is signalled after a wait for the value before it.
///
/// Each queue gets its values in order, because it could not run otherwise. The order of the queues
/// is random.
fn submitted_out_of_order<S: Subject>(world: &World<S>) -> Verdict {
    const VALUES: usize = 8;
    let workers = workers(world, 4)?;
    seeds(6, |dice| {
        let line = world.timeline("line")?;
        // For each side, the source of its next copy. The first buffer has data from the start.
        let mut latest = [world.left.buffer(WORDS)?, world.right.buffer(WORDS)?];
        for (worker, buffer) in workers.iter().zip(&latest) {
            let to = buffer.clone();
            worker
                .queue
                .submit(&[], move |recorder| S::fill(recorder, &to, 7), &[])?;
            worker.queue.idle(patience())?;
        }
        let mut tasks = vec![VecDeque::new(); workers.len()];
        let mut copies = Vec::new();
        for value in 1..=VALUES {
            let worker = dice.index(workers.len());
            let to = workers[worker].device.buffer(WORDS)?;
            let from = std::mem::replace(&mut latest[worker % 2], to.clone());
            tasks[worker].push_back(value);
            copies.push((from, to));
        }
        let mut order = Vec::new();
        while order.len() < VALUES {
            let worker = dice.index(workers.len());
            let Some(value) = tasks[worker].pop_front() else {
                continue;
            };
            order.push(value);
            let (from, to) = copies[value - 1].clone();
            let device = workers[worker].device.clone();
            let n = value as u64;
            workers[worker].queue.submit(
                &[line.at(n - 1)],
                move |recorder| {
                    device.busy(recorder, Duration::from_micros(500))?;
                    S::copy(recorder, &from, &to)
                },
                &[line.signal_at(n)],
            )?;
        }
        for (n, (_, buffer)) in copies.iter().enumerate() {
            line.at(n as u64 + 1).wait(patience())?;
            check!(
                is_filled::<S>(buffer, 7),
                "submitted as {order:?}, the work of {} came before one that it follows",
                n + 1
            );
        }
        Ok(())
    })
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
            let (device, to) = (worker.device.clone(), buffers[n as usize - 1].clone());
            worker.queue.submit(
                &[],
                move |recorder| {
                    device.busy(recorder, DELAY / 6 * (VALUES + 1 - n))?;
                    S::fill(recorder, &to, n)
                },
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

/// Each frame waits only for the one that had its slot before, which is an old value by then.
fn ring<S: Subject>(world: &World<S>) -> Verdict {
    const SLOTS: usize = 3;
    const FRAMES: usize = 60;
    let workers = workers(world, 4)?;
    let line = world.timeline("line")?;
    let mut slots = Vec::new();
    for n in 0..SLOTS * 2 {
        // Frames of one slot alternate between the sides. Each side has its own half of the slot.
        slots.push(workers[n % 2].device.buffer(WORDS)?);
    }
    let mut logs = Vec::new();
    for frame in 1..=FRAMES {
        let worker = &workers[frame % workers.len()];
        let slot = slots[frame % slots.len()].clone();
        let log = worker.device.buffer(WORDS)?;
        logs.push(log.clone());
        let device = worker.device.clone();
        worker.queue.submit(
            &[line.at(frame.saturating_sub(SLOTS) as u64)],
            move |recorder| {
                // The slot has the last frame's data until this frame writes it.
                S::copy(recorder, &slot, &log)?;
                if frame % 7 == 0 {
                    device.busy(recorder, Duration::from_millis(1))?;
                }
                S::fill(recorder, &slot, frame as u32)
            },
            &[line.signal_at(frame as u64)],
        )?;
    }
    line.at(FRAMES as u64).wait(patience())?;
    for (log, frame) in logs.iter().zip(1_u32..) {
        let before = frame.saturating_sub(slots.len() as u32);
        let expected = if frame as usize <= slots.len() {
            0
        } else {
            before
        };
        check!(
            is_filled::<S>(log, expected),
            "frame {frame} found {} in its slot instead of {expected}",
            S::read(log)[0]
        );
    }
    Ok(())
}

fn ping_pong<S: Subject>(world: &World<S>) -> Verdict {
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    for (rounds, by_queue) in [
        (2000, false),
        (if world.is_pair() { 50 } else { 300 }, true),
    ] {
        let (ping, pong) = (world.timeline("ping")?, world.timeline("pong")?);
        let hit = |queue: &Queue<S>, line: &Timeline<S>, n| {
            if by_queue {
                queue.submit(&[], |_| Ok(()), &[line.signal_at(n)])?;
                return Ok(());
            }
            line.signal(n)
        };
        thread::scope(|scope| {
            let _unstick = Unstick(&[&ping, &pong]);
            let other = scope.spawn(|| {
                for n in 1..=rounds {
                    ping.at(n).wait(patience())?;
                    hit(&right, &pong, n)?;
                }
                Ok(())
            });
            for n in 1..=rounds {
                hit(&left, &ping, n)?;
                pong.at(n).wait(patience())?;
                let at = ping.value()?;
                check!(at == n, "the other side answered {n} and is ahead, at {at}");
            }
            join_all([other])
        })?;
    }
    Ok(())
}
