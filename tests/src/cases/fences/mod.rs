//! F1–F6: fences. Every backend gives them the semantics of CUDA events.

use crate::{Case, Subject};

mod elapsed;
mod lifetime;
mod order;
mod queries;
mod records;

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let files = [
        queries::cases(),
        records::cases(),
        order::cases(),
        lifetime::cases(),
        elapsed::cases(),
    ];
    files.into_iter().flatten().collect()
}
