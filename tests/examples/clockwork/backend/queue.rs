//! Queues, and how they hand submissions to the machine.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use syncline::{Error, Result, error::Object};
use syncline_core::backend::{
    self, Batch, Enqueue, Flush, InFlightBudget, InvariantLifetime, Keep, NativePoint, Timing,
    ToWrite, Waker,
};

use super::clock::time;
use super::device::{Device, Port};
use super::driver::{CAPACITY, Command, Kernel, Machine};
use super::memory::Buffer;

/// Records the work of one submission: commands for the machine.
///
/// It borrows what [`Enqueue::record`] keeps, for a lifetime that no other recorder has.
pub(crate) struct Recorder<'a> {
    pub(crate) list: &'a mut Vec<Command>,
    keep: &'a mut Keep,
    of_submission: InvariantLifetime<'a>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(list: &'a mut Vec<Command>, keep: &'a mut Keep) -> Self {
        Self {
            list,
            keep,
            of_submission: PhantomData,
        }
    }

    /// Every word of `buffer` becomes `value`.
    pub(crate) fn fill(&mut self, buffer: &Buffer, value: u32) {
        self.keep(buffer.keep());
        self.list.push(Command::Fill(buffer.handle(), value));
    }

    /// `to` becomes a copy of `from`.
    pub(crate) fn copy(&mut self, from: &Buffer, to: &Buffer) {
        self.keep(from.keep());
        self.keep(to.keep());
        self.list.push(Command::Copy(from.handle(), to.handle()));
    }

    /// Runs `kernel` on the memories, in the order of the list.
    #[allow(dead_code, reason = "the suite needs no kernel, but the demo does")]
    pub(crate) fn run(&mut self, kernel: Kernel, memories: &[&Buffer], constants: Vec<u32>) {
        memories.iter().for_each(|memory| self.keep(memory.keep()));
        let handles = memories.iter().map(|memory| memory.handle()).collect();
        self.list.push(Command::Run(kernel, handles, constants));
    }

    /// The queue does nothing for `time`.
    pub(crate) fn busy(&mut self, time: Duration) {
        self.list.push(Command::Busy(time));
    }

    /// The queue stands still until the first word of `buffer` is not zero.
    pub(crate) fn hold(&mut self, buffer: &Buffer) {
        self.keep(buffer.keep());
        self.list.push(Command::Hold(buffer.handle()));
    }

    /// Keeps `object` until the submission has finished.
    pub(crate) fn keep(&mut self, object: Arc<dyn Any + Send + Sync>) {
        self.keep.push(object);
    }

    fn port(&mut self, point: NativePoint<'_>, command: fn(&Port, u64) -> Command) -> Result<()> {
        // A port of this device is always of this type; an error is better than a panic all the
        // same.
        let port = point.port::<Port>().ok_or_else(|| {
            Error::unsupported(
                point.object(),
                "be used by a clockwork machine",
                "its port is of another backend",
            )
        })?;
        self.keep(port.keep());
        self.list.push(command(port, point.value()));
        Ok(())
    }

    /// Records a whole submission.
    fn submission<W>(&mut self, batch: &Batch<'_, Channel>, work: W) -> Result<()>
    where
        W: for<'r, 'b> FnOnce(&'r mut Recorder<'b>) -> Result<()>,
    {
        for &point in batch.waits {
            self.wait(point)?;
        }
        work(self)?;
        for &point in batch.order {
            self.wait(point)?;
        }
        if let Some(stamp) = batch.stamp::<Stamp>() {
            stamp.write(self);
        }
        for &point in batch.signals {
            self.signal(point)?;
        }
        // `batch.relayed` is the engine's to make, since work of this machine cannot fail once it
        // is recorded.
        self.signal(batch.end)
    }

    fn wait(&mut self, point: NativePoint<'_>) -> Result<()> {
        self.port(point, |port, value| Command::Wait(port.handle(), value))
    }

    fn signal(&mut self, point: NativePoint<'_>) -> Result<()> {
        self.port(point, |port, value| Command::Signal(port.handle(), value))
    }
}

/// A hardware queue behind the lock that the driver requires.
///
/// The engine only tries the lock. A queue that finds it taken leaves its waker, and the thread
/// that releases the lock wakes the queue.
pub(crate) struct HardwareQueue {
    machine: Arc<Machine>,
    index: usize,
    domain: u64,
    /// What all queues together may have in it.
    budget: Arc<InFlightBudget>,
    lock: Mutex<Lock>,
}

#[derive(Default)]
struct Lock {
    taken: bool,
    blocked: Vec<Waker>,
}

impl HardwareQueue {
    pub(super) fn new(machine: &Arc<Machine>, index: usize) -> Self {
        Self {
            machine: machine.clone(),
            index,
            // Unique in the process, and never 0.
            domain: Object::new("hardware queue", "").id(),
            // The other half is for the last submission that goes before the budget is full.
            budget: InFlightBudget::new(CAPACITY as u64 / 2),
            lock: Mutex::default(),
        }
    }

    fn try_take(&self, waker: &dyn Fn() -> Waker) -> bool {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.taken {
            lock.blocked.push(waker());
            return false;
        }
        lock.taken = true;
        true
    }

    fn give(&self) {
        let blocked = {
            let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            lock.taken = false;
            std::mem::take(&mut lock.blocked)
        };
        // With no lock held: each of them submits on this thread, after the call of the engine that
        // this is in.
        blocked.into_iter().for_each(Waker::wake);
    }
}

/// The engine's way to a hardware queue.
pub(crate) struct Channel {
    /// Keeps the machine running.
    device: Device,
    queue: Arc<HardwareQueue>,
}

impl Channel {
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            queue: device.hardware_queue(),
        }
    }
}

impl Enqueue for Channel {
    type Device = Device;
    type Recorder<'a> = Recorder<'a>;
    type Ready<'a> = ();
    /// The recorded submission.
    type State = Vec<Command>;
    type Stamp = Stamp;

    fn device(&self) -> &Device {
        &self.device
    }

    /// A hardware queue that is full blocks its caller: what waits behind a gate waits on the host.
    fn in_flight_budget(&self) -> Option<&Arc<InFlightBudget>> {
        Some(&self.queue.budget)
    }

    fn order_domain(&self) -> Option<u64> {
        Some(self.queue.domain)
    }

    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(
        &self,
        (): (),
        list: &mut Vec<Command>,
        batch: &Batch<'_, Self>,
        keep: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> Result<()>,
    {
        // A panic may have ended an earlier record.
        list.clear();
        let recorded = Recorder::new(list, keep).submission(batch, work);
        match recorded {
            Ok(()) => keep.take_in_flight(list.len() as u64),
            Err(_) => list.clear(),
        }
        recorded
    }

    fn flush(&self, list: &mut Vec<Command>, waker: &dyn Fn() -> Waker) -> Flush {
        if !self.queue.try_take(waker) {
            return Flush::Busy;
        }
        self.queue
            .machine
            .submit(self.queue.index, std::mem::take(list));
        self.queue.give();
        Flush::Done
    }

    /// One kind serves both timings, as every time of a machine is one on its clock.
    fn stamp(&self, queue: &Object, _: Timing) -> Result<Arc<Stamp>> {
        Ok(Arc::new(Stamp {
            object: Object::new("stamp", queue.label()),
            ticks: Arc::default(),
        }))
    }

    fn write_stamp(recorder: &mut Recorder<'_>, stamp: ToWrite<'_, Self>) -> Result<()> {
        stamp.write(recorder);
        Ok(())
    }
}

/// A time that the machine writes.
pub(crate) struct Stamp {
    object: Object,
    ticks: Arc<OnceLock<u64>>,
}

impl Stamp {
    /// Records that the machine writes it.
    pub(crate) fn write(&self, recorder: &mut Recorder<'_>) {
        recorder.list.push(Command::Time(self.ticks.clone()));
    }

    /// Nanoseconds on the machine's clock.
    pub(crate) fn read(&self) -> Result<i64> {
        let ticks = self
            .ticks
            .get()
            .ok_or_else(|| Error::not_ready(&self.object))?;
        Ok(time(*ticks))
    }
}

impl backend::Stamp for Stamp {
    fn nanoseconds_since(&self, start: &dyn backend::Stamp) -> Result<i64> {
        // The engine asks of complete fences only, so 'not ready' is never seen by a user.
        let start: &dyn Any = start;
        let start = start.downcast_ref::<Self>().ok_or_else(|| {
            Error::unsupported(
                &self.object,
                "measure from a stamp of another backend",
                "machines count on clocks of their own",
            )
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
