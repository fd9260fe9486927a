//! A process that cannot start threads.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::script::{Made, Script, Scripted, scripted};
use crate::words::{Of, Word, Words};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use syncline_core::backend::kit::StandbyThread;
use syncline_core::backend::{Batch, Device as _, Keep};
use syncline_core::{
    Error, QueueKind, Result, Timeline, WaitMode, error::Object, host, info::DeviceId,
};

const LONG: Duration = Duration::from_secs(20);

/// Calls `action` while the system refuses to start threads.
fn without_threads<T>(action: impl FnOnce() -> T) -> T {
    // Address space for smaller objects, but not for another stack of 2 MiB.
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
    let used = pages * rustix::param::page_size() as u64;
    let before = getrlimit(Resource::As);
    let limit = Rlimit {
        current: Some(used + (1 << 20)),
        maximum: before.maximum,
    };
    setrlimit(Resource::As, limit).unwrap();
    let refused = std::thread::Builder::new().spawn(|| ()).is_err();
    let result = action();
    setrlimit(Resource::As, before).unwrap();
    assert!(refused, "the system still starts threads");
    result
}

/// True once the eventfd is readable, false after 20 seconds.
fn is_readable(eventfd: &OwnedFd) -> bool {
    let mut poll = [PollFd::new(eventfd, PollFlags::IN)];
    let limit = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    rustix::event::poll(&mut poll, Some(&limit)).unwrap() == 1
}

fn has_no_thread(error: &Error) {
    let Error::Native { call, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(*call, "starting a thread");
}

#[test]
fn a_timeline_is_refused_if_no_thread_can_watch_its_device() {
    if crate::runs_apart() {
        return;
    }
    let (words, device) = (Arc::new(Words::default()), DeviceId::new::<()>());
    let make = |value: &Arc<AtomicU64>| {
        let port = words.port(device, value.clone());
        Timeline::new("line", 0, |_| Ok([port].into_iter().collect()))
    };
    let value = Arc::new(AtomicU64::new(0));
    let refused = without_threads(|| make(&value).unwrap_err());
    has_no_thread(&refused);
    // Nothing is left behind: the next one has a watching thread.
    let line = make(&value).unwrap();
    let mut claim = line.claim(1).unwrap();
    claim.submitted().unwrap();
    value.store(1, Ordering::SeqCst);
    line.at(1).wait(LONG).unwrap();
}

#[test]
fn a_host_queue_and_a_descriptor_are_refused_if_no_thread_can_serve_them() {
    if crate::runs_apart() {
        return;
    }
    let device = host::Device::new();
    let (reader, _writer) = std::io::pipe().unwrap();
    let descriptor = OwnedFd::from(reader);
    let (queue, rejected) = without_threads(|| {
        let queue = device.queue(QueueKind::Compute, "queue").map(drop);
        (
            queue,
            device
                .import_descriptor(Some(descriptor), "end")
                .unwrap_err(),
        )
    });
    has_no_thread(&queue.unwrap_err());
    has_no_thread(&rejected.error);
    // The handle came back, and is imported now.
    let fence = device
        .import_descriptor(Some(rejected.handle), "end")
        .unwrap();
    assert!(!fence.is_complete().unwrap());
    device.queue(QueueKind::Compute, "queue").unwrap();
}

/// A lent stream that is not ready for as many calls as the number that the test sets.
struct Lent(Arc<AtomicU64>);

impl Script for Lent {
    fn ready(&self) -> bool {
        let busy = |busy: u64| busy.checked_sub(1);
        let taken = self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, busy);
        taken.is_err()
    }

    fn record(
        &self,
        batch: &Batch<'_, Scripted<Self>>,
        _: &mut Keep,
        _: &mut Vec<Made>,
        work: &mut dyn FnMut(&mut u64) -> Result<()>,
    ) -> Result<()> {
        work(&mut 0)?;
        let word = batch.end.port::<Word>().unwrap();
        word.0.store(batch.end.value(), Ordering::SeqCst);
        Ok(())
    }
}

/// The watching thread was started with the queue's timeline, so no later step needs a new thread.
#[test]
fn an_open_device_goes_on_without_new_threads() {
    if crate::runs_apart() {
        return;
    }
    let (words, busy) = (Arc::new(Words::default()), Arc::default());
    let device = DeviceId::new::<Of<Scripted<Lent>>>();
    let home = words.of(device, Arc::default());
    let queue = scripted(home, Lent(Arc::clone(&busy)));
    let value = Arc::new(AtomicU64::new(0));
    let line = words.timeline(device, "line", value.clone());
    let mut claim = line.claim(1).unwrap();
    claim.submitted().unwrap();
    // The watching thread runs. One that is starting would still need memory.
    let first = Arc::new(AtomicU64::new(0));
    let other = words.timeline(device, "other", first.clone());
    let mut other_claim = other.claim(1).unwrap();
    other_claim.submitted().unwrap();
    let runs = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let _runs = other.at(1).notify(runs.try_clone().unwrap()).unwrap();
    first.store(1, Ordering::SeqCst);
    assert!(is_readable(&runs), "the watching thread does not run");
    let (ended, notified) = without_threads(|| {
        let ended = [WaitMode::Block, WaitMode::Spin, WaitMode::Adaptive].map(|mode| {
            busy.store(3, Ordering::SeqCst);
            let sent = queue.submit(&[], |_| Ok(()), &[]).unwrap();
            let held = sent.is_held();
            let waited = sent.end().wait_with(mode, LONG);
            (held, waited.is_ok())
        });
        let eventfd = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let twin = eventfd.try_clone().unwrap();
        let _notification = line.at(1).notify(twin).unwrap();
        value.store(1, Ordering::SeqCst);
        (ended, is_readable(&eventfd))
    });
    assert_eq!(ended, [(true, true); 3]);
    assert!(notified, "the eventfd was not signalled");
}

#[test]
fn a_thread_that_was_started_in_advance_runs_its_closure() {
    if crate::runs_apart() {
        return;
    }
    let object = Object::new("device", "device");
    let thread = StandbyThread::default();
    thread.start("standby", &object).unwrap();
    let (ran, runs) = std::sync::mpsc::channel();
    let refused = without_threads(|| {
        // First, because a thread that has ended leaves its stack for the next one.
        let other = StandbyThread::default();
        let refused = other.start("standby", &object).unwrap_err();
        thread.run(move || ran.send(()).unwrap());
        runs.recv_timeout(LONG).unwrap();
        refused
    });
    has_no_thread(&refused);
}
