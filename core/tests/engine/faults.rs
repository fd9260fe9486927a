//! F5: what is told of times once the driver has a fault, which no driver at hand has when a test
//! wants it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use syncline_core::backend::{
    Attachment, Batch, ByEngine, Device as _, Enqueue, Flush, Keep, Port, SubmissionQueue,
};
use syncline_core::backend::{Stamp, Waker};
use syncline_core::host::Device;
use syncline_core::{Error, Object, Result, Timeline};

/// The driver's half of everything: a counter, until the device is lost.
#[derive(Default)]
struct Driver {
    counter: AtomicU64,
    lost: AtomicBool,
}

struct Counter(Arc<Driver>);

impl Port for Counter {
    fn poll(&self) -> Result<Option<u64>> {
        if self.0.lost.load(Ordering::SeqCst) {
            return Err(Error::DeviceLost {
                object: Object::new("device", "lost"),
                call: "poll",
                code: -4,
                name: "LOST".into(),
            });
        }
        Ok(Some(self.0.counter.load(Ordering::SeqCst)))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.counter.store(value, Ordering::SeqCst);
        Ok(())
    }
}

struct Time(i64);

impl Stamp for Time {
    fn nanoseconds_since(&self, start: &dyn Stamp) -> Result<i64> {
        let start: &dyn std::any::Any = start;
        Ok(self.0 - start.downcast_ref::<Self>().unwrap().0)
    }
}

/// A queue that takes everything, and finishes it when the test says so.
struct Taking(AtomicU64);

impl Enqueue for Taking {
    type Recorder<'a> = ();
    type Prepared = ();
    type Stamp = Time;

    fn order_domain(&self) -> Option<u64> {
        Some(1)
    }

    fn record<W>(&self, _: &Batch<'_>, _: &mut Keep, work: W) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        work(&mut ())
    }

    fn flush(&self, (): (), _: &dyn Fn() -> Waker) -> Flush<()> {
        Flush::Done
    }

    fn stamp(&self, _: &Object, _: syncline_core::backend::Timing) -> Result<Arc<Time>> {
        let time = self.0.fetch_add(100, Ordering::SeqCst);
        Ok(Arc::new(Time(i64::try_from(time).unwrap())))
    }

    fn write_stamp((): &mut (), _: &Arc<Time>) -> Result<()> {
        Ok(())
    }
}

#[test]
fn asking_for_a_time_neither_hides_a_fault_nor_takes_it_away() {
    // Lends its fences to a queue of the same identity.
    let device = Device::new();
    let driver = Arc::new(Driver::default());
    let own = Timeline::new("position", 0, |_| {
        let position = Attachment::new(device.id(), 0, Counter(driver.clone()));
        Ok([position].into_iter().collect())
    })
    .unwrap();
    let queue = Object::new("queue", "taking");
    let queue = SubmissionQueue::new(queue, device.id(), own, Taking(AtomicU64::new(0)));
    let [first, second, third] = ["first", "second", "third"].map(|name| device.timed_fence(name));
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
            panic!("a fault is told as {result:?}");
        };
        assert!(
            matches!(&*cause, Error::DeviceLost { code: -4, .. }),
            "{cause}"
        );
    };
    // However often, in either order, and by every other way to ask.
    for _ in 0..2 {
        is_the_fault(third.elapsed_since(&first).map(drop));
        is_the_fault(first.elapsed_since(&third).map(drop));
        is_the_fault(third.is_complete().map(drop));
        is_the_fault(third.wait(Duration::ZERO));
        is_the_fault(queue.idle(Duration::ZERO));
    }
    // What was there before the fault stays.
    assert_eq!(second.elapsed_since(&first).unwrap(), 100);
}
