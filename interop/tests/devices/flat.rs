//! Opening and dropping anything, again and again, leaves nothing (D1).
//!
//! A child process does it, from threads that end. The variable [`ROUNDS`] has the number of
//! rounds, for a longer run by hand:
//!
//! ```sh
//! SYNCLINE_TEST_FLAT_ROUNDS=10000 cargo test --release -p syncline --test devices flat -- --nocapture
//! ```
#![allow(unsafe_code, reason = "asks the C library for the memory in use")]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use syncline::prelude::*;
use syncline::process::{Endpoint, Listener};
use syncline::{Buffer, Device};

const CHILD: &str = "SYNCLINE_TEST_FLAT";
const ROUNDS: &str = "SYNCLINE_TEST_FLAT_ROUNDS";
/// Rounds without the variable. Each device opens in some milliseconds.
const FEW: u32 = 100;
/// The first rounds fill pools and make what is made once.
const FIRST: u32 = 50;
/// Bytes that may be more after all rounds. A probe that loads and unloads drivers leaves 31 KiB.
const MAX_BYTES: i64 = 512 << 10;
const PATIENCE: Duration = Duration::from_secs(20);

/// What the process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Has {
    bytes: i64,
    descriptors: usize,
    threads: usize,
}

impl Has {
    fn now() -> Self {
        let entries = |path| fs::read_dir(path).unwrap().count();
        // SAFETY: no preconditions.
        let memory = unsafe { libc::mallinfo2() };
        Self {
            bytes: i64::try_from(memory.uordblks + memory.hblkhd).unwrap(),
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
        }
    }

    /// Waits until nothing changes for a moment.
    fn at_rest() -> Self {
        let until = Instant::now() + PATIENCE;
        let mut before = Self::now();
        loop {
            thread::sleep(Duration::from_millis(50));
            let has = Self::now();
            if has == before || Instant::now() > until {
                return has;
            }
            before = has;
        }
    }

    /// Waits for threads that are about to end. They may still have memory and descriptors.
    fn as_little_as(before: &Self) -> Self {
        let until = Instant::now() + PATIENCE;
        loop {
            let has = Self::now();
            let grew = has.threads > before.threads || has.descriptors > before.descriptors;
            if !grew || Instant::now() > until {
                return has;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Does `round` on threads that end, and says what grew.
fn repeat(name: &str, rounds: u32, round: &(dyn Fn() + Sync)) -> Option<String> {
    let do_rounds = |count| {
        let began = Instant::now();
        for _ in 0..count {
            thread::scope(|scope| {
                scope.spawn(round);
            });
        }
        began.elapsed() / count
    };
    let first = do_rounds(FIRST);
    let before = Has::at_rest();
    let others = do_rounds(rounds);
    let after = Has::as_little_as(&before);
    let bytes = after.bytes - before.bytes;
    println!("{name}: {first:.0?}, then {others:.0?} a round, {bytes:+} bytes in {rounds} rounds");
    let grew = bytes > MAX_BYTES
        || after.descriptors > before.descriptors
        || after.threads > before.threads;
    grew.then(|| format!("{name}: {before:?}, and {after:?} after {rounds} rounds"))
}

/// Submits once, so that what is made with the first submission is there, too.
fn use_queue(device: &Device) {
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let line = device.timeline("line").unwrap();
    queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
    line.at(1).wait(PATIENCE).unwrap();
}

fn use_link(left: &Device, right: &Device, made: &Link<Device, Device>) {
    let line = made.timeline("line").unwrap();
    let buffer = made.buffer_or_relay(4096);
    let queues = [left, right].map(|device| device.queue(QueueKind::Compute, "queue").unwrap());
    let first = [line.signal_at(1)];
    queues[1]
        .submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])
        .unwrap();
    queues[0].submit(&[], |_| Ok(()), &first).unwrap();
    line.at(2).wait(PATIENCE).unwrap();
    drop(buffer);
}

/// Connects to a listener of this process.
fn use_endpoints(path: &std::path::Path) {
    let listener = Listener::bind(path).unwrap();
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept("client", PATIENCE).unwrap());
        let connected = Endpoint::connect(path, "server", PATIENCE).unwrap();
        drop((accepted.join().unwrap(), connected));
    });
}

/// Not a test. The child of the test below runs it.
#[test]
fn the_process_that_opens_and_drops() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let rounds = std::env::var(ROUNDS).map_or(FEW, |count| count.parse().unwrap());
    let probe = || Inventory::probe(&ProbeOptions::default());
    let mut grown = Vec::new();
    let mut run = |name: &str, round: &(dyn Fn() + Sync)| grown.extend(repeat(name, rounds, round));
    run("probe", &|| drop(probe()));
    let inventory = probe();
    let usable: Vec<_> = inventory
        .devices()
        .iter()
        .filter(|found| found.rejected().is_none())
        .collect();
    for found in &usable {
        let name = |what: &str| format!("{} {}: {what}", found.info().backend, found.info().name);
        run(&name("device"), &|| use_queue(&found.open().unwrap()));
        run(&name("probe and device"), &|| {
            let again = probe();
            drop(again.devices()[found.index()].open().unwrap());
        });
        let device = found.open().unwrap();
        run(&name("queue and timeline"), &|| use_queue(&device));
        run(&name("memory"), &|| {
            drop(Buffer::host_visible(&device, 1 << 16))
        });
        run(&name("fence"), &|| {
            let queue = device.queue(QueueKind::Compute, "queue").unwrap();
            let fence = device.fence("fence");
            queue.record(&fence).unwrap();
            queue.wait(&fence).unwrap();
            queue.idle(PATIENCE).unwrap();
        });
    }
    for (at, left) in usable.iter().enumerate() {
        for right in &usable[at..] {
            let name =
                |what: &str| format!("{} and {}: {what}", left.info().name, right.info().name);
            let (left, right) = (left.open().unwrap(), right.open().unwrap());
            run(&name("connect"), &|| {
                use_link(&left, &right, &connect(&left, &right))
            });
            if share(&left, &right).is_ok() {
                run(&name("share"), &|| {
                    use_link(&left, &right, &share(&left, &right).unwrap())
                });
            }
        }
    }
    let path = std::env::temp_dir().join(format!("syncline-flat-{}", std::process::id()));
    run("endpoints", &|| use_endpoints(&path));
    let _ = fs::remove_file(&path);
    assert!(grown.is_empty(), "{grown:#?}");
}

#[test]
fn opening_and_dropping_anything_leaves_nothing() {
    let _alone = crate::alone();
    let child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "flat::the_process_that_opens_and_drops",
            "--nocapture",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    println!("{said}");
    assert!(
        child.status.success(),
        "{}: {said}{}",
        child.status,
        String::from_utf8_lossy(&child.stderr)
    );
}
