//! The libraries that `--software` loads instead of others, and lists of paths that find them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A library that was built with this command.
pub(super) fn library(own: &Path, name: &str) -> Result<PathBuf, Failure> {
    let folder = own.parent().unwrap_or(Path::new("."));
    // Cargo puts the libraries of a command's dependencies into `deps`.
    let places = [folder.join("deps").join(name), folder.join(name)];
    let found = places.iter().find(|place| place.is_file());
    found.cloned().ok_or_else(|| {
        Failure::Words(format!(
            "--software needs {name} beside the command, in {}; cargo builds it with the command, and `cargo install` does not \
             copy it",
            folder.display()
        ))
    })
}

/// Joins paths as environment variables list them.
///
/// Leaves out unset and empty lists, because an empty path would mean the current folder.
pub(super) fn joined(paths: impl IntoIterator<Item = Option<OsString>>) -> OsString {
    let paths = paths.into_iter().flatten().filter(|path| !path.is_empty());
    let paths: Vec<_> = paths.collect();
    paths.join(":".as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_path_is_left_out() {
        let paths = ["/a", "", "/b"].map(|path| Some(path.into()));
        assert_eq!(joined(paths), "/a:/b");
        assert_eq!(joined([None, Some("/b".into())]), "/b");
    }

    #[test]
    fn a_library_that_is_missing_is_named() {
        let missing = library(Path::new("/nonexistent/syncline"), "libmine.so");
        let text = missing.map_err(|failure| failure.to_string());
        assert!(
            text.as_ref()
                .is_err_and(|text| text.contains("libmine.so beside the command, in /nonexistent")),
            "{text:?}"
        );
    }
}
