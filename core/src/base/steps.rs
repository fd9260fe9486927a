//! Counts the steps of holding and releasing, for tests.
//!
//! They compare the growth of the steps with the number of submissions and of waits.

#[cfg(test)]
std::thread_local! { static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) } }

/// Adds steps to the count of this thread.
///
/// A step is a node visited, a list entry compared or moved, or a wait judged or registered. For a
/// tree the caller estimates the steps.
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
