//! Where other processes connect.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, SocketFlags};
use syncline_core::{Error, Object, Result};

use super::Endpoint;
use super::closing::Closer;
use super::socket::{Patience, Socket, native, wait};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// For how long a client that has connected may take to greet. An honest one has greeted before it is accepted, or does so at
/// once; a silent one holds those behind it for no longer.
const GREETING: Duration = Duration::from_secs(2);

/// Between two looks whether sockets of earlier clients are closed.
const NAP: Duration = Duration::from_millis(10);

/// A path at which other processes [connect](Endpoint::connect): see bind(2) and listen(2).
///
/// Who may connect is who may write to the socket there: so put it into a directory that only those can enter. Dropping it removes the path, if that
/// is still the socket that was bound; in a child that this process [forks](super#fork) it removes nothing.
#[derive(Debug)]
pub struct Listener {
    object: Object,
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the path.
    bound: Option<(u64, u64)>,
    /// The id of the process that has made it.
    maker: u32,
    /// Closes the sockets of clients that do not become endpoints.
    closer: Arc<Closer>,
}

impl Listener {
    /// Makes a socket at `path`, of 1 to 107 bytes. Does not block.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an empty path: the system would make an abstract socket, to which every process may connect.
    /// [`Error::Native`] with what the system answers: `EADDRINUSE` if there is anything at `path`, which stays as it is.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let object = Object::new("listener", &path.to_string_lossy());
        let failed = |call| {
            let object = object.clone();
            move |errno| native(&object, call, errno)
        };
        if path.as_os_str().is_empty() {
            return Err(Error::Unsupported {
                object,
                asked: "bind to an empty path".into(),
                reason:
                    "the system makes an abstract socket then, to which every process may connect"
                        .into(),
            });
        }
        let address = SocketAddrUnix::new(path).map_err(failed("bind"))?;
        let socket = Socket::unconnected().map_err(|(call, errno)| native(&object, call, errno))?;
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK).map_err(failed("fcntl(F_SETFL)"))?;
        rustix::net::bind(&socket, &address).map_err(failed("bind"))?;
        let listener = Self {
            object: object.clone(),
            closer: Closer::start(&object)?,
            socket,
            bound: inode(path),
            maker: std::process::id(),
            path: path.to_owned(),
        };
        rustix::net::listen(&listener.socket, BACKLOG).map_err(failed("listen"))?;
        Ok(listener)
    }

    /// The next process that connects and greets: waits up to `timeout` for it. A client that does not greet within two seconds,
    /// sends anything else or closes its end is let go, and the next one is served.
    ///
    /// Sockets of refused clients are closed by a thread of the listener's, as that can block. While 64 of them are waiting for
    /// it, no client is accepted. Nor is one while this process has 256 descriptors open that any peers have sent.
    ///
    /// # Errors
    /// * [`Error::PeerSilent`] if no process connects and greets in time.
    /// * [`Error::Message`] or [`Error::PeerLost`] of the client at hand when the time is over.
    /// * [`Error::Native`] if the system refuses something.
    pub fn accept(&self, label: &str, timeout: Duration) -> Result<Endpoint> {
        let patience = Patience::of(timeout);
        loop {
            let socket = self.next(patience)?;
            let object = Object::new("endpoint", label);
            match Endpoint::over_own(socket, object, &self.closer, patience.slice(GREETING)) {
                // The client's own doing, which says nothing about those behind it.
                Err(Error::PeerSilent { .. } | Error::Message { .. } | Error::PeerLost { .. })
                    if !patience.is_over() => {}
                other => return other,
            }
        }
    }

    /// The next process that connects.
    fn next(&self, patience: Patience) -> Result<OwnedFd> {
        loop {
            if !self.closer.accepts() {
                if patience.is_over() {
                    return Err(self.silent("let go of what earlier clients sent", patience));
                }
                std::thread::sleep(patience.slice(NAP).left().unwrap_or(NAP));
                continue;
            }
            // The socket does not block: another thread may have taken the one that the poll has seen.
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => return Ok(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) if patience.is_over() => {
                    return Err(self.silent("connect", patience));
                }
                Err(Errno::AGAIN) => {
                    let mut asked = [PollFd::new(&self.socket, PollFlags::IN)];
                    wait(&mut asked, patience)
                        .map_err(|errno| native(&self.object, "poll", errno))?;
                }
                Err(errno) => return Err(native(&self.object, "accept", errno)),
            }
        }
    }

    fn silent(&self, awaited: &'static str, patience: Patience) -> Error {
        Error::PeerSilent {
            endpoint: self.object.clone(),
            process: 0,
            awaited: awaited.into(),
            waited: patience.waited(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The path of a forked child is the maker's.
        if self.maker != std::process::id() {
            return;
        }
        // Somebody may have put something else there.
        if self.bound.is_some() && self.bound == inode(&self.path) {
            let _ = rustix::fs::unlink(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let status = rustix::fs::lstat(path).ok()?;
    Some((status.st_dev, status.st_ino))
}
