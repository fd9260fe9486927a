//! H1: operations of each frame allocate nothing, on no thread of the process, unless they hold.
//!
//! That holds after they have been done a few times, on every device of the machine. Allocations of
//! Rust code are counted, and those of drivers are not.

use std::alloc::System;
use std::process::ExitCode;
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use syncline::backend::{Device as _, Queue as _};
use syncline::clock::{Map, Sample};
use syncline::info::BackendKind;
use syncline::{Device, Inventory, ProbeOptions, QueueKind, Recorder, WaitMode};
use syncline_conformance::steady::{self, ACQUIRES, ALLOCATES, OPERATIONS, Operation, TIMES};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than the spinning part of a wait.
const A_WHILE: Duration = Duration::from_millis(20);

fn so_far() -> u64 {
    let stats = ALLOCATOR.stats();
    (stats.allocations + stats.reallocations) as u64
}

fn allocates_no_more(device: &Device, operation: Operation) -> Result<(), Failed> {
    let counted = steady::count(device, operation, operation.most, &so_far)?;
    if counted.is_within(operation.most) {
        return Ok(());
    }
    let windows = counted.windows();
    Err(format!("allocations and reallocations for every {TIMES} times: {windows:?}").into())
}

/// The negative control: an operation that allocates each time is found.
fn one_that_allocates_is_caught(device: &Device) -> Result<(), Failed> {
    match allocates_no_more(device, ALLOCATES) {
        Err(failed) if steady::count(device, ALLOCATES, 0, &so_far)?.each() >= 1.0 => {
            println!("caught: {}", failed.message().unwrap_or_default());
            Ok(())
        }
        other => Err(format!("an operation that allocates is not caught: {other:?}").into()),
    }
}

/// A worker waits for another queue, and parks for the first time long after its start.
fn the_first_park_of_a_worker(device: &Device) -> Result<(), Failed> {
    let [left, right] = ["left", "right"].map(|label| device.queue(QueueKind::Compute, label));
    let (left, right, line) = (left?, right?, device.timeline("line")?);
    // This thread parks, and the timeline registers a wait, before anything is counted.
    let waited = line.at(1).wait_with(WaitMode::Block, A_WHILE);
    assert!(waited.is_err(), "nothing has signalled");
    let pass = |n: u64, time: Duration| -> Result<(), Failed> {
        let work = move |recorder: &mut Recorder<'_>| {
            #[allow(
                irrefutable_let_patterns,
                reason = "refutable with more than one backend"
            )]
            if let Recorder::Host(recorder) = recorder {
                recorder.run(move || std::thread::sleep(time));
            }
            Ok(())
        };
        left.submit(&[], work, &[line.signal_at(2 * n - 1)])?;
        if time.is_zero() {
            // The worker of the second queue finds the value reached.
            line.at(2 * n - 1).wait_with(WaitMode::Block, PATIENCE)?;
        }
        right.submit(&[line.at(2 * n - 1)], |_| Ok(()), &[line.signal_at(2 * n)])?;
        Ok(line.at(2 * n).wait_with(WaitMode::Block, PATIENCE)?)
    };
    for n in 1..=TIMES {
        pass(n, Duration::ZERO)?;
    }
    let before = so_far();
    // The worker of the second queue has to wait.
    pass(TIMES + 1, A_WHILE)?;
    match so_far() - before {
        0 => Ok(()),
        some => Err(format!("{some} allocations").into()),
    }
}

/// Submissions that wait natively for another device, which the engine notes (E3).
fn waits_for_another_device(left: &Device, right: &Device) -> Result<Completion, Failed> {
    let link = match syncline::share(left, right) {
        Ok(link) => link,
        Err(conflict) => return Ok(Completion::ignored_with(conflict.to_string())),
    };
    let line = link.timeline("line")?;
    let queues = [left, right].map(|device| device.queue(QueueKind::Compute, "queue"));
    let [left, right] = queues;
    let queues = [left?, right?];
    let window = |from: u64| -> Result<u64, Failed> {
        let before = so_far();
        for value in from..from + TIMES {
            let queue = &queues[(value % 2) as usize];
            queue.submit(&[line.at(value - 1)], |_| Ok(()), &[line.signal_at(value)])?;
            // A few are in flight, so most find their wait pending.
            line.at(value.saturating_sub(16)).wait(PATIENCE)?;
        }
        line.at(from + TIMES - 1).wait(PATIENCE)?;
        Ok(so_far() - before)
    };
    let mut windows = Vec::with_capacity(20);
    for at in 0..20 {
        windows.push(window(at * TIMES + 1)?);
        if windows.ends_with(&[0, 0]) {
            return Ok(Completion::Completed);
        }
    }
    Err(format!("allocations and reallocations for every {TIMES} times: {windows:?}").into())
}

/// Samples of a clock are taken during the whole life of a device. They are no operation.
fn samples_of_a_clock() -> Result<(), Failed> {
    let mut map = Map::default();
    let mut take_in = |times: std::ops::Range<i64>| {
        for at in times.map(|time| time * 100_000_000) {
            map.add(Sample::between(at, at, at + 100));
        }
    };
    // The first sample allocates memory for all that are kept.
    take_in(0..1);
    let before = so_far();
    take_in(1..1000);
    match so_far() - before {
        0 => Ok(()),
        some => Err(format!("{some} allocations").into()),
    }
}

fn main() -> ExitCode {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let mut trials = Vec::new();
    for found in inventory.devices() {
        let device = found.open();
        let name = format!("{} {}", found.info().backend, found.info().name);
        for operation in OPERATIONS {
            let device = device.clone();
            let trial = Trial::ignorable_test(operation.name, move || match &device {
                Ok(device) => allocates_no_more(device, operation).map(|()| Completion::Completed),
                Err(reason) => Ok(Completion::ignored_with(reason.to_string())),
            });
            trials.push(trial.with_kind(name.clone()));
        }
        #[cfg(feature = "cuda")]
        if found.info().backend == BackendKind::Cuda {
            let device = device.clone();
            let test = move || allocates_no_more(&device?, steady::LAUNCHES);
            let trial = Trial::test(steady::LAUNCHES.name, test);
            trials.push(trial.with_kind(name.clone()));
        }
        if found.info().backend == BackendKind::Vulkan {
            let first = device.clone();
            let test = move || allocates_no_more(&first?, ACQUIRES);
            let trial = Trial::test(ACQUIRES.name, test);
            trials.push(trial.with_kind(name.clone()));
            let second = found.open();
            let test = move || waits_for_another_device(&device?, &second?);
            trials.push(Trial::ignorable_test("waits_for_another_device", test).with_kind(name));
        } else if let Ok(host) = device
            && matches!(host, Device::Host(_))
        {
            let same = host.clone();
            let test = move || one_that_allocates_is_caught(&same);
            trials.push(Trial::test("one_that_allocates_is_caught", test).with_kind(name.clone()));
            let test = move || the_first_park_of_a_worker(&host);
            trials.push(Trial::test("the_first_park_of_a_worker", test).with_kind(name));
            trials.push(Trial::test("samples_of_a_clock", samples_of_a_clock));
        }
    }
    let mut arguments = Arguments::from_args();
    // Allocations of all threads are counted.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}
