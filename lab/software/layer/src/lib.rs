//! A Vulkan layer that gives software drivers semaphores and memory that processes and CUDA share.
//!
//! NVIDIA's driver has such objects.
//!
//! Lavapipe and SwiftShader export no timeline semaphores. With this layer above them, timeline and
//! binary semaphores are exported and imported as opaque file descriptors
//! (`VK_KHR_external_semaphore_fd`). Devices of other types than `CPU` are left alone.
//!
//! A descriptor refers to a page of shared memory, the *payload*
//! ([`syncline_software_payload::Semaphore`]). It holds the value that has been reached.
//!
//! - A queue never waits for the page. Each payload has a timeline semaphore of the driver, the
//!   *follower*, which only the layer signals. A wait for the shared semaphore becomes a wait for
//!   its follower.
//! - A queue never signals the page. Each queue has a timeline semaphore of the driver, its
//!   *count*. Signals of shared semaphores become a signal of the count. A thread waits for the
//!   count, and then stores the signalled values into the pages.
//! - Another thread per payload waits for changes of the page and signals the follower. It runs
//!   from the first wait of a queue that is not already satisfied.
//!
//! Values only increase, and each thread reads values and not events, so no value is lost.
//!
//! Memory order: the thread gets the count from a wait of the driver and stores with release order.
//! The reader of a page loads with acquire order.
//!
//! Both drivers export memory in formats of their own. The layer makes exportable memory itself, in
//! one format ([`syncline_software_payload::Memory`]), and the driver imports its pages.
//!
//! The layer follows which device owns that memory. A submission that misuses it fails.
#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "in unit tests nothing calls the exported functions"
    )
)]

use std::ffi::CStr;

mod bug;
mod calibration;
mod chain;
mod commands;
mod completion;
mod device;
mod gated;
mod hidden;
mod host;
mod image;
mod image_ownership;
mod instance;
mod loader;
mod manifest;
mod memory;
mod observe;
mod ownership;
mod passed_on;
mod payload;
mod physical;
mod queue;
mod semaphore;
mod submit;
mod surface;
mod table;

pub use loader::vkNegotiateLoaderLayerInterfaceVersion;
pub use manifest::manifest;

/// The name by which an application or `VK_INSTANCE_LAYERS` enables the layer.
pub const LAYER_NAME: &CStr = c"VK_LAYER_SYNCLINE_software";

/// File name of the layer's library.
pub const LIBRARY: &str = "libsyncline_software_layer.so";
