//! Imported semaphores of other APIs, and the driver calls on them.
#![allow(unsafe_code, reason = "talks to the driver")]

use std::os::fd::AsFd;
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys;
use smallvec::SmallVec;
use syncline_core::backend::kit::{ImportFd, Mutex};
use syncline_core::{Error, Result, handle::Rejected};

use crate::device::context::Context;
use crate::device::deferred_free::Resource;
use crate::device::event::Mark;
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::driver::table::Raw;

/// An imported semaphore. A submission keeps the semaphores that it uses until it has finished.
pub(crate) struct Semaphore {
    context: Arc<Context>,
    raw: Raw<sys::CUextSemaphore_st>,
    /// The stream for signals that the host makes, created for the first of them.
    host_signals: Mutex<Option<Stream>>,
}

/// The kind of an imported semaphore.
///
/// The driver does not detect a wrong kind: it imports a timeline semaphore as a binary one without
/// an error.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Timeline,
    Binary,
}

impl Semaphore {
    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) const fn raw(&self) -> sys::CUexternalSemaphore {
        self.raw.0
    }

    /// Signals a timeline semaphore on a separate stream, and records `mark` after the signal.
    ///
    /// `announce` is called first, with that stream.
    ///
    /// # Errors
    /// A driver error.
    pub(crate) fn signal_from_host(
        &self,
        value: u64,
        mark: &Mark,
        announce: impl FnOnce(&Stream),
    ) -> Result<()> {
        let _bound = self.context.bind_outside_capture()?;
        let mut stream = self.host_signals.lock();
        let stream = match &mut *stream {
            Some(stream) => stream,
            none => none.insert(Stream::new(&self.context, "signals of the host")?),
        };
        announce(stream);
        signal_all(stream, 1, [(self, value)].into_iter())?;
        stream.record(mark)
    }
}

impl Drop for Semaphore {
    fn drop(&mut self) {
        let Some(_calls) = self.context.for_destroy() else {
            return;
        };
        let Ok(_bound) = self.context.bind_outside_capture() else {
            return;
        };
        // CUDA must not destroy a semaphore with an outstanding signal, and this drop must not
        // block on the signal.
        let signals = self.host_signals.lock().take();
        let outstanding = signals.filter(|stream| matches!(stream.is_idle(), Ok(false)));
        if let Some(stream) = outstanding {
            let signalled = Resource::Signalled(Raw(self.raw.0), stream.into_raw_stream());
            self.context.deferred_frees().add(signalled, 0);
            return;
        }
        // SAFETY: imported once and destroyed once. No signal or wait is outstanding. Submissions
        // keep the semaphore until they have finished. Signals of the host are complete or lost
        // with the device. An application that signals a claim keeps the timeline (see
        // `Device::submit_claimed`).
        let _ = unsafe { self.context.driver().destroy_external_semaphore(self.raw.0) };
    }
}

/// Makes the stream wait for the pending signal of a binary semaphore, which unsignals it.
///
/// The submission keeps the semaphore.
///
/// # Errors
/// A driver error. The stream is unchanged then.
pub(crate) fn wait_binary(stream: &Stream, semaphore: &Semaphore) -> Result<()> {
    wait_all(stream, 1, [(semaphore, 0)].into_iter())
}

/// Signals a binary semaphore after the earlier work of the stream. The submission keeps it.
///
/// # Errors
/// A driver error. The stream is unchanged then.
pub(crate) fn signal_binary(stream: &Stream, semaphore: &Semaphore) -> Result<()> {
    signal_all(stream, 1, [(semaphore, 0)].into_iter())
}

/// The driver's parameters of a wait for `value`.
#[inline]
pub(crate) fn wait_params(value: u64) -> sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS {
    // SAFETY: the struct contains integers, pointers and unions of them, for which zeroes are
    // valid. The API requires zeroes in unused fields.
    let mut params: sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS = unsafe { std::mem::zeroed() };
    params.params.fence.value = value;
    params
}

/// The driver's parameters of a signal of `value`.
#[inline]
pub(crate) fn signal_params(value: u64) -> sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS {
    // SAFETY: as for waits.
    let mut params: sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = unsafe { std::mem::zeroed() };
    params.params.fence.value = value;
    params
}

/// Makes the stream wait for `count` semaphores with one driver call.
///
/// The value for a binary semaphore is 0. The caller keeps the semaphores until the stream has
/// executed the wait: see [`Semaphore`]'s destructor.
pub(crate) fn wait_all<'s>(
    stream: &Stream,
    count: usize,
    semaphores: impl Iterator<Item = Valued<'s>>,
) -> Result<()> {
    let context = stream.context();
    each(
        count,
        semaphores,
        wait_params,
        |semaphores, params, count| {
            // SAFETY: both lists have this length and outlive the call. The semaphores are
            // borrowed, and the stream is alive.
            unsafe {
                context.driver().wait_external_semaphores_async(
                    semaphores,
                    params,
                    count,
                    stream.raw(),
                )
            }
            .map_err(|code| context.error(code))
        },
    )
}

/// Signals `count` semaphores with one driver call. Same conditions as [`wait_all`].
pub(crate) fn signal_all<'s>(
    stream: &Stream,
    count: usize,
    semaphores: impl Iterator<Item = Valued<'s>>,
) -> Result<()> {
    let context = stream.context();
    each(
        count,
        semaphores,
        signal_params,
        |semaphores, params, count| {
            // SAFETY: as for waits.
            unsafe {
                context.driver().signal_external_semaphores_async(
                    semaphores,
                    params,
                    count,
                    stream.raw(),
                )
            }
            .map_err(|code| context.error(code))
        },
    )
}

/// A semaphore and the value to wait for or to signal.
type Valued<'s> = (&'s Semaphore, u64);

/// Calls `call` with pointers to the semaphores and to their parameters, and their number.
///
/// The number is far below `u32::MAX`. The parameters are large, so the usual single one is not
/// stored in a list.
#[inline]
fn each<'s, P>(
    count: usize,
    mut semaphores: impl Iterator<Item = Valued<'s>>,
    params: impl Fn(u64) -> P,
    call: impl FnOnce(*const sys::CUexternalSemaphore, *const P, u32) -> Result<()>,
) -> Result<()> {
    if count == 1
        && let Some((semaphore, value)) = semaphores.next()
    {
        return call(&semaphore.raw(), &params(value), 1);
    }
    let mut list: SmallVec<[sys::CUexternalSemaphore; 8]> = SmallVec::new();
    let mut of_each: SmallVec<[P; 8]> = SmallVec::new();
    for (semaphore, value) in semaphores {
        list.push(semaphore.raw());
        of_each.push(params(value));
    }
    call(list.as_ptr(), of_each.as_ptr(), list.len() as u32)
}

impl Device {
    /// Imports the semaphore of `handle`, which belongs to this GPU.
    ///
    /// # Errors
    /// [`Error::Import`] if the system gives no duplicate. A driver error. Both with the handle,
    /// still open.
    pub(crate) fn import_semaphore<H: AsFd>(
        &self,
        handle: H,
        kind: Kind,
    ) -> Result<Semaphore, Rejected<H>> {
        let imported = self.import_duplicate(&handle, kind);
        // The driver has taken a duplicate, so on success the original is closed here.
        imported.map_err(|error| Rejected { handle, error })
    }

    fn import_duplicate(&self, handle: &impl AsFd, kind: Kind) -> Result<Semaphore> {
        let context = self.context();
        let fd = ImportFd::duplicate(handle)
            .map_err(|error| Error::import(self.object(), "a semaphore", error.to_string()))?;
        let desc = sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC {
            type_: match kind {
                Kind::Timeline => sys::CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD,
                Kind::Binary => sys::CUexternalSemaphoreHandleType::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD,
            },
            handle: sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st__bindgen_ty_1 {
                fd: fd.number(),
            },
            flags: 0,
            reserved: [0; 16],
        };
        let mut raw = null_mut();
        let _bound = context.bind_outside_capture()?;
        // SAFETY: the handle's type guarantees that the descriptor is such a semaphore. The callers
        // have checked that it belongs to this GPU, and it is open. On success the driver takes the
        // descriptor and writes one handle.
        unsafe {
            context
                .driver()
                .import_external_semaphore(&raw mut raw, &raw const desc)
        }
        .map_err(|code| context.error(code))?;
        fd.taken();
        Ok(Semaphore {
            context: context.clone(),
            raw: Raw(raw),
            host_signals: Mutex::default(),
        })
    }
}
