//! Queues, and how they hand submissions to OpenCL.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cl3::types::cl_command_queue;
use syncline_core::backend::kit::{RunsInProcess, TeardownGuard};
use syncline_core::backend::{
    self, Batch, Enqueue, Flush, InvariantLifetime, Keep, Timing, ToWrite, Waker,
};
use syncline_core::{Error, Result, error::Object};

use crate::cl::{Arg, CommandQueue, Event, Kernel};
use crate::device::{Device, port};
use crate::memory::{Buffer, HostEvent};

/// Records the work of one submission: each call enqueues a command.
#[derive(Debug)]
pub struct Recorder<'a> {
    queue: &'a CommandQueue,
    keep: &'a mut Keep,
    of_submission: InvariantLifetime<'a>,
}

impl Recorder<'_> {
    /// Every word of `buffer` becomes `word`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]. A driver error.
    pub fn fill(&mut self, buffer: &Buffer, word: u32) -> Result<()> {
        self.use_buffer(buffer)?;
        self.queue.fill(buffer.memory(), word)
    }

    /// The start of `to` becomes a copy of `from`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]. A driver error, also if `to` is smaller.
    pub fn copy(&mut self, from: &Buffer, to: &Buffer) -> Result<()> {
        self.use_buffer(from)?;
        self.use_buffer(to)?;
        self.queue.copy(from.memory(), to.memory())
    }

    /// Runs `items` items of `kernel`, which has these arguments.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]. A driver error, also for arguments that do not fit.
    pub fn launch(&mut self, kernel: &Arc<Kernel>, items: usize, args: &[Arg<'_>]) -> Result<()> {
        for arg in args {
            if let Arg::Buffer(buffer) = arg {
                self.use_buffer(buffer)?;
            }
        }
        self.keep(kernel.clone());
        self.queue.launch(kernel, items, args)
    }

    /// What is recorded later starts once the host has completed `event`.
    ///
    /// # Errors
    /// A driver error.
    pub fn wait(&mut self, event: &HostEvent) -> Result<()> {
        self.wait_for(event.event())
    }

    pub(crate) fn wait_for(&mut self, event: &Event) -> Result<()> {
        self.queue.wait(std::slice::from_ref(event))
    }

    /// The command queue, for commands of the application's own.
    ///
    /// They run between the waits and the signals of the submission, if they are enqueued before
    /// its work returns.
    #[must_use]
    pub const fn raw(&self) -> cl_command_queue {
        self.queue.raw()
    }

    /// Keeps `object` until the submission has finished.
    pub fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.keep.push(object);
    }

    fn use_buffer(&mut self, buffer: &Buffer) -> Result<()> {
        let (ours, owner) = (&self.queue.context, &buffer.memory().context);
        if !Arc::ptr_eq(ours, owner) {
            return Err(Error::wrong_device(
                Object::new("buffer", ""),
                &owner.object,
                &ours.object,
            ));
        }
        self.keep(buffer.memory().clone());
        Ok(())
    }
}

/// The events of one command, kept to be filled again.
#[derive(Default)]
pub struct WaitList(Vec<Event>);

/// The engine's way to a command queue.
pub struct Channel {
    device: Device,
    queue: Arc<Ordered>,
}

/// A command queue, and the event of what came last.
struct Ordered {
    commands: CommandQueue,
    last: Mutex<Option<Event>>,
}

impl Channel {
    pub(crate) fn new(device: &Device) -> Result<Self> {
        let queue = Arc::new(Ordered {
            commands: CommandQueue::new(device.context())?,
            last: Mutex::default(),
        });
        if syncline_core::backend::Device::info(device).software {
            let weak = Arc::downgrade(&queue);
            TeardownGuard::register_queue(weak);
        }
        let device = device.clone();
        Ok(Self { device, queue })
    }

    fn object(&self) -> &Object {
        &self.queue.commands.context.object
    }
}

impl Ordered {
    fn last(&self) -> MutexGuard<'_, Option<Event>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunsInProcess for Ordered {
    fn is_idle(&self) -> bool {
        let object = &self.commands.context.object;
        // Nothing runs after a failed command.
        let ended = |event: &Event| event.is_complete(object).unwrap_or(true);
        self.last().as_ref().is_none_or(ended)
    }
}

impl Enqueue for Channel {
    type Device = Device;
    type Recorder<'a> = Recorder<'a>;
    type Ready<'a> = ();
    type State = WaitList;
    type Stamp = Stamp;

    /// OpenCL does not say how many commands fill a queue. NVIDIA's takes about a thousand.
    const MAX_IN_FLIGHT: u64 = 64;

    fn device(&self) -> &Device {
        &self.device
    }

    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn is_idle(&self) -> Option<bool> {
        Some(self.queue.is_idle())
    }

    /// One marker stands for the time, the signals and the end, so an error before it signals none.
    fn record<W>(
        &self,
        (): (),
        WaitList(events): &mut WaitList,
        batch: &Batch<'_, Self>,
        keep: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()>,
    {
        let commands = &self.queue.commands;
        events.clear();
        for &point in batch.waits {
            port(point)?.wait(point.value(), events)?;
        }
        commands.wait(events)?;
        work(&mut Recorder {
            queue: commands,
            keep,
            of_submission: PhantomData,
        })?;
        events.clear();
        for &point in batch.order {
            port(point)?.wait(point.value(), events)?;
        }
        commands.wait(events)?;
        let marker = commands.mark()?;
        events.clear();
        // One reference for each of them, before anything is signalled.
        let signals = || batch.signals.iter().chain([&batch.end]);
        for &point in signals() {
            port(point)?;
            events.push(marker.again(self.object())?);
        }
        if let Some(stamp) = batch.stamp::<Stamp>() {
            *stamp.event() = Some(marker.again(self.object())?);
        }
        // First the ports: a watch that is told of an event must find it there.
        for (&point, event) in signals().zip(events.drain(..)) {
            port(point)?.will_signal(point.value(), event);
        }
        let handed_over = marker
            .tell(self.object(), self.device.news())
            .and_then(|()| commands.flush());
        *self.queue.last() = Some(marker);
        batch.signalled().set(true);
        handed_over
    }

    /// All is done by the record.
    fn flush(&self, _: &mut WaitList, _: &dyn Fn() -> Waker) -> Flush {
        Flush::Done
    }

    fn stamp(&self, queue: &Object, _: Timing) -> Result<Arc<Stamp>> {
        Ok(Arc::new(Stamp {
            object: Object::new("stamp", queue.label()),
            event: Mutex::default(),
        }))
    }

    fn write_stamp(recorder: &mut Recorder<'_>, stamp: ToWrite<'_, Self>) -> Result<()> {
        *stamp.event() = Some(recorder.queue.mark()?);
        Ok(())
    }
}

/// A time that the device writes: the end of a marker.
pub struct Stamp {
    object: Object,
    event: Mutex<Option<Event>>,
}

impl Stamp {
    fn event(&self) -> MutexGuard<'_, Option<Event>> {
        self.event.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nanoseconds on the device's clock.
    fn read(&self) -> Result<i64> {
        match self.event().as_ref() {
            Some(event) if event.is_complete(&self.object)? => event.ended(&self.object),
            _ => Err(Error::not_ready(&self.object)),
        }
    }
}

impl backend::Stamp for Stamp {
    fn nanoseconds_since(&self, start: &dyn backend::Stamp) -> Result<i64> {
        let start: &dyn Any = start;
        let start = start.downcast_ref::<Self>().ok_or_else(|| {
            let reason = "the other one is of another backend";
            Error::unsupported(&self.object, "measure an interval", reason)
        })?;
        Ok(self.read()? - start.read()?)
    }

    fn time(&self) -> Result<Option<i64>> {
        self.read().map(Some)
    }

    fn time_if_written(&self) -> Option<i64> {
        self.read().ok()
    }
}
