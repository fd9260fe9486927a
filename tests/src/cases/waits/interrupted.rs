//! T4: waits that the system interrupts.

#![allow(unsafe_code, reason = "signals are sent to threads, and handled")]

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use syncline::WaitMode;

use crate::blocked::{Unstick, join};
use crate::case::{Stop, Verdict, cases, check, check_error};
use crate::user::{Timeline, wait_all, wait_any};
use crate::{Subject, World, patience};

cases! {
    "wait.storm_of_signals_to_the_process": [T4 T6] => storm;
}

/// How often the handler ran.
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// Returns a signal that nothing else here uses, and no driver.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 9
}

/// Installs a handler that interrupts system calls instead of restarting them.
///
/// It stays: the signals of a thread that is just being created are blocked, and come later.
///
/// # Errors
/// A skip if the system refuses.
fn handle() -> Result<(), Stop> {
    // SAFETY: all zeroes are an action with no flags, so without `SA_RESTART`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
    // SAFETY: `action` is one, and its handler only adds to an atomic number.
    if unsafe { libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) } != 0 {
        let error = std::io::Error::last_os_error();
        return Stop::skip(format!("no signal can be handled here: {error}"));
    }
    Ok(())
}

/// Interrupts a thread of this process, if it is still there.
fn interrupt(thread: i32) {
    // SAFETY: a signal with a handler, to a thread of our own process or to none.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, signal()) };
}

/// Returns the library's own threads, which have names that start in the same way.
fn own_threads() -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return Vec::new();
    };
    let ours = threads.flatten().filter(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        name.starts_with("syncline")
    });
    ours.filter_map(|thread| thread.file_name().to_str()?.parse().ok())
        .collect()
}

/// The waits of a thread that is interrupted all the time.
fn waits<S: Subject>(line: &Timeline<S>, never: &Timeline<S>, rounds: u64) -> Verdict {
    for round in 1..=rounds {
        let mode = [WaitMode::Block, WaitMode::Adaptive, WaitMode::Spin][round as usize % 3];
        let (point, open) = (line.at(round), never.at(1));
        match round % 4 {
            0 => wait_all(&[point, line.at(0)], patience())?,
            1 => drop(wait_any(&[open, point], patience())?),
            2 => point.wait_pending(patience())?,
            _ => point.wait_with(mode, patience())?,
        }
        if round % 8 == 0 {
            let timeout = Duration::from_micros(1500);
            let start = Instant::now();
            let ended = match round % 3 {
                0 => wait_all(&[open, point], timeout),
                1 => wait_any(&[open], timeout).map(|_| ()),
                _ => open.wait_with(mode, timeout),
            };
            let took = start.elapsed();
            check_error!(ended, TimedOut);
            check!(took >= timeout, "interrupted, a wait ended after {took:?}");
        }
    }
    Ok(())
}

fn storm<S: Subject>(world: &World<S>) -> Verdict {
    const THREADS: usize = 3;
    let rounds = if world.is_pair() { 60 } else { 160 };
    handle()?;
    let handled = HANDLED.load(Ordering::Relaxed);
    let interruptions = || HANDLED.load(Ordering::Relaxed) - handled;
    let (line, never) = (world.timeline("line")?, world.timeline("never")?);
    let (left, right) = (world.left_queue("left")?, world.right_queue("right")?);
    let ids: [AtomicI32; THREADS] = std::array::from_fn(|_| AtomicI32::new(0));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _unstick = Unstick(&[&line, &never]);
        /// Ends the interrupts, however the case ends.
        struct Calm<'o>(&'o AtomicBool);
        impl Drop for Calm<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let calm = Calm(&over);
        let waiters: Vec<_> = ids
            .iter()
            .map(|id| {
                let (line, never) = (&line, &never);
                scope.spawn(move || {
                    id.store(
                        rustix::thread::gettid().as_raw_nonzero().get(),
                        Ordering::Relaxed,
                    );
                    let ended = waits(line, never, rounds);
                    id.store(0, Ordering::Relaxed);
                    ended
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let waiting = ids.iter().map(|id| id.load(Ordering::Relaxed));
                for thread in waiting.chain(own_threads()).filter(|&id| id != 0) {
                    interrupt(thread);
                }
                thread::sleep(Duration::from_micros(20));
            }
        });
        for round in 1..=rounds {
            match round % 3 {
                0 => line.signal(round)?,
                1 => drop(left.signal(&line, round)?),
                _ => drop(right.signal(&line, round)?),
            }
            line.at(round).wait(patience())?;
            // The interrupts continue, whatever else this machine has to do.
            let begun = Instant::now();
            while interruptions() <= round && begun.elapsed() < patience() {
                thread::sleep(Duration::from_micros(100));
            }
        }
        for waiter in waiters {
            join(waiter)??;
        }
        drop(calm);
        Ok::<_, Stop>(())
    })?;
    check!(interruptions() > rounds);
    Ok(())
}
