//! recvmsg(2) with ancillary data: the sending process and descriptors.
//!
//! `rustix` is not used, because its credentials cannot hold the process id 0. The kernel gives 0
//! for a sender in another pid namespace, and for one that sent before the receiver set
//! `SO_PASSCRED`. A peer can cause both.
#![allow(
    unsafe_code,
    reason = "one call of the system, and the descriptors that it makes"
)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::io::Errno;
use smallvec::SmallVec;

use super::closing::{Closer, PeerFd};
use super::message::MAX_DESCRIPTORS;

/// Descriptors that came with a message.
pub(super) type Descriptors = SmallVec<[PeerFd; MAX_DESCRIPTORS]>;

/// The sender of a message, as the kernel names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sender {
    /// The process id. 0 if the process has no id in this namespace.
    pub(super) process: u32,
}

/// One message, which is still in the socket.
#[derive(Debug)]
pub(super) struct Received {
    /// Bytes of the message in the buffer.
    pub(super) bytes: usize,
    /// The message was longer than the buffer.
    pub(super) is_cut: bool,
    /// The message has more descriptors than these. There was no room, or this process may open no
    /// more.
    pub(super) lacks_descriptors: bool,
    /// `None` at the end of the stream.
    pub(super) from: Option<Sender>,
    pub(super) descriptors: Descriptors,
}

/// Layout of `struct cmsghdr` on 64-bit and 32-bit kernels: a length, a level and a type.
///
/// Data begin at a multiple of the word size.
const WORD: usize = size_of::<usize>();
const HEADER: usize = WORD + 8;
const CREDENTIALS: usize = HEADER + 12_usize.next_multiple_of(WORD);
const RIGHTS: usize = HEADER + (4 * MAX_DESCRIPTORS).next_multiple_of(WORD);

/// `SCM_PIDFD` of the kernel's `socket.h`: a pidfd of the sender, if the socket has `SO_PASSPIDFD`.
const SCM_PIDFD: i32 = 4;

/// `SO_PASSPIDFD` of the kernel's `socket.h`.
const SO_PASSPIDFD: i32 = 76;

/// Buffer for credentials and the maximum number of descriptors.
#[repr(C, align(8))]
struct Control([u8; CREDENTIALS + RIGHTS]);

/// The next message. Does not block and does not allocate.
///
/// Receives as many of its descriptors as `closer` has room for, and none without `closer`.
///
/// The message stays in the socket (`MSG_PEEK`), and the socket keeps its descriptors. So this call
/// never releases a descriptor for which there is no room, which could block as close(2) can.
///
/// # Errors
/// `AGAIN` if there is none. Any other error of recvmsg(2).
pub(super) fn peek(
    socket: BorrowedFd<'_>,
    into: &mut [u8],
    closer: Option<&Arc<Closer>>,
) -> Result<Received, Errno> {
    let mut control = Control([0; CREDENTIALS + RIGHTS]);
    let mut buffer = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    // SAFETY: a structure of integers and pointers, for which all zeroes is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut buffer;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    let rights = match closer.map_or(0, |closer| closer.free_descriptors()) {
        0 => 0,
        // Not aligned: the kernel would fill the padding with one more descriptor.
        count => HEADER + 4 * count,
    };
    message.msg_controllen = (CREDENTIALS + rights) as _;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC | libc::MSG_PEEK;
    // SAFETY: both buffers are borrowed for this call alone, and the lengths are theirs.
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
                // The user id is not used.
                received.from = number(what, 0).map(|process| Sender { process });
            }
            libc::SCM_RIGHTS | SCM_PIDFD => {
                for number in descriptors(what) {
                    // SAFETY: the kernel has just made it for this process, and nothing else in the
                    // process knows it. It is not negative: `descriptors` leaves out errors.
                    let fd = unsafe { OwnedFd::from_raw_fd(number) };
                    // A pidfd was not asked for. The kernel made it, so closing it here does not
                    // block.
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

/// The descriptors among `numbers`.
///
/// If the kernel could not make a pidfd of the sender, the number is a negative error code.
fn descriptors(numbers: &[u8]) -> impl Iterator<Item = RawFd> {
    let (numbers, _) = numbers.as_chunks();
    let numbers = numbers.iter().map(|bytes| RawFd::from_ne_bytes(*bytes));
    numbers.filter(|number| *number >= 0)
}

/// The process that connected to a socket, as the kernel names it.
///
/// `None` if that is not known. The id is 0 if the process has none in this namespace.
pub(super) fn connected(socket: BorrowedFd<'_>) -> Option<Sender> {
    // SAFETY: a structure of integers, for which all zeroes is a valid value.
    let mut found: libc::ucred = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&found) as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which are those of `found`.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut found).cast(),
            &raw mut length,
        )
    };
    let process = u32::try_from(found.pid).ok().filter(|_| answer == 0)?;
    Some(Sender { process })
}

/// Limits ancillary data to credentials and descriptors.
///
/// A process that had the socket before may have enabled more. With too small a buffer, the kernel
/// reports a truncated message, as it does for missing descriptors. A larger buffer would not help:
/// the kernel would fill it with descriptors.
///
/// # Errors
/// An error of setsockopt(2), except for an option that the kernel does not know.
pub(super) fn disable_other_ancillary_data(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    for option in [libc::SO_PASSSEC, SO_PASSPIDFD] {
        let off = 0_i32;
        // SAFETY: the value is an integer that outlives the call, and the length is its size.
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

/// Iterates over the control messages of type `SOL_SOCKET`: type and data.
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
    fn error_codes_are_not_descriptors() {
        let numbers = [-24_i32, 5, -1, 0, i32::MIN].map(i32::to_ne_bytes);
        let found: Vec<_> = descriptors(numbers.as_flattened()).collect();
        assert_eq!(found, [5, 0]);
    }
}
