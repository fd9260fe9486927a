//! Binary semaphores: made, exported, imported, and the fences that stand for their signals.
#![allow(
    unsafe_code,
    reason = "talks to the driver, and waits for what only the caller knows to be coming"
)]

use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::sync::{Arc, Mutex};

use ash::vk;
#[cfg(doc)]
use syncline_core::Error;
use syncline_core::{BinaryFd, Fence, HandleKind, Object, Origin, QueueKind, Rejected, Result};

use crate::device::open::Device;
use crate::driver::error::{unsupported, wrong_device};
use crate::driver::lock::lock;
use crate::queue::recorder::Recorder;
use crate::queue::submission::Queue;
use crate::share::external::{semaphore_functions, take};
use crate::share::payload::Needs;
use crate::timeline::binary::{RawBinary, RecordedUse, Role};
use crate::timeline::port::{Port, Semaphore};

/// A binary `VkSemaphore`. Cheap to clone; destroyed when the last handle is gone and no submission uses it.
#[derive(Clone)]
pub struct BinarySemaphore(Arc<Inner>);

struct Inner {
    device: Device,
    semaphore: Arc<RawBinary>,
    /// Where its signals are consumed, one after the other; made when first needed.
    queue: Mutex<Option<Queue>>,
    /// As which handles it can leave.
    exports: vk::ExternalSemaphoreHandleTypeFlags,
}

impl Device {
    /// A fresh binary semaphore, unsignalled. It can be exported where the device exports such: as opaque descriptors, and as sync files too where
    /// the driver has both for one semaphore.
    ///
    /// # Errors
    /// A driver error.
    pub fn binary_semaphore(&self, label: &str) -> Result<BinarySemaphore> {
        self.make_binary(label, self.0.binary_exports)
    }

    /// A fresh binary semaphore, unsignalled, that can be exported as handles of this kind, and of no other.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the reason, if the device exports no binary semaphores as such handles: the driver does not, the kind is no
    /// binary semaphore's, or it is of Windows; a driver error.
    pub fn exportable_binary(&self, label: &str, kind: HandleKind) -> Result<BinarySemaphore> {
        let asked = format!("make a binary semaphore for export as {kind}");
        let handle = match kind {
            HandleKind::BinaryOpaqueFd => vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD,
            HandleKind::SyncFd => vk::ExternalSemaphoreHandleTypeFlags::SYNC_FD,
            other => {
                let reason = other.no_platform();
                let reason =
                    reason.unwrap_or_else(|| "such handles hold no binary semaphore".into());
                return Err(unsupported(self.object(), asked, reason));
            }
        };
        self.require(&self.info().capabilities.exports, kind, &asked)?;
        self.make_binary(label, handle)
    }

    fn make_binary(
        &self,
        label: &str,
        exports: vk::ExternalSemaphoreHandleTypeFlags,
    ) -> Result<BinarySemaphore> {
        let mut export = vk::ExportSemaphoreCreateInfo::default().handle_types(exports);
        let mut info = vk::SemaphoreCreateInfo::default();
        if !exports.is_empty() {
            info = info.push_next(&mut export);
        }
        // SAFETY: `info` is valid, and asks for handles only if the device exports them.
        let raw = unsafe { self.raw().create_semaphore(&info, None) }
            .map_err(|code| self.0.failed(self.object(), "vkCreateSemaphore", code))?;
        // SAFETY: just made on this device, and nothing else has the handle.
        Ok(unsafe { self.wrap_binary(raw, true, exports, label) })
    }

    /// # Safety
    /// As [`RawBinary::new`].
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
            // SAFETY: by this function's contract.
            semaphore: unsafe { RawBinary::new(&self.0, object, raw, owned) },
            queue: Mutex::new(None),
            exports,
        }))
    }

    /// An existing binary semaphore, such as the one that a presentation engine signals.
    ///
    /// # Safety
    /// `semaphore` is a binary semaphore of this device. If `owned`, nobody else destroys it; else it
    /// outlives every handle of the result, and every submission that uses it.
    #[must_use]
    pub unsafe fn adopt_binary(
        &self,
        semaphore: vk::Semaphore,
        owned: bool,
        label: &str,
    ) -> BinarySemaphore {
        let no_handle = vk::ExternalSemaphoreHandleTypeFlags::empty();
        // SAFETY: by this function's contract.
        unsafe { self.wrap_binary(semaphore, owned, no_handle, label) }
    }

    /// The binary semaphore behind a handle: `vkImportSemaphoreFdKHR`.
    ///
    /// A timeline's does not come in here:
    ///
    /// ```compile_fail,E0308
    /// # use syncline_vulkan::Device;
    /// # use syncline_core::TimelineFd;
    /// fn take(device: &Device, handle: TimelineFd) {
    ///     let _ = device.import_binary(handle, "");
    /// }
    /// ```
    ///
    /// # Errors
    /// The handle, and: [`Error::CannotShare`], before the driver is asked, if it comes from another
    /// GPU or another driver; [`Error::Unsupported`] if the device does not import binary semaphores;
    /// [`Error::Import`] if it is none, as far as can be seen, or the driver refuses it.
    pub fn import_binary(
        &self,
        handle: BinaryFd,
        label: &str,
    ) -> Result<BinarySemaphore, Rejected<BinaryFd>> {
        let what = || format!("a binary semaphore from {}", handle.origin());
        let semaphore = self
            .require_same("a binary semaphore", handle.origin())
            .and_then(|()| {
                let (imports, kind) = (
                    &self.info().capabilities.imports,
                    HandleKind::BinaryOpaqueFd,
                );
                self.require(imports, kind, "import a binary semaphore")?;
                self.require_file_kind(handle.as_fd(), kind, &what)?;
                self.make_binary(label, vk::ExternalSemaphoreHandleTypeFlags::empty())
            })
            .and_then(|semaphore| {
                let info = vk::ImportSemaphoreFdInfoKHR::default()
                    .semaphore(semaphore.raw())
                    .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
                    .fd(handle.as_fd().as_raw_fd());
                let functions = semaphore_functions(&self.0, "import a binary semaphore")?;
                // SAFETY: an unused binary semaphore, and by its type a handle of one of the same driver.
                unsafe { functions.import_semaphore_fd(&info) }
                    .map_err(|code| self.import_error("vkImportSemaphoreFdKHR", code, &what))?;
                Ok(semaphore)
            });
        match semaphore {
            Ok(semaphore) => {
                // The driver owns it from now on.
                let _ = handle.into_fd().into_raw_fd();
                Ok(semaphore)
            }
            Err(error) => Err(Rejected { handle, error }),
        }
    }
}

impl BinarySemaphore {
    /// Its name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.0.semaphore.object()
    }

    /// The raw semaphore, alive as long as this is. What an application submits with it itself, it alone knows of: until that has finished,
    /// it imports no payload and exports no sync file here.
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

    /// A new handle: `vkGetSemaphoreFdKHR`. Signals made on either side are consumed on either side, whenever they are made: before the
    /// export, after it, or after the import.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device does not export binary semaphores, or this one was imported,
    /// adopted or made for other handles; [`Error::PayloadInUse`] while its payload is a temporary one
    /// (VUID-VkSemaphoreGetFdInfoKHR-semaphore-01133); a driver error.
    pub fn export(&self) -> Result<BinaryFd> {
        let (device, asked) = (&self.0.device, "export a binary semaphore");
        let exports = &device.info().capabilities.exports;
        device.require(exports, HandleKind::BinaryOpaqueFd, asked)?;
        let handle = vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;
        if !self.0.exports.contains(handle) {
            let reason = if self.0.exports.is_empty() {
                "it was made elsewhere; export it there"
            } else {
                "it was made for sync files"
            };
            return Err(unsupported(self.object(), "leave", reason));
        }
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(self.raw())
            .handle_type(handle);
        let functions = semaphore_functions(&device.0, asked)?;
        // SAFETY: a live semaphore, made for handles of this type, with its own payload.
        let fd = self.with_payload(Needs::Permanent, "leave", |_| unsafe {
            Ok(functions.get_semaphore_fd(&info))
        })?;
        let fd = take(&device.0, self.object(), "vkGetSemaphoreFdKHR", fd)?;
        // SAFETY: just exported, as a binary semaphore of this device.
        Ok(unsafe { BinaryFd::from_fd(fd, Origin::of(device.info())) })
    }

    /// A fence for the signal that is pending now. The device consumes the signal, once, on a queue of its
    /// own; the fence is complete from then on, and any number of queues of any device, and the host, can
    /// wait for it. For the next signal call this again, once that one is pending.
    ///
    /// # Errors
    /// A driver error; the signal is not consumed then.
    ///
    /// # Safety
    /// A signal of the semaphore is pending (its submission is with a driver, and waits for nothing that
    /// only the host can still provide), and nothing else waits for that signal. What is never
    /// signalled blocks a driver queue for ever, and whatever else uses it.
    pub unsafe fn pending(&self, label: &str) -> Result<Fence> {
        let device = &self.0.device;
        let queue = self.consumer()?;
        let consumed = device.new_timeline(label)?;
        let semaphore = self.0.semaphore.clone();
        let also = consumed
            .port::<Port>(device.id())
            .and_then(|port| port.on(&device.0))
            .map(|semaphore| (semaphore.clone(), 1));
        let work = move |recorder: &mut Recorder<'_>| {
            // SAFETY: by this function's contract.
            unsafe { recorder.wait_for(semaphore, also) };
            Ok(())
        };
        queue
            .submissions()
            .submit(&[], work, &[consumed.signal_at(1)])?;
        let point = consumed.at(1).keep();
        Ok(Fence::foreign(device.id(), device.object(), label, point))
    }

    fn consumer(&self) -> Result<Queue> {
        let known = lock(&self.0.queue).clone();
        if let Some(queue) = known {
            return Ok(queue);
        }
        let label = format!("{} (consumer)", self.object().label());
        // Made without the lock: another thread's may be there first, and then ours is dropped.
        let made = self.0.device.queue_of_kind(QueueKind::Transfer, &label)?;
        Ok(lock(&self.0.queue).get_or_insert(made).clone())
    }
}

impl Recorder<'_> {
    /// Also signals a binary semaphore, as [`Recorder::signal_binary`] does, and keeps it. A submission that is skipped
    /// does not signal it, as described there.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    ///
    /// # Safety
    /// It is unsignalled, with no signal pending, once the submission runs.
    pub unsafe fn signal_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        self.require_semaphore(semaphore)?;
        let semaphore = semaphore.0.semaphore.clone();
        // SAFETY: by this function's contract; kept just below.
        unsafe { self.signal_binary(semaphore.raw()) };
        self.note_use(&semaphore, Role::Signal, None);
        self.keep(semaphore);
        Ok(())
    }

    /// Also waits for the pending signal of a binary semaphore, as [`Recorder::wait_binary`] does, and consumes it: the
    /// whole of the submission's work comes behind the signal. Keeps the semaphore.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    ///
    /// # Safety
    /// As [`BinarySemaphore::pending`].
    pub unsafe fn wait_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        self.require_semaphore(semaphore)?;
        // SAFETY: by this function's contract.
        unsafe { self.wait_for(semaphore.0.semaphore.clone(), None) };
        Ok(())
    }

    /// If it is told, the submission also signals a timeline's semaphore to a value behind the wait.
    ///
    /// # Safety
    /// As [`Recorder::wait_semaphore`], for a semaphore of this device.
    unsafe fn wait_for(&mut self, semaphore: Arc<RawBinary>, also: Option<(Arc<Semaphore>, u64)>) {
        let stages = vk::PipelineStageFlags::ALL_COMMANDS;
        // SAFETY: by this function's contract; kept just below, and every family supports these stages.
        unsafe { self.wait_binary(semaphore.raw(), stages) };
        self.note_use(&semaphore, Role::Wait, also);
        self.keep(semaphore);
    }

    fn note_use(
        &mut self,
        semaphore: &Arc<RawBinary>,
        role: Role,
        also: Option<(Arc<Semaphore>, u64)>,
    ) {
        let recorded_use = RecordedUse::new(
            semaphore,
            role,
            self.recorded.object(),
            self.recorded.own(),
            also,
        );
        self.recorded.binaries.push(recorded_use);
    }

    fn require_semaphore(&self, semaphore: &BinarySemaphore) -> Result<()> {
        let owner = &semaphore.0.device;
        if owner.raw().handle() == self.device().handle() {
            return Ok(());
        }
        Err(wrong_device(
            semaphore.object(),
            owner.object(),
            self.recorded.object(),
        ))
    }
}

impl std::fmt::Debug for BinarySemaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.object(), f)
    }
}
