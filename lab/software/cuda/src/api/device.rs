//! Initialization, errors and devices.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use std::ffi::c_char;

use syncline_software_payload::register_destructors;

use crate::abi::{Out, api};
use crate::code::{Answer, Code};
use crate::device::{self, attribute, device, devices};
use crate::settings::settings;

fn uuid(to: &Out<[u8; 16]>, ordinal: i32) -> Answer {
    to.set(device(ordinal)?.uuid())
}

api! {
    fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        register_destructors();
        device::initialize()
    }

    fn cuDriverGetVersion(version: Out<i32>) {
        version.set(settings().map_or(device::VERSION, |settings| settings.version))
    }

    fn cuGetErrorName(code: u32, name: Out<*const c_char>) {
        let known = Code::from_number(code).name();
        name.set(known.map_or(std::ptr::null(), |known| known.as_ptr()))?;
        known.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    fn cuGetErrorString(code: u32, text: Out<*const c_char>) {
        let known = Code::from_number(code).text();
        text.set(known.map_or(std::ptr::null(), |known| known.as_ptr()))?;
        known.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }

    fn cuDeviceGetCount(count: Out<i32>) {
        count.set(devices()?.len() as i32)
    }

    fn cuDeviceGet(to: Out<i32>, ordinal: i32) {
        device(ordinal)?;
        to.set(ordinal)
    }

    fn cuDeviceGetName(name: Out<u8>, length: i32, ordinal: i32) {
        let full = device(ordinal)?.name();
        let capacity = usize::try_from(length).ok().and_then(|length| length.checked_sub(1));
        let capacity = capacity.ok_or(Code::INVALID_VALUE)?;
        name.require()?;
        let shown = &full.as_bytes()[..full.len().min(capacity)];
        // SAFETY: not null, and the application has `length` bytes there, one more than the
        // capacity.
        unsafe {
            name.pointer().copy_from_nonoverlapping(shown.as_ptr(), shown.len());
            name.pointer().add(shown.len()).write(0);
        }
        Ok(())
    }

    fn cuDeviceGetUuid(to: Out<[u8; 16]>, ordinal: i32) {
        uuid(&to, ordinal)
    }

    fn cuDeviceGetUuid_v2(to: Out<[u8; 16]>, ordinal: i32) {
        uuid(&to, ordinal)
    }

    fn cuDeviceGetLuid(_luid: Out<[u8; 8]>, _mask: Out<u32>, ordinal: i32) {
        device(ordinal)?;
        // Only Windows has them.
        Err(Code::NOT_SUPPORTED)
    }

    fn cuDeviceGetAttribute(value: Out<i32>, number: i32, ordinal: i32) {
        device(ordinal)?;
        let number = u32::try_from(number).unwrap_or(0);
        let own = attribute(number)?;
        let is_lacking = settings().is_ok_and(|settings| settings.lacks.contains(&number));
        value.set(if is_lacking { 0 } else { own })
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, ordinal: i32) {
        device(ordinal)?;
        bytes.set(device::MEMORY as usize)
    }
}
