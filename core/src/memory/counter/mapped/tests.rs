use std::os::fd::AsFd;
use std::sync::Arc;

use rstest::rstest;

use super::*;
use crate::base::peer::{PeerExit, PeerLoss};

/// Two mappings of one counter, as two processes have them.
fn two(initial: u64) -> (Counter, Counter) {
    let (ours, file) = Counter::make(initial).unwrap();
    let handle = CounterFd::from_fd(file).unwrap();
    let theirs = Counter::open(&handle, &Object::new("device", "theirs")).unwrap();
    (ours, theirs)
}

#[rstest]
#[case::zero(0)]
#[case::across_31_bits((1 << 31) - 1)]
#[case::across_32_bits((1 << 32) - 1)]
#[case::across_63_bits((1 << 63) - 1)]
#[case::last_but_one(u64::MAX - 2)]
fn any_legal_value_can_be_the_first_value(#[case] initial: u64) {
    let (ours, theirs) = two(initial);
    ours.signal(initial + 1).unwrap();
    assert_eq!(theirs.value().unwrap(), initial + 1);
}

#[test]
fn the_first_value_cannot_be_all_ones() {
    let refused = Counter::make(u64::MAX).map(|_| ());
    assert!(matches!(refused, Err(Error::ValueOutOfRange { .. })));
}

#[test]
fn signal_not_above_the_value_is_refused_and_not_stored() {
    let (ours, theirs) = two(0);
    theirs.signal(5).unwrap();
    for late in [4, 5] {
        let refused = ours.signal(late);
        assert!(matches!(refused, Err(Error::Corrupted { found: 5, .. })));
    }
    assert_eq!(theirs.value().unwrap(), 5);
}

#[test]
fn failure_is_returned_with_its_cause_after_reached_values() {
    let (ours, theirs) = two(0);
    ours.signal(2).unwrap();
    ours.fail(2, -7, "it broke");
    ours.fail(9, -8, "again");
    assert_eq!(theirs.value().unwrap(), 2);
    for answer in [theirs.value().map(|_| ()), theirs.signal(3)] {
        match answer {
            Err(Error::FailedElsewhere { code, cause, .. }) => {
                assert_eq!((code, &*cause), (-7, "it broke"));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ours.page.reached.load(Ordering::SeqCst), 2, "stored");
    // Later writes of a device do not count.
    ours.page.announced.store(3, Ordering::SeqCst);
    ours.page.reached.store(3, Ordering::SeqCst);
    for counter in [&ours, &theirs] {
        let told = counter.value();
        assert!(
            matches!(told, Err(Error::FailedElsewhere { code: -7, .. })),
            "{told:?}"
        );
    }
}

#[test]
fn any_stored_cause_is_bounded() {
    let (ours, theirs) = two(0);
    // `é` has two bytes, so the limit of 512 bytes can lie within a character.
    ours.fail(0, 1, &"aé".repeat(1000));
    let Err(Error::FailedElsewhere { cause, .. }) = theirs.value() else {
        panic!("it has not failed");
    };
    assert!(cause.len() <= 512 && cause.len() > 500 && cause.ends_with(['a', 'é']));

    let (file, theirs) = {
        let (_, file) = Counter::make(0).unwrap();
        let handle = CounterFd::from_fd(file.try_clone().unwrap()).unwrap();
        let object = Object::new("device", "theirs");
        (file, Counter::open(&handle, &object).unwrap())
    };
    let mut hostile = [0xff; 128 + 544];
    hostile[..4].copy_from_slice(&2_u32.to_ne_bytes());
    hostile[160..164].copy_from_slice(b"\n\x1b[m");
    rustix::io::pwrite(file.as_fd(), &hostile, 512).unwrap();
    let Err(Error::FailedElsewhere { code, cause, .. }) = theirs.value() else {
        panic!("it has not failed");
    };
    assert_eq!((code, cause.chars().count()), (-1, 512));
    assert!(!cause.contains(char::is_control), "{cause:?}");
    // A process died while it wrote the failure.
    rustix::io::pwrite(file.as_fd(), &77_u32.to_ne_bytes(), 512).unwrap();
    let told = loop {
        match theirs.value() {
            Ok(value) => assert_eq!(value, 0),
            Err(told) => break told.to_string(),
        }
    };
    assert!(told.contains("not said why"), "{told}");
    // Values that were reached count, even if they are read late.
    theirs.page.announced.store(3, Ordering::SeqCst);
    theirs.page.reached.store(3, Ordering::SeqCst);
    assert_eq!(theirs.value().unwrap(), 3);
    assert!(theirs.value().is_err());
}

fn cause(text: &str) -> Cause {
    Cause {
        code: 0,
        text: text.into(),
        lost: None,
    }
}

/// Writers of the failure are stopped, and a later attempt replaces theirs.
///
/// When they go on, the failure that is written stays.
#[test]
fn replaced_attempts_do_not_change_the_written_failure() {
    for stopped in 1..4 {
        let (ours, theirs) = two(0);
        let attempts: Vec<_> = (0..stopped)
            .map(|_| ours.page.begin_failure().unwrap())
            .collect();
        theirs.fail(2, -7, "it broke");
        let told = (theirs.page.state(false), theirs.page.cause());
        assert_eq!(told.0, PageState::Failed(2));
        assert_eq!((told.1.code, &*told.1.text), (-7, "it broke"));
        for (attempt, frozen) in attempts.into_iter().zip(8..) {
            assert!(
                !ours
                    .page
                    .complete_failure(attempt, frozen, &cause("it is broken"))
            );
            assert_eq!((ours.page.state(false), ours.page.cause()), told);
        }
    }
}

/// Any number in `failed` can be followed by a new attempt.
#[rstest]
#[case::attempt_0(1)]
#[case::attempt_1(3)]
#[case::attempt_38(77)]
#[case::the_last_but_one(u32::MAX - 2)]
#[case::the_last(u32::MAX)]
fn any_incomplete_attempt_can_be_replaced(#[case] begun: u32) {
    let (ours, file) = Counter::make(0).unwrap();
    rustix::io::pwrite(file.as_fd(), &u32::to_ne_bytes(begun), 512).unwrap();
    ours.fail(2, -7, "it broke");
    assert_eq!(ours.page.state(false), PageState::Failed(2));
    assert_eq!(ours.page.cause().text, "it broke");
}

/// A reader is stopped after it saw an incomplete failure.
///
/// Meanwhile the writer completes it and raises the counter to release native waits. The raised
/// value does not count.
#[test]
fn values_raised_after_a_failure_do_not_count() {
    let (ours, _) = two(2);
    let page = &ours.page;
    ours.announce(6).unwrap();
    let failing = page.begin_failure().unwrap();
    let cause = cause("the process has died");
    let mut is_stopped = true;
    let found = page.state_and_reached(true, 2, || {
        if std::mem::take(&mut is_stopped) {
            assert!(page.complete_failure(failing, 2, &cause));
            assert!(ours.recover(0, 6));
        }
        page.reached.load(Ordering::SeqCst)
    });
    assert_eq!(found, (PageState::Failed(2), 6));
}

/// A reader gets the error that a process with a connection to the lost process has written.
#[rstest]
#[case::died(PeerLoss::Died { exit: None })]
#[case::exited_with_a_negative_code(PeerLoss::Died { exit: Some(PeerExit::Code(-3)) })]
#[case::exited_with_code_0(PeerLoss::Died { exit: Some(PeerExit::Code(0)) })]
#[case::killed_by_a_signal(PeerLoss::Died { exit: Some(PeerExit::Signal(9)) })]
#[case::hung_up(PeerLoss::HungUp)]
#[case::left(PeerLoss::Left)]
#[case::shut_out(PeerLoss::ShutOut)]
#[case::given_up(PeerLoss::GivenUp)]
fn loss_of_a_process_is_read_with_its_id(#[case] how: PeerLoss) {
    let (ours, theirs) = two(0);
    let endpoint = Object::new("endpoint", "ours");
    let process = 4711;
    ours.fail_for(0, &Error::peer_lost(endpoint, process, how));
    match theirs.value() {
        Err(Error::PeerLost {
            endpoint,
            process: 4711,
            how: told,
        }) => assert_eq!((endpoint.id(), told), (theirs.object().id(), how)),
        other => panic!("{other:?}"),
    }
}

/// Two threads signal the same values without waiting for each other.
#[test]
fn concurrent_signals_of_one_value_succeed_once() {
    let (ours, theirs) = two(0);
    let sides = [Arc::new(ours), Arc::new(theirs)];
    let made: Vec<Vec<u64>> = std::thread::scope(|scope| {
        let side = |counter: &Arc<Counter>| {
            let counter = counter.clone();
            scope.spawn(move || {
                (1..=10_000)
                    .filter(|&v| counter.signal(v).is_ok())
                    .collect()
            })
        };
        let threads = sides.each_ref().map(side);
        threads.map(|thread| thread.join().unwrap()).into()
    });
    let mut all: Vec<u64> = made.concat();
    let count = all.len();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), count, "a value was signalled twice");
    assert_eq!(sides[0].value().unwrap(), 10_000);
}
