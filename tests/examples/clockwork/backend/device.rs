//! Devices, and the counters under their timelines.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use syncline::backend::{self, Attachment, Backend, ByEngine, EngineQueue, Identity, Watch};
use syncline::clock::Clock;
use syncline::{
    BackendKind, Capabilities, DeviceId, Error, Info, Object, QueueFamily, QueueKind, Result,
    Timeline, Watcher,
};

use super::clock::Ticks;
use super::driver::{Faults, Handle, Machine, QUEUES, TICK};
use super::memory::Buffer;
use super::queue::{Channel, HardwareQueue};

/// A machine that is switched on. Cheap to clone; everything made from it keeps it alive.
#[derive(Clone)]
pub(crate) struct Device(Arc<Inner>);

pub(super) struct Inner {
    id: DeviceId,
    object: Object,
    info: Info,
    pub(super) queues: [Arc<HardwareQueue>; QUEUES],
    next_queue: AtomicUsize,
    watcher: Watcher,
    /// Made when it is first asked for.
    clock: OnceLock<Clock>,
    pub(super) machine: Arc<Machine>,
}

impl Device {
    /// Switches a machine on.
    ///
    /// # Errors
    /// [`Error::Native`] if the system has no thread for it.
    pub(crate) fn start() -> Result<Self> {
        let object = Object::new("device", "clockwork");
        let machine = Machine::start().map_err(|error| Error::Native {
            object: object.clone(),
            call: "starting the machine",
            code: error.raw_os_error().map_or(-1, i64::from),
            name: error.to_string(),
        })?;
        let machine = Arc::new(machine);
        let queue = |index| Arc::new(HardwareQueue::new(&machine, index));
        Ok(Self(Arc::new(Inner {
            id: DeviceId::new(),
            object,
            info: info(),
            queues: std::array::from_fn(queue),
            next_queue: AtomicUsize::new(0),
            watcher: Watcher::default(),
            clock: OnceLock::new(),
            machine,
        })))
    }

    /// A fresh counter of the machine.
    pub(crate) fn counter(&self, initial: u64) -> Port {
        let machine = self.0.machine.clone();
        let handle = machine.counter(initial);
        Port(Arc::new(Counter { machine, handle }))
    }

    /// What waits for its counters.
    pub(crate) fn watch(&self) -> Arc<dyn Watch> {
        self.0.clone()
    }

    /// Memory of so many words, all zero.
    pub(crate) fn buffer(&self, words: usize) -> Buffer {
        Buffer::new(&self.0.machine, words)
    }

    /// What the driver says was done wrong.
    pub(crate) fn faults(&self) -> Faults {
        self.0.machine.faults()
    }

    /// Its clock, to be read.
    pub(crate) fn ticks(&self) -> Ticks {
        Ticks(self.0.machine.clone())
    }

    /// The hardware queue for the next logical one: they share the few there are.
    pub(super) fn hardware_queue(&self) -> Arc<HardwareQueue> {
        let index = self.0.next_queue.fetch_add(1, Ordering::Relaxed);
        self.0.queues[index % QUEUES].clone()
    }
}

fn info() -> Info {
    let family = QueueFamily {
        kind: QueueKind::Graphics,
        count: Some(QUEUES as u32),
        index: 0,
        timestamp_bits: 64,
    };
    Info {
        backend: BackendKind::Other("clockwork"),
        name: "clockwork machine".into(),
        vendor: "this example".into(),
        uuid: None,
        parent_uuid: None,
        driver_uuid: None,
        luid: None,
        driver: "clockwork 1".into(),
        software: false,
        capabilities: Capabilities {
            native_timelines: true,
            timestamp_bits: 64,
            timestamp_period_ns: TICK as f64,
            calibrated_clock: true,
            max_value_difference: u64::MAX,
            queues: vec![family],
            limits: [
                ("exports", "its counters have no handles that travel"),
                ("imports", "it takes no objects of others"),
                (
                    "stream memory operations",
                    "its lists wait for counters, and write no others",
                ),
            ]
            .map(|(what, why)| (what, why.into()))
            .into(),
            ..Capabilities::default()
        },
    }
}

impl Backend for Device {
    type Queue = EngineQueue<Self, Channel>;
    type Enqueue = Channel;
    const QUEUE: &'static str = "clockwork queue";

    fn identity(&self) -> Identity<'_> {
        Identity {
            id: self.0.id,
            object: &self.0.object,
            info: &self.0.info,
        }
    }

    fn port(&self, initial: u64) -> Result<Attachment> {
        // The machine signals by itself, so its watch tells the host.
        Ok(Attachment::new(self.0.id, initial, self.counter(initial))
            .watched_by(self.watch())
            .with_max_value_difference(self.0.info.capabilities.max_value_difference))
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn enqueue(&self, _: QueueKind, _: &Object, _: &Timeline) -> Result<Channel> {
        Ok(Channel::new(self))
    }

    /// The same clock for every caller.
    fn clock(&self) -> Result<Clock> {
        let made = || Clock::new(Object::new("clock", "clockwork"), self.ticks());
        Ok(self.0.clock.get_or_init(made).clone())
    }
}

/// A counter of the machine. The port has it, and so does every submission that uses it.
struct Counter {
    machine: Arc<Machine>,
    handle: Handle,
}

impl Drop for Counter {
    fn drop(&mut self) {
        self.machine.free(self.handle);
    }
}

/// One timeline, as the machine sees it.
pub(crate) struct Port(Arc<Counter>);

impl Port {
    pub(crate) fn handle(&self) -> Handle {
        self.0.handle
    }

    /// For a submission to keep.
    pub(crate) fn keep(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }
}

impl backend::Port for Port {
    fn poll(&self) -> Result<Option<u64>> {
        Ok(Some(self.0.machine.read(self.0.handle)))
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        self.0.machine.write(self.0.handle, value);
        Ok(())
    }
}

impl Watch for Inner {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, ports: &[(&dyn backend::Port, u64)], until: Instant) -> Result<()> {
        let counters: Vec<_> = ports
            .iter()
            .filter_map(|&(port, value)| {
                let port: &dyn Any = port;
                Some((port.downcast_ref::<Port>()?.handle(), value))
            })
            .collect();
        self.machine.wait_any(&counters, until);
        Ok(())
    }

    fn nudge(&self) {
        self.machine.interrupt();
    }
}
