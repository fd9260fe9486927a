//! Counter ports: timelines in shared memory, which streams wait for and write.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::sync::{Arc, Weak};

use cudarc::driver::sys;
use syncline_core::backend::kit::Counter;
use syncline_core::backend::{Attachment, ByEngine, Port};
use syncline_core::{
    Error, Result,
    error::Object,
    handle::{CounterFd, HandleKind, Rejected},
};

use crate::device::context::{Context, OnLoss};
use crate::device::deferred_free::Resource;
use crate::device::limits::MEMORY_OPS_LIMIT;
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::driver::memory_ops::{Valued, Width};
use crate::driver::table::Driver;
use crate::timeline::imported::Imported;
use crate::timeline::node_word::{self, NodeWord};
use crate::timeline::visibility::Visibility;

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const REGISTERED: u32 = 3;

/// The port of a counter in shared memory, on which streams of this device wait and signal.
///
/// The host reads the counter through the timeline's home port.
pub struct CounterPort {
    mapped: Arc<MappedCounter>,
    counter: Arc<Counter>,
    device: Object,
}

/// A counter as the device addresses it: an aligned word of a page that stays registered.
///
/// A submission keeps the struct until it has finished (`QueueStream::external`). An application
/// that signals a claim keeps the timeline, which keeps the struct (see `Device::submit_claimed`).
pub(crate) struct MappedCounter {
    context: Arc<Context>,
    counter: Arc<Counter>,
    /// The address of the counter within the page.
    address: sys::CUdeviceptr,
    /// The signals that streams of this device make.
    visibility: Visibility,
    /// True if waits flush remote writes.
    flushes: bool,
}

impl Drop for MappedCounter {
    fn drop(&mut self) {
        // May block until all work of the context has finished. The page is unmapped afterwards.
        let page = Resource::Registered(self.counter.clone());
        self.context.free_or_defer(page, Counter::BYTES as u64);
    }
}

impl OnLoss for MappedCounter {
    /// Fails the counter if streams of this device were still to signal it.
    ///
    /// Waiters learn this from the page. No driver call tells the host or another process, which
    /// only see a counter that does not change.
    fn lose(&self, cause: &Error) {
        let reached = self.counter.value().unwrap_or(0);
        if self.visibility.owes_above(reached) {
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

    /// The counter's address on the device, for waits that the application submits itself.
    ///
    /// Such a wait is `cuStreamWaitValue64` with `CU_STREAM_WAIT_VALUE_GEQ`. To signal the counter,
    /// claim the value and use [`Device::submit_claimed`]. A value that was not announced fails the
    /// timeline.
    #[must_use]
    pub fn raw(&self) -> sys::CUdeviceptr {
        self.mapped.address
    }
}

impl NodeWord for MappedCounter {
    fn context(&self) -> &Context {
        &self.context
    }

    fn at(&self, value: u64) -> Valued {
        Valued {
            address: self.address,
            width: Width::Bits64,
            value,
        }
    }

    fn flushes(&self) -> bool {
        self.flushes
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
        Err(Error::unsupported(
            &self.device,
            format!("signal a counter in shared memory to {value} from the host"),
            "CUDA signals it from streams only; its home is a port of the host",
        ))
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
        node_word::wait_all(stream, count, ports)
    }

    fn signal_all<'p>(
        stream: &Stream,
        count: usize,
        ports: impl Iterator<Item = (&'p Self, u64)>,
    ) -> Result<()> {
        node_word::signal_all(stream, count, ports)
    }
}

impl std::fmt::Debug for CounterPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CounterPort({:?} at {:#x})", self.counter, self.raw())
    }
}

impl Device {
    /// Imports a timeline's counter as a port of this device. The timeline's home is on the host.
    ///
    /// Maps the page and registers it with the context (`cuMemHostRegister`). Registering and
    /// unregistering may block until all work of the context has finished, so call this at set-up.
    /// If a finished submission has the last reference, the end is deferred (see
    /// [`Device::free_what_is_due`]). Signals of streams do not wake threads that wait on the page.
    /// These threads therefore poll it from now on, at least once per millisecond.
    ///
    /// A device compares signed 64-bit differences. So a value that is waited for or signalled is
    /// within 2^63 − 1 of the counter's value.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with the reason, if the device's streams cannot wait for memory or
    /// write it. This is checked before any driver call. [`Error::Import`] if the head of the page
    /// was overwritten. [`Error::Native`] if the system has no thread. A driver error. Each error
    /// returns the handle, still open.
    pub fn import_counter(&self, handle: CounterFd) -> Result<Attachment, Rejected<CounterFd>> {
        let kind = HandleKind::CounterMemfd;
        let mapped = self
            .require_kind(kind, MEMORY_OPS_LIMIT, "a counter in shared memory")
            .and_then(|()| Counter::open(&handle, self.object()))
            .and_then(|counter| self.register(counter));
        match mapped.and_then(|mapped| self.attach_counter(mapped)) {
            Ok(attachment) => Ok(attachment),
            Err(error) => Err(Rejected { handle, error }),
        }
    }

    fn attach_counter(&self, mapped: MappedCounter) -> Result<Attachment> {
        let mapped = Arc::new(mapped);
        let lost: Weak<dyn OnLoss> = Arc::downgrade(&mapped) as _;
        mapped.context.notify_of_loss(lost)?;
        mapped.counter.expect_quiet_signals();
        let port = CounterPort {
            counter: mapped.counter.clone(),
            mapped,
            device: self.object().clone(),
        };
        let attachment = Attachment::imported(self.id(), port);
        Ok(attachment
            .watched_by(self.watched())
            .with_max_value_difference(Width::Bits64.largest_difference()))
    }

    /// Registers the counter's page with the context, so that the device can access it.
    fn register(&self, counter: Counter) -> Result<MappedCounter> {
        let context = self.context();
        let _bound = context.bind_outside_capture()?;
        let page = counter.address();
        let register = |driver: &Driver| {
            // SAFETY: the page is mapped as long as the counter lives. The `MappedCounter` below
            // keeps the counter until the page is unregistered.
            unsafe { driver.mem_host_register(page, Counter::BYTES, REGISTERED) }
        };
        context.allocate(register)?;
        // From here on, dropping this unregisters the page.
        let mut mapped = MappedCounter {
            context: context.clone(),
            counter: Arc::new(counter),
            address: 0,
            visibility: Visibility::default(),
            flushes: self.info().capabilities.stream_memory_flush,
        };
        let mut address = 0;
        // SAFETY: registered above with a device mapping. Writes one address.
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
