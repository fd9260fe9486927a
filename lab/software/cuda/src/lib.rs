//! A CUDA driver in software.
//!
//! The dynamic library replaces `libcuda.so.1`. Its exported functions are in `api`, one file for
//! each chapter of the driver API. `README.md` beside the sources lists the differences from CUDA.
#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "in unit tests nothing calls the exported functions"
    )
)]

mod abi;
mod allocation;
mod api;
mod array;
mod backoff;
mod bug;
mod capture;
mod channel;
mod code;
mod context;
mod copy;
mod current;
mod device;
mod engine;
mod event;
mod external;
mod faults;
mod fill;
mod graph;
mod host_thread;
mod kernel;
mod mark;
mod memory_op;
mod news;
mod object;
mod operation;
mod progress;
mod settings;
mod shared_event;
mod space;
mod stream;
mod table;
mod user_object;
mod virtual_memory;
mod workers;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. Panics are handled where they happen, so a poisoned lock is still used.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
