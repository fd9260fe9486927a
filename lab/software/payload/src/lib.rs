//! The shared memory behind the descriptors of the software drivers.
//!
//! The Vulkan layer exports semaphores and memory, the CUDA driver imports them, and both may be in
//! different processes. So a semaphore is a page of shared memory, here called its payload. Memory
//! is a file with a header, which either driver makes.
//!
//! None of this uses Syncline's own code, because it serves to test that.

mod bugs;
mod exit;
mod gate;
mod identity;
mod image;
mod memory;
mod semaphore;

pub use exit::{check_exit, register_destructors};
pub use gate::{Gate, Verdict, give_text};
pub use identity::{Twin, UUID_BYTES};
pub use image::{BoundImage, Image, Level};
pub use memory::{Memory, MemoryError};
pub use semaphore::{Kind, Semaphore, SemaphoreError};
