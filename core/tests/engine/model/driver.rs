//! A backend that does nothing by itself.
//!
//! The test completes submissions, locks driver queues, and raises the counter of the raw timeline,
//! all on one thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Instant;

use syncline_core::backend::{
    Attachment, Batch, ByEngine, Completion, EngineQueue, Enqueue, Flush, Keep, Port, Relayed,
    Stamp, SubmissionQueue, Timing, Waker, Watch, Watcher,
};
use syncline_core::{Error, KeptPoint, Result, Timeline, error::Object, info::DeviceId};

use crate::words::Of;

/// The largest number of submissions in a driver.
pub(crate) const CAPACITY: u64 = 3;

/// A counter that only the test's thread can read, so that the watching thread changes nothing.
struct Counter {
    value: Arc<AtomicU64>,
    reader: ThreadId,
}

impl Port for Counter {
    fn poll(&self) -> Result<Option<u64>> {
        let readable = std::thread::current().id() == self.reader;
        Ok(readable.then(|| self.value.load(Ordering::SeqCst)))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.value.store(value, Ordering::SeqCst);
        Ok(())
    }
}

/// A port without a value that the host can poll, and a stamp that is always 0.
pub(crate) struct Bare;

impl Stamp for Bare {
    fn nanoseconds_since(&self, _: &dyn Stamp) -> Result<i64> {
        Ok(0)
    }

    fn time(&self) -> Result<Option<i64>> {
        Ok(Some(0))
    }
}

impl Port for Bare {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn signal(&self, _: u64, _: ByEngine<'_>) -> Result<()> {
        Ok(())
    }
}

/// A watch that never polls its ports.
#[derive(Default)]
struct Blind {
    watcher: Watcher,
    nudged: Mutex<bool>,
    changed: Condvar,
}

impl Watch for Blind {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, _: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        let mut nudged = self.nudged.lock().unwrap();
        while !*nudged {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            nudged = self.changed.wait_timeout(nudged, left).unwrap().0;
        }
        *nudged = false;
        Ok(())
    }

    fn nudge(&self) {
        *self.nudged.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

/// A timeline with bare ports on `devices`.
pub(crate) fn bare_line(
    devices: &[DeviceId],
    label: &str,
    first: u64,
    largest_difference: u64,
) -> Timeline {
    // Only the home has a new counter.
    let attach = |(index, &device)| match index {
        0 => Attachment::new(device, first, Bare),
        _ => Attachment::imported(device, Bare),
    };
    let attachments = devices.iter().enumerate().map(attach);
    let attachments = attachments.map(|part| part.with_max_value_difference(largest_difference));
    Timeline::new(label, first, |_| Ok(attachments.collect())).unwrap()
}

/// A timeline that the application also signals itself, through the returned counter.
pub(crate) fn raw_line(device: DeviceId, label: &str, first: u64) -> (Timeline, Arc<AtomicU64>) {
    let value = Arc::new(AtomicU64::new(first));
    let port = Counter {
        value: value.clone(),
        reader: std::thread::current().id(),
    };
    let attachment = Attachment::new(device, first, port).watched_by(Arc::new(Blind::default()));
    let line = Timeline::new(label, first, |_| Ok([attachment].into_iter().collect()));
    (line.unwrap(), value)
}

/// The driver of one queue.
pub(crate) struct Driver {
    home: Of<Self>,
    domain: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    locked: bool,
    blocked: Vec<Waker>,
}

pub(crate) struct Task {
    waits: Vec<KeptPoint>,
    signals: Vec<Completion>,
    relayed: Vec<Relayed>,
    end: Completion,
}

/// A device of the queues, which makes bare counters.
pub(crate) fn device() -> Of<Driver> {
    let id = DeviceId::new::<Of<Driver>>();
    Of::new(id, move || Attachment::new(id, 0, Bare))
}

pub(crate) fn queue(home: &Of<Driver>, label: &str) -> Arc<SubmissionQueue<Driver>> {
    let object = Object::new("queue", label);
    let driver = Driver {
        home: home.clone(),
        domain: object.id(),
        state: Mutex::default(),
    };
    let queue = EngineQueue::new(object, driver).unwrap();
    queue.submissions().clone()
}

impl Driver {
    pub(crate) fn with_driver(&self) -> usize {
        self.state.lock().unwrap().tasks.len()
    }

    /// Completes or fails the oldest task. Returns false if one of its waits has not ended.
    pub(crate) fn complete(&self) -> bool {
        let Some(waits) = self
            .state
            .lock()
            .unwrap()
            .tasks
            .front()
            .map(|task| task.waits.clone())
        else {
            return false;
        };
        let mut failure = None;
        for wait in &waits {
            match wait.point().is_reached() {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let task = self.state.lock().unwrap().tasks.pop_front().unwrap();
        match failure {
            None => task.signals.into_iter().for_each(Completion::complete),
            Some(error) => {
                let fail = |signal: Completion| signal.fail(error.clone());
                task.signals.into_iter().for_each(fail);
                let fail = |signal: Relayed| signal.fail(error.clone());
                task.relayed.into_iter().for_each(fail);
            }
        }
        task.end.complete();
        true
    }

    pub(crate) fn lock(&self) {
        self.state.lock().unwrap().locked = true;
    }

    pub(crate) fn unlock(&self) {
        let blocked = {
            let mut state = self.state.lock().unwrap();
            state.locked = false;
            std::mem::take(&mut state.blocked)
        };
        blocked.into_iter().for_each(Waker::wake);
    }
}

impl Enqueue for Driver {
    type Device = Of<Self>;
    type Recorder<'a> = ();
    type Ready<'a> = ();
    type State = Option<Task>;
    type Stamp = Bare;
    const MAX_IN_FLIGHT: u64 = CAPACITY;

    fn device(&self) -> &Of<Self> {
        &self.home
    }

    fn order_domain(&self) -> Option<u64> {
        Some(self.domain)
    }

    fn ready(&self) -> Option<()> {
        Some(())
    }

    fn record<W>(
        &self,
        (): (),
        recorded: &mut Option<Task>,
        batch: &Batch<'_, Self>,
        _: &mut Keep,
        work: W,
    ) -> Result<()>
    where
        W: for<'r, 'a> FnOnce(&'r mut ()) -> Result<()>,
    {
        for wait in batch.waits.iter().chain(batch.order) {
            let kept = wait.keep();
            // The engine guarantees this unless the timeline has failed since.
            assert!(!matches!(kept.point().is_pending(), Ok(false)), "{wait:?}");
        }
        work(&mut ())?;
        let waits = batch.waits.iter().chain(batch.order);
        *recorded = Some(Task {
            waits: waits.map(|wait| wait.keep()).collect(),
            signals: batch
                .signals
                .iter()
                .map(|signal| signal.completion().unwrap())
                .collect(),
            relayed: batch.relayed().collect(),
            end: batch.end.completion().unwrap(),
        });
        Ok(())
    }

    fn flush(&self, recorded: &mut Option<Task>, waker: &dyn Fn() -> Waker) -> Flush {
        let mut state = self.state.lock().unwrap();
        if state.locked {
            state.blocked.push(waker());
            return Flush::Busy;
        }
        state.tasks.push_back(recorded.take().unwrap());
        assert!(
            state.tasks.len() as u64 <= CAPACITY,
            "more submissions than the driver can take"
        );
        Flush::Done
    }

    fn stamp(&self, _: &Object, _: Timing) -> Result<Arc<Bare>> {
        Ok(Arc::new(Bare))
    }
}

/// A failure that the test causes.
pub(crate) fn failure(text: &str) -> Error {
    Error::work(std::io::Error::other(text.to_owned()))
}
