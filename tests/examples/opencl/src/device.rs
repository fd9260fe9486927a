//! Devices, and the events under their timelines.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use cl3::types::cl_context;
use syncline_core::backend::kit::get_or_make;
use syncline_core::backend::{
    self, Attachment, Backend, ByEngine, EngineQueue, Home, Identity, Watch, Watcher,
};
use syncline_core::clock::Clock;
use syncline_core::{
    Error, QueueKind, Result,
    error::Object,
    info::{DeviceId, Info, Pooled},
};

use crate::adapter::Adapter;
use crate::cl::{self, CommandQueue, Context, Event, Kernel};
use crate::clock::Ticks;
use crate::memory::{Buffer, HostEvent};
use crate::queue::Channel;

/// An OpenCL device with a context of its own. Everything that is made from it keeps it alive.
#[derive(Clone)]
pub struct Device(Arc<Inner>);

struct Inner {
    id: DeviceId,
    object: Object,
    info: Info,
    timer_resolution: u64,
    shared: Arc<Shared>,
    watcher: Watcher,
    clock: OnceLock<Clock>,
    /// For reads by the host.
    transfer: CommandQueue,
}

/// What ports need of their device. They must not keep the device, which keeps its watcher.
struct Shared {
    context: Arc<Context>,
    news: Arc<News>,
    /// The first command that failed.
    lost: OnceLock<Error>,
}

impl Device {
    pub(crate) fn open(adapter: &Adapter) -> Result<Self> {
        // A forked child may have the adapter.
        cl::load()?;
        let object = Object::new("OpenCL device", &adapter.info.name);
        let context = Context::new(&object, adapter.device)?;
        let transfer = CommandQueue::new(&context)?;
        Ok(Self(Arc::new(Inner {
            id: DeviceId::new::<Self>(),
            object,
            info: adapter.info.clone(),
            timer_resolution: adapter.timer_resolution,
            shared: Arc::new(Shared {
                context,
                news: Arc::default(),
                lost: OnceLock::new(),
            }),
            watcher: Watcher::default(),
            clock: OnceLock::new(),
            transfer,
        })))
    }

    /// Makes memory of so many words, all zero.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for no words. A driver error.
    pub fn buffer(&self, words: usize) -> Result<Buffer> {
        Buffer::new(self, words)
    }

    /// Compiles the kernel `name` of `source`, in OpenCL C.
    ///
    /// # Safety
    /// However it is launched, the kernel uses only its arguments and stays within them.
    ///
    /// # Errors
    /// A driver error, with the compiler's log.
    #[allow(unsafe_code, reason = "the caller vouches for the kernel")]
    pub unsafe fn kernel(&self, source: &str, name: &CStr) -> Result<Arc<Kernel>> {
        Kernel::new(self.context(), source, name).map(Arc::new)
    }

    /// Makes an event that the host completes, and for which work can wait.
    ///
    /// # Errors
    /// A driver error.
    pub fn host_event(&self) -> Result<HostEvent> {
        HostEvent::new(self.context())
    }

    /// The OpenCL context, which lives as long as this device.
    #[must_use]
    pub fn raw(&self) -> cl_context {
        self.context().raw()
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.0.shared.context
    }

    pub(crate) fn news(&self) -> &Arc<News> {
        &self.0.shared.news
    }

    pub(crate) fn transfer(&self) -> &CommandQueue {
        &self.0.transfer
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.object, f)
    }
}

impl Home for Device {
    type Enqueue = Channel;

    fn port(&self, initial: u64) -> Result<Attachment> {
        let port = Port {
            shared: self.0.shared.clone(),
            reached: AtomicU64::new(initial),
            pending: Mutex::new(Pending {
                shown: initial,
                ..Pending::default()
            }),
        };
        Ok(Attachment::new(self.0.id, initial, port).watched_by(self.0.clone()))
    }
}

impl Backend for Device {
    type Queue = EngineQueue<Channel>;
    const QUEUE: &'static str = "OpenCL queue";

    fn identity(&self) -> Identity<'_> {
        Identity {
            id: self.0.id,
            object: &self.0.object,
            info: &self.0.info,
        }
    }

    fn check(&self) -> Result<()> {
        self.0.shared.check()
    }

    fn enqueue(&self, kind: QueueKind, queue: &Object) -> Result<Channel> {
        if kind == QueueKind::Graphics {
            return Err(Error::unsupported(queue, "run graphics", "OpenCL has none"));
        }
        Channel::new(self)
    }

    fn trim(&self) -> Pooled {
        let mut left = Pooled::default();
        left.deferred_frees = self.context().release_deferred();
        left
    }

    fn clock(&self) -> Result<Clock> {
        let made = || {
            let object = Object::new("clock", self.0.object.label());
            let ticks = Ticks::new(
                &object,
                self.context(),
                self.0.timer_resolution,
                self.0.info.uuid,
            )?;
            Ok(Clock::new(object, ticks))
        };
        get_or_make(&self.0.clock, made).cloned()
    }
}

impl Shared {
    /// OpenCL cannot be asked whether a device is lost. A failed command tells it.
    fn check(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The first error of a command, after which the device counts as lost.
    fn lose(&self, error: Error) -> Error {
        let first = self.lost.get_or_init(|| error).clone();
        // The watch asks the other ports again.
        self.news.add();
        first
    }
}

/// One timeline: the value reached, and an event for each signal that is pending.
pub(crate) struct Port {
    shared: Arc<Shared>,
    reached: AtomicU64,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    /// In the order of the values, which is also that in which the events complete.
    events: VecDeque<(u64, Event)>,
    /// The highest value that a poll has returned.
    shown: u64,
}

impl Port {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what waits for `value` to `events`, unless it is reached.
    pub(crate) fn wait(&self, value: u64, events: &mut Vec<Event>) -> Result<()> {
        let pending = self.pending();
        if self.reached.load(Ordering::Acquire) >= value {
            return Ok(());
        }
        let object = &self.shared.context.object;
        // The engine asks for no other values.
        let (_, event) = pending
            .events
            .iter()
            .find(|(signalled, _)| *signalled >= value)
            .ok_or_else(|| Error::unsupported(object, "wait", "no queue has the signal"))?;
        events.push(event.again(object)?);
        Ok(())
    }

    /// Takes events that are complete from the list.
    fn advance(&self, events: &mut VecDeque<(u64, Event)>) -> Result<()> {
        while let Some((value, event)) = events.front() {
            match event.is_complete(&self.shared.context.object) {
                Ok(true) => self.reached.fetch_max(*value, Ordering::Release),
                Ok(false) => return self.shared.check(),
                Err(error) => return Err(self.shared.lose(error)),
            };
            events.pop_front();
        }
        Ok(())
    }

    /// `event` will signal `value`.
    pub(crate) fn will_signal(&self, value: u64, event: Event) {
        let mut pending = self.pending();
        pending.events.push_back((value, event));
        // The list must not grow if no thread queries. An error shows in the next query.
        let _ = self.advance(&mut pending.events);
    }
}

impl backend::Port for Port {
    fn poll(&self) -> Result<Option<u64>> {
        let mut pending = self.pending();
        let ended = self.advance(&mut pending.events);
        let reached = self.reached.load(Ordering::Acquire);
        // What was reached before a loss counts, so it is shown first.
        if reached <= pending.shown {
            ended?;
        }
        pending.shown = reached;
        Ok(Some(reached))
    }

    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        by.check(self, &self.shared.context.object)?;
        self.reached.fetch_max(value, Ordering::Release);
        Ok(())
    }
}

impl Watch for Inner {
    fn watcher(&self) -> &Watcher {
        &self.watcher
    }

    fn watch(&self, ports: &[(&dyn backend::Port, u64)], until: Instant) -> Result<()> {
        loop {
            let seen = self.shared.news.count();
            for &(port, value) in ports {
                if port.poll()?.is_some_and(|reached| reached >= value) {
                    return Ok(());
                }
            }
            if !self.shared.news.wait(seen, until) {
                return Ok(());
            }
        }
    }

    fn nudge(&self) {
        self.shared.news.nudge();
    }

    fn check(&self) -> Result<()> {
        self.shared.check()
    }

    fn lends(&self) -> bool {
        true
    }
}

/// Wakes the watch. The driver's callbacks keep it, and nothing else of the device.
#[derive(Default)]
pub(crate) struct News {
    state: Mutex<NewsState>,
    changed: Condvar,
}

#[derive(Default)]
struct NewsState {
    count: u64,
    nudged: bool,
}

impl News {
    fn state(&self) -> MutexGuard<'_, NewsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self) -> u64 {
        self.state().count
    }

    /// An event has ended.
    pub(crate) fn add(&self) {
        self.state().count += 1;
        self.changed.notify_all();
    }

    fn nudge(&self) {
        self.state().nudged = true;
        self.changed.notify_all();
    }

    /// True once there is more than `seen`. False after a nudge, and after the time.
    fn wait(&self, seen: u64, until: Instant) -> bool {
        let mut state = self.state();
        loop {
            if std::mem::take(&mut state.nudged) {
                return false;
            }
            if state.count != seen {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The port of a point, which is always of this type.
pub(crate) fn port<'a>(point: backend::NativePoint<'a>) -> Result<&'a Port> {
    let port = point.port::<Port>();
    port.ok_or_else(|| {
        let reason = "its port is of another backend";
        Error::unsupported(point.object(), "be used by an OpenCL queue", reason)
    })
}
