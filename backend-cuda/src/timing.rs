//! Times written by streams: intervals by events, which are cheap, and times of the GPU's clock by a kernel of one thread.
//!
//! What an event tells is the time since another one, in milliseconds of 32 bits: after eight seconds it moves by
//! microseconds. The clock's own nanoseconds are to be had by instructions alone.
#![allow(unsafe_code, reason = "launches a kernel")]

use std::any::Any;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use syncline_core::backend::Timing;
use syncline_core::{Error, Object, Result, backend};

use crate::device::{Device, Place};
use crate::event::{Events, Mark};
use crate::lock;
use crate::memory::DeviceBuffer;
use crate::module::{Function, Module};
use crate::stream::Stream;

/// A time at a queue position.
pub(crate) struct Stamp {
    /// The queue that writes it.
    object: Object,
    kind: Kind,
}

enum Kind {
    /// A timed event, once it is recorded. Stays from one use to the next where nobody else has it then.
    Event(OnceLock<Mark>),
    /// A word that a kernel writes.
    Word(Word),
}

/// A word of pinned memory: the time, or 0. Goes back to the others when it is dropped.
struct Word {
    keeper: Arc<Timekeeper>,
    slab: DeviceBuffer,
    index: usize,
}

/// Writes times of a device's clock. Its memory is freed at its end alone, as that may wait for all work of the context.
pub(crate) struct Timekeeper {
    kernel: Function,
    place: Place,
    free: Mutex<Vec<(DeviceBuffer, usize)>>,
}

/// Words that are allocated together.
const SLAB: usize = 512;

impl Timekeeper {
    /// With the kernel of `kernels`. Blocks, and may wait for all work of the context.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn new(place: Place, kernels: &Module) -> Result<Self> {
        let keeper = Self {
            kernel: kernels.function(c"stamp")?,
            place,
            free: Mutex::default(),
        };
        let first = keeper.new_slab()?;
        lock(&keeper.free).push(first);
        Ok(keeper)
    }

    fn word(self: Arc<Self>) -> Result<Word> {
        let free = lock(&self.free).pop();
        let (slab, index) = match free {
            Some(free) => free,
            None => self.new_slab()?,
        };
        Ok(Word {
            keeper: self,
            slab,
            index,
        })
    }

    /// One of its words; the others are free.
    fn new_slab(&self) -> Result<(DeviceBuffer, usize)> {
        // The driver is asked without the lock; threads that find nothing free at once make a slab each.
        let slab = DeviceBuffer::pinned(&self.place, SLAB as u64 * 8)?;
        let others = (1..SLAB).rev().map(|index| (slab.clone(), index));
        lock(&self.free).extend(others);
        Ok((slab, 0))
    }
}

impl Word {
    fn get(&self) -> Option<&AtomicU64> {
        self.slab.as_long_words()?.get(self.index)
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        lock(&self.keeper.free).push((self.slab.clone(), self.index));
    }
}

impl Stamp {
    /// For a queue of `device`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a time of a clock that nobody has asked for, [`Error::ClockSilent`] for one whose kernels are still being
    /// loaded; a driver error.
    pub(crate) fn new(device: &Device, queue: &Object, timing: Timing) -> Result<Self> {
        let kind = match timing {
            Timing::Clock => {
                let keeper = device.timekeeper().unwrap_or_else(|| {
                    Err(Error::Unsupported {
                        object: queue.clone(),
                        asked: "write a time of its clock".into(),
                        reason: "the device was not asked for the clock yet".into(),
                    })
                })?;
                Kind::Word(keeper.word()?)
            }
            _ => Kind::Event(OnceLock::new()),
        };
        Ok(Self {
            object: queue.clone(),
            kind,
        })
    }

    /// For the next record.
    pub(crate) fn renew(&mut self) {
        match &mut self.kind {
            Kind::Event(event) => match event.get().filter(|mark| mark.is_alone()) {
                Some(mark) => mark.renew(),
                None => *event = OnceLock::new(),
            },
            Kind::Word(word) => {
                if let Some(word) = word.get() {
                    word.store(0, Ordering::Relaxed);
                }
            }
        }
    }

    /// The event, to be recorded once, when the stamp's submission is recorded; `None` if that is to
    /// [launch](Stamp::launch) a kernel.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn event(&self, events: &Events) -> Result<Option<&Mark>> {
        let Kind::Event(event) = &self.kind else {
            return Ok(None);
        };
        if let Some(mark) = event.get() {
            return Ok(Some(mark));
        }
        let mark = events.take()?;
        Ok(Some(event.get_or_init(|| mark)))
    }

    /// Puts the kernel that writes it into `stream`, if it is one that a kernel writes. The submission keeps the stamp until it
    /// has finished.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn launch(&self, stream: &Stream) -> Result<()> {
        let Kind::Word(word) = &self.kind else {
            return Ok(());
        };
        let mut to = word.slab.pointer() + 8 * word.index as u64;
        let mut params = [(&raw mut to).cast()];
        // SAFETY: the kernel takes the address of one word, and is one thread; word and kernel are this stamp's, which the submission
        // keeps. The driver copies the parameter during the call.
        unsafe {
            stream.context().driver().launch_kernel(
                word.keeper.kernel.raw(),
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                stream.raw(),
                params.as_mut_ptr(),
                null_mut(),
            )
        }
        .map_err(|code| stream.error(code))
    }

    /// The event, once it is recorded.
    fn mark(&self) -> Result<&Mark> {
        let recorded = match &self.kind {
            Kind::Event(event) => event.get().filter(|mark| mark.is_recorded()),
            Kind::Word(_) => None,
        };
        recorded.ok_or_else(|| self.not_ready())
    }

    /// What the kernel wrote.
    fn shown(&self) -> Result<i64> {
        let shown = match &self.kind {
            Kind::Word(word) => word.get().map_or(0, |word| word.load(Ordering::Acquire)),
            Kind::Event(_) => 0,
        };
        if shown == 0 {
            return Err(self.not_ready());
        }
        Ok(shown.cast_signed())
    }

    fn not_ready(&self) -> Error {
        Error::NotReady {
            fence: self.object.clone(),
        }
    }
}

impl backend::Stamp for Stamp {
    fn nanoseconds_since(&self, start: &dyn backend::Stamp) -> Result<i64> {
        let start: &dyn Any = start;
        let start = start
            .downcast_ref::<Self>()
            .ok_or_else(|| Error::Unsupported {
                object: self.object.clone(),
                asked: "tell the time since a stamp of another backend".into(),
                reason: "CUDA tells times between its own events only".into(),
            })?;
        if let (Kind::Word(_), Kind::Word(_)) = (&start.kind, &self.kind) {
            return Ok(self.shown()?.saturating_sub(start.shown()?));
        }
        let milliseconds = self
            .mark()?
            .milliseconds_since(start.mark()?)?
            .ok_or_else(|| self.not_ready())?;
        // Saturates, after three centuries.
        Ok((f64::from(milliseconds) * 1e6).round() as i64)
    }

    fn time(&self) -> Result<Option<i64>> {
        self.shown().map(Some)
    }

    fn time_if_written(&self) -> Option<i64> {
        self.shown().ok()
    }
}
