//! T8: waits as futures.

mod dropped;
mod lists;
mod wakes;

use crate::{Case, Subject};

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let parts = [wakes::cases(), lists::cases(), dropped::cases()];
    parts.into_iter().flatten().collect()
}
