//! Defects that reviews found, each with the order of calls that showed it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::script::{Made, Script, Scripted, Time, scripted};
use crate::words::Of;
use rstest::rstest;
use syncline_core::backend::kit::must_defer_free;
use syncline_core::backend::{
    Attachment, Batch, ByEngine, Device as _, Flush, Keep, Port, Queue as _, SubmissionQueue, Waker,
};
use syncline_core::host::{self, Device};
use syncline_core::{Error, QueueKind, Result, Timeline, error::Object, info::DeviceId};

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(300);

fn nothing(_: &mut host::Recorder<'_>) -> Result<()> {
    Ok(())
}

fn cause(error: Error) -> String {
    match error {
        Error::Failed { cause, .. } => cause.to_string(),
        other => panic!("{other}"),
    }
}

/// The wait is pending on a timeline without a handle, so the submission need not be held.
#[test]
fn an_error_behind_a_closed_timeline_is_returned() {
    let device = Device::new();
    let line = device.timeline("line").unwrap();
    let [one, two] = ["one", "two"].map(|label| device.queue(QueueKind::Compute, label).unwrap());
    let (go, gate) = std::sync::mpsc::channel::<()>();
    one.submit(
        &[],
        move |recorder| {
            recorder.run(move || _ = gate.recv());
            Ok(())
        },
        &[line.signal_at(1)],
    )
    .unwrap();
    let point = line.at(1).keep();
    drop(line);
    let refused = two.submit(&[point.point()], |_| Err(Error::NothingToWaitFor), &[]);
    assert!(
        matches!(refused, Err(Error::NothingToWaitFor)),
        "{refused:?}"
    );
    go.send(()).unwrap();
    two.idle(LONG).unwrap();
}

#[test]
fn a_wait_that_fails_on_the_worker_fails_relayed_signals() {
    let (home, away) = (Device::new(), Device::new());
    let line = home.timeline("line").unwrap();
    let first = away.timeline("first").unwrap();
    let (one, two) = (
        away.queue(QueueKind::Compute, "one").unwrap(),
        away.queue(QueueKind::Compute, "two").unwrap(),
    );
    let (go, gate) = std::sync::mpsc::channel::<()>();
    one.submit(
        &[],
        move |recorder| {
            recorder.run(move || {
                let _ = gate.recv();
                panic!("the first cause")
            });
            Ok(())
        },
        &[first.signal_at(1)],
    )
    .unwrap();
    // The wait is pending, so the worker has the submission when it fails.
    two.submit(&[first.at(1)], nothing, &[line.signal_at(1)])
        .unwrap();
    go.send(()).unwrap();
    let error = line.at(1).wait(LONG).unwrap_err();
    assert!(cause(error).contains("the first cause"));
}

#[test]
fn released_work_may_submit_to_the_queue_whose_submission_released_it() {
    let device = Device::new();
    let (a, b) = (
        device.queue(QueueKind::Compute, "a").unwrap(),
        device.queue(QueueKind::Compute, "b").unwrap(),
    );
    let line = device.timeline("line").unwrap();
    let done = device.timeline("done").unwrap();
    let (inner, last) = (a.clone(), done.clone());
    b.submit(
        &[line.at(1)],
        move |_| inner.submit(&[], nothing, &[last.signal_at(1)]).map(|_| ()),
        &[],
    )
    .unwrap();
    a.submit(&[], nothing, &[line.signal_at(1)]).unwrap();
    done.at(1).wait(LONG).unwrap();
}

/// A driver that the test controls. It takes submissions, and the test completes them.
#[derive(Default)]
struct Controlled {
    taken: Mutex<Vec<Made>>,
    stampless: bool,
    dead: AtomicBool,
}

struct BarePort;
impl Port for BarePort {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
}

fn lost() -> Error {
    Error::device_lost(Object::new("device", "scripted"), "scripted", -4, "LOST")
}

impl Script for Arc<Controlled> {
    const MAX_IN_FLIGHT: u64 = 2;

    fn record(
        &self,
        batch: &Batch<'_, Scripted<Self>>,
        _: &mut Keep,
        made: &mut Vec<Made>,
        work: &mut dyn FnMut(&mut u64) -> Result<()>,
    ) -> Result<()> {
        if self.dead.load(Ordering::SeqCst) {
            return Err(lost());
        }
        work(&mut 0)?;
        for signal in batch.signals.iter().chain([&batch.end]) {
            let (signal, of) = (signal.completion().unwrap(), self.clone());
            made.push(Box::new(move || match of.dead.load(Ordering::SeqCst) {
                true => signal.fail(lost()),
                false => signal.complete(),
            }));
        }
        Ok(())
    }

    fn flush(&self, made: &mut Vec<Made>, _: &dyn Fn() -> Waker) -> Flush {
        self.taken.lock().unwrap().append(made);
        Flush::Done
    }

    fn stamp(&self) -> Result<Time> {
        Ok(match self.stampless {
            true => Time::Never(lost()),
            false => Time::At(0),
        })
    }
}

type Queue = SubmissionQueue<Scripted<Arc<Controlled>>>;

fn controlled(script: &Arc<Controlled>, device: DeviceId) -> Arc<Queue> {
    let home = Of::new(device, move || Attachment::new(device, 0, BarePort));
    scripted(home, script.clone())
}

fn bare(device: DeviceId, label: &str) -> Timeline {
    Timeline::new(label, 0, |_| {
        let attachment = Attachment::new(device, 0, BarePort);
        Ok([attachment].into_iter().collect())
    })
    .unwrap()
}

#[test]
fn a_full_queue_whose_device_is_lost_ends_its_held_submissions() {
    let (script, device) = (
        Arc::<Controlled>::default(),
        DeviceId::new::<Of<Scripted<Arc<Controlled>>>>(),
    );
    let queue = controlled(&script, device);
    let lines: Vec<_> = (0..4).map(|_| bare(device, "line")).collect();
    for line in &lines {
        queue.submit(&[], |_| Ok(()), &[line.signal_at(1)]).unwrap();
    }
    // The driver has two of them, and two are held.
    assert_eq!(queue.held().count, 2);
    script.dead.store(true, Ordering::SeqCst);
    let taken = std::mem::take(&mut *script.taken.lock().unwrap());
    let (sent, done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // The queue's position fails first.
        let last_first = taken.into_iter().rev();
        last_first.for_each(|signal| signal());
        sent.send(()).unwrap();
    });
    done.recv_timeout(LONG)
        .expect("failing the signals does not end");
    for line in &lines {
        assert!(matches!(line.at(1).wait(SHORT), Err(Error::Failed { .. })));
    }
    assert_eq!(queue.held().count, 0);
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a destructor");
    }
}

#[test]
fn a_destructor_that_panics_does_not_harm_the_queue() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let (fails, result, last) = (
        device.timeline("fails").unwrap(),
        device.timeline("result").unwrap(),
        device.timeline("last").unwrap(),
    );
    let (skipped, unrun, kept) = (Bomb, Bomb, Arc::new(Bomb));
    queue
        .submit(
            &[fails.at(1)],
            move |_| {
                let _ = &skipped;
                Ok(())
            },
            &[],
        )
        .unwrap();
    fails.fail(lost());
    queue
        .submit(
            &[],
            move |recorder| {
                recorder.keep(kept);
                recorder.run(|| panic!("first"));
                recorder.run(move || drop(unrun));
                Ok(())
            },
            &[result.signal_at(1)],
        )
        .unwrap();
    assert!(cause(result.at(1).wait(LONG).unwrap_err()).contains("first"));
    queue.idle(LONG).unwrap();
    queue.submit(&[], nothing, &[last.signal_at(1)]).unwrap();
    last.at(1).wait(LONG).unwrap();
}

/// Panics when it is dropped, with a payload that panics when it is dropped.
struct Cluster;

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::panic::panic_any(Cluster);
        }
    }
}

#[rstest]
#[case::sent_at_once(false)]
#[case::held(true)]
fn refused_work_whose_destructors_panic_does_not_harm_the_queue(#[case] held: bool) {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let [gate, line, last] = ["gate", "line", "last"].map(|label| device.timeline(label).unwrap());
    let waits = if held { &[gate.at(1)][..] } else { &[] };
    let refuse = |recorder: &mut syncline_core::host::Recorder| {
        recorder.keep(Arc::new(Bomb));
        Err(Error::work(std::io::Error::other("refused")))
    };
    let submitted = queue.submit(waits, refuse, &[line.signal_at(1)]);
    assert_eq!(submitted.is_ok(), held);
    gate.signal(1).unwrap();
    if held {
        let ended = line.at(1).wait(LONG);
        assert!(matches!(ended, Err(Error::Failed { .. })), "{ended:?}");
    }
    queue.submit(&[], nothing, &[last.signal_at(1)]).unwrap();
    last.at(1).wait(LONG).unwrap();
    queue.idle(LONG).unwrap();
}

#[test]
fn a_panic_payload_may_panic_when_it_is_dropped() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let [recording, running, last] =
        ["recording", "running", "last"].map(|label| device.timeline(label).unwrap());
    let panics = |_: &mut syncline_core::host::Recorder| std::panic::panic_any(Cluster);
    let refused = queue.submit(&[], panics, &[recording.signal_at(1)]);
    assert!(matches!(refused, Err(Error::WorkPanicked { .. })));
    let panics = |recorder: &mut syncline_core::host::Recorder| {
        recorder.run(|| std::panic::panic_any(Cluster));
        Ok(())
    };
    queue.submit(&[], panics, &[running.signal_at(1)]).unwrap();
    assert!(matches!(
        running.at(1).wait(LONG),
        Err(Error::Failed { .. })
    ));
    queue.submit(&[], nothing, &[last.signal_at(1)]).unwrap();
    last.at(1).wait(LONG).unwrap();
}

#[test]
fn a_label_may_contain_a_zero_byte() {
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "a\0b").unwrap();
    let line = device.timeline("c\0d").unwrap();
    queue.submit(&[], nothing, &[line.signal_at(1)]).unwrap();
    line.at(1).wait(LONG).unwrap();
}

#[test]
fn a_query_of_a_time_reports_that_a_held_record_could_not_write_it() {
    let script = Arc::new(Controlled {
        stampless: true,
        ..Controlled::default()
    });
    let device = DeviceId::new::<Of<Scripted<Arc<Controlled>>>>();
    let queue = controlled(&script, device);
    let gate = bare(device, "gate");
    let fence = queue.driver().home.timed_fence("timed");
    queue.submit(&[gate.at(1)], |_| Ok(()), &[]).unwrap();
    queue.record(&fence).unwrap();
    gate.signal(1).unwrap();
    let taken = std::mem::take(&mut *script.taken.lock().unwrap());
    taken.into_iter().for_each(|signal| signal());
    fence.wait(LONG).unwrap();
    let told = fence.elapsed_since(&fence);
    assert!(matches!(told, Err(Error::DeviceLost { .. })), "{told:?}");
}

/// Freeing memory may wait for all work of the device, and the next submission may block there.
#[rstest]
#[case::next_one_goes_at_once(false)]
#[case::next_one_is_held(true)]
fn objects_of_finished_work_are_dropped_before_the_next_submission_goes(#[case] held: bool) {
    struct Kept(Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Kept {
        fn drop(&mut self) {
            let what = if must_defer_free() {
                "by the queue"
            } else {
                "by the test"
            };
            self.0.lock().unwrap().push(what);
        }
    }
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let gate = device.timeline("gate").unwrap();
    let happened = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::new(Kept(happened.clone()));
    let first = queue.submit(
        &[],
        move |recorder| {
            recorder.keep(kept);
            Ok(())
        },
        &[],
    );
    first.unwrap().end().wait(LONG).unwrap();
    let told = happened.clone();
    let goes = move |_: &mut host::Recorder<'_>| {
        told.lock().unwrap().push("next submission");
        Ok(())
    };
    let waits = [gate.at(1)];
    let accepted = queue.submit(&waits[..usize::from(held)], goes, &[]);
    assert_eq!(accepted.unwrap().is_held(), held);
    let then: &[_] = if held { &[] } else { &["next submission"] };
    assert_eq!(
        *happened.lock().unwrap(),
        [&["by the queue"], then].concat()
    );
    gate.signal(1).unwrap();
    queue.idle(LONG).unwrap();
    drop(Kept(happened.clone()));
    assert_eq!(
        *happened.lock().unwrap(),
        ["by the queue", "next submission", "by the test"]
    );
}

/// The drop of a kept object may submit, and that submission may drop the next object, and so on.
///
/// The depth of the stack does not grow with the number of objects.
#[test]
fn drops_of_kept_objects_that_submit_do_not_recurse() {
    const MANY: u64 = 5_000;
    #[derive(Default)]
    struct Seen {
        inside: AtomicU64,
        deepest: AtomicU64,
        gone: AtomicU64,
    }
    struct Submits(host::Queue, Arc<Seen>);
    impl Drop for Submits {
        fn drop(&mut self) {
            let seen = &self.1;
            let deep = seen.inside.fetch_add(1, Ordering::SeqCst) + 1;
            seen.deepest.fetch_max(deep, Ordering::SeqCst);
            self.0.submit(&[], nothing, &[]).unwrap();
            seen.inside.fetch_sub(1, Ordering::SeqCst);
            seen.gone.fetch_add(1, Ordering::SeqCst);
        }
    }
    let device = Device::new();
    let queue = device.queue(QueueKind::Compute, "q").unwrap();
    let seen = Arc::new(Seen::default());
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let blocks = move |recorder: &mut host::Recorder| {
        recorder.run(move || {
            let _ = gate.recv();
        });
        Ok(())
    };
    queue.submit(&[], blocks, &[]).unwrap();
    for _ in 0..MANY {
        let kept = Arc::new(Submits(queue.clone(), seen.clone()));
        let keeps = move |recorder: &mut host::Recorder| {
            recorder.keep(kept);
            Ok(())
        };
        queue.submit(&[], keeps, &[]).unwrap();
    }
    drop(go);
    queue.position().wait(LONG).unwrap();
    queue.submit(&[], nothing, &[]).unwrap();
    queue.idle(LONG).unwrap();
    assert_eq!(seen.gone.load(Ordering::SeqCst), MANY);
    let deepest = seen.deepest.load(Ordering::SeqCst);
    assert!(deepest <= 4, "{deepest} deep");
}
