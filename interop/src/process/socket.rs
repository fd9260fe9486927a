//! Unix sockets of type `SOCK_SEQPACKET`. They block only in poll(2).

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{AtFlags, FileType, StatxFlags};
use rustix::io::{Errno, FdFlags, IoSlice};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown,
    SocketFlags, SocketType, sockopt,
};

use super::closing::{Closer, PeerFd};
use super::control::{self, Received};
use super::message::MAX_DESCRIPTORS;

/// A connected socket of the right type.
///
/// Unread messages in it may hold descriptors of the peer, so the [`Closer`]'s thread closes it.
#[derive(Debug)]
pub(super) struct Socket(PeerFd);

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Socket {
    /// Checks the type of a descriptor without changing it. Asks no other process.
    ///
    /// # Errors
    /// A description of what was found instead.
    pub(super) fn check(fd: BorrowedFd<'_>) -> Result<(), String> {
        let unusable = |errno: Errno| format!("it cannot be used: {errno}");
        let family = match sockopt::socket_domain(fd) {
            Ok(family) => family,
            Err(Errno::NOTSOCK) => {
                // Do not query the file system: another process may run it (FUSE) and never answer.
                let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
                let status =
                    rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE).map_err(unusable)?;
                let kind = FileType::from_raw_mode(status.stx_mode.into());
                return Err(format!("it is a {kind:?}, not a socket"));
            }
            Err(errno) => return Err(unusable(errno)),
        };
        if family != AddressFamily::UNIX {
            let family = family.as_raw();
            return Err(format!(
                "it is a socket of address family {family}, not a Unix socket"
            ));
        }
        if sockopt::socket_type(fd).map_err(unusable)? != SocketType::SEQPACKET {
            return Err("it is a Unix socket of another type than SOCK_SEQPACKET".into());
        }
        match rustix::net::getpeername(fd) {
            Ok(_) => Ok(()),
            Err(Errno::NOTCONN) => Err("it is not connected".into()),
            Err(errno) => Err(unusable(errno)),
        }
    }

    /// Prepares a descriptor that passed [`check`](Self::check).
    ///
    /// From now on the kernel names the sender of each message, and adds no other data about it.
    /// The descriptor is close-on-exec.
    ///
    /// # Errors
    /// The failed call, with the descriptor.
    pub(super) fn prepare(
        fd: OwnedFd,
        closer: &Arc<Closer>,
    ) -> Result<Self, (OwnedFd, &'static str, Errno)> {
        if let Err(errno) = rustix::io::fcntl_setfd(&fd, FdFlags::CLOEXEC) {
            return Err((fd, "fcntl(F_SETFD)", errno));
        }
        if let Err(errno) = sockopt::set_socket_passcred(&fd, true) {
            return Err((fd, "setsockopt(SO_PASSCRED)", errno));
        }
        if let Err(errno) = control::disable_other_ancillary_data(fd.as_fd()) {
            return Err((fd, "setsockopt(SO_PASSPIDFD)", errno));
        }
        Ok(Self(closer.keep_socket(fd)))
    }

    /// Both ends of a connection. The kernel names the sender from the first message on.
    ///
    /// # Errors
    /// The failed call.
    pub(super) fn pair() -> Result<(OwnedFd, OwnedFd), (&'static str, Errno)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (one, other) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)
            .map_err(|errno| ("socketpair", errno))?;
        for end in [&one, &other] {
            sockopt::set_socket_passcred(end, true)
                .map_err(|errno| ("setsockopt(SO_PASSCRED)", errno))?;
        }
        Ok((one, other))
    }

    /// A socket that is not connected yet.
    ///
    /// # Errors
    /// The failed call.
    pub(super) fn unconnected() -> Result<OwnedFd, (&'static str, Errno)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let fd = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
            .map_err(|errno| ("socket", errno))?;
        sockopt::set_socket_passcred(&fd, true)
            .map_err(|errno| ("setsockopt(SO_PASSCRED)", errno))?;
        Ok(fd)
    }

    pub(super) fn into_fd(self) -> OwnedFd {
        self.0.into_fd()
    }

    /// Sends one whole message. Does not block and does not allocate.
    ///
    /// # Errors
    /// `AGAIN` if there is no room. Any other error of sendmsg(2). Nothing was sent then.
    pub(super) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        send(self.as_fd(), bytes, fds)
    }

    /// The next message, which stays in the socket. Does not block and does not allocate.
    ///
    /// Receives as many of its descriptors as `closer` has room for, and none without `closer`. At
    /// the end of the stream, the message has no bytes and no sender.
    ///
    /// # Errors
    /// `AGAIN` if there is none. Any other error of recvmsg(2).
    pub(super) fn peek(
        &self,
        into: &mut [u8],
        closer: Option<&Arc<Closer>>,
    ) -> Result<Received, Errno> {
        loop {
            match control::peek(self.as_fd(), into, closer) {
                // Reported once, if the peer has closed its end with unread messages in it. What
                // the peer has sent is still there.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                other => return other,
            }
        }
    }

    /// Removes the message that [`peek`](Self::peek) returned, without its descriptors.
    ///
    /// Blocks if the socket holds the last reference to one of them. So call it only for messages
    /// whose descriptors were all received.
    pub(super) fn consume(&self) {
        consume(self.as_fd());
    }

    pub(super) fn readable(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::IN)
    }

    pub(super) fn writable(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::OUT)
    }

    /// Reports that the other end is closed.
    pub(super) fn hung_up(&self) -> PollFd<'_> {
        PollFd::new(&self.0, PollFlags::RDHUP)
    }

    /// Ends the connection in both directions.
    pub(super) fn shut_down(&self) {
        // Fails only if the connection has ended already.
        let _ = rustix::net::shutdown(&self.0, Shutdown::Both);
    }
}

/// Same as [`Socket::send`], for any socket of this type.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::MSGSIZE);
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(errno) => return Err(errno),
        }
    }
}

/// Same as [`Socket::consume`], for any socket of this type. False if there was no message.
pub(super) fn consume(socket: BorrowedFd<'_>) -> bool {
    loop {
        match rustix::net::recv(socket, &mut [0_u8; 0], RecvFlags::DONTWAIT) {
            Err(Errno::INTR | Errno::CONNRESET) => {}
            other => return other.is_ok(),
        }
    }
}
