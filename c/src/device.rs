//! Devices: the host's, and those of the machine.

use std::ffi::c_char;

use syncline::backend::Device as _;
use syncline::info::BackendKind;
use syncline::{Device, Inventory, ProbeOptions, host};

use crate::handle::{Handle, sl_device};
use crate::result::{Refused, call, out, sl_result, text};

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
/// of a device's name. Blocks for some 100 ms to open a CUDA context, or some 600 ms for a VkDevice.
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
        let place = unsafe { info.as_mut() };
        let place = place.ok_or_else(|| Refused::argument("info", "is null"))?;
        let size = size_of::<sl_device_info>();
        if place.size < size {
            let what = format!("has the size {}, and this version has {size}", place.size);
            return Err(Refused::argument("info", what));
        }
        let device = device.get()?;
        let info = device.info();
        let api = match info.backend {
            BackendKind::Cuda => sl_api::SL_API_CUDA,
            BackendKind::Vulkan => sl_api::SL_API_VULKAN,
            _ => sl_api::SL_API_HOST,
        };
        place.api = api as u32;
        place.is_software = u32::from(info.software);
        place.has_uuid = u32::from(info.uuid.is_some());
        place.uuid = info.uuid.map_or([0; 16], |uuid| uuid.0);
        Ok(())
    })
}

/// Asks the driver whether the device is lost.
#[unsafe(no_mangle)]
pub extern "C" fn sl_device_check(device: sl_device) -> sl_result {
    call(|| Ok(device.get()?.check()?))
}

/// Frees a handle of a device. The device lives until all that was made with it is freed.
#[unsafe(no_mangle)]
pub extern "C" fn sl_device_free(device: sl_device) -> sl_result {
    call(|| device.free())
}
