//! Functions that only this driver has, for tests and for detecting that it is software.
#![allow(non_snake_case, unsafe_code, reason = "exports functions")]

use crate::context::CONTEXTS;
use crate::event::EVENTS;
use crate::external::{MEMORY, SEMAPHORES};
use crate::faults;
use crate::graph::{EXECUTABLES, GRAPHS};
use crate::kernel::MODULES;
use crate::space;
use crate::stream::STREAMS;
use crate::user_object::USER_OBJECTS;

/// Returns 1. No other CUDA driver has this function.
// SAFETY: the name is this project's own.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn synclineSoftwareDriver() -> i32 {
    1
}

/// Returns how many objects an application has and has not destroyed, including memory.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn synclineSoftwareLiveObjects() -> u64 {
    let counts = [
        CONTEXTS.len(),
        STREAMS.len(),
        EVENTS.len(),
        MODULES.len(),
        GRAPHS.len(),
        EXECUTABLES.len(),
        USER_OBJECTS.len(),
        SEMAPHORES.len(),
        MEMORY.len(),
        space::count(),
    ];
    counts.iter().sum::<usize>() as u64
}

/// Returns how often the function of `SYNCLINE_SOFTWARE_CUDA_FAIL` has been called.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn synclineSoftwareCalls() -> u64 {
    faults::calls()
}
