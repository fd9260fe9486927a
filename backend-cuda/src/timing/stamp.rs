//! Stamps: times that streams write, by events for intervals or by a kernel for times of the clock.
//!
//! Events are cheap. An event's time is only known relative to another event, as a 32-bit float of
//! milliseconds, which has steps of microseconds after eight seconds. Only instructions of a kernel
//! read the clock's own nanoseconds.
#![allow(unsafe_code, reason = "launches a kernel")]

use std::any::Any;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use syncline_core::backend::Timing;
use syncline_core::backend::kit::Mutex;
use syncline_core::{Error, Result, backend, error::Object};

use crate::device::event::{Events, Mark};
use crate::device::inner::DeviceRef;
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::driver::table::{LaunchAttribute, LaunchConfig};
use crate::memory::buffer::Buffer;
use crate::memory::module::{Function, Module};

/// A time at a position of a queue.
pub struct Stamp {
    /// The queue that writes it.
    object: Object,
    kind: Kind,
}

enum Kind {
    /// A timed event, taken at the first use of the stamp. Later uses record the same event.
    Event(OnceLock<Mark>),
    /// A word that a kernel writes.
    TimeWord(TimeWord),
}

/// A word of pinned memory with the time, or 0. Dropping it returns the word to the free words.
struct TimeWord {
    keeper: Arc<Timekeeper>,
    slab: Buffer,
    index: usize,
}

/// Writes times of a device's clock.
///
/// Its memory is freed only when it is dropped, because that may wait for all work of the context.
pub(crate) struct Timekeeper {
    kernel: Function,
    /// A variant of the kernel that starts before earlier work has ended and then waits for it.
    ///
    /// Only if GPU and driver support that.
    early: Option<Function>,
    device_ref: DeviceRef,
    free: Mutex<Vec<(Buffer, usize)>>,
}

/// The number of words that are allocated together.
const SLAB: usize = 512;

/// Requires a Hopper GPU or later, and a driver for CUDA 11.8 or later.
const BEHIND: &str = include_str!("behind.ptx");

impl Timekeeper {
    /// Makes a keeper with the stamp kernel of `kernels`.
    ///
    /// May block until all work of the context has finished.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn new(device_ref: DeviceRef, kernels: &Module) -> Result<Self> {
        // An older GPU or driver rejects it.
        let early = Module::load(&device_ref, BEHIND).and_then(|behind| behind.function("stamp"));
        let keeper = Self {
            kernel: kernels.function("stamp")?,
            early: early.ok(),
            device_ref,
            free: Mutex::default(),
        };
        let first = keeper.new_slab()?;
        keeper.free.lock().push(first);
        Ok(keeper)
    }

    fn word(self: Arc<Self>) -> Result<TimeWord> {
        let free = self.free.lock().pop();
        let (slab, index) = match free {
            Some(free) => free,
            None => self.new_slab()?,
        };
        let word = TimeWord {
            keeper: self,
            slab,
            index,
        };
        // It may have the time of an earlier stamp.
        if let Some(word) = word.get() {
            word.store(0, Ordering::Relaxed);
        }
        Ok(word)
    }

    /// Allocates words, adds all but one to the free words, and returns that one.
    fn new_slab(&self) -> Result<(Buffer, usize)> {
        // Without the lock, because this calls the driver. Several threads may each allocate words.
        let slab = Buffer::pinned(&self.device_ref, SLAB as u64 * 8)?;
        let others = (1..SLAB).rev().map(|index| (slab.clone(), index));
        self.free.lock().extend(others);
        Ok((slab, 0))
    }
}

impl TimeWord {
    fn get(&self) -> Option<&AtomicU64> {
        self.slab.as_long_words()?.get(self.index)
    }
}

impl Drop for TimeWord {
    fn drop(&mut self) {
        // In a forked child, a thread of the parent may have held the lock.
        if self.keeper.device_ref.context().driver().is_forked() {
            return;
        }
        self.keeper
            .free
            .lock()
            .push((self.slab.clone(), self.index));
    }
}

impl Stamp {
    /// A stamp for a queue of `device`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a time of a clock that was not requested, [`Error::ClockSilent`]
    /// if the clock's kernels are still being loaded, or a driver error.
    pub(crate) fn new(device: &Device, queue: &Object, timing: Timing) -> Result<Self> {
        let kind = match timing {
            Timing::Clock => {
                let keeper = device.timekeeper().unwrap_or_else(|| {
                    Err(Error::unsupported(
                        queue,
                        "write a time of its clock",
                        "the device was not asked for the clock yet",
                    ))
                })?;
                Kind::TimeWord(keeper.word()?)
            }
            _ => Kind::Event(OnceLock::new()),
        };
        Ok(Self {
            object: queue.clone(),
            kind,
        })
    }

    /// Prepares the stamp for its next record. The caller has the only reference.
    ///
    /// Returns false while an event ring still has the event. The caller's queue keeps the device,
    /// and with it the pool of the event.
    #[inline]
    pub(crate) fn renew(&self) -> bool {
        match &self.kind {
            Kind::Event(event) => event.get().is_none_or(|mark| {
                let alone = mark.is_unshared();
                if alone {
                    mark.renew();
                }
                alone
            }),
            Kind::TimeWord(word) => {
                if let Some(word) = word.get() {
                    word.store(0, Ordering::Relaxed);
                }
                true
            }
        }
    }

    /// The event to record once with the stamp's submission, or `None` if a kernel writes the time.
    ///
    /// In that case [`Stamp::launch`] adds the kernel. Called once for each use of the stamp.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn event(&self, events: &Events) -> Result<Option<Mark>> {
        let Kind::Event(event) = &self.kind else {
            return Ok(None);
        };
        let mark = match event.get() {
            Some(mark) => mark,
            None => {
                let mark = events.take()?;
                event.get_or_init(|| mark)
            }
        };
        Ok(Some(mark.clone()))
    }

    /// Launches the kernel that writes the time, if this stamp has one.
    ///
    /// `early` is true if the previous command in `stream` is a kernel of the same submission that
    /// waits for all earlier work. The submission keeps the stamp until it has finished.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn launch(&self, stream: &Stream, early: bool) -> Result<()> {
        let Kind::TimeWord(word) = &self.kind else {
            return Ok(());
        };
        // A launch needs the current context. A record without work does not make it current.
        let _bound = stream.context().bind()?;
        let driver = stream.context().driver();
        let mut to = word.slab.pointer() + 8 * word.index as u64;
        let mut params = [(&raw mut to).cast()];
        let params = params.as_mut_ptr();
        let early = word.keeper.early.as_ref().filter(|_| early);
        let launched = early.is_some_and(|kernel| {
            let attribute = LaunchAttribute::BEGINS_EARLY;
            let config = LaunchConfig {
                grid: [1; 3],
                block: [1; 3],
                shared_bytes: 0,
                stream: stream.raw(),
                attributes: &raw const attribute,
                count: 1,
            };
            // SAFETY: as below. The configuration and its attribute outlive the call. The kernel
            // itself waits for earlier work, and later work waits for its end.
            let launched = unsafe {
                driver.launch_kernel_ex(&raw const config, kernel.raw(), params, null_mut())
            };
            // Otherwise the plain kernel is launched.
            matches!(launched, Some(Ok(())))
        });
        if launched {
            return Ok(());
        }
        // SAFETY: the kernel takes one 64-bit address and writes one word there from one thread.
        // The word is pinned memory of this stamp, which nothing else uses until the stamp is
        // dropped. The caller has the submission keep the stamp. The driver copies the parameter
        // during the call.
        unsafe {
            driver.launch_kernel(
                word.keeper.kernel.raw(),
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream.raw(),
                params,
                null_mut(),
            )
        }
        .map_err(|code| stream.error(code))
    }

    /// The event, if it is recorded.
    fn mark(&self) -> Result<&Mark> {
        let recorded = match &self.kind {
            Kind::Event(event) => event.get().filter(|mark| mark.is_recorded()),
            Kind::TimeWord(_) => None,
        };
        recorded.ok_or_else(|| self.not_ready())
    }

    /// The time that the kernel wrote.
    fn written_time(&self) -> Result<i64> {
        let time = match &self.kind {
            Kind::TimeWord(word) => word.get().map_or(0, |word| word.load(Ordering::Acquire)),
            Kind::Event(_) => 0,
        };
        if time == 0 {
            return Err(self.not_ready());
        }
        Ok(time.cast_signed())
    }

    fn not_ready(&self) -> Error {
        Error::not_ready(&self.object)
    }
}

impl backend::Stamp for Stamp {
    fn nanoseconds_since(&self, start: &dyn backend::Stamp) -> Result<i64> {
        let start: &dyn Any = start;
        let start = start.downcast_ref::<Self>().ok_or_else(|| {
            Error::unsupported(
                &self.object,
                "tell the time since a stamp of another backend",
                "CUDA tells times between its own events only",
            )
        })?;
        if let (Kind::TimeWord(_), Kind::TimeWord(_)) = (&start.kind, &self.kind) {
            return Ok(self.written_time()?.saturating_sub(start.written_time()?));
        }
        let milliseconds = self
            .mark()?
            .milliseconds_since(start.mark()?)?
            .ok_or_else(|| self.not_ready())?;
        // Saturates after three centuries.
        Ok((f64::from(milliseconds) * 1e6).round() as i64)
    }

    fn time(&self) -> Result<Option<i64>> {
        self.written_time().map(Some)
    }

    fn time_if_written(&self) -> Option<i64> {
        self.written_time().ok()
    }
}
