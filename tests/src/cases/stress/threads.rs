//! Q1, Q6, T2, T5, T6: many threads that work together, with a known result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;

use crate::blocked::join;
use crate::case::{Verdict, cases, check};
use crate::cases::{filling, is_filled};
use crate::user::{Timeline, wait_all};
use crate::{RecorderOf, Subject, World, patience};

cases! {
    "stress.submitters_of_one_queue": [Q1 Q6 T2] => submitters;
    "stress.relay_of_threads": [T6] => relay;
    "stress.producers_and_one_consumer": [T5 T6] => producers;
}

fn submitters<S: Subject>(world: &World<S>) -> Verdict {
    const THREADS: usize = 16;
    let each: u32 = if world.is_pair() { 40 } else { 250 };
    let queue = world.right_queue("shared by all")?;
    let go = world.timeline("go")?;
    // The first part is held. The rest goes to the driver at once.
    queue.submit(&[go.at(1)], |_| Ok(()), &[])?;
    struct Part<S: Subject> {
        line: Timeline<S>,
        buffer: S::Buffer,
        ran: Arc<AtomicU32>,
    }
    let mut parts = Vec::new();
    for n in 0..THREADS {
        parts.push(Part {
            line: world.timeline(&format!("line {n}"))?,
            buffer: world.right.buffer(1)?,
            ran: Arc::default(),
        });
    }
    let submit = |part: &Part<S>| -> syncline::Result<Vec<u64>> {
        (1..=each)
            .map(|n| {
                let (ran, buffer) = (part.ran.clone(), part.buffer.clone());
                let work = move |recorder: &mut RecorderOf<'_, S>| {
                    ran.fetch_add(1, Ordering::Relaxed);
                    S::fill(recorder, &buffer, n)
                };
                let submitted = queue.submit(&[], work, &[part.line.signal_at(n.into())])?;
                Ok(submitted.end().value())
            })
            .collect()
    };
    let mut ends = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = parts
            .iter()
            .map(|part| scope.spawn(|| submit(part)))
            .collect();
        go.signal(1)?;
        for (n, thread) in threads.into_iter().enumerate() {
            let own = join(thread)??;
            check!(
                own.is_sorted_by(|a, b| a < b),
                "thread {n}: ends out of order, {own:?}"
            );
            ends.extend(own);
        }
        Verdict::Ok(())
    })?;
    ends.sort_unstable();
    let all = THREADS as u64 * u64::from(each);
    let repeated = ends.windows(2).find(|pair| pair[0] == pair[1]);
    check!(
        repeated.is_none(),
        "two submissions have one end: {repeated:?}"
    );
    let last = queue.position();
    check!(
        ends.last() == Some(&last.value()),
        "the queue is at {}, the last of {all} submissions ends at {:?}",
        last.value(),
        ends.last()
    );
    last.wait(patience())?;
    for (n, part) in parts.iter().enumerate() {
        let ran = part.ran.load(Ordering::Relaxed);
        check!(
            ran == each,
            "{ran} works of thread {n} were recorded instead of {each}"
        );
        check!(
            is_filled::<S>(&part.buffer, each),
            "the queue is through, the work of thread {n} is at {}",
            S::read(&part.buffer)[0]
        );
        // Where the host makes the signal, it comes after the end.
        part.line.at(each.into()).wait(patience())?;
    }
    Ok(())
}

/// Threads work in turn. Each one finds what the one before it wrote.
fn relay<S: Subject>(world: &World<S>) -> Verdict {
    const THREADS: u64 = 16;
    let turns: u64 = if world.is_pair() { 200 } else { 1600 };
    let line = world.timeline("turn")?;
    let counter = AtomicU64::new(0);
    let run = |first: u64| -> Verdict {
        for turn in (first..turns).step_by(THREADS as usize) {
            line.at(turn).wait(patience())?;
            // Not one atomic operation, so that another thread in between would be detected.
            let found = counter.load(Ordering::Relaxed);
            check!(found == turn, "in turn {turn} the counter is at {found}");
            counter.store(found + 1, Ordering::Relaxed);
            line.signal(turn + 1)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|n| scope.spawn(move || run(n))).collect();
        for thread in threads {
            join(thread)??;
        }
        check!(
            line.value()? == turns,
            "ended at {} of {turns}",
            line.value()?
        );
        Ok(())
    })
}

/// Half of the producers are queues and half are threads. Another thread polls all the time.
fn producers<S: Subject>(world: &World<S>) -> Verdict {
    const PRODUCERS: usize = 8;
    let rounds: u32 = if world.is_pair() { 20 } else { 100 };
    let go = world.timeline("go")?;
    let mut parts = Vec::new();
    for n in 0..PRODUCERS {
        let line = world.timeline(&format!("producer {n}"))?;
        let queue = world.left_queue(&format!("producer {n}"))?;
        parts.push((line, queue, world.left.buffer(1)?, AtomicU32::new(0)));
    }
    let produce = |n: usize| -> Verdict {
        let (line, queue, buffer, word) = &parts[n];
        for round in 1..=rounds {
            let value = u64::from(round);
            if n.is_multiple_of(2) {
                let work = filling::<S>(buffer, round);
                queue.submit(&[go.at(value)], work, &[line.signal_at(value)])?;
            } else {
                go.at(value).wait(patience())?;
                word.store(round, Ordering::Relaxed);
                line.signal(value)?;
            }
        }
        Ok(())
    };
    let over = AtomicBool::new(false);
    let poll = || -> Verdict {
        let mut last = [0; PRODUCERS];
        while !over.load(Ordering::Acquire) {
            for (last, (line, ..)) in last.iter_mut().zip(&parts) {
                let now = line.value()?;
                check!(now >= *last, "{line:?} went back from {last} to {now}");
                *last = now;
            }
            thread::yield_now();
        }
        Ok(())
    };
    let consume = || -> Verdict {
        for round in 1..=rounds {
            go.signal(round.into())?;
            let points: Vec<_> = parts
                .iter()
                .map(|(line, ..)| line.at(round.into()))
                .collect();
            wait_all(&points, patience())?;
            for (n, (line, _, buffer, word)) in parts.iter().enumerate() {
                let done = if n.is_multiple_of(2) {
                    is_filled::<S>(buffer, round)
                } else {
                    word.load(Ordering::Relaxed) == round
                };
                check!(
                    done && line.value()? == u64::from(round),
                    "round {round}: producer {n} is not through, or too far"
                );
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let poller = scope.spawn(poll);
        let produce = &produce;
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|n| scope.spawn(move || produce(n)))
            .collect();
        let consumed = consume();
        over.store(true, Ordering::Release);
        join(poller)??;
        for producer in producers {
            join(producer)??;
        }
        consumed
    })
}
