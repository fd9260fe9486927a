//! Processes that end while queues work, and threads that end after they have used drivers (D1).
//!
//! Each run is a child process. A signal, a time-out or another exit code than 0 is a defect.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use syncline::prelude::*;
use syncline::{Device, Queue};

use crate::drivers::Drivers;

/// A child takes no longer than this.
const LIMIT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(20);
/// The number of submissions of each chain.
const CHAIN: u64 = 2000;
/// How often a thread opens and drops a device.
const OPENED: usize = 8;

/// What a child does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The process ends in the middle of chains of CUDA and Vulkan.
    Process,
    /// Threads open, use and drop devices, and end, while another thread works.
    Threads,
}

impl Ending {
    const fn argument(self) -> &'static str {
        match self {
            Self::Process => "--end-process",
            Self::Threads => "--end-threads",
        }
    }
}

/// Two chains through both devices, which are not finished when this returns.
///
/// `seed` chooses how far they come.
fn chains(seed: u64) -> Result<(), Error> {
    let (cuda, vulkan) = Inventory::probe(&ProbeOptions::default()).pair()?;
    let (cuda, vulkan) = (Device::from(cuda), Device::from(vulkan));
    let queues = |label: &str| -> Result<[Queue; 2], Error> {
        Ok([
            cuda.queue(QueueKind::Compute, label)?,
            vulkan.queue(QueueKind::Transfer, label)?,
        ])
    };
    let relayed = [cuda.timeline("cuda")?, vulkan.timeline("vulkan")?];
    let (first, second) = (queues("relayed")?, queues("shared")?);
    let link = share(&cuda, &vulkan)?;
    let shared = link.timeline("shared")?;
    // Released by the thread that watches Vulkan, all at once.
    let start = [relayed[1].at(1 + seed % 16)];
    second[0].submit(&start, |_| Ok(()), &[shared.signal_at(1)])?;
    for n in 2..=CHAIN {
        let queue = &second[(n % 2) as usize];
        queue.submit(&[shared.at(n - 1)], |_| Ok(()), &[shared.signal_at(n)])?;
    }
    // No device has a port of the other's timeline. So the watching threads release each one.
    for n in 1..=CHAIN {
        let [on_cuda, on_vulkan] = &relayed;
        first[0].submit(&[on_vulkan.at(n - 1)], |_| Ok(()), &[on_cuda.signal_at(n)])?;
        first[1].submit(&[on_cuda.at(n)], |_| Ok(()), &[on_vulkan.signal_at(n)])?;
    }
    thread::sleep(Duration::from_micros(seed * 7919 % 10_000));
    // The process ends with live handles.
    std::mem::forget((cuda, vulkan, relayed, first, second, link, shared));
    Ok(())
}

/// Opens a device by a probe of its own, and submits to it.
fn open_and_use(nth: usize) -> Result<(), Error> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let mut usable = Vec::new();
    for found in inventory.devices() {
        usable.extend(found.rejected().is_none().then_some(found));
    }
    let Some(found) = usable.get(nth % usable.len().max(1)) else {
        return Ok(());
    };
    let device = found.open()?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let line = device.timeline("line")?;
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    line.at(1).wait(PATIENCE)
}

/// Threads that open, use and drop devices, while another one works.
fn threads() -> Result<(), Error> {
    let (cuda, vulkan) = Inventory::probe(&ProbeOptions::default()).pair()?;
    let ended = Arc::new(AtomicBool::new(false));
    let until = ended.clone();
    let works = thread::spawn(move || -> Result<(), Error> {
        let line = share(&cuda, &vulkan)?.timeline("line")?;
        let left = cuda.queue(QueueKind::Compute, "left")?;
        let right = vulkan.queue(QueueKind::Transfer, "right")?;
        for n in (0..).step_by(2) {
            left.submit(&[line.at(n)], |_| Ok(()), &[line.signal_at(n + 1)])?;
            right.submit(&[line.at(n + 1)], |_| Ok(()), &[line.signal_at(n + 2)])?;
            line.at(n + 2).wait(PATIENCE)?;
            if until.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    });
    let mut answer = Ok(());
    for nth in 0..OPENED {
        let opened = thread::spawn(move || open_and_use(nth)).join();
        answer = answer.and(opened.unwrap_or_else(|_| Err(Error::work("a thread panicked"))));
    }
    ended.store(true, Ordering::Relaxed);
    let worked = works.join();
    answer.and(worked.unwrap_or_else(|_| Err(Error::work("a thread panicked"))))
}

/// Runs as a child.
pub(crate) fn run_child(ending: Ending, seed: u64) -> Result<bool, String> {
    let ended = match ending {
        Ending::Process => chains(seed),
        Ending::Threads => threads(),
    };
    ended.map(|()| true).map_err(|error| error.to_string())
}

/// Waits for a child. Returns what is wrong, if anything is.
fn fault_of(mut child: Child) -> Option<String> {
    let until = Instant::now() + LIMIT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > until {
            let _ = child.kill();
            return Some(format!("it took more than {LIMIT:?}"));
        }
        thread::sleep(Duration::from_millis(2));
    }
    match child.wait_with_output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Some(format!("{}: {}", output.status, said.trim_end()))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Runs `count` children, `jobs` at a time. `drivers` are those in software, or the machine's own.
pub(crate) fn run(
    ending: Ending,
    count: usize,
    jobs: usize,
    drivers: Option<&Drivers>,
) -> Result<bool, String> {
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let next = Mutex::new(0..count);
    let faults = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let seed = next.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(seed) = seed else { break };
                    let mut command = Command::new(&own);
                    command.args([ending.argument(), &seed.to_string()]);
                    command.stdout(Stdio::null()).stderr(Stdio::piped());
                    if let Some(drivers) = drivers {
                        drivers.apply(&mut command);
                        // A thread that calls a driver in this time ends the process.
                        command.env("SYNCLINE_SOFTWARE_EXIT_PAUSE", "20");
                    }
                    let fault = match command.spawn() {
                        Ok(child) => fault_of(child),
                        Err(error) => Some(error.to_string()),
                    };
                    let fault = fault.map(|fault| format!("run {seed}: {fault}"));
                    let mut faults = faults.lock().unwrap_or_else(PoisonError::into_inner);
                    faults.extend(fault);
                }
            });
        }
    });
    let faults = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
    for fault in &faults {
        println!("{fault}");
    }
    println!("{count} runs, {} faults", faults.len());
    Ok(faults.is_empty())
}
