//! Q1, Q6, T2, T5, T6: many threads that work together, with a known result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use crate::blocked::join;
use crate::case::{Verdict, cases, check, check_eq};
use crate::cases::filled;
use crate::user::Timeline;
use crate::{RecorderOf, Subject, World, patience};

cases! {
    "stress.submitters_of_one_queue": [Q1 Q6 T2] => submitters;
    "stress.relay_of_threads": [T6] => relay;
}

fn submitters<S: Subject>(world: &World<S>) -> Verdict {
    const THREADS: usize = 16;
    let each: u32 = if world.is_pair() { 40 } else { 250 };
    let queue = world.right_queue("shared by all")?;
    let go = world.timeline("go")?;
    // The first part is held. The rest goes to the driver at once.
    queue.submit_empty(&[go.at(1)], &[])?;
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
    check!(repeated.is_none());
    let last = queue.position();
    check_eq!(ends.last(), Some(&last.value()), "all {all}");
    last.wait(patience())?;
    for (n, part) in parts.iter().enumerate() {
        let ran = part.ran.load(Ordering::Relaxed);
        check_eq!(ran, each, "n {n}");
        filled::<S>(&part.buffer, each, format_args!("n {n}"))?;
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
        check_eq!(line.value()?, turns);
        Ok(())
    })
}
