//! Device files that this process cannot open, and what opens them.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use super::checks::Outcome;
use super::facts::{Facts, GPUS};

/// Tries to open a file as drivers do, to read and to write.
pub(super) fn open(facts: &Facts, path: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
    options.open(facts.path(path)).map(drop)
}

/// Opens the first file that can be opened, and returns its path. `None` if there is no file.
///
/// The error is that of the last file.
pub(super) fn open_any(
    facts: &Facts,
    paths: impl Iterator<Item = String>,
) -> Result<Option<String>, (String, io::Error)> {
    let mut last = Ok(None);
    for path in paths {
        match open(facts, &path) {
            Ok(()) => return Ok(Some(path)),
            Err(error) => last = Err((path, error)),
        }
    }
    last
}

/// A finding: `path` cannot be opened.
pub(super) fn refused(facts: &Facts, path: &str, error: &io::Error) -> Outcome {
    let (mode, group) = match fs::metadata(facts.path(path)) {
        Ok(metadata) => (metadata.mode() & 0o7777, metadata.gid()),
        Err(_) => (0, 0),
    };
    let name = group_name(facts, group);
    let what = format!("/{path} (group {name}, mode {mode:04o}) cannot be opened: {error}");
    let fix = if facts.is_in_container() {
        format!("Start the container with {GPUS}, as a user of the group {name}.")
    } else if group != 0 && mode & 0o060 == 0o060 {
        format!("Join its group: `sudo usermod -aG {name} $USER`, then log in again.")
    } else {
        format!(
            "Allow every user to open it: `sudo chmod 0666 /{path}`. The option \
             NVreg_DeviceFileMode of the module nvidia makes that last."
        )
    };
    Outcome::found(what, fix)
}

/// The name of a group, or its number.
fn group_name(facts: &Facts, id: u32) -> String {
    let groups = facts.text("etc/group").unwrap_or_default();
    let named = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number == id.to_string()).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| id.to_string())
}
