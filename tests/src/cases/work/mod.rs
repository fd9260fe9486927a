//! Q6: work is called at most once, may call the engine, and its objects are dropped once.

mod calls;
mod kept;
mod words;

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::{Case, Subject};

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let files = [kept::cases(), calls::cases(), words::cases()];
    files.into_iter().flatten().collect()
}

/// Runs `action`, in which an application's code panics on purpose, without the usual report.
pub(super) fn unheard<T>(action: impl FnOnce() -> T) -> T {
    static UNHEARD: AtomicUsize = AtomicUsize::new(0);
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if UNHEARD.load(Ordering::SeqCst) == 0 {
                loud(panic);
            }
        }));
    });
    struct Quiet;
    impl Drop for Quiet {
        fn drop(&mut self) {
            UNHEARD.fetch_sub(1, Ordering::SeqCst);
        }
    }
    UNHEARD.fetch_add(1, Ordering::SeqCst);
    let _quiet = Quiet;
    action()
}
