//! Q2, H2 and everything that threads can race for: long chains, many objects, many threads.

use crate::{Case, Subject};

mod memory;
mod random;
mod sizes;
mod threads;

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let files = [
        sizes::cases(),
        memory::cases(),
        threads::cases(),
        random::cases(),
    ];
    files.into_iter().flatten().collect()
}
