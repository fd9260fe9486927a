//! The state behind a device, which its clones and the watch over its ports share.

use std::any::Any;
use std::sync::{Arc, Weak};

use syncline_core::backend::kit::Mutex;
use syncline_core::backend::{InFlightBudget, Watcher};
use syncline_core::clock::Clock;
use syncline_core::{
    Result,
    error::Object,
    info::{DeviceId, Info, Pooled},
};

use crate::device::context::Context;
use crate::device::event::{Events, ReleasedEvents};
use crate::device::observers::Observers;
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::device::wake::Wake;

/// The number of commands in flight above which further submissions are held.
///
/// The driver (580.159) takes 1021 commands for each of its hardware connections and then blocks
/// the caller until a command has finished. Several streams may share a connection, and the driver
/// does not say which, so this limit is for all streams together. Event records, waits for events
/// and host functions do not count, because the driver took tens of thousands of them. Two devices
/// over one context do not know of each other, and both limits together still fit.
///
/// The [waits for promised values](crate::device::observers) have 64 more. The rest of the 1021 is
/// for the next submission and for simultaneous submissions of other
/// threads. It is also for the single launch of the clock and for the application's own commands.
const COMMANDS: u64 = 416;

/// The state behind a [`Device`](crate::device::open::Device).
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
    observers: Arc<Observers>,
    clock: ClockSlot,
}

/// The clock, once it was requested, and its set-up in [`timing`](crate::timing).
pub(crate) type ClockSlot = Mutex<Option<(Clock, Weak<dyn Any + Send + Sync>)>>;

impl Inner {
    /// Creates the state of a device over an existing context.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn new(context: Context, object: Object, info: Info) -> Result<Arc<Self>> {
        let context = Arc::new(context);
        Ok(Arc::new(Self {
            id: DeviceId::new::<Device>(),
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
            observers: Arc::default(),
            clock: Mutex::default(),
        }))
    }

    pub(crate) const fn id(&self) -> DeviceId {
        self.id
    }

    pub(crate) const fn object(&self) -> &Object {
        &self.object
    }

    pub(crate) const fn info(&self) -> &Info {
        &self.info
    }

    pub(crate) const fn clock_slot(&self) -> &ClockSlot {
        &self.clock
    }

    #[inline]
    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    #[inline]
    pub(crate) const fn plain_events(&self) -> &Events {
        &self.plain_events
    }

    pub(crate) const fn timed_events(&self) -> &Events {
        &self.timed_events
    }

    /// The reference that objects of this device keep.
    pub(crate) fn device_ref(&self) -> DeviceRef {
        DeviceRef {
            context: self.context.clone(),
            id: self.id,
            object: self.object.clone(),
        }
    }

    /// The budget of commands in flight, shared by all queues.
    #[inline]
    pub(crate) const fn in_flight_budget(&self) -> &Arc<InFlightBudget> {
        &self.budget
    }

    /// The words whose promised values are observed.
    pub(crate) const fn observers(&self) -> &Arc<Observers> {
        &self.observers
    }

    /// Events that destroyed graphs no longer need.
    pub(crate) const fn released_events(&self) -> &Arc<ReleasedEvents> {
        &self.released_events
    }

    pub(crate) const fn device_watcher(&self) -> &Watcher {
        &self.watcher
    }

    /// What wakes the watching thread from its sleep.
    pub(crate) const fn wake(&self) -> &Wake {
        &self.wake
    }

    /// See [`Device::trim`](syncline_core::backend::Device::trim).
    pub(crate) fn trim(&self) -> Pooled {
        // In a forked child the pools belong to the parent.
        if self.context.driver().is_forked() {
            return Pooled::default();
        }
        self.released_events.recycle();
        let mut left = Pooled::default();
        left.events = self.plain_events.trim() + self.timed_events.trim();
        left.deferred_frees = self.context.deferred_frees().count();
        left
    }

    /// Checks that the context still works.
    ///
    /// # Errors
    /// A driver error, including a lost device.
    pub(crate) fn check_health(&self) -> Result<()> {
        self.health_stream.check()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(_calls) = self.context.for_destroy() {
            let driver = self.context.driver();
            self.context.deferred_frees().free_observed(driver);
        }
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
