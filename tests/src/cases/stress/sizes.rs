//! Q2, F6: a large chain and a large number of fences, and a repetition without new memory.

use std::thread;

use crate::blocked::join;
use crate::case::{Stop, Verdict, cases, check, note};
use crate::cases::{WORDS, is_filled, unless_pair};
use crate::footprint::grows_nothing;
use crate::user::wait_all;
use crate::{Subject, World, patience};

cases! {
    "stress.chain_of_32768": [Q2 H2] => chain;
    "stress.10000_fences_twice": [F6 H2 F3 T5] => fences;
}

/// The number of links of the chain.
///
/// Beside other programs on two cores, a device in software takes two milliseconds for a link.
fn links<S: Subject>(world: &World<S>) -> u64 {
    const FULL: usize = 32_768;
    const SOFTWARE: usize = 8192;
    if world.is_pair() || !world.left.info().software {
        return unless_pair(world, "links", FULL, 1024) as u64;
    }
    note(format!("{SOFTWARE} links instead of {FULL}"));
    SOFTWARE as u64
}

/// The stack of the thread that drops the chain. It has no space for a frame for each link.
const SMALL_STACK: usize = 256 << 10;

fn chain<S: Subject>(world: &World<S>) -> Verdict {
    const QUEUES: usize = 8;
    let links = links(world);
    let queues = world.queues(QUEUES)?;
    let buffer = world.left.buffer(WORDS)?;
    let mut round = 0;
    grows_nothing(|| {
        round += 1;
        let line = world.timeline("chain")?;
        for link in 1..=links {
            let queue = &queues[link as usize % QUEUES];
            let (waits, signals) = ([line.at(link)], [line.signal_at(link + 1)]);
            if link == links {
                world
                    .left_queue("last")?
                    .fill(&waits, &buffer, round, &signals)?;
            } else {
                queue.submit_empty(&waits, &signals)?;
            }
        }
        let held: usize = queues.iter().map(|queue| queue.held().count).sum();
        check!(
            held as u64 == links - 1 && line.value()? == 0,
            "{held} of {links} links are held behind the first"
        );
        thread::scope(|scope| {
            let builder = thread::Builder::new().stack_size(SMALL_STACK);
            let release = builder.spawn_scoped(scope, || line.signal(1));
            let release = release.or_else(|error| Stop::skip(format!("no thread: {error}")))?;
            join(release)??;
            Verdict::Ok(())
        })?;
        line.at(links + 1).wait(patience())?;
        check!(is_filled::<S>(&buffer, round), "the last link did no work");
        queues.iter().try_for_each(|queue| queue.idle(patience()))?;
        Ok(())
    })
}

/// The driver has half of the fences, while the device is blocked. The others are held.
fn fences<S: Subject>(world: &World<S>) -> Verdict {
    let count = 10_000;
    let queues = [
        world.left_queue("held")?,
        world.left_queue("with the driver")?,
    ];
    grows_nothing(|| {
        let line = world.timeline("gate")?;
        let stall = world.left.stall()?;
        queues[0].submit_empty(&[line.at(1)], &[])?;
        queues[1].block(&stall)?;
        let mut fences = Vec::with_capacity(count);
        for n in 0..count {
            let fence = world.left.fence("one of many");
            queues[n % 2].record(&fence)?;
            fences.push(fence);
        }
        for fence in &fences {
            check!(!fence.is_complete()?, "{fence:?} is complete behind a gate");
        }
        stall.release()?;
        line.signal(1)?;
        let points = fences.iter().map(|fence| fence.point());
        let points = points.collect::<syncline::Result<Vec<_>>>()?;
        let points: Vec<_> = points.iter().map(|point| point.point()).collect();
        wait_all(&points, patience())?;
        for fence in &fences {
            check!(fence.is_complete()?, "{fence:?} is not complete after all");
        }
        queues.iter().try_for_each(|queue| queue.idle(patience()))?;
        Ok(())
    })
}
