//! A worker thread behind a channel, and values with a condition variable for who sleeps: what a host queue is, by hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};

/// How long a thread looks for a value before it sleeps, and the worker for a job: as long as those of the library do.
const SPIN: (Duration, Duration) = (Duration::from_micros(30), Duration::from_micros(10));
/// For how long of that it keeps others off its processor.
const ALONE: Duration = Duration::from_micros(3);
/// Looks for each look at the clock.
const LOOKS: u32 = 8;

/// Looks until there is something, for so long.
fn look<T>(spin: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    if let Some(found) = look() {
        return Some(found);
    }
    let start = Instant::now();
    loop {
        let spun = start.elapsed();
        if spun > spin {
            return None;
        }
        if spun > ALONE {
            // The other one may be waiting for this very processor.
            std::thread::yield_now();
        }
        for _ in 0..LOOKS {
            std::hint::spin_loop();
            if let Some(found) = look() {
                return Some(found);
            }
        }
    }
}

/// A counter that threads wait for.
#[derive(Default)]
pub(crate) struct Counter {
    value: AtomicU64,
    sleepers: Mutex<u32>,
    grown: Condvar,
}

impl Counter {
    pub(crate) fn signal(&self, value: u64) {
        self.value.store(value, Ordering::Release);
        // Who is about to sleep has the lock, and has not seen the value; or comes later, and sees it.
        if *self.sleepers.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
            self.grown.notify_all();
        }
    }

    fn is_at(&self, value: u64) -> Option<()> {
        (self.value.load(Ordering::Acquire) >= value).then_some(())
    }

    pub(crate) fn wait(&self, value: u64) {
        if look(SPIN.0, || self.is_at(value)).is_some() {
            return;
        }
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        *sleepers += 1;
        let waiting = |_: &mut u32| self.is_at(value).is_none();
        let woken = self.grown.wait_while(sleepers, waiting);
        *woken.unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}

/// The next job; `None` when there will be none.
fn next(jobs: &Receiver<Job>) -> Option<Job> {
    look(SPIN.1, || jobs.try_recv().ok()).or_else(|| jobs.recv().ok())
}

/// One thing for the worker: wait, work, signal.
pub(crate) struct Job {
    pub(crate) wait: (Arc<Counter>, u64),
    pub(crate) work: Box<dyn FnOnce() + Send>,
    pub(crate) signal: (Arc<Counter>, u64),
}

/// The worker. Dropped, it ends with what it was given.
pub(crate) struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start() -> Self {
        let (jobs, received) = crossbeam_channel::unbounded::<Job>();
        let thread = std::thread::spawn(move || {
            while let Some(job) = next(&received) {
                job.wait.0.wait(job.wait.1);
                (job.work)();
                job.signal.0.signal(job.signal.1);
            }
        });
        Self {
            jobs: Some(jobs),
            thread: Some(thread),
        }
    }

    /// Hands it over; false if the worker is gone.
    pub(crate) fn send(&self, job: Job) -> bool {
        self.jobs
            .as_ref()
            .is_some_and(|jobs| jobs.send(job).is_ok())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked: its jobs do not.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn who_spins_and_who_sleeps_are_woken() {
        let counter = Counter::default();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| counter.wait(2));
            while *counter.sleepers.lock().expect("no panic") == 0 {
                thread::yield_now();
            }
            counter.signal(1);
            thread::sleep(Duration::from_millis(5));
            assert!(!sleeper.is_finished());
            counter.signal(2);
        });
        counter.wait(2);
        assert_eq!(*counter.sleepers.lock().expect("no panic"), 0);
    }

    #[test]
    fn a_worker_does_what_it_was_given_and_ends() {
        let (counter, ran) = (Arc::new(Counter::default()), Arc::new(AtomicU64::new(0)));
        let worker = Worker::start();
        for at in 0..100 {
            let ran = ran.clone();
            if at == 50 {
                // By now it sleeps.
                counter.wait(50);
                thread::sleep(Duration::from_millis(5));
            }
            assert!(worker.send(Job {
                wait: (counter.clone(), at),
                work: Box::new(move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                }),
                signal: (counter.clone(), at + 1),
            }));
        }
        drop(worker);
        assert_eq!(ran.load(Ordering::Relaxed), 100);
    }
}
