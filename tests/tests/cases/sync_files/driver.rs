//! A Vulkan driver with sync files, made of one with opaque descriptors.
//!
//! Replaces `vkGetSemaphoreFdKHR` and `vkImportSemaphoreFdKHR` for sync files, as the specification
//! describes them. An eventfd stands for the sync file, and a second device waits and signals.
#![allow(unsafe_code, reason = "stands in for a driver")]

use std::ffi::{CStr, c_char};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use ash::{khr, vk};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use syncline::backend::Device as _;
use syncline::handle::HandleKind;
use syncline::vulkan::{self, AdoptInfo, Instance};

/// A bug of the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Its sync files are signalled at once.
    SignalledAtOnce,
    /// An export leaves the exporter's payload signalled.
    KeepsTheSignal,
    /// An import succeeds and replaces no payload.
    ImportsNothing,
}

/// The device that waits and signals for the others.
struct Helper {
    device: vulkan::Device,
    handles: khr::external_semaphore_fd::Device,
    queue: Mutex<vk::Queue>,
}

/// The real driver below the replaced functions.
struct Real {
    helper: Helper,
    get_device_proc_addr: vk::PFN_vkGetDeviceProcAddr,
    create_semaphore: vk::PFN_vkCreateSemaphore,
    queue_submit: vk::PFN_vkQueueSubmit,
    properties: vk::PFN_vkGetPhysicalDeviceExternalSemaphoreProperties,
}

/// Set while there is a [`Driver`]. A driver that still works when the process ends may crash.
static REAL: Mutex<Option<Arc<Real>>> = Mutex::new(None);
/// Semaphores whose signals have left as sync files, and which the second device has to consume.
///
/// A signal before that would be lost. With a copied payload it would not.
static LEAVING: Mutex<Vec<vk::Semaphore>> = Mutex::new(Vec::new());
static LEFT: Condvar = Condvar::new();
/// The semaphores that [`Bug::KeepsTheSignal`] has left signalled.
static KEPT: Mutex<Vec<vk::Semaphore>> = Mutex::new(Vec::new());
static BUG: Mutex<Option<Bug>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn real() -> Arc<Real> {
    lock(&REAL).clone().expect("a driver is loaded")
}

fn has(bug: Bug) -> bool {
    *lock(&BUG) == Some(bug)
}

/// The driver. There is one at a time. Drop it after its devices.
pub(crate) struct Driver(Instance);

impl Drop for Driver {
    fn drop(&mut self) {
        // Joins the threads that still wait for a signal. Each signal has been submitted by a case.
        loop {
            let Some(thread) = lock(&THREADS).pop() else {
                break;
            };
            thread.join().expect("a thread of the driver");
        }
        *lock(&REAL) = None;
    }
}

/// The threads that wait for signals.
static THREADS: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

fn spawn(work: impl FnOnce() + Send + 'static) {
    let mut threads = lock(&THREADS);
    threads.retain(|thread| !thread.is_finished());
    threads.push(thread::spawn(work));
}

/// Finds a device that has binary semaphores as opaque descriptors.
///
/// It must support submissions of nothing but semaphores. NVIDIA's driver can hang on those.
fn candidate(instance: &Instance) -> Option<vulkan::Candidate> {
    let devices = instance.devices().ok()?.into_iter();
    devices
        .filter(|found| found.rejected.is_none() && found.info.driver.starts_with("SwiftShader"))
        .find(|found| {
            let can = &found.info.capabilities;
            let kind = HandleKind::BinaryOpaqueFd;
            can.exports.contains(&kind) && can.imports.contains(&kind)
        })
}

impl Driver {
    pub(crate) fn load(bug: Option<Bug>) -> Option<Self> {
        let instance = Instance::load().ok()?;
        let device = candidate(&instance)?.open().ok()?;
        let family = device.info().capabilities.queues.first()?.index;
        // SAFETY: the device was opened with this queue. Its library makes no queue of its own.
        let queue = unsafe { device.raw().get_device_queue(family, 0) };
        let real = Real {
            get_device_proc_addr: device.instance().fp_v1_0().get_device_proc_addr,
            create_semaphore: device.raw().fp_v1_0().create_semaphore,
            queue_submit: device.raw().fp_v1_0().queue_submit,
            properties: device
                .instance()
                .fp_v1_1()
                .get_physical_device_external_semaphore_properties,
            helper: Helper {
                handles: khr::external_semaphore_fd::Device::new(device.instance(), device.raw()),
                queue: Mutex::new(queue),
                device,
            },
        };
        *lock(&REAL) = Some(Arc::new(real));
        *lock(&BUG) = bug;
        lock(&KEPT).clear();
        Some(Self(instance))
    }

    /// Opens a device of the real driver, and adopts it with the replaced functions.
    pub(crate) fn open(&self) -> Option<vulkan::Device> {
        let below = candidate(&self.0)?.open().ok()?;
        let mut instance_1_0 = below.instance().fp_v1_0().clone();
        instance_1_0.get_device_proc_addr = get_device_proc_addr;
        let mut instance_1_1 = below.instance().fp_v1_1().clone();
        instance_1_1.get_physical_device_external_semaphore_properties = properties;
        let mut device_1_0 = below.raw().fp_v1_0().clone();
        device_1_0.create_semaphore = create_semaphore;
        device_1_0.queue_submit = queue_submit;
        let families = &below.info().capabilities.queues;
        let queues = families.iter().flat_map(|family| {
            let indices = 0..family.count.unwrap_or(0).min(16);
            let raw = below.raw();
            indices.map(move |index| {
                // SAFETY: the device was opened with this queue.
                let queue = unsafe { raw.get_device_queue(family.index, index) };
                (family.index, index, queue)
            })
        });
        let info = AdoptInfo {
            entry: below.entry().clone(),
            instance: ash::Instance::from_parts_1_3(
                below.instance().handle(),
                instance_1_0,
                instance_1_1,
                below.instance().fp_v1_3().clone(),
            ),
            physical: below.physical(),
            device: ash::Device::from_parts_1_3(
                below.raw().handle(),
                device_1_0,
                below.raw().fp_v1_1().clone(),
                below.raw().fp_v1_2().clone(),
                below.raw().fp_v1_3().clone(),
            ),
            queues: queues.collect(),
            enabled: below.enabled(),
            owner: Some(Arc::new(below.clone())),
        };
        // SAFETY: the handles belong together, the owner keeps them, and only the adopted device
        // uses the queues.
        unsafe { vulkan::Device::adopt(info) }.ok()
    }
}

unsafe extern "system" fn get_device_proc_addr(
    device: vk::Device,
    name: *const c_char,
) -> vk::PFN_vkVoidFunction {
    // SAFETY: the caller passes a name. Vulkan's loaders return functions by transmuting them to
    // one type.
    unsafe {
        match CStr::from_ptr(name).to_bytes() {
            b"vkGetSemaphoreFdKHR" => Some(std::mem::transmute::<
                vk::PFN_vkGetSemaphoreFdKHR,
                unsafe extern "system" fn(),
            >(get_semaphore_fd)),
            b"vkImportSemaphoreFdKHR" => Some(std::mem::transmute::<
                vk::PFN_vkImportSemaphoreFdKHR,
                unsafe extern "system" fn(),
            >(import_semaphore_fd)),
            _ => (real().get_device_proc_addr)(device, name),
        }
    }
}

/// Reports sync files for binary semaphores, together with opaque descriptors.
unsafe extern "system" fn properties(
    physical: vk::PhysicalDevice,
    question: *const vk::PhysicalDeviceExternalSemaphoreInfo<'_>,
    answer: *mut vk::ExternalSemaphoreProperties<'_>,
) {
    use vk::ExternalSemaphoreHandleTypeFlags as Handles;
    // SAFETY: the caller passes valid pointers. The library chains this type only.
    unsafe {
        let asked = *question;
        if asked.handle_type != Handles::SYNC_FD {
            (real().properties)(physical, question, answer);
            if asked.handle_type == Handles::OPAQUE_FD {
                (*answer).compatible_handle_types |= Handles::SYNC_FD;
            }
            return;
        }
        let both = Handles::SYNC_FD | Handles::OPAQUE_FD;
        (*answer).compatible_handle_types = both;
        (*answer).export_from_imported_handle_types = Handles::empty();
        (*answer).external_semaphore_features = vk::ExternalSemaphoreFeatureFlags::EXPORTABLE
            | vk::ExternalSemaphoreFeatureFlags::IMPORTABLE;
    }
}

/// Creates semaphores for opaque descriptors, where the library asks for sync files.
unsafe extern "system" fn create_semaphore(
    device: vk::Device,
    info: *const vk::SemaphoreCreateInfo<'_>,
    allocator: *const vk::AllocationCallbacks<'_>,
    semaphore: *mut vk::Semaphore,
) -> vk::Result {
    let mut export = vk::ExportSemaphoreCreateInfo::default()
        .handle_types(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
    let exportable = vk::SemaphoreCreateInfo::default().push_next(&mut export);
    // SAFETY: the caller passes valid pointers. The library's chains for binary semaphores have one
    // link.
    unsafe {
        let first = (*info).p_next.cast::<vk::ExportSemaphoreCreateInfo<'_>>();
        let replaced = !first.is_null()
            && (*first).s_type == vk::StructureType::EXPORT_SEMAPHORE_CREATE_INFO
            && (*first)
                .handle_types
                .contains(vk::ExternalSemaphoreHandleTypeFlags::SYNC_FD);
        let info = if replaced {
            &raw const exportable
        } else {
            info
        };
        (real().create_semaphore)(device, info, allocator, semaphore)
    }
}

/// Waits for signals that are still leaving, before their semaphores are signalled again.
unsafe extern "system" fn queue_submit(
    queue: vk::Queue,
    count: u32,
    infos: *const vk::SubmitInfo<'_>,
    fence: vk::Fence,
) -> vk::Result {
    // SAFETY: the caller passes valid lists.
    unsafe {
        let all = (0..count as usize).map(|nth| *infos.add(nth));
        let signals: Vec<vk::Semaphore> = all
            .flat_map(|info| {
                let count = info.signal_semaphore_count as usize;
                (0..count).map(move |nth| *info.p_signal_semaphores.add(nth))
            })
            .collect();
        let leaving = lock(&LEAVING);
        let is_leaving =
            |leaving: &mut Vec<vk::Semaphore>| leaving.iter().any(|one| signals.contains(one));
        drop(LEFT.wait_while(leaving, is_leaving));
        (real().queue_submit)(queue, count, infos, fence)
    }
}

impl Helper {
    fn raw(&self) -> &ash::Device {
        self.device.raw()
    }

    fn semaphore(&self) -> Result<vk::Semaphore, vk::Result> {
        let mut export = vk::ExportSemaphoreCreateInfo::default()
            .handle_types(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        let info = vk::SemaphoreCreateInfo::default().push_next(&mut export);
        // SAFETY: the structure is valid, and the device exports such semaphores.
        unsafe { self.raw().create_semaphore(&info, None) }
    }

    /// Submits waits for semaphores, and then signals, which may be of the same ones.
    fn submit(
        &self,
        waits: &[vk::Semaphore],
        signals: &[vk::Semaphore],
    ) -> Result<vk::Fence, vk::Result> {
        let stages = vec![vk::PipelineStageFlags::ALL_COMMANDS; waits.len()];
        let info = vk::SubmitInfo::default()
            .wait_semaphores(waits)
            .wait_dst_stage_mask(&stages)
            .signal_semaphores(signals);
        let queue = lock(&self.queue);
        // SAFETY: the objects are live, the queue is locked, and the awaited signals are pending.
        unsafe {
            let fence = self
                .raw()
                .create_fence(&vk::FenceCreateInfo::default(), None)?;
            self.raw().queue_submit(*queue, &[info], fence)?;
            Ok(fence)
        }
    }

    /// Waits on the host, and destroys both objects.
    fn finish(&self, fence: vk::Fence, semaphore: vk::Semaphore) {
        // SAFETY: live objects of one submission, which has finished after the wait.
        unsafe {
            self.raw()
                .wait_for_fences(&[fence], true, u64::MAX)
                .expect("the second device goes on");
            self.raw().destroy_fence(fence, None);
            self.raw().destroy_semaphore(semaphore, None);
        }
    }

    fn import(&self, into: vk::Semaphore, fd: RawFd) -> Result<(), vk::Result> {
        let info = vk::ImportSemaphoreFdInfoKHR::default()
            .semaphore(into)
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
            .fd(fd);
        // SAFETY: a new semaphore, and an opaque descriptor that was just exported.
        unsafe { self.handles.import_semaphore_fd(&info) }
    }
}

unsafe extern "system" fn get_semaphore_fd(
    device: vk::Device,
    info: *const vk::SemaphoreGetFdInfoKHR<'_>,
    fd: *mut i32,
) -> vk::Result {
    let real = real();
    let helper = &real.helper;
    // SAFETY: the caller passes valid pointers. The functions are the same for all devices of the
    // real driver.
    unsafe {
        let below = helper.handles.fp().get_semaphore_fd_khr;
        if (*info).handle_type != vk::ExternalSemaphoreHandleTypeFlags::SYNC_FD {
            return below(device, info, fd);
        }
        let opaque = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore((*info).semaphore)
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        let mut shared = -1;
        match below(device, &raw const opaque, &raw mut shared) {
            vk::Result::SUCCESS => {}
            code => return code,
        }
        match take_signal(&real, (*info).semaphore, shared) {
            Ok(file) => {
                *fd = file.into_raw_fd();
                vk::Result::SUCCESS
            }
            Err(code) => code,
        }
    }
}

/// Whether an earlier export left the semaphore signalled. The next export finds that signal.
fn is_kept(semaphore: vk::Semaphore) -> bool {
    let mut kept = lock(&KEPT);
    let found = kept.contains(&semaphore);
    if has(Bug::KeepsTheSignal) && !found {
        kept.push(semaphore);
    }
    found
}

/// Returns an eventfd for the pending signal behind an opaque descriptor.
///
/// The second device consumes the signal.
fn take_signal(real: &Arc<Real>, of: vk::Semaphore, shared: RawFd) -> Result<OwnedFd, vk::Result> {
    let helper = &real.helper;
    let file = eventfd(0, EventfdFlags::CLOEXEC).map_err(|_| vk::Result::ERROR_TOO_MANY_OBJECTS)?;
    let theirs = file
        .try_clone()
        .map_err(|_| vk::Result::ERROR_TOO_MANY_OBJECTS)?;
    let semaphore = helper.semaphore()?;
    helper.import(semaphore, shared)?;
    let fence = helper.submit(&[semaphore], &[])?;
    let tell = |file: &OwnedFd| {
        rustix::io::write(file, &1_u64.to_ne_bytes()).expect("an eventfd");
    };
    // Signalled before the export returns, so that a case does not depend on how soon a thread
    // runs.
    if has(Bug::SignalledAtOnce) || is_kept(of) {
        tell(&theirs);
    }
    lock(&LEAVING).push(of);
    let real = real.clone();
    spawn(move || {
        real.helper.finish(fence, semaphore);
        lock(&LEAVING).retain(|one| *one != of);
        LEFT.notify_all();
        tell(&theirs);
    });
    Ok(file)
}

unsafe extern "system" fn import_semaphore_fd(
    device: vk::Device,
    info: *const vk::ImportSemaphoreFdInfoKHR<'_>,
) -> vk::Result {
    let real = real();
    let helper = &real.helper;
    // SAFETY: the caller passes a valid pointer. The functions are the same for all devices of the
    // real driver.
    unsafe {
        let below = helper.handles.fp().import_semaphore_fd_khr;
        if (*info).handle_type != vk::ExternalSemaphoreHandleTypeFlags::SYNC_FD {
            return below(device, info);
        }
        if !(*info).flags.contains(vk::SemaphoreImportFlags::TEMPORARY) {
            return vk::Result::ERROR_INVALID_EXTERNAL_HANDLE;
        }
        let payload = match helper.semaphore() {
            Ok(payload) => payload,
            Err(code) => return code,
        };
        let opaque = vk::SemaphoreGetFdInfoKHR::default()
            .semaphore(payload)
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD);
        let shared = match helper.handles.get_semaphore_fd(&opaque) {
            Ok(shared) => shared,
            Err(code) => return code,
        };
        let replaced = vk::ImportSemaphoreFdInfoKHR::default()
            .semaphore((*info).semaphore)
            .flags((*info).flags)
            .handle_type(vk::ExternalSemaphoreHandleTypeFlags::OPAQUE_FD)
            .fd(shared);
        if has(Bug::ImportsNothing) {
            drop(OwnedFd::from_raw_fd(shared));
        } else {
            let code = below(device, &raw const replaced);
            if code != vk::Result::SUCCESS {
                return code;
            }
        }
        // The driver owns it from here on.
        let file = ((*info).fd >= 0).then(|| OwnedFd::from_raw_fd((*info).fd));
        let real = real.clone();
        spawn(move || give_signal(&real.helper, payload, file));
        vk::Result::SUCCESS
    }
}

/// Signals the payload once the eventfd is readable, or at once without an eventfd.
fn give_signal(helper: &Helper, payload: vk::Semaphore, file: Option<OwnedFd>) {
    if let Some(file) = file {
        assert!(file.as_raw_fd() >= 0, "taken from the caller");
        let mut asked = [PollFd::from_borrowed_fd(file.as_fd(), PollFlags::IN)];
        while !matches!(poll(&mut asked, None), Ok(1)) {}
    }
    let fence = helper
        .submit(&[], &[payload])
        .expect("the second device goes on");
    helper.finish(fence, payload);
}
