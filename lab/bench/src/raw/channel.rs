//! A host queue by hand: a worker thread behind a channel, and values with a condition variable.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crossbeam_channel::Sender;

use crate::side::{Outcome, Stop};

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
        let now = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.grown.wait_while(now, |now| *now < value));
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// The worker thread. When dropped, it ends after its last job.
pub(crate) struct Worker {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    pub(crate) fn start() -> Self {
        let (jobs, received) = crossbeam_channel::unbounded::<Job>();
        let work = move || received.iter().for_each(|job| job());
        Self {
            jobs: Some(jobs),
            thread: Some(std::thread::spawn(work)),
        }
    }

    pub(crate) fn send(&self, job: impl FnOnce() + Send + 'static) -> Outcome<()> {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(Box::new(job)));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(Stop::Failed("a worker by hand has ended".into())),
        }
    }

    /// Sends a job that waits for `value` of the counter, does `work` and signals `value + 1`.
    pub(crate) fn step(
        &self,
        counter: &Arc<Counter>,
        value: u64,
        work: impl FnOnce() + Send + 'static,
    ) -> Outcome<()> {
        let counter = counter.clone();
        self.send(move || {
            counter.wait(value);
            work();
            counter.signal(value + 1);
        })
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
    use super::*;

    /// The jobs of two workers wait for each other's values in turns.
    #[test]
    fn workers_do_all_jobs_in_order_before_they_end() -> Outcome<()> {
        let counter = Arc::new(Counter::default());
        let done = Arc::new(Mutex::new(Vec::new()));
        let workers = [Worker::start(), Worker::start()];
        for at in (1..100).step_by(2).chain((0..100).step_by(2)) {
            let done = done.clone();
            workers[at as usize % 2].step(&counter, at, move || {
                done.lock().unwrap_or_else(PoisonError::into_inner).push(at);
            })?;
        }
        counter.wait(100);
        drop(workers);
        let done = done.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(*done, (0..100).collect::<Vec<_>>());
        Ok(())
    }
}
