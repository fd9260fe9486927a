//! The application's semaphores: made, destroyed, exported and imported.
#![allow(
    unsafe_code,
    reason = "is called by the application, and calls the driver"
)]

use std::os::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ash::vk;
use syncline_software_payload as software;
use syncline_software_payload::Kind;

use crate::bug::Bug;
use crate::chain;
use crate::device::Device;
use crate::payload::Payload;
use crate::table::lock;

const OPAQUE: vk::ExternalSemaphoreHandleTypeFlags =
    vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD;

/// What the layer keeps for a semaphore of the application.
pub(crate) struct Semaphore {
    pub(crate) kind: Kind,
    /// True if it was made for export as opaque descriptors.
    exports: bool,
    /// True from its export or first import on.
    shared: AtomicBool,
    payloads: Mutex<Payloads>,
}

/// The payloads of a semaphore. Without any, it is the driver's own semaphore.
#[derive(Default)]
struct Payloads {
    permanent: Option<Arc<Payload>>,
    /// Replaces the permanent payload until the next wait.
    temporary: Option<Arc<Payload>>,
}

impl Semaphore {
    fn new(kind: Kind, exports: bool, payloads: Payloads) -> Self {
        Self {
            kind,
            exports,
            shared: AtomicBool::new(payloads.permanent.is_some()),
            payloads: Mutex::new(payloads),
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// Returns the payload of the next signal and of exports. `None` if it is the driver's.
    pub(crate) fn payload(&self) -> Option<Arc<Payload>> {
        let payloads = lock(&self.payloads);
        let current = payloads.temporary.as_ref().or(payloads.permanent.as_ref());
        current.cloned()
    }

    /// Returns the payload of the next wait, and true if that ends a temporary import.
    ///
    /// `None` if it is the driver's.
    pub(crate) fn take_for_wait(&self) -> Option<(Arc<Payload>, bool)> {
        let mut payloads = lock(&self.payloads);
        if let Some(temporary) = payloads.temporary.take() {
            return Some((temporary, true));
        }
        payloads
            .permanent
            .clone()
            .map(|permanent| (permanent, false))
    }

    /// Restores the temporary payload of a wait that was refused.
    pub(crate) fn give_back(&self, temporary: Arc<Payload>) {
        lock(&self.payloads).temporary = Some(temporary);
    }

    /// Ends the payloads. `unused` means that no queue can be using them.
    pub(crate) fn end(&self, unused: bool) {
        let payloads = std::mem::take(&mut *lock(&self.payloads));
        for payload in [payloads.temporary, payloads.permanent]
            .into_iter()
            .flatten()
        {
            payload.end(unused);
        }
    }

    /// Replaces the temporary payload, or the permanent one.
    fn import(&self, payload: Arc<Payload>, file: OwnedFd, temporary: bool) {
        // Otherwise the descriptor is closed here. A program that never exports the semaphore again
        // does not need an open one.
        *lock(&payload.file) = Some(file).filter(|_| self.exports);
        let mut payloads = lock(&self.payloads);
        let replaced = if temporary {
            payloads.temporary.replace(payload)
        } else {
            payloads.permanent.replace(payload)
        };
        drop(payloads);
        if let Some(replaced) = replaced {
            // Valid usage: no queue uses the semaphore during an import.
            replaced.end(true);
        }
    }
}

/// True for the functions of `VK_KHR_external_semaphore_fd`.
pub(crate) fn is_of_extension(name: &[u8]) -> bool {
    matches!(name, b"vkGetSemaphoreFdKHR" | b"vkImportSemaphoreFdKHR")
}

/// `vkCreateSemaphore`: the driver makes a semaphore that is not exported.
pub(crate) unsafe extern "system" fn create_semaphore(
    raw: vk::Device,
    info: *const vk::SemaphoreCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    semaphore: *mut vk::Semaphore,
) -> vk::Result {
    // SAFETY: valid usage: a live device, and a valid create info.
    let (device, given, told, export) = unsafe {
        let chain = (*info).p_next;
        let told = chain::find::<vk::SemaphoreTypeCreateInfo<'_>>(chain);
        let export = chain::find::<vk::ExportSemaphoreCreateInfo<'_>>(chain);
        (Device::of(raw), *info, told, export)
    };
    let Some(device) = device else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    let (kind, initial) = match told {
        Some(told) if told.semaphore_type == vk::SemaphoreType::TIMELINE => {
            (Kind::Timeline, told.initial_value)
        }
        _ => (Kind::Binary, 0),
    };
    let exported = export.map_or_else(Default::default, |export| export.handle_types);

    // Software drivers know these two structures here.
    let mut kind_info = told.copied().unwrap_or_default();
    let mut export_info = vk::ExportSemaphoreCreateInfo::default().handle_types(exported & !OPAQUE);
    let mut stripped = vk::SemaphoreCreateInfo::default().flags(given.flags);
    if told.is_some() {
        kind_info.p_next = std::ptr::null();
        stripped = stripped.push_next(&mut kind_info);
    }
    if !export_info.handle_types.is_empty() {
        stripped = stripped.push_next(&mut export_info);
    }
    let shares = exported.contains(OPAQUE);
    let asked = if export.is_some() { &stripped } else { &given };
    let create = device.driver.create_semaphore;
    // SAFETY: valid usage, and valid structures.
    let created = unsafe { create(raw, asked, allocator, semaphore) };
    if created != vk::Result::SUCCESS {
        return created;
    }
    // SAFETY: just made.
    let made = unsafe { *semaphore };
    let mut payloads = Payloads::default();
    if shares {
        let page = software::Semaphore::create(kind, initial)
            .map_err(|_| vk::Result::ERROR_OUT_OF_HOST_MEMORY);
        let payload =
            page.and_then(|(page, file)| Ok((Payload::new(page, device.driver.clone())?, file)));
        match payload {
            Ok((payload, file)) => {
                *lock(&payload.file) = Some(file);
                payloads.permanent = Some(payload);
            }
            Err(code) => {
                // SAFETY: just made, and the application does not know it.
                unsafe {
                    (device.driver.destroy_semaphore)(raw, made, allocator);
                    *semaphore = vk::Semaphore::null();
                }
                return code;
            }
        }
    }
    device.add(made, Semaphore::new(kind, shares, payloads));
    vk::Result::SUCCESS
}

/// `vkDestroySemaphore`.
pub(crate) unsafe extern "system" fn destroy_semaphore(
    raw: vk::Device,
    semaphore: vk::Semaphore,
    allocator: *const vk::AllocationCallbacks<'_>,
) {
    // SAFETY: valid usage: a live device, and null or a semaphore that no queue uses.
    unsafe {
        let Some(device) = Device::of(raw) else {
            return;
        };
        // The application may know of signals that are not in the page yet. This comes before the
        // removal, because nothing is stored once the last shared semaphore is removed.
        if device.shared(semaphore).is_some() {
            device.catch_up();
        }
        if let Some(removed) = device.remove(semaphore)
            && removed.is_shared()
        {
            removed.end(true);
        }
        (device.driver.destroy_semaphore)(raw, semaphore, allocator);
    }
}

/// `vkGetSemaphoreFdKHR`.
pub(crate) unsafe extern "system" fn get_semaphore_fd(
    raw: vk::Device,
    info: *const vk::SemaphoreGetFdInfoKHR<'_>,
    fd: *mut i32,
) -> vk::Result {
    let refused = vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
    // SAFETY: valid usage: a live device, and valid structures.
    let (device, info) = unsafe { (Device::of(raw), &*info) };
    let Some(device) = device else { return refused };
    if info.handle_type != OPAQUE {
        return device.driver.get_semaphore_fd.map_or(refused, |next| {
            // SAFETY: valid usage.
            unsafe { next(raw, info, fd) }
        });
    }
    let Some(semaphore) = device.semaphore(info.semaphore) else {
        return refused;
    };
    let Some(payload) = semaphore.payload() else {
        return refused;
    };
    let file = lock(&payload.file);
    let Some(file) = &*file else {
        return refused;
    };
    let another = Bug::ExportsAnother
        .is_planted()
        .then(|| software::Semaphore::create(semaphore.kind, 0).ok())
        .flatten();
    let file = another.as_ref().map_or(file, |(_, another)| another);
    match rustix::io::fcntl_dupfd_cloexec(file, 0) {
        Ok(copy) => {
            // SAFETY: valid usage.
            unsafe { *fd = copy.into_raw_fd() };
            vk::Result::SUCCESS
        }
        Err(_) => vk::Result::ERROR_TOO_MANY_OBJECTS,
    }
}

/// `vkImportSemaphoreFdKHR`: takes the descriptor only on success.
pub(crate) unsafe extern "system" fn import_semaphore_fd(
    raw: vk::Device,
    info: *const vk::ImportSemaphoreFdInfoKHR<'_>,
) -> vk::Result {
    let refused = vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
    // SAFETY: valid usage: a live device, and a valid structure.
    let (device, info) = unsafe { (Device::of(raw), &*info) };
    let Some(device) = device else { return refused };
    if info.handle_type != OPAQUE {
        return device.driver.import_semaphore_fd.map_or(refused, |next| {
            // SAFETY: valid usage.
            unsafe { next(raw, info) }
        });
    }
    let Some(semaphore) = device.semaphore(info.semaphore) else {
        return refused;
    };
    let temporary = info.flags.contains(vk::SemaphoreImportFlags::TEMPORARY);
    // VUID-VkImportSemaphoreFdInfoKHR-flags-03323.
    if info.fd < 0 || (temporary && semaphore.kind == Kind::Timeline) {
        return refused;
    }
    // SAFETY: not negative. If it is not open, the system says so.
    let borrowed = unsafe { BorrowedFd::borrow_raw(info.fd) };
    let Ok(page) = software::Semaphore::open(borrowed.as_fd()) else {
        return refused;
    };
    if page.kind() != semaphore.kind {
        return refused;
    }
    let payload = match Payload::new(page, device.driver.clone()) {
        Ok(payload) => payload,
        Err(code) => return code,
    };
    // SAFETY: valid usage: on success the descriptor belongs to the implementation.
    let file = unsafe { OwnedFd::from_raw_fd(info.fd) };
    if !semaphore.shared.swap(true, Ordering::AcqRel) {
        device.note_shared();
    }
    semaphore.import(payload, file, temporary);
    vk::Result::SUCCESS
}
