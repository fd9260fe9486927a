//! Lists the devices of the driver and their capabilities.

use cudarc::driver::sys::CUdevice;
use syncline_core::backend;
use syncline_core::{
    Error, QueueKind, Result,
    error::Object,
    handle::HandleKind,
    info::{BackendKind, Capabilities, Info, QueueFamily, Uuid},
};

use crate::device::limits::{
    CLOCK_LIMIT, EVENTS_LIMIT, MEMORY_LIMIT, MEMORY_OPS_LIMIT, SYNC_FILES_LIMIT,
};
use crate::device::open::Device;
use crate::driver::table::{Code, Driver};

// From cuda.h. The variants of cudarc's enum differ between the versions that an application may
// choose.
const COMPUTE_MODE: u32 = 20;
const COMPUTE_MODE_PROHIBITED: i32 = 2;
const CAN_MAP_HOST_MEMORY: u32 = 19;
const UNIFIED_ADDRESSING: u32 = 41;
const COMPUTE_CAPABILITY_MAJOR: u32 = 75;
const CAN_FLUSH_REMOTE_WRITES: u32 = 98;
const FILE_DESCRIPTORS_OF_MEMORY: u32 = 103;
const TIMELINE_SEMAPHORE_INTEROP: u32 = 114;
const CAN_USE_64_BIT_STREAM_MEM_OPS: u32 = 122;
const CAN_USE_STREAM_WAIT_VALUE_NOR: u32 = 123;
const IPC_EVENT_SUPPORTED: u32 = 125;
const VULKAN_CIG_SUPPORTED: u32 = 138;

/// A device that can be opened, or the reason why it cannot.
#[derive(Debug)]
pub struct Candidate {
    /// The identity and capabilities of the device.
    pub info: Info,
    /// The reason why it cannot be used, if there is one.
    pub rejected: Option<Error>,
    /// The probed information or rejection, which the application cannot change.
    probed: Result<Info, Error>,
    driver: Driver,
    device: CUdevice,
}

impl Candidate {
    fn new(driver: &Driver, device: CUdevice, info: Info, rejected: Option<Error>) -> Self {
        Self {
            probed: rejected.clone().map_or_else(|| Ok(info.clone()), Err),
            info,
            rejected,
            driver: driver.clone(),
            device,
        }
    }

    /// Opens the device on its primary context, which the CUDA runtime uses too.
    ///
    /// # Errors
    /// The error in [`Candidate::rejected`], or a driver error.
    pub fn open(&self) -> Result<Device> {
        // The application may have changed the public fields. Imports are checked against the
        // driver's answers.
        let info = self.probed.clone()?;
        Device::open_probed(&self.driver, self.device, info)
    }
}

impl backend::Candidate for Candidate {
    type Device = Device;

    fn info(&self) -> &Info {
        &self.info
    }

    fn rejected(&self) -> Option<&Error> {
        self.rejected.as_ref()
    }

    fn open(&self) -> Result<Device> {
        self.open()
    }
}

impl Device {
    /// Loads the driver and opens the device with the number `ordinal`, on its primary context.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no driver, or if the device cannot be used.
    /// [`Error::NoSuchDevice`] if there are fewer devices. A driver error.
    pub fn open(ordinal: usize) -> Result<Self> {
        let devices = Driver::load()?.devices()?;
        match devices.get(ordinal) {
            Some(device) => device.open(),
            None => {
                let infos = devices.iter().map(|device| &device.info);
                Err(Error::no_device_among(&format!("cuda {ordinal}"), infos))
            }
        }
    }
}

impl Driver {
    /// Every device, in the driver's order. Opens none.
    ///
    /// A device that does not answer is rejected with its error.
    ///
    /// # Errors
    /// A driver error if the driver cannot list its devices.
    pub fn devices(&self) -> Result<Vec<Candidate>> {
        let object = Object::new("driver", "cuda");
        let native = |code: Code| self.error(&object, code);
        let devices = self.raw_devices().map_err(native)?;
        let candidates = devices.into_iter().enumerate().map(|(ordinal, device)| {
                let answers = self.info(device).and_then(|info| {
                    let mode = self.attribute(device, COMPUTE_MODE)?;
                    Ok((info, mode == COMPUTE_MODE_PROHIBITED))
                });
                let (info, prohibited) = match answers {
                    Ok(answers) => answers,
                    // Other devices may answer.
                    Err(code) => return self.unresponsive(ordinal, device, native(code)),
                };
                let rejected = prohibited.then(|| Error::unavailable(BackendKind::Cuda, format!(
                        "{} is in compute mode \"prohibited\"; an administrator can allow it with nvidia-smi -c 0",
                        info.name
                    )));
                Candidate::new(self, device, info, rejected)
            });
        Ok(candidates.collect())
    }

    /// CUDA's ordinal of the GPU with this UUID, for `cuDeviceGet` or `CudaContext::new`.
    ///
    /// For a program that has a Vulkan device and makes a CUDA context on the same GPU. Vulkan's
    /// `deviceUUID` is the same UUID. Makes no context. Ordinals count only what the variable
    /// `CUDA_VISIBLE_DEVICES` shows. A MIG partition is found by its own UUID alone.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`] with all devices and their UUIDs. Same errors as
    /// [`Driver::devices`].
    pub fn ordinal_of(&self, uuid: Uuid) -> Result<usize> {
        let devices = self.devices()?;
        let found = devices.iter().position(|it| it.info.uuid == Some(uuid));
        found.ok_or_else(|| {
            let uuid_of = |info: &Info| info.uuid.map(|uuid| format!(" {uuid}"));
            let lines = devices
                .iter()
                .enumerate()
                .map(|(ordinal, Candidate { info, .. })| {
                    let name = format!("{ordinal} \"{}\"", info.name);
                    name + &uuid_of(info).unwrap_or_default()
                });
            let have = lines.collect::<Vec<_>>().join(", ");
            let have = if have.is_empty() { "none".into() } else { have };
            Error::no_such_device(format!("cuda {uuid}"), have)
        })
    }

    /// A candidate for a device that does not answer.
    fn unresponsive(&self, ordinal: usize, device: CUdevice, error: Error) -> Candidate {
        let info = Info {
            backend: BackendKind::Cuda,
            name: format!("device {ordinal}, which does not answer"),
            vendor: self.vendor().into(),
            uuid: None,
            parent_uuid: None,
            driver_uuid: None,
            luid: None,
            driver: self.description(),
            software: self.is_software(),
            capabilities: Capabilities::default(),
        };
        Candidate::new(self, device, info, Some(error))
    }

    /// The vendor. CUDA only supports GPUs of NVIDIA.
    fn vendor(&self) -> &'static str {
        if self.is_software() {
            "Syncline, in software"
        } else {
            "NVIDIA"
        }
    }

    /// The identity and capabilities of a device.
    ///
    /// # Errors
    /// The driver's error for the name, the UUID or an attribute.
    pub(crate) fn info(&self, device: CUdevice) -> Result<Info, Code> {
        let uuid = self.device_uuid(device)?;
        Ok(Info {
            backend: BackendKind::Cuda,
            name: self.device_name(device)?,
            vendor: self.vendor().into(),
            uuid: Some(uuid),
            parent_uuid: self.whole_uuid(device).filter(|whole| *whole != uuid),
            driver_uuid: None,
            luid: self.device_luid(device),
            driver: self.description(),
            software: self.is_software(),
            capabilities: self.capabilities(device)?,
        })
    }

    /// The reason why the clock cannot be sampled, as far as known without a context.
    fn no_clock(&self, device: CUdevice) -> Result<Option<&'static str>, Code> {
        if self.attribute(device, COMPUTE_CAPABILITY_MAJOR)? < 5 {
            return Ok(Some(
                "the kernel that shows the clock needs compute capability 5.0 or newer",
            ));
        }
        if self.attribute(device, CAN_MAP_HOST_MEMORY)? == 0 {
            return Ok(Some(
                "the device cannot reach memory of the host, where its clock would be shown",
            ));
        }
        // The driver documents no other way to detect this.
        let is_off = std::env::var_os("CUDA_DISABLE_PTX_JIT").is_some_and(|value| value == "1");
        Ok(is_off.then_some(
            "CUDA_DISABLE_PTX_JIT keeps the driver from compiling the kernel that shows the clock",
        ))
    }

    /// The reason why the device has no interprocess events, as far as known without a context.
    ///
    /// Drivers before CUDA 12 do not have the attribute. They require unified addressing.
    fn no_interprocess_events(&self, device: CUdevice) -> Result<Option<String>, Code> {
        if let Some(missing) = self.missing_for_interprocess_events() {
            return Ok(Some(format!("the driver has no {missing}")));
        }
        if self.attribute(device, UNIFIED_ADDRESSING)? == 0 {
            let reason = "the device does not share an address space with the host";
            return Ok(Some(reason.into()));
        }
        let has_none = self.known_attribute(device, IPC_EVENT_SUPPORTED)? == Some(0);
        let reason = "the driver gives no events of this device to other processes";
        Ok(has_none.then(|| reason.into()))
    }

    fn capabilities(&self, device: CUdevice) -> Result<Capabilities, Code> {
        let can = |attribute| Ok::<_, Code>(self.attribute(device, attribute)? != 0);
        let maps_host_memory = can(CAN_MAP_HOST_MEMORY)?;
        let family = QueueFamily {
            kind: QueueKind::Compute,
            count: None,
            index: 0,
            timestamp_bits: 64,
        };
        let mut limits = vec![
            (
                "native timelines",
                "CUDA has no timeline object of its own; they are built from events".into(),
            ),
            (
                "exports",
                "CUDA makes no exportable semaphores; export from Vulkan and import here".into(),
            ),
            (
                SYNC_FILES_LIMIT,
                "CUDA's external semaphores take opaque descriptors; a host device makes a fence of a sync file, and any queue waits for that"
                    .into(),
            ),
            (
                "timestamps",
                "fences without a clock have the times of CUDA events, which resolve about 0.5 µs; differences of these are 32-bit floating milliseconds: steps of 1 µs after 8 s"
                    .into(),
            ),
        ];
        let no_clock = self.no_clock(device)?;
        let calibrated_clock = no_clock.is_none();
        limits.extend(no_clock.map(|reason| (CLOCK_LIMIT, reason.into())));
        let no_events = self.no_interprocess_events(device)?;
        limits.extend(no_events.map(|reason| (EVENTS_LIMIT, reason)));
        let mut exports = Vec::new();
        match (
            self.missing_for_exportable_memory(),
            can(FILE_DESCRIPTORS_OF_MEMORY)?,
        ) {
            (None, true) => exports.push(HandleKind::MemoryOpaqueFd),
            (Some(missing), _) => limits.push((
                MEMORY_LIMIT,
                format!("the driver has no {missing}, so its memory has no descriptors"),
            )),
            (None, false) => limits.push((
                MEMORY_LIMIT,
                "the driver gives no descriptors of this device's memory".into(),
            )),
        }
        let mut imports = Vec::new();
        if can(TIMELINE_SEMAPHORE_INTEROP)? {
            imports = vec![
                HandleKind::TimelineOpaqueFd,
                HandleKind::BinaryOpaqueFd,
                HandleKind::MemoryOpaqueFd,
            ];
        } else {
            limits.push((
                "imports",
                "the driver takes no timeline semaphores for this device".into(),
            ));
        }
        let missing = self.missing_for_memory_ops();
        let memory_ops = can(CAN_USE_64_BIT_STREAM_MEM_OPS)? && missing.is_none();
        if memory_ops && maps_host_memory {
            imports.push(HandleKind::CounterMemfd);
        } else {
            const CANNOT: &str = "streams neither wait for 64 bits of memory nor write them";
            let reason = match (missing, maps_host_memory) {
                (Some(missing), _) => format!("the driver has no {missing}, so its {CANNOT}"),
                (None, false) => "the device cannot reach memory of the host".into(),
                (None, true) => format!("the device's {CANNOT}"),
            };
            limits.push((MEMORY_OPS_LIMIT, reason));
        }
        Ok(Capabilities {
            driver_queues: true,
            native_timelines: false,
            binary_semaphores: false,
            timestamp_bits: 64,
            timestamp_period_ns: 1.0,
            calibrated_clock,
            stream_memory_ops: memory_ops,
            stream_memory_nor: memory_ops && can(CAN_USE_STREAM_WAIT_VALUE_NOR)?,
            stream_memory_flush: can(CAN_FLUSH_REMOTE_WRITES)?,
            cuda_in_graphics: can(VULKAN_CIG_SUPPORTED)?,
            max_value_difference: u64::MAX,
            exports,
            imports,
            queues: vec![family],
            limits,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::driver::emulated::device_with;
    use crate::driver::table::Optional;

    /// The emulated driver says yes to every attribute. The suite compares with a driver's no.
    #[test]
    fn cuda_in_graphics_is_what_the_driver_says() {
        let device = device_with(Optional::none());
        assert!(device.info().capabilities.cuda_in_graphics);
    }
}
