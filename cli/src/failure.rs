//! Errors that end the command with exit code 2.

use std::io;
use std::path::{Path, PathBuf};

/// A reason to stop that the user can act on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// From the library.
    #[error(transparent)]
    Syncline(#[from] syncline::Error),
    /// A file or folder.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// No window can be opened.
    #[error(
        "no window can be opened: {reason}. Set DISPLAY, which is {} now, to an X11 server, or start the command under xvfb-run (Debian: xvfb and xauth)",
        display()
    )]
    NoWindow {
        /// The reason.
        reason: String,
    },
    /// The window or its server was lost while the demo ran.
    #[error("the window or its X11 server is gone: {reason}")]
    WindowLost {
        /// The reason.
        reason: String,
    },
    /// Anything else, in words.
    #[error("{0}")]
    Words(String),
}

/// The server that X11 programs use, in words.
fn display() -> String {
    match std::env::var_os("DISPLAY") {
        Some(display) => format!("\"{}\"", display.display()),
        None => "not set".into(),
    }
}

impl Failure {
    /// For `map_err` after an attempt to write `path`.
    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Write {
            path: path.to_owned(),
            error,
        }
    }

    /// For `map_err` after an attempt to read `path` or to parse it.
    pub(crate) fn read<E: std::error::Error>(path: &Path) -> impl Fn(E) -> Self {
        move |error| Self::Words(format!("{} cannot be read: {error}", path.display()))
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Words(error.to_string())
    }
}
