//! The command line.

use std::time::Duration;

use clap::Parser;

/// How late the producer is with each frame where nobody waits for it.
const LATE: Duration = Duration::from_millis(5);

/// What every recipe takes. Read with [`Parser::parse`], which ends the program with 2 for bad
/// arguments.
#[derive(Parser, Debug)]
#[command(
    about = "Makes frames with one API, uses them with another, and compares each with what it must be",
    after_help = "Exits with 0 if every frame was right, 1 if one was wrong or something failed, 2 for bad arguments, \
                  3 where there is no Vulkan device."
)]
pub struct Arguments {
    /// Frames to make
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub frames: u32,
    /// Who produces; without this, CUDA where it shares memory with the Vulkan device, else the
    /// host
    #[arg(long, value_name = "WHO")]
    pub producer: Option<Who>,
    /// Use the first Vulkan device with this in its name; without this, CUDA's GPU, else the first
    /// that can be used
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Drop the waits between producer and consumer, and delay the producer: frames must come out
    /// wrong
    #[arg(long)]
    pub no_sync: bool,
}

/// Who produces.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// CUDA, or nobody.
    Cuda,
    /// The host, whatever there is.
    Host,
}

impl Arguments {
    /// How late the producer is with each frame.
    #[must_use]
    pub const fn late(&self) -> Duration {
        if self.no_sync { LATE } else { Duration::ZERO }
    }
}
