//! Q5: what is refused, and that it has no effects.

mod basics;
mod every;
mod many;

use crate::{Case, Subject};

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let files = [basics::cases(), every::cases(), many::cases()];
    files.into_iter().flatten().collect()
}
