//! Lists the physical devices of an instance and their capabilities.
#![allow(unsafe_code, reason = "asks the driver")]

use std::collections::HashSet;
use std::ffi::{CStr, CString};

use ash::{ext, khr, vk};
use syncline_core::{
    Error, QueueKind, Result,
    handle::HandleKind,
    info::{BackendKind, Capabilities, Info, QueueFamily, Uuid},
};

use crate::device::open::Device;
use crate::device::physical::{Enabled, Family, PhysicalDevice, SYNC_FILES_LIMIT};
use crate::driver::error::{call_failed, unavailable};
use crate::driver::instance::Instance;
use crate::driver::validation::driver_text;
use crate::timing::clock;

/// A physical device that can be opened, or the reason why it cannot.
#[derive(Clone)]
pub struct Candidate {
    /// The identity and capabilities of the device.
    pub info: Info,
    /// The reason why it cannot be used, if there is one.
    pub rejected: Option<Error>,
    instance: Instance,
    device: PhysicalDevice,
}

impl Candidate {
    pub(crate) fn new(instance: &Instance, physical: vk::PhysicalDevice) -> Self {
        // SAFETY: `physical` was just listed by this instance.
        let device =
            unsafe { PhysicalDevice::probe(instance.entry(), instance.raw(), physical, None) };
        Self {
            info: device.info.clone(),
            rejected: device.rejected.clone(),
            instance: instance.clone(),
            device,
        }
    }

    /// Opens a `VkDevice` with queues of every family.
    ///
    /// # Errors
    /// The error in [`Candidate::rejected`], or a driver error.
    pub fn open(&self) -> Result<Device> {
        // The application may have changed the public fields. The device is opened with the
        // driver's answers.
        match &self.device.rejected {
            Some(reason) => Err(reason.clone()),
            None => Device::open_probed(&self.instance, &self.device),
        }
    }

    /// The raw handle, valid while the instance lives.
    #[must_use]
    pub const fn physical(&self) -> vk::PhysicalDevice {
        self.device.raw
    }
}

impl Device {
    /// Makes an instance and opens the physical device with the number `index`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no loader, or if the device cannot be used.
    /// [`Error::NoSuchDevice`] if there are fewer devices. A driver error.
    pub fn open(index: usize) -> Result<Self> {
        let devices = Instance::load()?.devices()?;
        match devices.get(index) {
            Some(device) => device.open(),
            None => {
                let infos = devices.iter().map(|device| &device.info);
                Err(Error::no_device_among(&format!("vulkan {index}"), infos))
            }
        }
    }
}

impl Instance {
    /// Every physical device, including those that cannot be used, with the reason. May be empty.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the devices cannot be listed.
    pub fn devices(&self) -> Result<Vec<Candidate>> {
        // SAFETY: the instance is valid.
        let physical = unsafe { self.raw().enumerate_physical_devices() }.map_err(|code| {
            unavailable(format!(
                "listing the devices failed: {}",
                call_failed("vkEnumeratePhysicalDevices", code)
            ))
        })?;
        Ok(physical
            .into_iter()
            .map(|physical| Candidate::new(self, physical))
            .collect())
    }

    /// Opens the first device that can be used.
    ///
    /// # Errors
    /// [`Error::Unavailable`], with the name of every device and the reason why it cannot be used.
    /// Same errors as [`Candidate::open`].
    pub fn open_first(&self) -> Result<Device> {
        let mut reasons = Vec::new();
        for candidate in self.devices()? {
            match &candidate.rejected {
                None => return candidate.open(),
                Some(Error::Unavailable { reason, .. }) => reasons.push(reason.clone()),
                Some(other) => reasons.push(other.to_string()),
            }
        }
        Err(unavailable(if reasons.is_empty() {
            "the loader works, but no driver offers a device".to_owned()
        } else {
            format!("no device can be used: {}", reasons.join("; "))
        }))
    }
}

impl std::fmt::Debug for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate")
            .field("name", &self.info.name)
            .field("rejected", &self.rejected)
            .finish_non_exhaustive()
    }
}

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
            host_clock: None,
            wait_any_spins: false,
            query_read_blocks: false,
            needs_deferred_destroy: false,
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
        device.explain_limits();
        device
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
        self.wait_any_spins = driver.driver_id == vk::DriverId::MESA_LLVMPIPE;
        self.needs_deferred_destroy = self.wait_any_spins;
        self.query_read_blocks = self.wait_any_spins;
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
        let host_clock = calibration
            .map(|name| unsafe { clock::calibrated_with(entry, instance, self.raw, name) });
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
                .usage(crate::memory::buffer::CORE_USAGES)
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

    fn explain_limits(&mut self) {
        let capabilities = &mut self.info.capabilities;
        let limits = &mut capabilities.limits;
        let why = |there, extension| {
            if there {
                "the driver neither exports nor imports it as an opaque file descriptor".to_owned()
            } else {
                format!("{extension} is not there")
            }
        };
        let shares =
            |kind| capabilities.exports.contains(&kind) || capabilities.imports.contains(&kind);
        let (semaphores, memory) = (
            self.enabled.external_semaphore_fd,
            self.enabled.external_memory_fd,
        );
        for (what, kind, reason) in [
            (
                "sharing timelines",
                HandleKind::TimelineOpaqueFd,
                why(semaphores, "VK_KHR_external_semaphore_fd"),
            ),
            (
                "sharing binary semaphores",
                HandleKind::BinaryOpaqueFd,
                why(semaphores, "VK_KHR_external_semaphore_fd"),
            ),
            (
                SYNC_FILES_LIMIT,
                HandleKind::SyncFd,
                if semaphores {
                    "the driver neither exports nor imports binary semaphores as sync files"
                        .to_owned()
                } else {
                    why(semaphores, "VK_KHR_external_semaphore_fd")
                },
            ),
            (
                "sharing memory",
                HandleKind::MemoryOpaqueFd,
                why(memory, "VK_KHR_external_memory_fd"),
            ),
        ] {
            if !shares(kind) {
                limits.push((what, reason));
            }
        }
        if capabilities.timestamp_bits == 0 {
            limits.push((
                "timestamps",
                "no queue family has valid timestamp bits".into(),
            ));
        }
        if !capabilities.calibrated_clock {
            let reason = if capabilities.timestamp_bits == 0 {
                "no queue family has valid timestamp bits"
            } else {
                "neither VK_KHR_ nor VK_EXT_calibrated_timestamps is there with a monotonic clock of the host; \
                 submitted timestamps are bracketed instead, to some tens of microseconds"
            };
            limits.push(("calibrated clock", reason.into()));
        }
        limits.push((
            "stream memory operations",
            "Vulkan queues wait for semaphores, not for values in memory".into(),
        ));
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
