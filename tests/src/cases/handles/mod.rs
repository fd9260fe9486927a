//! X2 to X5: handles that pass from one API to another, and handles that are refused.

mod counter;
pub(super) mod exports;
mod hostile;
mod many;
pub(super) mod parts;
mod promises;

use crate::Case;
use crate::workload::Equipped;

/// The cases of this family. Most need a device that exports file descriptors.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    let files = [
        exports::cases(),
        counter::cases(),
        many::cases(),
        hostile::cases(),
        promises::cases(),
    ];
    files.into_iter().flatten().collect()
}
