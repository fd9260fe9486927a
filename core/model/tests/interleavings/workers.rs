//! A host queue's worker thread: what is submitted finds it looking, asleep, or about to be either.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use syncline_model::backend::{Device as _, Queue as _};
use syncline_model::{QueueKind, host};

use crate::{FOREVER, interrupted};

/// Each is run, and then the thread ends: with the last handle, whenever that goes.
#[test]
fn submissions_against_a_worker() {
    interrupted(3, || {
        let device = host::Device::new();
        let line = device.timeline("line").unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        {
            let queue = device.queue(QueueKind::Compute, "queue").unwrap();
            for value in [1, 2] {
                let ran = ran.clone();
                let work = move |recorder: &mut host::Recorder| {
                    recorder.run(move || {
                        ran.fetch_add(1, Ordering::Relaxed);
                    });
                    Ok(())
                };
                let (waits, signals) = ([line.at(value - 1)], [line.signal_at(value)]);
                queue.submit(&waits, work, &signals).unwrap();
            }
        }
        line.at(2).wait(FOREVER).unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    });
}
