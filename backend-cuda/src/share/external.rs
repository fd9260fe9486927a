//! Timelines of other APIs, imported.
#![allow(unsafe_code, reason = "callers vouch for the values of an import")]

use std::convert::Infallible;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::backend::{Attachment, ByEngine, Device as _, Port};
use syncline_core::{
    Error, HandleKind, Object, Origin, Rejected, Result, TimelineFd, WindowsHandle,
};

use crate::device::context::Context;
use crate::device::open::Device;
use crate::probe::{MEMORY_OPS_LIMIT, SYNC_FILES_LIMIT};
use crate::queue::stream::Stream;
use crate::share::imported::Imported;
use crate::share::semaphore::{Kind, Semaphore, signal_all, wait_all};
use crate::timeline::event::Events;
use crate::timeline::visibility::Shown;

/// A timeline semaphore of another API, as this device waits for it and signals it. The host cannot
/// read it here; the timeline's home is with its exporter.
pub struct ExternalPort {
    semaphore: Arc<Semaphore>,
    device: Object,
    shown: Shown,
    /// The events behind the signals that the host has this device make, if nothing but this device
    /// signals the timeline: its events tell the host then how far it is.
    alone: Option<Events>,
}

impl ExternalPort {
    /// The raw semaphore, for waits that the application submits itself. To signal it, claim the value and use
    /// [`Device::submit_claimed`]: behind a bare `cuSignalExternalSemaphoresAsync` the host would take a value
    /// for reached whose memory it cannot see yet.
    #[must_use]
    pub fn raw(&self) -> sys::CUexternalSemaphore {
        self.semaphore.raw()
    }
}

impl ExternalPort {
    /// Signals in a stream of its own, behind nothing.
    fn signal_by_itself(&self, events: &Events, value: u64) -> Result<()> {
        let mark = events.take()?;
        let mut crowded = false;
        let signalled = self.semaphore.signal_from_host(value, &mark, |stream| {
            crowded = self.shown.announce(value, mark.clone(), stream.domain());
        });
        if signalled.is_err() {
            self.shown.withdraw(value);
        } else if crowded {
            self.shown.trim(self.semaphore.context());
        }
        signalled
    }
}

impl Port for ExternalPort {
    fn is_readable(&self) -> bool {
        self.alone.is_some()
    }

    fn sees_submitted(&self, value: u64) -> Result<()> {
        if self.alone.is_none() || self.shown.knows(value) {
            return Ok(());
        }
        Err(Error::Unsupported {
            object: self.device.clone(),
            asked: format!("follow a submission to {value} that no event stands for"),
            reason: "the host cannot read the semaphore: submit claims with Device::submit_claimed"
                .into(),
        })
    }

    fn poll(&self) -> Result<Option<u64>> {
        match self.alone {
            Some(_) => self.shown.reached(self.semaphore.context()).map(Some),
            None => Ok(None),
        }
    }

    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        by.check(self, &self.device)?;
        if let Some(events) = &self.alone {
            return self.signal_by_itself(events, value);
        }
        Err(Error::Unsupported {
            object: self.device.clone(),
            asked: format!("signal an imported timeline to {value} from the host"),
            reason: "CUDA signals it from streams only; its home is with the exporter".into(),
        })
    }

    fn recover(&self, value: u64, by: ByEngine<'_>) -> Result<bool> {
        by.check(self, &self.device)?;
        self.signal_by_itself(&Events::plain(self.semaphore.context()), value)?;
        Ok(true)
    }

    fn visible(&self, reached: u64) -> Result<u64> {
        self.shown.visible(reached, self.semaphore.context())
    }
}

impl Imported for ExternalPort {
    type Object = Semaphore;

    #[inline]
    fn object(&self) -> &Arc<Semaphore> {
        &self.semaphore
    }

    fn context(&self) -> &Context {
        self.semaphore.context()
    }

    #[inline]
    fn shown(&self) -> &Shown {
        &self.shown
    }

    #[inline]
    fn announce(&self, _value: u64) -> Result<()> {
        Ok(())
    }

    #[inline]
    fn note_pending(&self, _value: u64) {}

    #[inline]
    fn wait_all<'p>(
        stream: &Stream,
        count: usize,
        ports: impl Iterator<Item = (&'p Self, u64)>,
    ) -> Result<()> {
        wait_all(stream, count, ports.map(semaphore))
    }

    #[inline]
    fn signal_all<'p>(
        stream: &Stream,
        count: usize,
        ports: impl Iterator<Item = (&'p Self, u64)>,
    ) -> Result<()> {
        signal_all(stream, count, ports.map(semaphore))
    }
}

#[inline]
fn semaphore((port, value): (&ExternalPort, u64)) -> (&Semaphore, u64) {
    (&port.semaphore, value)
}

impl std::fmt::Debug for ExternalPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ExternalPort({:p})", self.raw())
    }
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
    ///     let _ = unsafe { device.import_timeline(handle) };
    /// }
    /// ```
    ///
    /// # Safety
    /// The signals of this counter have ever greater values, from this process, from other processes and from work that uses the
    /// semaphore itself. One timeline sees to that for its signals, on whichever of its devices. Two timelines over one counter know nothing
    /// of each other. The exporter's specification asks for it (Vulkan: VUID-VkSemaphoreSignalInfo-value-03258), and no driver checks it.
    ///
    /// # Errors
    /// [`Error::CannotShare`] if it comes from another GPU, and [`Error::Unsupported`] if the device takes no
    /// timelines, before any driver is asked; a driver error. The handle comes back with it, still open.
    pub unsafe fn import_timeline(
        &self,
        handle: TimelineFd,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        let port = self.import_port(handle)?;
        Ok(Attachment::imported(self.id(), port))
    }

    /// As [`Device::import_timeline`], for a timeline at `initial` that nobody but this device signals: the exporter is in another process, and waits. The
    /// timeline has its home here then. The events behind its signals tell the host how far it is, and what the host signals goes through a stream.
    ///
    /// # Safety
    /// As there. It stands at `initial`, and nothing but the returned attachment signals it.
    ///
    /// # Errors
    /// As there.
    pub unsafe fn import_timeline_to_signal(
        &self,
        handle: TimelineFd,
        initial: u64,
    ) -> Result<Attachment, Rejected<TimelineFd>> {
        let mut port = self.import_port(handle)?;
        port.shown = Shown::from(initial);
        port.alone = Some(self.plain_events().clone());
        Ok(Attachment::new(self.id(), initial, port).watched_by(self.watched()))
    }

    fn import_port(&self, handle: TimelineFd) -> Result<ExternalPort, Rejected<TimelineFd>> {
        let kind = HandleKind::TimelineOpaqueFd;
        if let Err(error) = self.require(handle.origin(), kind, "a timeline semaphore") {
            return Err(Rejected { handle, error });
        }
        Ok(ExternalPort {
            semaphore: Arc::new(self.import_semaphore(handle, Kind::Timeline)?),
            device: self.object().clone(),
            shown: Shown::default(),
            alone: None,
        })
    }

    /// Refuses a handle of Windows, whatever it holds: on this platform the driver knows none.
    ///
    /// # Errors
    /// Always: the handle, and [`Error::Unsupported`] with the reason. The driver is not asked.
    pub fn import_windows<H: WindowsHandle>(&self, handle: H) -> Result<Infallible, Rejected<H>> {
        handle.refuse(self.object())
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
        self.require_kind(kind, what)
    }

    /// Refuses kinds of handles that the device does not take.
    pub(crate) fn require_kind(&self, kind: HandleKind, what: &'static str) -> Result<()> {
        let can = &self.info().capabilities;
        if can.imports.contains(&kind) {
            return Ok(());
        }
        let limit = match kind {
            HandleKind::CounterMemfd => MEMORY_OPS_LIMIT,
            HandleKind::SyncFd => SYNC_FILES_LIMIT,
            _ => "imports",
        };
        let reason = can.limits.iter().find(|(known, _)| *known == limit);
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

#[cfg(test)]
mod tests;
