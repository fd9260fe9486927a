//! recvmsg(2), with what the kernel puts beside a message: who sent it, and descriptors.
//!
//! Not `rustix`, whose credentials cannot hold the 0 that the kernel gives for a sender who is in
//! another namespace of processes, or who sent before anybody had asked for credentials: either is
//! for the other side to bring about.
#![allow(
    unsafe_code,
    reason = "one call of the system, and the descriptors that it makes"
)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use smallvec::SmallVec;

use super::closing::{Closer, PeerFd};
use super::message::MOST_DESCRIPTORS;

/// Descriptors that came with a message.
pub(super) type Descriptors = SmallVec<[PeerFd; MOST_DESCRIPTORS]>;

/// Who sent a message, as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sender {
    /// Its process; 0 if that has no id here.
    pub(super) process: u32,
}

/// One message, which is still in the socket.
#[derive(Debug)]
pub(super) struct Received {
    /// Bytes of it that are in the buffer.
    pub(super) bytes: usize,
    /// It was longer than the buffer.
    pub(super) is_cut: bool,
    /// The message has more descriptors than these: there was no room for them, or this process may
    /// open no more.
    pub(super) lacks_descriptors: bool,
    /// `None` at the end of the stream, where no message is.
    pub(super) from: Option<Sender>,
    pub(super) descriptors: Descriptors,
}

/// `struct cmsghdr` of 64-bit kernels, and of 32-bit ones: a length, a level and a type, and what
/// follows begins on a word.
const WORD: usize = size_of::<usize>();
const HEADER: usize = WORD + 8;
const CREDENTIALS: usize = HEADER + 12_usize.next_multiple_of(WORD);
const RIGHTS: usize = HEADER + (4 * MOST_DESCRIPTORS).next_multiple_of(WORD);

/// The kernel's number for a descriptor of the sending process, which a socket may be set to bring:
/// `SCM_PIDFD` of the kernel's `socket.h`.
const SCM_PIDFD: i32 = 4;

/// Asks for that descriptor: `SO_PASSPIDFD` of the kernel's `socket.h`.
const SO_PASSPIDFD: i32 = 76;

/// Room for credentials and for the most descriptors that a message may have.
#[repr(C, align(8))]
struct Control([u8; CREDENTIALS + RIGHTS]);

/// The next message, if there is one, with as many of its descriptors as `closer` has room for;
/// none without one. Does not block, and allocates nothing.
///
/// The message stays in the socket (`MSG_PEEK`). While it is there, the socket holds its
/// descriptors: so it is never this call that releases one for which there is no room. That could
/// block, as close(2) can.
///
/// # Errors
/// `AGAIN` if there is none, and whatever else recvmsg(2) answers.
pub(super) fn peek(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    closer: Option<&Arc<Closer>>,
) -> Result<Received, Errno> {
    let mut control = Control([0; CREDENTIALS + RIGHTS]);
    let mut room = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: a structure of numbers and pointers, for which all zeroes is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut room;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    let rights = match closer.map_or(0, |closer| closer.room()) {
        0 => 0,
        // Unaligned, as the kernel would fill what is between with one more.
        room => HEADER + 4 * room,
    };
    message.msg_controllen = (CREDENTIALS + rights) as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_PEEK;
    // SAFETY: both buffers are borrowed for this call alone, and their lengths are their own.
    let bytes = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
    let Ok(bytes) = usize::try_from(bytes) else {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    };
    let mut received = Received {
        bytes: bytes.min(into.len()),
        is_cut: message.msg_flags & libc::MSG_TRUNC != 0,
        lacks_descriptors: message.msg_flags & libc::MSG_CTRUNC != 0,
        from: None,
        descriptors: Descriptors::new(),
    };
    let written = control.0.get(..message.msg_controllen as usize);
    for (kind, what) in ControlMessages(written.unwrap_or_default()) {
        match kind {
            libc::SCM_CREDENTIALS => {
                // Not as which user: nothing follows from that.
                received.from = number(what, 0).map(|process| Sender { process });
            }
            libc::SCM_RIGHTS | SCM_PIDFD => {
                for number in descriptors(what) {
                    // SAFETY: the kernel has just made it for this process, which has told nobody
                    // else of it. It is not negative: those are errors, and no descriptors.
                    let fd = unsafe { OwnedFd::from_raw_fd(number) };
                    // One of the sender's process was not asked for. It is the kernel's own, and
                    // closed here.
                    match (kind, closer) {
                        (libc::SCM_RIGHTS, Some(closer)) => {
                            received.descriptors.push(closer.keep(fd));
                        }
                        _ => drop(fd),
                    }
                }
            }
            _ => {}
        }
    }
    Ok(received)
}

/// The descriptors among `numbers`. Where the kernel could make none of the sender's process, its
/// number is an error below 0.
fn descriptors(numbers: &[u8]) -> impl Iterator<Item = RawFd> {
    let (numbers, _) = numbers.as_chunks();
    let numbers = numbers.iter().map(|bytes| RawFd::from_ne_bytes(*bytes));
    numbers.filter(|number| *number >= 0)
}

/// Sets the socket to bring nothing beside messages but credentials and descriptors.
///
/// A process that had the socket before may have asked for more. The kernel says that a message was
/// cut where there is no room for that, as it does where descriptors are missing. There must not be
/// room: the kernel would fill it with descriptors.
///
/// # Errors
/// What setsockopt(2) answers, but for an option that the kernel does not know.
pub(super) fn disable_other_ancillary_data(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    for option in [libc::SO_PASSSEC, SO_PASSPIDFD] {
        let off = 0_i32;
        // SAFETY: the value is a number that lives through the call, and the length is its own.
        let answer = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const off).cast(),
                size_of_val(&off) as libc::socklen_t,
            )
        };
        if answer != 0 {
            let error = std::io::Error::last_os_error();
            match Errno::from_io_error(&error).unwrap_or(Errno::IO) {
                Errno::NOPROTOOPT => {}
                errno => return Err(errno),
            }
        }
    }
    Ok(())
}

/// The parts that lie one behind the other: their types, and what they hold.
struct ControlMessages<'c>(&'c [u8]);

impl<'c> Iterator for ControlMessages<'c> {
    type Item = (i32, &'c [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let length = self.0.get(..WORD)?.try_into().ok()?;
            let length = usize::from_ne_bytes(length);
            let (level, kind) = (number(self.0, WORD)?, number(self.0, WORD + 4)?);
            let what = self.0.get(HEADER..length)?;
            let next = length.next_multiple_of(WORD);
            self.0 = self.0.get(next..).unwrap_or_default();
            if level.cast_signed() == libc::SOL_SOCKET {
                return Some((kind.cast_signed(), what));
            }
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let number = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_in_the_place_of_descriptors_are_none() {
        let numbers = [-24_i32, 5, -1, 0, i32::MIN].map(i32::to_ne_bytes);
        let found: Vec<_> = descriptors(numbers.as_flattened()).collect();
        assert_eq!(found, [5, 0]);
    }
}
