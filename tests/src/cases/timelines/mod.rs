//! T1, T2, T3, T7, T9: values, claims, order and lifetime.

mod claims;
mod lifetime;
mod model;
mod order;
mod promises;
mod values;

use crate::{Case, Subject, World};

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let parts = [
        values::cases(),
        claims::cases(),
        promises::cases(),
        model::cases(),
        order::cases(),
        lifetime::cases(),
    ];
    parts.into_iter().flatten().collect()
}

/// Returns the largest step of a timeline of both sides.
fn largest_step<S: Subject>(world: &World<S>) -> u64 {
    let limit = |side: &crate::user::Device<S>| side.info().capabilities.max_value_difference;
    // Two devices may share a word of memory, which CUDA's streams compare as a signed number.
    let shared = if world.is_pair() {
        i64::MAX as u64
    } else {
        u64::MAX
    };
    limit(&world.left).min(limit(&world.right)).min(shared)
}
