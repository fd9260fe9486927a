//! Very many outstanding points.

use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Instant;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, QueueKind, Timeline, wait::future};
use syncline_conformance::Subject as _;
use syncline_conformance::workload::Equipped;

use crate::heap;
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::processor::UndisturbedRounds;
use crate::row::{Call, LONG, Question, Row, Variant, close};
use crate::side::{Outcome, Stop};
use crate::stats::median;

/// Outstanding points, and their number in a short run.
const MANY: (u64, u64) = (100_000, 10_000);
/// The number that this is compared with.
const FEW: u64 = 100;

/// Number of measured signals. There are ten times as many queries.
const TAKEN: u64 = 1000;

/// Number of parts of a measurement. The median of the parts is its result.
///
/// So interrupts, which fall into a few parts, do not count.
const PARTS: u64 = 20;

const SIGNALS: u64 = 0;
const WAITS: u64 = 1;

pub(super) const ROWS: &[Row] = &[Row {
    id: "scale.outstanding",
    question: Question::Many,
    ours: "100 000 outstanding points (--quick: 10 000) on one timeline: signals of submissions behind a closed gate (submissions above the bound of the driver are held on the host), or waits of futures; the time is that of one more signal",
    raw: "(no driver offers it)",
    limits: &[
        Limit::Figure("own_bytes_each", 256.0),
        // Two measurements of the same quantity differ by up to this factor.
        Limit::Figure("signal_to_that_with_100", 1.3),
        Limit::Figure("query_to_that_with_100", 1.3),
    ],
    on: &[On::Each],
    variants: &[
        Variant::new("signals", SIGNALS),
        Variant::new("waits", WAITS),
    ],
    run: outstanding,
}];

/// Costs while so many points are outstanding.
#[derive(Default)]
struct Like {
    bytes: Vec<f64>,
    signal: Vec<f64>,
    query: Vec<f64>,
    /// Submissions that the engine holds.
    held: usize,
}

fn outstanding(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let index = call.subject.indices[0];
    let equipped = call.machine.equipped(index)?;
    let device = equipped.device().clone();
    let (mut few, mut many) = (Like::default(), Like::default());
    let count_of_many = if lab.is_quick() { MANY.1 } else { MANY.0 };
    // Pairs of measurements are compared, and their order alternates, so that a machine that slows
    // down does not matter.
    let rounds = lab.rounds().div_ceil(6);
    let mut undisturbed = lab.undisturbed_rounds();
    for round in 0..rounds {
        let mut pair = [(&mut few, FEW), (&mut many, count_of_many)];
        if round % 2 == 1 {
            pair.reverse();
        }
        for (like, count) in pair {
            if call.n == WAITS {
                waits(&device, count, like, &mut undisturbed)?;
            } else {
                signals(&equipped, &device, count, like, &mut undisturbed)?;
            }
        }
    }
    let of = |samples: &[f64]| median(samples).unwrap_or(f64::NAN);
    lab.figure("own_bytes_each", of(&many.bytes) / count_of_many as f64);
    if call.n == SIGNALS {
        lab.figure("held", many.held as f64);
    }
    lab.figure("signal_with_100_ns", of(&few.signal));
    lab.figure("query_ns", of(&many.query));
    lab.figure("query_with_100_ns", of(&few.query));
    lab.figure(
        "signal_to_that_with_100",
        compared(&many.signal, &few.signal),
    );
    lab.figure("query_to_that_with_100", compared(&many.query, &few.query));
    lab.taken(&many.signal);
    Ok(())
}

/// The median ratio of measurements that were made in pairs.
pub(super) fn compared(ones: &[f64], others: &[f64]) -> f64 {
    let ratios = ones.iter().zip(others).map(|(one, other)| one / other);
    median(&ratios.collect::<Vec<_>>()).unwrap_or(f64::NAN)
}

/// Nanoseconds of one of `count` operations. `go` does as many as its argument says.
///
/// Waits for a core that nothing else uses. Not repeated on a shared one, because that would change
/// what is outstanding.
fn cost(
    rounds: &mut UndisturbedRounds,
    count: u64,
    mut go: impl FnMut(u64) -> Outcome<()>,
) -> Outcome<f64> {
    let each = count / PARTS;
    rounds.wait();
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        let start = Instant::now();
        go(each)?;
        parts.push(start.elapsed().as_nanos() as f64 / each as f64);
    }
    Ok(median(&parts).unwrap_or(f64::NAN))
}

fn query(timeline: &Timeline, rounds: &mut UndisturbedRounds) -> Outcome<f64> {
    cost(rounds, 10 * TAKEN, |each| {
        for _ in 0..each {
            black_box(black_box(timeline).value()?);
        }
        Ok(())
    })
}

fn signals(
    equipped: &Equipped,
    device: &Device,
    count: u64,
    like: &mut Like,
    rounds: &mut UndisturbedRounds,
) -> Outcome<()> {
    let queue = device.queue(QueueKind::Compute, "behind a gate")?;
    let timeline = device.timeline("far behind")?;
    let latch = close(equipped, &queue)?;
    let submit = |values: std::ops::RangeInclusive<u64>| -> Outcome<()> {
        for value in values {
            queue.submit(&[], |_| Ok(()), &[timeline.signal_at(value)])?;
        }
        Ok(())
    };
    let measured = (|| {
        like.bytes.push(heap::growth(|| submit(1..=count))?);
        like.held = queue.held().count;
        like.query.push(query(&timeline, rounds)?);
        let mut last = count;
        like.signal.push(cost(rounds, TAKEN, |each| {
            last += each;
            submit(last - each + 1..=last)
        })?);
        Ok(())
    })();
    // Also after a failure, because a queue behind a closed gate never ends.
    Equipped::open(&latch)?;
    let ended = queue.idle(LONG);
    measured.and_then(|measured| Ok(ended.map(|()| measured)?))
}

fn waits(
    device: &Device,
    count: u64,
    like: &mut Like,
    rounds: &mut UndisturbedRounds,
) -> Outcome<()> {
    let timeline = device.timeline("waited for")?;
    let above = 1_000_000;
    let mut futures: Vec<Pin<Box<future::WaitAll>>> = (0..count)
        .map(|number| Box::pin(future::all(&[timeline.at(above + number)])))
        .collect();
    like.bytes.push(heap::growth(|| {
        let mut context = Context::from_waker(Waker::noop());
        let mut futures = futures.iter_mut();
        match futures.any(|waiting| waiting.as_mut().poll(&mut context).is_ready()) {
            true => Err(Stop::Failed("a wait ended without a signal".into())),
            false => Ok(()),
        }
    })?);
    like.query.push(query(&timeline, rounds)?);
    let mut last = 0;
    like.signal.push(cost(rounds, TAKEN, |each| {
        for value in last + 1..=last + each {
            timeline.signal(value)?;
        }
        last += each;
        Ok(())
    })?);
    Ok(())
}
