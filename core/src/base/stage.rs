//! The two stages of a value: pending and reached.

use std::fmt;

/// The stage of a value at which a wait ends (T10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The signal of the value is pending, and so is every signal below it.
    Pending,
    /// The timeline has reached the value.
    Reached,
}

impl fmt::Display for Stage {
    /// Writes a part of a sentence such as "timed out … waiting for … *to be pending at* 3".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "to be pending at",
            Self::Reached => "to reach",
        })
    }
}
