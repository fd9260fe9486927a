//! P1: a peer process that breaks the protocol, byte by byte.
//!
//! The endpoint either closes with a typed error or stays usable. No descriptor stays open.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::MemfdFlags;
use rustix::io::IoSlice;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use syncline::error::Process;
use syncline::negotiate::Party;
use syncline::process::Endpoint;
use syncline::{Error, error::PeerLoss};

use super::{Alone, LONG, loss};

/// Encodes a message: magic, version, kind, length, sequence, body.
fn message(kind: u16, sequence: u64, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [
        b"SYNL".as_slice(),
        &6_u16.to_le_bytes(),
        &kind.to_le_bytes(),
        &length.to_le_bytes(),
        &sequence.to_le_bytes(),
        body,
    ]
    .concat()
}

fn hello() -> Vec<u8> {
    let this = Process::this();
    let (id, started) = (this.id.to_le_bytes(), this.started.to_le_bytes());
    message(
        1,
        0,
        &[id.as_slice(), &started, &[7, 0], b"hostile"].concat(),
    )
}

fn point(sequence: u64) -> Vec<u8> {
    message(7, sequence, &[1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0])
}

/// Encodes an object with one counter in shared memory. The object has the number of its message.
fn object(sequence: u64) -> Vec<u8> {
    let values = [0; 16];
    let handle = [1, 4, 0];
    let number = u32::try_from(sequence).unwrap().to_le_bytes();
    let body = [&number[..], &[1, 0, 0], &values, &handle, &[0, 0, 0]].concat();
    message(4, sequence, &body)
}

/// The socket of the hostile peer.
struct Raw(OwnedFd);

impl Raw {
    fn send(&self, bytes: &[u8]) {
        rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL).unwrap();
    }

    fn send_beside(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(fds)));
        let flags = SendFlags::NOSIGNAL;
        rustix::net::sendmsg(&self.0, &[IoSlice::new(bytes)], &mut beside, flags).unwrap();
    }
}

/// Opens an endpoint. The peer has already greeted.
fn opened() -> (Endpoint, Raw) {
    let (ours, theirs) = Endpoint::pair().unwrap();
    let raw = Raw(theirs);
    raw.send(&hello());
    (Endpoint::open(ours, "ours", LONG).unwrap(), raw)
}

fn ask(endpoint: &Endpoint, timeout: Duration) -> Error {
    endpoint
        .negotiate(Party::threads().waits(), timeout)
        .unwrap_err()
}

/// Runs one case. The endpoint must close for the reason `expected` and leave nothing behind.
fn shuts_out(expected: &str, case: impl FnOnce(&Raw)) {
    let alone = Alone::new();
    {
        let (endpoint, raw) = opened();
        case(&raw);
        let refused = ask(&endpoint, LONG);
        let Error::Message { expected: told, .. } = &refused else {
            panic!("{refused}");
        };
        assert!(told.contains(expected), "{refused}");
        let same = refused.to_string();
        assert_eq!(endpoint.check().unwrap_err().to_string(), same);
        assert_eq!(ask(&endpoint, LONG).to_string(), same);
        // The peer sees that the endpoint has closed the connection.
        let gone = rustix::net::send(&raw.0, &point(1), SendFlags::NOSIGNAL);
        assert_eq!(gone, Err(rustix::io::Errno::PIPE));
    }
    alone.nothing_is_left();
}

#[test]
fn random_bytes() {
    let mut state = 1_u32;
    for length in [1, 3, 19, 20, 21, 100, 5000, 16384] {
        let bytes: Vec<u8> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        shuts_out("a message of this library", |raw| raw.send(&bytes));
    }
    shuts_out("a message of this library", |raw| raw.send(&[]));
    shuts_out("at most 16384 bytes", |raw| raw.send(&[0; 16385]));
}

#[test]
fn truncations() {
    let whole = object(1);
    for length in 1..whole.len() {
        shuts_out("", |raw| raw.send(&whole[..length]));
    }
}

#[test]
fn replays_and_gaps() {
    let turn = "each message once and in its turn";
    shuts_out(turn, |raw| {
        raw.send(&point(1));
        raw.send(&point(1));
    });
    shuts_out(turn, |raw| raw.send(&point(2)));
    shuts_out(turn, |raw| raw.send(&point(u64::MAX)));
    shuts_out(turn, |raw| raw.send(&hello()));
}

#[test]
fn wrong_versions_kinds_and_lengths() {
    let with = |at: usize, byte: u8| {
        let mut bytes = point(1);
        bytes[at] = byte;
        bytes
    };
    shuts_out("of this library", |raw| raw.send(&with(3, b'K')));
    shuts_out("version 6", |raw| raw.send(&with(4, 1)));
    shuts_out("version 6", |raw| raw.send(&with(5, 1)));
    shuts_out("known kind", |raw| raw.send(&with(6, 200)));
    shuts_out("as many bytes", |raw| raw.send(&with(8, 11)));
    shuts_out("as many bytes", |raw| raw.send(&with(11, 255)));
    let value = message(7, 1, &[&[1, 0, 0, 0], &[255; 8][..]].concat());
    shuts_out("a value below", |raw| raw.send(&value));
    let counts = message(2, 1, &[1, 0, 0, 0, 1, 255]);
    shuts_out("at most 32 parties", |raw| raw.send(&counts));
}

/// Returns descriptors of a pipe, a file, a directory, a socket and a memory file.
fn anything() -> Vec<OwnedFd> {
    let open = |path: &str| OwnedFd::from(std::fs::File::open(path).unwrap());
    let (reader, _) = std::io::pipe().unwrap();
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    vec![
        reader.into(),
        open("/dev/null"),
        open("/proc"),
        socket.into(),
        rustix::fs::memfd_create("anything", MemfdFlags::CLOEXEC).unwrap(),
    ]
}

#[test]
fn descriptors_of_any_kind_where_none_belong() {
    let told = "as many descriptors as are told";
    for which in 0..5 {
        shuts_out(told, |raw| {
            raw.send_beside(&point(1), &[anything()[which].as_fd()]);
        });
    }
    shuts_out("", |raw| {
        raw.send_beside(b"x", &[anything()[0].as_fd(); 16])
    });
}

#[test]
fn missing_descriptors() {
    let told = "as many descriptors as are told";
    shuts_out(told, |raw| raw.send(&object(1)));
}

#[test]
fn surplus_descriptors() {
    let told = "as many descriptors as are told";
    shuts_out(told, |raw| {
        raw.send_beside(&object(1), &[anything()[4].as_fd(); 2])
    });
    shuts_out(told, |raw| {
        raw.send_beside(&object(1), &[anything()[4].as_fd(); 16])
    });
    shuts_out("at most 16 descriptors", |raw| {
        raw.send_beside(&object(1), &[anything()[4].as_fd(); 30]);
    });
}

/// The peer sends points until the socket is full. The endpoint keeps 1024 and stays usable.
#[test]
fn a_flood_of_points() {
    let alone = Alone::new();
    {
        let (endpoint, raw) = opened();
        let flood = std::thread::spawn(move || {
            let mut sent = 0_u64;
            // Until the endpoint is dropped.
            while rustix::net::send(&raw.0, &point(sent + 1), SendFlags::NOSIGNAL).is_ok() {
                sent += 1;
            }
            sent
        });
        loop {
            let late = ask(&endpoint, Duration::from_millis(20));
            assert!(late.is_timeout(), "{late}");
            if late.to_string().contains("behind 1024 points") {
                break;
            }
        }
        endpoint.check().unwrap();
        drop(endpoint);
        assert!(flood.join().unwrap() >= 1024);
    }
    alone.nothing_is_left();
}

/// Objects that this process does not take, with descriptors. Too many close the endpoint.
#[test]
fn a_flood_of_objects() {
    shuts_out("messages to be sent as they are asked for", |raw| {
        let fd = &anything()[4];
        for sequence in 1..=17 {
            raw.send_beside(&object(sequence), &[fd.as_fd()]);
        }
    });
}

/// Well-formed messages that no call expects are kept, and the endpoint stays usable.
#[test]
fn well_formed_messages_leave_the_endpoint_usable() {
    let alone = Alone::new();
    {
        let (endpoint, raw) = opened();
        let fd = &anything()[0];
        raw.send(&point(1));
        // The answers "taken" and "refused" for numbers that this process has not given.
        raw.send(&message(5, 2, &[77, 0, 0, 0]));
        raw.send(&message(6, 3, &[78, 0, 0, 0, 2, 0, b'n', b'o']));
        raw.send_beside(&object(4), &[fd.as_fd()]);
        assert!(ask(&endpoint, Duration::ZERO).is_timeout());
        endpoint.check().unwrap();
        // A list of parties that contains this process. Only this process may list itself.
        let this = Process::this();
        let (id, started) = (this.id.to_le_bytes(), this.started.to_le_bytes());
        let party = [
            id.as_slice(),
            &started,
            &[0; 8],
            &[0, 0, 0],
            &[0; 7],
            &[1, 1, 0, 0, 0],
        ];
        let body = [&[9, 0, 0, 0, 1, 1][..], &party.concat(), &[0]].concat();
        raw.send(&message(2, 5, &body));
        let refused = ask(&endpoint, LONG);
        assert!(
            matches!(&refused, Error::Message { expected, .. } if expected.contains("other processes")),
            "{refused}"
        );
        endpoint.check().unwrap();
    }
    alone.nothing_is_left();
}

#[test]
fn a_peer_that_hangs_up_has_left() {
    let alone = Alone::new();
    {
        let (endpoint, raw) = opened();
        raw.send(&point(1));
        drop(raw);
        assert_eq!(loss(&ask(&endpoint, LONG)), PeerLoss::Left);
        assert_eq!(loss(&endpoint.check().unwrap_err()), PeerLoss::Left);
    }
    alone.nothing_is_left();
}

#[test]
fn malformed_greetings_are_refused() {
    let alone = Alone::new();
    {
        let with = |at: usize, byte: u8| {
            let mut bytes = hello();
            bytes[at] = byte;
            bytes
        };
        let foreign = {
            let parent = std::os::unix::process::parent_id();
            let id = parent.max(1).to_le_bytes();
            message(1, 0, &[id.as_slice(), &[0; 8], &[0, 0]].concat())
        };
        let cases = [
            Vec::new(),
            b"hello".to_vec(),
            with(4, 9),
            with(12, 1),
            point(0),
            message(8, 0, &[]),
            foreign,
            vec![0; 20_000],
        ];
        for case in cases {
            let (ours, theirs) = Endpoint::pair().unwrap();
            let raw = Raw(theirs);
            raw.send(&case);
            let rejected = Endpoint::open(ours, "ours", LONG).unwrap_err();
            assert!(
                matches!(rejected.error, Error::Message { .. }),
                "{rejected}"
            );
        }
        let (ours, theirs) = Endpoint::pair().unwrap();
        let raw = Raw(theirs);
        raw.send_beside(&hello(), &[anything()[0].as_fd()]);
        let rejected = Endpoint::open(ours, "ours", LONG).unwrap_err();
        assert!(
            matches!(rejected.error, Error::Message { .. }),
            "{rejected}"
        );
    }
    alone.nothing_is_left();
}
