//! Writes a made-up recording of frames over CUDA, Vulkan and the host:
//! `cargo run -p syncline-trace --example frames -- FILE.json FILE.svg [FRAMES]`.

#[path = "../tests/outputs/frames/mod.rs"]
mod frames;

use std::io;

use syncline_trace::perfetto::Trace;
use syncline_trace::svg::{Options, Picture};

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(json), Some(svg)) = (args.next(), args.next()) else {
        return Err(io::Error::other("FILE.json FILE.svg [FRAMES]"));
    };
    let count = args
        .next()
        .and_then(|count| count.parse().ok())
        .unwrap_or(8);
    let recording = frames::frames(count);
    std::fs::write(json, Trace::new(&recording).to_string())?;
    std::fs::write(
        svg,
        Picture::new(&recording, Options::default()).to_string(),
    )
}
