//! Timelines and memory of other APIs, imported.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard};

use cudarc::driver::sys;
use smallvec::SmallVec;
use syncline_core::backend::{Attachment, Device as _, Port};
use syncline_core::{Error, HandleKind, MemoryFd, Object, Origin, Rejected, Result, TimelineFd};

use crate::context::Context;
use crate::device::Device;
use crate::driver::Raw;
use crate::event::Mark;
use crate::lock;
use crate::memory::{self, DeviceBuffer};
use crate::stream::Stream;

/// `CUDA_EXTERNAL_MEMORY_DEDICATED`.
const DEDICATED: u32 = 1;

/// A timeline semaphore of another API, as this device waits for it and signals it. The host cannot
/// read it here; the timeline's home is with its exporter.
pub struct ExternalPort {
    semaphore: Arc<Semaphore>,
    device: Object,
    signals: Mutex<Signals>,
}

/// The signals that this device has made or is making: values in rising order, each with the event
/// behind it, once that is recorded.
#[derive(Default)]
struct Signals {
    entries: VecDeque<(u64, Option<Mark>)>,
    /// The highest of the values that have left the ring, their events being complete.
    shown: u64,
    /// The length at which the next signal looks for completed ones.
    trim_at: usize,
}

/// Signals of which nobody asks are looked through when this many have come together.
const TRIM: usize = 64;

/// An imported semaphore. Submissions that use it keep it until they have finished.
pub(crate) struct Semaphore {
    context: Arc<Context>,
    raw: Raw<sys::CUextSemaphore_st>,
}

/// What a semaphore is imported as. The driver does not find a mistake: a timeline taken for a binary
/// semaphore becomes one, without a word.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Timeline,
    Binary,
}

impl Semaphore {
    pub(crate) const fn raw(&self) -> sys::CUexternalSemaphore {
        self.raw.0
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        let Ok(_bound) = self.context.bind_apart() else {
            return;
        };
        // SAFETY: imported once, destroyed once, and nothing that uses it is outstanding.
        let _ = unsafe { self.context.driver().destroy_external_semaphore(self.raw.0) };
    }
}

impl ExternalPort {
    pub(crate) const fn semaphore(&self) -> &Arc<Semaphore> {
        &self.semaphore
    }

    fn signals(&self) -> MutexGuard<'_, Signals> {
        lock(&self.signals)
    }

    /// A signal of `value` is about to be made: the counter may show it from now on.
    fn announce(&self, value: u64) {
        self.signals().entries.push_back((value, None));
    }

    /// The announced signal is made, with an event behind it, or not.
    fn settle(&self, value: u64, mark: Option<&Mark>) {
        let crowded = {
            let mut signals = self.signals();
            let at = signals
                .entries
                .partition_point(|(earlier, _)| *earlier < value);
            match (mark, signals.entries.get_mut(at)) {
                (Some(mark), Some(entry)) => entry.1 = Some(mark.clone()),
                (None, Some(_)) => drop(signals.entries.remove(at)),
                (_, None) => {}
            }
            signals.entries.len() >= signals.trim_at.max(TRIM)
        };
        if crowded {
            // Whoever asks for the value next gets the error too.
            let _ = self.visible(u64::MAX);
            let mut signals = self.signals();
            signals.trim_at = 2 * signals.entries.len();
        }
    }

    /// The raw semaphore, for waits that the application submits itself. To signal it, claim the value and use
    /// [`Device::submit_claimed`]: behind a bare `cuSignalExternalSemaphoresAsync` the host would take a value
    /// for reached whose memory it cannot see yet.
    #[must_use]
    pub fn raw(&self) -> sys::CUexternalSemaphore {
        self.semaphore.raw.0
    }
}

impl Port for ExternalPort {
    fn is_readable(&self) -> bool {
        false
    }

    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn signal(&self, value: u64) -> Result<()> {
        Err(Error::Unsupported {
            object: self.device.clone(),
            asked: format!("signal an imported timeline to {value} from the host"),
            reason: "CUDA signals it from streams only; its home is with the exporter".into(),
        })
    }

    /// The counter, which another API reads, runs ahead of what the host sees of this device's writes to
    /// host memory (on an H200 by enough to read old data once in some hundred times). An event that
    /// has completed does not, so a value counts once the event behind its signal has.
    fn visible(&self, reached: u64) -> Result<u64> {
        loop {
            let front = self.signals().entries.front().cloned();
            let Some((value, mark)) = front.filter(|(value, _)| *value <= reached) else {
                return Ok(reached);
            };
            // The driver is asked without the lock.
            let _mode = self.semaphore.context.allow_during_capture();
            let done = mark.map_or(Ok(false), |mark| mark.is_done())?;
            let mut signals = self.signals();
            if !done {
                return Ok(signals.shown);
            }
            signals.shown = signals.shown.max(value);
            if signals
                .entries
                .front()
                .is_some_and(|(first, _)| *first == value)
            {
                signals.entries.pop_front();
            }
        }
    }
}

impl std::fmt::Debug for ExternalPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExternalPort({:p})", self.semaphore.raw.0)
    }
}

/// Waits or signals of imported semaphores, collected to be made in one driver call.
#[derive(Default)]
pub(crate) struct External<'p> {
    ports: SmallVec<[&'p ExternalPort; 4]>,
    semaphores: SmallVec<[sys::CUexternalSemaphore; 4]>,
    values: SmallVec<[u64; 4]>,
}

impl<'p> External<'p> {
    pub(crate) fn push(&mut self, port: &'p ExternalPort, value: u64) {
        self.ports.push(port);
        self.semaphores.push(port.raw());
        self.values.push(value);
    }

    fn each(&self) -> impl Iterator<Item = (&'p ExternalPort, u64)> {
        let ports = self.ports.iter().copied();
        ports.zip(self.values.iter().copied())
    }

    /// Signals all of them once what was submitted to `stream` before is finished, and records `mark` behind that.
    ///
    /// # Errors
    /// A driver error; no signal has been made then, unless it is the stream itself that has failed between them and
    /// the mark.
    pub(crate) fn make(&self, stream: &Stream, mark: &Mark) -> Result<()> {
        // The signals may show from now on.
        self.each().for_each(|(port, value)| port.announce(value));
        let made = self.signal(stream).and_then(|()| stream.record(mark));
        let behind = made.is_ok().then_some(mark);
        self.each()
            .for_each(|(port, value)| port.settle(value, behind));
        made
    }

    /// Makes what is submitted to `stream` later wait for all of them.
    ///
    /// # Errors
    /// A driver error; no part of the call has happened then.
    pub(crate) fn wait(&self, stream: &Stream) -> Result<()> {
        if self.values.is_empty() {
            return Ok(());
        }
        wait_all(stream, &self.semaphores, &self.values)
    }

    /// Signals all of them once what was submitted to `stream` before is finished.
    ///
    /// # Errors
    /// A driver error; no part of the call has happened then.
    fn signal(&self, stream: &Stream) -> Result<()> {
        if self.values.is_empty() {
            return Ok(());
        }
        signal_all(stream, &self.semaphores, &self.values)
    }
}

/// Consumes the pending signal of a binary semaphore. The submission keeps it alive.
///
/// # Errors
/// A driver error; nothing has happened then.
pub(crate) fn wait_binary(stream: &Stream, semaphore: &Semaphore) -> Result<()> {
    wait_all(stream, &[semaphore.raw()], &[0])
}

/// Signals a binary semaphore behind what is in the stream. The submission keeps it alive.
///
/// # Errors
/// A driver error; nothing has happened then.
pub(crate) fn signal_binary(stream: &Stream, semaphore: &Semaphore) -> Result<()> {
    signal_all(stream, &[semaphore.raw()], &[0])
}

/// One driver call for all of them. Callers keep the semaphores alive; a binary one's value is 0.
fn wait_all(
    stream: &Stream,
    semaphores: &[sys::CUexternalSemaphore],
    values: &[u64],
) -> Result<()> {
    type Params = sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
    let params = values.iter().map(|&value| {
        // SAFETY: integers, pointers and unions of them; the API asks for zeroes in what is not used.
        let mut params: Params = unsafe { std::mem::zeroed() };
        params.params.fence.value = value;
        params
    });
    let params: SmallVec<[Params; 2]> = params.collect();
    let context = stream.context();
    let count = semaphores.len().min(params.len()) as u32;
    // SAFETY: both arrays have `count` elements, far fewer than the type holds; the semaphores are alive.
    unsafe {
        context.driver().wait_external_semaphores_async(
            semaphores.as_ptr(),
            params.as_ptr(),
            count,
            stream.raw(),
        )
    }
    .map_err(|code| context.error(code))
}

/// As [`wait_all`].
fn signal_all(
    stream: &Stream,
    semaphores: &[sys::CUexternalSemaphore],
    values: &[u64],
) -> Result<()> {
    type Params = sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
    let params = values.iter().map(|&value| {
        // SAFETY: as for waits.
        let mut params: Params = unsafe { std::mem::zeroed() };
        params.params.fence.value = value;
        params
    });
    let params: SmallVec<[Params; 2]> = params.collect();
    let context = stream.context();
    let count = semaphores.len().min(params.len()) as u32;
    // SAFETY: as for waits.
    unsafe {
        context.driver().signal_external_semaphores_async(
            semaphores.as_ptr(),
            params.as_ptr(),
            count,
            stream.raw(),
        )
    }
    .map_err(|code| context.error(code))
}

impl Device {
    /// This device's part in a timeline whose semaphore `handle` carries.
    ///
    /// A binary semaphore's does not come in here:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_cuda::Device;
    /// # use syncline_core::BinaryFd;
    /// fn take(device: &Device, handle: BinaryFd) {
    ///     let _ = device.import_timeline(handle);
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::CannotShare`] if it comes from another GPU, and [`Error::Unsupported`] if the device takes no
    /// timelines, before any driver is asked; a driver error. The handle comes back with it, still open.
    pub fn import_timeline(&self, handle: TimelineFd) -> Result<Attachment, Rejected<TimelineFd>> {
        let kind = HandleKind::TimelineOpaqueFd;
        if let Err(error) = self.require(handle.origin(), kind, "a timeline semaphore") {
            return Err(Rejected { handle, error });
        }
        let port = ExternalPort {
            semaphore: Arc::new(self.import_semaphore(handle, Kind::Timeline)?),
            device: self.object().clone(),
            signals: Mutex::default(),
        };
        Ok(Attachment {
            device: self.id(),
            port: Box::new(port),
            watch: None,
            max_value_difference: u64::MAX,
            signalled_elsewhere: false,
        })
    }

    /// What `handle`, which is of this GPU, carries.
    ///
    /// # Errors
    /// A driver error, and the handle.
    pub(crate) fn import_semaphore<H: AsFd + Into<OwnedFd>>(
        &self,
        handle: H,
        kind: Kind,
    ) -> Result<Semaphore, Rejected<H>> {
        let context = self.context();
        let desc = sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
            type_: match kind {
                Kind::Timeline => sys::CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
                Kind::Binary => sys::CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
            },
            handle: sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1 {
                fd: handle.as_fd().as_raw_fd(),
            },
            flags: 0,
            reserved: [0; 16],
        };
        let mut raw = null_mut();
        let imported = context.bind_apart().and_then(|_bound| {
            // SAFETY: the handle's type says that the descriptor is such a semaphore's; it is open. The driver
            // takes it only if it succeeds.
            unsafe {
                context
                    .driver()
                    .import_external_semaphore(&raw mut raw, &raw const desc)
            }
            .map_err(|code| context.error(code))
        });
        if let Err(error) = imported {
            return Err(Rejected { handle, error });
        }
        // The driver owns the descriptor now and has closed it, or will.
        let _ = handle.into().into_raw_fd();
        Ok(Semaphore {
            context: context.clone(),
            raw: Raw(raw),
        })
    }

    /// The memory that `handle` carries, as one buffer.
    ///
    /// # Errors
    /// [`Error::CannotShare`] if it comes from another GPU, and [`Error::Unsupported`] if the device takes no
    /// memory, before any driver is asked; a driver error. The handle comes back with it, still open.
    pub fn import_memory(&self, handle: MemoryFd) -> Result<DeviceBuffer, Rejected<MemoryFd>> {
        let imported = self
            .require(handle.origin(), HandleKind::MemoryOpaqueFd, "memory")
            .and_then(|()| self.map_memory(&handle));
        // The driver has taken a duplicate, so on success ours is closed here.
        imported.map_err(|error| Rejected { handle, error })
    }

    /// Imports a duplicate of the descriptor: the second step may fail after the first has taken it.
    fn map_memory(&self, handle: &MemoryFd) -> Result<DeviceBuffer> {
        let refused = |reason: String| Error::Import {
            object: self.object().clone(),
            what: format!("memory of {} bytes", handle.size()),
            reason,
        };
        if handle.length() > handle.size() {
            let length = handle.length();
            return Err(refused(format!(
                "it is said to hold a buffer of {length} bytes"
            )));
        }
        let duplicate = handle
            .as_fd()
            .try_clone_to_owned()
            .map_err(|error| refused(error.to_string()))?;
        let context = self.context();
        let _bound = context.bind_apart()?;
        let desc = sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC {
            type_: sys::CUexternalMemoryHandleType::CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
            handle: sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC_st__bindgen_ty_1 {
                fd: duplicate.as_raw_fd(),
            },
            size: handle.size(),
            flags: if handle.dedicated() { DEDICATED } else { 0 },
            reserved: [0; 16],
        };
        let mut raw = null_mut();
        // SAFETY: the handle's type says that the descriptor is such memory's; it is open. The driver
        // takes it only if it succeeds.
        let imported = unsafe {
            context
                .driver()
                .import_external_memory(&raw mut raw, &raw const desc)
        };
        if let Err(code) = imported {
            let error = context.error(code);
            close_if_still_ours(duplicate, handle);
            return Err(error);
        }
        let _ = duplicate.into_raw_fd();
        let buffer = sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC {
            offset: 0,
            size: handle.size(),
            flags: 0,
            reserved: [0; 16],
        };
        let mut pointer = 0;
        // SAFETY: the whole of memory that has just been imported.
        let mapped = unsafe {
            context.driver().external_memory_get_mapped_buffer(
                &raw mut pointer,
                raw,
                &raw const buffer,
            )
        };
        if let Err(code) = mapped {
            // SAFETY: imported above, and nothing maps it.
            let _ = unsafe { context.driver().destroy_external_memory(raw) };
            return Err(context.error(code));
        }
        Ok(DeviceBuffer::new(
            self,
            pointer,
            handle.length(),
            memory::Kind::External(Raw(raw)),
        ))
    }

    /// Refuses handles of other GPUs, and of kinds that this one does not take. Drivers do not check the first, and
    /// what comes of it is undefined.
    pub(crate) fn require(
        &self,
        origin: &Origin,
        kind: HandleKind,
        what: &'static str,
    ) -> Result<()> {
        let info = self.info();
        let own = Origin::of(info);
        if own.uuid.is_none() || own.uuid != origin.uuid {
            return Err(Error::CannotShare {
                left: origin.to_string(),
                right: own.to_string(),
                what,
                reason: "an opaque handle works only on the GPU that exported it".into(),
            });
        }
        if info.capabilities.imports.contains(&kind) {
            return Ok(());
        }
        let mut limits = info.capabilities.limits.iter();
        let reason = limits.find(|(limit, _)| *limit == "imports");
        Err(Error::Unsupported {
            object: self.object().clone(),
            asked: format!("import {what}"),
            reason: reason.map_or_else(
                || "the driver does not offer it".into(),
                |(_, reason)| reason.clone(),
            ),
        })
    }
}

/// Closes the duplicate of `of` that a driver has refused as memory, unless that has closed it: NVIDIA's (580.159)
/// does for some kinds, although a semaphore that it refuses stays open. What has its number by then is somebody else's.
/// Where the kernel does not tell whether the two are one open file, it is left alone: a leak, at worst.
fn close_if_still_ours(duplicate: OwnedFd, of: &MemoryFd) {
    // Anonymous files (semaphores, eventfds, GPU memory) all have one inode, so that says nothing.
    if same_file(&duplicate, of) {
        drop(duplicate);
    } else {
        let _ = duplicate.into_raw_fd();
    }
}

/// True if both descriptors stand for one open file, as far as the kernel tells: `kcmp` with `KCMP_FILE`.
fn same_file(left: &impl AsRawFd, right: &impl AsFd) -> bool {
    const KCMP_FILE: libc::c_int = 0;
    let (left, right) = (left.as_raw_fd(), right.as_fd().as_raw_fd());
    let process = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: compares two entries of this process's own table, and says so if there is none.
    let order = unsafe { libc::syscall(libc::SYS_kcmp, process, process, KCMP_FILE, left, right) };
    order == 0
}

#[cfg(test)]
mod tests {
    use super::same_file;

    #[test]
    fn anonymous_files_are_told_apart() {
        let eventfd = || rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let (one, other) = (eventfd(), eventfd());
        let again = one.try_clone().unwrap();
        assert!(!same_file(&one, &other));
        // Some sandboxes forbid the call, and then nothing is the same.
        assert!(same_file(&one, &again) || !same_file(&one, &one));
    }
}
