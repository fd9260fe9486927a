//! H1: what is done once per frame or more often allocates nothing, on no thread of the process, once everything has
//! been done a few times.
//!
//! Counted is what Rust code allocates, on every device that is there; what drivers take for themselves is theirs.

use std::alloc::System;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use syncline::backend::{Device as _, Queue as _};
use syncline::{
    Device, Fence, Inventory, Point, ProbeOptions, Queue, QueueKind, Recorder, Result, Timeline,
    WaitMode, wait_all, wait_any,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// How often each operation is done before anything is counted, and then again.
const TIMES: u64 = 1000;

/// How often that is repeated, until two in a row have counted nothing: what is done for the first time may come late,
/// but a list that grows for ever grows in one of any two.
const WINDOWS: u64 = 5;

const PATIENCE: Duration = Duration::from_secs(10);

/// What the operations work on.
struct Bench {
    left: Queue,
    right: Queue,
    line: Timeline,
    gate: Timeline,
    fence: Fence,
    timed: [Fence; 2],
}

impl Bench {
    fn new(device: &Device) -> Result<Self> {
        let bench = Self {
            left: device.queue(QueueKind::Compute, "left")?,
            right: device.queue(QueueKind::Compute, "right")?,
            line: device.timeline("line")?,
            gate: device.timeline("gate")?,
            fence: device.fence("fence"),
            timed: [device.timed_fence("start"), device.timed_fence("end")],
        };
        bench.start()?;
        Ok(bench)
    }

    /// Starts every thread there will be, and parks a wait everywhere: what follows waits mostly in vain for a
    /// reason to park, and then for a first time in the middle of it.
    fn start(&self) -> Result<()> {
        let gate = self.left.device().timeline("start")?;
        for (value, of) in [(1, &self.line), (2, &self.gate)] {
            for queue in [&self.left, &self.right] {
                queue.submit(&[gate.at(value)], work(0), &[])?;
            }
            self.left
                .submit(&[gate.at(value)], work(0), &[of.signal_at(1)])?;
            let positions = [of.at(1), self.left.position(), self.right.position()];
            std::thread::scope(|scope| {
                let waiters = positions
                    .map(|point| scope.spawn(move || point.wait_with(WaitMode::Block, PATIENCE)));
                std::thread::sleep(Duration::from_millis(2));
                gate.signal(value)?;
                for waiter in waiters {
                    let waited = waiter.join();
                    waited.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                }
                Ok::<_, syncline::Error>(())
            })?;
        }
        Ok(())
    }
}

/// A closure's captures of 64 bytes for a host worker; elsewhere the submission is empty.
fn work(
    number: u64,
) -> impl for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()> + Send + 'static {
    let captured = [number; 8];
    move |recorder: &mut Recorder<'_>| {
        if let Recorder::Host(recorder) = recorder {
            recorder.run(move || {
                black_box(captured);
            });
        }
        Ok(())
    }
}

/// One of the things that must not allocate; it is given its number, from 1.
type Operation = fn(&Bench, u64) -> Result<()>;

const OPERATIONS: [(&str, Operation); 11] = [
    ("signal", |bench, n| bench.line.signal(n)),
    ("query", |bench, n| {
        bench.line.signal(n)?;
        black_box(bench.line.value()?);
        black_box(bench.line.at(n + 1).is_reached()?);
        black_box(bench.line.at(n + 1).is_pending()?);
        black_box(bench.fence.is_complete()?);
        Ok(())
    }),
    ("submit", |bench, n| {
        let line = &bench.line;
        bench
            .left
            .submit(&[line.at(n - 1)], work(n), &[line.signal_at(n)])?;
        line.at(n).wait(PATIENCE)
    }),
    ("submit_to_two_queues", |bench, n| {
        let line = &bench.line;
        let (a, b) = (2 * n - 2, 2 * n - 1);
        bench
            .left
            .submit(&[line.at(a - 1)], work(n), &[line.signal_at(a)])?;
        bench
            .right
            .submit(&[line.at(a)], work(n), &[line.signal_at(b)])?;
        line.at(b).wait(PATIENCE)
    }),
    ("submit_before_the_signal", |bench, n| {
        let (line, gate) = (&bench.line, &bench.gate);
        bench
            .left
            .submit(&[gate.at(n)], work(n), &[line.signal_at(n)])?;
        gate.signal(n)?;
        line.at(n).wait(PATIENCE)
    }),
    ("submit_the_consumer_first", |bench, n| {
        let line = &bench.line;
        let (a, b) = (2 * n - 2, 2 * n - 1);
        bench
            .right
            .submit(&[line.at(a)], work(n), &[line.signal_at(b)])?;
        bench.left.submit(&[], work(n), &[line.signal_at(a)])?;
        line.at(b).wait(PATIENCE)
    }),
    ("wait_parked", |bench, n| {
        let (line, gate) = (&bench.line, &bench.gate);
        bench
            .left
            .submit(&[gate.at(n)], work(n), &[line.signal_at(n)])?;
        gate.signal(n)?;
        line.at(n).wait_with(WaitMode::Block, PATIENCE)
    }),
    ("wait_for_several", |bench, n| {
        let (line, gate) = (&bench.line, &bench.gate);
        bench
            .left
            .submit(&[], work(n), &[line.signal_at(n), gate.signal_at(n)])?;
        wait_any(&[line.at(n), gate.at(n)], PATIENCE)?;
        wait_all(&[line.at(n), gate.at(n), Point::EMPTY], PATIENCE)
    }),
    ("record", |bench, _| {
        bench.left.record(&bench.fence)?;
        bench.right.wait(&bench.fence)?;
        bench.fence.wait(PATIENCE)?;
        bench.right.idle(PATIENCE)
    }),
    ("record_with_time", |bench, n| {
        let [start, end] = &bench.timed;
        bench.left.record(start)?;
        bench.left.submit(&[], work(n), &[])?;
        bench.left.record(end)?;
        end.wait(PATIENCE)?;
        black_box(end.elapsed_since(start)?);
        Ok(())
    }),
    ("keep", |bench, _| {
        let kept = bench.fence.clone();
        let kept: Arc<dyn std::any::Any + Send + Sync> = KEPT.with(|object| {
            drop(kept);
            object.clone()
        });
        let keep = move |recorder: &mut Recorder<'_>| {
            recorder.keep(kept);
            Ok(())
        };
        bench.left.submit(&[], keep, &[])?;
        bench.left.idle(PATIENCE)
    }),
];

thread_local! {
    static KEPT: Arc<dyn std::any::Any + Send + Sync> = Arc::new(0_u64);
}

fn allocates_nothing(device: &Device, operation: Operation) -> std::result::Result<(), Failed> {
    let bench = Bench::new(device)?;
    // 1 is reached.
    let mut next = 2;
    let mut window = || {
        let region = Region::new(ALLOCATOR);
        for n in next..next + TIMES {
            operation(&bench, n)?;
        }
        next += TIMES;
        let counted = region.change();
        Ok::<_, syncline::Error>((counted.allocations, counted.reallocations))
    };
    window()?;
    let mut all = Vec::new();
    for _ in 0..WINDOWS {
        all.push(window()?);
        if all.ends_with(&[(0, 0); 2]) {
            return Ok(());
        }
    }
    Err(format!("allocations and reallocations for every {TIMES} times: {all:?}").into())
}

fn main() -> ExitCode {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let mut trials = Vec::new();
    for found in inventory.devices() {
        let device = found.open();
        let name = format!("{} {}", found.info().backend, found.info().name);
        for (what, operation) in OPERATIONS {
            let device = device.clone();
            let trial = Trial::ignorable_test(what, move || match &device {
                Ok(device) => match allocates_nothing(device, operation) {
                    Err(failed) => Err(failed),
                    Ok(()) => Ok(libtest_mimic::Completion::Completed),
                },
                Err(reason) => Ok(libtest_mimic::Completion::ignored_with(reason.to_string())),
            });
            trials.push(trial.with_kind(name.clone()));
        }
    }
    let mut arguments = Arguments::from_args();
    // Everybody's allocations are counted.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}
