//! T1, P4, E5: wrong values and failures in pages.

use std::thread;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, QueueKind, Timeline, host};

use super::{ANNOUNCED, FAILED, Hostile, LONG, REACHED, RECORD, alone, exported, imported};

/// The cause of a failed timeline, for a wait. Also checks that a query fails.
#[track_caller]
fn failed(line: &Timeline, value: u64) -> Error {
    let error = line.at(value).wait(LONG).unwrap_err();
    let Error::Failed { cause, .. } = error else {
        panic!("{error:?}");
    };
    assert!(matches!(line.value(), Err(Error::Failed { .. })));
    (*cause).clone()
}

fn two() -> (Timeline, Timeline, Hostile) {
    let device = host::Device::new();
    let (ours, exporter) = exported(&device, 10);
    let theirs = imported(&device, exporter.export().unwrap());
    ours.signal(20).unwrap();
    theirs.at(20).wait(LONG).unwrap();
    (ours, theirs, Hostile::of(&exporter))
}

#[test]
fn a_value_that_goes_back_fails_the_timeline() {
    let _alone = alone();
    let (ours, theirs, hostile) = two();
    hostile.write_word(REACHED, 19);
    for line in [&ours, &theirs] {
        assert!(matches!(
            failed(line, 21),
            Error::Corrupted { found: 19, .. }
        ));
        assert_eq!(line.frozen_value(), 20);
        line.at(20).wait(LONG).unwrap();
    }
}

#[test]
fn a_value_of_all_ones_fails_the_timeline() {
    let _alone = alone();
    let (ours, theirs, hostile) = two();
    hostile.write_word(ANNOUNCED, u64::MAX);
    hostile.write_word(REACHED, u64::MAX);
    for line in [&ours, &theirs] {
        assert!(matches!(
            failed(line, 21),
            Error::Corrupted {
                found: u64::MAX,
                ..
            }
        ));
        assert_eq!(line.frozen_value(), 20);
    }
}

#[test]
fn a_value_above_the_announced_one_fails_the_timeline() {
    let _alone = alone();
    let (ours, theirs, hostile) = two();
    hostile.write_word(REACHED, 25);
    for line in [&ours, &theirs] {
        let cause = failed(line, 22);
        assert!(
            matches!(cause, Error::Corrupted { found: 25, .. }),
            "{cause}"
        );
        assert_eq!(line.frozen_value(), 20);
    }
}

/// No content of a page makes a call panic or return a value of all ones.
#[test]
fn random_words_in_a_page_cause_no_panic() {
    let _alone = alone();
    let device = host::Device::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..300 {
        let (ours, exporter) = exported(&device, 1);
        let hostile = Hostile::of(&exporter);
        for _ in 0..20 {
            // Words of the header, the values, the futex wait, the failure and its records.
            let word = [0, 1, 16, 17, 18, 48, 64, 80, 81, 82, 100, 162][next() as usize % 12];
            let value = if next() % 2 == 0 { next() } else { next() % 4 };
            hostile.write_word(8 * word, value);
            let _ = ours.value();
            let _ = ours.signal(ours.frozen_value() + 1);
            let _ = ours.at(u64::MAX - 1).is_reached();
        }
        assert!(ours.frozen_value() < u64::MAX);
    }
}

/// A wrong value ends the wait of a sleeping thread without a wake.
///
/// The watch checks the page again after a time.
#[test]
fn a_wrong_value_ends_a_wait() {
    let _alone = alone();
    let (ours, theirs, hostile) = two();
    thread::scope(|scope| {
        let waits = [&ours, &theirs].map(|line| scope.spawn(|| failed(line, 100)));
        hostile.write_word(REACHED, 3);
        for wait in waits {
            assert!(matches!(wait.join().unwrap(), Error::Corrupted { .. }));
        }
    });
}

#[test]
fn a_failure_in_the_page_is_reported_with_its_cause() {
    let _alone = alone();
    let (ours, theirs, hostile) = two();
    ours.signal(30).unwrap();
    let cause = b"the renderer was \xff\xfe lost";
    hostile.write(RECORD + 32, cause);
    hostile.write_word(RECORD + 16, 30);
    hostile.write(RECORD + 8, &(-4_i64).to_ne_bytes());
    hostile.write(RECORD, &(cause.len() as u32).to_ne_bytes());
    hostile.write(FAILED, &2_u32.to_ne_bytes());
    match failed(&theirs, 31) {
        Error::FailedElsewhere { code, cause, .. } => {
            assert_eq!(code, -4);
            assert!(cause.starts_with("the renderer was ") && cause.ends_with(" lost"));
        }
        other => panic!("{other}"),
    }
    // Values that were reached before stay reached.
    assert_eq!(theirs.frozen_value(), 30);
    assert!(ours.signal(31).is_err());
    assert_eq!(hostile.read_word(REACHED), 30);
}

/// A submission whose work panics does not signal, so the page keeps its value.
#[test]
fn a_failed_submission_stores_no_value() {
    let _alone = alone();
    let device = host::Device::new();
    let (ours, exporter) = exported(&device, 0);
    let theirs = imported(&device, exporter.export().unwrap());
    let queue = device.queue(QueueKind::Compute, "queue").unwrap();
    let work = |recorder: &mut host::Recorder| {
        recorder.run(|| panic!("on purpose"));
        Ok(())
    };
    queue.submit(&[], work, &[ours.signal_at(1)]).unwrap();
    queue.idle(LONG).unwrap();
    assert!(matches!(failed(&ours, 1), Error::WorkPanicked { .. }));
    assert_eq!(Hostile::of(&exporter).read_word(REACHED), 0);
    assert!(!theirs.at(1).is_reached().unwrap());
}
