//! Timelines of other APIs, imported.

use std::convert::Infallible;
use std::sync::Arc;

use cudarc::driver::sys;
use syncline_core::backend::{Attachment, ByEngine, Device as _, Port};
use syncline_core::{
    Error, HandleKind, Object, Origin, Rejected, Result, TimelineFd, WindowsHandle,
};

use crate::context::Context;
use crate::device::Device;
use crate::imported::Imported;
use crate::probe::{MEMORY_OPS_LIMIT, SYNC_FILES_LIMIT};
use crate::semaphore::{Kind, Semaphore, signal_all, wait_all};
use crate::shown::Shown;
use crate::stream::Stream;

/// A timeline semaphore of another API, as this device waits for it and signals it. The host cannot
/// read it here; the timeline's home is with its exporter.
pub struct ExternalPort {
    semaphore: Arc<Semaphore>,
    device: Object,
    shown: Shown,
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

impl Port for ExternalPort {
    fn is_readable(&self) -> bool {
        false
    }

    fn poll(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn signal(&self, value: u64, _: ByEngine) -> Result<()> {
        Err(Error::Unsupported {
            object: self.device.clone(),
            asked: format!("signal an imported timeline to {value} from the host"),
            reason: "CUDA signals it from streams only; its home is with the exporter".into(),
        })
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
        wait_all(stream, count, ports.map(raw))
    }

    #[inline]
    fn signal_all<'p>(
        stream: &Stream,
        count: usize,
        ports: impl Iterator<Item = (&'p Self, u64)>,
    ) -> Result<()> {
        signal_all(stream, count, ports.map(raw))
    }
}

#[inline]
fn raw((port, value): (&ExternalPort, u64)) -> (sys::CUexternalSemaphore, u64) {
    (port.raw(), value)
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
            shown: Shown::default(),
        };
        Ok(Attachment {
            device: self.id(),
            port: Box::new(port),
            watch: None,
            max_value_difference: u64::MAX,
            signalled_elsewhere: false,
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
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::sync::atomic::{AtomicU64, Ordering};

    use syncline_core::backend::Queue as _;
    use syncline_core::{DeviceId, QueueKind, Timeline};

    use super::*;
    use crate::emulated::{device, external_calls, finish, put, timeline_fd};

    /// The exporter's counter.
    struct Home(Arc<AtomicU64>);

    impl Port for Home {
        fn poll(&self) -> Result<Option<u64>> {
            Ok(Some(self.0.load(Ordering::SeqCst)))
        }

        fn signal(&self, value: u64, _: ByEngine) -> Result<()> {
            self.0.store(value, Ordering::SeqCst);
            Ok(())
        }
    }

    fn shared(device: &Device) -> (Timeline, Arc<AtomicU64>) {
        let counter = Arc::new(AtomicU64::new(0));
        let fd = timeline_fd(device.info());
        let imported = device
            .import_timeline(fd)
            .map_err(|rejected| rejected.error);
        let home = Attachment {
            device: DeviceId::new(),
            port: Box::new(Home(counter.clone())),
            watch: None,
            max_value_difference: u64::MAX,
            signalled_elsewhere: false,
        };
        let timeline = Timeline::new("shared", 0, |_| Ok([home, imported?].into_iter().collect()));
        (timeline.unwrap(), counter)
    }

    /// However many there are, one call has them all, with the values that belong to them.
    #[test]
    fn waits_and_signals_of_a_submission_are_one_call_each() {
        let device = device();
        let from = device.queue(QueueKind::Compute, "from").unwrap();
        let to = device.queue(QueueKind::Compute, "to").unwrap();
        let shared: Vec<_> = (0..10).map(|_| shared(&device)).collect();
        for (round, count) in (1..).zip([1, 2, 8, 9, 10]) {
            let value = |at: usize| 100 * round + at as u64;
            let used = || shared[..count].iter().enumerate();
            let signals: Vec<_> = used()
                .map(|(at, (line, _))| line.signal_at(value(at)))
                .collect();
            let waits: Vec<_> = used().map(|(at, (line, _))| line.at(value(at))).collect();
            let values: Vec<_> = (0..count).map(value).collect();
            from.submit(&[], |_| Ok(()), &signals).unwrap();
            to.submit(&waits, |_| Ok(()), &[]).unwrap();
            assert_eq!(
                external_calls(),
                [("signal", values.clone()), ("wait", values)]
            );
            // The counter may show it before the event behind it is complete.
            for (at, (line, counter)) in used() {
                counter.store(value(at), Ordering::SeqCst);
                assert!(line.value().unwrap() < value(at));
            }
            finish(&from, put(&from));
            for (at, (line, _)) in used() {
                assert_eq!(line.value().unwrap(), value(at));
            }
            assert!(!to.position().is_reached().unwrap());
            finish(&to, put(&to));
            assert!(to.position().is_reached().unwrap());
        }
    }
}
