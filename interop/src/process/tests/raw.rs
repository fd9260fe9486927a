//! P1: an endpoint with a hostile peer. Each violation has a test, and random scripts combine them.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use rstest::rstest;
use rustix::fs::MemfdFlags;
use syncline_core::{
    Error,
    error::PeerLoss,
    handle::{HandleKind, SharedWords},
};

use super::loss::loss_recorder;
use super::{LONG, NOW, against_raw, both, pair, read_socket, receive};
use crate::negotiate::Process;
use crate::process::Endpoint;
use crate::process::hostile::{Raw, elsewhere, offer, play};
use crate::process::message::{MAX_MESSAGE, Message, Offer, POINT_MESSAGE};
use crate::process::offers::Answer;
use crate::process::poll::Deadline;

const POINT_1: Message = Message::Point {
    number: 1,
    value: 1,
};

/// Checks that the endpoint is closed and every call returns the same error with `expected`.
fn assert_shut_out(endpoint: &Endpoint, expected: &str) {
    let refused = endpoint.receive_point_of(LONG).unwrap_err();
    let Error::Message {
        expected: actual, ..
    } = &refused
    else {
        panic!("{refused}");
    };
    assert!(actual.contains(expected), "{refused}");
    let same = refused.to_string();
    assert_eq!(endpoint.check().unwrap_err().to_string(), same);
    assert_eq!(
        endpoint.send_point_of(1, 1, NOW).unwrap_err().to_string(),
        same
    );
    assert_eq!(receive(endpoint).err().unwrap().to_string(), same);
    assert_eq!(
        endpoint
            .receive_words("none", 64, NOW)
            .unwrap_err()
            .to_string(),
        same
    );
    assert_eq!(
        endpoint.receive_point_of(NOW).unwrap_err().to_string(),
        same
    );
}

#[test]
fn bytes_without_the_magic_close_the_endpoint() {
    let (one, mut raw) = against_raw();
    raw.say(&POINT_1, 0);
    assert_eq!(one.receive_point_of(LONG).unwrap(), (1, 1));
    raw.bytes(b"no message at all, and longer than a header", 0);
    assert_shut_out(&one, "a message of this library");
}

#[test]
fn a_truncated_message_closes_the_endpoint() {
    for length in [1, 4, 19, 20, POINT_MESSAGE - 1] {
        let (one, mut raw) = against_raw();
        let bytes = raw.encoded(&POINT_1);
        raw.bytes(&bytes[..length], 0);
        assert_shut_out(&one, "");
    }
}

#[test]
fn an_empty_message_closes_the_endpoint() {
    let (one, mut raw) = against_raw();
    raw.bytes(&[], 0);
    assert_shut_out(&one, "a message of this library");
}

#[test]
fn a_too_long_message_closes_the_endpoint() {
    let (one, mut raw) = against_raw();
    raw.bytes(&[b'x'; MAX_MESSAGE + 1], 0);
    assert_shut_out(&one, "at most 16384 bytes");
}

#[test]
fn a_wrong_sequence_number_closes_the_endpoint() {
    let (one, mut raw) = against_raw();
    raw.say(&POINT_1, 0);
    raw.repeat();
    assert_eq!(one.receive_point_of(LONG).unwrap(), (1, 1));
    assert_shut_out(&one, "each message once and in its turn");

    let (one, mut raw) = against_raw();
    raw.skip_number();
    raw.say(&POINT_1, 0);
    assert_shut_out(&one, "each message once and in its turn");

    let (one, mut raw) = against_raw();
    raw.hello();
    assert_shut_out(&one, "one greeting");
}

#[test]
fn another_version_is_refused_in_a_greeting_and_later() {
    let (ours, theirs) = pair();
    let mut raw = Raw::new(theirs);
    let process = Process::this();
    let mut hello = raw.encoded(&Message::Hello {
        process,
        label: String::new(),
    });
    hello[4] = 7;
    raw.bytes(&hello, 0);
    let rejected = Endpoint::open(ours, "ours", LONG).unwrap_err();
    assert!(
        matches!(&rejected.error, Error::Message { found, .. } if found == "version 7"),
        "{rejected}"
    );
    let (one, mut raw) = against_raw();
    let mut point = raw.encoded(&POINT_1);
    point[4] = 1;
    raw.bytes(&point, 0);
    assert_shut_out(&one, "messages of version 6");
}

#[test]
fn a_message_after_a_farewell_closes_the_endpoint() {
    let (one, mut raw) = against_raw();
    raw.say(&Message::Bye, 0);
    raw.say(&POINT_1, 0);
    assert_shut_out(&one, "nothing after a farewell");
}

/// A memfd with a name that no other has, so that its descriptors can be counted.
struct Marked(OwnedFd, String);

impl Marked {
    fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{name} {}", COUNT.fetch_add(1, Ordering::Relaxed));
        Self(
            rustix::fs::memfd_create(&*name, MemfdFlags::CLOEXEC).unwrap(),
            format!("/memfd:{name} (deleted)"),
        )
    }

    /// Waits until this process has `count` descriptors of it. Another thread closes them.
    fn wait_for_count(&self, count: usize) {
        let begin = Instant::now();
        while self.count() != count && begin.elapsed() < LONG {
            std::thread::yield_now();
        }
        assert_eq!(self.count(), count);
    }

    /// Number of its descriptors in this process.
    fn count(&self) -> usize {
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        all.filter(|entry| {
            let link = std::fs::read_link(entry.as_ref().unwrap().path());
            link.is_ok_and(|link| link.to_string_lossy() == self.1)
        })
        .count()
    }
}

/// An object that lists `count` counters.
fn object_with_counters(count: usize) -> Message {
    Message::Object(offer(1, &[HandleKind::CounterMemfd; 16][..count]))
}

/// All received descriptors are closed.
#[rstest]
#[case::one_missing(object_with_counters(2), 1)]
#[case::all_missing(object_with_counters(1), 0)]
#[case::one_too_many(object_with_counters(1), 2)]
#[case::none_listed(object_with_counters(0), 3)]
#[case::beside_a_point(POINT_1, 1)]
#[case::many_beside_a_point(POINT_1, 16)]
#[case::beside_an_answer(Message::Taken { number: 1 }, 1)]
fn a_wrong_number_of_descriptors_closes_the_endpoint(
    #[case] message: Message,
    #[case] count: usize,
) {
    let marked = Marked::new("count");
    let (one, raw) = against_raw();
    let fds = vec![marked.0.as_fd(); count];
    raw.bytes_beside(&raw.encoded(&message), &fds);
    assert_shut_out(&one, "as many descriptors as are told");
    marked.wait_for_count(1);
}

/// A socket whose last close(2) blocks until the other end is closed (`SO_LINGER` in socket(7)).
fn slow_to_close() -> (OwnedFd, std::net::TcpStream) {
    use std::io::Write as _;
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let mut slow = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (other, _) = listener.accept().unwrap();
    slow.set_nonblocking(true).unwrap();
    while slow.write(&[0; 65536]).is_ok() {}
    slow.set_nonblocking(false).unwrap();
    rustix::net::sockopt::set_socket_linger(&slow, Some(100 * LONG)).unwrap();
    (slow.into(), other)
}

/// Runs `act` and fails if close(2) blocks it.
pub(super) fn promptly<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(act()));
    result.recv_timeout(LONG).expect("it waits for close(2)")
}

/// How a peer sends a descriptor that is slow to close.
#[derive(Clone, Copy)]
enum Slow {
    /// Beside a point, which must have none.
    BesidePoint,
    /// Many of them beside a point.
    ManyBesidePoint,
    /// In an object before an invalid message.
    BeforeInvalid,
    /// In an object that no call asks for.
    Unasked,
}

/// An endpoint whose peer has sent a descriptor that is slow to close.
fn with_slow(how: Slow) -> (Endpoint, Raw, std::net::TcpStream) {
    let (slow, other) = slow_to_close();
    let (one, mut raw) = against_raw();
    let object = Message::Object(offer(1, &[HandleKind::CounterMemfd]));
    match how {
        Slow::BesidePoint => raw.bytes_beside(&raw.encoded(&POINT_1), &[slow.as_fd()]),
        // The endpoint has room for 16 of these.
        Slow::ManyBesidePoint => {
            raw.bytes_beside(&raw.encoded(&POINT_1), &[slow.as_fd(); 30]);
        }
        Slow::BeforeInvalid | Slow::Unasked => {
            raw.bytes_beside(&raw.encoded(&object), &[slow.as_fd()]);
            raw.skip_number();
            if matches!(how, Slow::BeforeInvalid) {
                raw.say(&Message::Taken { number: 1 }, 1);
            }
        }
    }
    (one, raw, other)
}

#[rstest]
#[case::beside_a_point(Slow::BesidePoint)]
#[case::many_beside_a_point(Slow::ManyBesidePoint)]
#[case::before_an_invalid_message(Slow::BeforeInvalid)]
fn a_receiving_call_does_not_wait_for_close(#[case] how: Slow) {
    let (one, _raw, _other) = with_slow(how);
    promptly(move || {
        let deadline = Deadline::after(2 * LONG);
        let nothing = |_: &mut _| None::<()>;
        let connection = one.connection();
        let refused = connection.receive("end", deadline, nothing).unwrap_err();
        assert!(matches!(refused, Error::Message { .. }), "{refused}");
        assert_shut_out(&one, "");
    });
}

#[rstest]
#[case::beside_a_point(Slow::BesidePoint)]
#[case::many_beside_a_point(Slow::ManyBesidePoint)]
#[case::before_an_invalid_message(Slow::BeforeInvalid)]
#[case::in_an_object_that_no_call_asks_for(Slow::Unasked)]
fn dropping_an_endpoint_does_not_wait_for_close(#[case] how: Slow) {
    for reads_first in [false, true] {
        let (one, _raw, _other) = with_slow(how);
        promptly(move || {
            if reads_first {
                let _ = read_socket(&one);
            }
        });
    }
}

/// The guard reads what a lost process has sent, and still reports the loss.
#[rstest]
#[case::beside_a_point(Slow::BesidePoint, PeerLoss::ShutOut)]
#[case::many_beside_a_point(Slow::ManyBesidePoint, PeerLoss::ShutOut)]
#[case::before_an_invalid_message(Slow::BeforeInvalid, PeerLoss::ShutOut)]
#[case::in_an_object_that_no_call_asks_for(Slow::Unasked, PeerLoss::Left)]
fn the_guard_does_not_wait_for_close(#[case] how: Slow, #[case] expected: PeerLoss) {
    let (one, raw, _other) = with_slow(how);
    let (recorder, losses) = loss_recorder();
    one.observe_loss(recorder);
    drop(raw);
    let loss = losses.recv_timeout(LONG).expect("it waits for close(2)");
    assert_eq!(loss, expected);
    promptly(|| drop(one));
}

/// The descriptor of a greeting is never opened in this process.
#[test]
fn a_greeting_with_a_descriptor_is_refused_at_once() {
    let (slow, _other) = slow_to_close();
    let (ours, theirs) = pair();
    let raw = Raw::new(theirs);
    let hello = raw.encoded(&Message::Hello {
        process: Process::this(),
        label: String::new(),
    });
    raw.bytes_beside(&hello, &[slow.as_fd()]);
    drop(slow);
    promptly(|| {
        let rejected = Endpoint::open(ours, "ours", LONG).unwrap_err();
        assert!(
            matches!(&rejected.error, Error::Message { expected, .. } if expected.contains("without descriptors")),
            "{rejected}"
        );
        // Closing it would block.
        std::mem::forget(rejected.handle);
    });
}

/// The system closes descriptors for which there is no room.
#[test]
fn too_many_descriptors_are_closed() {
    let marked = Marked::new("surplus");
    let (one, raw) = against_raw();
    let message = raw.encoded(&Message::Object(offer(1, &[HandleKind::CounterMemfd; 16])));
    raw.bytes_beside(&message, &[marked.0.as_fd(); 20]);
    assert_shut_out(&one, "at most 16 descriptors");
    marked.wait_for_count(1);
}

/// Descriptors that no call took are closed with the endpoint.
#[test]
fn no_descriptor_of_an_object_is_leaked() {
    let marked = Marked::new("objects");
    let (one, other) = both();
    let object = offer(one.next_number(), &[HandleKind::CounterMemfd; 16]);
    let send = |object: &Offer| {
        let fds = &[marked.0.as_fd(); 16];
        one.offer(object, fds, Deadline::after(LONG)).unwrap()
    };
    let sent = send(&object);
    let (received, got, fds) = receive(&other).unwrap();
    assert_eq!((got, fds.len()), (object.clone(), 16));
    marked.wait_for_count(17);
    drop(fds);
    marked.wait_for_count(1);
    drop((received, sent));
    // One object is in the inbox and one in the socket.
    let more = [(); 2].map(|()| offer(one.next_number(), &[HandleKind::CounterMemfd; 16]));
    let sent = more.each_ref().map(send);
    assert!(read_socket(&other).is_timeout());
    assert!(marked.count() > 1);
    std::mem::forget(sent);
    drop((one, other));
    marked.wait_for_count(1);
}

/// P1: a process that had the socket before may have enabled other data, such as a pidfd.
#[test]
#[allow(unsafe_code, reason = "options that rustix does not know")]
fn other_ancillary_data_of_the_socket_are_turned_off() {
    use std::os::fd::AsRawFd;
    let (number, socket) = (libc::c_int::from(true), libc::SOL_SOCKET);
    let length = size_of_val(&number) as libc::socklen_t;
    for option in [libc::SO_PASSSEC, 76] {
        let (ours, theirs) = pair();
        let known = ours.try_clone().unwrap();
        // SAFETY: the value is an integer that outlives the call, and the length is its size.
        let set = unsafe {
            libc::setsockopt(
                ours.as_raw_fd(),
                socket,
                option,
                (&raw const number).cast(),
                length,
            )
        };
        // Kernels before 6.5 have no `SO_PASSPIDFD`.
        if set != 0 {
            continue;
        }
        let other = std::thread::spawn(|| Endpoint::open(theirs, "theirs", LONG).unwrap());
        let one = Endpoint::open(ours, "ours", LONG).unwrap();
        let other = other.join().unwrap();
        let (mut found, mut room) = (number, length);
        // SAFETY: as above.
        let asked = unsafe {
            libc::getsockopt(
                known.as_raw_fd(),
                socket,
                option,
                (&raw mut found).cast(),
                &raw mut room,
            )
        };
        assert_eq!((asked, found), (0, 0), "option {option}");
        let memory = rustix::fs::memfd_create("options", MemfdFlags::CLOEXEC).unwrap();
        let object = offer(other.next_number(), &[HandleKind::CounterMemfd; 16]);
        let sent = other.offer(&object, &[memory.as_fd(); 16], Deadline::after(LONG));
        let _sent = sent.unwrap();
        assert_eq!(receive(&one).unwrap().2.len(), 16);
    }
}

#[test]
fn an_object_with_a_wrong_number_of_descriptors_is_not_sent() {
    let (one, other) = both();
    let object = offer(1, &[HandleKind::CounterMemfd]);
    let refused = one
        .offer(&object, &[], Deadline::after(LONG))
        .err()
        .unwrap();
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    one.send_point_of(1, 1, LONG).unwrap();
    assert_eq!(other.receive_point_of(LONG).unwrap(), (1, 1));
}

/// Handles that no driver checks are refused, even from the same user, until the peer is trusted.
///
/// The sender gets the reason, and both endpoints stay usable.
#[test]
fn opaque_handles_are_accepted_only_from_a_trusted_process() {
    let marked = Marked::new("opaque");
    let (ours, theirs) = both();
    assert!(!theirs.trusts_handles());
    let (opaque, checked): (Vec<_>, Vec<_>) =
        HandleKind::ALL.iter().partition(|kind| kind.is_opaque());
    for kind in opaque {
        let object = offer(ours.next_number(), &[HandleKind::CounterMemfd, kind]);
        let fds = &[marked.0.as_fd(); 2];
        let sent = ours.offer(&object, fds, Deadline::after(LONG)).unwrap();
        let refused = receive(&theirs).err().unwrap();
        assert!(
            matches!(&refused, Error::Import { object, what, reason, .. }
                if object == theirs.object() && what.contains(kind.name()) && reason.contains("trust its handles")),
            "{refused}"
        );
        let answer = sent.answer(Deadline::after(LONG)).unwrap();
        assert!(matches!(&answer, Answer::Refused(reason) if reason.contains("is not trusted")));
    }
    // Kinds that are checked on import are accepted from every process.
    for kind in checked {
        let object = offer(ours.next_number(), &[kind]);
        let fds = &[marked.0.as_fd()];
        let _sent = ours.offer(&object, fds, Deadline::after(LONG)).unwrap();
        assert_eq!(receive(&theirs).unwrap().1, object);
    }
    marked.wait_for_count(1);
    let words = SharedWords::new(64).unwrap();
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| ours.send_words("words", &words, LONG));
        let received = theirs.receive_words("words", 64, LONG).unwrap();
        sent.join().unwrap().unwrap();
        words.words()[3].store(7, Ordering::Relaxed);
        assert_eq!(received.words()[3].load(Ordering::Relaxed), 7);
    });
    let object = offer(ours.next_number(), &[HandleKind::TimelineOpaqueFd]);
    let fds = &[marked.0.as_fd()];
    let _sent = ours.offer(&object, fds, Deadline::after(LONG)).unwrap();
    // SAFETY: no driver imports the handle.
    #[allow(unsafe_code, reason = "the behaviour under test")]
    unsafe {
        theirs.trust_handles();
    }
    assert!(theirs.trusts_handles());
    assert_eq!(receive(&theirs).unwrap().2.len(), 1);
}

/// The greeting names another process or another start time.
#[test]
fn a_greeting_in_the_name_of_another_process_is_refused() {
    let this = Process::this();
    let started = Process {
        started: this.started + 1,
        ..this
    };
    // As from a process without /proc. This process has /proc and knows the start time.
    let timeless = Process { started: 0, ..this };
    for claimed in [elsewhere(), started, timeless] {
        let (ours, theirs) = pair();
        let mut raw = Raw::new(theirs);
        raw.say(
            &Message::Hello {
                process: claimed,
                label: String::new(),
            },
            0,
        );
        let rejected = Endpoint::open(ours, "ours", LONG).unwrap_err();
        assert!(
            matches!(rejected.error, Error::Message { .. }),
            "{rejected}"
        );
        // The descriptor is still open.
        rustix::io::fcntl_getfd(&rejected.handle).unwrap();
    }
}

/// The greeting was sent before the receiver set `SO_PASSCRED`, so the kernel names process 0.
#[test]
fn a_greeting_of_an_unknown_sender_is_refused() {
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    let mut hello = vec![0; MAX_MESSAGE];
    let message = Message::Hello {
        process: Process::this(),
        label: String::new(),
    };
    let length = message.encode(0, &mut hello).unwrap();
    rustix::net::send(&theirs, &hello[..length], SendFlags::empty()).unwrap();
    let rejected = Endpoint::open(ours, "ours", LONG).unwrap_err();
    assert!(
        matches!(&rejected.error, Error::Message { expected, .. } if expected.contains("has an id here")),
        "{rejected}"
    );
}

#[test]
fn random_scripts_leave_the_endpoint_usable_or_closed() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..60 {
        let script: Vec<u8> = (0..200)
            .map(|_| {
                // xorshift64
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        play(&script);
    }
}
