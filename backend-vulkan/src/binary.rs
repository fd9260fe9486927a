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
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{BinaryFd, Fence, HandleKind, Object, Origin, QueueKind, Rejected, Result};

use crate::device::{Device, Inner as DeviceInner};
use crate::error::{lock, wrong_device};
use crate::external::{semaphore_functions, take};
use crate::queue::Queue;
use crate::recorder::Recorder;

/// A binary `VkSemaphore`. Cheap to clone; destroyed when the last handle is gone and no submission uses it.
#[derive(Clone)]
pub struct BinarySemaphore(Arc<Inner>);

struct Inner {
    device: Device,
    semaphore: Arc<Raw>,
    /// Where its signals are consumed, one after the other; made when first needed.
    queue: Mutex<Option<Queue>>,
    exportable: bool,
}

/// What a submission in flight keeps.
struct Raw {
    device: Arc<DeviceInner>,
    object: Object,
    raw: vk::Semaphore,
    /// False if the application destroys it.
    owned: bool,
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: ours, and no submission in flight uses it: each keeps an `Arc` until it has finished.
            unsafe { self.device.raw().destroy_semaphore(self.raw, None) };
        }
    }
}

impl Device {
    /// A fresh binary semaphore, unsignalled. It can be exported where the device exports such.
    ///
    /// # Errors
    /// A driver error.
    pub fn binary_semaphore(&self, label: &str) -> Result<BinarySemaphore> {
        let exports = &self.info().capabilities.exports;
        self.make_binary(label, exports.contains(&HandleKind::BinaryOpaqueFd))
    }

    fn make_binary(&self, label: &str, exportable: bool) -> Result<BinarySemaphore> {
        let mut export = vk::ExportSemaphoreCreateInfo::default()
            .handle_types(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        let mut info = vk::SemaphoreCreateInfo::default();
        if exportable {
            info = info.push_next(&mut export);
        }
        // SAFETY: `info` is valid, and asks for handles only if the device exports them.
        let raw = unsafe { self.raw().create_semaphore(&info, None) }
            .map_err(|code| self.0.failed(self.object(), "vkCreateSemaphore", code))?;
        Ok(self.wrap_binary(raw, true, exportable, label))
    }

    fn wrap_binary(
        &self,
        raw: vk::Semaphore,
        owned: bool,
        exportable: bool,
        label: &str,
    ) -> BinarySemaphore {
        BinarySemaphore(Arc::new(Inner {
            device: self.clone(),
            semaphore: Arc::new(Raw {
                device: self.0.clone(),
                object: Object::new("binary semaphore", label),
                raw,
                owned,
            }),
            queue: Mutex::new(None),
            exportable,
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
        self.wrap_binary(semaphore, owned, false, label)
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
                self.require_nature(handle.as_fd(), kind, &what)?;
                self.make_binary(label, false)
            })
            .and_then(|semaphore| {
                let info = vk::ImportSemaphoreFdInfoKHR::default()
                    .semaphore(semaphore.raw())
                    .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
                    .fd(handle.as_fd().as_raw_fd());
                let functions = semaphore_functions(&self.0, "import a binary semaphore")?;
                // SAFETY: an unused binary semaphore, and by its type a handle of one of the same driver.
                unsafe { functions.import_semaphore_fd(&info) }
                    .map_err(|code| self.refused("vkImportSemaphoreFdKHR", code, &what))?;
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
        &self.0.semaphore.object
    }

    /// The raw semaphore, alive as long as this is.
    #[must_use]
    pub fn raw(&self) -> vk::Semaphore {
        self.0.semaphore.raw
    }

    /// A new handle: `vkGetSemaphoreFdKHR`. Signals made on either side are consumed on either side.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device does not export binary semaphores, or this one was imported or
    /// adopted; a driver error.
    pub fn export(&self) -> Result<BinaryFd> {
        let (device, asked) = (&self.0.device, "export a binary semaphore");
        let exports = &device.info().capabilities.exports;
        device.require(exports, HandleKind::BinaryOpaqueFd, asked)?;
        if !self.0.exportable {
            let reason = "it was made elsewhere; export it there";
            return Err(crate::error::unsupported(self.object(), "leave", reason));
        }
        let info = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(self.raw())
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        let functions = semaphore_functions(&device.0, asked)?;
        // SAFETY: a live semaphore, made for handles of this type.
        let fd = unsafe { functions.get_semaphore_fd(&info) };
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
        let consumed = device.timeline(label)?;
        let semaphore = self.0.semaphore.clone();
        let work = move |recorder: &mut Recorder| {
            let stages = vk::PipelineStageFlags::ALL_COMMANDS;
            // SAFETY: by this function's contract; the submission keeps the semaphore.
            unsafe { recorder.wait_binary(semaphore.raw, stages) };
            recorder.keep(semaphore);
            Ok(())
        };
        queue.submit(&[], work, &[consumed.signal_at(1)])?;
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
        let made = self.0.device.queue(QueueKind::Transfer, &label)?;
        Ok(lock(&self.0.queue).get_or_insert(made).clone())
    }
}

impl Recorder {
    /// Also signals a binary semaphore, as [`Recorder::signal_binary`] does, and keeps it.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    ///
    /// # Safety
    /// It is unsignalled, with no signal pending, once the submission runs.
    pub unsafe fn signal_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        self.keep_semaphore(semaphore)?;
        // SAFETY: by this function's contract; kept just above.
        unsafe { self.signal_binary(semaphore.raw()) };
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
        self.keep_semaphore(semaphore)?;
        let stages = vk::PipelineStageFlags::ALL_COMMANDS;
        // SAFETY: by this function's contract; kept just above, and every family supports these stages.
        unsafe { self.wait_binary(semaphore.raw(), stages) };
        Ok(())
    }

    fn keep_semaphore(&mut self, semaphore: &BinarySemaphore) -> Result<()> {
        let owner = &semaphore.0.device;
        if owner.raw().handle() != self.device().handle() {
            return Err(wrong_device(
                semaphore.object(),
                owner.object(),
                self.object(),
            ));
        }
        self.keep(semaphore.0.semaphore.clone());
        Ok(())
    }
}

impl std::fmt::Debug for BinarySemaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(self.object(), f)
    }
}
