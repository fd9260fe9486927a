//! Counts the steps of holding and releasing, so that tests can compare their growth with the
//! number of submissions and of waits.

#[cfg(test)]
std::thread_local! { static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) } }

/// Adds steps to the count of this thread: nodes visited, list entries compared or moved, waits
/// judged or registered.
///
/// For a tree the caller estimates them.
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
