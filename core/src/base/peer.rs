//! How another process was lost.

use std::fmt;

/// How a process came to an end. Told to its parent alone: see waitid(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerExit {
    /// By itself, with this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl fmt::Display for PeerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "it has ended with exit code {code}"),
            Self::Signal(signal) => write!(f, "it was killed by signal {signal}"),
        }
    }
}

/// How another process was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerLoss {
    /// It has ended. How, is known of a child of this process alone, and only until that is waited for.
    Died {
        /// How, if that is known.
        exit: Option<PeerExit>,
    },
    /// It has closed its end and lives on.
    Left,
    /// Its end is closed. Whether it lives is not known: this process may not watch it.
    HungUp,
    /// This side has closed the endpoint, because of what it sent.
    ShutOut,
}

impl fmt::Display for PeerLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Died { exit: Some(exit) } => fmt::Display::fmt(exit, f),
            Self::Died { exit: None } => f.write_str("it has ended"),
            Self::Left => f.write_str("it has closed its end, and lives on"),
            Self::HungUp => {
                f.write_str("its end is closed, and whether it lives cannot be watched")
            }
            Self::ShutOut => f.write_str("it was shut out, because of what it sent"),
        }
    }
}
