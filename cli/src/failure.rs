//! Errors that end the command with exit code 2.

use std::io;
use std::path::{Path, PathBuf};

/// A reason to stop that the user can act on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// From the library.
    #[error(transparent)]
    Syncline(#[from] syncline::Error),
    /// Two recorded runs of the bench that cannot be compared.
    #[error(transparent)]
    Compare(#[from] syncline_bench::compare::CompareError),
    /// A file or folder.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Anything else, in words.
    #[error("{0}")]
    Words(String),
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
