//! X2–X5, X8: what two devices share, and what is refused.

use syncline::Device;

use crate::Case;

/// The cases of this family; they need the devices of this project.
#[must_use]
pub fn cases() -> Vec<Case<Device>> {
    Vec::new()
}
