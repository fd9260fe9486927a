//! What the recipes have in common, and nothing that is one's point: the command line, the frames
//! and what they must look like, a producer on the host for machines without CUDA, and a plain
//! renderer on `ash` that stands for an application's own.
//!
//! | program | the application has | and lets Syncline |
//! |---|---|---|
//! | `cudarc_ash` | a cudarc context and stream, an `ash` device and queue | order both, and share memory between them |
//! | `wgpu_frames` | a wgpu device | say what a wgpu submission waits for and signals |
//! | `raw_handles` | bare handles, as C has them | give it semaphores, to call the drivers by itself |
//!
//! All of them make frames, one after the other in a few shared buffers: a producer writes, the
//! application's own submission reads, and the host compares what came out bit for bit.
//! `docs/adopt.md` has the rules that they follow.
//!
//! They exit with 0 if every frame was right, 1 if one was wrong or something failed, 2 for bad
//! arguments, and 3 where there is no Vulkan device to show anything on.

mod arguments;
mod frames;
mod host;
mod link;
mod renderer;

pub use arguments::{Arguments, Who};
pub use frames::{Stop, Verdict, end, pick, produced};
pub use host::Host;
pub use link::link;
pub use renderer::{Draw, Renderer, Semaphore};

use std::time::Duration;

/// Words of a frame.
pub const WORDS: u32 = 1 << 16;
/// Bytes of a frame.
pub const BYTES: u64 = WORDS as u64 * 4;
/// Frames that may be under way at once, each in a buffer of its own.
pub const SLOTS: u64 = 3;
/// How long anything may take before it is called an error.
pub const LIMIT: Duration = Duration::from_secs(30);

/// The CUDA kernel `produce`, as text that the driver compiles.
pub const PTX: &str = include_str!("produce.ptx");
/// Threads of a block of that kernel.
pub const BLOCK: u32 = 256;

/// Which buffer a frame uses.
#[must_use]
pub const fn slot(frame: u64) -> usize {
    (frame % SLOTS) as usize
}
