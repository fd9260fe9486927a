//! Devices, and the counters under their timelines.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use syncline::clock::Clock;
use syncline::{
    Error, QueueKind, Result,
    error::Object,
    handle::HandleKind,
    info::{BackendKind, Capabilities, DeviceId, Info, QueueFamily, Uuid},
};
use syncline_core::backend::{
    self, Attachment, Backend, ByEngine, Candidate, EngineQueue, Home, Identity, Sharing, Watch,
    Watcher,
};

use super::clock::Ticks;
use super::driver::{Faults, Handle, Machine, QUEUES, TICK};
use super::memory::Buffer;
use super::queue::{Channel, HardwareQueue};

/// A machine that is switched on. Devices are opened on it, and share its hardware queues.
#[derive(Clone)]
pub(crate) struct Hardware(Arc<HardwareParts>);

struct HardwareParts {
    info: Info,
    queues: [Arc<HardwareQueue>; QUEUES],
    next_queue: AtomicUsize,
    machine: Arc<Machine>,
}

impl Hardware {
    /// Switches a machine on.
    ///
    /// # Errors
    /// [`Error::Native`] if the system has no thread for it.
    pub(crate) fn start() -> Result<Self> {
        let object = Object::new("machine", "clockwork");
        let machine = Machine::start().map_err(|error| {
            Error::native(
                &object,
                "starting the machine",
                error.raw_os_error().map_or(-1, i64::from),
                error.to_string(),
            )
        })?;
        let machine = Arc::new(machine);
        let queue = |index| Arc::new(HardwareQueue::new(&machine, index));
        Ok(Self(Arc::new(HardwareParts {
            info: info(uuid(object.id())),
            queues: std::array::from_fn(queue),
            next_queue: AtomicUsize::new(0),
            machine,
        })))
    }

    /// Opens a device. Each device has an identity and objects of its own.
    pub(crate) fn open(&self) -> Device {
        Device(Arc::new(Inner {
            id: DeviceId::new::<Device>(),
            object: Object::new("device", "clockwork"),
            hardware: self.clone(),
            watcher: Watcher::default(),
            nudged: AtomicBool::new(false),
            clock: OnceLock::new(),
        }))
    }
}

/// The machine as an inventory lists it.
impl Candidate for Hardware {
    type Device = Device;

    fn info(&self) -> &Info {
        &self.0.info
    }

    fn open(&self) -> Result<Device> {
        Ok(Self::open(self))
    }
}

impl fmt::Debug for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hardware({})", self.0.info.name)
    }
}

/// A device of a machine. Cheap to clone; everything made from it keeps it alive.
#[derive(Clone)]
pub(crate) struct Device(Arc<Inner>);

pub(super) struct Inner {
    id: DeviceId,
    object: Object,
    hardware: Hardware,
    watcher: Watcher,
    /// Set by [`Watch::nudge`].
    nudged: AtomicBool,
    /// Made when it is first asked for.
    clock: OnceLock<Clock>,
}

impl Device {
    /// Opens a device of a new machine.
    ///
    /// # Errors
    /// Same errors as [`Hardware::start`].
    pub(crate) fn start() -> Result<Self> {
        Ok(Hardware::start()?.open())
    }

    /// Opens another device of the same machine.
    pub(crate) fn open_again(&self) -> Self {
        self.0.hardware.open()
    }

    pub(super) fn machine(&self) -> &Arc<Machine> {
        &self.0.hardware.0.machine
    }

    /// A fresh counter of the machine.
    pub(crate) fn counter(&self, initial: u64) -> Port {
        self.port_of(self.machine().counter(initial))
    }

    /// The port of a counter that the machine has.
    pub(super) fn port_of(&self, handle: Handle) -> Port {
        let machine = self.machine().clone();
        Port(Arc::new(Counter { machine, handle }))
    }

    /// The device's part in a timeline. The machine signals by itself, so the watch tells the host.
    pub(super) fn attach(&self, attachment: Attachment) -> Attachment {
        attachment
            .watched_by(self.watch())
            .with_max_value_difference(self.identity().info.capabilities.max_value_difference)
    }

    /// What waits for its counters.
    pub(crate) fn watch(&self) -> Arc<dyn Watch> {
        self.0.clone()
    }

    /// Memory of so many words, all zero.
    pub(crate) fn buffer(&self, words: usize) -> Buffer {
        Buffer::new(self.machine(), words)
    }

    /// What the driver says was done wrong.
    pub(crate) fn faults(&self) -> Faults {
        self.machine().faults()
    }

    /// Its clock, to be read.
    pub(crate) fn ticks(&self) -> Ticks {
        Ticks(self.machine().clone())
    }

    /// The hardware queue for the next queue of any device. All devices share the few there are.
    pub(super) fn hardware_queue(&self) -> Arc<HardwareQueue> {
        let hardware = &self.0.hardware.0;
        let index = hardware.next_queue.fetch_add(1, Ordering::Relaxed);
        hardware.queues[index % QUEUES].clone()
    }
}

/// The identity of a machine: of its process, and there of the object `id`.
fn uuid(id: u64) -> Uuid {
    let [process, id] = [u64::from(std::process::id()), id].map(u64::to_le_bytes);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&process);
    bytes[8..].copy_from_slice(&id);
    Uuid(bytes)
}

fn info(uuid: Uuid) -> Info {
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
        uuid: Some(uuid),
        parent_uuid: None,
        driver_uuid: None,
        luid: None,
        driver: "clockwork 1".into(),
        software: false,
        capabilities: Capabilities {
            driver_queues: true,
            native_timelines: true,
            timestamp_bits: 64,
            timestamp_period_ns: TICK as f64,
            calibrated_clock: true,
            max_value_difference: u64::MAX,
            exports: vec![HandleKind::TimelineOpaqueFd],
            imports: vec![HandleKind::TimelineOpaqueFd],
            queues: vec![family],
            limits: [
                ("exports", "its counters only"),
                ("imports", "counters of the same machine only"),
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

impl Home for Device {
    type Enqueue = Channel;

    fn port(&self, initial: u64) -> Result<Attachment> {
        let counter = Attachment::new(self.0.id, initial, self.counter(initial));
        Ok(self.attach(counter))
    }
}

impl Backend for Device {
    type Queue = EngineQueue<Channel>;
    const QUEUE: &'static str = "clockwork queue";

    fn identity(&self) -> Identity<'_> {
        Identity {
            id: self.0.id,
            object: &self.0.object,
            info: &self.0.hardware.0.info,
        }
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn enqueue(&self, _: QueueKind, _: &Object) -> Result<Channel> {
        Ok(Channel::new(self))
    }

    /// The same clock for every caller.
    fn clock(&self) -> Result<Clock> {
        let made = || Clock::new(Object::new("clock", "clockwork"), self.ticks());
        Ok(self.0.clock.get_or_init(made).clone())
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        Some(self)
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
        let machine = &self.hardware.0.machine;
        machine.wait_any(&counters, until, &self.nudged);
        Ok(())
    }

    fn nudge(&self) {
        self.hardware.0.machine.interrupt(&self.nudged);
    }
}
