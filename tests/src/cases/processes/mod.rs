//! X1, X2, X4, X7 to X9, P1 to P4, E1 to E3, M6: timelines of two processes, by each mechanism.
//!
//! F8: CUDA's own events.

mod binaries;
mod devices;
mod ended;
#[cfg(feature = "cuda")]
mod events;
#[cfg(feature = "vulkan")]
mod images;
pub(crate) mod lost;
mod passed;
mod plans;
mod times;

use crate::Case;
use crate::workload::Equipped;

/// The cases of this family. They need the devices of this project.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    let files = [
        plans::cases(),
        binaries::cases(),
        passed::cases(),
        times::cases(),
        lost::cases(),
        ended::cases(),
        devices::cases(),
    ];
    let cases = files.into_iter().flatten();
    #[cfg(feature = "cuda")]
    let cases = cases.chain(events::cases());
    #[cfg(feature = "vulkan")]
    let cases = cases.chain(images::cases());
    cases.collect()
}
