//! Work for worker threads.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use syncline::host::Recorder;

/// A flag that a worker thread waits for.
#[derive(Clone, Debug, Default)]
pub struct Latch(Arc<(Mutex<bool>, Condvar)>);

impl Latch {
    /// Blocks until it is open.
    fn pass(&self) {
        let (open, changed) = &*self.0;
        let open = open.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(open, |open| !*open));
    }

    /// Opens it.
    pub(super) fn open(&self) {
        let (open, changed) = &*self.0;
        *open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

/// Records a sleep. A sleeping worker is as busy as a spinning one, and leaves the cores to others.
pub(super) fn busy(recorder: &mut Recorder<'_>, time: Duration) {
    recorder.run(move || std::thread::sleep(time));
}

/// Records a command that blocks the worker until the latch is open.
pub(super) fn block(recorder: &mut Recorder<'_>, latch: &Latch) {
    let latch = latch.clone();
    recorder.run(move || latch.pass());
}
