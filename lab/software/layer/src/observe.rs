//! Functions of the layer for tests: they order a call to fail, and count calls and objects.
#![allow(non_snake_case, unsafe_code, reason = "exports functions")]

use std::ffi::{CStr, c_char};

use syncline_software_payload::{Gate, give_text};

/// The orders of a test in this process.
pub(crate) static GATE: Gate = Gate::new();

/// Orders one call to fail, and counts calls from now on. Null only counts, and ends an order.
///
/// Returns 0, or 1 if the text is no order. See `Gate::arm` in `lab/software/payload` for its form.
// SAFETY: the name is this project's own.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn synclineLayerArm(order: *const c_char) -> i32 {
    if order.is_null() {
        GATE.count();
        return 0;
    }
    // SAFETY: the caller passes a text that ends with 0.
    let order = unsafe { CStr::from_ptr(order) };
    let is_order = order.to_str().is_ok_and(|order| GATE.arm(order));
    i32::from(!is_order)
}

/// Withdraws the order. Returns the number of calls that have failed because of it.
// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn synclineLayerDisarm() -> u64 {
    GATE.disarm()
}

/// Writes the calls since the last order, as lines of text: see `Gate::calls`.
///
/// Returns how many bytes that takes. Writes nothing if there is less room.
// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn synclineLayerCallCounts(to: *mut u8, room: usize) -> usize {
    // SAFETY: the caller passes null, or memory for so many bytes.
    unsafe { give_text(&GATE.calls(), to, room) }
}

/// Writes the kinds of live objects and their numbers, as lines of text.
///
/// Returns how many bytes that takes. Writes nothing if there is less room.
// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn synclineLayerLiveKinds(to: *mut u8, room: usize) -> usize {
    // SAFETY: the caller passes null, or memory for so many bytes.
    unsafe { give_text(&GATE.live(), to, room) }
}
