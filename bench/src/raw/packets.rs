//! A point by hand: messages of 32 bytes over a Unix socket that keeps messages apart.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags,
    SocketType, recvmsg, sendmsg, socketpair, sockopt,
};

use crate::side::{Outcome, Stop};

/// The size of a point on an endpoint.
const BYTES: usize = 32;

/// Time-out of all messages.
const LONG: Timespec = Timespec {
    tv_sec: 20,
    tv_nsec: 0,
};

/// How messages are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// recvmsg(2) blocks.
    None,
    /// poll(2) waits with a time-out before recvmsg(2), which does not block. The kernel adds the
    /// sender's credentials (`SO_PASSCRED`).
    Least,
}

/// One end of a socket.
pub(crate) struct Packets(OwnedFd);

impl Packets {
    /// Two connected ends.
    pub(crate) fn pair() -> Outcome<(OwnedFd, OwnedFd)> {
        let pair = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        );
        pair.map_err(|errno| failed("socketpair", errno))
    }

    pub(crate) const fn new(end: OwnedFd) -> Self {
        Self(end)
    }

    /// Prepares an end for messages with `care`. To be called on both ends.
    pub(crate) fn prepare(&self, care: Care) -> Outcome<()> {
        let asked = sockopt::set_socket_passcred(&self.0, care == Care::Least);
        asked.map_err(|errno| failed("setsockopt", errno))
    }

    pub(crate) fn send(&self, value: u64) -> Outcome<()> {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&value.to_le_bytes());
        let sent = sendmsg(
            &self.0,
            &[IoSlice::new(&bytes)],
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        );
        sent.map_err(|errno| failed("sendmsg", errno)).map(drop)
    }

    pub(crate) fn receive(&self, care: Care) -> Outcome<u64> {
        let mut bytes = [0; BYTES];
        let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        loop {
            let (mut beside, flags) = match care {
                Care::None => (RecvAncillaryBuffer::default(), RecvFlags::empty()),
                Care::Least => (RecvAncillaryBuffer::new(&mut room), RecvFlags::DONTWAIT),
            };
            let into = &mut [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, into, &mut beside, flags) {
                Ok(received) if received.bytes == BYTES => {
                    let [a, b, c, d, e, f, g, h, ..] = bytes;
                    return Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]));
                }
                Ok(received) => {
                    let found = format!("a message of {} bytes came", received.bytes);
                    return Err(Stop::Failed(found));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut asked = [PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
                    match poll(&mut asked, Some(&LONG)) {
                        Ok(0) => return Err(Stop::Failed("no message comes".into())),
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(errno) => return Err(failed("poll", errno)),
                    }
                }
                Err(errno) => return Err(failed("recvmsg", errno)),
            }
        }
    }
}

fn failed(call: &str, errno: Errno) -> Stop {
    Stop::Failed(format!("{call} returned {errno}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_with_either_care() -> Outcome<()> {
        let (one, other) = Packets::pair()?;
        let (one, other) = (Packets::new(one), Packets::new(other));
        for care in [Care::None, Care::Least, Care::None] {
            one.prepare(care)?;
            other.prepare(care)?;
            for value in 0..10 {
                one.send(value)?;
                assert_eq!(other.receive(care)?, value);
            }
        }
        Ok(())
    }
}
