//! Q6: work is called at most once, may call the engine, and its objects are dropped once.

mod calls;
mod kept;
mod words;

use crate::{Case, Subject};

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let files = [kept::cases(), calls::cases(), words::cases()];
    files.into_iter().flatten().collect()
}

/// Runs `action`, in which work panics on purpose, without the usual report.
fn unheard<T>(action: impl FnOnce() -> T) -> T {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = action();
    std::panic::set_hook(loud);
    result
}
