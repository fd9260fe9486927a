//! A host queue by hand: a worker thread behind a channel, and values with a condition variable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use syncline::{WaitMode, host};

/// How long threads poll before they sleep.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For a value.
    value: Duration,
    /// The worker, for a job.
    job: Duration,
}

impl Patience {
    /// Sleeps at once, as `recv` of a channel and a condition variable do.
    pub(crate) const NONE: Self = Self {
        value: Duration::ZERO,
        job: Duration::ZERO,
    };
    /// Polls as long as Syncline's threads.
    pub(crate) const OURS: Self = Self {
        value: WaitMode::SPIN,
        job: host::Queue::SPIN,
    };
}

/// Polls for each reading of the clock.
const LOOKS: u32 = 8;

/// Polls until `look` returns something, at most for `spin`.
fn look<T>(spin: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    if let Some(found) = look() {
        return Some(found);
    }
    if spin.is_zero() {
        return None;
    }
    let start = Instant::now();
    loop {
        let spun = start.elapsed();
        if spun > spin {
            return None;
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
pub(crate) struct Counter {
    look_for: Duration,
    value: AtomicU64,
    sleepers: Mutex<u32>,
    grown: Condvar,
}

impl Counter {
    pub(crate) fn new(patience: Patience) -> Self {
        Self {
            look_for: patience.value,
            value: AtomicU64::new(0),
            sleepers: Mutex::new(0),
            grown: Condvar::new(),
        }
    }

    pub(crate) fn signal(&self, value: u64) {
        self.value.store(value, Ordering::Release);
        // A thread that is about to sleep has the lock and has not seen the value. A later one sees
        // it.
        if *self.sleepers.lock().unwrap_or_else(PoisonError::into_inner) > 0 {
            self.grown.notify_all();
        }
    }

    fn is_at(&self, value: u64) -> Option<()> {
        (self.value.load(Ordering::Acquire) >= value).then_some(())
    }

    pub(crate) fn wait(&self, value: u64) {
        if look(self.look_for, || self.is_at(value)).is_some() {
            return;
        }
        let mut sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
        *sleepers += 1;
        let waiting = |_: &mut u32| self.is_at(value).is_none();
        let woken = self.grown.wait_while(sleepers, waiting);
        *woken.unwrap_or_else(PoisonError::into_inner) -= 1;
    }
}

/// The next job; `None` after the last one.
fn next(jobs: &Receiver<Job>, patience: Patience) -> Option<Job> {
    look(patience.job, || jobs.try_recv().ok()).or_else(|| jobs.recv().ok())
}

/// A job of the worker: wait, work, signal.
pub(crate) struct Job {
    pub(crate) wait: (Arc<Counter>, u64),
    pub(crate) work: Box<dyn FnOnce() + Send>,
    pub(crate) signal: (Arc<Counter>, u64),
}

/// The worker thread. When dropped, it ends after its last job.
pub(crate) struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start(patience: Patience) -> Self {
        let (jobs, received) = crossbeam_channel::unbounded::<Job>();
        let thread = std::thread::spawn(move || {
            while let Some(job) = next(&received, patience) {
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

    /// Sends a job. Returns false if the worker has ended.
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
            // The thread has not panicked, because its jobs do not.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::sleeping(Patience::NONE)]
    #[case::spinning(Patience::OURS)]
    fn a_waiting_thread_is_woken_at_its_value(#[case] patience: Patience) {
        let counter = &Counter::new(patience);
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

    #[rstest]
    #[case::sleeping(Patience::NONE)]
    #[case::spinning(Patience::OURS)]
    fn a_worker_ends_after_its_last_job(#[case] patience: Patience) {
        let (counter, ran) = (
            Arc::new(Counter::new(patience)),
            Arc::new(AtomicU64::new(0)),
        );
        let worker = Worker::start(patience);
        for at in 0..100 {
            let ran = ran.clone();
            if at == 50 {
                // The thread sleeps by now.
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
