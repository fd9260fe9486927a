//! X2 to X5: handles that leave one API and enter another, and those that must not.

mod counter;
mod exports;
mod hostile;
mod many;
pub(super) mod parts;
mod promises;

use crate::Case;
use crate::workload::Equipped;

/// The cases of this family; most need a device that exports file descriptors.
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
