//! P2: points, and what they cost.

use std::time::Instant;

use syncline_core::{Error, HandleKind};

use super::{LONG, NOW, against_raw, both, heap, look};
use crate::process::hostile::offer;
use crate::process::message::{Content, Message};
use crate::process::offers::{Answer, End};
use crate::process::socket::Patience;

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
    let none =
        other
            .connection()
            .receive("", super::super::socket::Patience::of(NOW), |_| None::<()>);
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

/// One thread waits for points, and another for an answer: whoever reads the socket wakes the other.
#[test]
fn who_waits_for_something_else_is_woken_by_who_reads() {
    let (one, other) = both();
    let (begin, patience) = (Instant::now(), Patience::of(LONG));
    for round in 0..200 {
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(one.receive_point_of(LONG).unwrap(), (1, round)));
            let told = [(); 2].map(|()| offer(one.next_number(), &[]));
            let offered = told
                .each_ref()
                .map(|told| one.offer(told, &[], patience).unwrap());
            let [first, second] = offered;
            scope.spawn(move || {
                let refused = Answer::Refused("no".into());
                assert_eq!(first.answer(patience).unwrap(), refused);
            });
            scope.spawn(move || {
                assert_eq!(second.answer(patience).unwrap(), Answer::Taken);
                second.settle(patience).unwrap();
            });
            scope.spawn(|| {
                let receive = || {
                    let received = other.receive_object(Content::Timeline, "offered", patience);
                    received.unwrap().0
                };
                let (one, two) = (receive(), receive());
                assert_eq!(two.take(patience, NOW).unwrap(), End::Settled);
                other.send_point_of(1, round, LONG).unwrap();
                one.refuse("no", patience);
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
            while !one.connection().is_watched() {
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

/// Points wait in a ring of 1024 while somebody waits for something else: the next one is too many.
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
    raw.say(&point(1024), 0);
    assert!(look(&one).is_timeout());
    one.check().unwrap();
    raw.say(&point(1025), 0);
    let refused = look(&one);
    assert!(
        matches!(&refused, Error::Message { found, .. } if found.contains("1024")),
        "{refused}"
    );
    assert_eq!(one.check().unwrap_err().to_string(), refused.to_string());
    assert_eq!(
        one.receive_point_of(NOW).unwrap_err().to_string(),
        refused.to_string()
    );
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
