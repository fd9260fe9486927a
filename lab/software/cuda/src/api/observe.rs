//! Functions that only this driver has, for tests and for detecting that it is software.
#![allow(non_snake_case, unsafe_code, reason = "exports functions")]

use std::ffi::{CStr, c_char};

use syncline_software_payload::give_text;

use crate::array::MIPMAPPED;
use crate::context::CONTEXTS;
use crate::event::EVENTS;
use crate::external::{MEMORY, SEMAPHORES};
use crate::faults;
use crate::graph::{EXECUTABLES, GRAPHS};
use crate::kernel::MODULES;
use crate::object::{SURFACES, TEXTURES};
use crate::space;
use crate::stream::STREAMS;
use crate::user_object::USER_OBJECTS;
use crate::virtual_memory::PHYSICAL;

/// Returns 1. No other CUDA driver has this function.
// SAFETY: the name is this project's own.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn synclineSoftwareDriver() -> i32 {
    1
}

/// Returns how many objects an application has and has not destroyed, including memory.
// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn synclineSoftwareLiveObjects() -> u64 {
    live().iter().map(|(_, count)| count).sum::<usize>() as u64
}

fn live() -> [(&'static str, usize); 15] {
    [
        ("contexts", CONTEXTS.len()),
        ("streams", STREAMS.len()),
        ("events", EVENTS.len()),
        ("modules", MODULES.len()),
        ("graphs", GRAPHS.len()),
        ("executables", EXECUTABLES.len()),
        ("user-objects", USER_OBJECTS.len()),
        ("external-semaphores", SEMAPHORES.len()),
        ("external-memory", MEMORY.len()),
        ("mipmapped-arrays", MIPMAPPED.len()),
        ("surfaces", SURFACES.len()),
        ("textures", TEXTURES.len()),
        ("allocations", space::count()),
        ("physical-memory", PHYSICAL.len()),
        ("reserved-addresses", space::count_reserved()),
    ]
}

/// Writes the kinds of live objects and their numbers, as lines of text.
///
/// Returns how many bytes that takes. Writes nothing if there is less room.
// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn synclineSoftwareLiveKinds(to: *mut u8, room: usize) -> usize {
    let lines = live().map(|(kind, count)| format!("{kind} {count}\n"));
    let lines = lines.into_iter().chain([faults::GATE.live()]);
    // SAFETY: the caller passes null, or memory for so many bytes.
    unsafe { give_text(&lines.collect::<String>(), to, room) }
}

/// Orders one call to fail, and counts calls from now on. Null only counts, and ends an order.
///
/// Returns 0, or 1 if the text is no order. See `Gate::arm` in `lab/software/payload` for its form.
// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn synclineSoftwareArm(order: *const c_char) -> i32 {
    if order.is_null() {
        faults::GATE.count();
        return 0;
    }
    // SAFETY: the caller passes a text that ends with 0.
    let order = unsafe { CStr::from_ptr(order) };
    let is_order = order.to_str().is_ok_and(|order| faults::GATE.arm(order));
    i32::from(!is_order)
}

/// Withdraws the order. Returns the number of calls that have failed because of it.
// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn synclineSoftwareDisarm() -> u64 {
    faults::GATE.disarm()
}

/// Writes the calls since the last order, as lines of text: see `Gate::calls`.
///
/// Returns how many bytes that takes. Writes nothing if there is less room.
// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn synclineSoftwareCallCounts(to: *mut u8, room: usize) -> usize {
    // SAFETY: the caller passes null, or memory for so many bytes.
    unsafe { give_text(&faults::GATE.calls(), to, room) }
}

/// Returns how often the function of `SYNCLINE_SOFTWARE_CUDA_FAIL` has been called.
// SAFETY: as above.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) extern "C" fn synclineSoftwareCalls() -> u64 {
    faults::calls()
}
