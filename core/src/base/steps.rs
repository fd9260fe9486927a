//! What the graph does, counted: so that a test can tell whether that grows faster than what is held.

#[cfg(test)]
std::thread_local! { static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) } }

/// So many nodes have been looked at, or entries of a list compared or moved.
#[cfg(test)]
pub(crate) fn count(steps: usize) {
    STEPS.with(|all| all.set(all.get() + steps));
}

#[cfg(not(test))]
#[inline]
pub(crate) const fn count(_: usize) {}

/// The steps of this thread since the last call.
#[cfg(test)]
pub(crate) fn take() -> usize {
    STEPS.with(|all| all.replace(0))
}
