//! The C interface of Syncline.
//!
//! The header `include/syncline.h` is made from this crate. `docs/c.md` leads through it.
//!
//! | file | contents |
//! |---|---|
//! | `handle` | handles as C has them, and the tables behind them |
//! | `result` | result codes, the last error of a thread, and the guard around each call |
//! | `raw` | handles of Vulkan and CUDA |
//! | `library` | version, names, and the devices of the machine |
//! | `device`, `adopt` | devices: the host's, those of the machine, and those of the program |
//! | `queue`, `lock` | queues, and their lock for calls of the program's own |
//! | `link` | two devices, and how they synchronize |
//! | `timeline`, `claim` | timelines: make, signal, fail, query, wait; claims |
//! | `submit` | submissions with a callback, and empty ones |
//! | `fence` | fences and times |
//! | `notify` | points and an event loop |
//! | `memory` | memory and images |
//! | `block` | memory that the program has allocated |
//! | `process` | timelines and memory of several processes |

#![expect(
    non_camel_case_types,
    reason = "the names of C, which the header takes from here"
)]
#![allow(unsafe_code, reason = "the border to C")]

// In the order of the header.
mod raw;

mod library;

mod result;

mod handle;

mod device;

mod adopt;

mod queue;

mod lock;

mod link;

mod timeline;

mod claim;

mod submit;

mod fence;

mod notify;

mod memory;

mod block;

mod process;

/// A field that is added at the end of a structure must change its size.
macro_rules! end_without_padding {
    ($($name:ident . $last:ident: $kind:ty;)+) => {$(
        const _: () = assert!(
            size_of::<$name>() == std::mem::offset_of!($name, $last) + size_of::<$kind>()
        );
    )+};
}

end_without_padding! {
    sl_buffer_info.cuda_pointer: u64;
    sl_device_info.reserved: u32;
    sl_image_handles.cuda_array: CUmipmappedArray;
    sl_image_info.reserved: u32;
    sl_lock_info.held: usize;
    sl_submit_info.free: sl_drop;
    sl_vulkan_allocation_info.reserved: u32;
    sl_vulkan_adopt_info.enabled: sl_vulkan_enabled;
    sl_vulkan_handles.enabled: sl_vulkan_enabled;
    sl_vulkan_offer.uuid: [u8; 16];
    sl_vulkan_submission.signal_values: *const u64;
}

pub use adopt::*;
pub use block::*;
pub use claim::*;
pub use device::*;
pub use fence::*;
pub use handle::{
    sl_allocation, sl_buffer, sl_claim, sl_device, sl_endpoint, sl_fence, sl_image, sl_link,
    sl_listener, sl_lock, sl_notification, sl_queue, sl_submission, sl_timeline, sl_words,
};
pub use library::*;
pub use link::*;
pub use lock::*;
pub use memory::*;
pub use notify::*;
pub use process::*;
pub use queue::*;
pub use raw::*;
pub use result::{sl_last_error, sl_result};
pub use submit::*;
pub use timeline::*;
