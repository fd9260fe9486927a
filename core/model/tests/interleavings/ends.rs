//! Drops of timelines and queues, against threads that still use them.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use syncline_model::Error;

use crate::driver::{Completes, device, queue, timeline};
use crate::{FOREVER, interrupted};

/// Two handles are dropped, one of them after a submission claimed the value.
///
/// The value is still reached.
#[test]
fn the_last_drops_against_a_claim() {
    interrupted(4, || {
        let device = device();
        let line = timeline(device, "line");
        let queue = queue(device, "queue", Completes::InTheCall);
        let (submitter, other) = (queue.clone(), line.clone());
        let submitting = thread::spawn(move || {
            submitter
                .submit(&[], |_| Ok(()), &[other.signal_at(1)])
                .unwrap();
        });
        let point = line.at(1).keep();
        drop(line);
        point.point().wait(FOREVER).unwrap();
        submitting.join().unwrap();
    });
}

/// The last handle is dropped while a held submission that claimed a value is released.
#[test]
fn the_last_drop_against_a_held_claim() {
    interrupted(3, || {
        let device = device();
        let (gate, line) = (timeline(device, "gate"), timeline(device, "line"));
        let queue = queue(device, "queue", Completes::InTheCall);
        queue
            .submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])
            .unwrap();
        let (point, beyond) = (line.at(1).keep(), line.at(2).keep());
        let opening = thread::spawn(move || gate.signal(1).unwrap());
        drop(line);
        point.point().wait(FOREVER).unwrap();
        let error = beyond.point().is_reached().unwrap_err();
        assert!(
            matches!(error, Error::Cancelled { value: 2, .. }),
            "{error}"
        );
        opening.join().unwrap();
    });
}

/// A submission that waits for a timeline without handles is skipped, once.
#[test]
fn the_last_drop_against_a_submission() {
    interrupted(3, || {
        let device = device();
        let (gate, out) = (timeline(device, "gate"), timeline(device, "out"));
        let queue = queue(device, "queue", Completes::InTheCall);
        let point = gate.at(1).keep();
        let dropping = thread::spawn(move || drop(gate));
        queue
            .submit(
                &[point.point()],
                |_| panic!("work that must not run"),
                &[out.signal_at(1)],
            )
            .unwrap();
        let error = out.at(1).wait(FOREVER).unwrap_err();
        assert!(
            matches!(&error, Error::Failed { cause, .. } if matches!(**cause, Error::Cancelled { .. })),
            "{error}"
        );
        queue.idle(FOREVER).unwrap();
        dropping.join().unwrap();
    });
}

/// Counts its drops.
struct Kept(Arc<AtomicU64>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// The queue is dropped while its driver completes the work.
///
/// The object that the work keeps is dropped once, and not before the work has finished.
#[test]
fn the_drop_of_a_queue_against_a_completion() {
    interrupted(4, || {
        let device = device();
        let line = timeline(device, "line");
        let queue = queue(device, "queue", Completes::WhenRun);
        let dropped = Arc::new(AtomicU64::new(0));
        let kept = Arc::new(Kept(dropped.clone()));
        queue
            .submit(
                &[],
                move |keep| {
                    keep.push(kept);
                    Ok(())
                },
                &[line.signal_at(1)],
            )
            .unwrap();
        // A submission in the driver outlives its queue.
        let task = queue.driver().take().unwrap();
        let seen = dropped.clone();
        let running = thread::spawn(move || {
            assert_eq!(seen.load(Ordering::Acquire), 0, "dropped while in use");
            task.run();
        });
        drop(queue);
        line.at(1).wait(FOREVER).unwrap();
        running.join().unwrap();
        assert_eq!(dropped.load(Ordering::Acquire), 1);
    });
}

/// A wait on a closed timeline finds a claim that becomes pending at the same time.
///
/// The claim is always either in the list or pending, so the wait does not report its value as
/// cancelled.
#[test]
fn a_release_against_a_wait_for_a_closed_timeline() {
    interrupted(3, || {
        let device = device();
        let (gate, line) = (timeline(device, "gate"), timeline(device, "line"));
        let queue = queue(device, "queue", Completes::WhenRun);
        let kept = line.at(1).keep();
        queue
            .submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])
            .unwrap();
        drop(line);
        let releasing = thread::spawn(move || gate.signal(1).unwrap());
        kept.point().wait_pending(FOREVER).unwrap();
        releasing.join().unwrap();
        while queue.driver().run() {}
    });
}
