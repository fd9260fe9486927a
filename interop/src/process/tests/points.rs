//! P2: points, their limits, and their cost.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use syncline_core::{Error, handle::HandleKind};

use super::{LONG, NOW, against_raw, both, heap, read_socket};
use crate::negotiate::Party;
use crate::process::Endpoint;
use crate::process::hostile::{Raw, offer};
use crate::process::message::{Content, Message};
use crate::process::offers::{Answer, Outcome};
use crate::process::poll::Deadline;

/// For waits that a thread must end. A thread that is not woken hangs, however busy the machine is.
const ENDLESS: Duration = Duration::MAX;

const POINT_1: Message = Message::Point {
    number: 1,
    value: 1,
};

/// A message that takes a place in the inbox and is not a point.
fn needs(round: u32) -> Message {
    Message::Requirements {
        round,
        is_all: true,
        parties: Vec::new(),
        links: Vec::new(),
    }
}

fn await_needs(endpoint: &Endpoint, round: u32, timeout: Duration) -> Result<(), Error> {
    let connection = endpoint.connection();
    let received = connection.receive("say what it needs", Deadline::after(timeout), |inbox| {
        inbox.take_message(|message| *message == needs(round))
    });
    received.map(drop)
}

#[test]
fn points_arrive_in_order() {
    let (one, other) = both();
    for value in 0..100 {
        one.send_point_of(7, value, LONG).unwrap();
        other.send_point_of(8, value + 1, LONG).unwrap();
    }
    for value in 0..100 {
        assert_eq!(other.receive_point_of(LONG).unwrap(), (7, value));
        assert_eq!(one.receive_point_of(LONG).unwrap(), (8, value + 1));
    }
    assert!(matches!(
        one.receive_point_of(NOW),
        Err(Error::PeerSilent { awaited, .. }) if awaited == "send a point"
    ));
}

#[test]
fn passing_a_point_does_not_allocate() {
    let (one, other) = both();
    let pass = |value| {
        one.send_point_of(1, value, LONG).unwrap();
        assert_eq!(other.receive_point_of(LONG).unwrap(), (1, value));
    };
    pass(0);
    let before = heap::so_far();
    for value in 1..1000 {
        pass(value);
    }
    // Also if points arrive before a call asks for them.
    for value in 0..100 {
        one.send_point_of(1, value, LONG).unwrap();
    }
    let none = other
        .connection()
        .receive("", Deadline::after(NOW), |_| None::<()>);
    let counted = heap::so_far() - before;
    assert!(none.is_err());
    for value in 0..100 {
        assert_eq!(other.receive_point_of(LONG).unwrap(), (1, value));
    }
    assert_eq!(counted, 0);
    // The counter works.
    drop(std::hint::black_box(Box::new(1)));
    assert!(heap::so_far() > before);
}

/// Some threads wait for points and others for answers. The one that polls the socket wakes the
/// others.
#[test]
fn waiters_for_other_messages_are_woken_by_the_reading_thread() {
    let (one, other) = both();
    let deadline = Deadline::after(ENDLESS);
    for round in 0..200 {
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(one.receive_point_of(ENDLESS).unwrap(), (1, round)));
            let objects = [(); 2].map(|()| offer(one.next_number(), &[]));
            let offered = objects
                .each_ref()
                .map(|object| one.offer(object, &[], deadline).unwrap());
            let [first, second] = offered;
            scope.spawn(move || {
                let refused = Answer::Refused("no".into());
                assert_eq!(first.answer(deadline).unwrap(), refused);
            });
            scope.spawn(move || {
                assert_eq!(second.answer(deadline).unwrap(), Answer::Taken);
                second.settle(deadline).unwrap();
            });
            scope.spawn(|| {
                let receive = || {
                    let received = other.receive_object(Content::Timeline, "offered", deadline);
                    received.unwrap().0
                };
                let (one, two) = (receive(), receive());
                assert_eq!(two.take(deadline, NOW).unwrap(), Outcome::Settled);
                other.send_point_of(1, round, ENDLESS).unwrap();
                one.refuse("no", deadline);
            });
        });
    }
}

/// Another thread takes the message for which the poller waits.
#[test]
fn the_polling_thread_is_woken_if_another_thread_takes_the_message() {
    let (one, mut raw) = against_raw();
    for value in 0..500 {
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(one.receive_point_of(ENDLESS).unwrap(), (1, value)));
            while !one.connection().has_poller() {
                std::thread::yield_now();
            }
            raw.say(&Message::Point { number: 1, value }, 0);
            one.connection().pump();
        });
    }
}

#[test]
fn a_sender_waits_for_room_until_its_timeout() {
    let (one, other) = both();
    let mut sent = 0;
    let full = loop {
        match one.send_point_of(1, sent, NOW) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(
            &full,
            Error::PeerSilent { awaited, .. } if awaited == "make room for a message"
        ),
        "{full}"
    );
    assert!(full.is_timeout());
    std::thread::scope(|scope| {
        scope.spawn(|| one.send_point_of(1, sent, LONG).unwrap());
        for value in 0..=sent {
            assert_eq!(other.receive_point_of(LONG).unwrap(), (1, value));
        }
    });
}

/// The inbox holds 1024 points while a call waits for something else.
///
/// Further points stay in the socket, and so do the messages behind them.
#[test]
fn unreceived_points_are_bounded() {
    let (one, mut raw) = against_raw();
    let point = |value| Message::Point { number: 1, value };
    for value in 0..1024 {
        raw.say(&point(value), 0);
        assert!(read_socket(&one).is_timeout());
    }
    // Makes room for one more.
    assert_eq!(one.receive_point_of(NOW).unwrap(), (1, 0));
    for value in 1024..1030 {
        raw.say(&point(value), 0);
    }
    raw.say(&needs(2), 0);
    let late = await_needs(&one, 2, NOW).unwrap_err();
    assert!(late.is_timeout(), "{late}");
    assert!(late.to_string().contains("behind 1024 points"), "{late}");
    let late = one.receive_words("words", 64, NOW).unwrap_err();
    assert!(late.to_string().contains("behind 1024 points"), "{late}");
    assert_eq!(one.connection().due(), Some(1026));
    // With room for all points but one, and then for all.
    for value in 1..6 {
        assert_eq!(one.receive_point_of(NOW).unwrap(), (1, value));
    }
    assert!(await_needs(&one, 3, NOW).unwrap_err().is_timeout());
    assert_eq!(one.connection().due(), Some(1031));
    assert_eq!(one.receive_point_of(NOW).unwrap(), (1, 6));
    await_needs(&one, 2, NOW).unwrap();
    for value in 7..1030 {
        assert_eq!(one.receive_point_of(NOW).unwrap(), (1, value));
    }
    one.check().unwrap();
}

/// A thread waits for an answer behind more points than there is room for.
///
/// Another thread receives the points. The endpoint stays open.
#[test]
fn an_answer_behind_many_points_arrives_once_they_are_received() {
    let (one, other) = both();
    let all = 5000;
    std::thread::scope(|scope| {
        let awaits = scope.spawn(|| await_needs(&one, 2, ENDLESS).unwrap());
        scope.spawn(|| {
            for value in 0..all {
                other.send_point_of(1, value, ENDLESS).unwrap();
            }
            other
                .send(&needs(2), &[], Deadline::after(ENDLESS))
                .unwrap();
        });
        // The inbox is full.
        while one.connection().due().is_some_and(|due| due < 1025) {
            std::thread::yield_now();
        }
        for value in 0..all {
            assert_eq!(one.receive_point_of(ENDLESS).unwrap(), (1, value));
        }
        awaits.join().unwrap();
    });
}

/// One received point is enough. Its receiver may not read the socket.
#[test]
fn a_waiter_for_room_is_woken_by_a_received_point() {
    let (one, mut raw) = against_raw();
    for value in 0..1024 {
        raw.say(&Message::Point { number: 1, value }, 0);
        assert!(await_needs(&one, 1, NOW).unwrap_err().is_timeout());
    }
    raw.say(&needs(2), 0);
    std::thread::scope(|scope| {
        let awaits = scope.spawn(|| await_needs(&one, 2, ENDLESS));
        while !one.connection().has_full_inbox() && one.check().is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(one.receive_point_of(NOW).unwrap(), (1, 0));
        awaits.join().unwrap().unwrap();
    });
}

/// No thread receives the points. The call waits until its timeout or the loss of the peer.
#[test]
fn waiting_behind_unreceived_points_ends_with_the_timeout_or_the_peer() {
    let (one, mut raw) = against_raw();
    for value in 0..1024 {
        raw.say(&Message::Point { number: 1, value }, 0);
        assert!(await_needs(&one, 1, NOW).unwrap_err().is_timeout());
    }
    raw.say(&needs(2), 0);
    let late = await_needs(&one, 2, Duration::from_millis(20)).unwrap_err();
    assert!(late.is_timeout(), "{late}");
    std::thread::scope(|scope| {
        let awaits = scope.spawn(|| await_needs(&one, 2, LONG).unwrap_err());
        drop(raw);
        let lost = awaits.join().unwrap();
        assert!(matches!(lost, Error::PeerLost { .. }), "{lost}");
    });
}

/// Sends a message that replaces the one before in the inbox.
fn say_next(raw: &mut Raw) {
    let round = u32::try_from(raw.sequence()).unwrap();
    raw.say(&needs(round), 0);
}

#[test]
fn a_stream_of_messages_does_not_delay_a_timeout() {
    let (one, mut raw) = against_raw();
    for timeout in [NOW, Duration::from_millis(20)] {
        let late = one
            .connection()
            .receive("end", Deadline::after(timeout), |_| {
                // There is always one more message.
                say_next(&mut raw);
                None::<()>
            })
            .unwrap_err();
        assert!(late.is_timeout(), "{late}");
    }
    one.check().unwrap();
}

/// A message that was there in time is found behind others.
#[test]
fn a_call_without_waiting_finds_a_point_behind_other_messages() {
    let (one, mut raw) = against_raw();
    for _ in 0..100 {
        say_next(&mut raw);
    }
    raw.say(&POINT_1, 0);
    assert_eq!(one.receive_point_of(NOW).unwrap(), (1, 1));
}

/// `pump` stops after 64 messages, because it holds the lock and its caller may be past its
/// deadline.
#[test]
fn one_pump_takes_at_most_64_messages() {
    let (one, mut raw) = against_raw();
    for _ in 0..100 {
        say_next(&mut raw);
    }
    let due = || one.connection().due().unwrap();
    let before = due();
    assert!(one.connection().pump());
    assert_eq!(due(), before + 64);
    assert!(!one.connection().pump());
    assert_eq!(due(), before + 100);
}

/// The reading thread releases the lock for others.
#[test]
fn a_thread_that_reads_a_stream_lets_others_lock_the_inbox() {
    let (one, mut raw) = against_raw();
    let (has_begun, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            while !has_begun.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            for _ in 0..20 {
                one.connection().with_inbox(|_| ());
                turns.fetch_add(1, Ordering::Relaxed);
            }
        });
        let deadline = Deadline::after(ENDLESS);
        let received = one.connection().receive("end", deadline, |_| {
            say_next(&mut raw);
            has_begun.store(true, Ordering::Relaxed);
            (turns.load(Ordering::Relaxed) == 20).then_some(())
        });
        received.unwrap();
        others.join().unwrap();
    });
}

/// Each message says that more needs follow.
#[test]
fn a_stream_of_needs_does_not_delay_the_timeout_of_a_negotiation() {
    let (one, mut raw) = against_raw();
    for _ in 0..20 {
        let (round, parties) = (1, Vec::new());
        let part = Message::Requirements {
            round,
            is_all: false,
            parties,
            links: Vec::new(),
        };
        raw.say(&part, 0);
    }
    let answer = one.negotiate(Party::threads().signals(), NOW);
    assert!(
        matches!(&answer, Err(late) if late.is_timeout()),
        "{answer:?}"
    );
    let due = one.connection().due().unwrap();
    assert!(due < 20, "it went on to message {due}");
}

#[test]
fn other_unreceived_messages_are_bounded() {
    let (one, mut raw) = against_raw();
    for number in 0..16 {
        raw.say(
            &Message::Object(offer(number, &[HandleKind::CounterMemfd])),
            1,
        );
        assert!(one.receive_point_of(NOW).unwrap_err().is_timeout());
    }
    one.check().unwrap();
    raw.say(&Message::Object(offer(16, &[])), 0);
    let refused = one.receive_point_of(NOW).unwrap_err();
    assert!(
        matches!(&refused, Error::Message { found, .. } if found.contains("16")),
        "{refused}"
    );
}
