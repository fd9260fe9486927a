//! A worker thread behind a channel, and values under a condition variable: what a host queue is, by hand.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::Sender;

/// A counter that threads wait for.
#[derive(Default)]
pub(crate) struct Counter {
    value: Mutex<u64>,
    grown: Condvar,
}

impl Counter {
    pub(crate) fn signal(&self, value: u64) {
        *self.value.lock().unwrap_or_else(PoisonError::into_inner) = value;
        self.grown.notify_all();
    }

    pub(crate) fn wait(&self, value: u64) {
        let held = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        drop(
            self.grown
                .wait_while(held, |now| *now < value)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }
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
            for job in received {
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
