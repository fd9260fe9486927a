//! Host queues: one worker thread each.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use smallbox::smallbox;
use smallvec::SmallVec;

use crate::backend::{
    self, Batch, Completion, Device as _, Enqueue, Flush, Held, Keep, KeptPoints, Lane, Recycled,
    Submitted, Waker,
};
use crate::host::device::Device;
use crate::host::tasks::Tasks;
use crate::host::timing::Stamp;
use crate::lane::panic_message;
use crate::once::{Job, Small};
use crate::run::quietly;
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
        let worker = Worker::start(&object, device.clone())?;
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
}

/// What a submission to a host queue consists of: closures for the worker.
#[derive(Default)]
pub struct Recorder {
    jobs: Jobs,
    keep: Keep,
    epoch: Option<std::time::Instant>,
}

type Jobs = SmallVec<[Small<dyn Job>; 1]>;

impl Recorder {
    /// Adds a closure, to be run on the worker thread after those added before. It may block; a panic
    /// in it fails the timelines that the submission would have signalled.
    pub fn run(&mut self, job: impl FnOnce() + Send + 'static) {
        self.jobs.push(smallbox!(Some(job)));
    }

    /// Keeps `object` alive until the submission has finished.
    pub fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.keep.push(object);
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "host Recorder ({} closures)", self.jobs.len())
    }
}

/// The engine's way to a worker thread.
#[derive(Debug)]
pub(crate) struct Worker {
    object: Object,
    device: Device,
    tasks: Arc<Tasks>,
    stamps: Recycled<Stamp>,
}

/// One submission, on its way to the worker.
pub(crate) struct Task {
    waits: KeptPoints,
    jobs: Jobs,
    order: KeptPoints,
    signals: SmallVec<[Completion; 2]>,
    /// To be failed if the work fails; the engine makes them otherwise.
    relayed: SmallVec<[Completion; 1]>,
    end: Completion,
}

impl Worker {
    fn start(object: &Object, device: Device) -> Result<Self> {
        let tasks = Arc::new(Tasks::default());
        let received = tasks.clone();
        let name = object.clone();
        std::thread::Builder::new()
            // A label may hold anything, the name of a thread no NUL.
            .name(format!("syncline-{}", object.label().replace('\0', "?")))
            .spawn(move || work(&name, &received))
            .map_err(|error| Error::Native {
                object: object.clone(),
                call: "starting a thread",
                code: error.raw_os_error().map_or(-1, i64::from),
                name: error.to_string(),
            })?;
        // The thread ends when this goes, with the last handle of the queue and its last work.
        Ok(Self {
            object: object.clone(),
            device,
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
    type Prepared = Task;
    type Stamp = Stamp;

    fn order_domain(&self) -> u64 {
        self.object.id()
    }

    fn record<W>(&self, batch: &Batch<'_>, keep: &mut Keep, work: W) -> Result<Task>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder) -> Result<()>,
    {
        let mut recorder = Recorder {
            epoch: Some(self.device.epoch()),
            ..Recorder::default()
        };
        work(&mut recorder)?;
        keep.append(&mut recorder.keep);
        Ok(Task {
            waits: batch.waits.iter().map(|point| point.keep()).collect(),
            jobs: recorder.jobs,
            order: batch.order.iter().map(|point| point.keep()).collect(),
            signals: batch
                .signals
                .iter()
                .map(|signal| signal.completion())
                .collect(),
            relayed: batch.relayed.iter().cloned().collect(),
            end: batch.end.completion(),
        })
    }

    fn flush(&self, task: Task, _lane: &dyn Fn() -> Waker) -> Flush<Task> {
        if self.tasks.push(task) {
            return Flush::Done;
        }
        Flush::Refused(Error::DeviceLost {
            object: self.object.clone(),
            call: "handing work to the worker thread",
            code: -1,
            name: "the thread has ended".into(),
        })
    }

    fn stamp(&self) -> Result<Arc<Stamp>> {
        self.stamps
            .take(Stamp::renew, || Ok(Stamp::new(&self.object)))
    }

    fn write_stamp(recorder: &mut Recorder, stamp: &Arc<Stamp>) -> Result<()> {
        let stamp = stamp.clone();
        let Some(epoch) = recorder.epoch else {
            return Ok(());
        };
        recorder.run(move || stamp.write(epoch.elapsed()));
        Ok(())
    }
}

/// The worker's life.
fn work(queue: &Object, tasks: &Tasks) {
    struct End<'t>(&'t Tasks);
    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    let _end = End(tasks);
    let mut batch = VecDeque::new();
    while tasks.take(&mut batch) {
        for task in batch.drain(..) {
            finish(queue, task);
        }
    }
}

/// Does one submission, and makes its signals.
fn finish(queue: &Object, task: Task) {
    let Task {
        waits,
        jobs,
        order,
        signals,
        relayed,
        end,
    } = task;
    let done = reached(&waits);
    let done = run(queue, jobs, done).and_then(|()| reached(&order));
    match done {
        Ok(()) => signals.into_iter().for_each(Completion::complete),
        Err(cause) => signals
            .into_iter()
            .chain(relayed)
            .for_each(|signal| signal.fail(cause.clone())),
    }
    end.complete();
}

/// Waits for points whose signals are on their way: this ends, in success or failure.
fn reached(points: &KeptPoints) -> Result<()> {
    points
        .iter()
        .try_for_each(|point| point.point().wait(Duration::MAX))
}

/// Runs the closures until one fails, none if `ready` did, and drops the rest.
fn run(queue: &Object, jobs: Jobs, ready: Result<()>) -> Result<()> {
    let mut jobs = jobs.into_iter();
    let done = ready.and_then(|()| {
        jobs.try_for_each(|mut job| {
            catch_unwind(AssertUnwindSafe(|| job.run())).map_err(|payload| Error::WorkPanicked {
                queue: queue.clone(),
                message: panic_message(payload),
            })
        })
    });
    quietly(|| drop(jobs));
    done
}
