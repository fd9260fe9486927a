//! The command line.

use std::time::Duration;

use clap::Parser;

/// Delay of each frame when the consumer does not wait for it.
const LATE: Duration = Duration::from_millis(5);

/// The arguments of every recipe. [`Parser::parse`] ends the program with 2 for bad arguments.
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
    /// The producer. Without this it is CUDA if CUDA shares memory with the Vulkan device, else the
    /// host
    #[arg(long, value_name = "PRODUCER")]
    pub producer: Option<ProducerKind>,
    /// Use the first Vulkan device with this in its name. Without this it is CUDA's GPU, else the
    /// first usable device
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Drop the waits between producer and consumer, and delay the producer: frames must come out
    /// wrong
    #[arg(long)]
    pub no_sync: bool,
}

/// Producers that can be asked for.
#[derive(clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProducerKind {
    /// CUDA. Without CUDA the recipe ends with an error.
    Cuda,
    /// The host, even if there is CUDA.
    Host,
}

impl Arguments {
    /// Delay of each frame.
    #[must_use]
    pub const fn late(&self) -> Duration {
        if self.no_sync { LATE } else { Duration::ZERO }
    }
}
