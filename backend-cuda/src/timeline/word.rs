//! Word ports: timelines in words of memory that the application has.
#![allow(
    unsafe_code,
    reason = "reads memory of the application, and talks to the driver"
)]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cudarc::driver::sys;
use syncline_core::backend::kit::Mutex;
use syncline_core::backend::{ByEngine, Port, SharedPort};
use syncline_core::{Error, Result, error::Object};

use crate::device::context::{Context, Owner};
use crate::device::deferred_free::Resource;
use crate::device::event::Events;
use crate::device::observers::{OBSERVED, Observed, Observers};
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::driver::memory_ops::{Valued, Width};
use crate::driver::table::Raw;
use crate::timeline::imported::Imported;
use crate::timeline::node_word::{self, NodeWord};
use crate::timeline::visibility::Visibility;

/// The port of a timeline in a word that the application has.
///
/// Streams of this device wait for the word and write it, and so may kernels, devices and libraries
/// that know nothing of Syncline.
pub struct WordPort {
    word: Arc<AdoptedWord>,
    object: Object,
    events: Events,
    observers: Arc<Observers>,
    /// The highest value that [`Port::poll`] has returned.
    polled: AtomicU64,
}

/// A word of the application's memory. A submission keeps it until the submission has finished.
pub(crate) struct AdoptedWord {
    context: Arc<Context>,
    address: sys::CUdeviceptr,
    width: Width,
    reading: Reading,
    /// The signals that streams of this device make or observe.
    visibility: Visibility,
    /// True if waits flush remote writes.
    flushes: bool,
    /// What keeps the memory. `None` once it is given away.
    owner: Option<Owner>,
    /// Dropped after this struct has handed its owner to the deferred frees, whose end it is.
    _device: Device,
}

/// How the host learns of the word's value.
enum Reading {
    /// The host has the memory. The value is the highest that was read.
    Direct(Raw<u8>, AtomicU64),
    /// By events behind waits for each promised value, in a stream of their own. The stream is made
    /// for the first of them.
    Observed(Mutex<Option<Stream>>),
}

impl AdoptedWord {
    fn valued(&self, value: u64) -> Valued {
        Valued {
            address: self.address,
            width: self.width,
            value,
        }
    }

    /// Reads the word and extends it to the value of the timeline. `None` if the host cannot.
    fn read(&self, object: &Object) -> Result<Option<u64>> {
        let Reading::Direct(Raw(at), highest) = &self.reading else {
            return Ok(None);
        };
        // Loaded first: the word is at least at this value.
        let before = highest.load(Ordering::Acquire);
        // SAFETY: an aligned word, which the owner keeps. Devices and the host change it at any
        // time, and this process accesses it through atomics.
        let now = unsafe {
            match self.width {
                Width::Bits32 => AtomicU32::from_ptr(at.cast())
                    .load(Ordering::Acquire)
                    .into(),
                Width::Bits64 => AtomicU64::from_ptr(at.cast()).load(Ordering::Acquire),
            }
        };
        match self.width.extend(before, now) {
            Some(value) => {
                highest.fetch_max(value, Ordering::AcqRel);
                Ok(Some(value))
            }
            None => {
                let largest = self.width.largest_difference();
                let reason =
                    format!("the timeline was at {before}, and a word grows by 1 to {largest}");
                Err(Error::corrupted(object, now, reason))
            }
        }
    }

    /// Writes the word from the host. False if the host cannot.
    fn write(&self, value: u64) -> bool {
        let Reading::Direct(Raw(at), _) = &self.reading else {
            return false;
        };
        // SAFETY: as in `read`.
        unsafe {
            match self.width {
                Width::Bits32 => {
                    AtomicU32::from_ptr(at.cast()).store(value as u32, Ordering::Release);
                }
                Width::Bits64 => AtomicU64::from_ptr(at.cast()).store(value, Ordering::Release),
            }
        }
        true
    }
}

impl NodeWord for AdoptedWord {
    fn context(&self) -> &Context {
        &self.context
    }

    fn at(&self, value: u64) -> Valued {
        self.valued(value)
    }

    fn flushes(&self) -> bool {
        self.flushes
    }
}

impl Observed for AdoptedWord {
    fn outstanding(&self, polls: bool) -> usize {
        let Reading::Observed(stream) = &self.reading else {
            return 0;
        };
        let Some(domain) = stream.lock().as_ref().map(Stream::domain) else {
            return 0;
        };
        if polls {
            // A later query of the value reports an error, too.
            let _ = self.visibility.reached(&self.context);
        }
        self.visibility.outstanding_in(domain)
    }
}

impl Drop for AdoptedWord {
    fn drop(&mut self) {
        let owner = self.owner.take();
        let Reading::Observed(stream) = &self.reading else {
            return;
        };
        let Some(_calls) = self.context.for_destroy() else {
            return;
        };
        // The stream may still wait for a promised value. The owner must outlive the wait. A lost
        // device executes no waits.
        let outstanding = stream.lock().take();
        let outstanding = outstanding.filter(|stream| {
            let polled = self.visibility.reached(&self.context);
            let is_lost = matches!(polled, Err(Error::DeviceLost { .. }));
            !is_lost && self.visibility.outstanding_in(stream.domain()) > 0
        });
        if let (Some(stream), Some(owner)) = (outstanding, owner) {
            let observed = Resource::Observed(stream.into_raw_stream(), Arc::new(owner));
            self.context.deferred_frees().add(observed, 0);
        }
    }
}

impl WordPort {
    /// A port of the word at `address` on the device, which is at `reached`.
    ///
    /// # Safety
    /// `address` is an aligned word that streams of the context reach, and `on_host` is its address
    /// for the host, or `None`. Both are valid as long as `owner` is kept. No other port has it.
    pub(crate) unsafe fn new(
        device: &Device,
        (address, width): (sys::CUdeviceptr, Width),
        on_host: Option<usize>,
        reached: u64,
        flushes: bool,
        owner: Owner,
        object: Object,
    ) -> Self {
        let observers = device.inner().observers();
        let reading = match on_host {
            Some(at) => Reading::Direct(
                Raw(std::ptr::with_exposed_provenance_mut(at)),
                AtomicU64::new(reached),
            ),
            None => Reading::Observed(Mutex::default()),
        };
        let word = Arc::new(AdoptedWord {
            context: device.context().clone(),
            address,
            width,
            reading,
            visibility: Visibility::from(reached),
            flushes,
            owner: Some(owner),
            _device: device.clone(),
        });
        if on_host.is_none() {
            let observed: Weak<dyn Observed> = Arc::downgrade(&word) as _;
            observers.add(observed);
        }
        Self {
            word,
            object,
            events: device.plain_events().clone(),
            observers: observers.clone(),
            polled: AtomicU64::new(reached),
        }
    }

    /// The address on the device, for waits that the application submits itself.
    ///
    /// Such a wait is `cuStreamWaitValue64` or `cuStreamWaitValue32` with
    /// `CU_STREAM_WAIT_VALUE_GEQ`, once the value is pending.
    #[must_use]
    pub fn raw(&self) -> sys::CUdeviceptr {
        self.word.address
    }

    /// True if the host reads the word itself. If not, it learns of promised values by events.
    #[must_use]
    pub fn is_read_by_host(&self) -> bool {
        matches!(self.word.reading, Reading::Direct(..))
    }

    /// Lets a stream of its own wait for a promised value, and records an event behind the wait.
    fn observe(&self, stream: &Mutex<Option<Stream>>, value: u64) -> Result<()> {
        let AdoptedWord {
            context,
            visibility,
            ..
        } = &*self.word;
        if self.observers.is_full() {
            return Err(Error::unsupported(
                &self.object,
                format!("observe {value}"),
                format!(
                    "{OBSERVED} promised values of the device's memory have not come yet, and the host cannot read the word: wait for one of them first"
                ),
            ));
        }
        let mark = self.events.take()?;
        let _bound = context.bind_outside_capture()?;
        let mut stream = stream.lock();
        let stream = match &mut *stream {
            Some(stream) => stream,
            none => none.insert(Stream::new(context, "promised values")?),
        };
        visibility.announce(value, mark.clone(), stream.domain());
        let observed = Self::wait_all(stream, 1, [(self, value)].into_iter())
            .and_then(|()| stream.record(&mark));
        if observed.is_err() {
            visibility.withdraw(value);
        }
        observed
    }
}

impl Port for WordPort {
    fn sees_submitted(&self, value: u64) -> Result<()> {
        match &self.word.reading {
            Reading::Direct(..) => Ok(()),
            Reading::Observed(_) if self.word.visibility.knows(value) => Ok(()),
            Reading::Observed(stream) => self.observe(stream, value),
        }
    }

    fn poll(&self) -> Result<Option<u64>> {
        let AdoptedWord {
            context,
            visibility,
            ..
        } = &*self.word;
        let value = match self.word.read(&self.object)? {
            Some(shown) => visibility.visible(shown, context)?,
            None => visibility.reached(context)?,
        };
        self.polled.fetch_max(value, Ordering::AcqRel);
        Ok(Some(value))
    }

    fn counter_value(&self) -> Result<Option<u64>> {
        self.word.read(&self.object)
    }

    fn takes_host_signals(&self, value: u64) -> Result<()> {
        if self.is_read_by_host() {
            return Ok(());
        }
        Err(Error::unsupported(
            &self.object,
            format!("be signalled to {value} by the host"),
            "the word is in device memory, which the host cannot write: signal it from a queue of its device",
        ))
    }

    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        by.check(self, &self.object)?;
        if self.word.write(value) {
            return Ok(());
        }
        self.takes_host_signals(value)
    }

    fn shared(&self) -> Option<&dyn SharedPort> {
        Some(self)
    }
}

impl SharedPort for WordPort {
    fn last_polled(&self) -> u64 {
        self.polled.load(Ordering::Acquire)
    }
}

impl Imported for WordPort {
    type Object = AdoptedWord;

    #[inline]
    fn object(&self) -> &Arc<AdoptedWord> {
        &self.word
    }

    fn context(&self) -> &Context {
        &self.word.context
    }

    #[inline]
    fn visibility(&self) -> &Visibility {
        &self.word.visibility
    }

    #[inline]
    fn announce(&self, _value: u64) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn note_pending(&self, _value: u64) {}

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

impl std::fmt::Debug for WordPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bits = 8 * self.word.width.bytes();
        write!(f, "WordPort({bits} bits at {:#x})", self.raw())
    }
}

#[cfg(test)]
mod tests;
