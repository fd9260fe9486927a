//! Physical devices, and what a `VkDevice` was created with.
#![allow(unsafe_code, reason = "asks the driver")]

use std::collections::HashSet;
use std::ffi::{CStr, CString};

use ash::{ext, khr, vk};
use syncline_core::clock::HostClock;
use syncline_core::{
    Error, QueueKind, Result,
    error::Object,
    handle::HandleKind,
    info::{BackendKind, Capabilities, Info, QueueFamily, Uuid},
};

use crate::device::limits;
use crate::driver::error::{call_failed, native, unavailable};
use crate::driver::instance::Instance;
use crate::driver::validation::driver_text;

/// Extensions and features of a `VkDevice` beyond Vulkan 1.2 and its feature `timelineSemaphore`.
///
/// Syncline does not use what is not enabled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Enabled {
    /// The feature `hostQueryReset`. Without it, queues of transfer-only families write no
    /// timestamps.
    pub host_query_reset: bool,
    /// `VK_KHR_external_semaphore_fd`, to share timelines.
    pub external_semaphore_fd: bool,
    /// `VK_KHR_external_memory_fd`, to share buffers and images.
    pub external_memory_fd: bool,
    /// `VK_KHR_calibrated_timestamps` or `VK_EXT_calibrated_timestamps`, to read both clocks
    /// together.
    pub calibrated_timestamps: bool,
}

/// The usages that every buffer has.
pub(crate) const TRANSFERS: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    vk::BufferUsageFlags::TRANSFER_SRC.as_raw() | vk::BufferUsageFlags::TRANSFER_DST.as_raw(),
);

/// The usages of Vulkan 1.0, none of which needs a feature or an extension.
///
/// Exported and imported buffers have them all, because both sides must create an identical buffer
/// in the same memory.
pub(crate) const CORE_USAGES: vk::BufferUsageFlags = vk::BufferUsageFlags::from_raw(
    TRANSFERS.as_raw()
        | vk::BufferUsageFlags::UNIFORM_TEXEL_BUFFER.as_raw()
        | vk::BufferUsageFlags::STORAGE_TEXEL_BUFFER.as_raw()
        | vk::BufferUsageFlags::UNIFORM_BUFFER.as_raw()
        | vk::BufferUsageFlags::STORAGE_BUFFER.as_raw()
        | vk::BufferUsageFlags::INDEX_BUFFER.as_raw()
        | vk::BufferUsageFlags::VERTEX_BUFFER.as_raw()
        | vk::BufferUsageFlags::INDIRECT_BUFFER.as_raw(),
);

/// A queue family that can run submissions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Family {
    pub(crate) index: u32,
    pub(crate) kind: QueueKind,
    pub(crate) count: u32,
    pub(crate) timestamp_bits: u32,
}

/// Everything that the backend knows of a physical device.
#[derive(Clone)]
pub(crate) struct PhysicalDevice {
    raw: vk::PhysicalDevice,
    info: Info,
    /// The reason why the device cannot be used, if there is one.
    rejected: Option<Error>,
    families: Vec<Family>,
    enabled: Enabled,
    /// True if the device is of Vulkan 1.3, which has the feature `synchronization2`.
    has_synchronization2: bool,
    host_clock: Option<HostClock>,
    /// True if the driver is lavapipe, Mesa's driver for the CPU.
    is_lavapipe: bool,
    binary_exports: vk::ExternalSemaphoreHandleTypeFlags,
    extensions: Vec<&'static CStr>,
}

/// An extension that ash does not have: CUDA in the context of a `VkDevice`.
const EXTERNAL_COMPUTE_QUEUE: &CStr = c"VK_NV_external_compute_queue";

/// The most driver queues that are created in one family. Logical queues share them.
const QUEUES_PER_FAMILY: u32 = 16;

/// The family of a driver queue, its index within the family, and its handle.
pub(crate) type QueueHandle = (u32, u32, vk::Queue);

impl PhysicalDevice {
    /// Queries the identity and capabilities of a physical device.
    ///
    /// `made_with` is what an existing device was created with. Without it, everything that the
    /// device offers counts.
    ///
    /// # Safety
    /// `physical` belongs to `instance`, which is valid, of the loader `entry`, and was created for
    /// Vulkan 1.2 or later.
    pub(crate) unsafe fn probe(
        entry: &ash::Entry,
        instance: &ash::Instance,
        physical: vk::PhysicalDevice,
        made_with: Option<Enabled>,
    ) -> Self {
        // SAFETY: the caller guarantees it, for all calls below too. ash passes valid pointers.
        let base = unsafe { instance.get_physical_device_properties(physical) };
        let name = driver_text(base.device_name_as_c_str()).into_owned();
        let mut device = Self {
            raw: physical,
            info: Info {
                backend: BackendKind::Vulkan,
                vendor: vendor(base.vendor_id),
                uuid: None,
                parent_uuid: None,
                driver_uuid: None,
                luid: None,
                driver: format!("version {:#x}", base.driver_version),
                software: base.device_type == vk::PhysicalDeviceType::CPU,
                capabilities: Capabilities::default(),
                name,
            },
            rejected: None,
            families: Vec::new(),
            enabled: Enabled::default(),
            has_synchronization2: base.api_version >= vk::API_VERSION_1_3,
            host_clock: None,
            is_lavapipe: false,
            binary_exports: vk::ExternalSemaphoreHandleTypeFlags::empty(),
            extensions: Vec::new(),
        };
        if base.api_version < vk::API_VERSION_1_2 {
            // Queries of later Vulkan versions must not be made.
            device.reject(&format!(
                "it speaks Vulkan {}.{}, but timeline semaphores need 1.2; update its driver",
                vk::api_version_major(base.api_version),
                vk::api_version_minor(base.api_version),
            ));
            return device;
        }
        // SAFETY: as above. The device supports Vulkan 1.2.
        unsafe {
            device.query_identity(instance);
            device.query_features(entry, instance, made_with);
            device.query_families(instance);
        }
        let bits = device.families.iter().map(|family| family.timestamp_bits);
        let capabilities = &mut device.info.capabilities;
        capabilities.timestamp_bits = bits.filter(|&bits| bits > 0).min().unwrap_or(0);
        capabilities.timestamp_period_ns = f64::from(base.limits.timestamp_period);
        capabilities.calibrated_clock = device.enabled.calibrated_timestamps
            && device.host_clock.is_some()
            && capabilities.timestamp_bits > 0;
        // SAFETY: as above.
        unsafe { device.query_sharing(instance) };
        let enabled = device.enabled;
        let (semaphores, memory) = (enabled.external_semaphore_fd, enabled.external_memory_fd);
        limits::explain(&mut device.info.capabilities, semaphores, memory);
        device
    }

    #[inline]
    pub(crate) const fn raw(&self) -> vk::PhysicalDevice {
        self.raw
    }

    pub(crate) const fn info(&self) -> &Info {
        &self.info
    }

    #[inline]
    pub(crate) const fn enabled(&self) -> Enabled {
        self.enabled
    }

    /// The families that can run submissions, ascending by index.
    pub(crate) fn families(&self) -> &[Family] {
        &self.families
    }

    /// The device extensions to enable.
    pub(crate) fn extensions(&self) -> &[&'static CStr] {
        &self.extensions
    }

    /// The clock of the host that the driver calibrates together with the device's clock.
    pub(crate) const fn host_clock(&self) -> Option<HostClock> {
        self.host_clock
    }

    /// The handle types that a new binary semaphore can be exported as.
    ///
    /// Opaque descriptors if the driver exports them, and sync files if the driver combines both.
    pub(crate) const fn binary_exports(&self) -> vk::ExternalSemaphoreHandleTypeFlags {
        self.binary_exports
    }

    /// True if `vkWaitSemaphores` with `VK_SEMAPHORE_WAIT_ANY` is a busy loop.
    ///
    /// Mesa's common code has a busy loop for drivers that emulate timeline semaphores. Only
    /// lavapipe does.
    pub(crate) const fn wait_any_spins(&self) -> bool {
        self.is_lavapipe
    }

    /// True if `vkGetQueryPoolResults` waits for all work of the device, whatever its flags.
    ///
    /// The function of lavapipe does.
    pub(crate) const fn query_read_blocks(&self) -> bool {
        self.is_lavapipe
    }

    /// True if the driver needs [`deferred_destroy`](crate::device::deferred_destroy).
    pub(crate) const fn needs_deferred_destroy(&self) -> bool {
        self.is_lavapipe
    }

    /// Fails if the device cannot be used.
    ///
    /// # Errors
    /// The reason.
    pub(crate) fn usable(&self) -> Result<()> {
        self.rejected.clone().map_or(Ok(()), Err)
    }

    /// Changes the number of valid timestamp bits.
    #[cfg(test)]
    pub(crate) fn with_timestamp_bits(mut self, bits: u32) -> Self {
        self.info.capabilities.timestamp_bits = bits;
        self
    }

    /// Calls `vkCreateDevice` with queues of every family and everything that is `enabled`.
    ///
    /// `object` is the name of the new device. Returns its queues too.
    ///
    /// # Errors
    /// A driver error.
    ///
    /// # Safety
    /// The physical device belongs to `instance`.
    pub(crate) unsafe fn create_device(
        &self,
        instance: &Instance,
        object: &Object,
    ) -> Result<(ash::Device, Vec<QueueHandle>)> {
        let priorities = [1.0; QUEUES_PER_FAMILY as usize];
        let count = |family: &Family| family.count.min(QUEUES_PER_FAMILY);
        let queues: Vec<_> = self
            .families
            .iter()
            .map(|family| {
                vk::DeviceQueueCreateInfo::default()
                    .queue_family_index(family.index)
                    .queue_priorities(&priorities[..count(family) as usize])
            })
            .collect();
        let extensions: Vec<_> = self.extensions.iter().map(|name| name.as_ptr()).collect();
        let mut timelines =
            vk::PhysicalDeviceTimelineSemaphoreFeatures::default().timeline_semaphore(true);
        let mut reset = vk::PhysicalDeviceHostQueryResetFeatures::default()
            .host_query_reset(self.enabled.host_query_reset);
        // For calls of the application.
        let mut synchronization =
            vk::PhysicalDeviceSynchronization2Features::default().synchronization2(true);
        let mut info = vk::DeviceCreateInfo::default()
            .queue_create_infos(&queues)
            .enabled_extension_names(&extensions)
            .push_next(&mut timelines)
            .push_next(&mut reset);
        if self.has_synchronization2 {
            info = info.push_next(&mut synchronization);
        }
        // SAFETY: `info` is valid and enables only what the physical device offers. The caller
        // guarantees that the physical device is of this instance.
        let device = unsafe { instance.raw().create_device(self.raw, &info, None) }
            .map_err(|code| native(object, "vkCreateDevice", code))?;
        let mut handles = Vec::new();
        for family in &self.families {
            for index in 0..count(family) {
                // SAFETY: the device was made with this queue.
                let queue = unsafe { device.get_device_queue(family.index, index) };
                handles.push((family.index, index, queue));
            }
        }
        Ok((device, handles))
    }

    fn reject(&mut self, why: &str) {
        self.rejected = Some(unavailable(format!("{}: {why}", self.info.name)));
    }

    /// Queries `VkPhysicalDeviceIDProperties`, `…DriverProperties` and
    /// `…TimelineSemaphoreProperties`.
    ///
    /// # Safety
    /// Same as [`PhysicalDevice::probe`], for a device of Vulkan 1.2 or later.
    unsafe fn query_identity(&mut self, instance: &ash::Instance) {
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut driver = vk::PhysicalDeviceDriverProperties::default();
        let mut timelines = vk::PhysicalDeviceTimelineSemaphoreProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default()
            .push_next(&mut id)
            .push_next(&mut driver)
            .push_next(&mut timelines);
        // SAFETY: the caller guarantees it.
        unsafe { instance.get_physical_device_properties2(self.raw, &mut all) };
        self.info.uuid = Some(Uuid(id.device_uuid));
        self.info.driver_uuid = Some(Uuid(id.driver_uuid));
        self.info.luid = (id.device_luid_valid == vk::TRUE).then_some(id.device_luid);
        self.is_lavapipe = driver.driver_id == vk::DriverId::MESA_LLVMPIPE;
        let words = [
            driver_text(driver.driver_name_as_c_str()),
            driver_text(driver.driver_info_as_c_str()),
        ];
        self.info.driver = words.join(" ").trim().to_owned();
        self.info.capabilities.max_value_difference =
            timelines.max_timeline_semaphore_value_difference;
    }

    /// # Safety
    /// Same as [`PhysicalDevice::query_identity`].
    unsafe fn query_features(
        &mut self,
        entry: &ash::Entry,
        instance: &ash::Instance,
        made_with: Option<Enabled>,
    ) {
        let mut timelines = vk::PhysicalDeviceTimelineSemaphoreFeatures::default();
        let mut reset = vk::PhysicalDeviceHostQueryResetFeatures::default();
        let mut all = vk::PhysicalDeviceFeatures2::default()
            .push_next(&mut timelines)
            .push_next(&mut reset);
        // SAFETY: the caller guarantees it.
        let offered = unsafe {
            instance.get_physical_device_features2(self.raw, &mut all);
            instance.enumerate_device_extension_properties(self.raw)
        };
        let (timelines, reset) = (timelines.timeline_semaphore, reset.host_query_reset);
        let (offered, list_error) = match offered {
            Ok(offered) => (offered, None),
            Err(code) => (Vec::new(), Some(code)),
        };
        let offered: HashSet<CString> = offered
            .iter()
            .filter_map(|extension| extension.extension_name_as_c_str().ok().map(Into::into))
            .collect();
        let calibration = [
            khr::calibrated_timestamps::NAME,
            ext::calibrated_timestamps::NAME,
        ]
        .into_iter()
        .find(|name| offered.contains(*name));
        // SAFETY: the caller guarantees it. The extension is offered.
        let host_clock =
            calibration.map(|name| unsafe { calibrated_with(entry, instance, self.raw, name) });
        let (host_clock, domains_error) = match host_clock.transpose() {
            Ok(clock) => (clock.flatten(), None),
            Err(failed) => (None, Some(failed)),
        };
        self.host_clock = host_clock;
        // Not enabled if the driver calibrates neither of these clocks.
        let calibration = calibration.filter(|_| self.host_clock.is_some());
        let mut enable = |name: &'static CStr| {
            let found = offered.contains(name);
            self.extensions.extend(found.then_some(name));
            found
        };
        self.enabled = Enabled {
            host_query_reset: reset == vk::TRUE,
            external_semaphore_fd: enable(khr::external_semaphore_fd::NAME),
            external_memory_fd: enable(khr::external_memory_fd::NAME),
            calibrated_timestamps: calibration.is_some_and(enable),
        };
        if let Some(made_with) = made_with {
            // The application's flags count, whatever the driver offers.
            self.enabled = made_with;
            // Without calibrated timestamps, the device's clock is compared with `CLOCK_MONOTONIC`.
            self.host_clock = self.host_clock.filter(|_| made_with.calibrated_timestamps);
        } else if let Some(code) = list_error {
            let failed = call_failed("vkEnumerateDeviceExtensionProperties", code);
            self.reject(&format!(
                "its driver does not tell its extensions: {failed}"
            ));
        }
        if let Some((call, code)) = domains_error
            && made_with.is_none_or(|made_with| made_with.calibrated_timestamps)
        {
            let failed = call_failed(call, code);
            self.reject(&format!(
                "its driver does not tell which clocks it calibrates: {failed}"
            ));
        }
        self.info.capabilities.cuda_in_graphics = offered.contains(EXTERNAL_COMPUTE_QUEUE);
        self.info.capabilities.driver_queues = true;
        self.info.capabilities.binary_semaphores = true;
        self.info.capabilities.native_timelines = timelines == vk::TRUE;
        if timelines != vk::TRUE {
            self.reject(
                "its driver has no timeline semaphores (feature timelineSemaphore); update it",
            );
        }
    }

    /// # Safety
    /// Same as [`PhysicalDevice::query_identity`].
    unsafe fn query_families(&mut self, instance: &ash::Instance) {
        // SAFETY: the caller guarantees it.
        let all = unsafe { instance.get_physical_device_queue_family_properties(self.raw) };
        self.families = (0..)
            .zip(&all)
            .filter_map(|(index, family)| {
                Some(Family {
                    index,
                    kind: kind(family.queue_flags)?,
                    count: family.queue_count,
                    timestamp_bits: family.timestamp_valid_bits,
                })
            })
            .collect();
        self.info.capabilities.queues = self
            .families
            .iter()
            .map(|family| QueueFamily {
                kind: family.kind,
                count: Some(family.count),
                index: family.index,
                timestamp_bits: family.timestamp_bits,
            })
            .collect();
        if self.families.is_empty() {
            self.reject("it has no queue for graphics, compute or transfer");
        }
    }

    /// Calls `vkGetPhysicalDeviceExternalSemaphoreProperties` and `…ExternalBufferProperties`.
    ///
    /// # Safety
    /// Same as [`PhysicalDevice::query_identity`].
    unsafe fn query_sharing(&mut self, instance: &ash::Instance) {
        let mut note = |kind, (exports, imports)| {
            let capabilities = &mut self.info.capabilities;
            capabilities.exports.extend(Some(kind).filter(|_| exports));
            capabilities.imports.extend(Some(kind).filter(|_| imports));
        };
        if self.enabled.external_semaphore_fd {
            use vk::ExternalSemaphoreHandleTypeFlags as Handles;
            let (timeline, binary) = (vk::SemaphoreType::TIMELINE, vk::SemaphoreType::BINARY);
            // In this order, because `binary_exports` is extended below by one type after the
            // other.
            for (kind, semaphore, handle) in [
                (HandleKind::TimelineOpaqueFd, timeline, Handles::OPAQUE_FD),
                (HandleKind::BinaryOpaqueFd, binary, Handles::OPAQUE_FD),
                (HandleKind::SyncFd, binary, Handles::SYNC_FD),
            ] {
                // The answer depends on the semaphore type, so the query contains it.
                let mut type_info =
                    vk::SemaphoreTypeCreateInfo::default().semaphore_type(semaphore);
                let info = vk::PhysicalDeviceExternalSemaphoreInfo::default()
                    .handle_type(handle)
                    .push_next(&mut type_info);
                let mut answer = vk::ExternalSemaphoreProperties::default();
                // SAFETY: the caller guarantees it.
                unsafe {
                    instance.get_physical_device_external_semaphore_properties(
                        self.raw,
                        &info,
                        &mut answer,
                    );
                }
                let has = |bit| answer.external_semaphore_features.contains(bit);
                let exports = has(vk::ExternalSemaphoreFeatureFlags::EXPORTABLE);
                let imports = has(vk::ExternalSemaphoreFeatureFlags::IMPORTABLE);
                note(kind, (exports, imports));
                let with = self.binary_exports | handle;
                // VUID-VkExportSemaphoreCreateInfo-handleTypes-01124.
                let combines = with == handle || answer.compatible_handle_types.contains(with);
                if semaphore == binary && exports && combines {
                    self.binary_exports = with;
                }
            }
        }
        if self.enabled.external_memory_fd {
            let info = vk::PhysicalDeviceExternalBufferInfo::default()
                .usage(CORE_USAGES)
                .handle_type(vk::ExternalMemoryHandleTypeFlags::OPAQUE_FD);
            let mut answer = vk::ExternalBufferProperties::default();
            // SAFETY: the caller guarantees it.
            unsafe {
                instance.get_physical_device_external_buffer_properties(
                    self.raw,
                    &info,
                    &mut answer,
                );
            }
            let features = answer.external_memory_properties.external_memory_features;
            let exports = features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE);
            let imports = features.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE);
            note(HandleKind::MemoryOpaqueFd, (exports, imports));
        }
    }
}

/// The most capable kind that a family supports.
///
/// Returns `None` for families of video or optical-flow engines.
fn kind(flags: vk::QueueFlags) -> Option<QueueKind> {
    use vk::QueueFlags as F;
    if flags.contains(F::GRAPHICS | F::COMPUTE) {
        Some(QueueKind::Graphics)
    } else if flags.contains(F::COMPUTE) {
        Some(QueueKind::Compute)
    } else if flags.contains(F::GRAPHICS) {
        // Allowed by the specification, but unusual: no compute. Graphics implies transfer.
        Some(QueueKind::Transfer)
    } else {
        let plain = F::TRANSFER | F::SPARSE_BINDING | F::PROTECTED;
        (flags.contains(F::TRANSFER) && plain.contains(flags)).then_some(QueueKind::Transfer)
    }
}

/// The vendor's name, from its PCI id or from Khronos' `VkVendorId`.
fn vendor(id: u32) -> String {
    match id {
        0x10de => "NVIDIA".into(),
        0x1002 | 0x1022 => "AMD".into(),
        0x8086 => "Intel".into(),
        0x13b5 => "Arm".into(),
        0x5143 => "Qualcomm".into(),
        0x1010 => "Imagination".into(),
        0x106b => "Apple".into(),
        0x1ae0 => "Google".into(),
        0x10005 => "Mesa".into(),
        other => format!("vendor {other:#06x}"),
    }
}

/// The host's clock that the driver reads together with the device's. Prefers `CLOCK_MONOTONIC`.
///
/// # Errors
/// The failed driver function and its result, if the driver does not list its time domains.
///
/// # Safety
/// `physical` belongs to `instance`, which is valid, and offers `extension`, one of the two of
/// calibrated timestamps.
unsafe fn calibrated_with(
    entry: &ash::Entry,
    instance: &ash::Instance,
    physical: vk::PhysicalDevice,
    extension: &CStr,
) -> Result<Option<HostClock>, (&'static str, vk::Result)> {
    let is_khr = extension == khr::calibrated_timestamps::NAME;
    let call = if is_khr {
        c"vkGetPhysicalDeviceCalibrateableTimeDomainsKHR"
    } else {
        c"vkGetPhysicalDeviceCalibrateableTimeDomainsEXT"
    };
    // A loader or layer that is older than the extension may not have the function. ash would then
    // end the process.
    // SAFETY: a valid instance of this loader. The name ends with a zero byte.
    if unsafe { entry.get_instance_proc_addr(instance.handle(), call.as_ptr()) }.is_none() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees it. The function exists.
    let domains = unsafe {
        if is_khr {
            khr::calibrated_timestamps::Instance::new(entry, instance)
                .get_physical_device_calibrateable_time_domains(physical)
        } else {
            ext::calibrated_timestamps::Instance::new(entry, instance)
                .get_physical_device_calibrateable_time_domains(physical)
        }
    };
    let domains = domains.map_err(|code| (call.to_str().unwrap_or_default(), code))?;
    let host = if domains.contains(&vk::TimeDomainKHR::CLOCK_MONOTONIC) {
        HostClock::Monotonic
    } else if domains.contains(&vk::TimeDomainKHR::CLOCK_MONOTONIC_RAW) {
        HostClock::MonotonicRaw
    } else {
        return Ok(None);
    };
    Ok(domains.contains(&vk::TimeDomainKHR::DEVICE).then_some(host))
}
