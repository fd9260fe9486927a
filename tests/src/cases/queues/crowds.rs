//! Q1, Q2: many queues at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::case::{Verdict, cases, check};
use crate::cases::{WORDS, filled, is_filled, unless_linked};
use crate::user::{Queue, Timeline};
use crate::{RecorderOf, Subject, World, patience};

cases! {
    "queue.1024_waiting_released_by_a_queue": [Q2 Q1] => released_by_queue;
    "queue.1024_waiting_released_by_the_host": [Q2] => released_by_host;
}

/// Each queue of the right side waits, before `release` signals the value.
fn wait_and<S: Subject>(
    world: &World<S>,
    queues: &[Queue<S>],
    release: impl FnOnce(&Timeline<S>) -> syncline::Result<()>,
) -> Verdict {
    /// At most this many queues write a buffer. All of them count their work.
    const SAMPLES: usize = 16;
    let count = queues.len();
    let (go, done) = (world.timeline("go")?, world.timeline("done")?);
    let ran = Arc::new(AtomicUsize::new(0));
    let mut samples = Vec::new();
    for (index, queue) in queues.iter().enumerate() {
        let buffer = if index % count.div_ceil(SAMPLES) == 0 {
            samples.push(world.right.buffer(1)?);
            samples.last().cloned()
        } else {
            None
        };
        let ran = ran.clone();
        let work = move |recorder: &mut RecorderOf<'_, S>| {
            ran.fetch_add(1, Ordering::Relaxed);
            buffer.map_or(Ok(()), |buffer| S::fill(recorder, &buffer, 1))
        };
        let signal = done.signal_at(index as u64 + 1);
        let submitted = queue.submit(&[go.at(1)], work, &[signal])?;
        check!(submitted.is_held(), "queue {queue:?}, count {count}");
    }
    check!(
        done.value()? == 0 && ran.load(Ordering::Relaxed) == 0,
        "something ran before the signal"
    );
    release(&go)?;
    done.at(count as u64).wait(patience())?;
    let ran = ran.load(Ordering::Relaxed);
    check!(ran == count, "{ran} of {count} works were recorded");
    for (nth, buffer) in samples.iter().enumerate() {
        check!(is_filled::<S>(buffer, 1), "work {nth} was not done");
    }
    Ok(())
}

/// Returns queues for waits, and how many of them are to wait in each round.
fn waiting_crowd<S: Subject>(world: &World<S>) -> syncline::Result<(Vec<Queue<S>>, Vec<usize>)> {
    let most = unless_linked(world, "queues", 1024, 64)?;
    let queues = (0..most).map(|n| world.right_queue(&format!("waiting {n}")));
    let mut counts = vec![1, 2, 64, most];
    counts.dedup();
    Ok((queues.collect::<syncline::Result<_>>()?, counts))
}

/// A queue of the left side signals, which on a pair is another API's, and one of the same device.
fn released_by_queue<S: Subject>(world: &World<S>) -> Verdict {
    let (queues, counts) = waiting_crowd(world)?;
    let signallers = [world.left_queue("left")?, world.right_queue("right")?];
    let (left, right) = (world.left.buffer(WORDS)?, world.right.buffer(WORDS)?);
    for count in counts {
        for (signaller, buffer) in signallers.iter().zip([&left, &right]) {
            wait_and(world, &queues[..count], |go| {
                let value = count as u32;
                signaller.fill(&[], buffer, value, &[go.signal_at(1)])?;
                Ok(())
            })?;
            filled::<S>(
                buffer,
                count as u32,
                format_args!("signaller {signaller:?}"),
            )?;
        }
    }
    Ok(())
}

fn released_by_host<S: Subject>(world: &World<S>) -> Verdict {
    let (queues, counts) = waiting_crowd(world)?;
    for count in counts {
        wait_and(world, &queues[..count], |go| go.signal(1))?;
    }
    Ok(())
}
