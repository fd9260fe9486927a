//! The exchange of greetings. Each side names itself, and the kernel names the sender.

use rustix::io::Errno;
use syncline_core::{
    Error, Result,
    error::{Object, PeerLoss},
};

use super::control::Received;
use super::message::{MAX_MESSAGE, Message};
use super::peer::Peer;
use super::poll::{Deadline, native, wait};
use super::socket::Socket;
use super::wire::Malformed;
use crate::negotiate::Process;

/// Sends a greeting and waits for the peer's.
///
/// # Errors
/// [`Error::PeerSilent`]. [`Error::PeerLost`]. [`Error::Message`] if the first message is not a
/// greeting. [`Error::Native`].
pub(super) fn greet(object: &Object, socket: &Socket, deadline: Deadline) -> Result<Peer> {
    let mut buffer = vec![0; MAX_MESSAGE];
    send_greeting(object, socket, &mut buffer, deadline)?;
    // Without room for descriptors, because the peer is not known yet.
    let received = receive_greeting(object, socket, &mut buffer, deadline)?;
    let from = received.from;
    let unexpected = |Malformed { expected, found }| Error::message(object, expected, found);
    let claimed = parse(&received, &buffer).map_err(unexpected)?;
    socket.consume();
    let from = from.ok_or_else(|| {
        unexpected(Malformed::new(
            "a greeting from a process",
            "one whose sender is not known",
        ))
    })?;
    Peer::verify(object, claimed, from)
}

fn send_greeting(
    object: &Object,
    socket: &Socket,
    buffer: &mut [u8],
    deadline: Deadline,
) -> Result<()> {
    // A peer refuses a process that does not state its start time, if the peer can read that time.
    let process = Process::try_this().map_err(|errno| native(object, "open", errno))?;
    let hello = Message::Hello {
        process,
        label: object.label().into(),
    };
    let length = hello.encode(0, buffer).unwrap_or(0);
    loop {
        match socket.send(buffer.get(..length).unwrap_or_default(), &[]) {
            Ok(()) => return Ok(()),
            Err(Errno::AGAIN) if deadline.has_passed() => {
                return Err(silent(object, "make room for a greeting", deadline));
            }
            Err(Errno::AGAIN) => wait(&mut [socket.writable()], deadline)
                .map_err(|errno| native(object, "poll", errno))?,
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(gone(object)),
            Err(errno) => return Err(native(object, "sendmsg", errno)),
        }
    }
}

fn receive_greeting(
    object: &Object,
    socket: &Socket,
    buffer: &mut [u8],
    deadline: Deadline,
) -> Result<Received> {
    loop {
        match socket.peek(buffer, None) {
            Ok(end) if end.bytes == 0 && end.from.is_none() => return Err(gone(object)),
            Ok(received) => return Ok(received),
            Err(Errno::AGAIN) if deadline.has_passed() => {
                return Err(silent(object, "send a greeting", deadline));
            }
            Err(Errno::AGAIN) => wait(&mut [socket.readable()], deadline)
                .map_err(|errno| native(object, "poll", errno))?,
            Err(errno) => return Err(native(object, "recvmsg", errno)),
        }
    }
}

fn silent(object: &Object, awaited: &'static str, deadline: Deadline) -> Error {
    Error::peer_silent(object, 0, awaited, deadline.waited())
}

fn gone(object: &Object) -> Error {
    Error::peer_lost(object, 0, PeerLoss::HungUp)
}

/// The process that the greeting names.
fn parse(received: &Received, buffer: &[u8]) -> Result<Process, Malformed> {
    if received.is_cut {
        let found = format_args!("one of more than {MAX_MESSAGE}");
        return Err(Malformed::new("a message of at most 16384 bytes", found));
    }
    if received.lacks_descriptors {
        return Err(Malformed::new(
            "a greeting without descriptors",
            "one with some",
        ));
    }
    match Message::decode(buffer.get(..received.bytes).unwrap_or_default())? {
        (0, Message::Hello { process, .. }) => Ok(process),
        (sequence, message) => {
            let found = format_args!("{} as number {sequence}", message.name());
            Err(Malformed::new("a greeting as number 0", found))
        }
    }
}
