//! Round trips of two threads that are bound to one processor, or to one each.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use syncline::backend::Device as _;
use syncline::{Timeline, WaitMode};

use super::{Call, Floor, Row, Variant};
use crate::interrupts::AffinityGuard;
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::raw::channel::{Counter, Patience};
use crate::side::{OURS, Outcome, Side, Stop, timed};

/// Time-out of all waits.
const LONG: Duration = Duration::from_secs(20);

/// The side that waits with [`WaitMode::Block`].
const BLOCK: &str = "block";

const RATIO: &str = "ratio_to_block";

pub(super) const ROWS: &[Row] = &[Row {
    id: "wait.cores",
    ours: "two threads and two host timelines, there and back, with the default waits",
    raw: "a mutex and a condition variable for each way",
    floor: Floor::Unmeasured("it is compared with the waits that park at once"),
    limits: &[Limit::Figure(RATIO, 1.5)],
    on: &[On::Host],
    variants: &[
        Variant::new("both threads on one processor", 1),
        Variant::new("each on its own", 2),
    ],
    run,
}];

fn run(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let host = call.machine.host(call.subject)?;
    let _guard = AffinityGuard::new();
    let processors = processors(call.n)?;
    let race =
        || -> Outcome<[Timeline; 2]> { Ok([host.timeline("ping")?, host.timeline("pong")?]) };
    let sides = [WaitMode::Adaptive, WaitMode::Block, WaitMode::Spin].map(|mode| {
        let lines = race()?;
        let mut reached = 0;
        Ok(move |n| {
            let values = reached + 1..=reached + n;
            reached += n;
            round_trips(
                processors,
                values,
                |way, value| Ok(lines[way].signal(value)?),
                |way, value| Ok(lines[way].at(value).wait_with(mode, LONG)?),
            )
        })
    });
    let [adaptive, block, spin]: [Outcome<_>; 3] = sides;
    let counters = [Patience::NONE; 2].map(Counter::new);
    let mut reached = 0;
    lab.race(vec![
        Side::ours(adaptive?),
        Side::raw(|n| {
            let values = reached + 1..=reached + n;
            reached += n;
            round_trips(
                processors,
                values,
                |way, value| {
                    counters[way].signal(value);
                    Ok(())
                },
                |way, value| {
                    counters[way].wait(value);
                    Ok(())
                },
            )
        }),
        Side::new(BLOCK, block?),
        Side::new("spin", spin?),
    ])?;
    let median = |side| lab.median(side).unwrap_or(f64::NAN);
    lab.figure(RATIO, median(OURS) / median(BLOCK));
    Ok(())
}

/// Makes a round trip for each of the values. Returns the time since both threads were ready.
fn round_trips(
    [here, there]: [usize; 2],
    values: std::ops::RangeInclusive<u64>,
    signal: impl Fn(usize, u64) -> Outcome<()> + Sync,
    wait: impl Fn(usize, u64) -> Outcome<()> + Sync,
) -> Outcome<Duration> {
    let ready = Barrier::new(2);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let bound = bind(there);
            ready.wait();
            bound?;
            values.clone().try_for_each(|value| {
                wait(0, value)?;
                signal(1, value)
            })
        });
        let bound = bind(here);
        ready.wait();
        bound?;
        let time = timed(|| {
            values.clone().try_for_each(|value| {
                signal(0, value)?;
                wait(1, value)
            })
        })?;
        let ended = other.join();
        ended.map_err(|_| Stop::Failed("the other thread panicked".into()))??;
        Ok(time)
    })
}

/// The processors of the two threads.
fn processors(count: u64) -> Outcome<[usize; 2]> {
    let allowed = sched_getaffinity(None).map_err(std::io::Error::from)?;
    let mut all = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    match (all.next(), all.next()) {
        (Some(first), _) if count == 1 => Ok([first, first]),
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err(Stop::Skipped("there is one processor".into())),
    }
}

/// Binds the thread to a processor.
fn bind(processor: usize) -> Outcome<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    Ok(sched_setaffinity(None, &only).map_err(std::io::Error::from)?)
}
