//! An opened device, and the watch over its events.

use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use syncline_core::backend::{self, Attachment, InFlightBudget, Port, Watch};
use syncline_core::clock::Clock;
use syncline_core::{DeviceId, Error, Info, Object, QueueKind, Result, Watcher};

use crate::device::context::Context;
use crate::driver::table::Driver;
use crate::graph::launch::LetGo;
use crate::lock;
use crate::probe::CLOCK_LIMIT;
use crate::queue::stream::Stream;
use crate::queue::submission::Queue;
use crate::timeline::event::Events;
use crate::timeline::port::EventPort;
use crate::timing::clock::{Setup, Timer};
use crate::timing::stamp::Timekeeper;

/// A watch first looks again and again for this long: most waits are for work that is nearly done.
const SPIN: Duration = Duration::from_micros(20);
/// Then it sleeps in proportion to the time waited, within these bounds.
const NAPS: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// So many commands may be in flight before further submissions are held. The driver (580.159) takes 1021 for each
/// of its hardware connections and then blocks the caller, until something has finished; any number of streams
/// lie on one, and nobody tells which, so the number is for all of them together. What is left is for the
/// next submission, for those of other threads at that moment, for the one launch of the clock's that there can be, and for
/// what the application does itself. Event
/// records, waits for events and host functions count as nothing: the driver took ten thousands of them. Two devices over
/// one context know nothing of each other; both numbers together still fit.
const COMMANDS: u64 = 480;

/// A CUDA context with what the engine needs of it. Cheap to clone; usable from any thread.
///
/// Its calls leave the calling thread's current context as they found it.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

pub(crate) struct Inner {
    id: DeviceId,
    object: Object,
    info: Info,
    watcher: Watcher,
    nudge: Nudge,
    context: Arc<Context>,
    /// Never given work: asked whether the context still answers.
    probe: Stream,
    plain_events: Events,
    timed_events: Events,
    let_go: Arc<LetGo>,
    budget: Arc<InFlightBudget>,
    /// Made when it is first asked for.
    clock: Mutex<Option<(Clock, Weak<Setup>)>>,
}

impl Device {
    /// Opens `device` on its primary context.
    pub(crate) fn open(driver: &Driver, device: sys::CUdevice, info: Info) -> Result<Self> {
        let object = Object::new("device", &format!("cuda {}", info.marked_name()));
        let context = Context::primary(driver, device, &object)?;
        Self::new(context, object, info)
    }

    /// A device over a context that is there.
    pub(crate) fn new(context: Context, object: Object, info: Info) -> Result<Self> {
        let context = Arc::new(context);
        Ok(Self(Arc::new(Inner {
            id: DeviceId::new(),
            object,
            info,
            watcher: Watcher::default(),
            nudge: Nudge::default(),
            probe: Stream::new(&context, "health")?,
            plain_events: Events::plain(&context),
            timed_events: Events::timed(&context),
            context,
            let_go: Arc::default(),
            budget: InFlightBudget::new(COMMANDS),
            clock: Mutex::default(),
        })))
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

    /// What belongs to the device keeps this of it.
    pub(crate) fn place(&self) -> Place {
        Place {
            context: self.0.context.clone(),
            device: self.0.id,
            owner: self.0.object.clone(),
        }
    }

    /// What writes times of the clock, once that was asked for, or why there is nothing. Does not block.
    pub(crate) fn timekeeper(&self) -> Option<Result<Arc<Timekeeper>>> {
        // The device has the clock, and that has it.
        let setup = lock(&self.0.clock).as_ref()?.1.upgrade()?;
        Some(setup.keeper())
    }

    /// The clock that is there, or another one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is none; [`Error::ClockSilent`] if the system has no thread.
    fn clock_and_setup(&self) -> Result<(Clock, Weak<Setup>)> {
        let mut clock = lock(&self.0.clock);
        if let Some(clock) = &*clock {
            return Ok(clock.clone());
        }
        let can = &self.0.info.capabilities;
        if !can.calibrated_clock {
            let limit = can.limits.iter().find(|(what, _)| *what == CLOCK_LIMIT);
            return Err(Error::Unsupported {
                object: self.0.object.clone(),
                asked: "read its clock".into(),
                reason: limit.map_or_else(String::new, |(_, reason)| reason.clone()),
            });
        }
        let object = Object::new("clock", &format!("cuda {}", self.0.info.name));
        let timer = Timer::new(self, &object)?;
        let setup = timer.setup();
        Ok(clock.insert((Clock::new(object, timer), setup)).clone())
    }

    /// What all queues may have in flight together.
    #[inline]
    pub(crate) fn in_flight_budget(&self) -> &Arc<InFlightBudget> {
        &self.0.budget
    }

    /// Where graphs put the events that they have kept.
    pub(crate) fn let_go(&self) -> &Arc<LetGo> {
        &self.0.let_go
    }
}

/// What belongs to a device has of it: its context, id and name.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) context: Arc<Context>,
    pub(crate) device: DeviceId,
    pub(crate) owner: Object,
}

impl backend::Device for Device {
    type Queue = Queue;

    fn id(&self) -> DeviceId {
        self.0.id
    }

    fn object(&self) -> &Object {
        &self.0.object
    }

    fn info(&self) -> &Info {
        &self.0.info
    }

    fn port(&self, initial: u64) -> Result<Attachment> {
        let port = EventPort::new(&self.0.context, &self.0.plain_events, initial);
        Ok(Attachment::new(self.0.id, initial, port)
            .watched_by(self.0.clone())
            .with_max_value_difference(self.0.info.capabilities.max_value_difference))
    }

    /// A non-blocking stream of its own.
    fn queue(&self, kind: QueueKind, label: &str) -> Result<Queue> {
        match kind {
            QueueKind::Compute | QueueKind::Transfer => {
                let stream = Stream::new(&self.0.context, label)?;
                Queue::new(self.clone(), stream, None, label)
            }
            _ => Err(Error::Unsupported {
                object: self.0.object.clone(),
                asked: format!("make a {kind} queue"),
                reason: "CUDA streams run compute and transfer work".into(),
            }),
        }
    }

    fn check(&self) -> Result<()> {
        self.0.probe.check()
    }

    /// What `%globaltimer` shows, in nanoseconds, beside `CLOCK_MONOTONIC`.
    ///
    /// For the first call a thread makes a stream, allocates pinned memory and compiles kernels of a few instructions. Like
    /// [`Device::module`] that may wait for all work of the context, so call it at set-up. It is waited for for a second at most; after that there is a
    /// clock whose samples, and records of fences with its times, are refused until the kernels are there.
    ///
    /// A sample launches that kernel once,
    /// on a thread of its own; it takes some 100 µs, and 30 ms at most, after which it is an
    /// [`Error::ClockSilent`]: where the GPU is full, for instance, or the kernel stands behind a closed gate. Any thread may sample or
    /// convert, whatever context is current there, and whatever is being captured; a thread that comes while a sample is taken waits for that, and for the next one.
    /// The last handle of the clock and the device frees
    /// the memory, which may wait for all work of the context, too; in a context that nobody keeps it also waits for a kernel that is still being
    /// loaded, or has not begun.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where [`Capabilities::calibrated_clock`](syncline_core::Capabilities::calibrated_clock) is false; a driver
    /// error, also of later samples if the kernel could not be loaded in the end; [`Error::ClockSilent`] if the system has no thread.
    fn clock(&self) -> Result<Clock> {
        let (clock, setup) = self.clock_and_setup()?;
        let Some(Err(error)) = setup.upgrade().map(|setup| setup.wait()) else {
            return Ok(clock);
        };
        // Whoever asks next may have more luck.
        let mut made = lock(&self.0.clock);
        let failed = made.take_if(|(made, _)| made.is_same(&clock));
        drop(made);
        drop(failed);
        Err(error)
    }
}

impl Device {
    /// Who watches its ports.
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
                    // One port's own: the engine asks each port next, and fails the timeline of this one alone.
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

    /// The driver has no wait with a time-out, so it is asked again and again: who waits may as well do that himself.
    fn lends(&self) -> bool {
        true
    }

    fn nudge(&self) {
        self.nudge.give();
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.0.object, f)
    }
}

/// A nudge that lasts until it is noticed.
#[derive(Default)]
struct Nudge {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Nudge {
    fn give(&self) {
        *lock(&self.given) = true;
        self.changed.notify_all();
    }

    /// Sleeps for `time` at most, or looks only if that is zero. True if there was a nudge, which is
    /// noticed herewith.
    fn sleep(&self, time: Duration) -> bool {
        let given = lock(&self.given);
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
