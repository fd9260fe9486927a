//! How far a value has come.

use std::fmt;

/// How far a value has to have come for a wait to end (T10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Its signal, and everything before it, is with the driver and needs no more host action.
    Pending,
    /// It has been signalled.
    Reached,
}

impl fmt::Display for Stage {
    /// As in "waiting for … *to be pending at* 3".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pending => "to be pending at",
            Self::Reached => "to reach",
        })
    }
}
