//! The ways in which a peer process is lost.

use std::fmt;

/// How a process ended. The system reports it only to the parent process: see waitid(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerExit {
    /// It exited with this code.
    Code(i32),
    /// This signal killed it.
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

/// How a peer process was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerLoss {
    /// It has ended.
    Died {
        /// How it ended. Known only for a child of this process, until a `wait` call reaps it.
        exit: Option<PeerExit>,
    },
    /// It has closed its end and still runs.
    Left,
    /// Its end is closed. This process may not watch it, so it is unknown whether it still runs.
    HungUp,
    /// This side has closed the endpoint, because the peer sent an invalid message.
    ShutOut,
    /// The application on this side has given it up, although it lives.
    GivenUp,
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
            Self::GivenUp => f.write_str("it was given up, and lives on"),
        }
    }
}
