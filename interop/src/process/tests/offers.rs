//! P1, X4: either all receivers get an object, or none, whatever messages come in between.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rstest::rstest;
use rustix::fs::{MemfdFlags, SealFlags};
use syncline_core::{
    Error, Result,
    handle::{HandleKind, SharedWords},
};

use super::{LONG, NOW, against_raw, both, read_socket, receive};
use crate::process::Endpoint;
use crate::process::extent::{Extent, Resource};
use crate::process::handover::{OutgoingObject, hand_over};
use crate::process::hostile::{Raw, offer};
use crate::process::message::{Content, Message, Offer};
use crate::process::offers::{Answer, MAX_OFFERS, Outcome};
use crate::process::poll::Deadline;

/// Counts the imports of an object that exist.
struct Counted(Arc<()>);

impl Counted {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Receives the next object and counts it.
    fn take(&self, endpoint: &Endpoint, deadline: Deadline) -> Result<Arc<()>> {
        endpoint.receive_and_settle(Content::Timeline, "offered", deadline, |_, fds| {
            drop(fds);
            Ok(Some(self.0.clone()))
        })
    }
}

fn long() -> Deadline {
    Deadline::after(LONG)
}

fn outgoing(peer: &Endpoint) -> OutgoingObject<'_> {
    OutgoingObject {
        peer,
        offer: offer(peer.next_number(), &[]),
        fds: Vec::new(),
    }
}

fn object(number: u32) -> Message {
    Message::Object(offer(number, &[]))
}

fn withdrawn(number: u32, reason: &str) -> Message {
    let reason = reason.into();
    Message::Withdrawn { number, reason }
}

/// An anonymous file whose descriptors in this process can be counted.
struct Marked(OwnedFd);

impl Marked {
    fn new(name: &str) -> Self {
        Self(rustix::fs::memfd_create(format!("offers-{name}"), MemfdFlags::CLOEXEC).unwrap())
    }

    /// Waits until this process has `count` descriptors of it. Another thread closes them.
    fn wait_for_count(&self, count: usize) {
        let begin = Instant::now();
        while self.count() != count && begin.elapsed() < LONG {
            std::thread::yield_now();
        }
        assert_eq!(self.count(), count);
    }

    fn count(&self) -> usize {
        let own = rustix::fs::fstat(&self.0).unwrap();
        let all = std::fs::read_dir("/proc/self/fd").unwrap();
        all.filter(|entry| {
            use std::os::unix::fs::MetadataExt;
            let file = std::fs::metadata(entry.as_ref().unwrap().path());
            file.is_ok_and(|file| (file.dev(), file.ino()) == (own.st_dev, own.st_ino))
        })
        .count()
    }
}

#[test]
fn all_receivers_have_the_object_or_none() {
    let ((to_first, first), (to_second, second)) = (both(), both());
    let counted = Counted::new();
    // The first receiver has taken it before the second answers.
    for refuses in [true, false] {
        let all = [outgoing(&to_first), outgoing(&to_second)];
        std::thread::scope(|scope| {
            let home = scope.spawn(|| hand_over(&all, long()));
            let taken = scope.spawn(|| counted.take(&first, long()));
            while counted.count() == 0 {
                std::thread::yield_now();
            }
            let (received, ..) = second
                .receive_object(Content::Timeline, "offered", long())
                .unwrap();
            if refuses {
                received.refuse("no room", long());
                let error = home.join().unwrap().unwrap_err();
                assert!(
                    matches!(&error, Error::Import { reason, .. } if reason == "no room"),
                    "{error}"
                );
                let error = taken.join().unwrap().unwrap_err();
                assert!(
                    matches!(&error, Error::Import { what, reason, .. }
                        if what.contains("offered") && reason.contains("withdrawn") && reason.contains("no room")),
                    "{error}"
                );
                assert_eq!(counted.count(), 0);
            } else {
                // The first receiver has it only after the second has taken it.
                assert!(!taken.is_finished());
                assert_eq!(received.take(long(), LONG).unwrap(), Outcome::Settled);
                home.join().unwrap().unwrap();
                drop(taken.join().unwrap().unwrap());
            }
        });
    }
}

#[test]
fn if_a_receiver_dies_none_has_the_object() {
    let ((to_first, first), (to_second, raw)) = (both(), against_raw());
    let (counted, mut raw) = (Counted::new(), Some(raw));
    let all = [outgoing(&to_first), outgoing(&to_second)];
    std::thread::scope(|scope| {
        let home = scope.spawn(|| hand_over(&all, long()));
        let taken = scope.spawn(|| counted.take(&first, long()));
        while counted.count() == 0 {
            std::thread::yield_now();
        }
        raw = None;
        let lost = home.join().unwrap().unwrap_err();
        assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
        let error = taken.join().unwrap().unwrap_err();
        assert!(
            matches!(&error, Error::Import { reason, .. } if reason.contains("withdrawn")),
            "{error}"
        );
    });
    assert_eq!(counted.count(), 0);
    drop(raw);
}

/// Both sides time out and try again. The second attempt gets the second offer.
#[test]
fn a_stale_offer_is_not_taken() {
    let (one, other) = both();
    let [stale, fresh] = [64, 64].map(|bytes| SharedWords::new(bytes).unwrap());
    let given_up = other.receive_words("words", 64, NOW).unwrap_err();
    assert!(given_up.is_timeout(), "{given_up}");
    // More than fit in an inbox.
    for _ in 0..40 {
        let given_up = one.send_words("words", &stale, NOW).unwrap_err();
        assert!(given_up.is_timeout(), "{given_up}");
    }
    std::thread::scope(|scope| {
        let sent = scope.spawn(|| one.send_words("words", &fresh, LONG));
        let received = other.receive_words("words", 64, LONG).unwrap();
        sent.join().unwrap().unwrap();
        fresh.words()[2].store(5, Ordering::Relaxed);
        assert_eq!(received.words()[2].load(Ordering::Relaxed), 5);
    });
    assert!(read_socket(&other).is_timeout());
}

/// Without room in the socket, the withdrawal is sent before the next offer.
#[test]
fn a_withdrawal_without_room_is_sent_before_the_next_offer() {
    let (one, other) = both();
    let stale = one.offer(&offer(1, &[]), &[], long()).unwrap();
    while one.send_point_of(9, 9, NOW).is_ok() {}
    drop(stale);
    assert_eq!(one.unsent_withdrawals().lock().len(), 1);
    // Reading makes room.
    let (stale, object, _) = receive(&other).unwrap();
    assert_eq!(object.number, 1);
    let _fresh = one.offer(&offer(2, &[]), &[], long()).unwrap();
    assert!(one.unsent_withdrawals().lock().is_empty());
    let end = stale.take(long(), NOW).unwrap();
    assert_eq!(end, Outcome::Withdrawn(String::new()));
    assert_eq!(receive(&other).unwrap().1.number, 2);
}

#[test]
fn an_offer_withdrawn_while_it_is_taken_gives_nothing() {
    let (one, mut raw) = against_raw();
    let counted = Counted::new();
    raw.say(&object(1), 0);
    raw.say(&withdrawn(1, ""), 0);
    let (two, three) = (object(2), object(3));
    raw.say(&two, 0);
    // The first offer is withdrawn before a call asks for it. The second is withdrawn while a call
    // has it, without a reason, so the call takes the third.
    let mut seen = Vec::new();
    let got = one.receive_and_settle(Content::Timeline, "offered", long(), |offer, _| {
        seen.push(offer.number);
        if offer.number == 2 {
            raw.say(&withdrawn(2, ""), 0);
            raw.say(&three, 0);
        } else {
            // Sent only after the socket was read, so that it arrives once the object is taken.
            assert!(read_socket(&one).is_timeout());
            raw.say(&withdrawn(3, "another is dead"), 0);
        }
        Ok(Some(counted.0.clone()))
    });
    let error = got.unwrap_err();
    assert!(
        matches!(&error, Error::Import { reason, .. } if reason.contains("another is dead")),
        "{error}"
    );
    assert_eq!((seen, counted.count()), (vec![2, 3], 0));
    one.check().unwrap();
}

#[test]
fn an_offer_without_a_decision_gives_nothing() {
    let counted = Counted::new();
    let (one, mut raw) = against_raw();
    raw.say(&object(1), 0);
    let silent = counted.take(&one, Deadline::after(NOW)).unwrap_err();
    assert!(silent.is_timeout(), "{silent}");
    assert_eq!(counted.count(), 0);
    // Later messages about that offer count for nothing.
    raw.say(&Message::Settled { number: 1 }, 0);
    assert!(read_socket(&one).is_timeout());
    raw.say(&object(2), 0);
    drop(raw);
    let lost = counted.take(&one, long()).unwrap_err();
    assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
    assert_eq!(counted.count(), 0);
}

/// A receiver has taken its object and times out while another is waited for. None has it then.
#[test]
fn a_refusal_after_taking_withdraws_all_offers() {
    let ((quick, mut raw), (slow, other)) = (against_raw(), both());
    let all = [outgoing(&quick), outgoing(&slow)];
    let number = all[0].offer.number;
    std::thread::scope(|scope| {
        let home = scope.spawn(|| hand_over(&all, long()));
        raw.say(&Message::Taken { number }, 0);
        let reason = "it is too late".into();
        raw.say(&Message::Refused { number, reason }, 0);
        let error = home.join().unwrap().unwrap_err();
        assert!(
            matches!(&error, Error::Import { reason, .. } if reason.contains("too late")),
            "{error}"
        );
    });
    assert!(receive(&other).err().unwrap().is_timeout());
}

/// A receiver that refuses after it has taken keeps the object if the peer had settled it before.
#[test]
fn an_offer_settled_before_the_refusal_counts() {
    let (one, mut raw) = against_raw();
    raw.say(&object(1), 0);
    let (received, ..) = receive(&one).unwrap();
    std::thread::scope(|scope| {
        let takes = scope.spawn(|| received.take(Deadline::after(NOW), NOW.max(LONG / 40)));
        // The greeting, the answer *taken*, and the answer *refused*.
        raw.heard(3);
        raw.say(&Message::Settled { number: 1 }, 0);
        assert_eq!(takes.join().unwrap().unwrap(), Outcome::Settled);
    });
}

/// Such messages count for nothing, and 16 of them are tolerated.
#[test]
fn messages_about_unknown_objects_are_bounded() {
    let settled = |number| Message::Settled { number };
    let taken = |number| Message::Taken { number };
    let refused = |number| Message::Refused {
        number,
        reason: "no".into(),
    };
    type Flood<'f> = (&'f str, Box<dyn Fn(u32) -> Message + 'f>);
    let floods: [Flood<'_>; 4] = [
        ("withdrawn", Box::new(|number| withdrawn(number, "never"))),
        ("settled", Box::new(settled)),
        ("taken", Box::new(taken)),
        ("refused", Box::new(refused)),
    ];
    for (name, message) in floods {
        let (one, mut raw) = against_raw();
        for number in 1..=16 {
            raw.say(&message(number), 0);
        }
        assert!(read_socket(&one).is_timeout(), "{name}");
        // The endpoint is still usable.
        raw.say(&object(1), 0);
        assert!(receive(&one).is_ok(), "{name}");
        raw.say(&message(40), 0);
        assert_shut_out(&one, "messages that match an open offer");
    }
}

#[test]
fn settling_an_offer_early_or_twice_counts_for_nothing() {
    let (one, mut raw) = against_raw();
    let counted = Counted::new();
    raw.say(&object(1), 0);
    raw.say(&Message::Settled { number: 1 }, 0);
    let silent = counted.take(&one, Deadline::after(NOW)).unwrap_err();
    assert!(silent.is_timeout() && counted.count() == 0, "{silent}");
    // That was the first stray message. An unanswered object is not settled either.
    raw.say(&object(2), 0);
    let (received, ..) = receive(&one).unwrap();
    for _ in 0..7 {
        raw.say(&Message::Settled { number: 2 }, 0);
    }
    assert!(read_socket(&one).is_timeout());
    let silent = received.take(Deadline::after(NOW), NOW).unwrap_err();
    assert!(silent.is_timeout(), "{silent}");
    // After the offer has ended, settling or withdrawing it again is stray, too.
    for _ in 0..9 {
        raw.say(&Message::Settled { number: 2 }, 0);
    }
    assert!(read_socket(&one).is_timeout());
    raw.say(&withdrawn(2, ""), 0);
    assert_shut_out(&one, "messages that match an open offer");
}

/// Late answers fill no inbox. The next offer gets its answer.
#[test]
fn late_answers_count_for_nothing() {
    let (one, mut raw) = against_raw();
    for _ in 0..40 {
        let given_up = outgoing(&one);
        let number = given_up.offer.number;
        assert!(
            hand_over(&[given_up], Deadline::after(NOW))
                .unwrap_err()
                .is_timeout()
        );
        raw.say(&Message::Taken { number }, 0);
        let reason = "it is too late".into();
        raw.say(&Message::Refused { number, reason }, 0);
        assert!(read_socket(&one).is_timeout());
        one.check().unwrap();
    }
    let object = offer(one.next_number(), &[]);
    let offered = one.offer(&object, &[], long()).unwrap();
    let number = object.number;
    raw.say(&Message::Taken { number }, 0);
    assert_eq!(offered.answer(long()).unwrap(), Answer::Taken);
}

#[test]
fn more_open_offers_than_the_peer_takes_are_refused() {
    let (one, mut raw) = against_raw();
    let connection = one.connection();
    let numbers: Vec<_> = (0..MAX_OFFERS).map(|_| one.next_number()).collect();
    connection.with_inbox(|inbox| {
        // Ended offers do not count.
        for _ in 0..2 * MAX_OFFERS {
            let number = one.next_number();
            assert!(inbox.offers().offer(number));
            inbox.offers().end_own(number);
        }
        for &number in &numbers {
            assert!(inbox.offers().offer(number));
        }
    });
    let error = hand_over(&[outgoing(&one)], long()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("1024"), "{error}");
    connection.with_inbox(|inbox| inbox.offers().end_own(numbers[7]));
    let object = offer(one.next_number(), &[]);
    let offered = one.offer(&object, &[], long()).unwrap();
    let number = object.number;
    raw.say(&Message::Taken { number }, 0);
    assert_eq!(offered.answer(long()).unwrap(), Answer::Taken);
}

/// Both objects are closed, and so is the endpoint.
#[test]
fn one_number_for_two_objects_closes_the_endpoint() {
    let marked = Marked::new("twice");
    for received in [false, true] {
        let (one, mut raw) = against_raw();
        let twice = Message::Object(offer(1, &[HandleKind::CounterMemfd]));
        let say = |raw: &mut Raw| {
            let bytes = raw.encoded(&twice);
            raw.bytes_beside(&bytes, &[marked.0.as_fd()]);
            raw.skip_number();
        };
        say(&mut raw);
        let first = received.then(|| receive(&one).unwrap());
        say(&mut raw);
        assert_shut_out(&one, "a number of its own for each object");
        drop(first);
        marked.wait_for_count(1);
    }
    // Once the offer has ended, the number is free.
    let (one, mut raw) = against_raw();
    for _ in 0..3 {
        raw.say(&object(1), 0);
        raw.say(&withdrawn(1, ""), 0);
    }
    raw.say(&object(1), 0);
    assert_eq!(receive(&one).unwrap().1.number, 1);
}

/// In any order of calls and objects.
#[test]
fn each_thread_receives_the_object_it_asks_for() {
    let (one, other) = both();
    let words = [8_u64, 16].map(|bytes| SharedWords::new(bytes).unwrap());
    for late in [false, true] {
        std::thread::scope(|scope| {
            let receive = |label: &'static str| {
                let other = other.clone();
                move || {
                    other
                        .receive_words(label, 4096, LONG)
                        .unwrap()
                        .words()
                        .len()
                }
            };
            // The second thread asks before or after its object has come.
            let early = (!late).then(|| scope.spawn(receive("b")));
            let also = scope.spawn(|| one.send_words("b", &words[1], LONG).unwrap());
            while late && !other.has_objects() {
                assert!(read_socket(&other).is_timeout());
            }
            let sends = scope.spawn(|| one.send_words("a", &words[0], LONG).unwrap());
            let first = scope.spawn(receive("a"));
            assert_eq!(first.join().unwrap(), 2);
            sends.join().unwrap();
            let second = early.unwrap_or_else(|| scope.spawn(receive("b")));
            assert_eq!(second.join().unwrap(), 4);
            also.join().unwrap();
        });
    }
}

/// The peer chooses the size of its memory. mmap(2) would grant the terabyte.
#[rstest]
#[case::at_the_limit(64, 64)]
#[case::above_the_limit(68, 64)]
#[case::a_terabyte(1 << 40, 1 << 20)]
fn memory_larger_than_the_limit_is_not_mapped(#[case] bytes: u64, #[case] max: u64) {
    let (one, other) = both();
    let memory =
        rustix::fs::memfd_create("much", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&memory, bytes).unwrap();
    let sized = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memory, sized).unwrap();
    let object = Offer {
        content: Content::HostMemory,
        extent: Some(Extent {
            size: bytes,
            offset: 0,
            resource: Resource::Buffer(bytes),
            memory_type: None,
            dedicated: false,
        }),
        ..offer(one.next_number(), &[HandleKind::WordsMemfd])
    };
    let sent = one
        .offer(&object, &[memory.as_fd()], Deadline::after(LONG))
        .unwrap();
    std::thread::scope(|scope| {
        let received = scope.spawn(|| other.receive_words("offered", max, LONG));
        match sent.answer(Deadline::after(LONG)).unwrap() {
            Answer::Taken => {
                assert!(bytes <= max, "{bytes} are mapped");
                sent.settle(Deadline::after(LONG)).unwrap();
                received.join().unwrap().unwrap();
            }
            Answer::Refused(reason) => {
                assert!(bytes > max, "{reason}");
                let expected = format!("it has {bytes} bytes, and {max} are the most");
                assert!(reason.contains(&expected), "{reason}");
                let refused = received.join().unwrap().unwrap_err();
                assert!(matches!(refused, Error::Import { .. }), "{refused}");
            }
        }
    });

    other.check().unwrap();
}

#[test]
fn other_objects_stay_and_are_named_in_timeouts() {
    let (one, mut raw) = against_raw();
    raw.say(&object(1), 0);
    let other_label = one.receive_words("offered", 64, NOW).unwrap_err();
    let other_kind =
        one.receive_and_settle(Content::Timeline, "other", Deadline::after(NOW), |_, _| {
            Ok(Some(()))
        });
    for error in [other_label, other_kind.unwrap_err()] {
        assert!(error.is_timeout(), "{error}");
        let error = error.to_string();
        assert!(error.contains("there is timeline \"offered\""), "{error}");
    }
    assert_eq!(receive(&one).unwrap().1.number, 1);
}

/// The time is over after the first stale object.
#[test]
fn a_stream_of_stale_objects_ends_with_the_timeout() {
    let (one, mut raw) = against_raw();
    for number in 1..=10 {
        raw.say(&object(number), 0);
    }
    let mut seen = 0;
    let late = one.receive_and_settle(
        Content::Timeline,
        "offered",
        Deadline::after(NOW),
        |_, _| {
            seen += 1;
            Ok(None::<()>)
        },
    );
    assert!(late.unwrap_err().is_timeout());
    assert_eq!(seen, 1);
}

impl Endpoint {
    /// True if objects wait for a call.
    fn has_objects(&self) -> bool {
        let mut has = false;
        let connection = self.connection();
        connection.with_inbox(|inbox| has = inbox.objects().next().is_some());
        has
    }
}

fn assert_shut_out(endpoint: &Endpoint, expected: &str) {
    let refused = endpoint.receive_point_of(LONG).unwrap_err();
    assert!(
        matches!(&refused, Error::Message { expected: actual, .. } if actual.contains(expected)),
        "{refused}"
    );
    assert!(endpoint.check().is_err());
}
