//! An opened device.

use std::any::Any;
use std::sync::{Arc, Weak};

use cudarc::driver::sys;
use syncline_core::backend::{InFlightBudget, Mutex, Watcher};
use syncline_core::clock::Clock;
use syncline_core::{
    Result,
    error::Object,
    info::{DeviceId, Info},
};

use crate::device::context::Context;
use crate::device::event::{Events, ReleasedEvents};
use crate::device::stream::Stream;
use crate::device::wake::Wake;
use crate::driver::table::Driver;

/// The number of commands in flight above which further submissions are held.
///
/// The driver (580.159) takes 1021 commands for each of its hardware connections and then blocks
/// the caller until a command has finished. Several streams may share a connection, and the driver
/// does not say which, so this limit is for all streams together. Event records, waits for events
/// and host functions do not count, because the driver took tens of thousands of them. Two devices
/// over one context do not know of each other, and both limits together still fit.
///
/// The rest of the 1021 is for the next submission and for simultaneous submissions of other
/// threads. It is also for the single launch of the clock and for the application's own commands.
const COMMANDS: u64 = 480;

/// A CUDA context and what the engine needs of it. Cheap to clone, and usable from any thread.
///
/// Each call restores the current context of the calling thread.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

pub(crate) struct Inner {
    id: DeviceId,
    object: Object,
    info: Info,
    watcher: Watcher,
    wake: Wake,
    context: Arc<Context>,
    /// A stream without work, queried to check that the context still works.
    health_stream: Stream,
    plain_events: Events,
    timed_events: Events,
    released_events: Arc<ReleasedEvents>,
    budget: Arc<InFlightBudget>,
    clock: ClockSlot,
}

/// The clock, once it was requested, and its set-up in [`timing`](crate::timing).
pub(crate) type ClockSlot = Mutex<Option<(Clock, Weak<dyn Any + Send + Sync>)>>;

impl Device {
    /// Opens `device` on its primary context.
    pub(crate) fn open_probed(driver: &Driver, device: sys::CUdevice, info: Info) -> Result<Self> {
        let object = Object::new("device", &format!("cuda {}", info.marked_name()));
        let context = Context::primary(driver, device, &object)?;
        Self::new(context, object, info)
    }

    /// Creates a device over an existing context.
    pub(crate) fn new(context: Context, object: Object, info: Info) -> Result<Self> {
        let context = Arc::new(context);
        Ok(Self(Arc::new(Inner {
            id: DeviceId::new(),
            object,
            info,
            watcher: Watcher::default(),
            wake: Wake::default(),
            health_stream: Stream::new(&context, "health")?,
            plain_events: Events::plain(&context),
            timed_events: Events::timed(&context),
            context,
            released_events: Arc::default(),
            budget: InFlightBudget::new(COMMANDS),
            clock: Mutex::default(),
        })))
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.0.id
    }

    pub(crate) fn object(&self) -> &Object {
        &self.0.object
    }

    pub(crate) fn info(&self) -> &Info {
        &self.0.info
    }

    pub(crate) fn clock_slot(&self) -> &ClockSlot {
        &self.0.clock
    }

    /// The shared state, which the device's watch keeps.
    pub(crate) const fn inner(&self) -> &Arc<Inner> {
        &self.0
    }

    #[inline]
    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.0.context
    }

    #[inline]
    pub(crate) fn plain_events(&self) -> &Events {
        &self.0.plain_events
    }

    pub(crate) fn timed_events(&self) -> &Events {
        &self.0.timed_events
    }

    /// The reference that objects of this device keep.
    pub(crate) fn device_ref(&self) -> DeviceRef {
        DeviceRef {
            context: self.0.context.clone(),
            id: self.0.id,
            object: self.0.object.clone(),
        }
    }

    /// The budget of commands in flight, shared by all queues.
    #[inline]
    pub(crate) fn in_flight_budget(&self) -> &Arc<InFlightBudget> {
        &self.0.budget
    }

    /// Events that destroyed graphs no longer need.
    pub(crate) fn released_events(&self) -> &Arc<ReleasedEvents> {
        &self.0.released_events
    }
}

/// What an object keeps of its device: the context, the id and the name.
#[derive(Clone)]
pub(crate) struct DeviceRef {
    context: Arc<Context>,
    id: DeviceId,
    object: Object,
}

impl DeviceRef {
    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) const fn id(&self) -> DeviceId {
        self.id
    }

    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }
}

impl Inner {
    pub(crate) const fn device_watcher(&self) -> &Watcher {
        &self.watcher
    }

    /// What wakes the watching thread from its sleep.
    pub(crate) const fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Checks that the context still works.
    ///
    /// # Errors
    /// A driver error, including a lost device.
    pub(crate) fn check_health(&self) -> Result<()> {
        self.health_stream.check()
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0.object, f)
    }
}
