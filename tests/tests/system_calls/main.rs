//! H1: system calls after a warm-up: to park a thread, to wake one, and to yield.
//!
//! A polling thread yields to others. Most operations make no system call at all.

#![allow(clippy::expect_used, reason = "a test may panic")]

mod counter;
mod driver;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libc::c_int;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, Inventory, ProbeOptions, Queue, QueueKind, Recorder, WaitMode};
use syncline_conformance::steady::{self, CALLS, OPERATIONS, Operation, TIMES};

use counter::{Calls, Thread, counted};

/// The calls that this project may make (H1): park a thread, on one or two words, wake one, yield.
const OURS: [i64; 3] = [
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_sched_yield,
];

/// The calls that an allocator makes.
const MEMORY: [i64; 5] = [
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
];

/// How often each operation runs while its system calls are counted.
const ROUNDS: u64 = 64;

const PATIENCE: Duration = Duration::from_secs(10);

fn this_thread() -> Thread {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Returns the threads that the library has started. It gives them names.
fn threads_of_ours() -> BTreeMap<Thread, String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the process's threads");
    let named = tasks.flatten().filter_map(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let thread = task.file_name().to_str()?.parse().ok()?;
        let ours = name.starts_with("syncline-");
        ours.then(|| (thread, name.trim_end().to_owned()))
    });
    named.collect()
}

/// Finds the thread of this name. A thread sets its name itself, so it may have none yet.
fn thread_named(name: &str) -> Result<Thread, Failed> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let mut threads = threads_of_ours().into_iter();
        if let Some((thread, _)) = threads.find(|(_, own)| own == name) {
            return Ok(thread);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(format!("no thread is called {name}").into())
}

/// Runs an operation whose allocations the suite counts.
///
/// Fails if it makes a call that neither this project nor the driver may make.
fn only_parks_and_wakes(device: &Device, operation: Operation) -> Result<Completion, Failed> {
    if operation.name == "tell_times_elsewhere" && !matches!(device, Device::Host(_)) {
        // About ten times a second, independent of the number of signals.
        return Ok(Completion::ignored_with(
            "a thread of its own asks the system for samples of the device's clock",
        ));
    }
    let outcome = counted(|calls| -> Result<Completion, Failed> {
        let Some(drivers) = driver::own_calls(device, calls) else {
            return Ok(Completion::ignored_with(
                "not known which calls are the driver's",
            ));
        };
        let allowed: BTreeSet<c_int> = OURS
            .map(|call| call as c_int)
            .into_iter()
            // Another test counts allocations of this project. Drivers and this test allocate.
            .chain(MEMORY.map(|call| call as c_int))
            .chain(drivers)
            .collect();
        let ours = RefCell::new(BTreeSet::from([this_thread()]));
        // By kind, for the last two counts.
        let looks = RefCell::new([BTreeMap::new(), BTreeMap::new()]);
        let threads = Cell::new(0);
        let so_far = || {
            let mut ours = ours.borrow_mut();
            // Only if the threads have changed, because this makes calls itself.
            let mut last = None;
            let mut found = 0;
            calls.each(|thread, _, _| {
                found += u64::from(last != Some(thread));
                last = Some(thread);
            });
            if found > threads.replace(found) {
                ours.extend(threads_of_ours().into_keys());
            }
            let mut looks = looks.borrow_mut();
            looks.reverse();
            looks[1].clear();
            calls.each(|thread, call, made| {
                if ours.contains(&thread) && !allowed.contains(&call) {
                    *looks[1].entry(call).or_insert(0) += made;
                }
            });
            looks[1].values().sum()
        };
        let counted = steady::count(device, operation, 0, &so_far)?;
        if counted.is_within(0) {
            return Ok(Completion::Completed);
        }
        let windows = counted.windows();
        let [before, mut last] = looks.take();
        last.retain(|call, made| *made > *before.get(call).unwrap_or(&0));
        let kinds: Vec<_> = last.into_keys().collect();
        Err(format!("other system calls for every {TIMES} times: {windows:?}, in the end those with the numbers {kinds:?}").into())
    });
    outcome.unwrap_or_else(|refused| told(Err(refused)))
}

/// The negative control: an operation that makes another call each time is found.
fn one_that_calls_is_caught(device: &Device) -> Result<Completion, Failed> {
    match only_parks_and_wakes(device, CALLS) {
        Ok(Completion::Completed) => {
            Err("an operation that makes a system call is not caught".into())
        }
        Ok(ignored) => Ok(ignored),
        Err(failed) => {
            let reason = failed.message().unwrap_or_default();
            let number = format!("[{}]", libc::SYS_getppid);
            assert!(reason.contains(&number), "{reason}");
            println!("caught: {reason}");
            Ok(Completion::Completed)
        }
    }
}

/// An operation that is repeated. It is given its number, from 1.
type Done<'d> = dyn FnMut(u64) -> syncline::Result<()> + 'd;

/// Counts the calls of [`ROUNDS`] times `done`, by kind, on this thread.
///
/// `done` runs as often before.
fn made_in_rounds(calls: &Calls, done: &mut Done<'_>) -> syncline::Result<BTreeMap<c_int, u64>> {
    let thread = this_thread();
    let mut before = BTreeMap::new();
    for round in 1..=2 * ROUNDS {
        if round == ROUNDS + 1 {
            before = calls.made_by(thread);
        }
        done(round)?;
    }
    let mut made = calls.made_by(thread);
    for (call, count) in &mut made {
        *count -= before.get(call).unwrap_or(&0);
    }
    // Growth of a list is the subject of another test.
    made.retain(|call, count| *count > 0 && !MEMORY.contains(&i64::from(*call)));
    Ok(made)
}

/// Checks that `done` makes no call at all.
fn makes_none(calls: &Calls, name: &str, done: &mut Done<'_>) -> Result<(), Failed> {
    let made = made_in_rounds(calls, done)?;
    if made.is_empty() {
        return Ok(());
    }
    Err(format!("{name}: {ROUNDS} times make these system calls: {made:?}").into())
}

/// Queries of reached points and of held work make no system call, on any device.
fn known_state_needs_no_call(device: &Device) -> Result<Completion, Failed> {
    let outcome = counted(|calls| -> Result<(), Failed> {
        let queue = device.queue(QueueKind::Compute, "holds")?;
        let (line, gate) = (device.timeline("line")?, device.timeline("gate")?);
        line.signal(3)?;
        makes_none(calls, "a query of a reached value", &mut |_| {
            assert!(line.at(3).is_reached()? && line.at(2).is_pending()?);
            assert_eq!(line.value()?, 3);
            Ok(())
        })?;
        makes_none(calls, "a wait for a reached value", &mut |_| {
            line.at(3).wait(PATIENCE)?;
            line.at(3).wait_with(WaitMode::Block, PATIENCE)
        })?;
        makes_none(
            calls,
            "a query of a value that is not signalled",
            &mut |_| {
                assert!(!line.at(4).is_reached()? && !line.at(4).is_pending()?);
                assert!(line.at(4).wait(Duration::ZERO).is_err());
                Ok(())
            },
        )?;
        let held = device.timeline("held")?;
        makes_none(calls, "a held submission", &mut |n| {
            queue.submit(&[gate.at(1)], |_| Ok(()), &[held.signal_at(n)])?;
            Ok(())
        })?;
        gate.signal(1)?;
        Ok(queue.idle(PATIENCE)?)
    });
    told(outcome)
}

/// Keeps the worker of `queue` busy until this is dropped.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn keep(queue: &Queue) -> syncline::Result<Self> {
        let (begun, ended) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let busy = Self(ended.clone());
        let has_begun = begun.clone();
        queue.submit(
            &[],
            move |recorder| {
                on_host(recorder, move || {
                    begun.store(true, Ordering::Release);
                    while !ended.load(Ordering::Acquire) {
                        std::hint::spin_loop();
                    }
                });
                Ok(())
            },
            &[],
        )?;
        while !has_begun.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Makes the worker of a host queue call `job`.
fn on_host(recorder: &mut Recorder<'_>, job: impl FnOnce() + Send + 'static) {
    #[allow(
        irrefutable_let_patterns,
        reason = "refutable with more than one backend"
    )]
    if let Recorder::Host(recorder) = recorder {
        recorder.run(job);
    }
}

/// Operations of the host make no system call while no thread must be woken.
fn the_host_makes_none(device: &Device) -> Result<Completion, Failed> {
    let outcome = counted(|calls| -> Result<(), Failed> {
        let queue = device.queue(QueueKind::Compute, "busy")?;
        let (line, gate) = (device.timeline("line")?, device.timeline("gate")?);
        makes_none(calls, "a signal without a waiter", &mut |n| line.signal(n))?;
        let busy = Busy::keep(&queue)?;
        let done = device.timeline("done")?;
        let submit = |n: u64| -> syncline::Result<()> {
            let captured = [n; 8];
            let work = move |recorder: &mut Recorder<'_>| {
                on_host(recorder, move || {
                    std::hint::black_box(captured);
                });
                on_host(recorder, || ());
                Ok(())
            };
            queue.submit(&[done.at(n - 1)], work, &[done.signal_at(n)])?;
            Ok(())
        };
        makes_none(calls, "a submission to a worker that is awake", &mut |n| {
            submit(n)
        })?;
        makes_none(calls, "a query of a pending value", &mut |n| {
            assert!(!done.at(n).is_reached()? && done.at(n).is_pending()?);
            assert_eq!(done.value()?, 0);
            Ok(())
        })?;
        let (fence, timed) = (device.fence("fence"), device.timed_fence("timed"));
        makes_none(calls, "the record of a fence", &mut |_| {
            queue.record(&fence)?;
            assert!(!fence.is_complete()?);
            queue.record(&timed)
        })?;
        let other = device.timeline("released")?;
        makes_none(calls, "a signal that releases a submission", &mut |n| {
            queue.submit(&[gate.at(n)], |_| Ok(()), &[other.signal_at(n)])?;
            gate.signal(n)
        })?;
        drop(busy);
        Ok(queue.idle(PATIENCE)?)
    });
    told(outcome)
}

/// Waits until `thread` has made more than `before` calls to sleep. Returns their number.
///
/// A call counts before the thread sleeps, when it can be woken already. A call that returns at
/// once counts, too.
fn sleeps(calls: &Calls, thread: Thread, before: u64) -> Result<u64, Failed> {
    let begun = Instant::now();
    let futex = |by, call| by == thread && i64::from(call) == libc::SYS_futex;
    loop {
        let made = calls.count(futex);
        if made > before {
            return Ok(made);
        }
        if begun.elapsed() > PATIENCE {
            return Err("a thread with nothing to do does not sleep".into());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Checks that this thread makes one call each time it wakes another, or none if that is awake.
fn makes_one(name: &str, made: &[u64]) -> Result<(), Failed> {
    let once = made.iter().filter(|&&made| made == 1).count();
    if made.iter().all(|&made| made <= 1) && 2 * once >= made.len() {
        return Ok(());
    }
    Err(format!("{name} makes so many calls each time: {made:?}").into())
}

/// How often a count is repeated that other work on the machine can disturb.
const ATTEMPTS: u32 = 20;

/// Calls `count` until it succeeds, at most [`ATTEMPTS`] times. Returns its last error.
///
/// On a busy machine a thread may be interrupted while it holds a lock. Other threads then make
/// calls to sleep and to wake. A call too many that the library makes itself is in each attempt.
fn undisturbed(mut count: impl FnMut() -> Result<(), Failed>) -> Result<(), Failed> {
    let mut counted = count();
    for _ in 1..ATTEMPTS {
        if counted.is_ok() {
            break;
        }
        counted = count();
    }
    counted
}

/// One call wakes a sleeping thread, and no thread makes another call.
fn one_call_wakes(device: &Device) -> Result<Completion, Failed> {
    let outcome = counted(|calls| -> Result<(), Failed> {
        let queue = device.queue(QueueKind::Compute, "sleeps")?;
        let worker = thread_named("syncline-sleeps")?;
        undisturbed(|| a_submission_wakes(calls, device, &queue, worker))?;
        undisturbed(|| a_signal_wakes(calls, device))
    });
    told(outcome)
}

/// A submission wakes the sleeping worker of its queue with one call.
fn a_submission_wakes(
    calls: &Calls,
    device: &Device,
    queue: &Queue,
    worker: Thread,
) -> Result<(), Failed> {
    let this = this_thread();
    let all = || calls.count(|by, _| by == this);
    let done = device.timeline("done")?;
    let (mut made, mut slept) = (Vec::new(), 0);
    for value in 1..=ROUNDS {
        slept = sleeps(calls, worker, slept)?;
        let before = all();
        queue.submit(&[], |_| Ok(()), &[done.signal_at(value)])?;
        made.push(all() - before);
        // Spins. Otherwise the worker would wake this thread with a call of its own.
        done.at(value).wait_with(WaitMode::Spin, PATIENCE)?;
    }
    makes_one("a submission to a worker that sleeps", &made)
}

/// A signal wakes the thread that waits for it with one call. Each wait sleeps with one call.
fn a_signal_wakes(calls: &Calls, device: &Device) -> Result<(), Failed> {
    let this = this_thread();
    let all = || calls.count(|by, _| by == this);
    let (line, answers) = (device.timeline("line")?, device.timeline("answers")?);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let (line, answers) = (&line, &answers);
        scope.spawn(move || -> syncline::Result<()> {
            let _ = tell.send(this_thread());
            for value in 1..=ROUNDS {
                line.at(value).wait_with(WaitMode::Block, PATIENCE)?;
                answers.signal(value)?;
            }
            Ok(())
        });
        let waiter = told.recv()?;
        let (mut made, mut slept) = (Vec::new(), 0);
        for value in 1..=ROUNDS {
            slept = sleeps(calls, waiter, slept)?;
            let before = all();
            line.signal(value)?;
            made.push(all() - before);
            // Spins. Otherwise the answering thread would wake this thread with a call of its own.
            answers.at(value).wait_with(WaitMode::Spin, PATIENCE)?;
        }
        makes_one("a signal for a sleeping waiter", &made)?;
        let slept = calls.made_by(waiter).remove(&(libc::SYS_futex as c_int));
        match slept {
            Some(calls) if calls <= ROUNDS + ROUNDS / 4 => Ok(()),
            calls => Err(format!("{ROUNDS} waits that sleep make {calls:?} calls").into()),
        }
    })
}

/// Turns an outcome into a trial's result. A trial is ignored if calls cannot be counted.
fn told(outcome: std::io::Result<Result<(), Failed>>) -> Result<Completion, Failed> {
    match outcome {
        Ok(found) => found.map(|()| Completion::Completed),
        Err(refused) => Ok(Completion::ignored_with(format!(
            "no system calls can be counted: {refused}"
        ))),
    }
}

/// The function of a trial.
type Look = dyn Fn(&Device) -> Result<Completion, Failed> + Send;

fn main() -> ExitCode {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let mut trials = Vec::new();
    for found in inventory.devices() {
        let device = found.open();
        let kind = format!("{} {}", found.info().backend, found.info().name);
        let mut trial = |name: &str, run: Box<Look>| {
            let device = device.clone();
            let trial = Trial::ignorable_test(name, move || match &device {
                Ok(device) => run(device),
                Err(reason) => Ok(Completion::ignored_with(reason.to_string())),
            });
            trials.push(trial.with_kind(kind.clone()));
        };
        for operation in OPERATIONS {
            let run = move |device: &Device| only_parks_and_wakes(device, operation);
            trial(operation.name, Box::new(run));
        }
        trial(
            "known_state_needs_no_call",
            Box::new(known_state_needs_no_call),
        );
        if matches!(device, Ok(Device::Host(_))) {
            trial(
                "one_that_calls_is_caught",
                Box::new(one_that_calls_is_caught),
            );
            trial("the_host_makes_none", Box::new(the_host_makes_none));
            trial("one_call_wakes", Box::new(one_call_wakes));
        }
    }
    let mut arguments = Arguments::from_args();
    // Threads are identified by their names, and each trial looks at all threads.
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit_code()
}
