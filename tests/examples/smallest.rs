//! The smallest backend that works: each queue is a thread, and a list of calls is a submission.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use syncline::info::{BackendKind, Capabilities, DeviceId, Info, QueueFamily};
use syncline::{Error, QueueKind, Result, connect, error::Object, host};
use syncline_core::backend::{self, Attachment, Batch, ByEngine, Completion, EngineQueue};
use syncline_core::backend::{Device as _, Enqueue, Flush, Identity, InvariantLifetime, Keep};
use syncline_core::backend::{NativePoint, NoStamp, Queue as _, Waker};

/// Has the id, the name and the description.
#[derive(Clone)]
pub(crate) struct Device(Arc<(DeviceId, Object, Info)>);

impl backend::Home for Device {
    type Enqueue = Channel;

    fn port(&self, initial: u64) -> Result<Attachment> {
        let counter = Counter(Arc::new((Mutex::new(initial), Condvar::new())));
        Ok(Attachment::new(self.0.0, initial, counter))
    }
}

impl backend::Backend for Device {
    type Queue = EngineQueue<Channel>;

    fn identity(&self) -> Identity<'_> {
        let (id, object, info) = &*self.0;
        Identity {
            id: *id,
            object,
            info,
        }
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn enqueue(&self, _: QueueKind, queue: &Object) -> Result<Channel> {
        let (sender, submissions) = channel::<Calls>();
        let run = move || {
            submissions
                .into_iter()
                .for_each(|calls| calls.0.into_iter().for_each(|call| call()))
        };
        let thread = std::thread::Builder::new().spawn(run);
        thread.map_err(|error| Error::no_thread(queue, &error))?;
        Ok(Channel(self.clone(), sender))
    }
}

/// A timeline as the device sees it.
#[derive(Clone)]
struct Counter(Arc<(Mutex<u64>, Condvar)>);

impl Counter {
    fn value(&self) -> MutexGuard<'_, u64> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, value: u64) {
        *self.value() = value;
        self.0.1.notify_all();
    }

    fn wait(&self, value: u64) {
        let reached = self
            .0
            .1
            .wait_while(self.value(), |reached| *reached < value);
        drop(reached);
    }
}

impl backend::Port for Counter {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(*self.value()))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.set(value);
        Ok(())
    }
}

type Call = Box<dyn FnOnce() + Send>;

/// The recorded submission.
#[derive(Default)]
pub(crate) struct Calls(Vec<Call>);

/// What a submission's work gets.
pub(crate) struct Recorder<'a>(&'a mut Calls, &'a mut Keep, InvariantLifetime<'a>);

impl Recorder<'_> {
    pub(crate) fn run(&mut self, call: impl FnOnce() + Send + 'static) {
        // A panic must not end the thread.
        let call = AssertUnwindSafe(call);
        self.0.0.push(Box::new(|| drop(catch_unwind(call))));
    }

    /// Until the submission has finished.
    #[allow(dead_code, reason = "the suite uses it")]
    pub(crate) fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.1.push(object);
    }
}

/// The driver's half of a queue: its thread ends with it.
pub(crate) struct Channel(Device, Sender<Calls>);

/// Does `with` to the counter of each point.
fn each<'a>(
    points: impl IntoIterator<Item = &'a NativePoint<'a>>,
    calls: &mut Calls,
    with: fn(&Counter, u64, Option<Completion>),
) {
    for point in points {
        if let Some(counter) = point.port::<Counter>().cloned() {
            let (value, completion) = (point.value(), point.completion());
            calls
                .0
                .push(Box::new(move || with(&counter, value, completion)));
        }
    }
}

impl Enqueue for Channel {
    type Device = Device;
    type Recorder<'a> = Recorder<'a>;
    type Ready<'a> = ();
    type State = Calls;
    type Stamp = NoStamp;

    fn device(&self) -> &Device {
        &self.0
    }

    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(
        &self,
        (): (),
        calls: &mut Calls,
        batch: &Batch<'_, Self>,
        keep: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()>,
    {
        calls.0.clear();
        each(batch.waits, calls, |counter, value, _| counter.wait(value));
        work(&mut Recorder(calls, keep, InvariantLifetime::default()))
            .inspect_err(|_| calls.0.clear())?;
        each(batch.order, calls, |counter, value, _| counter.wait(value));
        let signals = batch.signals.iter().chain([&batch.end]);
        each(signals, calls, |counter, value, completion| {
            counter.set(value);
            completion.into_iter().for_each(Completion::complete);
        });
        Ok(())
    }

    fn flush(&self, calls: &mut Calls, _: &dyn Fn() -> Waker) -> Flush {
        match self.1.send(std::mem::take(calls)) {
            Ok(()) => Flush::Done,
            Err(_) => Flush::Refused(Error::closed(&self.0.0.1)),
        }
    }
}

impl Device {
    pub(crate) fn new() -> Self {
        let info = Info {
            backend: BackendKind::Other("threads"),
            name: "threads".into(),
            vendor: "this example".into(),
            uuid: None,
            parent_uuid: None,
            driver_uuid: None,
            luid: None,
            driver: "none".into(),
            software: false,
            capabilities: Capabilities {
                max_value_difference: u64::MAX,
                queues: vec![QueueFamily {
                    kind: QueueKind::Graphics,
                    count: None,
                    index: 0,
                    timestamp_bits: 0,
                }],
                limits: ["calibrated clock", "exports", "imports", "timestamps"]
                    .map(|what| (what, "it has no driver".into()))
                    .into(),
                ..Capabilities::default()
            },
        };
        let object = Object::new("device", "threads");
        Self(Arc::new((DeviceId::new::<Self>(), object, info)))
    }
}

fn main() -> Result<()> {
    let (device, worker) = (Device::new(), host::Device::new());
    let frames = connect(&device, &worker).timeline("frames")?;
    let first = device.queue(QueueKind::Compute, "first")?;
    let second = worker.queue(QueueKind::Compute, "second")?;
    let say = |recorder: &mut host::Recorder<'_>| {
        recorder.run(|| println!("second"));
        Ok(())
    };
    second.submit(&[frames.at(1)], say, &[frames.signal_at(2)])?;
    let say = |recorder: &mut Recorder<'_>| {
        recorder.run(|| println!("first"));
        Ok(())
    };
    first.submit(&[], say, &[frames.signal_at(1)])?;
    frames.at(2).wait(Duration::from_secs(1))
}
