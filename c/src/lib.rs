//! The C interface of Syncline.
//!
//! The header `include/syncline.h` is made from this crate. `docs/c.md` leads through it.
//!
//! | file | contents |
//! |---|---|
//! | `handle` | handles as C has them, and the tables behind them |
//! | `result` | result codes, the last error of a thread, and the guard around each call |
//! | `library` | version and names |
//! | `device` | devices: the host's, and those of the machine |
//! | `timeline` | timelines: make, signal, fail, query, wait |
//! | `queue` | queues, and submissions with a callback |

#![expect(
    non_camel_case_types,
    reason = "the names of C, which the header takes from here"
)]
#![allow(unsafe_code, reason = "the border to C")]

mod device;
mod handle;
mod library;
mod queue;
mod result;
mod timeline;

pub use device::*;
pub use handle::{sl_device, sl_queue, sl_timeline};
pub use library::*;
pub use queue::*;
pub use result::{sl_last_error, sl_result};
pub use timeline::*;
