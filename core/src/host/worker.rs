//! Worker threads of host queues: what a submission gives them, and what they do with it.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::kit::Recycled;
use crate::backend::{self, Batch, Enqueue, Flush, InvariantLifetime, Keep, ToWrite, Waker};
use crate::base::exiting::{is_exiting, stop_for_good};
use crate::base::sync::spawn;
use crate::host::Device;
use crate::host::tasks::{Closures, Step, TaskList, Tasks, call, finish_signal};
use crate::host::timing::Stamp;
use crate::timeline::point::{Completion, KeptPoint};
use crate::timeline::recent_spins::RecentSpins;
use crate::{Error, Result, error::Object};

/// Records the work of one submission: closures for the worker thread.
///
/// Each recorder has a lifetime of its own, so that two of them cannot be exchanged:
///
/// ```compile_fail
/// # extern crate syncline_core as syncline;
/// use syncline::host::Recorder;
///
/// fn exchange(outer: &mut Recorder<'_>, inner: &mut Recorder<'_>) {
///     std::mem::swap(outer, inner);
/// }
/// ```
pub struct Recorder<'a> {
    recorded: &'a mut Recorded,
    of_submission: InvariantLifetime<'a>,
}

/// The recorded work of one submission.
#[derive(Default)]
struct Recorded {
    closures: Closures,
    keep: Keep,
}

impl<'a> Recorder<'a> {
    #[inline]
    const fn new(recorded: &'a mut Recorded) -> Self {
        Self {
            recorded,
            of_submission: PhantomData,
        }
    }

    /// A shorter-lived recorder of the same submission, by value.
    #[inline]
    pub fn reborrow(&mut self) -> Recorder<'_> {
        Recorder::new(self.recorded)
    }

    /// Adds a closure. The worker thread runs the closures in order.
    ///
    /// A closure may block. If it panics, the timelines of the submission's signals fail.
    pub fn run(&mut self, job: impl FnOnce() + Send + 'static) {
        self.try_run(move || {
            job();
            Ok(())
        });
    }

    /// Same as [`Recorder::run`], for a closure that may fail.
    ///
    /// If it returns an error, the later closures of the submission do not run, and the timelines
    /// of its signals fail with the error (E1). The queue continues with the next submission. Use
    /// [`Error::work`] for an error of your own.
    pub fn try_run(&mut self, job: impl FnOnce() -> Result<()> + Send + 'static) {
        self.recorded.closures.push(job);
    }

    /// Keeps `object` alive until the submission has finished.
    pub fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.recorded.keep.push(object);
    }
}

impl std::fmt::Debug for Recorder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let closures = self.recorded.closures.len();
        write!(f, "host Recorder ({closures} closures)")
    }
}

/// Gives the submissions of a host queue to its worker thread.
#[derive(Debug)]
pub struct Worker {
    device: Device,
    object: Object,
    tasks: Arc<Tasks>,
    stamps: Recycled<Stamp>,
}

impl Worker {
    /// Starts the thread of the queue `object`.
    pub(super) fn start(device: &Device, object: &Object) -> Result<Self> {
        let tasks = Arc::new(Tasks::default());
        let received = tasks.clone();
        let name = object.clone();
        // The name of a thread must not contain NUL.
        let thread = format!("syncline-{}", object.label().replace('\0', "?"));
        let spawned = spawn(&thread, move || run_worker(&name, &received));
        spawned.map_err(|error| Error::no_thread(object, &error))?;
        // The thread ends when this is dropped, after the last handle of the queue and the queue's
        // last work.
        Ok(Self {
            device: device.clone(),
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
    type Device = Device;
    type Recorder<'a> = Recorder<'a>;
    type Ready<'a> = ();
    type State = ();
    type Stamp = Stamp;

    fn device(&self) -> &Device {
        &self.device
    }

    #[inline]
    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(
        &self,
        (): (),
        (): &mut (),
        batch: &Batch<'_, Self>,
        keep: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()>,
    {
        let mut recorded = Recorded::default();
        work(&mut Recorder::new(&mut recorded))?;
        keep.append(&mut recorded.keep);
        // Nothing can refuse the submission after this, so `record` gives it to the worker at once.
        self.tasks.push(batch, &mut recorded.closures);
        Ok(())
    }

    fn flush(&self, (): &mut (), _waker: &dyn Fn() -> Waker) -> Flush {
        Flush::Done
    }

    fn stamp(&self, _: &Object, _timing: backend::Timing) -> Result<Arc<Stamp>> {
        self.stamps
            .take_fit(Stamp::renew, || Ok(Stamp::new(&self.object)))
    }

    fn stamp_again(
        &self,
        queue: &Object,
        timing: backend::Timing,
        before: Arc<Stamp>,
    ) -> Result<Arc<Stamp>> {
        let again = self.stamps.take_again(before, Stamp::renew);
        again.map_or_else(|| self.stamp(queue, timing), Ok)
    }

    fn write_stamp(recorder: &mut Recorder<'_>, stamp: ToWrite<'_, Self>) -> Result<()> {
        let stamp = stamp.clone();
        recorder.run(move || stamp.write());
        Ok(())
    }
}

/// The worker thread's function. Panics of the application's code are contained where it is called.
fn run_worker(queue: &Object, tasks: &Tasks) {
    crate::port::parker::prepare_thread();
    let mut list = TaskList::default();
    let spins = RecentSpins::default();
    // The result of the present submission, and its last wait.
    let mut done = Ok(());
    let mut waited = KeptPoint::default();
    while tasks.take(&mut list, &spins) {
        // Always there, because the first submission has brought it.
        let Some(own) = tasks.own() else { continue };
        while let Some(simple) = list.next_simple() {
            simple.run(queue, own);
        }
        while let Some(step) = list.next_step() {
            match step {
                // The signal is pending, so this wait ends in success or failure.
                Step::Wait(point) => {
                    done = done.and_then(|()| point.point().wait(Duration::MAX));
                    if is_exiting() {
                        // The wait may have failed for that reason, and no other party may learn
                        // of such a failure.
                        stop_for_good();
                    }
                    waited = point;
                }
                Step::Run => {
                    if let Some(job) = list.next_small_closure() {
                        done = call(queue, done, job);
                    }
                }
                Step::Call(count) => {
                    for _ in 0..count {
                        if let Some(job) = list.next_closure() {
                            done = call(queue, done, job);
                        }
                    }
                }
                Step::Signal(signal) => finish_signal(&done, signal),
                Step::SignalWaited(value) => {
                    if let Some(of) = waited.of.take() {
                        finish_signal(&done, Completion::of(of, value));
                    }
                }
                Step::Relayed(signal) => {
                    if let Err(cause) = &done {
                        signal.fail(cause.clone());
                    }
                }
                Step::End(number) => {
                    done = Ok(());
                    waited.of = None;
                    own.advance(number);
                }
            }
        }
    }
}
