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

/// A path at which other processes [connect](Endpoint::connect): see bind(2) and listen(2).
///
/// Who may connect is who may write to the socket there: so put it into a directory that only those can enter. Dropping it removes the path, if that
/// is still the socket that was bound.
#[derive(Debug)]
pub struct Listener {
    object: Object,
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the path.
    bound: Option<(u64, u64)>,
    /// Closes the sockets of clients that do not become endpoints.
    closer: Arc<Closer>,
}

impl Listener {
    /// Makes a socket at `path`, of 107 bytes at most. Does not block.
    ///
    /// # Errors
    /// [`Error::Native`] with what the system answers: `EADDRINUSE` if there is anything at `path`, which stays as it is.
    pub fn bind(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let object = Object::new("listener", &path.to_string_lossy());
        let failed = |call| {
            let object = object.clone();
            move |errno| native(&object, call, errno)
        };
        let address = SocketAddrUnix::new(path).map_err(failed("bind"))?;
        let socket = Socket::unconnected().map_err(|(call, errno)| native(&object, call, errno))?;
        rustix::fs::fcntl_setfl(&socket, OFlags::NONBLOCK).map_err(failed("fcntl(F_SETFL)"))?;
        rustix::net::bind(&socket, &address).map_err(failed("bind"))?;
        let listener = Self {
            object: object.clone(),
            closer: Closer::start(&object)?,
            socket,
            bound: inode(path),
            path: path.to_owned(),
        };
        rustix::net::listen(&listener.socket, BACKLOG).map_err(failed("listen"))?;
        Ok(listener)
    }

    /// The next process that connects: waits up to `timeout` for it, and for its greeting. One that connects and does not greet is let go after
    /// that time; call again for the next.
    ///
    /// # Errors
    /// [`Error::PeerSilent`] if nobody connects, and as [`Endpoint::open`].
    pub fn accept(&self, label: &str, timeout: Duration) -> Result<Endpoint> {
        let patience = Patience::of(timeout);
        let socket = loop {
            // The socket does not block: another thread may have taken the one that the poll has seen.
            match rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => break socket,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(Errno::AGAIN) if patience.is_over() => {
                    return Err(Error::PeerSilent {
                        endpoint: self.object.clone(),
                        process: 0,
                        awaited: "connect".into(),
                        waited: patience.waited(),
                    });
                }
                Err(Errno::AGAIN) => {
                    let mut asked = [PollFd::new(&self.socket, PollFlags::IN)];
                    wait(&mut asked, patience)
                        .map_err(|errno| native(&self.object, "poll", errno))?;
                }
                Err(errno) => return Err(native(&self.object, "accept", errno)),
            }
        };
        let object = Object::new("endpoint", label);
        Endpoint::over_own(socket, object, &self.closer, patience)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
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
