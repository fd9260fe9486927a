//! Identity of processes.

use std::fmt;
use std::sync::Mutex;

use rustix::io::Errno;

/// The identity of one process of this machine.
///
/// The system reuses process ids. The id together with the start time is unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// The process id, in the PID namespace of the process that reported it.
    pub id: u32,
    /// The start time, in the kernel's clock ticks since boot; 0 if unknown. See
    /// proc_pid_stat(5), field 22.
    pub started: u64,
}

impl Process {
    /// The calling process.
    ///
    /// Its start time is 0 as long as the process has no descriptor or memory to read it.
    #[must_use]
    pub fn this() -> Self {
        Self::try_this().unwrap_or_else(|_| Self {
            id: std::process::id(),
            started: 0,
        })
    }

    /// Same as [`Process::this`], with an error if a resource is short.
    ///
    /// Reads the start time once, so that all answers after the first are equal. Later there may be
    /// no descriptor to read it.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE` or `ENOMEM`.
    pub fn try_this() -> Result<Self, Errno> {
        // A mutex of std: it is only tried, and outside of loom models, too.
        static KNOWN: Mutex<Option<Process>> = Mutex::new(None);
        let id = std::process::id();
        // In a forked process, the lock may be held by a thread that does not exist.
        let mut known = KNOWN.try_lock().ok();
        match known.as_deref() {
            // A forked process has the memory of its parent.
            Some(Some(this)) if this.id == id => Ok(*this),
            _ => {
                let started = match started("self") {
                    Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(errno),
                    started => started.unwrap_or(0),
                };
                let this = Self { id, started };
                if let Some(known) = &mut known {
                    **known = Some(this);
                }
                Ok(this)
            }
        }
    }

    /// The process that has this id at present.
    #[must_use]
    pub fn with_id(id: u32) -> Self {
        let started = started(&id.to_string()).unwrap_or(0);
        Self { id, started }
    }

    /// True for the calling process. If a start time is unknown, only the id is compared.
    #[must_use]
    pub fn is_this(self) -> bool {
        let this = Self::this();
        let unknown = self.started == 0 || this.started == 0;
        self.id == this.id && (unknown || self.started == this.started)
    }
}

/// The process that made an object, to recognize the copy of that object in a forked child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MakerProcess {
    id: u32,
}

impl MakerProcess {
    /// Equal to no process. For tests of what a forked child does.
    pub const NONE: Self = Self { id: 0 };

    /// The calling process.
    #[must_use]
    pub fn this() -> Self {
        Self {
            id: std::process::id(),
        }
    }

    /// True in the process that made the object.
    #[must_use]
    pub fn is_this(self) -> bool {
        self.id == std::process::id()
    }
}

/// The start time of the process in the directory `process` of `/proc`; 0 if that has none.
fn started(process: &str) -> Result<u64, Errno> {
    // The second field is a file name in brackets. It may contain any bytes, also brackets and
    // bytes that are not UTF-8.
    let stat = std::fs::read(format!("/proc/{process}/stat"))
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let after_name = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    let after_name = String::from_utf8_lossy(after_name);
    let started = after_name.split_whitespace().nth(19);
    Ok(started.and_then(|ticks| ticks.parse().ok()).unwrap_or(0))
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_this_compares_the_id_and_the_start_time() {
        let this = Process::this();
        assert!(this.is_this());
        let reused = Process {
            started: this.started.wrapping_add(1),
            ..this
        };
        assert!(!reused.is_this() || this.started == 0 || reused.started == 0);
        let unknown = Process { started: 0, ..this };
        assert!(unknown.is_this());
        let other = Process {
            id: this.id ^ 1,
            started: 0,
        };
        assert!(!other.is_this());
    }
}
