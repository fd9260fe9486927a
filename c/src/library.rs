//! Version, names, and the devices of the machine.

use std::ffi::c_char;
use std::fmt::Write as _;

use syncline::{Inventory, ProbeOptions};

use crate::result::{call, sl_result, text_out};

/// The major version of the header. A program and a library of different major versions do not fit.
pub const SYNCLINE_VERSION_MAJOR: u32 = 0;
/// The minor version of the header. Before version 1.0, it must be equal, too.
pub const SYNCLINE_VERSION_MINOR: u32 = 1;
/// The patch version of the header.
pub const SYNCLINE_VERSION_PATCH: u32 = 0;

/// The version of the library: major * 1000000 + minor * 1000 + patch.
#[unsafe(no_mangle)]
pub extern "C" fn sl_version() -> u32 {
    SYNCLINE_VERSION_MAJOR * 1_000_000 + SYNCLINE_VERSION_MINOR * 1000 + SYNCLINE_VERSION_PATCH
}

/// The name of a result, such as "SL_ERROR_TIMED_OUT". "unknown" for another number.
#[unsafe(no_mangle)]
pub extern "C" fn sl_result_name(result: i32) -> *const c_char {
    macro_rules! names {
        ($($name:ident)+) => {
            match result {
                $(code if code == sl_result::$name as i32 => {
                    concat!(stringify!($name), "\0").as_ptr().cast()
                })+
                _ => c"unknown".as_ptr(),
            }
        };
    }
    names!(
        SL_SUCCESS SL_ERROR_UNAVAILABLE SL_ERROR_UNSUPPORTED SL_ERROR_DRIVER SL_ERROR_DEVICE_LOST
        SL_ERROR_MADE_BEFORE_FORK SL_ERROR_INVALID_VALUE SL_ERROR_DEADLOCK SL_ERROR_WORK
        SL_ERROR_FAILED SL_ERROR_CANCELLED SL_ERROR_TIMED_OUT SL_ERROR_NOT_READY SL_ERROR_NO_TIME
        SL_ERROR_CAPTURE SL_ERROR_PEER_LOST SL_ERROR_PEER_INVALID SL_ERROR_INVALID_ARGUMENT
        SL_ERROR_INVALID_HANDLE SL_ERROR_INTERNAL
    )
}

/// Lists the devices of this machine, and says why a device or an API cannot be used.
///
/// One line each. Opens no device. Loads the drivers, which may take some 100 ms. Writes at most
/// `size` bytes with the zero byte at the end, and cuts a longer text off. `length`, which may be
/// null, gets the length of the whole text without the zero byte.
///
/// # Safety
///
/// `buffer` has `size` bytes. It may be null if `size` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_report(
    buffer: *mut c_char,
    size: usize,
    length: *mut usize,
) -> sl_result {
    call(|| {
        let inventory = Inventory::probe(&ProbeOptions::default());
        let mut report = String::new();
        for found in inventory.devices() {
            let (index, info) = (found.index(), found.info());
            let _ = write!(report, "{index} {} {}", info.backend, info.marked_name());
            if let Some(uuid) = info.uuid {
                let _ = write!(report, " ({uuid})");
            }
            if let Some(reason) = found.rejected() {
                let _ = write!(report, ": {reason}");
            }
            report.push('\n');
        }
        for reason in inventory.unavailable() {
            let _ = writeln!(report, "{reason}");
        }
        // SAFETY: by the contract of this function.
        unsafe { text_out(&report, (buffer, size), length) }
    })
}
