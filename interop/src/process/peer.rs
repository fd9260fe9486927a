//! Who is on the other side.

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid};
use syncline_core::{Error, Object, PeerExit, PeerLoss, Result};

use super::control::Sender;
use super::socket::native;
use crate::negotiate::Process;

/// The other process.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) process: Process,
    /// Where its program lies, if that is told.
    layout: Option<[u64; 2]>,
    /// Tells of its end; or why this process may not have one.
    watched: Result<OwnedFd>,
}

impl Peer {
    /// Judges what a process says of itself by what the kernel says of it.
    ///
    /// # Errors
    /// [`Error::Message`] if it says something else, [`Error::PeerLost`] if it has gone since,
    /// [`Error::Native`] if the system has no descriptor left for it.
    pub(super) fn verify(endpoint: &Object, claimed: Process, from: Sender) -> Result<Self> {
        let mismatch = |found: String| Error::Message {
            endpoint: endpoint.clone(),
            expected: match from.process {
                0 => "a process that has an id here".into(),
                id => format!("what process {id} is"),
            },
            found,
        };
        if from.process == 0 || claimed.id != from.process {
            let reason = "both have to be of one namespace of processes";
            return Err(mismatch(format!("that it is {claimed}; {reason}")));
        }
        let died = || Error::PeerLost {
            endpoint: endpoint.clone(),
            process: claimed.id,
            how: PeerLoss::Died { exit: None },
        };
        let id = i32::try_from(claimed.id).ok().and_then(Pid::from_raw);
        let opened = id.ok_or(Errno::INVAL);
        let opened = opened.and_then(|id| pidfd_open(id, PidfdFlags::empty()));
        let watched = match opened {
            Ok(watched) => Ok(watched),
            Err(Errno::SRCH) => return Err(died()),
            // It is too old, or does not let this process.
            Err(errno @ (Errno::NOSYS | Errno::PERM | Errno::ACCESS)) => {
                Err(native(endpoint, "pidfd_open", errno))
            }
            // For want of something now. Its end would go unseen, and nobody would know.
            Err(errno) => return Err(native(endpoint, "pidfd_open", errno)),
        };
        // After that, so that both are about one process, also if ids are given again.
        let found = Process::with_id(claimed.id);
        // Where /proc tells no time here, nothing can be compared.
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

    /// Whether its end can be seen.
    pub(super) fn watched(&self) -> Result<()> {
        self.watched.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// That it has ended, if that can be seen.
    pub(super) fn exit_poll(&self) -> Option<PollFd<'_>> {
        let watched = self.watched.as_ref().ok()?;
        Some(PollFd::new(watched, PollFlags::IN))
    }

    /// How it ended: told to its parent, for as long as that has not asked.
    pub(super) fn exit(&self) -> Option<PeerExit> {
        use std::os::fd::AsFd;
        let watched = self.watched.as_ref().ok()?.as_fd();
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::PidFd(watched), options).ok()??;
        let code = status.exit_status().map(PeerExit::Code);
        code.or_else(|| status.terminating_signal().map(PeerExit::Signal))
    }

    /// True if the program that greeted will not run any more, although the process has not ended
    /// yet: what it has with a driver may take its time to go, or its memory to be written to a
    /// file (core(5)), or it has become another program (execve(2)). Reads two files of /proc, or a
    /// little more.
    ///
    /// That it became another program is seen where this process may know where its memory lies,
    /// see ptrace(2) for PTRACE_MODE_READ_FSCREDS, and that has changed: with addresses at random,
    /// as they are mostly, it does.
    pub(super) fn is_ending(&self) -> bool {
        let files = format!("/proc/{}", self.process.id);
        let read = |name: &str| std::fs::read(format!("{files}/{name}")).unwrap_or_default();
        let is_other = match (self.layout, layout(&read("stat"))) {
            (Some(before), Some(now)) => before != now,
            _ => false,
        };
        let is_ending = is_other || is_dumping_core(&read("status")) || all_threads_exit(&files);
        // The system gives its id to somebody else once it has ended and been waited for. Then its
        // descriptor says so.
        is_ending && self.still_has_id()
    }

    /// After what was read of that id: whether that was about this process.
    fn still_has_id(&self) -> bool {
        match self.process.started {
            0 => self.watched.is_ok(),
            started => Process::with_id(self.process.id).started == started,
        }
    }

    /// As where the system refuses to let it be watched.
    #[cfg(test)]
    pub(super) fn unwatched(self, endpoint: &Object) -> Self {
        let watched = Err(native(endpoint, "pidfd_open", Errno::PERM));
        Self { watched, ..self }
    }
}

/// `PF_EXITING`, of the kernel's flags of a thread.
const EXITING: u64 = 4;

/// Whether all threads of a process have stopped to run for good. See proc_pid_stat(5), field 9.
fn all_threads_exit(files: &str) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("{files}/task")) else {
        return false;
    };
    let mut threads = threads.map_while(Result::ok).peekable();
    let ends = |thread: std::fs::DirEntry| {
        let stat = std::fs::read(thread.path().join("stat")).unwrap_or_default();
        field(&stat, 9).is_some_and(|flags| flags & EXITING != 0)
    };
    threads.peek().is_some() && threads.all(ends)
}

/// Whether proc_pid_status(5) says that its memory is being written to a file: it died before that
/// began.
fn is_dumping_core(status: &[u8]) -> bool {
    let mut lines = status.split(|byte| *byte == b'\n');
    lines.any(|line| line == b"CoreDumping:\t1")
}

/// Where the code and the stack of a program begin, which stays so until another takes its place.
/// The system says 1 and 0 to whom it does not tell.
fn layout(stat: &[u8]) -> Option<[u64; 2]> {
    let (code, stack) = (field(stat, 26)?, field(stat, 28)?);
    (code > 1 && stack > 0).then_some([code, stack])
}

/// A field in a line of proc_pid_stat(5), by its number there. The second is a file's name in
/// brackets, and may hold anything.
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
        assert_eq!(field(&own, 9).unwrap() & EXITING, 0);
        assert!(!all_threads_exit("/proc/self"));
        assert!(!all_threads_exit("/proc/none"));
    }

    /// Made up, as what becomes of a core is the whole system's setting.
    #[test]
    fn a_core_dump_is_detected_by_the_status_file() {
        let status = |dumping: &str| {
            format!("Name:\tCoreDumping:\t1 x\nUmask:\t0022\n{dumping}THP_enabled:\t1\n")
        };
        assert!(is_dumping_core(status("CoreDumping:\t1\n").as_bytes()));
        assert!(!is_dumping_core(status("CoreDumping:\t0\n").as_bytes()));
        // Of a system that does not tell, and cut short.
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
