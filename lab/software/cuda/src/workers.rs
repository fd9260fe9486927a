//! Threads that run the commands of streams.
//!
//! Each stream has a reserved thread, so that a command never fails because the system has none.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::code::{Answer, Code};
use crate::lock;

type Job = Box<dyn FnOnce() + Send>;

/// The time after which an idle thread that is not reserved ends.
const PATIENCE: Duration = Duration::from_millis(50);

static WORKERS: Mutex<Workers> = Mutex::new(Workers {
    jobs: VecDeque::new(),
    threads: 0,
    reserved: 0,
});
static MORE: Condvar = Condvar::new();

struct Workers {
    /// Jobs that no thread has yet.
    jobs: VecDeque<Job>,
    /// Threads that have started and not ended.
    threads: usize,
    /// The number of [`Reserved`]. Never more than there are threads.
    reserved: usize,
}

/// The right to run one job at a time, at once.
pub(crate) struct Reserved(());

/// Starts a thread, unless one is free.
pub(crate) fn reserve() -> Answer<Reserved> {
    let mut workers = lock(&WORKERS);
    if workers.threads == workers.reserved {
        // Detached: the process may exit at any time.
        let thread = std::thread::Builder::new().name("software-cuda".into());
        thread.spawn(work).map_err(|_| Code::OPERATING_SYSTEM)?;
        workers.threads += 1;
    }
    workers.reserved += 1;
    Ok(Reserved(()))
}

impl Reserved {
    /// Starts the job on a thread. The previous job has ended, or is about to end.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        lock(&WORKERS).jobs.push_back(Box::new(job));
        MORE.notify_one();
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        lock(&WORKERS).reserved -= 1;
    }
}

/// Starts a single job on a thread at once, because jobs may wait for each other.
pub(crate) fn run(job: impl FnOnce() + Send + 'static) -> Answer {
    let reserved = Arc::new(reserve()?);
    let kept = reserved.clone();
    reserved.run(move || {
        job();
        drop(kept);
    });
    Ok(())
}

/// The main function of a thread.
fn work() {
    let mut workers = lock(&WORKERS);
    loop {
        if let Some(job) = workers.jobs.pop_front() {
            drop(workers);
            // A panic must not take the thread, which another stream has reserved.
            let _ = catch_unwind(AssertUnwindSafe(job));
            workers = lock(&WORKERS);
            continue;
        }
        let waited = MORE.wait_timeout(workers, PATIENCE);
        let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        workers = woken;
        let is_free = workers.threads > workers.reserved;
        if timeout.timed_out() && workers.jobs.is_empty() && is_free {
            workers.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::sync::mpsc::channel;

    #[test]
    fn jobs_may_wait_for_each_other() {
        let (to_first, first) = channel::<()>();
        let (done, end) = channel();
        super::run(move || {
            first.recv().unwrap();
            done.send(()).unwrap();
        })
        .unwrap();
        super::run(move || to_first.send(()).unwrap()).unwrap();
        end.recv().unwrap();
    }
}
