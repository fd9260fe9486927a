//! The results of comparisons of two clocks.

use std::sync::{Arc, Weak};
use std::time::Instant;

use crate::base::sync::Mutex;

/// The result of a comparison of two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// How far the second clock is ahead of the first in the latest measurement, in nanoseconds.
    ///
    /// 0 without a measurement.
    pub ahead: i64,
    /// The largest distance of the true value from [`ahead`](Comparison::ahead).
    ///
    /// `u64::MAX` without a measurement. None is needed for clocks that cannot be one.
    pub error: u64,
    /// The conclusion from this measurement and from earlier ones.
    pub finding: Finding,
}

/// Whether two clocks are one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Finding {
    /// One clock.
    ///
    /// They belong to one GPU, and they showed the same time in three measurements, each with an
    /// error of at most [`Clock::CLOSE`](super::Clock::CLOSE). No later comparison contradicted
    /// that.
    One,
    /// Two clocks.
    ///
    /// They belong to different GPUs or to no GPU, or they showed different times in three
    /// consecutive measurements. This result is final. If such clocks show the same time later,
    /// their earlier times must still not be subtracted.
    Two,
    /// The latest measurements were not exact enough, or contradicted each other.
    Unknown,
}

impl Comparison {
    /// A result without a measurement.
    pub(super) const fn unmeasured(finding: Finding) -> Self {
        Self {
            ahead: 0,
            error: u64::MAX,
            finding,
        }
    }

    /// True if the two are one clock. Their times can then be subtracted.
    #[must_use]
    pub fn are_one(&self) -> bool {
        self.finding == Finding::One
    }
}

/// The latest comparisons of one clock with others.
pub(super) struct Comparisons<T>(Mutex<Vec<Compared<T>>>);

/// The latest comparison with another clock.
struct Compared<T> {
    with: Weak<T>,
    found: Comparison,
    at: Instant,
}

impl<T> Default for Comparisons<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Comparisons<T> {
    /// The latest comparison with `other`, and when it was made.
    pub(super) fn latest(&self, other: &Arc<T>) -> Option<(Comparison, Instant)> {
        let compared = self.0.lock();
        let found = compared.iter().find(|one| one.is_with(other))?;
        Some((found.found, found.at))
    }

    /// Stores a comparison with `other`.
    pub(super) fn remember(&self, other: &Arc<T>, found: Comparison) {
        let mut compared = self.0.lock();
        // A weak reference keeps its memory allocated. So no other clock has the same address.
        compared.retain(|one| one.with.strong_count() > 0);
        let latest = Compared {
            with: Arc::downgrade(other),
            found,
            at: Instant::now(),
        };
        match compared.iter_mut().find(|one| one.is_with(other)) {
            // Another thread may have found meanwhile that the two are two clocks. That is final.
            Some(known) if known.found.finding == Finding::Two => {}
            Some(known) => *known = latest,
            None => compared.push(latest),
        }
    }

    /// Lets all results be older by `age`.
    #[cfg(test)]
    pub(super) fn age(&self, age: std::time::Duration) {
        for compared in self.0.lock().iter_mut() {
            compared.at -= age;
        }
    }
}

impl<T> Compared<T> {
    fn is_with(&self, other: &Arc<T>) -> bool {
        Weak::as_ptr(&self.with) == Arc::as_ptr(other)
    }
}
