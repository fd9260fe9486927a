//! An opened device, and the watch over its events.

use std::any::Any;
use std::sync::{Arc, Condvar, PoisonError, Weak};
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use syncline_core::backend::Watcher;
use syncline_core::backend::{InFlightBudget, Mutex, Port, Watch};
use syncline_core::clock::Clock;
use syncline_core::{
    Error, Result,
    error::Object,
    info::{DeviceId, Info},
};

use crate::device::context::Context;
use crate::device::event::{Events, ReleasedEvents};
use crate::device::stream::Stream;
use crate::driver::table::Driver;

/// A watch polls without a pause for this long, as most waits are short.
const SPIN: Duration = Duration::from_micros(20);
/// Afterwards it sleeps in proportion to the time waited, within these bounds.
const NAPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// The number of commands in flight above which further submissions are held.
///
/// The driver (580.159) takes 1021 commands for each of its hardware connections and then blocks
/// the caller until a command has finished. Several streams may share a connection, and the driver
/// does not say which, so this limit is for all streams together. The rest of the 1021 is for the
/// next submission, for submissions of other threads at that moment, for the single launch of the
/// clock and for the application's own commands. Event records, waits for events and host functions
/// do not count, because the driver took ten thousands of them. Two devices over one context do not
/// know of each other, and both limits together still fit.
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
    nudge: Nudge,
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
            nudge: Nudge::default(),
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

    /// Checks that the context still works.
    ///
    /// # Errors
    /// A driver error, including a lost device.
    pub(crate) fn check_health(&self) -> Result<()> {
        self.0.check()
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
    pub(crate) context: Arc<Context>,
    pub(crate) id: DeviceId,
    pub(crate) object: Object,
}

impl Device {
    /// The watch over the ports of this device.
    pub(crate) fn watched(&self) -> Arc<dyn Watch> {
        self.0.clone()
    }
}

impl Watch for Inner {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, ports: &[(&dyn Port, u64)], until: Instant) -> Result<()> {
        let started = Instant::now();
        loop {
            for &(port, value) in ports {
                match port.poll() {
                    Ok(reached) if reached.is_some_and(|reached| reached >= value) => return Ok(()),
                    Ok(_) => {}
                    Err(lost @ Error::DeviceLost { .. }) => return Err(lost),
                    // An error of one port. The engine polls each port next and fails only this
                    // port's timeline.
                    Err(_) => return Ok(()),
                }
            }
            let now = Instant::now();
            let waited = now.saturating_duration_since(started);
            let nap = if waited < SPIN {
                std::thread::yield_now();
                Duration::ZERO
            } else {
                waited.clamp(NAPS.0, NAPS.1)
            };
            let left = until.saturating_duration_since(now);
            if self.nudge.sleep(nap.min(left)) || left.is_zero() {
                return Ok(());
            }
        }
    }

    /// True: the driver has no wait with a timeout, so a waiting thread may as well poll by itself.
    fn lends(&self) -> bool {
        true
    }

    fn nudge(&self) {
        self.nudge.give();
    }

    fn check(&self) -> Result<()> {
        self.health_stream.check()
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0.object, f)
    }
}

/// A request to stop watching, which lasts until the watch sees it.
#[derive(Default)]
struct Nudge {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Nudge {
    fn give(&self) {
        *self.given.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps for at most `time`, or only checks if that is zero. True if there was a nudge.
    fn sleep(&self, time: Duration) -> bool {
        let given = self.given.lock();
        let mut given = if time.is_zero() {
            given
        } else {
            self.changed
                .wait_timeout_while(given, time, |given| !*given)
                .unwrap_or_else(PoisonError::into_inner)
                .0
        };
        std::mem::take(&mut *given)
    }
}
