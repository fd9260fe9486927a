//! Four threads that submit at the same time.

use std::sync::{Barrier, Mutex, PoisonError};
use std::thread;

use crate::lab::Lab;
use crate::side::{Outcome, Side, gated_bursts};

/// Number of threads. The measuring thread is the first.
pub(super) const THREADS: usize = 4;

/// Submissions of each thread in one burst.
const BURST: u64 = 64;

/// One side of a race of four threads.
pub(super) struct Part<'w> {
    /// The side's name: ours, raw or floor.
    pub(super) name: &'static str,
    /// Submits so often on the thread with this number.
    pub(super) work: &'w (dyn Fn(usize, u64) -> Outcome<()> + Sync),
    /// Ends a burst. Untimed.
    pub(super) drain: &'w dyn Fn() -> Outcome<()>,
}

/// The next side and the number of its submissions for each thread; `None` ends the threads.
type Order = Option<(usize, u64)>;

/// Measures the sides with four threads.
///
/// A sample is the time from the start of all threads until the last one has submitted its part,
/// divided by the number of submissions.
pub(super) fn race<'w>(lab: &mut Lab, parts: &[Part<'w>]) -> Outcome<()> {
    let barrier = Barrier::new(THREADS);
    let order = Mutex::new(Order::None);
    let ended = Mutex::new(Ok(()));
    let works: Vec<_> = parts.iter().map(|part| part.work).collect();
    thread::scope(|scope| {
        for me in 1..THREADS {
            let (barrier, order, ended, works) = (&barrier, &order, &ended, &works);
            scope.spawn(move || {
                loop {
                    barrier.wait();
                    let Some((part, count)) = *lock(order) else {
                        return;
                    };
                    if let Err(stop) = works[part](me, count) {
                        *lock(ended) = Err(stop);
                    }
                    barrier.wait();
                }
            });
        }
        let side = |(at, part): (usize, &Part<'w>)| {
            let (name, work, drain) = (part.name, part.work, part.drain);
            let (barrier, order, ended) = (&barrier, &order, &ended);
            let all = BURST * THREADS as u64;
            let run = move |n| {
                let prepare = |count: u64| {
                    *lock(order) = Some((at, count.div_ceil(THREADS as u64)));
                    Ok(())
                };
                let go = |count: u64| {
                    barrier.wait();
                    let done = work(0, count.div_ceil(THREADS as u64));
                    barrier.wait();
                    done.and(std::mem::replace(&mut *lock(ended), Ok(())))
                };
                gated_bursts(n, all, prepare, go, drain)
            };
            Side::new(name, run).step(all)
        };
        let raced = lab.race(parts.iter().enumerate().map(side).collect());
        *lock(&order) = None;
        barrier.wait();
        raced
    })
}

/// Locks a mutex and ignores poisoning: no thread leaves the guarded value half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
