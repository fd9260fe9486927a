//! The peer process: its identity, its end, and how it ended.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use syncline_core::{
    Error, Result,
    error::{Object, PeerExit, PeerLoss},
};

use super::control::Sender;
use super::poll::native;
use crate::negotiate::Process;

/// The peer process of an endpoint.
#[derive(Debug)]
pub(super) struct Peer {
    process: Process,
    /// The start of its code and stack, if the system reports them.
    layout: Option<[u64; 2]>,
    /// The pidfd of the process, or why there is none.
    watched: Result<OwnedFd>,
}

impl Peer {
    /// Checks a greeting against what the kernel says about the sender.
    ///
    /// # Errors
    /// [`Error::Message`] if they differ. [`Error::PeerLost`] if the process has died since.
    /// [`Error::Native`] if the system has no descriptors left.
    pub(super) fn verify(endpoint: &Object, claimed: Process, from: Sender) -> Result<Self> {
        let mismatch = |found: String| {
            Error::message(
                endpoint,
                match from.process {
                    0 => "a process that has an id here".into(),
                    id => format!("what process {id} is"),
                },
                found,
            )
        };
        if from.process == 0 || claimed.id != from.process {
            let reason = "both must be in one pid namespace";
            return Err(mismatch(format!("that it is {claimed}; {reason}")));
        }
        let died = || Error::peer_lost(endpoint, claimed.id, PeerLoss::Died { exit: None });
        let id = i32::try_from(claimed.id).ok().and_then(Pid::from_raw);
        let opened = id.ok_or(Errno::INVAL);
        let opened = opened.and_then(|id| pidfd_open(id, PidfdFlags::empty()));
        let watched = match opened {
            Ok(watched) => Ok(watched),
            Err(Errno::SRCH) => return Err(died()),
            // The kernel is too old, or a filter refuses the call.
            Err(errno @ (Errno::NOSYS | Errno::PERM | Errno::ACCESS)) => {
                Err(native(endpoint, "pidfd_open", errno))
            }
            // A resource is short. Without the pidfd, the end of the peer would go unnoticed.
            Err(errno) => return Err(native(endpoint, "pidfd_open", errno)),
        };
        // Read after pidfd_open(2), so that both are about the same process even if ids are reused.
        let found = Process::with_id(claimed.id);
        // If /proc shows no start time here, there is nothing to compare.
        if found.started != claimed.started && found.started != 0 {
            let (claimed, found) = (claimed.started, found.started);
            return Err(mismatch(format!(
                "that it started at {claimed}, and not at {found}"
            )));
        }
        Ok(Self {
            process: claimed,
            layout: layout(
                &std::fs::read(format!("/proc/{}/stat", claimed.id)).unwrap_or_default(),
            ),
            watched,
        })
    }

    pub(super) const fn process(&self) -> &Process {
        &self.process
    }

    /// Checks that the end of the process can be noticed.
    pub(super) fn watched(&self) -> Result<()> {
        self.watched.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// Polls for the end of the process. `None` if it cannot be watched.
    pub(super) fn exit_poll(&self) -> Option<PollFd<'_>> {
        let watched = self.watched.as_ref().ok()?;
        Some(PollFd::new(watched, PollFlags::IN))
    }

    /// A descriptor of its own for the end of the process.
    ///
    /// # Errors
    /// The system's error if there is no descriptor left. `None` if the process cannot be watched.
    #[cfg(feature = "cuda")]
    pub(super) fn duplicate_watched(&self) -> Result<OwnedFd, Option<Errno>> {
        let watched = self.watched.as_ref().map_err(|_| None)?;
        rustix::io::fcntl_dupfd_cloexec(watched, 0).map_err(Some)
    }

    /// How the process ended. Only its parent learns this, until the parent has waited for it.
    pub(super) fn exit(&self) -> Option<PeerExit> {
        use std::os::fd::AsFd;
        let watched = self.watched.as_ref().ok()?.as_fd();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(watched), options).ok()??;
        let code = status.exit_status().map(PeerExit::Code);
        code.or_else(|| status.terminating_signal().map(PeerExit::Signal))
    }

    /// True if the program that greeted no longer runs, although the process has not ended yet.
    ///
    /// Its drivers may still be releasing resources, its core may be being written (core(5)), or it
    /// may have called execve(2). Reads two files of /proc, or a few more.
    ///
    /// execve(2) shows by changed addresses of code and stack. This process must be allowed to read
    /// them (PTRACE_MODE_READ_FSCREDS in ptrace(2)), and they must be random, as they are by
    /// default.
    pub(super) fn is_ending(&self) -> bool {
        let files = format!("/proc/{}", self.process.id);
        let read = |name: &str| std::fs::read(format!("{files}/{name}")).unwrap_or_default();
        let is_other = match (self.layout, layout(&read("stat"))) {
            (Some(before), Some(now)) => before != now,
            _ => false,
        };
        let is_ending = is_other || is_dumping_core(&read("status")) || all_threads_exit(&files);
        // The id may belong to another process by now, once the peer has ended and was waited for.
        // Then the pidfd reports the end.
        is_ending && self.still_has_id()
    }

    /// True if the id still belongs to this process. Call after reading its files.
    fn still_has_id(&self) -> bool {
        match self.process.started {
            0 => self.watched.is_ok(),
            started => Process::with_id(self.process.id).started == started,
        }
    }

    /// The same peer, as if the system refused to let it be watched.
    #[cfg(test)]
    pub(super) fn unwatched(self, endpoint: &Object) -> Self {
        let watched = Err(native(endpoint, "pidfd_open", Errno::PERM));
        Self { watched, ..self }
    }
}

/// The kernel's thread flag `PF_EXITING`.
const PF_EXITING: u64 = 4;

/// True if all threads of a process are exiting. See proc_pid_stat(5), field 9.
fn all_threads_exit(files: &str) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("{files}/task")) else {
        return false;
    };
    let mut threads = threads.map_while(Result::ok).peekable();
    let ends = |thread: std::fs::DirEntry| {
        let stat = std::fs::read(thread.path().join("stat")).unwrap_or_default();
        field(&stat, 9).is_some_and(|flags| flags & PF_EXITING != 0)
    };
    threads.peek().is_some() && threads.all(ends)
}

/// True if the process's core is being written (proc_pid_status(5)). It died before.
fn is_dumping_core(status: &[u8]) -> bool {
    let mut lines = status.split(|byte| *byte == b'\n');
    lines.any(|line| line == b"CoreDumping:\t1")
}

/// The start addresses of code and stack, which stay the same until execve(2).
///
/// The system shows 1 and 0 to processes that may not read them.
fn layout(stat: &[u8]) -> Option<[u64; 2]> {
    let (code, stack) = (field(stat, 26)?, field(stat, 28)?);
    (code > 1 && stack > 0).then_some([code, stack])
}

/// A field of a line of proc_pid_stat(5), by its number there.
///
/// Field 2 is a file name in parentheses, and may contain any characters.
fn field(stat: &[u8], number: usize) -> Option<u64> {
    let behind_name = stat.rsplit(|byte| *byte == b')').next()?;
    let field = behind_name
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .nth(number.checked_sub(3)?)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_after_any_program_name() {
        let line = b"17 (a) b) R 1 17 17 0 -1 4194572 100 0 0 0";
        assert_eq!(field(line, 9), Some(4_194_572));
        assert_eq!(field(b"17 (a", 9), None);
        assert_eq!(field(b"", 9), None);
        assert_eq!(field(line, 1), None);
        let own = std::fs::read("/proc/self/stat").unwrap();
        assert_eq!(field(&own, 9).unwrap() & PF_EXITING, 0);
        assert!(!all_threads_exit("/proc/self"));
        assert!(!all_threads_exit("/proc/none"));
    }

    /// Uses made-up texts, because core dumps are a setting of the whole system.
    #[test]
    fn a_core_dump_is_detected_by_the_status_file() {
        let status = |dumping: &str| {
            format!("Name:\tCoreDumping:\t1 x\nUmask:\t0022\n{dumping}THP_enabled:\t1\n")
        };
        assert!(is_dumping_core(status("CoreDumping:\t1\n").as_bytes()));
        assert!(!is_dumping_core(status("CoreDumping:\t0\n").as_bytes()));
        // From a system without that line, and cut short.
        assert!(!is_dumping_core(status("").as_bytes()));
        assert!(!is_dumping_core(b"CoreDumping:\t"));
        assert!(!is_dumping_core(b""));
        let own = std::fs::read("/proc/self/status").unwrap();
        assert!(!is_dumping_core(&own));
    }

    #[test]
    fn a_program_is_identified_by_its_addresses() {
        let line = |code: u64, stack: u64| {
            let between = "0 ".repeat(22);
            format!("17 (a) R {between}{code} 9 {stack} 0 0")
        };
        assert_eq!(layout(line(4096, 8192).as_bytes()), Some([4096, 8192]));
        assert_eq!(layout(line(1, 0).as_bytes()), None);
        assert_eq!(layout(b""), None);
        let own = || layout(&std::fs::read("/proc/self/stat").unwrap());
        assert!(own().is_some());
        assert_eq!(own(), own());
    }
}
