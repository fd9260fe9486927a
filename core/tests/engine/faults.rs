//! F5: queries of times after a driver fault or a refused start.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::script::{Script, Scripted, Time, scripted};
use crate::words::Of;
use syncline_core::backend::{Attachment, ByEngine, Device as _, Port, Queue as _};
use syncline_core::{Error, QueueKind, Result, Stopwatch, error::Object, host, info::DeviceId};

/// The driver: a counter that can be read until the device is lost.
#[derive(Default)]
struct Driver {
    counter: AtomicU64,
    lost: AtomicBool,
}

struct Counter(Arc<Driver>);

impl Port for Counter {
    fn poll(&self) -> Result<Option<u64>> {
        if self.0.lost.load(Ordering::SeqCst) {
            return Err(Error::device_lost(
                Object::new("device", "lost"),
                "poll",
                -4,
                "LOST",
            ));
        }
        Ok(Some(self.0.counter.load(Ordering::SeqCst)))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.counter.store(value, Ordering::SeqCst);
        Ok(())
    }
}

/// A driver queue that takes every submission. The test finishes them through the counter.
struct Taking(AtomicI64);

impl Script for Taking {
    fn stamp(&self) -> Result<Time> {
        Ok(Time::At(self.0.fetch_add(100, Ordering::SeqCst)))
    }
}

#[test]
fn a_query_of_a_time_neither_hides_nor_clears_a_fault() {
    let driver = Arc::new(Driver::default());
    let id = DeviceId::new::<Of<Scripted<Taking>>>();
    let counter = driver.clone();
    let home = Of::new(id, move || Attachment::new(id, 0, Counter(counter.clone())));
    let queue = scripted(home.clone(), Taking(AtomicI64::new(0)));
    let [first, second, third] = ["first", "second", "third"].map(|name| home.timed_fence(name));
    queue.record(&first).unwrap();
    queue.record(&second).unwrap();
    driver.counter.store(2, Ordering::SeqCst);
    assert_eq!(second.elapsed_since(&first).unwrap(), 100);
    queue.record(&third).unwrap();
    assert!(matches!(
        third.elapsed_since(&first),
        Err(Error::NotReady { .. })
    ));

    driver.lost.store(true, Ordering::SeqCst);
    let is_the_fault = |result: Result<()>| {
        let Err(Error::Failed { cause, .. }) = result else {
            panic!("the fault is reported as {result:?}");
        };
        assert!(
            matches!(&*cause, Error::DeviceLost { code: -4, .. }),
            "{cause}"
        );
    };
    // Every query returns the fault, in either order and more than once.
    for _ in 0..2 {
        is_the_fault(third.elapsed_since(&first).map(drop));
        is_the_fault(first.elapsed_since(&third).map(drop));
        is_the_fault(third.is_complete().map(drop));
        is_the_fault(third.wait(Duration::ZERO));
        is_the_fault(queue.idle(Duration::ZERO));
    }
    // Times from before the fault can still be read.
    assert_eq!(second.elapsed_since(&first).unwrap(), 100);
}

#[test]
fn a_timed_submission_that_is_refused_changes_no_fence() {
    let (device, elsewhere) = (host::Device::new(), host::Device::new());
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let own = device.clocked_fence("own").unwrap();
    let (plain, other) = (
        device.fence("plain"),
        elsewhere.clocked_fence("other").unwrap(),
    );
    let submit = |times| queue.submit_timed(&[], |_| Ok(()), &[], times).map(|_| ());
    let refused = submit([&own, &plain]);
    assert!(
        matches!(refused, Err(Error::TimingDisabled { .. })),
        "{refused:?}"
    );
    let refused = submit([&own, &other]);
    assert!(
        matches!(refused, Err(Error::WrongDevice { .. })),
        "{refused:?}"
    );
    assert!([&own, &plain, &other].iter().all(|it| !it.is_recorded()));
    submit([&own, &device.clocked_fence("after").unwrap()]).unwrap();
    assert!(own.is_recorded());
}

#[test]
fn a_start_that_is_refused_changes_nothing() {
    let device = host::Device::new();
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let other = host::Device::new()
        .queue(QueueKind::Compute, "of another device")
        .unwrap();
    let stopwatch = Stopwatch::new(&device, "watch").unwrap();
    let refused = |result| matches!(result, Err(Error::WrongDevice { .. }));
    assert!(refused(stopwatch.start(&other)));
    let nothing = stopwatch.elapsed();
    assert!(
        matches!(nothing, Err(Error::NotRecorded { .. })),
        "{nothing:?}"
    );
    stopwatch.start(&queue).unwrap();
    stopwatch.stop(&queue).unwrap();
    let took = stopwatch.wait(Duration::from_secs(20)).unwrap();
    assert!(refused(stopwatch.start(&other)) && refused(stopwatch.stop(&other)));
    assert_eq!(stopwatch.elapsed().unwrap(), took);
}
