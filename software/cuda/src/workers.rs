//! Threads that run the commands of streams. They start and end with the work.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::code::{Answer, Code};
use crate::lock;

type Job = Box<dyn FnOnce() + Send>;

/// The time after which an idle thread ends.
const PATIENCE: Duration = Duration::from_millis(500);

static WORKERS: Mutex<Workers> = Mutex::new(Workers {
    jobs: VecDeque::new(),
    idle: 0,
});
static MORE: Condvar = Condvar::new();

struct Workers {
    /// Jobs that no thread has yet. Never more than there are idle or starting threads.
    jobs: VecDeque<Job>,
    idle: usize,
}

/// Starts the job on a thread at once, because jobs may wait for each other.
pub(crate) fn run(job: impl FnOnce() + Send + 'static) -> Answer {
    let mut workers = lock(&WORKERS);
    if workers.jobs.len() >= workers.idle {
        // Detached: the process may exit at any time.
        let thread = std::thread::Builder::new().name("software-cuda".into());
        thread.spawn(work).map_err(|_| Code::OPERATING_SYSTEM)?;
        workers.idle += 1;
    }
    workers.jobs.push_back(Box::new(job));
    drop(workers);
    MORE.notify_one();
    Ok(())
}

/// The main function of a thread, which counts as idle when it starts.
fn work() {
    let mut workers = lock(&WORKERS);
    loop {
        if let Some(job) = workers.jobs.pop_front() {
            workers.idle -= 1;
            drop(workers);
            job();
            workers = lock(&WORKERS);
            workers.idle += 1;
            continue;
        }
        let waited = MORE.wait_timeout(workers, PATIENCE);
        let (woken, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        workers = woken;
        if timeout.timed_out() && workers.jobs.is_empty() {
            workers.idle -= 1;
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
