#![doc = include_str!("../README.md")]

mod adapter;
mod cl;
mod clock;
mod device;
mod memory;
mod queue;
#[cfg(test)]
mod tests;

pub use adapter::{Adapter, BACKEND};
pub use cl::{Arg, Kernel};
pub use device::Device;
pub use memory::{Buffer, HostEvent};
pub use queue::{Channel, Recorder, Stamp, WaitList};
