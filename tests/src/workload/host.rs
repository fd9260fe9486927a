//! Work for worker threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use syncline::Result;
use syncline::host::Recorder;

pub(super) fn fill(recorder: &mut Recorder, buffer: &Arc<[AtomicU32]>, value: u32) -> Result<()> {
    let buffer = buffer.clone();
    recorder.run(move || {
        buffer
            .iter()
            .for_each(|word| word.store(value, Ordering::Relaxed))
    });
    Ok(())
}

pub(super) fn copy(
    recorder: &mut Recorder,
    from: &Arc<[AtomicU32]>,
    to: &Arc<[AtomicU32]>,
) -> Result<()> {
    let (from, to) = (from.clone(), to.clone());
    recorder.run(move || {
        for (from, to) in from.iter().zip(to.iter()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    });
    Ok(())
}

/// A worker thread that sleeps is as busy as one that spins, and leaves the cores to others.
pub(super) fn busy(recorder: &mut Recorder, time: Duration) {
    recorder.run(move || std::thread::sleep(time));
}
