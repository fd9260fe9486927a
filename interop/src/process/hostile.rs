//! A live endpoint with a hostile peer, for fuzzing and for tests.

#![allow(clippy::panic, reason = "panics report failures")]

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use syncline_core::{
    Error,
    handle::{HandleKind, Origin},
    image::{Format, ImageInfo, ImageUsage},
    info::{BackendKind, Uuid},
};

use super::connection::BEHIND_DESCRIPTORS;
use super::endpoint::Endpoint;
use super::extent::{Extent, Resource};
use super::handover::{OutgoingObject, hand_over};
use super::message::{Content, HEADER, Handle, MAX_MESSAGE, Message, Offer};
use super::parties::{Agreed, queues_of};
use super::poll::Deadline;
use super::socket;
use crate::negotiate::{Mechanism, Needs, Party, PartyId, Process, Queues};

/// The hostile peer: a bare socket, and the sequence number that its next message should have.
pub(super) struct Raw {
    socket: OwnedFd,
    sequence: u64,
    last: Vec<u8>,
    /// One descriptor of each type.
    others: Vec<OwnedFd>,
}

/// Another process. It need not exist.
pub(super) fn elsewhere() -> Process {
    let id = std::process::id().wrapping_add(1).max(2);
    Process { id, started: 1 }
}

/// An offer with a handle of each kind in `kinds`.
pub(super) fn offer(number: u32, kinds: &[HandleKind]) -> Offer {
    let party = Some(PartyId {
        process: elsewhere(),
        device: 3,
    });
    Offer {
        number,
        content: Content::Timeline,
        label: "offered".into(),
        initial: 1,
        reached: 2,
        handles: kinds
            .iter()
            .map(|kind| Handle { party, kind: *kind })
            .collect(),
        origin: None,
        extent: None,
        event: None,
    }
}

/// An offer of memory with an image, alone in it.
pub(super) fn image(number: u32) -> Offer {
    let mut info = ImageInfo::d2(Format::Rgba8Unorm, 61, 37, ImageUsage::SAMPLED);
    info.levels = 4;
    Offer {
        content: Content::DeviceMemory,
        extent: Some(Extent {
            size: 1 << 16,
            offset: 0,
            resource: Resource::Image(info),
            memory_type: Some(3),
            dedicated: true,
        }),
        ..offer(number, &[HandleKind::MemoryOpaqueFd])
    }
}

impl Raw {
    pub(super) fn new(fd: OwnedFd) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let memory = rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC);
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let pipe = std::io::pipe().map(|(reader, _)| OwnedFd::from(reader));
        let file = File::open("/dev/null").map(OwnedFd::from);
        let folder = File::open("/proc").map(OwnedFd::from);
        let others = [memory.ok(), socket.ok(), pipe.ok(), file.ok(), folder.ok()];
        Self {
            socket: fd,
            sequence: 0,
            last: Vec::new(),
            others: others.into_iter().flatten().collect(),
        }
    }

    /// Sends `bytes` with that many descriptors. Ignores errors, because the endpoint may be
    /// closed.
    pub(super) fn bytes(&mut self, bytes: &[u8], descriptors: usize) {
        let others = self.others.iter().cycle().map(OwnedFd::as_fd);
        let fds: Vec<BorrowedFd<'_>> = others.take(descriptors).collect();
        let _ = socket::send(self.socket.as_fd(), bytes, &fds);
        self.last = bytes.to_vec();
    }

    /// Same as [`bytes`](Self::bytes), with descriptors of the caller.
    #[cfg(test)]
    pub(super) fn bytes_beside(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(fds)));
        let bytes = [rustix::io::IoSlice::new(bytes)];
        rustix::net::sendmsg(&self.socket, &bytes, &mut beside, SendFlags::empty()).unwrap();
    }

    /// The sequence number that the next message should have.
    #[cfg(test)]
    pub(super) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Counts a message that was sent as bare bytes.
    pub(super) const fn skip_number(&mut self) {
        self.sequence += 1;
    }

    pub(super) fn encoded(&self, message: &Message) -> Vec<u8> {
        let mut buffer = vec![0; MAX_MESSAGE];
        let length = message.encode(self.sequence, &mut buffer).unwrap_or(0);
        buffer.truncate(length);
        buffer
    }

    /// Sends a message with the right sequence number.
    pub(super) fn say(&mut self, message: &Message, descriptors: usize) {
        let bytes = self.encoded(message);
        self.bytes(&bytes, descriptors);
        self.sequence += 1;
    }

    pub(super) fn hello(&mut self) {
        let process = Process::this();
        let label = "hostile".into();
        self.say(&Message::Hello { process, label }, 0);
    }

    pub(super) fn repeat(&mut self) {
        let last = self.last.clone();
        self.bytes(&last, 0);
    }

    /// Waits until the socket has a message.
    #[cfg(test)]
    pub(super) fn wait(&self) {
        use rustix::event::{PollFd, PollFlags};
        let mut asked = [PollFd::new(&self.socket, PollFlags::IN)];
        super::poll::wait(&mut asked, Deadline::after(Duration::MAX)).unwrap();
    }

    /// Waits for `count` messages and removes them.
    #[cfg(test)]
    pub(super) fn heard(&self, count: usize) {
        for _ in 0..count {
            self.wait();
            assert!(socket::consume(self.socket.as_fd()));
        }
    }

    /// Waits for the next message. Closes its descriptors.
    #[cfg(test)]
    pub(super) fn hear(&self) -> Message {
        self.wait();
        let mut buffer = vec![0; MAX_MESSAGE];
        let flags = rustix::net::RecvFlags::empty();
        let (length, _) = rustix::net::recv(&self.socket, &mut buffer[..], flags).unwrap();
        Message::decode(&buffer[..length]).unwrap().1
    }

    /// Empties the socket and closes the received descriptors.
    pub(super) fn drain(&self) {
        // An empty message may be the end of the stream, which never ends.
        let flags = rustix::net::RecvFlags::DONTWAIT;
        while let Ok((1.., _)) = rustix::net::recv(&self.socket, &mut [0_u8; 1], flags) {}
    }
}

/// A script of numbers. Returns 0 after its end.
struct Script<'s>(&'s [u8]);

impl<'s> Script<'s> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn bytes(&mut self, count: usize) -> &'s [u8] {
        let (bytes, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        bytes
    }
}

/// A well-formed message chosen by the script, and its number of descriptors.
fn message(script: &mut Script<'_>) -> (Message, usize) {
    let number = script.byte().into();
    let message = match script.byte() % 11 {
        0 => Message::Point {
            number,
            value: u64::MAX - u64::from(script.byte()),
        },
        1 => Message::Taken { number },
        2 => Message::Refused {
            number,
            reason: "no".into(),
        },
        3 => Message::Bye,
        4 => Message::Hello {
            process: Process::this(),
            label: "again".into(),
        },
        5 => {
            let process = match script.byte() % 2 {
                0 => elsewhere(),
                _ => Process::this(),
            };
            Message::Requirements {
                round: number,
                is_all: !script.byte().is_multiple_of(4),
                parties: vec![Party::threads_of(process).signals(); (number % 4) as usize],
                links: Vec::new(),
            }
        }
        6 => Message::Agreed(Agreed {
            round: number,
            mechanism: None,
            home: None,
            parties: 1,
            digest: script.byte().into(),
        }),
        7 => Message::Settled { number },
        8 => Message::Withdrawn {
            number,
            reason: ["", "no more"][(number % 2) as usize].into(),
        },
        _ => {
            let kinds = match script.byte() % 4 {
                0 => &[][..],
                1 => &[HandleKind::CounterMemfd],
                2 => return (Message::Object(image(number)), 1),
                _ => &[HandleKind::TimelineOpaqueFd, HandleKind::MemoryOpaqueFd],
            };
            return (Message::Object(offer(number, kinds)), kinds.len());
        }
    };
    (message, 0)
}

/// True for the errors that an endpoint may return here.
fn is_typed(error: &Error) -> bool {
    matches!(
        error,
        Error::Message { .. }
            | Error::PeerLost { .. }
            | Error::PeerSilent { .. }
            | Error::Unsupported { .. }
            | Error::Import { .. }
    )
}

/// One message of each kind, with every optional part.
pub(super) fn samples() -> Vec<Message> {
    let uuid = Some(Uuid([7; 16]));
    let process = elsewhere();
    let party = |device| Party {
        id: PartyId { process, device },
        backend: (device != 0).then_some(BackendKind::Vulkan),
        name: "vulkan Some GPU".into(),
        uuid,
        partition: device == 2,
        driver_uuid: uuid,
        exports: vec![HandleKind::TimelineOpaqueFd, HandleKind::MemoryOpaqueFd],
        imports: vec![HandleKind::CounterMemfd],
        timestamps: true,
        queues: match device {
            0 => Queues::default(),
            _ => queues_of(BackendKind::Vulkan),
        },
        needs: Needs::SIGNAL | Needs::TIMESTAMPS,
    };
    let origin = Origin {
        device: "vulkan Some GPU".into(),
        uuid,
        driver_uuid: None,
    };
    let image = Offer {
        origin: Some(origin.clone()),
        ..image(6)
    };
    let memory = Offer {
        content: Content::DeviceMemory,
        origin: Some(origin),
        extent: Some(Extent {
            size: 4096,
            offset: 64,
            resource: Resource::Buffer(1000),
            memory_type: Some(3),
            dedicated: false,
        }),
        ..offer(4, &[HandleKind::MemoryOpaqueFd])
    };
    let event = Offer {
        content: Content::CudaEvent,
        event: Some([5; 64]),
        ..offer(5, &[])
    };
    vec![
        Message::Hello {
            process,
            label: "a label".into(),
        },
        Message::Requirements {
            round: 2,
            is_all: true,
            parties: vec![party(0), party(1), party(2)],
            links: vec![(party(0).id.process, party(1).id.process)],
        },
        Message::Agreed(Agreed {
            round: 2,
            mechanism: Some(Mechanism::SharedMemory),
            home: Some(party(1).id),
            parties: 3,
            digest: 0x0123_4567_89ab_cdef,
        }),
        Message::Object(offer(
            3,
            &[HandleKind::TimelineOpaqueFd, HandleKind::CounterMemfd],
        )),
        Message::Object(memory),
        Message::Object(image),
        Message::Object(event),
        Message::Taken { number: 3 },
        Message::Refused {
            number: 4,
            reason: "no such device".into(),
        },
        Message::Point {
            number: 3,
            value: 1 << 40,
        },
        Message::Bye,
        Message::Settled { number: 3 },
        Message::Withdrawn {
            number: 4,
            reason: "another has refused it".into(),
        },
    ]
}

/// Number of open descriptors of this process.
#[cfg(fuzzing)]
pub(super) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

/// Plays a script to an endpoint.
///
/// # Panics
/// If the endpoint is then neither usable nor closed with a typed error.
pub(super) fn play(script: &[u8]) {
    let mut script = Script(script);
    let Ok((ours, theirs)) = Endpoint::pair() else {
        panic!("no pair");
    };
    let mut raw = Raw::new(theirs);
    match script.byte() {
        // The usual case, so that most scripts get further.
        0..200 => raw.hello(),
        200..220 => {
            let count = script.byte().into();
            raw.bytes(script.bytes(count), (count % 3).saturating_sub(1));
        }
        220..235 => {
            let (message, descriptors) = message(&mut script);
            raw.say(&message, descriptors);
        }
        235..250 => {
            let process = elsewhere();
            let label = "another process".into();
            raw.say(&Message::Hello { process, label }, 0);
        }
        _ => {}
    }
    match Endpoint::open(ours, "fuzzed", Duration::ZERO) {
        Ok(endpoint) => run(&endpoint, raw, &mut script),
        Err(rejected) => {
            assert!(is_typed(&rejected.error), "{rejected}");
            // The descriptor is still open.
            assert!(rustix::io::fcntl_getfd(&rejected.handle).is_ok());
        }
    }
}

fn run(endpoint: &Endpoint, raw: Raw, script: &mut Script<'_>) {
    let mut raw = Some(raw);
    let mut broken = None;
    while !script.0.is_empty() {
        match (script.byte() % 32, &mut raw) {
            (act @ 0..8, _) => check_result(call(endpoint, act, script), endpoint, &mut broken),
            (31, raw) if script.byte().is_multiple_of(4) => *raw = None,
            (act, Some(raw)) => attack(raw, act, script),
            (_, None) => {}
        }
    }
    // Read all points that have arrived.
    loop {
        let result = endpoint.receive_point_of(Duration::ZERO);
        if is_behind_descriptors(&result) {
            // Queued messages keep the descriptors, or threads have not closed those of earlier
            // scripts yet.
            return;
        }
        let is_over = result.is_err();
        check_result(result.map(drop), endpoint, &mut broken);
        if is_over {
            break;
        }
    }
    let Some(mut raw) = raw else { return };
    match (endpoint.check(), endpoint.connection().due()) {
        // A valid message is still accepted.
        (Ok(()), Some(due)) => {
            raw.sequence = due;
            raw.say(
                &Message::Point {
                    number: 9,
                    value: 9,
                },
                0,
            );
            let got = endpoint.receive_point_of(Duration::ZERO);
            assert!(matches!(got, Ok((9, 9))), "{got:?}");
        }
        (Ok(()), None) => {}
        (Err(error), _) => assert!(is_typed(&error), "{error}"),
    }
}

fn is_behind_descriptors<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::PeerSilent { awaited, .. }) if awaited == BEHIND_DESCRIPTORS)
}

/// Checks that every call after an invalid message returns the same error.
fn check_result(result: Result<(), Error>, endpoint: &Endpoint, broken: &mut Option<String>) {
    let Err(error) = result else {
        assert!(
            broken.is_none(),
            "an endpoint succeeded after it was closed by {broken:?}"
        );
        return;
    };
    assert!(is_typed(&error), "{error}");
    match broken {
        Some(first) => assert_eq!(*first, error.to_string()),
        None => {
            if let Err(ended @ Error::Message { .. }) = endpoint.check() {
                *broken = Some(ended.to_string());
            }
        }
    }
}

/// Calls a method of the endpoint.
fn call(endpoint: &Endpoint, act: u8, script: &mut Script<'_>) -> Result<(), Error> {
    let now = Duration::ZERO;
    match act {
        0 | 1 => endpoint.receive_point_of(now).map(drop),
        2 | 3 => {
            let deadline = Deadline::after(now);
            let (received, offer, fds) =
                endpoint.receive_object(Content::Timeline, "offered", deadline)?;
            assert_eq!(fds.len(), offer.handles.len());
            match script.byte() % 4 {
                0 => drop(received),
                1 => received.refuse("no\nthanks", deadline),
                _ => drop(received.take(deadline, now)?),
            }
            Ok(())
        }
        4 | 6 => {
            let object = OutgoingObject {
                peer: endpoint,
                offer: offer(endpoint.next_number(), &[]),
                fds: Vec::new(),
            };
            hand_over(&[object], Deadline::after(now))
        }
        5 => endpoint.send_point_of(1, script.byte().into(), now),
        _ => match endpoint.negotiate(Party::threads().waits(), now) {
            Err(Error::Conflict(_)) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        },
    }
}

/// Sends something valid or invalid to the endpoint.
fn attack(raw: &mut Raw, act: u8, script: &mut Script<'_>) {
    match act {
        8..16 => {
            let (message, descriptors) = message(script);
            raw.say(&message, descriptors);
        }
        16 => {
            let count = script.byte().into();
            let bytes = script.bytes(count);
            raw.bytes(bytes, 0);
        }
        17 => {
            // A truncated message.
            let (message, descriptors) = message(script);
            let mut bytes = raw.encoded(&message);
            bytes.truncate(usize::from(script.byte()) % bytes.len().max(1));
            raw.bytes(&bytes, descriptors);
        }
        18 => raw.repeat(),
        19 => {
            // A wrong magic, version, kind or length.
            let (message, _) = message(script);
            let mut bytes = raw.encoded(&message);
            let at = usize::from(script.byte()) % HEADER;
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= script.byte();
            }
            raw.bytes(&bytes, 0);
        }
        20 => {
            // A wrong byte anywhere.
            let (message, descriptors) = message(script);
            let mut bytes = raw.encoded(&message);
            let at = usize::from(script.byte()) % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= script.byte();
            }
            raw.bytes(&bytes, descriptors);
            raw.skip_number();
        }
        21 => {
            // Too many or too few descriptors.
            let (message, _) = message(script);
            raw.say(&message, (script.byte() % 17).into());
        }
        22 => {
            for value in 0..u64::from(script.byte()) * 8 {
                raw.say(&Message::Point { number: 1, value }, 0);
            }
        }
        23 => {
            for number in 0..u32::from(script.byte() % 32) {
                raw.say(&Message::Taken { number }, 0);
            }
        }
        29 => {
            for number in 0..u32::from(script.byte() % 32) {
                let reason = String::new();
                raw.say(&Message::Settled { number }, 0);
                raw.say(&Message::Withdrawn { number, reason }, 0);
            }
        }
        24 => raw.bytes(
            &vec![script.byte(); MAX_MESSAGE + usize::from(script.byte())],
            0,
        ),
        25 => raw.bytes(&[], (script.byte() % 3).into()),
        26 => raw.sequence = raw.sequence.wrapping_add(script.byte().into()),
        27 => raw.drain(),
        28 => {
            let number = script.byte().into();
            raw.say(
                &Message::Object(offer(number, &[HandleKind::CounterMemfd; 16])),
                16,
            );
        }
        _ => raw.say(
            &Message::Point {
                number: 2,
                value: 2,
            },
            0,
        ),
    }
}
