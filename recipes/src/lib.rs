//! Shared by the recipes: the command line, the frames and their expected content.
//!
//! Also a producer on the host for machines without CUDA, and a plain renderer on `ash` in the
//! place of an application's own.
//!
//! | program | the application has | and lets Syncline |
//! |---|---|---|
//! | `cudarc_ash` | a cudarc context and stream, an `ash` device and queue | order both, and share memory between them |
//! | `wgpu_frames` | a wgpu device | say what a wgpu submission waits for and signals |
//! | `library_frames` | another library with a semaphore for each frame | wait for its frames, and give them back |
//!
//! All of them make frames, one after the other in a few shared buffers. A producer writes a frame,
//! the application's own submission reads it, and the host compares the result bit by bit.
//! `docs/adopt.md` has the rules that they follow.
//!
//! They exit with 0 if every frame was right, 1 if one was wrong or something failed, 2 for bad
//! arguments, and 3 if there is no Vulkan device.

mod arguments;
mod frames;
mod host;
mod link;
mod renderer;

pub use arguments::{Arguments, ProducerKind};
pub use frames::{Stop, Verdict, end, pick, produced};
pub use host::Host;
pub use link::link;
pub use renderer::{Draw, Renderer, Semaphore};

use std::time::Duration;

/// Words of a frame.
pub const WORDS: u32 = 1 << 16;
/// Bytes of a frame.
pub const BYTES: u64 = WORDS as u64 * 4;
/// Number of frames in flight, each in a buffer of its own.
pub const SLOTS: usize = 3;
/// Time limit for every wait.
pub const LIMIT: Duration = Duration::from_secs(30);

/// The CUDA kernel `produce`, as text that the driver compiles.
pub const PTX: &str = include_str!("produce.ptx");
/// Threads per block of that kernel.
pub const BLOCK: u32 = 256;
