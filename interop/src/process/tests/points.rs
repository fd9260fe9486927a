//! P2: points, and what they cost.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use syncline_core::{Error, HandleKind};

use super::{LONG, NOW, against_raw, both, heap, look};
use crate::negotiate::Party;
use crate::process::hostile::{Raw, offer};
use crate::process::message::{Content, Message};
use crate::process::offers::{Answer, Outcome};
use crate::process::socket::Deadline;
use crate::process::{Disagreement, Endpoint};

const POINT_1: Message = Message::Point {
    number: 1,
    value: 1,
};

/// What takes a place, and is no point.
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
fn points_come_in_their_order() {
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
fn neither_side_allocates_for_a_point() {
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
    // Also where some have come before they are asked for.
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
    // It does count.
    drop(std::hint::black_box(Box::new(1)));
    assert!(heap::so_far() > before);
}

/// One thread waits for points, and another for an answer: whoever reads the socket wakes the
/// other.
#[test]
fn who_waits_for_something_else_is_woken_by_who_reads() {
    let (one, other) = both();
    let (begin, deadline) = (Instant::now(), Deadline::after(LONG));
    for round in 0..200 {
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(one.receive_point_of(LONG).unwrap(), (1, round)));
            let told = [(); 2].map(|()| offer(one.next_number(), &[]));
            let offered = told
                .each_ref()
                .map(|told| one.offer(told, &[], deadline).unwrap());
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
                other.send_point_of(1, round, LONG).unwrap();
                one.refuse("no", deadline);
            });
        });
    }
    // Who is not woken finds it at the end of its patience.
    assert!(begin.elapsed() < LONG);
}

/// Somebody else takes what it sleeps for out of the socket.
#[test]
fn who_sleeps_at_the_socket_is_woken_by_who_is_faster() {
    let (one, mut raw) = against_raw();
    let begin = Instant::now();
    for value in 0..500 {
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(one.receive_point_of(LONG).unwrap(), (1, value)));
            while !one.connection().has_poller() {
                std::thread::yield_now();
            }
            raw.say(&Message::Point { number: 1, value }, 0);
            one.connection().pump();
        });
    }
    assert!(begin.elapsed() < LONG);
}

#[test]
fn a_sender_waits_for_room_and_no_longer_than_it_says() {
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

/// Points wait in a ring of 1024 while somebody waits for something else. The next ones stay in the
/// socket, and what is behind them.
#[test]
fn points_that_nobody_asks_for_are_bounded() {
    let (one, mut raw) = against_raw();
    let point = |value| Message::Point { number: 1, value };
    for value in 0..1024 {
        raw.say(&point(value), 0);
        assert!(look(&one).is_timeout());
    }
    // There is room again.
    assert_eq!(one.receive_point_of(NOW).unwrap(), (1, 0));
    for value in 1024..1030 {
        raw.say(&point(value), 0);
    }
    raw.say(&needs(2), 0);
    let late = await_needs(&one, 2, NOW).unwrap_err();
    assert!(late.is_timeout(), "{late}");
    assert!(late.to_string().contains("behind 1024 points"), "{late}");
    assert_eq!(one.connection().due(), Some(1026));
    // With room for all but one, and for all.
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

/// Somebody waits for an answer behind more points than there is room for, while another thread
/// receives them: nobody is shut out.
#[test]
fn an_answer_behind_many_points_comes_as_they_are_received() {
    let (one, other) = both();
    let all = 5000;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let awaits = scope.spawn(|| await_needs(&one, 2, LONG).unwrap());
        scope.spawn(|| {
            for value in 0..all {
                other.send_point_of(1, value, LONG).unwrap();
            }
            other.send(&needs(2), &[], Deadline::after(LONG)).unwrap();
        });
        // It has taken in all that it may.
        while one.connection().due().is_some_and(|due| due < 1025) {
            std::thread::yield_now();
        }
        for value in 0..all {
            assert_eq!(one.receive_point_of(LONG).unwrap(), (1, value));
        }
        awaits.join().unwrap();
    });
    assert!(begin.elapsed() < LONG);
}

/// One is enough, and whoever receives it may not look into the socket.
#[test]
fn who_waits_for_room_is_woken_by_who_makes_it() {
    let (one, mut raw) = against_raw();
    for value in 0..1024 {
        raw.say(&Message::Point { number: 1, value }, 0);
        assert!(await_needs(&one, 1, NOW).unwrap_err().is_timeout());
    }
    raw.say(&needs(2), 0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let awaits = scope.spawn(|| await_needs(&one, 2, LONG));
        while !one.connection().waits_for_room() && one.check().is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(one.receive_point_of(NOW).unwrap(), (1, 0));
        awaits.join().unwrap().unwrap();
    });
    assert!(begin.elapsed() < LONG);
}

/// And nobody receives them: it waits for as long as it says, or until the other side is lost.
#[test]
fn an_answer_behind_points_that_nobody_receives_ends_with_the_timeout_or_the_peer() {
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

/// The next of messages that take no room: each takes the place of the one before.
fn say_next(raw: &mut Raw) {
    let round = u32::try_from(raw.sequence).unwrap();
    raw.say(&needs(round), 0);
}

#[test]
fn no_stream_of_messages_holds_a_call_past_its_timeout() {
    let (one, mut raw) = against_raw();
    for timeout in [NOW, Duration::from_millis(20)] {
        let begin = Instant::now();
        let late = one
            .connection()
            .receive("end", Deadline::after(timeout), |_| {
                // There is always one more.
                say_next(&mut raw);
                (begin.elapsed() > LONG).then_some(())
            })
            .unwrap_err();
        assert!(late.is_timeout(), "{late}");
    }
    one.check().unwrap();
}

/// What was there in time is found, wherever it is.
#[test]
fn who_looks_once_finds_what_is_behind_other_messages() {
    let (one, mut raw) = against_raw();
    for _ in 0..100 {
        say_next(&mut raw);
    }
    raw.say(&POINT_1, 0);
    assert_eq!(one.receive_point_of(NOW).unwrap(), (1, 1));
}

/// What takes in messages for nobody in particular stops after 64, whatever else is there: with the
/// lock held, and maybe for a call whose time is over.
#[test]
fn a_turn_takes_in_64_messages_at_the_most() {
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

/// Nor does it keep those out who want something else of the endpoint.
#[test]
fn who_reads_a_stream_of_messages_lets_others_have_their_turn() {
    let (one, mut raw) = against_raw();
    let (has_begun, turns) = (AtomicBool::new(false), AtomicU32::new(0));
    let begin = Instant::now();
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
        let deadline = Deadline::after(Duration::MAX);
        let had_turns = one.connection().receive("end", deadline, |_| {
            say_next(&mut raw);
            has_begun.store(true, Ordering::Relaxed);
            match turns.load(Ordering::Relaxed) {
                20 => Some(true),
                _ => (begin.elapsed() > LONG).then_some(false),
            }
        });
        assert!(had_turns.unwrap());
        others.join().unwrap();
    });
}

/// Each of them is a part of what the other side needs, and never all.
#[test]
fn no_stream_of_needs_holds_a_negotiation_past_its_timeout() {
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
        matches!(&answer, Err(Disagreement::Error(late)) if late.is_timeout()),
        "{answer:?}"
    );
    let due = one.connection().due().unwrap();
    assert!(due < 20, "it went on to message {due}");
}

#[test]
fn other_messages_that_nobody_asks_for_are_bounded() {
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
