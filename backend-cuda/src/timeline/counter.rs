//! Timelines in shared memory: counters that streams wait for and write.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::{Arc, Weak};

use cudarc::driver::sys;
use syncline_core::backend::{Attachment, ByEngine, Counter, Port};
use syncline_core::{CounterFd, Error, HandleKind, Object, Rejected, Result};

use crate::device::context::{Context, OnLoss};
use crate::device::deferred_free::Resource;
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::driver::memory_ops::{wait_all, write_all};
use crate::driver::table::Driver;
use crate::timeline::imported::Imported;
use crate::timeline::visibility::Visibility;

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const REGISTERED: u32 = 3;

/// The largest difference that a wait tells right: the device compares signed differences.
const LARGEST_DIFFERENCE: u64 = i64::MAX as u64;

/// A counter in shared memory, as this device's streams wait for it and signal it. The host reads it through the port that is the timeline's home.
pub struct CounterPort {
    mapped: Arc<MappedCounter>,
    counter: Arc<Counter>,
    device: Object,
}

/// Where the device finds the counter: an aligned word of a page that is registered for as long as
/// this lives.
///
/// A submission keeps this until it has finished (`Line::external`). An application that signals a
/// claim keeps the timeline, and that has it (see `Device::submit_claimed`).
pub(crate) struct MappedCounter {
    context: Arc<Context>,
    counter: Arc<Counter>,
    /// Of the counter itself, within the page.
    address: sys::CUdeviceptr,
    /// What streams of this device signal.
    visibility: Visibility,
    /// Waits flush remote writes.
    flushes: bool,
}

impl Drop for MappedCounter {
    fn drop(&mut self) {
        // May wait for all work of the context, and takes the page with it.
        let page = Resource::Registered(self.counter.clone());
        page.free_or_defer(Counter::BYTES as u64, &self.context);
    }
}

impl OnLoss for MappedCounter {
    /// The device is lost: what its streams were to signal never comes, which whoever waits learns from the page. A driver tells nobody: the host's
    /// home of the timeline sees a counter that stands still, and so does another process.
    fn lose(&self, cause: &Error) {
        if self.visibility.owes() {
            self.counter.fail_as_lost(cause);
        }
    }
}

impl CounterPort {
    /// The counter.
    #[must_use]
    pub const fn counter(&self) -> &Arc<Counter> {
        &self.counter
    }

    /// The counter's address on the device, for waits that the application submits itself (`cuStreamWaitValue64` with
    /// `CU_STREAM_WAIT_VALUE_GEQ`). To signal it, claim the value and use [`Device::submit_claimed`]: a value that nobody has
    /// announced fails the timeline.
    #[must_use]
    pub fn raw(&self) -> sys::CUdeviceptr {
        self.mapped.address
    }
}

impl Port for CounterPort {
    fn is_readable(&self) -> bool {
        false
    }

    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn signal(&self, value: u64, _: ByEngine<'_>) -> Result<()> {
        Err(Error::Unsupported {
            object: self.device.clone(),
            asked: format!("signal a counter in shared memory to {value} from the host"),
            reason: "CUDA signals it from streams only; its home is a port of the host".into(),
        })
    }

    fn visible(&self, reached: u64) -> Result<u64> {
        self.mapped
            .visibility
            .visible(reached, &self.mapped.context)
    }
}

impl Imported for CounterPort {
    type Object = MappedCounter;

    #[inline]
    fn object(&self) -> &Arc<MappedCounter> {
        &self.mapped
    }

    fn context(&self) -> &Context {
        &self.mapped.context
    }

    #[inline]
    fn visibility(&self) -> &Visibility {
        &self.mapped.visibility
    }

    fn announce(&self, value: u64) -> Result<()> {
        self.counter.announce(value)
    }

    fn note_pending(&self, value: u64) {
        self.counter.note_pending(value);
    }

    fn wait_all<'p>(
        stream: &Stream,
        count: usize,
        ports: impl Iterator<Item = (&'p Self, u64)>,
    ) -> Result<()> {
        let mut ports = ports.peekable();
        let flush = ports.peek().is_some_and(|(port, _)| port.mapped.flushes);
        let context = stream.context();
        // SAFETY: see `Word`; the stream is alive.
        unsafe { wait_all(context.driver(), stream.raw(), count, ports.map(at), flush) }
            .map_err(|code| context.error(code))
    }

    fn signal_all<'p>(
        stream: &Stream,
        count: usize,
        ports: impl Iterator<Item = (&'p Self, u64)>,
    ) -> Result<()> {
        let context = stream.context();
        // SAFETY: see `Word`; the stream is alive.
        unsafe { write_all(context.driver(), stream.raw(), count, ports.map(at)) }
            .map_err(|code| context.error(code))
    }
}

fn at((port, value): (&CounterPort, u64)) -> (sys::CUdeviceptr, u64) {
    (port.raw(), value)
}

impl std::fmt::Debug for CounterPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CounterPort({:?} at {:#x})", self.counter, self.raw())
    }
}

impl Device {
    /// This device's part in a timeline whose counter `handle` carries: the second port, behind a home on the host.
    ///
    /// Maps the page and registers it with the context (`cuMemHostRegister`), which may wait for all work of the context, as does
    /// its end: so call it at set-up. Where a finished submission had the last of it, it is put by like other memory (see
    /// [`Device::free_what_is_due`]). Signals of streams ring no bell, so threads that wait for the page look by themselves from now on, every
    /// millisecond at the latest.
    ///
    /// A device compares values with 64 bits and a sign: what is waited for or signalled lies within 2^63 − 1 of the value.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with the reason, if the device's streams cannot wait for memory or write it, before any driver is
    /// asked; [`Error::Import`] if somebody has written over the page's head; a driver error. The handle comes back with it, still open.
    pub fn import_counter(&self, handle: CounterFd) -> Result<Attachment, Rejected<CounterFd>> {
        let kind = HandleKind::CounterMemfd;
        let mapped = self
            .require_kind(kind, "a counter in shared memory")
            .and_then(|()| Counter::open(&handle, self.object()))
            .and_then(|counter| self.register(counter));
        match mapped {
            Ok(mapped) => Ok(self.attach_counter(mapped)),
            Err(error) => Err(Rejected { handle, error }),
        }
    }

    fn attach_counter(&self, mapped: MappedCounter) -> Attachment {
        mapped.counter.expect_quiet_signals();
        let mapped = Arc::new(mapped);
        let lost: Weak<dyn OnLoss> = Arc::downgrade(&mapped) as _;
        mapped.context.notify_of_loss(lost);
        let port = CounterPort {
            counter: mapped.counter.clone(),
            mapped,
            device: self.object().clone(),
        };
        Attachment::imported(self.id(), port).with_max_value_difference(LARGEST_DIFFERENCE)
    }

    /// Lets the device reach the counter's page.
    fn register(&self, counter: Counter) -> Result<MappedCounter> {
        let context = self.context();
        let _bound = context.bind_outside_capture()?;
        let page = counter.address();
        let register = |driver: &Driver| {
            // SAFETY: a page that is mapped for as long as the counter lives. The word below keeps
            // that until the page is not registered any more.
            unsafe { driver.mem_host_register(page, Counter::BYTES, REGISTERED) }
        };
        context.allocate(register)?;
        // From here on this takes it back.
        let mut mapped = MappedCounter {
            context: context.clone(),
            counter: Arc::new(counter),
            address: 0,
            visibility: Visibility::default(),
            flushes: self.info().capabilities.stream_memory_flush,
        };
        let mut address = 0;
        // SAFETY: registered above with a device mapping; writes one address.
        let found = unsafe {
            let driver = context.driver();
            driver.mem_host_get_device_pointer(&raw mut address, page, 0)
        };
        found.map_err(|code| context.error(code))?;
        mapped.address = address + Counter::REACHED as sys::CUdeviceptr;
        Ok(mapped)
    }
}

#[cfg(test)]
mod tests;
