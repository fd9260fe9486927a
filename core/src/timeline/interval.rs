//! Intervals of values.

/// One claim: the values in `(above, upto]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) above: u64,
    pub(crate) upto: u64,
}

impl Interval {
    pub(crate) const fn covers(&self, value: u64) -> bool {
        self.above < value && value <= self.upto
    }
}
