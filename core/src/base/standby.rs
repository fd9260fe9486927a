//! A thread that is started before it is needed.

use std::sync::mpsc::{Sender, channel};

use crate::base::error::{Error, Object, Result};
use crate::base::exiting::{DriverCalls, stop_for_good};
use crate::base::process::DroppedByMaker;
use crate::base::run::run_contained;
use crate::base::sync::Mutex;

type Job = Box<dyn FnOnce() + Send>;

/// A parked thread that runs one closure. For a time at which the system may have no thread.
///
/// The thread ends after the closure, or when this is dropped without one.
#[derive(Debug, Default)]
pub struct StandbyThread(DroppedByMaker<Mutex<State>>);

#[derive(Debug, Default)]
enum State {
    #[default]
    NotStarted,
    Parked(Sender<Job>),
    Used,
}

impl StandbyThread {
    /// Starts the thread, unless it has been started. `object` is what needs it.
    ///
    /// # Errors
    /// [`Error::Native`] if the system has no thread.
    pub fn start(&self, name: &str, object: &Object) -> Result<()> {
        let mut state = self.0.lock();
        if matches!(*state, State::NotStarted) {
            let (sender, receiver) = channel::<Job>();
            let (ready, runs) = channel::<()>();
            let wait = move || {
                drop(ready);
                if let Ok(job) = receiver.recv() {
                    match DriverCalls::begin() {
                        Some(_calls) => run_contained(job),
                        None => stop_for_good(),
                    }
                }
            };
            let started = std::thread::Builder::new().name(name.into()).spawn(wait);
            started.map_err(|error| Error::no_thread(object, &error))?;
            // A thread that is starting still needs memory. Ends when `ready` is dropped.
            let _ = runs.recv();
            *state = State::Parked(sender);
        }
        Ok(())
    }

    /// Runs `job` on the thread, once: without a parked thread this has no effect.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.0.lock();
        if let State::Parked(sender) = &*state {
            // The thread waits for this.
            let _ = sender.send(Box::new(job));
            *state = State::Used;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::sync::mpsc::RecvTimeoutError;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    fn standby() -> StandbyThread {
        let standby = StandbyThread::default();
        let object = Object::new("test", "standby");
        standby.start("test", &object).unwrap();
        // The thread of the first call stays.
        standby.start("another", &object).unwrap();
        standby
    }

    #[test]
    fn the_first_closure_runs_on_the_thread() {
        let standby = standby();
        let (ran, runs) = channel();
        let second = ran.clone();
        standby.run(move || {
            ran.send(std::thread::current().name().unwrap().to_owned())
                .unwrap()
        });
        standby.run(move || second.send("second".to_owned()).unwrap());
        assert_eq!(runs.recv_timeout(LONG).unwrap(), "test");
        assert_eq!(
            runs.recv_timeout(LONG).unwrap_err(),
            RecvTimeoutError::Disconnected
        );
    }

    #[test]
    fn a_closure_that_panics_ends_only_its_thread() {
        let standby = standby();
        let (ran, runs) = channel::<()>();
        standby.run(move || {
            let _ran = ran;
            #[allow(clippy::panic, reason = "the subject of this test")]
            {
                panic!("on purpose");
            }
        });
        assert_eq!(
            runs.recv_timeout(LONG).unwrap_err(),
            RecvTimeoutError::Disconnected
        );
    }
}
