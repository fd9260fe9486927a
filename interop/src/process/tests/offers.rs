//! P1, X4: an object goes to everybody or to nobody, whatever is said in between.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::fs::{MemfdFlags, SealFlags};
use syncline_core::{Error, HandleKind, Result, SharedWords};

use super::{LONG, NOW, against_raw, both, look, receive};
use crate::process::Endpoint;
use crate::process::handover::{OutgoingObject, hand_over};
use crate::process::hostile::{Raw, offer};
use crate::process::message::{Content, Extent, Message, Offer};
use crate::process::offers::{Answer, Outcome};
use crate::process::socket::Deadline;

/// What is made of an object: how many have it.
struct Kept(Arc<()>);

impl Kept {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn count(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Makes it of the next object.
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

/// An anonymous file, and how often this process has it open.
struct Marked(OwnedFd);

impl Marked {
    fn new(name: &str) -> Self {
        Self(rustix::fs::memfd_create(format!("offers-{name}"), MemfdFlags::CLOEXEC).unwrap())
    }

    /// Waits until this process has so many descriptors of it: another thread closes them.
    fn comes_to(&self, count: usize) {
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
fn everybody_has_it_or_nobody() {
    let ((to_first, first), (to_second, second)) = (both(), both());
    let kept = Kept::new();
    // One has taken it when the other refuses.
    for refuses in [true, false] {
        let all = [outgoing(&to_first), outgoing(&to_second)];
        std::thread::scope(|scope| {
            let home = scope.spawn(|| hand_over(&all, long()));
            let taken = scope.spawn(|| kept.take(&first, long()));
            while kept.count() == 0 {
                std::thread::yield_now();
            }
            let (received, ..) = second
                .receive_object(Content::Timeline, "offered", long())
                .unwrap();
            if refuses {
                received.refuse("no room", long());
                let told = home.join().unwrap().unwrap_err();
                assert!(
                    matches!(&told, Error::Import { reason, .. } if reason == "no room"),
                    "{told}"
                );
                let told = taken.join().unwrap().unwrap_err();
                assert!(
                    matches!(&told, Error::Import { what, reason, .. }
                        if what.contains("offered") && reason.contains("withdrawn") && reason.contains("no room")),
                    "{told}"
                );
                assert_eq!(kept.count(), 0);
            } else {
                // The first has it no sooner than the second has taken it.
                assert!(!taken.is_finished());
                assert_eq!(received.take(long(), LONG).unwrap(), Outcome::Settled);
                home.join().unwrap().unwrap();
                drop(taken.join().unwrap().unwrap());
            }
        });
    }
}

#[test]
fn where_one_dies_nobody_has_it() {
    let ((to_first, first), (to_second, raw)) = (both(), against_raw());
    let (kept, mut raw) = (Kept::new(), Some(raw));
    let all = [outgoing(&to_first), outgoing(&to_second)];
    std::thread::scope(|scope| {
        let home = scope.spawn(|| hand_over(&all, long()));
        let taken = scope.spawn(|| kept.take(&first, long()));
        while kept.count() == 0 {
            std::thread::yield_now();
        }
        raw = None;
        let lost = home.join().unwrap().unwrap_err();
        assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
        let told = taken.join().unwrap().unwrap_err();
        assert!(
            matches!(&told, Error::Import { reason, .. } if reason.contains("withdrawn")),
            "{told}"
        );
    });
    assert_eq!(kept.count(), 0);
    drop(raw);
}

/// Both give up and try again: what the second try finds is the second offer.
#[test]
fn a_stale_offer_is_not_taken() {
    let (one, other) = both();
    let [stale, fresh] = [64, 64].map(|bytes| SharedWords::new(bytes).unwrap());
    let given_up = other.receive_words("words", 64, NOW).unwrap_err();
    assert!(given_up.is_timeout(), "{given_up}");
    // More than wait in an inbox.
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
    assert!(look(&other).is_timeout());
}

/// Where there is no room for the withdrawal, it goes before the next offer.
#[test]
fn a_withdrawal_without_room_is_owed() {
    let (one, other) = both();
    let stale = one.offer(&offer(1, &[]), &[], long()).unwrap();
    while one.send_point_of(9, 9, NOW).is_ok() {}
    drop(stale);
    assert_eq!(one.unsent_withdrawals().lock().unwrap().len(), 1);
    // Now there is.
    let (stale, told, _) = receive(&other).unwrap();
    assert_eq!(told.number, 1);
    let _fresh = one.offer(&offer(2, &[]), &[], long()).unwrap();
    assert!(one.unsent_withdrawals().lock().unwrap().is_empty());
    let end = stale.take(long(), NOW).unwrap();
    assert_eq!(end, Outcome::Withdrawn(String::new()));
    assert_eq!(receive(&other).unwrap().1.number, 2);
}

#[test]
fn what_is_withdrawn_while_it_is_taken_is_not_had() {
    let (one, mut raw) = against_raw();
    let kept = Kept::new();
    raw.say(&object(1), 0);
    raw.say(&withdrawn(1, ""), 0);
    let (two, three) = (object(2), object(3));
    raw.say(&two, 0);
    // The first is gone before it is looked at, the second while it is in hand: its time was over,
    // and the third is as good.
    let mut seen = Vec::new();
    let got = one.receive_and_settle(Content::Timeline, "offered", long(), |offer, _| {
        seen.push(offer.number);
        if offer.number == 2 {
            raw.say(&withdrawn(2, ""), 0);
            raw.say(&three, 0);
        } else {
            // Said once it is taken: the socket is read by then.
            assert!(look(&one).is_timeout());
            raw.say(&withdrawn(3, "another is dead"), 0);
        }
        Ok(Some(kept.0.clone()))
    });
    let told = got.unwrap_err();
    assert!(
        matches!(&told, Error::Import { reason, .. } if reason.contains("another is dead")),
        "{told}"
    );
    assert_eq!((seen, kept.count()), (vec![2, 3], 0));
    one.check().unwrap();
}

#[test]
fn who_offers_and_says_nothing_more_has_given_nothing() {
    let kept = Kept::new();
    let (one, mut raw) = against_raw();
    raw.say(&object(1), 0);
    let silent = kept.take(&one, Deadline::after(NOW)).unwrap_err();
    assert!(silent.is_timeout(), "{silent}");
    assert_eq!(kept.count(), 0);
    // Whatever it says of that one later is nobody's.
    raw.say(&Message::Settled { number: 1 }, 0);
    assert!(look(&one).is_timeout());
    raw.say(&object(2), 0);
    drop(raw);
    let lost = kept.take(&one, long()).unwrap_err();
    assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
    assert_eq!(kept.count(), 0);
}

/// Who has taken it and runs out of patience while another is waited for: nobody has it.
#[test]
fn a_taker_that_gives_up_is_heard() {
    let ((quick, mut raw), (slow, other)) = (against_raw(), both());
    let all = [outgoing(&quick), outgoing(&slow)];
    let number = all[0].offer.number;
    std::thread::scope(|scope| {
        let home = scope.spawn(|| hand_over(&all, long()));
        raw.say(&Message::Taken { number }, 0);
        let reason = "it is too late".into();
        raw.say(&Message::Refused { number, reason }, 0);
        let told = home.join().unwrap().unwrap_err();
        assert!(
            matches!(&told, Error::Import { reason, .. } if reason.contains("too late")),
            "{told}"
        );
    });
    assert!(receive(&other).err().unwrap().is_timeout());
}

/// The one that gives up after it has said that it takes it keeps it if the other side had settled
/// it by then.
#[test]
fn what_was_settled_first_counts() {
    let (one, mut raw) = against_raw();
    raw.say(&object(1), 0);
    let (received, ..) = receive(&one).unwrap();
    std::thread::scope(|scope| {
        let takes = scope.spawn(|| received.take(Deadline::after(NOW), NOW.max(LONG / 40)));
        // The greeting, that it is taken, and that it is too late.
        raw.heard(3);
        raw.say(&Message::Settled { number: 1 }, 0);
        assert_eq!(takes.join().unwrap().unwrap(), Outcome::Settled);
    });
}

/// Neither is believed; some of that is borne.
#[test]
fn words_about_objects_out_of_their_turn_are_bounded() {
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
    for (name, word) in floods {
        let (one, mut raw) = against_raw();
        for number in 1..=16 {
            raw.say(&word(number), 0);
        }
        assert!(look(&one).is_timeout(), "{name}");
        // It can be used still.
        raw.say(&object(1), 0);
        assert!(receive(&one).is_ok(), "{name}");
        raw.say(&word(40), 0);
        shut_out(&one, "words about objects in their turn");
    }
}

#[test]
fn what_is_settled_before_it_is_taken_or_twice_is_not_believed() {
    let (one, mut raw) = against_raw();
    let kept = Kept::new();
    raw.say(&object(1), 0);
    raw.say(&Message::Settled { number: 1 }, 0);
    let silent = kept.take(&one, Deadline::after(NOW)).unwrap_err();
    assert!(silent.is_timeout() && kept.count() == 0, "{silent}");
    // That was the first. What is in hand and not answered is not settled either.
    raw.say(&object(2), 0);
    let (received, ..) = receive(&one).unwrap();
    for _ in 0..7 {
        raw.say(&Message::Settled { number: 2 }, 0);
    }
    assert!(look(&one).is_timeout());
    let silent = received.take(Deadline::after(NOW), NOW).unwrap_err();
    assert!(silent.is_timeout(), "{silent}");
    // Nor once more, when it is, nor withdrawn then. The first ends it.
    for _ in 0..9 {
        raw.say(&Message::Settled { number: 2 }, 0);
    }
    assert!(look(&one).is_timeout());
    raw.say(&withdrawn(2, ""), 0);
    shut_out(&one, "words about objects in their turn");
}

/// They fill no inbox, and the next object is answered as ever.
#[test]
fn answers_that_come_late_are_nobodys() {
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
        assert!(look(&one).is_timeout());
        one.check().unwrap();
    }
    let told = offer(one.next_number(), &[]);
    let offered = one.offer(&told, &[], long()).unwrap();
    let number = told.number;
    raw.say(&Message::Taken { number }, 0);
    assert_eq!(offered.answer(long()).unwrap(), Answer::Taken);
}

/// One number for two objects: both are closed, and the endpoint.
#[test]
fn a_number_that_is_given_twice_shuts_out() {
    let marked = Marked::new("twice");
    for received in [false, true] {
        let (one, mut raw) = against_raw();
        let twice = Message::Object(offer(1, &[HandleKind::CounterMemfd]));
        let say = |raw: &mut Raw| {
            let bytes = raw.encoded(&twice);
            raw.bytes_beside(&bytes, &[marked.0.as_fd()]);
            raw.sequence += 1;
        };
        say(&mut raw);
        let first = received.then(|| receive(&one).unwrap());
        say(&mut raw);
        shut_out(&one, "a number of its own for each object");
        drop(first);
        marked.comes_to(1);
    }
    // Once it is over, the number is free.
    let (one, mut raw) = against_raw();
    for _ in 0..3 {
        raw.say(&object(1), 0);
        raw.say(&withdrawn(1, ""), 0);
    }
    raw.say(&object(1), 0);
    assert_eq!(receive(&one).unwrap().1.number, 1);
}

/// Each has what it asked for, in whatever order they ask and the objects come.
#[test]
fn two_threads_receive_two_things() {
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
            // One waits while that of the other comes, or has yet to ask.
            let early = (!late).then(|| scope.spawn(receive("b")));
            let also = scope.spawn(|| one.send_words("b", &words[1], LONG).unwrap());
            while late && !other.has_objects() {
                assert!(look(&other).is_timeout());
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

/// It waits for who asks for it; who asks for something else is told of it in the end. Memory of
/// which the peer has chosen the size: a terabyte is not mapped, which mmap(2) would grant.
#[test]
fn memory_of_more_bytes_than_are_taken_is_not_mapped() {
    let (one, other) = both();
    // As many as are taken, and more.
    for (bytes, most) in [(64, 64), (68, 64), (1 << 40, 1 << 20)] {
        let memory =
            rustix::fs::memfd_create("much", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .unwrap();
        rustix::fs::ftruncate(&memory, bytes).unwrap();
        let sized = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memory, sized).unwrap();
        let told = Offer {
            content: Content::HostMemory,
            extent: Some(Extent {
                size: bytes,
                length: bytes,
                dedicated: false,
            }),
            ..offer(one.next_number(), &[HandleKind::WordsMemfd])
        };
        let sent = one
            .offer(&told, &[memory.as_fd()], Deadline::after(LONG))
            .unwrap();
        std::thread::scope(|scope| {
            let received = scope.spawn(|| other.receive_words("offered", most, LONG));
            match sent.answer(Deadline::after(LONG)).unwrap() {
                Answer::Taken => {
                    assert!(bytes <= most, "{bytes} are mapped");
                    sent.settle(Deadline::after(LONG)).unwrap();
                    received.join().unwrap().unwrap();
                }
                Answer::Refused(reason) => {
                    assert!(bytes > most, "{reason}");
                    let expected = format!("it has {bytes} bytes, and {most} are the most");
                    assert!(reason.contains(&expected), "{reason}");
                    let refused = received.join().unwrap().unwrap_err();
                    assert!(matches!(refused, Error::Import { .. }), "{refused}");
                }
            }
        });
    }
    other.check().unwrap();
}

#[test]
fn what_nobody_asked_for_stays_and_is_named() {
    let (one, mut raw) = against_raw();
    raw.say(&object(1), 0);
    let other_label = one.receive_words("offered", 64, NOW).unwrap_err();
    let other_kind =
        one.receive_and_settle(Content::Timeline, "other", Deadline::after(NOW), |_, _| {
            Ok(Some(()))
        });
    for told in [other_label, other_kind.unwrap_err()] {
        assert!(told.is_timeout(), "{told}");
        let told = told.to_string();
        assert!(told.contains("there is timeline \"offered\""), "{told}");
    }
    assert_eq!(receive(&one).unwrap().1.number, 1);
}

/// Objects that are all too late keep nobody beyond his time.
#[test]
fn a_stream_of_late_objects_ends_with_the_patience() {
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
    /// Some wait for who asks for them.
    fn has_objects(&self) -> bool {
        let mut has = false;
        let connection = self.connection();
        connection.with_inbox(|inbox| has = inbox.objects().next().is_some());
        has
    }
}

fn shut_out(endpoint: &Endpoint, expected: &str) {
    let refused = endpoint.receive_point_of(LONG).unwrap_err();
    assert!(
        matches!(&refused, Error::Message { expected: told, .. } if told.contains(expected)),
        "{refused}"
    );
    assert!(endpoint.check().is_err());
}
