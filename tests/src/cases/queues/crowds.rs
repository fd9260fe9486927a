//! Q1, Q2: many queues at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::fill_after;
use crate::case::{Verdict, cases, check};
use crate::cases::{WORDS, copying, filling, is_filled, unless_linked};
use crate::user::{Point, Queue, Timeline, wait_all};
use crate::{RecorderOf, Subject, World, patience};

cases! {
    "queue.64_waiting_queues": [Q2] => waiting_queues;
    "queue.1024_waiting_released_by_a_queue": [Q2] => released_by_queue;
    "queue.1024_waiting_released_by_the_host": [Q2] => released_by_host;
    "queue.more_queues_than_the_driver_has": [Q1 Q2] => many_pairs;
    "queue.one_line_from_many_queues": [T3 Q7] => one_line;
}

fn waiting_queues<S: Subject>(world: &World<S>) -> Verdict {
    const QUEUES: u32 = 64;
    let (go, done) = (world.timeline("go")?, world.timeline("done")?);
    let signaller = world.left_queue("signaller")?;
    let mut waiting = Vec::new();
    for index in 0..QUEUES {
        let queue = world.right_queue(&format!("waiting {index}"))?;
        let buffer = world.right.buffer(1)?;
        let to = buffer.clone();
        queue.submit(
            &[go.at(1)],
            move |recorder| S::fill(recorder, &to, index + 1),
            &[done.signal_at(u64::from(index) + 1)],
        )?;
        waiting.push((queue, buffer));
    }
    check!(done.value()? == 0, "something ran before the signal");
    signaller.submit(&[], |_| Ok(()), &[go.signal_at(1)])?;
    done.at(u64::from(QUEUES)).wait(patience())?;
    for (index, (_, buffer)) in waiting.iter().enumerate() {
        let word = S::read(buffer)[0];
        check!(
            word as usize == index + 1,
            "queue {index} did not do its work, it left {word}"
        );
    }
    Ok(())
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
        check!(
            submitted.is_held(),
            "{queue:?}, one of {count}, was let go before the signal"
        );
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
                signaller.submit(&[], filling::<S>(buffer, value), &[go.signal_at(1)])?;
                Ok(())
            })?;
            check!(
                is_filled::<S>(buffer, count as u32),
                "{count} queues were let go before the work of {signaller:?}"
            );
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

/// Producers and consumers. Each pair shares only a line or a fence of its own.
fn many_pairs<S: Subject>(world: &World<S>) -> Verdict {
    const PAIRS: usize = 16;
    struct Pair<S: Subject> {
        producer: Queue<S>,
        consumer: Queue<S>,
        line: Timeline<S>,
        source: S::Buffer,
        target: S::Buffer,
    }
    let rounds: u32 = if world.is_pair() { 10 } else { 50 };
    let mut pairs = Vec::new();
    for n in 0..PAIRS {
        pairs.push(Pair {
            producer: world.left_queue(&format!("producer {n}"))?,
            consumer: world.right_queue(&format!("consumer {n}"))?,
            line: world.timeline(&format!("line {n}"))?,
            source: world.left.buffer(WORDS)?,
            target: world.right.buffer(WORDS)?,
        });
    }
    let apart = world.is_pair();
    let consume = |pair: &Pair<S>, round: u32, ready: Point<'_, S>| {
        let submitted = if apart {
            pair.consumer
                .submit(&[ready], filling::<S>(&pair.target, round), &[])
        } else {
            let work = copying::<S>(&pair.source, &pair.target);
            pair.consumer.submit(&[ready], work, &[])
        };
        submitted.map(|submitted| submitted.end().keep())
    };
    for round in 1..=rounds {
        let value = u64::from(round);
        let mut ends = Vec::new();
        let consumers_first = round % 2 == 0;
        if consumers_first {
            for pair in &pairs {
                ends.push(consume(pair, round, pair.line.at(value))?);
            }
        }
        for (n, pair) in pairs.iter().enumerate() {
            let work = filling::<S>(&pair.source, round);
            pair.producer
                .submit(&[], work, &[pair.line.signal_at(value)])?;
            if !consumers_first && n % 2 == 0 {
                ends.push(consume(pair, round, pair.line.at(value))?);
            } else if !consumers_first {
                let fence = world.left.fence("produced");
                pair.producer.record(&fence)?;
                let ready = fence.point()?;
                ends.push(consume(pair, round, ready.point())?);
            }
        }
        let ends: Vec<_> = ends.iter().map(|end| end.point()).collect();
        wait_all(&ends, patience())?;
        for (n, pair) in pairs.iter().enumerate() {
            check!(
                is_filled::<S>(&pair.source, round) && is_filled::<S>(&pair.target, round),
                "round {round}: pair {n} has {} and {}",
                S::read(&pair.source)[0],
                S::read(&pair.target)[0]
            );
        }
    }
    Ok(())
}

/// Queues signal one line in turn. The first signal of every round comes after some work.
fn one_line<S: Subject>(world: &World<S>) -> Verdict {
    const QUEUES: usize = 32;
    let rounds: u64 = if world.is_pair() { 4 } else { 20 };
    let line = world.timeline("line")?;
    let mut queues = Vec::new();
    for n in 0..QUEUES {
        let (side, buffer) = match n % 2 {
            0 => (
                world.left_queue(&format!("queue {n}"))?,
                world.left.buffer(1)?,
            ),
            _ => (
                world.right_queue(&format!("queue {n}"))?,
                world.right.buffer(1)?,
            ),
        };
        queues.push((side, buffer));
    }
    for value in 1..=rounds * QUEUES as u64 {
        let (queue, buffer) = &queues[value as usize % QUEUES];
        let signal = line.signal_at(value);
        if value % QUEUES as u64 == 0 {
            // This queue is of the left side.
            let delay = Duration::from_micros(200);
            fill_after(delay, world, queue, buffer, value as u32, signal)?;
        } else {
            queue.submit(&[], filling::<S>(buffer, value as u32), &[signal])?;
        }
    }
    let last = rounds * QUEUES as u64;
    let start = Instant::now();
    loop {
        let now = line.value()?;
        for (n, (_, buffer)) in (0..).zip(&queues) {
            // The last value up to now that this queue signals.
            let value = (now + QUEUES as u64 - n) / QUEUES as u64 * QUEUES as u64 + n;
            let value = value.saturating_sub(QUEUES as u64);
            let word = S::read(buffer)[0];
            check!(
                u64::from(word) >= value,
                "{now} is reached, but the work of {value} is not done: {word}"
            );
        }
        if now == last {
            return Ok(());
        }
        check!(start.elapsed() < patience(), "stuck at {now} of {last}");
        thread::yield_now();
    }
}
