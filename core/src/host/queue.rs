//! Host queues: one worker thread each.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use smallbox::smallbox;

use crate::backend::{
    self, Batch, Device as _, Enqueue, Flush, Held, Keep, Lane, Recycled, Submitted, Waker,
};
use crate::host::device::Device;
use crate::host::tasks::{Lot, Step, Tasks};
use crate::host::timing::Stamp;
use crate::lane::panic_message;
use crate::once::{Job, Small};
use crate::run::quietly;
use crate::state::Shared;
use crate::trace::Trace;
use crate::{Error, Fence, Object, Point, Result, Signal};

/// A worker thread that runs closures in order.
#[derive(Clone, Debug)]
pub struct Queue {
    device: Device,
    lane: Arc<Lane<Worker>>,
}

impl Queue {
    pub(crate) fn new(device: Device, label: &str) -> Result<Self> {
        let object = Object::new("host queue", label);
        let own = device.timeline(&format!("{label} (position)"))?;
        let worker = Worker::start(&object, own.shared().clone())?;
        let lane = Lane::new(object, device.id(), own, worker);
        Ok(Self { device, lane })
    }
}

impl backend::Queue for Queue {
    type Device = Device;
    type Recorder<'a> = Recorder;

    fn device(&self) -> Device {
        self.device.clone()
    }

    fn object(&self) -> &Object {
        self.lane.object()
    }

    fn submit<'q, W>(
        &'q self,
        waits: &[Point<'_>],
        work: W,
        signals: &[Signal<'_>],
    ) -> Result<Submitted<'q>>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder) -> Result<()> + Send + 'static,
    {
        self.lane.submit(waits, work, signals)
    }

    fn record(&self, fence: &Fence) -> Result<()> {
        self.lane.record(fence)
    }

    fn position(&self) -> Point<'_> {
        self.lane.position()
    }

    fn held(&self) -> Held {
        self.lane.held()
    }

    fn idle(&self, timeout: Duration) -> Result<()> {
        self.lane.idle(timeout)
    }

    fn trace(&self, trace: &Trace) -> Result<()> {
        self.lane.trace(&self.device, trace)
    }
}

/// What a submission to a host queue consists of: closures for the worker.
#[derive(Default)]
pub struct Recorder {
    lot: Lot,
    keep: Keep,
}

impl Recorder {
    /// Adds a closure, to be run on the worker thread after those added before. It may block; a panic
    /// in it fails the timelines that the submission would have signalled.
    pub fn run(&mut self, job: impl FnOnce() + Send + 'static) {
        self.lot.closures.push_back(smallbox!(Some(job)));
    }

    /// Keeps `object` alive until the submission has finished.
    pub fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.keep.push(object);
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host Recorder ({} closures)", self.lot.closures.len())
    }
}

/// The engine's way to a worker thread.
#[derive(Debug)]
pub(crate) struct Worker {
    object: Object,
    tasks: Arc<Tasks>,
    stamps: Recycled<Stamp>,
}

impl Worker {
    /// `own` is the queue's position.
    fn start(object: &Object, own: Arc<Shared>) -> Result<Self> {
        let tasks = Arc::new(Tasks::default());
        let received = tasks.clone();
        let name = object.clone();
        std::thread::Builder::new()
            // A label may hold anything, the name of a thread no NUL.
            .name(format!("syncline-{}", object.label().replace('\0', "?")))
            .spawn(move || work(&name, &own, &received))
            .map_err(|error| Error::Native {
                object: object.clone(),
                call: "starting a thread",
                code: error.raw_os_error().map_or(-1, i64::from),
                name: error.to_string(),
            })?;
        // The thread ends when this goes, with the last handle of the queue and its last work.
        Ok(Self {
            object: object.clone(),
            tasks,
            stamps: Recycled::default(),
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.tasks.close();
    }
}

impl Enqueue for Worker {
    type Recorder<'a> = Recorder;
    type Prepared = Lot;
    type Stamp = Stamp;

    fn order_domain(&self) -> u64 {
        self.object.id()
    }

    fn record<W>(&self, batch: &Batch<'_>, keep: &mut Keep, work: W) -> Result<Lot>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder) -> Result<()>,
    {
        let mut recorder = Recorder {
            lot: Lot::empty(),
            keep: Keep::default(),
        };
        work(&mut recorder)?;
        keep.append(&mut recorder.keep);
        let mut lot = recorder.lot;
        let steps = &mut lot.steps;
        steps.extend(batch.waits.iter().map(|point| Step::Wait(point.keep())));
        if !lot.closures.is_empty() {
            steps.push_back(Step::Call(lot.closures.len()));
        }
        steps.extend(batch.order.iter().map(|point| Step::Wait(point.keep())));
        let signals = batch.signals.iter();
        steps.extend(signals.map(|signal| Step::Signal(signal.completion())));
        steps.extend(batch.relayed.iter().cloned().map(Step::Relayed));
        steps.push_back(Step::End(batch.end.value()));
        Ok(lot)
    }

    fn flush(&self, lot: Lot, _lane: &dyn Fn() -> Waker) -> Flush<Lot> {
        if self.tasks.push(lot) {
            return Flush::Done;
        }
        Flush::Refused(Error::DeviceLost {
            object: self.object.clone(),
            call: "handing work to the worker thread",
            code: -1,
            name: "the thread has ended".into(),
        })
    }

    fn stamp(&self, _timing: backend::Timing) -> Result<Arc<Stamp>> {
        self.stamps
            .take(Stamp::renew, || Ok(Stamp::new(&self.object)))
    }

    fn write_stamp(recorder: &mut Recorder, stamp: &Arc<Stamp>) -> Result<()> {
        let stamp = stamp.clone();
        recorder.run(move || stamp.write());
        Ok(())
    }
}

/// The worker's life.
fn work(queue: &Object, own: &Shared, tasks: &Tasks) {
    struct End<'t>(&'t Tasks);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    let _end = End(tasks);
    let mut lot = Lot::default();
    // How the present submission goes.
    let mut done = Ok(());
    while tasks.take(&mut lot) {
        while let Some(step) = lot.steps.pop_front() {
            match step {
                // The signal is on its way: this ends, in success or failure.
                Step::Wait(point) => {
                    done = done.and_then(|()| point.point().wait(Duration::MAX));
                }
                Step::Call(count) => {
                    for _ in 0..count {
                        if let Some(job) = lot.closures.front_mut() {
                            done = done.and_then(|()| call(queue, job));
                        }
                        let left = lot.closures.pop_front();
                        if done.is_err() {
                            quietly(|| drop(left));
                        }
                    }
                }
                Step::Signal(signal) => match &done {
                    Ok(()) => signal.complete(),
                    Err(cause) => signal.fail(cause.clone()),
                },
                Step::Relayed(signal) => {
                    if let Err(cause) = &done {
                        signal.fail(cause.clone());
                    }
                }
                Step::End(number) => {
                    done = Ok(());
                    own.advance(number);
                }
            }
        }
    }
}

/// Calls a closure of the application.
fn call(queue: &Object, job: &mut Small<dyn Job>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(|| job.run())).map_err(|payload| Error::WorkPanicked {
        queue: queue.clone(),
        message: panic_message(payload),
    })
}
