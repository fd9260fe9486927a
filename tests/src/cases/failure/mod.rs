//! E1, E2, E4, E5: failures, how they spread, and how far.

mod dag;
mod races;
mod spread;
mod state;
mod waiters;

use crate::{Case, Subject};

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let files = [
        state::cases(),
        waiters::cases(),
        spread::cases(),
        dag::cases(),
        races::cases(),
    ];
    files.into_iter().flatten().collect()
}
