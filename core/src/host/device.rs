//! The host as a device, and its queues.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Attachment, Backend, BackendQueue, EngineQueue, Home, Identity, Sharing};
use crate::base::process::MakerProcess;
use crate::base::sync::Mutex;
use crate::clock::{Clock, SameClock};
use crate::host::counter_port::CounterWatch;
use crate::host::descriptor::Poller;
use crate::host::port::HostPort;
use crate::host::tasks;
use crate::host::worker::Worker;
use crate::memory::counter::unavailable;
use crate::port::attachment::Nature;
use crate::{
    QueueKind, Result,
    error::Object,
    handle::HandleKind,
    info::{BackendKind, Capabilities, DeviceId, Info, QueueFamily},
};

/// The host's worker threads as a device. Always available. Several host devices are independent.
#[derive(Clone, Debug)]
pub struct Device(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: DeviceId,
    object: Object,
    info: Info,
    clock: Clock,
    /// Made with the first imported descriptor.
    poller: Mutex<Option<Arc<Poller>>>,
    /// The device of ports for counters in shared memory. See [`Device::memory`].
    memory: DeviceId,
    /// Made with the first such port.
    counter_watch: Mutex<Option<Arc<CounterWatch>>>,
    maker: MakerProcess,
}

impl Device {
    /// A host device.
    #[must_use]
    pub fn new() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let family = QueueFamily {
            kind: QueueKind::Graphics,
            count: None,
            index: 0,
            timestamp_bits: 64,
        };
        let no_counters = unavailable();
        let mut imports = vec![HandleKind::PollableFd];
        let mut exports = Vec::new();
        if no_counters.is_none() {
            let shared = [HandleKind::CounterMemfd, HandleKind::WordsMemfd];
            imports.extend(shared);
            exports.extend(shared);
        }
        let no_imports = match no_counters {
            Some(_) => "pollable descriptors only: worker threads wait for no driver's handles",
            None => {
                "pollable descriptors, counters in shared memory and words of it only: worker threads wait for no driver's handles"
            }
        };
        let no_exports = no_counters.unwrap_or_else(|| {
            "counters in shared memory and words of it only: other timelines of the host are memory of this process"
                .into()
        });
        let info = Info {
            backend: BackendKind::Host,
            name: format!("host ({threads} threads)"),
            vendor: "this computer".into(),
            uuid: None,
            parent_uuid: None,
            driver_uuid: None,
            luid: None,
            driver: concat!("syncline-core ", env!("CARGO_PKG_VERSION")).into(),
            // It is no substitute for a GPU.
            software: false,
            capabilities: Capabilities {
                driver_queues: false,
                native_timelines: true,
                timestamp_bits: 64,
                timestamp_period_ns: 1.0,
                calibrated_clock: true,
                max_value_difference: u64::MAX,
                exports,
                imports,
                queues: vec![family],
                limits: vec![
                    ("exports", no_exports),
                    ("imports", no_imports.into()),
                    (
                        "stream memory operations",
                        "host work reads and writes memory itself".into(),
                    ),
                ],
                ..Capabilities::default()
            },
        };
        Self(Arc::new(Inner {
            id: DeviceId::new::<Self>(),
            object: Object::new("device", "host"),
            info,
            clock: Clock::new(Object::new("clock", "host"), SameClock),
            poller: Mutex::default(),
            memory: DeviceId::new::<CounterWatch>(),
            counter_watch: Mutex::default(),
            maker: MakerProcess::this(),
        }))
    }

    /// The device of ports for counters in shared memory, which is not this device.
    ///
    /// If it were, this device's queues would have ports there. A worker's signal would be pending
    /// before the application's code has run. A stream would wait for it in memory,
    /// and code that frees memory of the stream's context would wait for the stream. So the signal
    /// of a host queue is pending only when it is reached (Q2).
    pub(crate) fn memory(&self) -> DeviceId {
        self.0.memory
    }

    /// Refuses a device of the parent process.
    ///
    /// # Errors
    /// [`Error::MadeBeforeFork`](crate::Error::MadeBeforeFork) in a forked child.
    pub(crate) fn require_maker(&self) -> Result<()> {
        self.0.maker.require(&self.0.object)
    }

    /// The watch of counters in shared memory.
    pub(crate) fn counter_watch(&self) -> Arc<CounterWatch> {
        let mut counter_watch = self.0.counter_watch.lock();
        counter_watch
            .get_or_insert_with(|| Arc::new(CounterWatch::new()))
            .clone()
    }

    /// The watch of imported descriptors.
    pub(crate) fn poller(&self) -> Result<Arc<Poller>> {
        self.require_maker()?;
        let mut poller = self.0.poller.lock();
        if let Some(poller) = &*poller {
            return Ok(poller.clone());
        }
        let made = Arc::new(Poller::new(&self.0.object)?);
        *poller = Some(made.clone());
        Ok(made)
    }
}

impl Default for Device {
    fn default() -> Self {
        Self::new()
    }
}

impl Home for Device {
    type Enqueue = Worker;

    fn port(&self, initial: u64) -> Result<Attachment> {
        self.require_maker()?;
        Ok(Attachment::new(self.0.id, initial, HostPort).of_nature(Nature::Value))
    }
}

impl Backend for Device {
    type Queue = Queue;
    const QUEUE: &'static str = "host queue";

    fn identity(&self) -> Identity<'_> {
        Identity {
            id: self.0.id,
            object: &self.0.object,
            info: &self.0.info,
        }
    }

    fn check(&self) -> Result<()> {
        self.require_maker()
    }

    fn enqueue(&self, _: QueueKind, queue: &Object) -> Result<Worker> {
        self.require_maker()?;
        Worker::start(self, queue)
    }

    /// The host's monotonic clock.
    fn clock(&self) -> Result<Clock> {
        Ok(self.0.clock.clone())
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        Some(self)
    }
}

/// A worker thread that runs closures in order.
#[derive(Clone, Debug)]
pub struct Queue(EngineQueue<Worker>);

impl Queue {
    /// How long the worker thread spins for more work before it sleeps: about as long as waking it
    /// takes.
    ///
    /// A submission within that time makes no system call.
    pub const SPIN: Duration = tasks::SPIN;
}

impl From<EngineQueue<Worker>> for Queue {
    fn from(engine: EngineQueue<Worker>) -> Self {
        Self(engine)
    }
}

impl BackendQueue for Queue {
    type Device = Device;

    fn engine(&self) -> &EngineQueue<Worker> {
        &self.0
    }
}
