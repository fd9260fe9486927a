//! Q1, Q2, Q9, T3: random graphs of submissions over all queues, checked against a model.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use crate::blocked::join;
use crate::case::{Verdict, cases, check};
use crate::dice::{Dice, seeds};
use crate::user::{Queue, Timeline};
use crate::{RecorderOf, Subject, World, patience};

cases! {
    "queue.random_dag_against_a_model": [Q1 Q2 Q9 T3 T2] => from_one_thread;
    "queue.random_dag_from_many_threads": [Q2 Q6 Q9] => from_many_threads;
}

/// Queues of each side.
const QUEUES: usize = 4;

/// Timelines.
const LINES: usize = 12;

/// Buffers of each side that the works fill and copy.
const BUFFERS: usize = 6;

/// Words of a buffer.
const WORDS: usize = 64;

/// A submission. The numbers of queues and buffers with the lowest bit 0 are the left side's.
#[derive(Debug)]
struct Op {
    queue: usize,
    /// Lines with their values.
    waits: Vec<(usize, u64)>,
    signals: Vec<(usize, u64)>,
    /// The source of a copy. `None` means that the work fills `to` with `value`.
    ///
    /// The source has `value` in the model. `to` has `before` until then.
    from: Option<usize>,
    to: usize,
    value: u32,
    before: u32,
    slow: bool,
}

impl Op {
    /// True if their order decides what the buffers hold.
    fn conflicts(&self, other: &Self) -> bool {
        let touches = |op: &Self, buffer| op.to == buffer || op.from == Some(buffer);
        touches(other, self.to) || self.from.is_some_and(|from| other.to == from)
    }
}

#[derive(Debug)]
struct Plan {
    /// The submissions in an order in which they may run.
    ops: Vec<Op>,
    /// The value of each buffer at the end.
    end: [u32; 2 * BUFFERS],
}

/// A set of submissions, by their numbers.
type Set = [u64; 4];

fn has(set: &Set, op: usize) -> bool {
    set[op / 64] >> (op % 64) & 1 == 1
}

fn add(set: &mut Set, other: &Set) {
    set.iter_mut()
        .zip(other)
        .for_each(|(word, other)| *word |= other);
}

/// Draws a graph of at most 256 submissions. `first` is the first value that is written.
fn plan(dice: &mut Dice, count: usize, first: u32) -> Plan {
    let mut ops: Vec<Op> = Vec::with_capacity(count);
    // For each submission: itself and all those that are done once it is.
    let mut covered: Vec<Set> = Vec::with_capacity(count);
    let mut signalled: Vec<Vec<(u64, usize)>> = vec![Vec::new(); LINES];
    let mut last_of = [None; 2 * QUEUES];
    let mut end = [0; 2 * BUFFERS];
    // Slow work shows waits that a driver forgets. Fast work leaves time for more graphs.
    let slow_ones = if dice.one_in(4) { 10 } else { 200 };
    for n in 0..count {
        let queue = dice.index(2 * QUEUES);
        let buffer = |dice: &mut Dice| 2 * dice.index(BUFFERS) + queue % 2;
        let (to, from) = (buffer(dice), buffer(dice));
        let from = (from != to && dice.one_in(2)).then_some(from);
        let value = from.map_or(first + n as u32, |from| end[from]);
        let before = std::mem::replace(&mut end[to], value);
        let mut op = Op {
            queue,
            waits: Vec::new(),
            signals: Vec::new(),
            from,
            to,
            value,
            before,
            slow: dice.one_in(slow_ones),
        };
        for _ in 0..1 + dice.below(2) {
            let line = dice.index(LINES);
            if op.signals.iter().any(|&(other, _)| other == line) {
                continue;
            }
            let before = signalled[line].last().map_or(0, |&(value, _)| value);
            // The wait leaves room for the signal before, which may be submitted later.
            op.waits.push((line, before));
            op.signals.push((line, before + 1 + dice.below(3)));
        }
        for _ in 0..dice.below(3) {
            let line = dice.index(LINES);
            let upto = signalled[line].last().map_or(0, |&(value, _)| value);
            op.waits.push((line, dice.below(upto + 1)));
        }
        let mut before = last_of[queue].map_or([0; 4], |last: usize| covered[last]);
        for &(line, value) in &op.waits {
            let signal = signalled[line].iter().find(|&&(signal, _)| signal >= value);
            if let Some(&(_, by)) = signal.filter(|_| value > 0) {
                add(&mut before, &covered[by]);
            }
        }
        // The nearest first, because what it covers needs no wait of its own.
        for earlier in (0..n).rev() {
            if ops[earlier].conflicts(&op) && !has(&before, earlier) {
                op.waits.push(ops[earlier].signals[0]);
                add(&mut before, &covered[earlier]);
            }
        }
        before[n / 64] |= 1 << (n % 64);
        for &(line, value) in &op.signals {
            signalled[line].push((value, n));
        }
        last_of[queue] = Some(n);
        covered.push(before);
        dice.shuffle(&mut op.waits);
        ops.push(op);
    }
    Plan { ops, end }
}

/// The objects on which the graphs of a world run.
struct Ground<'w, S: Subject> {
    world: &'w World<S>,
    queues: Vec<Queue<S>>,
    buffers: Vec<S::Buffer>,
    /// For each submission: the data that its buffer had before it.
    traces: [Vec<S::Buffer>; 2],
}

impl<'w, S: Subject> Ground<'w, S> {
    fn new(world: &'w World<S>, count: usize) -> syncline::Result<Self> {
        let queues = world.queues(2 * QUEUES)?;
        let buffers = (0..2 * BUFFERS).map(|n| world.side(n).buffer(WORDS));
        let traces = |side: usize| -> syncline::Result<Vec<_>> {
            (0..count).map(|_| world.side(side).buffer(WORDS)).collect()
        };
        let buffers = buffers.collect::<syncline::Result<_>>()?;
        let right = if world.is_pair() {
            traces(1)?
        } else {
            Vec::new()
        };
        Ok(Self {
            world,
            queues,
            buffers,
            traces: [traces(0)?, right],
        })
    }

    fn trace(&self, plan: &Plan, n: usize) -> &S::Buffer {
        let side = if self.world.is_pair() {
            plan.ops[n].queue % 2
        } else {
            0
        };
        &self.traces[side][n]
    }

    fn submit(&self, plan: &Plan, lines: &[Timeline<S>], n: usize) -> syncline::Result<()> {
        let op = &plan.ops[n];
        let waits: Vec<_> = op
            .waits
            .iter()
            .map(|&(line, value)| lines[line].at(value))
            .collect();
        let signals = op.signals.iter();
        let signals: Vec<_> = signals
            .map(|&(line, value)| lines[line].signal_at(value))
            .collect();
        let from = op.from.map(|from| self.buffers[from].clone());
        let (to, trace) = (self.buffers[op.to].clone(), self.trace(plan, n).clone());
        let (value, slow) = (op.value, op.slow);
        let side = self.world.side(op.queue);
        let device = side.clone();
        let work = move |recorder: &mut RecorderOf<'_, S>| {
            if slow {
                device.busy(recorder, Duration::from_millis(1))?;
            }
            // In this order the trace also shows work that runs twice.
            S::copy(recorder, &to, &trace)?;
            match from {
                Some(from) => S::copy(recorder, &from, &to),
                None => S::fill(recorder, &to, value),
            }
        };
        self.queues[op.queue].submit(&waits, work, &signals)?;
        Ok(())
    }

    /// Checks that everything is done, with the results of the model.
    fn compare(&self, plan: &Plan) -> Verdict {
        for queue in &self.queues {
            queue.idle(patience())?;
        }
        for (n, op) in plan.ops.iter().enumerate() {
            let words = S::read(self.trace(plan, n));
            check!(
                words.iter().all(|&word| word == op.before),
                "submission {n} found {} instead of {}: {op:?}",
                words[0],
                op.before
            );
        }
        for (n, (buffer, value)) in self.buffers.iter().zip(plan.end).enumerate() {
            let words = S::read(buffer);
            check!(
                words.iter().all(|&word| word == value),
                "buffer {n} ended with {} instead of {value}",
                words[0]
            );
        }
        Ok(())
    }
}

/// Runs graphs one after the other. Between them, the buffers are zeroed after the last work.
fn graphs<S: Subject>(
    world: &World<S>,
    run: impl Fn(&Ground<'_, S>, &Plan, &[Timeline<S>]) -> Verdict,
) -> Verdict {
    let (count, rounds) = if world.is_pair() { (80, 6) } else { (200, 16) };
    let ground = Ground::new(world, count)?;
    let mut first = 1;
    seeds(rounds, |dice| {
        let plan = plan(dice, count, first);
        // No two graphs write the same values.
        first += count as u32;
        for (n, buffer) in ground.buffers.iter().enumerate() {
            let work = crate::cases::filling::<S>(buffer, 0);
            ground.queues[n % 2].submit(&[], work, &[])?;
        }
        for queue in &ground.queues[..2] {
            queue.idle(patience())?;
        }
        run(&ground, &plan, &world.numbered(LINES, "line")?)
    })
}

/// Submits each queue's work in order, and always the queue whose next work is last in the graph.
///
/// So nearly all submissions are held until the end.
fn from_one_thread<S: Subject>(world: &World<S>) -> Verdict {
    graphs(world, |ground, plan, lines| {
        let mut rest: Vec<Vec<usize>> = vec![Vec::new(); 2 * QUEUES];
        for (n, op) in plan.ops.iter().enumerate().rev() {
            rest[op.queue].push(n);
        }
        while let Some(n) = rest.iter().filter_map(|queue| queue.last().copied()).max() {
            ground.submit(plan, lines, n)?;
            rest[plan.ops[n].queue].pop();
        }
        ground.compare(plan)
    })
}

fn from_many_threads<S: Subject>(world: &World<S>) -> Verdict {
    graphs(world, |ground, plan, lines| {
        let start = Barrier::new(2 * QUEUES);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..2 * QUEUES)
                .map(|queue| {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        let own = |&n: &usize| plan.ops[n].queue == queue;
                        (0..plan.ops.len())
                            .filter(own)
                            .try_for_each(|n| ground.submit(plan, lines, n))
                    })
                })
                .collect();
            for thread in threads {
                join(thread)??;
            }
            Verdict::Ok(())
        })?;
        ground.compare(plan)
    })
}
