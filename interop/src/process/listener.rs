//! Accepting connections of other processes at a path.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};
use syncline_core::internal::MakerProcess;
use syncline_core::{Error, Result, error::Object};

use super::closing::Closer;
use super::endpoint::Endpoint;
use super::poll::{Deadline, native, wait};
use super::socket::Socket;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// How long a connected client may take to send its greeting.
///
/// A client of this library sends it at once. A silent client delays the next clients by this time.
const GREETING_TIMEOUT: Duration = Duration::from_secs(2);

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
    maker: MakerProcess,
    /// Closes the sockets of clients that do not become endpoints.
    closer: Arc<Closer>,
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
            closer,
            socket,
            bound: inode(path),
            maker: MakerProcess::this(),
            path: path.to_owned(),
        };
        rustix::net::listen(&listener.socket, BACKLOG).map_err(failed("listen"))?;
        Ok(listener)
    }

    /// Accepts the next client that connects and sends a greeting. Waits up to `timeout`.
    ///
    /// A client is refused if it sends no greeting within two seconds, sends anything else, or
    /// closes its end. Then the next client is accepted.
    ///
    /// A thread of the listener closes the sockets of refused clients, because close(2) can block.
    /// No client is accepted while 64 sockets wait to be closed, or while 256 descriptors that
    /// peers have sent are open in this process.
    ///
    /// # Errors
    /// * [`Error::PeerSilent`] if no client connects and sends a greeting in time.
    /// * [`Error::Message`] or [`Error::PeerLost`] of the last client once the time is over.
    /// * [`Error::Native`] if a system call fails.
    pub fn accept(&self, label: &str, timeout: Duration) -> Result<Endpoint> {
        let deadline = Deadline::after(timeout);
        loop {
            let socket = self.next(deadline)?;
            let object = Object::new("endpoint", label);
            match Endpoint::over_own(
                socket,
                object,
                &self.closer,
                deadline.at_most(GREETING_TIMEOUT),
            ) {
                // The client's fault. The next client may be valid.
                Err(Error::PeerSilent { .. } | Error::Message { .. } | Error::PeerLost { .. })
                    if !deadline.has_passed() => {}
                other => return other,
            }
        }
    }

    /// Accepts the next connection.
    fn next(&self, deadline: Deadline) -> Result<OwnedFd> {
        loop {
            if !self.closer.accepts() {
                if deadline.has_passed() {
                    return Err(self.silent("let go of what earlier clients sent", deadline));
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
                Err(Errno::AGAIN) if deadline.has_passed() => {
                    return Err(self.silent("connect", deadline));
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

    fn silent(&self, awaited: &'static str, deadline: Deadline) -> Error {
        Error::peer_silent(&self.object, 0, awaited, deadline.waited())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // In a forked child, the path belongs to the parent.
        if !self.maker.is_this() {
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
