//! A time with a bound of its error.

use std::fmt;
use std::time::Duration;

/// A converted time with a bound of its error, in nanoseconds.
///
/// The bound holds under the conditions of [`Map`](super::Map).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// The time.
    pub nanoseconds: i64,
    /// The largest distance from the true time, in both directions.
    pub error: u64,
}

/// The time with its error, such as `81.3s ± 31ns`.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.nanoseconds < 0 { "-" } else { "" };
        let size = Duration::from_nanos(self.nanoseconds.unsigned_abs());
        write!(f, "{sign}{size:?} ± {:?}", Duration::from_nanos(self.error))
    }
}
