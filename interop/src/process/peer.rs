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
    /// The user that the kernel names.
    pub(super) user: u32,
    /// Tells of its end; or why this process may not have one.
    watched: Result<OwnedFd>,
}

impl Peer {
    /// Judges what a process says of itself by what the kernel says of it.
    ///
    /// # Errors
    /// [`Error::Message`] if it says something else, [`Error::PeerLost`] if it has gone since, [`Error::Native`] if the system has no descriptor left for it.
    pub(super) fn judge(endpoint: &Object, told: Process, from: Sender) -> Result<Self> {
        let lies = |found: String| Error::Message {
            endpoint: endpoint.clone(),
            expected: match from.process {
                0 => "a process that has an id here".into(),
                id => format!("what process {id} is"),
            },
            found,
        };
        if from.process == 0 || told.id != from.process {
            let reason = "both have to be of one namespace of processes";
            return Err(lies(format!("that it is {told}; {reason}")));
        }
        let died = || Error::PeerLost {
            endpoint: endpoint.clone(),
            process: told.id,
            how: PeerLoss::Died { exit: None },
        };
        let id = i32::try_from(told.id).ok().and_then(Pid::from_raw);
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
        let found = Process::with_id(told.id);
        if found.started != told.started && found.started != 0 && told.started != 0 {
            let (told, found) = (told.started, found.started);
            return Err(lies(format!(
                "that it started at {told}, and not at {found}"
            )));
        }
        Ok(Self {
            process: told,
            user: from.user,
            watched,
        })
    }

    /// Whether its end can be seen.
    pub(super) fn watched(&self) -> Result<()> {
        self.watched.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    /// That it has ended, if that can be seen.
    pub(super) fn ended(&self) -> Option<PollFd<'_>> {
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

    /// True if it will not run any more, although it has not ended yet: what it has with a driver may take its time to go. See proc_pid_stat(5), field 9.
    pub(super) fn is_ending(&self) -> bool {
        // The system gives its id to nobody else as long as it has not ended and been waited for.
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.process.id)) else {
            return false;
        };
        let mut threads = threads.map_while(Result::ok).peekable();
        let ends = |thread: std::fs::DirEntry| {
            let stat = std::fs::read(thread.path().join("stat")).unwrap_or_default();
            flags(&stat).is_some_and(|flags| flags & EXITING != 0)
        };
        threads.peek().is_some() && threads.all(ends)
    }

    /// As where the system refuses to let it be watched.
    #[cfg(test)]
    pub(super) fn unwatched(self, endpoint: &Object) -> Self {
        let watched = Err(native(endpoint, "pidfd_open", Errno::PERM));
        Self { watched, ..self }
    }
}

/// `PF_EXITING`, of the kernel's flags of a thread.
const EXITING: u32 = 4;

/// The kernel's flags in a line of proc_pid_stat(5). The second field is a file's name in brackets, and may hold anything.
fn flags(stat: &[u8]) -> Option<u32> {
    let behind_name = stat.rsplit(|byte| *byte == b')').next()?;
    let flags = behind_name
        .split(u8::is_ascii_whitespace)
        .filter(|field| !field.is_empty())
        .nth(6)?;
    std::str::from_utf8(flags).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_stand_behind_any_name() {
        let line = b"17 (a) b) R 1 17 17 0 -1 4194572 100 0 0 0";
        assert_eq!(flags(line), Some(4_194_572));
        assert_eq!(flags(b"17 (a"), None);
        assert_eq!(flags(b""), None);
        let own = std::fs::read("/proc/self/stat").unwrap();
        assert_eq!(flags(&own).unwrap() & EXITING, 0);
    }
}
