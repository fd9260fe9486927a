//! The devices of the machine, before they are opened.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use cl3::device::{
    CL_DEVICE_EXTENSIONS, CL_DEVICE_NAME, CL_DEVICE_PROFILING_TIMER_RESOLUTION, CL_DEVICE_TYPE,
    CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU, CL_DEVICE_UUID_KHR, CL_DEVICE_VENDOR,
    CL_DEVICE_VERSION, CL_DRIVER_UUID_KHR, CL_DRIVER_VERSION, get_device_ids, get_device_info,
};
use cl3::error_codes::{CL_DEVICE_NOT_FOUND, error_text};
use cl3::info_type::InfoType;
use cl3::platform::get_platform_ids;
use cl3::types::cl_device_info;
use syncline_core::backend::Candidate;
use syncline_core::backend::kit::TeardownGuard;
use syncline_core::{
    Error, QueueKind, Result,
    error::Object,
    info::{BackendKind, Capabilities, Info, QueueFamily, Uuid},
};

use crate::cl::{self, DeviceHandle};
use crate::device::Device;

/// The backend in reports.
pub const BACKEND: BackendKind = BackendKind::Other("opencl");

static PROBING: Mutex<()> = Mutex::new(());

/// A device that was found, and can be opened.
pub struct Adapter {
    pub(crate) device: DeviceHandle,
    pub(crate) info: Info,
    pub(crate) timer_resolution: u64,
    rejected: Option<Error>,
}

impl Adapter {
    /// Lists the devices of all platforms. Loads OpenCL, but opens no device.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the reason if there is none.
    pub fn all() -> Result<Vec<Self>> {
        cl::load()?;
        // PoCL 3.1 crashes if two threads begin to use it at the same time.
        let _one = PROBING.lock().unwrap_or_else(PoisonError::into_inner);
        let platforms = get_platform_ids().map_err(|status| {
            // The loader's code without a driver is -1001.
            let name = error_text(status);
            Error::unavailable(
                BACKEND,
                format!("no driver: clGetPlatformIDs returned {name}"),
            )
        })?;
        // The platforms are libraries, which have been loaded just now.
        TeardownGuard::register();
        let (mut found, mut reason) = (Vec::new(), "no OpenCL driver has a device".to_owned());
        for platform in platforms {
            match get_device_ids(platform, CL_DEVICE_TYPE_ALL) {
                Ok(devices) => found.extend(devices.into_iter().map(DeviceHandle)),
                Err(CL_DEVICE_NOT_FOUND) => {}
                Err(status) => reason = format!("clGetDeviceIDs returned {}", error_text(status)),
            }
        }
        if found.is_empty() {
            return Err(Error::unavailable(BACKEND, reason));
        }
        Ok(found.into_iter().map(Self::new).collect())
    }

    fn new(device: DeviceHandle) -> Self {
        let text = |what| text(device, what);
        let number = |what| match get_device_info(device.0, what) {
            Ok(InfoType::Ulong(number)) => number,
            Ok(InfoType::Size(number)) => number as u64,
            _ => 0,
        };
        let has_uuid = text(CL_DEVICE_EXTENSIONS)
            .split(' ')
            .any(|name| name == "cl_khr_device_uuid");
        let uuid = |what| match get_device_info(device.0, what) {
            Ok(InfoType::Uuid(uuid)) if has_uuid => Some(Uuid(uuid)),
            _ => None,
        };
        let version = text(CL_DEVICE_VERSION);
        let name = text(CL_DEVICE_NAME);
        let rejected = (!has_markers(&version)).then(|| {
            let object = Object::new("OpenCL device", &name);
            Error::unsupported(object, "be opened", format!("{version} is older than 1.2"))
        });
        let info = Info {
            backend: BACKEND,
            name,
            vendor: text(CL_DEVICE_VENDOR),
            uuid: uuid(CL_DEVICE_UUID_KHR),
            parent_uuid: None,
            driver_uuid: uuid(CL_DRIVER_UUID_KHR),
            luid: None,
            driver: format!("{version}, driver {}", text(CL_DRIVER_VERSION)),
            software: number(CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU != 0,
            capabilities: capabilities(has_uuid),
        };
        Self {
            device,
            info,
            // A driver that states none counts in microseconds at worst.
            timer_resolution: number(CL_DEVICE_PROFILING_TIMER_RESOLUTION).max(1),
            rejected,
        }
    }
}

impl Candidate for Adapter {
    type Device = Device;

    fn info(&self) -> &Info {
        &self.info
    }

    fn open(&self) -> Result<Device> {
        match &self.rejected {
            Some(error) => Err(error.clone()),
            None => Device::open(self),
        }
    }

    fn rejected(&self) -> Option<&Error> {
        self.rejected.as_ref()
    }
}

impl fmt::Debug for Adapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Adapter({})", self.info.name)
    }
}

fn text(device: DeviceHandle, what: cl_device_info) -> String {
    let text = get_device_info(device.0, what).map_or_else(|_| String::new(), |it| it.to_string());
    // cl3 keeps the final NUL.
    text.trim_matches(['\0', ' ']).into()
}

/// Whether a version such as `OpenCL 3.0 CUDA` is 1.2 or later, which has markers with wait lists.
fn has_markers(version: &str) -> bool {
    let number = version.split(' ').nth(1).unwrap_or_default();
    number.parse().is_ok_and(|number: f32| number > 1.15)
}

fn capabilities(has_uuid: bool) -> Capabilities {
    let family = QueueFamily {
        kind: QueueKind::Compute,
        count: None,
        index: 0,
        timestamp_bits: 64,
    };
    let mut limits = vec![
        (
            "native timelines",
            "OpenCL has events, so a timeline is a list of them",
        ),
        ("binary semaphores", "OpenCL has none"),
        (
            "calibrated clock",
            "clGetDeviceAndHostTimer is optional: a marker is timed between two readings instead",
        ),
        ("stream memory operations", "OpenCL has none"),
        ("exports", "an OpenCL event has no handle"),
        ("imports", "an OpenCL event has no handle"),
        ("graphics queues", "OpenCL runs compute and transfer"),
        (
            "device loss",
            "OpenCL has no query for it: a command that fails shows it",
        ),
    ];
    if !has_uuid {
        limits.push(("UUID", "the driver lacks cl_khr_device_uuid"));
    }
    Capabilities {
        driver_queues: true,
        timestamp_bits: 64,
        timestamp_period_ns: 1.0,
        max_value_difference: u64::MAX,
        queues: vec![family],
        limits: limits
            .into_iter()
            .map(|(what, why)| (what, why.into()))
            .collect(),
        ..Capabilities::default()
    }
}
