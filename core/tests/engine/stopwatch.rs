//! Stopwatches that several threads use, and starts that are refused.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use syncline_core::backend::{Attachment, Device as _, Held, Submitted};
use syncline_core::clock::Clock;
use syncline_core::{
    Error, Fence, Point, QueueKind, Result, Signal, Stopwatch, backend,
    error::Object,
    host,
    info::{DeviceId, Info},
};

const LONG: Duration = Duration::from_secs(20);

/// The host device, with queues that call a function of the test at the end of each `record`.
#[derive(Clone)]
struct Device(host::Device);

#[derive(Clone)]
struct Queue {
    inner: host::Queue,
    then: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
}

impl backend::Device for Device {
    type Queue = Queue;

    fn id(&self) -> DeviceId {
        self.0.id()
    }

    fn object(&self) -> &Object {
        self.0.object()
    }

    fn info(&self) -> &Info {
        self.0.info()
    }

    fn port(&self, initial: u64) -> Result<Attachment> {
        self.0.port(initial)
    }

    fn queue(&self, kind: QueueKind, label: &str) -> Result<Queue> {
        let (inner, then) = (self.0.queue(kind, label)?, Arc::default());
        Ok(Queue { inner, then })
    }

    fn check(&self) -> Result<()> {
        self.0.check()
    }

    fn clock(&self) -> Result<Clock> {
        self.0.clock()
    }
}

impl backend::Queue for Queue {
    type Device = Device;
    type Recorder<'a> = host::Recorder<'a>;

    fn device(&self) -> Device {
        Device(self.inner.device())
    }

    fn object(&self) -> &Object {
        self.inner.object()
    }

    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut host::Recorder<'a>) -> Result<()> + Send + 'static,
    {
        self.inner.submit(waits, work, signals)
    }

    fn record(&self, fence: &Fence) -> Result<()> {
        self.inner.record(fence)?;
        if let Some(then) = self.then.get() {
            then();
        }
        Ok(())
    }

    fn position(&self) -> Point<'_> {
        self.inner.position()
    }

    fn held(&self) -> Held {
        self.inner.held()
    }

    fn idle(&self, timeout: Duration) -> Result<()> {
        self.inner.idle(timeout)
    }
}

/// A query during a start never returns the time from the new start to the old stop.
#[test]
fn an_earlier_stop_does_not_count_for_a_new_start() {
    let device = Device(host::Device::new());
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let stopwatch = Arc::new(Stopwatch::new(&device, "watch").unwrap());
    stopwatch.start(&queue).unwrap();
    stopwatch.stop(&queue).unwrap();
    stopwatch.wait(LONG).unwrap();
    let (asked, told) = (Arc::downgrade(&stopwatch), Arc::new(Mutex::default()));
    let tells = told.clone();
    let ask = move || {
        *tells.lock().unwrap() = asked.upgrade().map(|stopwatch| stopwatch.wait(LONG));
    };
    assert!(queue.then.set(Box::new(ask)).is_ok());
    stopwatch.start(&queue).unwrap();
    let told = told.lock().unwrap().take().unwrap();
    assert!(matches!(told, Err(Error::NotRecorded { .. })), "{told:?}");
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
    let took = stopwatch.wait(LONG).unwrap();
    assert!(refused(stopwatch.start(&other)) && refused(stopwatch.stop(&other)));
    assert_eq!(stopwatch.elapsed().unwrap(), took);
}
