//! The worker thread of a host queue, which searches for tasks or sleeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;
use syncline_model::backend::{Device as _, Queue as _};
use syncline_model::{Error, QueueKind, host};

use crate::{FOREVER, interrupted};

/// The worker runs each submission, and then ends because the last handle was dropped.
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

/// A thread that finds a value reached also finds its time.
#[test]
fn a_question_for_a_time_against_a_worker() {
    interrupted(2, || {
        let device = host::Device::new();
        let line = device.clocked_timeline("line").unwrap();
        let queue = device.queue(QueueKind::Compute, "queue").unwrap();
        let point = line.at(1).keep();
        let asking = thread::spawn(move || {
            let point = point.point();
            match point.time() {
                Err(Error::NotReached { .. }) => point.wait(FOREVER).unwrap(),
                told => drop(told.unwrap()),
            }
            point.time().unwrap()
        });
        queue.submit(&[], |_| Ok(()), &[line.signal_at(2)]).unwrap();
        let told = asking.join().unwrap();
        let again = line.at(2).time().unwrap();
        assert_eq!(told.nanoseconds(), again.nanoseconds());
    });
}

/// Same as the case above, for two host signals in a row.
#[test]
fn a_question_for_a_time_against_signals() {
    interrupted(3, || {
        let device = host::Device::new();
        let line = device.clocked_timeline("line").unwrap();
        let signaller = line.clone();
        let signalling = thread::spawn(move || {
            signaller.signal(1).unwrap();
            signaller.signal(3).unwrap();
        });
        let mut last = None;
        for value in [1, 2, 3] {
            match line.at(value).time() {
                Err(Error::NotReached { .. }) => {}
                told => last = Some((value, told.unwrap().nanoseconds())),
            }
        }
        signalling.join().unwrap();
        if let Some((value, told)) = last {
            assert_eq!(line.at(value).time().unwrap().nanoseconds(), told);
        }
    });
}
