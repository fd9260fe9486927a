//! A backend without a device, whose driver completes submissions.
//!
//! It completes them in the call, or when the case says so.

use std::collections::VecDeque;
use std::sync::Arc;

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use syncline_model::backend::kit::Gate;
use syncline_model::backend::{
    Attachment, Batch, ByEngine, Completion, EngineQueue, Enqueue, Flush, Home, InFlightBudget,
    Keep, NoStamp, Port, SubmissionQueue, Waker,
};
use syncline_model::{KeptPoint, Result, Timeline, error::Object, host, info::DeviceId};

/// A port whose value only the engine changes.
///
/// It panics if two host signals overlap or come out of order.
#[derive(Default)]
struct Counter {
    value: AtomicU64,
    signalling: AtomicBool,
}

impl Port for Counter {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        let met = self.signalling.swap(true, Ordering::AcqRel);
        assert!(!met, "two signals at a time");
        let before = self.value.swap(value, Ordering::AcqRel);
        assert!(before < value, "signalled to {value} after {before}");
        self.signalling.store(false, Ordering::Release);
        Ok(())
    }
}

/// The id of a device with queues that take any number of submissions.
pub(crate) fn device() -> DeviceId {
    DeviceId::new::<Machine<{ u64::MAX }>>()
}

/// A device with queues that take at most `CAPACITY` submissions at a time.
pub(crate) struct Machine<const CAPACITY: u64>(DeviceId);

impl<const CAPACITY: u64> Home for Machine<CAPACITY> {
    type Enqueue = Driver<CAPACITY>;

    fn port(&self, initial: u64) -> Result<Attachment> {
        Ok(Attachment::new(self.0, initial, Counter::default()))
    }
}

/// A timeline with its home on `device`.
pub(crate) fn timeline(device: DeviceId, label: &str) -> Timeline {
    let attachment = Attachment::new(device, 0, Counter::default());
    Timeline::new(label, 0, |_| Ok([attachment].into_iter().collect())).unwrap()
}

/// A timeline like those of the host, and its device. It lives in the engine's own words.
pub(crate) fn host_timeline(label: &str) -> (Timeline, DeviceId) {
    let device = device();
    let line = Timeline::new(label, 0, |_| {
        Ok([host::value_port(device)].into_iter().collect())
    });
    (line.unwrap(), device)
}

/// When the driver completes the submissions that it has taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completes {
    InTheCall,
    /// By [`Driver::run`].
    WhenRun,
}

/// The driver of one queue, which has at most `CAPACITY` submissions at a time.
pub(crate) struct Driver<const CAPACITY: u64> {
    machine: Machine<CAPACITY>,
    domain: u64,
    completes: Completes,
    /// The budget that it shares with other drivers. The work of a case takes units of it.
    budget: Option<Arc<InFlightBudget>>,
    taken: Mutex<VecDeque<Task>>,
    /// The lock of the driver queue, which other threads hold at times.
    gate: Arc<Gate>,
}

/// One submission in the driver.
pub(crate) struct Task {
    waits: Vec<KeptPoint>,
    signals: Vec<Completion>,
}

impl Task {
    /// The number of points that it waits for.
    pub(crate) fn waits(&self) -> usize {
        self.waits.len()
    }

    /// The signal and the position of a submission with one signal and no wait.
    ///
    /// The case may complete them in any order.
    pub(crate) fn parts(self) -> (Completion, Completion) {
        let parts: [_; 2] = self
            .signals
            .try_into()
            .unwrap_or_else(|_| panic!("one signal"));
        parts.into()
    }

    /// Waits for all points and completes the signals.
    ///
    /// The points are pending, so they are reached without further calls to the engine.
    pub(crate) fn run(self) {
        for wait in &self.waits {
            wait.point().wait(super::FOREVER).unwrap();
        }
        self.signals.into_iter().for_each(Completion::complete);
    }
}

pub(crate) type Queue = Arc<SubmissionQueue<Driver<{ u64::MAX }>>>;

/// A queue whose driver takes any number of submissions at a time.
pub(crate) fn queue(device: DeviceId, label: &str, completes: Completes) -> Queue {
    narrow_queue(device, label, completes)
}

/// A queue whose driver takes at most `CAPACITY` submissions at a time.
pub(crate) fn narrow_queue<const CAPACITY: u64>(
    device: DeviceId,
    label: &str,
    completes: Completes,
) -> Arc<SubmissionQueue<Driver<CAPACITY>>> {
    make_queue(device, label, completes, None)
}

/// A queue whose driver shares `budget` and completes its submissions when it is run.
pub(crate) fn sharing_queue(device: DeviceId, label: &str, budget: &Arc<InFlightBudget>) -> Queue {
    make_queue(device, label, Completes::WhenRun, Some(budget.clone()))
}

fn make_queue<const CAPACITY: u64>(
    device: DeviceId,
    label: &str,
    completes: Completes,
    budget: Option<Arc<InFlightBudget>>,
) -> Arc<SubmissionQueue<Driver<CAPACITY>>> {
    let object = Object::new("queue", label);
    let driver = Driver {
        machine: Machine(device),
        domain: object.id(),
        completes,
        budget,
        taken: Mutex::new(VecDeque::new()),
        gate: Arc::default(),
    };
    let queue = EngineQueue::new(object, driver).unwrap();
    queue.submissions().clone()
}

/// A queue that submits to the same driver queue as `other`.
pub(crate) fn queue_beside(other: &Queue, device: DeviceId, label: &str) -> Queue {
    let object = Object::new("queue", label);
    let driver = Driver {
        machine: Machine(device),
        domain: other.driver().domain,
        completes: other.driver().completes,
        budget: None,
        taken: Mutex::new(VecDeque::new()),
        gate: other.driver().gate.clone(),
    };
    let queue = EngineQueue::new(object, driver).unwrap();
    queue.submissions().clone()
}

impl<const CAPACITY: u64> Driver<CAPACITY> {
    /// The number of submissions that it has.
    pub(crate) fn taken(&self) -> usize {
        self.taken.lock().unwrap().len()
    }

    /// Completes the oldest submission. Returns false if there is none.
    pub(crate) fn run(&self) -> bool {
        self.take().map(Task::run).is_some()
    }

    /// Removes the oldest submission, so that the case can complete it itself.
    pub(crate) fn take(&self) -> Option<Task> {
        self.taken.lock().unwrap().pop_front()
    }

    /// Locks the driver queue, as an application does. Blocks until it is free.
    pub(crate) fn hold(&self) {
        assert!(self.gate.lock(), "the thread has it already");
    }

    /// Unlocks the driver queue and wakes the queues and threads that found it locked.
    pub(crate) fn let_go(&self) {
        self.gate.unlock();
    }
}

impl<const CAPACITY: u64> Enqueue for Driver<CAPACITY> {
    type Device = Machine<CAPACITY>;
    type Recorder<'a> = Keep;
    type Ready<'a> = ();
    type State = Option<Task>;
    type Stamp = NoStamp;
    const MAX_IN_FLIGHT: u64 = CAPACITY;

    fn device(&self) -> &Machine<CAPACITY> {
        &self.machine
    }

    fn order_domain(&self) -> Option<u64> {
        Some(self.domain)
    }

    fn in_flight_budget(&self) -> Option<&Arc<InFlightBudget>> {
        self.budget.as_ref()
    }

    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(
        &self,
        (): (),
        recorded: &mut Option<Task>,
        batch: &Batch<'_, Self>,
        keep: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut Keep) -> Result<()>,
    {
        work(keep)?;
        let waits = batch.waits.iter().chain(batch.order);
        let signals = batch.signals.iter().chain([&batch.end]);
        *recorded = Some(Task {
            waits: waits.map(|wait| wait.keep()).collect(),
            signals: signals.map(|signal| signal.completion().unwrap()).collect(),
        });
        Ok(())
    }

    fn flush(&self, recorded: &mut Option<Task>, waker: &dyn Fn() -> Waker) -> Flush {
        if !self.gate.try_lock(waker) {
            return Flush::Busy;
        }
        let task = recorded.take().unwrap();
        match self.completes {
            Completes::InTheCall => task.run(),
            Completes::WhenRun => {
                let mut taken = self.taken.lock().unwrap();
                taken.push_back(task);
                assert!(
                    taken.len() as u64 <= CAPACITY,
                    "more submissions than the driver can take"
                );
            }
        }
        self.gate.unlock();
        Flush::Done
    }
}
