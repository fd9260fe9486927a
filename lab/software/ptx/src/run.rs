//! Runs a grid.

mod alu;
mod grid;
mod image;
mod int;
mod rows;
mod warp;

use crate::{Entry, Fault, Launch, Machine};

/// Runs a grid to its end. The launch fits the kernel.
pub(crate) fn grid(entry: &Entry, launch: &Launch, machine: &dyn Machine) -> Result<(), Fault> {
    // A warp computes for all its lanes. A block of one thread does not need 32.
    if launch.block == [1; 3] {
        grid::run::<1>(entry, launch, machine)
    } else {
        grid::run::<{ warp::LANES }>(entry, launch, machine)
    }
}
