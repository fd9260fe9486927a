//! Closures that are called once, later, without an allocation if they capture little.

use smallbox::SmallBox;
use smallbox::space::{S2, S4, S16};

/// Room for 120 bytes of captures.
pub(crate) type Small<T> = SmallBox<T, S16>;

/// Room for 72 bytes.
pub(crate) type Medium<T> = SmallBox<T, [usize; 9]>;

/// What goes into a [`Medium`] without an allocation.
pub(crate) const MEDIUM: usize = size_of::<[usize; 9]>();

/// Room for 32 bytes: a few references.
pub(crate) type Little<T> = SmallBox<T, S4>;

/// What goes into a [`Little`] without an allocation.
pub(crate) const LITTLE: usize = size_of::<S4>();

/// Room for hardly any, for where there are very many.
pub(crate) type Tiny<T> = SmallBox<T, S2>;

/// What goes into a [`Tiny`] without an allocation.
pub(crate) const TINY: usize = size_of::<S2>();

/// A closure for the host, that runs at most once.
pub(crate) trait Job: Send {
    /// Runs it, or does nothing if it has run.
    fn run(&mut self);
}

impl<F: FnOnce() + Send> Job for Option<F> {
    fn run(&mut self) {
        if let Some(job) = self.take() {
            job();
        }
    }
}
