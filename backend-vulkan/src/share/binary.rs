//! Binary semaphores: creating, exporting and importing them, and fences for their signals.
#![allow(
    unsafe_code,
    reason = "talks to the driver; only the caller knows that a signal is pending"
)]

use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};

use ash::vk;
use syncline_core::backend::kit::get_or_make;
use syncline_core::{
    Error, Fence, QueueKind, Result,
    error::Object,
    handle::{BinaryFd, HandleKind, Origin, Rejected},
};

use crate::device::open::Device;
use crate::queue::recorder::Recorder;
use crate::queue::submission::Queue;
use crate::timeline::port::Port;
use crate::timeline::raw_binary::{Needs, RawBinary, Role};
use crate::timeline::semaphore::Semaphore;

/// A binary `VkSemaphore`. Cheap to clone.
///
/// It is destroyed when the last handle is dropped and no submission uses it.
#[derive(Clone)]
pub struct BinarySemaphore(Arc<Inner>);

struct Inner {
    device: Device,
    semaphore: Arc<RawBinary>,
    /// The queue that consumes signals for fences, created for the first of them.
    queue: OnceLock<Queue>,
    /// The handle types that it can be exported as.
    exports: vk::ExternalSemaphoreHandleTypeFlags,
}

impl Device {
    /// Creates an unsignalled binary semaphore.
    ///
    /// It can be exported as an opaque descriptor if the device exports such semaphores. It can
    /// also be exported as a sync file if the driver combines both for one semaphore.
    ///
    /// # Errors
    /// A driver error.
    pub fn binary_semaphore(&self, label: &str) -> Result<BinarySemaphore> {
        self.make_binary(label, self.inner().external().binary_exports())
    }

    /// Creates an unsignalled binary semaphore that can be exported as handles of `kind` only.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason, if the device exports no binary semaphores as such
    /// handles. The driver may not export them, or such handles hold no binary semaphore. A driver
    /// error.
    pub fn exportable_binary(&self, label: &str, kind: HandleKind) -> Result<BinarySemaphore> {
        let asked = format!("make a binary semaphore for export as {kind}");
        let handle = match kind {
            HandleKind::BinaryOpaqueFd => vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD,
            HandleKind::SyncFd => vk::ExternalSemaphoreHandleTypeFlags::SYNC_FD,
            _ => {
                let reason = "such handles hold no binary semaphore";
                return Err(Error::unsupported(self.object(), asked, reason));
            }
        };
        self.require_kind(&self.info().capabilities.exports, kind, &asked)?;
        self.make_binary(label, handle)
    }

    fn make_binary(
        &self,
        label: &str,
        exports: vk::ExternalSemaphoreHandleTypeFlags,
    ) -> Result<BinarySemaphore> {
        self.inner().require_maker()?;
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(exports);
        let mut info = vk::SemaphoreCreateInfo::default();
        if !exports.is_empty() {
            info = info.push_next(&mut export);
        }
        // SAFETY: `info` is valid, and has handle types only if the device exports them.
        let raw = unsafe { self.raw().create_semaphore(&info, None) }.map_err(|code| {
            self.inner()
                .failed(self.object(), "vkCreateSemaphore", code)
        })?;
        // SAFETY: just created on this device, and nothing else has the handle.
        Ok(unsafe { self.wrap_binary(raw, true, exports, label) })
    }

    /// # Safety
    /// Same as [`RawBinary::new`].
    unsafe fn wrap_binary(
        &self,
        raw: vk::Semaphore,
        owned: bool,
        exports: vk::ExternalSemaphoreHandleTypeFlags,
        label: &str,
    ) -> BinarySemaphore {
        let object = Object::new("binary semaphore", label);
        BinarySemaphore(Arc::new(Inner {
            device: self.clone(),
            // SAFETY: the caller guarantees it.
            semaphore: unsafe { RawBinary::new(self.inner(), object, raw, owned) },
            queue: OnceLock::new(),
            exports,
        }))
    }

    /// Adopts a binary semaphore of the application, for example one that a swapchain signals.
    ///
    /// # Safety
    /// `semaphore` is a binary semaphore of this device. If `owned`, nothing else destroys it. If
    /// not, the semaphore outlives every handle of the returned value, and every submission that
    /// uses it.
    #[must_use]
    pub unsafe fn adopt_binary(
        &self,
        semaphore: vk::Semaphore,
        owned: bool,
        label: &str,
    ) -> BinarySemaphore {
        let no_handle = vk::ExternalSemaphoreHandleTypeFlags::empty();
        // SAFETY: the caller guarantees it.
        unsafe { self.wrap_binary(semaphore, owned, no_handle, label) }
    }

    /// Imports the binary semaphore of `handle`. Calls `vkImportSemaphoreFdKHR`.
    ///
    /// The handle of a timeline does not compile here:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_vulkan::Device;
    /// # use syncline_core::handle::TimelineFd;
    /// fn take(device: &Device, handle: TimelineFd) {
    ///     let _ = device.import_binary(handle, "");
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::CannotShare`] if the handle comes from another GPU or another driver, and
    /// [`Error::Unsupported`] if the device imports no binary semaphores. Both are checked before
    /// any driver call. [`Error::Import`] if the driver refuses the handle, or if its file is of
    /// another kind than this driver's semaphores. A driver error. Each error returns the handle,
    /// still open.
    pub fn import_binary(
        &self,
        handle: BinaryFd,
        label: &str,
    ) -> Result<BinarySemaphore, Rejected<BinaryFd>> {
        let what = || format!("a binary semaphore from {}", handle.origin());
        let semaphore = self
            .require_same_driver("a binary semaphore", handle.origin())
            .and_then(|()| {
                let (imports, kind) = (
                    &self.info().capabilities.imports,
                    HandleKind::BinaryOpaqueFd,
                );
                self.require_kind(imports, kind, "import a binary semaphore")?;
                self.require_binary_file(&handle, &what)?;
                self.make_binary(label, vk::ExternalSemaphoreHandleTypeFlags::empty())
            })
            .and_then(|semaphore| {
                let fd = self.duplicate(&handle, &what)?;
                let info = vk::ImportSemaphoreFdInfoKHR::default()
                    .semaphore(semaphore.raw())
                    .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
                    .fd(fd.number());
                let functions = self
                    .inner()
                    .external()
                    .semaphores("import a binary semaphore")?;
                // SAFETY: an unused binary semaphore. The handle's type guarantees a binary
                // semaphore, and `require_same_driver` has checked that it is of the same driver.
                unsafe { functions.import_semaphore_fd(&info) }
                    .map_err(|code| self.import_error("vkImportSemaphoreFdKHR", code, &what))?;
                fd.taken();
                Ok(semaphore)
            });
        // The driver has taken a duplicate, so on success the original is closed here.
        semaphore.map_err(|error| Rejected { handle, error })
    }

    /// Refuses a descriptor of another kind of file than this driver exports for binary semaphores.
    ///
    /// See [`Device::require_file_kind`].
    pub(crate) fn require_binary_file(
        &self,
        handle: &BinaryFd,
        what: &dyn Fn() -> String,
    ) -> Result<()> {
        let export = || Ok(self.binary_semaphore("")?.export()?.into_fd());
        self.require_file_kind(handle.as_fd(), HandleKind::BinaryOpaqueFd, what, export)
    }
}

impl BinarySemaphore {
    /// The name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.0.semaphore.object()
    }

    /// The raw semaphore, valid while a handle lives.
    ///
    /// The engine does not know of submissions that the application makes with it directly. While
    /// such a submission has not finished, the application must not import a payload or export a
    /// sync file here.
    #[must_use]
    pub fn raw(&self) -> vk::Semaphore {
        self.0.semaphore.raw()
    }

    pub(crate) fn device(&self) -> &Device {
        &self.0.device
    }

    pub(crate) fn inner(&self) -> &RawBinary {
        &self.0.semaphore
    }

    pub(crate) fn exports(&self) -> vk::ExternalSemaphoreHandleTypeFlags {
        self.0.exports
    }

    /// Exports a new handle with `vkGetSemaphoreFdKHR`.
    ///
    /// Both sides share one payload: each can consume signals that the other makes, before the
    /// export, after it, and after the import.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device exports no binary semaphores, or if this one was
    /// imported, adopted or created for other handles. [`Error::PayloadInUse`] while it has a
    /// temporary payload (VUID-VkSemaphoreGetFdInfoKHR-semaphore-01133). A driver error.
    pub fn export(&self) -> Result<BinaryFd> {
        let (device, asked) = (&self.0.device, "export a binary semaphore");
        let exports = &device.info().capabilities.exports;
        device.require_kind(exports, HandleKind::BinaryOpaqueFd, asked)?;
        let handle = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
        if !self.0.exports.contains(handle) {
            let reason = if self.0.exports.is_empty() {
                "it was made elsewhere; export it there"
            } else {
                "it was made for sync files"
            };
            return Err(Error::unsupported(self.object(), "leave", reason));
        }
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(self.raw())
            .handle_type(handle);
        let functions = device.inner().external().semaphores(asked)?;
        // SAFETY: a live semaphore, made for handles of this type, with its permanent payload.
        let fd = self
            .inner()
            .with_payload(Needs::Permanent, "leave", |_| unsafe {
                Ok(functions.get_semaphore_fd(&info))
            })?;
        let fd = device
            .inner()
            .own_fd(self.object(), "vkGetSemaphoreFdKHR", fd)?;
        // SAFETY: just exported, from a binary semaphore of this device.
        Ok(unsafe { BinaryFd::from_fd(fd, Origin::of(device.info())) })
    }

    /// Creates a fence for the pending signal operation of the semaphore.
    ///
    /// The device consumes the signal once, on a separate queue. The fence is complete afterwards.
    /// Any number of queues of any device, and the host, can wait for the fence. Call this again
    /// for the next signal, once that is pending.
    ///
    /// # Errors
    /// A driver error. The signal is not consumed then.
    ///
    /// # Safety
    /// A signal operation of the semaphore is pending. A driver has its submission, which waits for
    /// nothing that only the host can still provide. Nothing else waits for that signal. A signal
    /// that never comes blocks a driver queue forever, and everything else that uses that driver
    /// queue.
    pub unsafe fn pending(&self, label: &str) -> Result<Fence> {
        let device = &self.0.device;
        let queue = self.consumer()?;
        let consumed = device.new_timeline(label)?;
        let semaphore = self.0.semaphore.clone();
        let fence = consumed
            .port::<Port>(device.id())
            .and_then(|port| port.on(device.inner()))
            .map(|semaphore| (semaphore.clone(), 1));
        let work = move |recorder: &mut Recorder<'_>| {
            // SAFETY: the caller guarantees it. The semaphore belongs to this device.
            unsafe { recorder.wait_for(semaphore, fence) };
            Ok(())
        };
        queue
            .submissions()
            .submit(&[], work, &[consumed.signal_at(1)])?;
        let point = consumed.at(1).keep();
        Ok(Fence::foreign(device.id(), device.object(), label, point))
    }

    fn consumer(&self) -> Result<&Queue> {
        get_or_make(&self.0.queue, || {
            let label = format!("{} (consumer)", self.object().label());
            self.0.device.queue_of_kind(QueueKind::Transfer, &label)
        })
    }
}

impl Recorder<'_> {
    /// Signals a binary semaphore after the work. The submission keeps it.
    ///
    /// Same as [`Recorder::signal_binary`] in all other respects: a skipped submission does not
    /// signal it.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    ///
    /// # Safety
    /// The semaphore is unsignalled, without a pending signal operation, when the submission
    /// executes.
    pub unsafe fn signal_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        self.require_semaphore(semaphore)?;
        let semaphore = semaphore.0.semaphore.clone();
        // SAFETY: the caller guarantees it. The semaphore is kept below.
        unsafe { self.signal_binary(semaphore.raw()) };
        self.note_use(&semaphore, Role::Signal, None);
        self.keep(semaphore);
        Ok(())
    }

    /// Waits for the pending signal of a binary semaphore, and consumes it.
    ///
    /// All work of the submission executes after the signal. The submission keeps the semaphore.
    /// Same as [`Recorder::wait_binary`] in all other respects.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    ///
    /// # Safety
    /// Same as [`BinarySemaphore::pending`].
    pub unsafe fn wait_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        self.require_semaphore(semaphore)?;
        // SAFETY: the caller guarantees it.
        unsafe { self.wait_for(semaphore.0.semaphore.clone(), None) };
        Ok(())
    }

    /// Waits for a binary semaphore in all stages, and keeps it.
    ///
    /// `fence` is a timeline semaphore that the same submission signals to this value. See
    /// [`RecordedUse::new`](crate::timeline::raw_binary::RecordedUse::new).
    ///
    /// # Safety
    /// Same as [`Recorder::wait_semaphore`]. The semaphore belongs to this device.
    unsafe fn wait_for(&mut self, semaphore: Arc<RawBinary>, fence: Option<(Arc<Semaphore>, u64)>) {
        let stages = vk::PipelineStageFlags::ALL_COMMANDS;
        // SAFETY: the caller guarantees it. The semaphore is kept below, and every family supports
        // these stages.
        unsafe { self.wait_binary(semaphore.raw(), stages) };
        self.note_use(&semaphore, Role::Wait, fence);
        self.keep(semaphore);
    }

    fn require_semaphore(&self, semaphore: &BinarySemaphore) -> Result<()> {
        let owner = &semaphore.0.device;
        if owner.raw().handle() == self.device().handle() {
            return Ok(());
        }
        Err(Error::wrong_device(
            semaphore.object(),
            owner.object(),
            self.queue(),
        ))
    }
}

impl std::fmt::Debug for BinarySemaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.object(), f)
    }
}
