//! What the devices of this machine do together, and the memory of the host.

mod clocks;
mod documents;
mod memory;
mod raw_signals;
mod told;
