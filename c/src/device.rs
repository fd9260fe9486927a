//! Devices: the host's, and those of the machine.

use std::ffi::c_char;

use syncline::backend::Device as _;
use syncline::info::{BackendKind, Uuid};
use syncline::{Device, Error, Found, Inventory, ProbeOptions, host};

use crate::handle::{Handle, sl_device};
use crate::result::{Refused, call, cut_off, info_out, out, sl_result, text};

/// An API.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum sl_api {
    /// The host: work runs on threads of this process.
    SL_API_HOST = 0,
    /// CUDA.
    SL_API_CUDA = 1,
    /// Vulkan.
    SL_API_VULKAN = 2,
}

impl sl_api {
    pub(crate) const fn of(backend: BackendKind) -> Self {
        match backend {
            BackendKind::Cuda => Self::SL_API_CUDA,
            BackendKind::Vulkan => Self::SL_API_VULKAN,
            _ => Self::SL_API_HOST,
        }
    }
}

/// The bytes of a device's name in sl_device_info.
pub const SL_NAME_SIZE: usize = 256;

/// What a device is.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_device_info {
    /// The size of this structure, which the caller sets.
    pub size: usize,
    /// An sl_api.
    pub api: u32,
    /// 1 if the device is software.
    pub is_software: u32,
    /// 1 if uuid is known. One GPU has the same UUID in both APIs.
    pub has_uuid: u32,
    /// The UUID.
    pub uuid: [u8; 16],
    /// The name of the device, which ends with a zero byte.
    pub name: [c_char; SL_NAME_SIZE],
    /// 0.
    pub reserved: u32,
}

/// Makes a device of the host. It needs no driver.
///
/// Free it with sl_device_free.
#[unsafe(no_mangle)]
pub extern "C" fn sl_device_open_host(device: *mut sl_device) -> sl_result {
    call(|| {
        out(device, "device")?.set(sl_device::new(Device::Host(host::Device::new())));
        Ok(())
    })
}

/// Opens the device of this machine that `name` selects.
///
/// `name` is "cuda", "vulkan" or "host", the number of a device in the list of sl_report, or a part
/// of a device's name. Blocks for some 100 ms to open a CUDA context, or 600 ms for a VkDevice.
/// Free the device with sl_device_free.
///
/// # Safety
///
/// `name` is a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_device_open(name: *const c_char, device: *mut sl_device) -> sl_result {
    call(|| {
        let device = out(device, "device")?;
        // SAFETY: by the contract of this function.
        let name = unsafe { text(name, "name")? };
        let inventory = Inventory::probe(&ProbeOptions::default());
        device.set(sl_device::new(inventory.select(name)?.open()?));
        Ok(())
    })
}

/// Opens the device of an API that has a UUID, such as CUDA's device for the GPU of a VkDevice.
///
/// `api` is an sl_api. Blocks as sl_device_open. Each call opens a new, separate device. Free it
/// with sl_device_free. SL_ERROR_UNAVAILABLE with the list of the devices if none has the UUID.
///
/// # Safety
///
/// `uuid` has 16 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_device_open_uuid(
    api: u32,
    uuid: *const u8,
    device: *mut sl_device,
) -> sl_result {
    call(|| {
        let device = out(device, "device")?;
        let kind = match api {
            api if api == sl_api::SL_API_CUDA as u32 => BackendKind::Cuda,
            api if api == sl_api::SL_API_VULKAN as u32 => BackendKind::Vulkan,
            other => return Err(Refused::argument("api", format!("is {other}"))),
        };
        // SAFETY: by the contract of this function.
        let uuid = unsafe { uuid.cast::<[u8; 16]>().as_ref() };
        let uuid = Uuid(*uuid.ok_or_else(|| Refused::argument("uuid", "is null"))?);
        let inventory = Inventory::probe(&ProbeOptions::default());
        let found = inventory
            .devices()
            .iter()
            .find(|found| found.info().backend == kind && found.info().uuid == Some(uuid));
        let Some(found) = found else {
            // Says why the API cannot be used at all, if that is so.
            inventory.select(kind.name())?;
            let infos = inventory.devices().iter().map(Found::info);
            let asked = format!("{kind} with the UUID {uuid}");
            return Err(Error::no_device_among(&asked, infos).into());
        };
        device.set(sl_device::new(found.open()?));
        Ok(())
    })
}

/// Reads what a device is.
///
/// # Safety
///
/// `info` points to a structure whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_device_get_info(
    device: sl_device,
    info: *mut sl_device_info,
) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        let place = unsafe { info_out(info, "info")? };
        let device = device.get()?;
        let info = device.info();
        let mut name = [0; SL_NAME_SIZE];
        // One byte stays 0.
        let text = cut_off(&info.name, SL_NAME_SIZE - 1);
        for (to, byte) in name.iter_mut().zip(text.bytes()) {
            *to = byte as c_char;
        }
        place.set(sl_device_info {
            size: size_of::<sl_device_info>(),
            api: sl_api::of(info.backend) as u32,
            is_software: u32::from(info.software),
            has_uuid: u32::from(info.uuid.is_some()),
            uuid: info.uuid.map_or([0; 16], |uuid| uuid.0),
            name,
            reserved: 0,
        });
        Ok(())
    })
}

/// Asks the driver whether the device is lost: SL_ERROR_DEVICE_LOST. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn sl_device_check(device: sl_device) -> sl_result {
    call(|| Ok(device.get()?.check()?))
}

/// Frees a handle of a device. The device lives until all that was made with it is freed.
///
/// Then the call that frees the last part closes the device, and may block until the driver is
/// idle.
#[unsafe(no_mangle)]
pub extern "C" fn sl_device_free(device: sl_device) -> sl_result {
    call(|| device.free())
}
