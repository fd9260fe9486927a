//! A device for tests of queues, which does nothing by itself.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use syncline_core::backend::Watcher;
use syncline_core::backend::{
    Attachment, Backend, ByEngine, Device, EngineQueue, Enqueue, Home, Identity, Port,
    SubmissionQueue, Watch,
};
use syncline_core::clock::Clock;
use syncline_core::{Error, QueueKind, Result, Timeline, error::Object, host, info::DeviceId};

/// A device whose counters are words that the test or its drivers set.
#[derive(Default)]
pub(crate) struct Words {
    watcher: Watcher,
    nudged: Mutex<bool>,
    changed: Condvar,
}

/// A counter.
pub(crate) struct Word(pub(crate) Arc<AtomicU64>);

impl Port for Word {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.load(Ordering::SeqCst)))
    }
    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.store(value, Ordering::SeqCst);
        Ok(())
    }
}

impl Watch for Words {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }
    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        let reached = |&(port, value): &(&dyn Port, u64)| port.poll().unwrap() >= Some(value);
        while Instant::now() < until && !ports.iter().any(reached) {
            let nudged = self.nudged.lock().unwrap();
            let (mut nudged, _) = self
                .changed
                .wait_timeout(nudged, Duration::from_millis(1))
                .unwrap();
            if std::mem::take(&mut *nudged) {
                break;
            }
        }
        Ok(())
    }
    fn nudge(&self) {
        *self.nudged.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Words {
    /// A timeline over `word` as its only port.
    pub(crate) fn timeline(
        self: &Arc<Self>,
        device: DeviceId,
        label: &str,
        word: Arc<AtomicU64>,
    ) -> Timeline {
        let attachment = self.port(device, word);
        Timeline::new(label, 0, |_| Ok([attachment].into_iter().collect())).unwrap()
    }

    /// The device of a queue whose position is `word`. `device` is an id of an `Of<E>`.
    pub(crate) fn of<E: 'static>(
        self: &Arc<Self>,
        device: DeviceId,
        word: Arc<AtomicU64>,
    ) -> Of<E> {
        let words = self.clone();
        Of::new(device, move || words.port(device, word.clone()))
    }

    /// `word` as the port of a timeline.
    pub(crate) fn port(self: &Arc<Self>, device: DeviceId, word: Arc<AtomicU64>) -> Attachment {
        let initial = word.load(Ordering::SeqCst);
        Attachment::new(device, initial, Word(word)).watched_by(self.clone())
    }
}

/// The device of queues with the driver's half `E`. It makes the counters of their positions.
pub(crate) struct Of<E>(Arc<Parts>, PhantomData<fn() -> E>);

struct Parts {
    id: DeviceId,
    object: Object,
    host: host::Device,
    port: Box<dyn Fn() -> Attachment + Send + Sync>,
}

impl<E> Clone for Of<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), PhantomData)
    }
}

impl<E: 'static> Of<E> {
    /// The device with the identity `id`, whose counters `port` makes.
    pub(crate) fn new(id: DeviceId, port: impl Fn() -> Attachment + Send + Sync + 'static) -> Self {
        let parts = Parts {
            id,
            object: Object::new("device", "test"),
            host: host::Device::new(),
            port: Box::new(port),
        };
        Self(Arc::new(parts), PhantomData)
    }
}

impl<E: Enqueue<Device = Self>> Home for Of<E> {
    type Enqueue = E;

    fn port(&self, _: u64) -> Result<Attachment> {
        Ok((self.0.port)())
    }
}

impl<E: Enqueue<Device = Self>> Backend for Of<E> {
    type Queue = EngineQueue<E>;

    fn identity(&self) -> Identity<'_> {
        Identity {
            id: self.0.id,
            object: &self.0.object,
            info: self.0.host.info(),
        }
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn enqueue(&self, _: QueueKind, queue: &Object) -> Result<E> {
        Err(Error::unsupported(queue, "be made", "the test makes it"))
    }

    fn clock(&self) -> Result<Clock> {
        Device::clock(&self.0.host)
    }
}

/// A queue with the driver's half `driver`.
pub(crate) fn queue<E: Enqueue>(label: &str, driver: E) -> Arc<SubmissionQueue<E>> {
    let queue = EngineQueue::new(Object::new("queue", label), driver).unwrap();
    queue.submissions().clone()
}
