//! X2 to X4, T1, T6: counters in shared memory, between the host and devices that import them.

mod hostile;
pub(super) mod parts;
mod passed;

use crate::Case;
use crate::workload::Equipped;

/// The cases of this family. They need the host, alone or with a device that imports its counters.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    let files = [passed::cases(), hostile::cases()];
    files.into_iter().flatten().collect()
}
