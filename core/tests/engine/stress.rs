//! Random graphs of submissions over several host devices, checked against a model of their order.
//!
//! Several threads submit, with failures and early drops.
//! `SYNCLINE_STRESS_SECONDS` sets the time, and `SYNCLINE_STRESS_SEED` repeats one round.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::host::{Device, Queue};
use syncline_core::{Error, KeptPoint, Point, QueueKind, Signal, Timeline, WaitMode};

const LONG: Duration = Duration::from_secs(20);
const DEVICES: usize = 3;
const QUEUES: usize = 6;
const LINES: usize = 7;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }

    fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Fine,
    RecordFails,
    JobPanics,
    FailedFromOutside,
}

/// One planned submission.
struct Op {
    queue: usize,
    /// (line, value)
    waits: Vec<(usize, u64)>,
    signals: Vec<(usize, u64)>,
    gate: u64,
    fate: Fate,
    nested: bool,
}

struct Plan {
    initial: Vec<u64>,
    ops: Vec<Op>,
    /// The signals of each line as (value, op), with rising values.
    history: Vec<Vec<(u64, usize)>>,
    gates: u64,
    /// The gate is dropped at this value, so that later waits for it are cancelled.
    gate_dropped_at: Option<u64>,
    drop_queues: bool,
    drop_lines: bool,
}

fn plan(random: &mut Random) -> Plan {
    let count = 20 + random.index(60);
    let failures = random.one_in(2);
    let gates = random.below(6);
    let initial: Vec<u64> = (0..LINES)
        .map(|_| match random.below(3) {
            0 => 0,
            1 => random.below(1000),
            // The last signals may come near the largest value.
            _ => u64::MAX - 1 - 3 * count as u64,
        })
        .collect();
    let mut last = initial.clone();
    let mut history: Vec<Vec<(u64, usize)>> = vec![Vec::new(); LINES];
    let mut ops = Vec::with_capacity(count);
    for n in 0..count {
        let queue = random.index(QUEUES);
        let (mut waits, mut signals) = (Vec::new(), Vec::new());
        for _ in 0..random.below(4) {
            let line = random.index(LINES);
            let skipped = random.below(3);
            // Any value up to the last, also one between two signals.
            waits.push((line, last[line].saturating_sub(skipped)));
        }
        for _ in 0..random.below(3) {
            let line = random.index(LINES);
            if signals.iter().any(|&(taken, _)| taken == line) {
                continue;
            }
            // The submission waits for the last value itself, so its claim begins above it.
            // Another thread may submit the signal of that value later.
            waits.push((line, last[line]));
            last[line] += 1 + random.below(3);
            signals.push((line, last[line]));
            history[line].push((last[line], n));
        }
        let fate = match failures.then(|| random.below(25)) {
            Some(0) => Fate::RecordFails,
            Some(1) => Fate::JobPanics,
            Some(2) => Fate::FailedFromOutside,
            _ => Fate::Fine,
        };
        ops.push(Op {
            queue,
            waits,
            signals,
            gate: random.below(gates + 1),
            fate,
            nested: random.one_in(8),
        });
    }
    Plan {
        initial,
        ops,
        history,
        gates,
        gate_dropped_at: (failures && random.one_in(3)).then(|| random.below(gates + 1)),
        drop_queues: random.one_in(2),
        drop_lines: random.one_in(2),
    }
}

/// The plan and the state of its execution.
struct World {
    plan: Plan,
    ran: Vec<AtomicU32>,
    done: Vec<AtomicBool>,
    gate: AtomicU64,
    wrong: AtomicBool,
}

impl World {
    fn harmed(&self) -> bool {
        self.plan.gate_dropped_at.is_some() || self.plan.ops.iter().any(|op| op.fate != Fate::Fine)
    }

    /// T3: all submissions that signal a value up to a reached one have run.
    fn check_reached(&self, line: usize, value: u64) {
        for &(signalled, op) in &self.plan.history[line] {
            // A value between two signals is reached by the later one.
            if signalled <= value && !self.done[op].load(Ordering::SeqCst) {
                self.wrong.store(true, Ordering::SeqCst);
                eprintln!("line {line} at {value}, but {signalled} (op {op}) is not done");
            }
        }
    }

    fn job(&self, n: usize) {
        let op = &self.plan.ops[n];
        if self.ran[n].fetch_add(1, Ordering::SeqCst) != 0 {
            self.wrong.store(true, Ordering::SeqCst);
        }
        for &(line, value) in &op.waits {
            self.check_reached(line, value);
        }
        if self.gate.load(Ordering::SeqCst) < op.gate {
            self.wrong.store(true, Ordering::SeqCst);
        }
        assert!(op.fate != Fate::JobPanics, "injected panic");
        self.done[n].store(true, Ordering::SeqCst);
    }
}

fn injected() -> Error {
    Error::work(std::io::Error::other("injected"))
}

fn submit(
    world: &Arc<World>,
    n: usize,
    queues: &[Queue],
    lines: &[Timeline],
    gate: &KeptPoint,
    kept: &Arc<()>,
) {
    let op = &world.plan.ops[n];
    if op.fate == Fate::FailedFromOutside
        && let Some(&(line, _)) = op.signals.first()
    {
        lines[line].fail(injected());
    }
    let mut waits: Vec<Point<'_>> = op.waits.iter().map(|&(l, v)| lines[l].at(v)).collect();
    waits.push(gate.point());
    let signals: Vec<Signal<'_>> = op
        .signals
        .iter()
        .map(|&(l, v)| lines[l].signal_at(v))
        .collect();
    let (inside, token) = (world.clone(), kept.clone());
    let other = op.nested.then(|| queues[(op.queue + 1) % QUEUES].clone());
    let submitted = queues[op.queue].submit(
        &waits,
        move |recorder| {
            if let Some(other) = other {
                other.submit(&[], |_| Ok(()), &[])?;
            }
            if inside.plan.ops[n].fate == Fate::RecordFails {
                return Err(injected());
            }
            recorder.keep(token);
            recorder.run(move || inside.job(n));
            Ok(())
        },
        &signals,
    );
    if let Err(error) = submitted {
        let fair = matches!(error, Error::Work(_) | Error::Failed { .. }) && world.harmed();
        assert!(fair, "op {n}: {error}");
        for &(line, _) in &op.signals {
            lines[line].fail(error.clone());
        }
    }
}

fn round(seed: u64) {
    let mut random = Random(seed | 1);
    // The first few numbers of small seeds are similar.
    (0..4).for_each(|_| _ = random.below(2));
    let plan = plan(&mut random);
    let count = plan.ops.len();
    let world = Arc::new(World {
        ran: (0..count).map(|_| AtomicU32::new(0)).collect(),
        done: (0..count).map(|_| AtomicBool::new(false)).collect(),
        gate: AtomicU64::new(0),
        wrong: AtomicBool::new(false),
        plan,
    });
    let plan = &world.plan;
    let devices: Vec<Device> = (0..DEVICES).map(|_| Device::new()).collect();
    let queues: Vec<Queue> = (0..QUEUES)
        .map(|q| devices[q % DEVICES].queue(QueueKind::Compute, "q").unwrap())
        .collect();
    let lines: Vec<Timeline> = (0..LINES)
        .map(|l| {
            let home = &devices[random.index(DEVICES)];
            home.timeline_from(&format!("line {l}"), plan.initial[l])
                .unwrap()
        })
        .collect();
    let gate = devices[0].timeline("gate").unwrap();
    let gates: Vec<KeptPoint> = (0..=plan.gates).map(|v| gate.at(v).keep()).collect();
    let points: Vec<(usize, u64, KeptPoint)> = plan
        .history
        .iter()
        .enumerate()
        .flat_map(|(l, signals)| signals.iter().map(move |&(v, _)| (l, v)))
        .map(|(l, v)| (l, v, lines[l].at(v).keep()))
        .collect();
    let kept = Arc::new(());

    let mut positions: Vec<KeptPoint> = Vec::new();
    std::thread::scope(|scope| {
        // Each thread has two queues and submits to each in the order of the plan.
        let submitters: Vec<_> = (0..QUEUES / 2)
            .map(|t| {
                let (world, gates, kept) = (&world, &gates, &kept);
                let (queues, lines) = (queues.clone(), lines.clone());
                scope.spawn(move || {
                    for (n, op) in world.plan.ops.iter().enumerate() {
                        if op.queue / 2 == t {
                            let at = usize::try_from(op.gate).unwrap();
                            submit(world, n, &queues, &lines, &gates[at], kept);
                        }
                    }
                })
            })
            .collect();
        let (world, points) = (&world, &points);
        scope.spawn(move || {
            for value in 1..=world.plan.gates {
                if world.plan.gate_dropped_at == Some(value) {
                    break;
                }
                std::thread::yield_now();
                world.gate.store(value, Ordering::SeqCst);
                gate.signal(value).unwrap();
            }
        });
        // Two threads wait for all points, from both ends and in two modes.
        for mode in [WaitMode::Adaptive, WaitMode::Block] {
            scope.spawn(move || {
                let mut turn: Vec<_> = points.iter().collect();
                if mode == WaitMode::Block {
                    turn.reverse();
                }
                for (line, value, point) in turn {
                    match point.point().wait_with(mode, LONG) {
                        Ok(()) => world.check_reached(*line, *value),
                        Err(error) => assert!(
                            world.harmed() && !error.is_timeout(),
                            "seed {seed}: line {line} at {value}: {error}"
                        ),
                    }
                }
            });
        }
        for submitter in submitters {
            submitter.join().unwrap();
        }
        positions.extend(queues.iter().map(|queue| queue.position().keep()));
        if plan.drop_lines {
            drop(lines);
        }
        if plan.drop_queues {
            drop(queues);
        } else {
            // Each queue twice, because work of one queue may have submitted to another.
            for queue in queues.iter().chain(&queues) {
                queue.idle(LONG).unwrap();
            }
            assert!(queues.iter().all(|queue| queue.held().count == 0));
        }
    });
    for position in &positions {
        position.point().wait(LONG).unwrap();
    }
    assert!(!world.wrong.load(Ordering::SeqCst), "seed {seed}");
    if !world.harmed() {
        for ran in &world.ran {
            assert_eq!(ran.load(Ordering::SeqCst), 1, "seed {seed}");
        }
    }
    drop((positions, points, gates));
    // The workers drop the last objects just after their positions are reached.
    let until = Instant::now() + LONG;
    while Arc::strong_count(&kept) > 1 || Arc::strong_count(&world) > 1 {
        assert!(Instant::now() < until, "seed {seed}: something leaks");
        std::thread::yield_now();
    }
}

#[test]
fn random_graphs_keep_their_order_and_leak_nothing() {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    if let Some(seed) = number("SYNCLINE_STRESS_SEED") {
        return round(seed);
    }
    let hook = std::panic::take_hook();
    // The injected panics would flood the output.
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"injected panic") {
            hook(info);
        }
    }));
    let seconds = number("SYNCLINE_STRESS_SECONDS").unwrap_or(2);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut seed = 0x5DEE_CE66_D1CE;
    let mut rounds = 0;
    while Instant::now() < until {
        seed = Random(seed).below(1 << 31) ^ (seed << 1);
        round(seed);
        rounds += 1;
    }
    println!("{rounds} rounds");
}
