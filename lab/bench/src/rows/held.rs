//! Submissions that are held on the host until a value is signalled.

use std::ops::Range;
use std::time::Instant;

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, Error, Queue, QueueKind, Timeline};

use super::scale::compared;
use crate::heap;
use crate::lab::Lab;
use crate::limit::Limit;
use crate::machine::On;
use crate::row::{Call, LONG, Question, Row, Variant};
use crate::side::{OURS, Outcome, Side};
use crate::stats::median;

/// Number of queues that hold submissions, in a full run and in a short one.
const QUEUES: (usize, usize) = (1000, 50);

/// Held submissions of the smaller variant of `held.deep`, and of the larger one.
const FEWEST: u64 = 125_000;
const MOST: u64 = 1_000_000;

/// A short run of `held.deep` holds this many times fewer submissions.
const SHORTER: u64 = 1000;

/// How many times fewer are held for comparison.
const FEWER: u64 = 8;

/// Number of releases that are timed together.
const PART: u64 = 100;

/// Number of such parts. The other submissions are released at once afterwards.
const PARTS: u64 = 20;

const HOLD: u64 = 0;
const RELEASE: u64 = 1;

/// No driver holds submissions, so there is nothing to compare with. The limits say that the cost
/// does not grow with what is held.
const RAW: &str = "(no driver offers it)";

pub(super) const ROWS: &[Row] = &[
    Row {
        id: "held.wide",
        question: Question::Many,
        ours: "Each of 1000 queues (--quick: 50) holds one submission. It waits for a timeline that the host signals, and signals a timeline of its own. Timed are the 1000 submissions, or the one signal that releases them; per submission. eighth: the same with 125 queues",
        raw: RAW,
        limits: &[Limit::Figure("ratio_to_eighth", 1.5)],
        on: &[On::Host, On::Vulkan],
        variants: &[
            Variant::new("to hold", HOLD),
            Variant::new("to release", RELEASE),
        ],
        run: wide,
    },
    Row {
        id: "held.deep",
        question: Question::Many,
        ours: "as many submissions, over 1000 queues in turns, each of which waits for a value of its own of one timeline. The host signals these values one by one. One signal of the first 2000, each of which releases one submission; the rest is released at once, untimed. The same with an eighth of them, for comparison. (--quick: a thousandth of them, over 50 queues)",
        raw: RAW,
        limits: &[
            Limit::Figure("own_bytes_each", 256.0),
            // To hold takes somewhat longer once the lists no longer fit into the caches.
            Limit::Figure("hold_to_that_of_an_eighth", 1.5),
            Limit::Figure("release_to_that_of_an_eighth", 1.3),
        ],
        on: &[On::Host, On::Vulkan],
        variants: &[
            Variant::new("125 000 held", FEWEST),
            Variant::new("1 000 000 held", MOST),
        ],
        run: deep,
    },
    Row {
        id: "held.waits",
        question: Question::Many,
        ours: "one submission that waits for a value of each of N timelines, and the N signals of the host that release it, one by one; per wait",
        raw: RAW,
        limits: &[Limit::Within(1000.0)],
        on: &[On::Host],
        variants: &[
            Variant::new("8 waits", 8),
            Variant::new("64 waits", 64),
            Variant::new("1024 waits", 1024),
            Variant::new("4096 waits", 4096),
        ],
        run: waits,
    },
];

/// Queues that hold submissions until a value of one timeline is signalled.
struct Holds {
    gate: Timeline,
    queues: Vec<(Queue, Timeline)>,
    /// The last signalled value of `gate`. Only `held.deep` uses it.
    last: u64,
}

impl Holds {
    fn new(device: &Device, count: usize) -> Outcome<Self> {
        let queue = |_| -> Outcome<_> {
            let queue = device.queue(QueueKind::Compute, "one that holds")?;
            Ok((queue, device.timeline("done")?))
        };
        Ok(Self {
            gate: device.timeline("gate")?,
            queues: (0..count).map(queue).collect::<Outcome<_>>()?,
            last: 0,
        })
    }

    /// Holds a submission on a queue until `gate`. It then signals `done` on that queue's timeline.
    fn hold(&self, queue: usize, gate: u64, done: u64) -> Outcome<()> {
        let (queue, timeline) = &self.queues[queue];
        let signals = [timeline.signal_at(done)];
        queue.submit(&[self.gate.at(gate)], |_| Ok(()), &signals)?;
        Ok(())
    }

    fn wait(&self, queue: usize, done: u64) -> Outcome<()> {
        Ok(self.queues[queue].1.at(done).wait(LONG)?)
    }
}

/// Number of queues in this run.
const fn queues(lab: &Lab) -> usize {
    if lab.is_quick() { QUEUES.1 } else { QUEUES.0 }
}

fn wide(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.device(call.subject.indices[0])?;
    let (all, hold) = (queues(lab), call.n == HOLD);
    let all = Holds::new(&device, all)?;
    let eighth = Holds::new(&device, all.queues.len() / FEWER as usize)?;
    lab.race(vec![
        wide_side(OURS, &all, hold),
        wide_side("eighth", &eighth, hold),
    ])
}

/// Holds a submission on each queue and releases all of them. One of the two is timed.
fn wide_side<'h>(name: &'static str, holds: &'h Holds, hold: bool) -> Side<'h> {
    let count = holds.queues.len();
    // The submissions of a burst wait for the value after it, and signal that value.
    let begin = move |values: Range<u64>| {
        (0..count).try_for_each(|queue| holds.hold(queue, values.end, values.end))
    };
    let end = move |value| (0..count).try_for_each(|queue| holds.wait(queue, value));
    if hold {
        let drain = move |last| {
            holds.gate.signal(last + 1)?;
            end(last + 1)
        };
        Side::bursts(name, count as u64, |_| Ok(()), begin, drain)
    } else {
        let release = move |values: Range<u64>| Ok(holds.gate.signal(values.end)?);
        let drain = move |last| end(last + 1);
        Side::bursts(name, count as u64, begin, release, drain)
    }
}

/// Medians are taken of each of these lists.
#[derive(Default)]
struct Deep {
    /// Nanoseconds to hold one submission.
    hold: Vec<f64>,
    /// Nanoseconds to release one submission.
    release: Vec<f64>,
}

fn deep(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let short = lab.is_quick();
    let held = if short { call.n / SHORTER } else { call.n };
    let device = call.machine.device(call.subject.indices[0])?;
    let mut holds = Holds::new(&device, queues(lab))?;
    // A larger number takes longer and gives the same number of samples for each round.
    let rounds = (u64::from(lab.rounds()) / 10 * FEWEST / call.n).max(3);
    let [mut found, mut fewer] = [(); 2].map(|()| Deep::default());
    // Only on new queues does the heap grow by all that is held. This also warms up.
    let grown = heap::growth(|| (1..=held).try_for_each(|value| holds.hold_next(value)))?;
    lab.figure("own_bytes_each", grown / held as f64);
    holds.release_one_by_one(held, &mut Deep::default())?;
    // The order alternates, so that a machine that slows down does not matter.
    for round in 0..rounds {
        let mut pair = [(held / FEWER, &mut fewer), (held, &mut found)];
        if round % 2 == 1 {
            pair.reverse();
        }
        for (count, of) in pair {
            let (first, start) = (holds.last + 1, Instant::now());
            (first..first + count).try_for_each(|value| holds.hold_next(value))?;
            of.hold
                .push(start.elapsed().as_nanos() as f64 / count as f64);
            holds.release_one_by_one(count, of)?;
        }
    }
    lab.taken(&found.release);
    lab.figure("hold_ns", median(&found.hold).unwrap_or(f64::NAN));
    for (name, all, fewer) in [
        ("hold_to_that_of_an_eighth", &found.hold, &fewer.hold),
        (
            "release_to_that_of_an_eighth",
            &found.release,
            &fewer.release,
        ),
    ] {
        lab.figure(name, compared(all, fewer));
    }
    if short {
        let queues = holds.queues.len();
        lab.note(format!("a short run: {held} held over {queues} queues"));
    }
    Ok(())
}

impl Holds {
    /// The queue whose submission waits for `value`, and what that submission signals.
    fn place(&self, value: u64) -> (usize, u64) {
        let queues = self.queues.len() as u64;
        ((value % queues) as usize, value / queues + 1)
    }

    fn hold_next(&self, value: u64) -> Outcome<()> {
        let (queue, done) = self.place(value);
        self.hold(queue, value, done)
    }

    /// Releases `held` submissions, each of which waits for the next value.
    fn release_one_by_one(&mut self, held: u64, found: &mut Deep) -> Outcome<()> {
        // The last signal releases at least one submission.
        let part = PART.min(held / (2 * PARTS)).max(1);
        let (mut last, end) = (self.last, self.last + held);
        for _ in 0..PARTS.min(held / 2) {
            let values = last + 1..=last + part;
            let start = Instant::now();
            for value in values.clone() {
                self.gate.signal(value)?;
            }
            found
                .release
                .push(start.elapsed().as_nanos() as f64 / part as f64);
            for (queue, done) in values.map(|value| self.place(value)) {
                self.wait(queue, done)?;
            }
            last += part;
        }
        self.gate.signal(end)?;
        let all = (self.last + 1..=end).rev().take(self.queues.len());
        self.last = end;
        for (queue, done) in all.map(|value| self.place(value)) {
            self.wait(queue, done)?;
        }
        Ok(())
    }
}

/// One submission with `call.n` outstanding waits.
fn waits(call: &Call<'_>, lab: &mut Lab) -> Outcome<()> {
    let device = call.machine.device(call.subject.indices[0])?;
    let queue = device.queue(QueueKind::Compute, "one that holds")?;
    let done = device.timeline("done")?;
    let timelines = (0..call.n).map(|_| device.timeline("waited for"));
    let timelines = timelines.collect::<Result<Vec<_>, Error>>()?;
    lab.race(vec![Side::bursts(
        OURS,
        call.n,
        |_| Ok(()),
        |values| {
            let value = values.end;
            let points: Vec<_> = timelines.iter().map(|of| of.at(value)).collect();
            queue.submit(&points, |_| Ok(()), &[done.signal_at(value)])?;
            timelines.iter().try_for_each(|of| Ok(of.signal(value)?))
        },
        |last| Ok(done.at(last + 1).wait(LONG)?),
    )])
}
