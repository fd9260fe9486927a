//! Processes, and how they are told from each other.

use std::fmt;

/// One process of this machine, as long as it lives: process ids are given again, together with the time of the start they are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// Its id, in the namespace of whoever told it.
    pub id: u32,
    /// When it started, in the kernel's clock ticks since boot; 0 where that is not known. See proc_pid_stat(5), field 22.
    pub started: u64,
}

impl Process {
    /// The calling process.
    #[must_use]
    pub fn this() -> Self {
        let id = std::process::id();
        let started = started("self");
        Self { id, started }
    }

    /// The process that has this id now.
    #[must_use]
    pub fn with_id(id: u32) -> Self {
        let started = started(&id.to_string());
        Self { id, started }
    }

    /// True for the calling process, also where it is not known when that started.
    #[must_use]
    pub fn is_this(self) -> bool {
        let this = Self::this();
        let unknown = self.started == 0 || this.started == 0;
        self.id == this.id && (unknown || self.started == this.started)
    }
}

/// When a process of /proc started, or 0.
fn started(process: &str) -> u64 {
    // The second field is a file's name in brackets, and may hold anything, also what is no text.
    let stat = std::fs::read(format!("/proc/{process}/stat")).unwrap_or_default();
    let behind_name = stat.rsplit(|byte| *byte == b')').next().unwrap_or_default();
    let behind_name = String::from_utf8_lossy(behind_name);
    let started = behind_name.split_whitespace().nth(19);
    started.and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
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
    fn this_process_is_told_from_one_that_had_its_id() {
        let this = Process::this();
        assert!(this.is_this());
        let before = Process {
            started: this.started.wrapping_add(1),
            ..this
        };
        assert!(!before.is_this() || this.started == 0 || before.started == 0);
        let unknown = Process { started: 0, ..this };
        assert!(unknown.is_this());
        let other = Process {
            id: this.id ^ 1,
            started: 0,
        };
        assert!(!other.is_this());
    }
}
