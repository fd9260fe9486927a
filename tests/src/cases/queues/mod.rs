//! Q1–Q3, Q6–Q9: submissions, waits before signals, and what a wait makes visible.

use crate::{Case, Subject};

mod chains;
mod crowds;
mod early;
mod graphs;
mod held;
mod order;
mod released;

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let files = [
        order::cases(),
        early::cases(),
        held::cases(),
        released::cases(),
        chains::cases(),
        crowds::cases(),
        graphs::cases(),
    ];
    files.into_iter().flatten().collect()
}
