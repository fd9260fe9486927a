//! Devices and streams of the program, and raw handles.

use std::ffi::{c_char, c_void};
use std::ptr::null;

use syncline::info::Uuid;
use syncline::vulkan::ash::{self, vk};
use syncline::vulkan::{AdoptInfo, Enabled, Handles, Offer};
use syncline::{Device, Queue, Timeline, cuda, vulkan};

use crate::handle::{Handle, sl_device, sl_queue, sl_timeline};
use crate::raw::{
    CUcontext, CUstream, VkDevice, VkInstance, VkPhysicalDevice, VkQueue, VkSemaphore, from_vk,
    sl_vulkan_loader, static_functions, to_vk,
};
use crate::result::{Refused, call, info_in, info_out, list, out, sl_result, told};
use crate::submit::{Data, sl_drop};

/// Extensions and features of a VkDevice beyond Vulkan 1.2 and its feature timelineSemaphore.
///
/// Each field is 0 or 1. Syncline does not use what is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct sl_vulkan_enabled {
    /// The feature hostQueryReset: timestamps on queues of families for transfers alone.
    pub host_query_reset: u32,
    /// VK_KHR_external_semaphore_fd: timelines shared with CUDA and other VkDevices.
    pub external_semaphore_fd: u32,
    /// VK_KHR_external_memory_fd: buffers and images shared with CUDA and other VkDevices.
    pub external_memory_fd: u32,
    /// VK_KHR_calibrated_timestamps or VK_EXT_calibrated_timestamps: exact times on the host.
    pub calibrated_timestamps: u32,
    /// For extensions that later versions know. 0.
    pub reserved: [u32; 12],
}

impl From<Enabled> for sl_vulkan_enabled {
    fn from(enabled: Enabled) -> Self {
        Self {
            host_query_reset: enabled.host_query_reset.into(),
            external_semaphore_fd: enabled.external_semaphore_fd.into(),
            external_memory_fd: enabled.external_memory_fd.into(),
            calibrated_timestamps: enabled.calibrated_timestamps.into(),
            reserved: [0; 12],
        }
    }
}

impl From<sl_vulkan_enabled> for Enabled {
    fn from(enabled: sl_vulkan_enabled) -> Self {
        Self {
            host_query_reset: enabled.host_query_reset != 0,
            external_semaphore_fd: enabled.external_semaphore_fd != 0,
            external_memory_fd: enabled.external_memory_fd != 0,
            calibrated_timestamps: enabled.calibrated_timestamps != 0,
        }
    }
}

/// The most extensions that sl_vulkan_offer has.
pub const SL_VULKAN_EXTENSIONS: usize = 16;

/// What a VkDevice should be created with, so that Syncline can adopt it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_vulkan_offer {
    /// The size of this structure, which the caller sets.
    pub size: usize,
    /// The number of extensions.
    pub extension_count: u32,
    /// 1 if uuid is known.
    pub has_uuid: u32,
    /// The names of the device extensions to enable. They live as long as the program.
    pub extensions: [*const c_char; SL_VULKAN_EXTENSIONS],
    /// The same, and the feature hostQueryReset, for sl_vulkan_adopt_info.
    pub enabled: sl_vulkan_enabled,
    /// The UUID of the GPU. CUDA has the same one.
    pub uuid: [u8; 16],
}

/// A queue of a VkDevice.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_vulkan_queue {
    /// The queue.
    pub queue: VkQueue,
    /// The index of its family.
    pub family: u32,
    /// Its index within the family.
    pub index: u32,
}

/// A VkDevice of the program.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct sl_vulkan_adopt_info {
    /// The size of this structure, which the caller sets.
    pub size: usize,
    /// vkGetInstanceProcAddr, with which the program has found its functions.
    pub get_instance_proc_addr: sl_vulkan_loader,
    /// The instance, created for Vulkan 1.2 or later.
    pub instance: VkInstance,
    /// The physical device.
    pub physical_device: VkPhysicalDevice,
    /// The device, created with the feature timelineSemaphore.
    pub device: VkDevice,
    /// The queues that Syncline may use. May be null if their number is 0.
    pub queues: *const sl_vulkan_queue,
    /// Their number. 0 if the program makes all submissions itself.
    pub queue_count: usize,
    /// What the device was created with. Vulkan cannot tell it, so it is trusted.
    pub enabled: sl_vulkan_enabled,
}

/// The raw handles of a device of Vulkan.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct sl_vulkan_handles {
    /// The size of this structure, which the caller sets.
    pub size: usize,
    /// vkGetInstanceProcAddr.
    pub get_instance_proc_addr: sl_vulkan_loader,
    /// The instance.
    pub instance: VkInstance,
    /// The physical device.
    pub physical_device: VkPhysicalDevice,
    /// The device.
    pub device: VkDevice,
    /// What the device was created with.
    pub enabled: sl_vulkan_enabled,
}

type Loader = unsafe extern "C" fn(VkInstance, *const c_char) -> Option<unsafe extern "C" fn()>;

fn loader(given: sl_vulkan_loader) -> Result<Loader, Refused> {
    given.ok_or_else(|| Refused::argument("get_instance_proc_addr", "is null"))
}

fn not_null(handle: *mut c_void, name: &'static str) -> Result<(), Refused> {
    match handle.is_null() {
        true => Err(Refused::argument(name, "is null")),
        false => Ok(()),
    }
}

/// Tells what to create a VkDevice with, so that sl_device_adopt_vulkan can use all of it.
///
/// The feature timelineSemaphore is always needed. Everything else may be left out, and its field
/// in sl_vulkan_enabled is then 0. Asks the driver, creates nothing and does not block.
/// SL_ERROR_UNAVAILABLE if no device of this physical device can be adopted; the text says why.
///
/// # Safety
///
/// The loader is vkGetInstanceProcAddr, and the instance was created for Vulkan 1.2 or later. The
/// physical device is of the instance. `offer` points to a structure whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_vulkan_get_offer(
    get_instance_proc_addr: sl_vulkan_loader,
    instance: VkInstance,
    physical_device: VkPhysicalDevice,
    offer: *mut sl_vulkan_offer,
) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        let place = unsafe { info_out(offer, "offer")? };
        let loader = loader(get_instance_proc_addr)?;
        not_null(instance, "instance")?;
        not_null(physical_device, "physical_device")?;
        // SAFETY: by the contract of this function.
        let offer = unsafe {
            let functions = ash::StaticFn {
                get_instance_proc_addr: static_functions(loader),
            };
            let entry = ash::Entry::from_static_fn(functions);
            let instance = ash::Instance::load(entry.static_fn(), to_vk(instance));
            Offer::of(&entry, &instance, to_vk(physical_device))?
        };
        if offer.extensions.len() > SL_VULKAN_EXTENSIONS {
            let what = format!("has no place for {} extensions", offer.extensions.len());
            return Err(Refused::argument("offer", what));
        }
        let mut extensions = [null(); SL_VULKAN_EXTENSIONS];
        for (to, name) in extensions.iter_mut().zip(&offer.extensions) {
            *to = name.as_ptr();
        }
        let uuid = offer.info.uuid;
        place.set(sl_vulkan_offer {
            size: size_of::<sl_vulkan_offer>(),
            extension_count: offer.extensions.len() as u32,
            extensions,
            enabled: offer.enabled.into(),
            has_uuid: uuid.is_some().into(),
            uuid: uuid.unwrap_or(Uuid([0; 16])).0,
        });
        Ok(())
    })
}

/// Adopts a VkDevice of the program. The program still owns all of its handles.
///
/// From now on, until `free_owner` is called, the program uses the adopted queues only under
/// sl_queue_lock, and destroys neither the device nor the instance. `free_owner` is called once
/// with `owner`, on any thread, when nothing of Syncline uses the device any more; also if this
/// call fails. If `free_owner` is null, never destroy the device. Free the handle with
/// sl_device_free.
///
/// Asks the driver and does not wait for the device. SL_ERROR_UNAVAILABLE for a device without
/// timeline semaphores, or older than Vulkan 1.2.
///
/// # Safety
///
/// The handles belong together, and what `enabled` names is enabled. `info` points to a structure
/// whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_device_adopt_vulkan(
    info: *const sl_vulkan_adopt_info,
    owner: *mut c_void,
    free_owner: sl_drop,
    device: *mut sl_device,
) -> sl_result {
    let owner = Data::owner(owner, free_owner);
    call(|| {
        let place = out(device, "device")?;
        // SAFETY: by the contract of this function.
        let info = unsafe { info_in(info, "info")? };
        let loader = loader(info.get_instance_proc_addr)?;
        not_null(info.instance, "instance")?;
        not_null(info.physical_device, "physical_device")?;
        not_null(info.device, "device")?;
        // SAFETY: by the contract of this function.
        let queues = unsafe { list(info.queues, info.queue_count, "queues")? };
        for queue in queues {
            not_null(queue.queue, "queue")?;
        }
        // SAFETY: by the contract of this function.
        let adopted = unsafe {
            let mut adopted = AdoptInfo::from_handles(Handles {
                get_instance_proc_addr: Some(static_functions(loader)),
                instance: to_vk(info.instance),
                physical: to_vk(info.physical_device),
                device: to_vk(info.device),
            })?;
            adopted.queues = queues
                .iter()
                .map(|queue| (queue.family, queue.index, to_vk(queue.queue)))
                .collect();
            if info.enabled.reserved != [0; 12] {
                return Err(Refused::argument(
                    "enabled",
                    "has another reserved number than 0",
                ));
            }
            adopted.enabled = info.enabled.into();
            adopted.owner = owner;
            vulkan::Device::adopt(adopted)?
        };
        place.set(sl_device::new(Device::Vulkan(adopted)));
        Ok(())
    })
}

/// Adopts a CUDA context of the program: its own, or the primary one, which the CUDA runtime uses.
///
/// The program still owns the context. `free_owner` is called once with `owner`, on any thread,
/// when nothing of Syncline uses the context any more; also if this call fails. If `free_owner` is
/// null, never destroy the context. Free the handle with sl_device_free.
///
/// Loads the CUDA driver, which the environment variable SYNCLINE_CUDA_DRIVER may name.
/// SL_ERROR_UNAVAILABLE if there is none. SL_ERROR_UNSUPPORTED if the process has loaded two CUDA
/// drivers, or for a null context.
///
/// # Safety
///
/// `context` is a live context, and stays alive until `free_owner` is called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_device_adopt_cuda(
    context: CUcontext,
    owner: *mut c_void,
    free_owner: sl_drop,
    device: *mut sl_device,
) -> sl_result {
    let owner = Data::owner(owner, free_owner);
    call(|| {
        let place = out(device, "device")?;
        // SAFETY: by the contract of this function.
        let adopted = unsafe { cuda::Device::adopt_context(context, owner)? };
        place.set(sl_device::new(Device::Cuda(adopted)));
        Ok(())
    })
}

/// The raw handles of a device of Vulkan, adopted or opened by Syncline.
///
/// They are valid while the device lives. SL_ERROR_UNSUPPORTED for another device.
///
/// # Safety
///
/// `handles` points to a structure whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_device_get_vulkan(
    device: sl_device,
    handles: *mut sl_vulkan_handles,
) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        let place = unsafe { info_out(handles, "handles")? };
        let device = device.get()?;
        let device = device.vulkan()?;
        let loader = device.entry().static_fn().get_instance_proc_addr;
        place.set(sl_vulkan_handles {
            size: size_of::<sl_vulkan_handles>(),
            // SAFETY: both are the type of vkGetInstanceProcAddr.
            get_instance_proc_addr: Some(unsafe {
                std::mem::transmute::<vk::PFN_vkGetInstanceProcAddr, Loader>(loader)
            }),
            instance: from_vk(device.instance().handle()),
            physical_device: from_vk(device.physical()),
            device: from_vk(device.raw().handle()),
            enabled: device.enabled().into(),
        });
        Ok(())
    })
}

/// The context of a CUDA device, adopted or opened by Syncline.
///
/// It is valid while the device lives. SL_ERROR_UNSUPPORTED for another device.
#[unsafe(no_mangle)]
pub extern "C" fn sl_device_get_cuda(device: sl_device, context: *mut CUcontext) -> sl_result {
    call(|| {
        let place = out(context, "context")?;
        place.set(device.get()?.cuda()?.raw_context());
        Ok(())
    })
}

/// Opens a queue over a VkQueue of a device: one that was adopted, or one of Syncline's.
///
/// `family` and `index` are those of the VkQueue. `label` is a name for error texts, or null. Free
/// the queue with sl_queue_free. SL_ERROR_UNSUPPORTED if the device has no such queue.
///
/// # Safety
///
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_queue_open_vulkan(
    device: sl_device,
    family: u32,
    index: u32,
    label: *const c_char,
    queue: *mut sl_queue,
) -> sl_result {
    call(|| {
        let place = out(queue, "queue")?;
        // SAFETY: by the contract of this function.
        let label = &*unsafe { told(label) };
        let device = device.get()?;
        let opened = device.vulkan()?.queue_on(family, index, label)?;
        place.set(sl_queue::new(Queue::Vulkan(opened)));
        Ok(())
    })
}

/// Adopts a CUDA stream of the program, also one of the CUDA runtime.
///
/// `device` has the stream's context. Null or CU_STREAM_LEGACY is the legacy default stream. The
/// per-thread default stream is refused. Create streams with CU_STREAM_NON_BLOCKING. `free_owner`
/// is called once with `owner`, on any thread, when nothing of Syncline uses the stream any more;
/// also if this call fails. `label` is a name for error texts, or null. Free the queue with
/// sl_queue_free.
///
/// # Safety
///
/// `stream` is a live stream, and stays alive until `free_owner` is called. A capture of it begins
/// and ends while its queue is locked (sl_queue_lock). `label` is null, or a text that ends with a
/// zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_queue_adopt_cuda(
    device: sl_device,
    stream: CUstream,
    label: *const c_char,
    owner: *mut c_void,
    free_owner: sl_drop,
    queue: *mut sl_queue,
) -> sl_result {
    let owner = Data::owner(owner, free_owner);
    call(|| {
        let place = out(queue, "queue")?;
        // SAFETY: by the contract of this function.
        let label = &*unsafe { told(label) };
        let device = device.get()?;
        // SAFETY: by the contract of this function.
        let adopted = unsafe { device.cuda()?.adopt_raw_stream(stream, owner, label)? };
        place.set(sl_queue::new(Queue::Cuda(adopted)));
        Ok(())
    })
}

/// Makes a timeline of a timeline semaphore of the program, or of another library.
///
/// The timeline begins at the value of the semaphore, which Syncline does not destroy. From now on
/// the semaphore is signalled in three ways alone: through the timeline, under its claims, and by
/// others to values that sl_timeline_signalled_by_others has noted before the next signal of the
/// timeline is submitted or claimed. The first signal of others after one of the timeline waits for
/// that one. If signals of others are pending, note the highest one at once. `label` is a name for
/// error texts, or null. Free the timeline with sl_timeline_free.
///
/// # Safety
///
/// `semaphore` is a timeline semaphore of the VkDevice. It outlives the timeline and every
/// submission that uses it. It also lives until it has the values that submissions were to signal,
/// because Syncline signals the value of a submission that is skipped. `label` is null, or a text
/// that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_timeline_adopt_vulkan(
    device: sl_device,
    semaphore: VkSemaphore,
    label: *const c_char,
    timeline: *mut sl_timeline,
) -> sl_result {
    call(|| {
        let place = out(timeline, "timeline")?;
        // SAFETY: by the contract of this function.
        let label = &*unsafe { told(label) };
        not_null(semaphore, "semaphore")?;
        let device = device.get()?;
        let device = device.vulkan()?;
        // SAFETY: by the contract of this function.
        let (port, value) = unsafe { device.adopt_semaphore(to_vk(semaphore), false)? };
        let made = Timeline::new(label, value, |_| Ok([port].into_iter().collect()))?;
        place.set(sl_timeline::new(made.into()));
        Ok(())
    })
}

/// Makes a timeline of a word of the program's memory, which a kernel or another library writes.
///
/// `address` is a CUdeviceptr of device, pinned or registered memory, and `bits` is 32 or 64. The
/// timeline begins at `reached`, of which the word shows the low bits. Streams of the device wait
/// for its values and write it, without the host. Note each value of others by
/// sl_timeline_signalled_by_others once its write is on its way. Until then, waits for it are held.
/// In device memory, at most 32 noted values may be outstanding, and the host signals no value.
///
/// `free_owner` is called once with `owner`, on any thread, when nothing of Syncline uses the word
/// any more; also if this call fails. If it is null, the memory stays until the timeline and its
/// submissions are gone. `label` is a name for error texts, or null. Free the timeline with
/// sl_timeline_free. SL_ERROR_UNSUPPORTED if streams of the device cannot wait for the word; the
/// text says why.
///
/// # Safety
///
/// The memory stays until `free_owner` is called. The word changes only by signals of the timeline
/// and by noted values. Each of them is above the one before, and comes after it. Writes of this
/// process are atomic. A kernel writes its results before it, with a fence of the system's scope
/// between both. While a stream waits for a value of 32 bits, the word does not get 2^31 past it.
/// Without an owner, the memory also stays until each noted value was written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_timeline_adopt_word(
    device: sl_device,
    address: u64,
    bits: u32,
    reached: u64,
    label: *const c_char,
    owner: *mut c_void,
    free_owner: sl_drop,
    timeline: *mut sl_timeline,
) -> sl_result {
    let owner = Data::owner(owner, free_owner);
    call(|| {
        let place = out(timeline, "timeline")?;
        // SAFETY: by the contract of this function.
        let label = &*unsafe { told(label) };
        let word = match bits {
            32 => cuda::Word::Bits32(address),
            64 => cuda::Word::Bits64(address),
            other => return Err(Refused::argument("bits", format!("is {other}"))),
        };
        let device = device.get()?;
        // SAFETY: by the contract of this function.
        let made = unsafe { device.cuda()?.adopt_word(word, reached, owner, label)? };
        place.set(sl_timeline::new(made.into()));
        Ok(())
    })
}

/// Notes that others make the signals of an adopted semaphore or word up to `value`.
///
/// For a frame that other libraries signal, too, such as an AVVkFrame: call it with the value that
/// stands beside the semaphore, under the lock of the frame. The signals are with a driver, or come
/// without Syncline. Then queues may wait for the value, and submissions that were held for it go
/// to their drivers on the calling thread. A value that is pending or reached has no effect.
///
/// SL_ERROR_INVALID_VALUE if a submission of Syncline that is not with its driver is to signal the
/// value, and SL_ERROR_NOT_READY for one that is to signal a lower value: release the lock of the
/// frame after sl_submission_wait_submitted. SL_ERROR_UNSUPPORTED for any other timeline.
#[unsafe(no_mangle)]
pub extern "C" fn sl_timeline_signalled_by_others(timeline: sl_timeline, value: u64) -> sl_result {
    call(|| Ok(timeline.get()?.own()?.signalled_by_others(value)?))
}
