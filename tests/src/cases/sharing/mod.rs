//! X2, X5, X8: counters and memory that two devices share.

mod bridge;
mod counter;
mod life;
mod mechanism;
mod memory;

use crate::Case;
use crate::workload::Equipped;

/// The cases of this family; they need the devices of this project.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    let files = [
        counter::cases(),
        mechanism::cases(),
        memory::cases(),
        life::cases(),
    ];
    files.into_iter().flatten().collect()
}
