//! Accepting connections of other processes at a path.

use std::borrow::Cow;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrUnix, SocketFlags};
use syncline_core::internal::DroppedByMaker;
use syncline_core::{
    Error, Result,
    error::{Object, PeerLoss},
};

use super::closing::Closer;
use super::control::{Sender, connected};
use super::endpoint::Endpoint;
use super::poll::{Deadline, native, wait};
use super::socket::Socket;
use super::wire::shortened;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// How long a connected client may take to send its greeting.
///
/// A client of this library sends it at once. A silent client delays the next clients by this time.
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);

/// Different reasons to turn clients away that one error names.
const MAX_REASONS: usize = 8;

/// Maximum bytes of one of these reasons. The client determines a part of it.
const MAX_REASON_LENGTH: u16 = 256;

/// Interval between checks whether sockets of earlier clients are closed.
const CLOSE_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A socket at a path to which other processes [connect](Endpoint::connect) (bind(2), listen(2)).
///
/// Every process that may write to the socket file can connect. So place it in a directory that
/// only trusted users can enter. Dropping the listener removes the file if it is still the bound
/// socket. In a [forked](super#fork) child, the drop removes nothing.
#[derive(Debug)]
pub struct Listener {
    object: Object,
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the path.
    bound: Option<(u64, u64)>,
    /// Closes the sockets of clients that do not become endpoints.
    closer: DroppedByMaker<Arc<Closer>>,
    is_closed: AtomicBool,
}

impl Listener {
    /// Makes a socket at `path`, which has 1 to 107 bytes. Does not block.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an empty path, because the system would make an abstract socket
    /// to which every process may connect. [`Error::Native`] if a system call fails: `EADDRINUSE`
    /// if there is already a file at `path`, which is left unchanged.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let object = Object::new("listener", &path.to_string_lossy());
        let failed = |call| {
            let object = object.clone();
            move |errno| native(&object, call, errno)
        };
        if path.as_os_str().is_empty() {
            return Err(Error::unsupported(
                object,
                "bind to an empty path",
                "the system makes an abstract socket then, to which every process may connect",
            ));
        }
        let address = SocketAddrUnix::new(path).map_err(failed("bind"))?;
        let socket = Socket::unconnected().map_err(|(call, errno)| native(&object, call, errno))?;
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK).map_err(failed("fcntl(F_SETFL)"))?;
        let closer = Closer::start(&object)?;
        // The last step that may fail before the listener removes the file.
        rustix::net::bind(&socket, &address).map_err(failed("bind"))?;
        let listener = Self {
            object: object.clone(),
            closer: DroppedByMaker::new(closer),
            socket,
            bound: inode(path),
            path: path.to_owned(),
            is_closed: AtomicBool::new(false),
        };
        rustix::net::listen(&listener.socket, BACKLOG).map_err(failed("listen"))?;
        Ok(listener)
    }

    /// Accepts the next client that connects and sends a greeting. Waits up to `timeout`.
    ///
    /// A client is turned away if it sends no greeting within two seconds, sends anything else, or
    /// closes its end. Then the next client is accepted. The error after the time-out counts these
    /// clients and says which processes they are and why they were turned away. A client in another
    /// pid namespace is turned away, too.
    ///
    /// A thread of the listener closes the sockets of refused clients, because close(2) can block.
    /// No client is accepted while 64 sockets wait to be closed, or while 256 descriptors that
    /// peers have sent are open in this process.
    ///
    /// # Errors
    /// * [`Error::PeerSilent`] if no client connects and sends a valid greeting in time.
    /// * [`Error::Closed`] after [`Listener::close`].
    /// * [`Error::Native`] if a system call fails.
    pub fn accept(&self, label: &str, timeout: Duration) -> Result<Endpoint> {
        self.closer.maker().require(&self.object)?;
        let deadline = Deadline::after(timeout);
        let mut turned_away = TurnedAway::default();
        loop {
            let socket = self.next(deadline, &turned_away)?;
            let client = connected(socket.as_fd());
            let object = Object::new("endpoint", label);
            match Endpoint::over_own(
                socket,
                object,
                &self.closer,
                deadline.at_most(GREETING_TIMEOUT),
            ) {
                // The client's fault. The next client may be valid.
                Err(
                    error @ (Error::PeerSilent { .. }
                    | Error::Message { .. }
                    | Error::PeerLost { .. }),
                ) => {
                    turned_away.note(client, &error);
                    if deadline.has_passed() {
                        return Err(self.silent("connect", deadline, &turned_away));
                    }
                }
                other => return other,
            }
        }
    }

    /// Ends the calls of [`Listener::accept`] on all threads, and refuses later ones.
    ///
    /// A call that reads a greeting ends after at most two seconds. Clients are refused, and the
    /// file stays until the listener is dropped. Has no effect in a [forked](super#fork) child.
    pub fn close(&self) {
        if self.closer.maker().is_this() {
            self.is_closed.store(true, Ordering::Release);
            // Wakes the threads that poll. The call fails only for a socket that is closed already.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
        }
    }

    /// Accepts the next connection.
    fn next(&self, deadline: Deadline, turned_away: &TurnedAway) -> Result<OwnedFd> {
        loop {
            if self.is_closed.load(Ordering::Acquire) {
                return Err(Error::closed(&self.object));
            }
            if !self.closer.accepts() {
                if deadline.has_passed() {
                    let awaited = "let go of what earlier clients sent";
                    return Err(self.silent(awaited, deadline, turned_away));
                }
                std::thread::sleep(
                    deadline
                        .at_most(CLOSE_CHECK_INTERVAL)
                        .remaining()
                        .unwrap_or(CLOSE_CHECK_INTERVAL),
                );
                continue;
            }
            // Non-blocking, because another thread may accept the connection that poll(2) reported.
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // Another thread has shut it down meanwhile.
                Err(Errno::INVAL) if self.is_closed.load(Ordering::Acquire) => {}
                Err(Errno::AGAIN) if deadline.has_passed() => {
                    return Err(self.silent("connect", deadline, turned_away));
                }
                Err(Errno::AGAIN) => {
                    let mut asked = [PollFd::new(&self.socket, PollFlags::IN)];
                    wait(&mut asked, deadline)
                        .map_err(|errno| native(&self.object, "poll", errno))?;
                }
                Err(errno) => return Err(native(&self.object, "accept", errno)),
            }
        }
    }

    fn silent(&self, awaited: &'static str, deadline: Deadline, besides: &TurnedAway) -> Error {
        let awaited = match besides.count {
            0 => Cow::Borrowed(awaited),
            _ => format!("{awaited} ({besides})").into(),
        };
        Error::peer_silent(&self.object, 0, awaited, deadline.waited())
    }
}

/// The clients that one call of [`Listener::accept`] has turned away.
#[derive(Default)]
struct TurnedAway {
    count: u64,
    /// Which process and why, and how often. At most [`MAX_REASONS`].
    reasons: Vec<(String, u64)>,
}

impl TurnedAway {
    /// Notes a client that did not become an endpoint because of `error`.
    fn note(&mut self, client: Option<Sender>, error: &Error) {
        self.count += 1;
        let client = match client {
            Some(Sender { process: 0 }) => "a process of another pid namespace".into(),
            Some(Sender { process }) => format!("process {process}"),
            None => "a process that is not known".into(),
        };
        let why = match error {
            Error::PeerSilent {
                awaited, waited, ..
            } => format!("it did not {awaited} within {waited:?}"),
            Error::Message {
                expected, found, ..
            } => format!("expected {expected}, and was sent {found}"),
            Error::PeerLost {
                how: PeerLoss::HungUp,
                ..
            } => "it closed its end before it had greeted".into(),
            other => other.to_string(),
        };
        let reason = shortened(&format!("{client}: {why}"), MAX_REASON_LENGTH);
        let known = self.reasons.iter_mut().find(|(known, _)| *known == reason);
        if let Some((_, times)) = known {
            *times += 1;
        } else if self.reasons.len() < MAX_REASONS {
            self.reasons.push((reason, 1));
        }
    }
}

impl fmt::Display for TurnedAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clients = if self.count == 1 { "client" } else { "clients" };
        write!(f, "{} {clients} turned away", self.count)?;
        let mut named = 0;
        for (n, (reason, times)) in self.reasons.iter().enumerate() {
            f.write_str(if n == 0 { ": " } else { "; " })?;
            if *times > 1 {
                write!(f, "{times} times ")?;
            }
            f.write_str(reason)?;
            named += times;
        }
        match self.count - named {
            0 => Ok(()),
            others => write!(f, "; and {others} more"),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // In a forked child, the path belongs to the parent.
        if !self.closer.maker().is_this() {
            return;
        }
        // Another process may have replaced the file.
        if self.bound.is_some() && self.bound == inode(&self.path) {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let status = rustix::fs::lstat(path).ok()?;
    Some((status.st_dev, status.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_are_turned_away_are_counted_and_named() {
        let mut turned_away = TurnedAway::default();
        let endpoint = Object::new("endpoint", "server");
        let hung_up = Error::peer_lost(&endpoint, 0, PeerLoss::HungUp);
        let mut note = |process, error: &Error| turned_away.note(process, error);
        for _ in 0..3 {
            note(Some(Sender { process: 17 }), &hung_up);
        }
        note(Some(Sender { process: 0 }), &hung_up);
        note(None, &hung_up);
        for number in 0..10 {
            let error = Error::message(&endpoint, "a greeting", format!("number {number}"));
            note(Some(Sender { process: 18 }), &error);
        }
        let text = turned_away.to_string();
        for part in [
            "15 clients turned away: 3 times process 17: it closed its end before",
            "; a process of another pid namespace: it closed",
            "; a process that is not known: it closed",
            "; process 18: expected a greeting, and was sent number 4; and 5 more",
        ] {
            assert!(text.contains(part), "{part:?} is not in: {text}");
        }
    }
}
