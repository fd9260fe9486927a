//! T1, P4, E5: wrong values and failures in pages.

use std::thread;

use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, QueueKind, Timeline, host};

use super::{Hostile, LONG, REACHED, alone, exported, imported};

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

/// A claim for another process's signal can be declared submitted once the page shows it pending.
#[test]
fn a_claim_becomes_pending_once_the_page_shows_it() {
    let _alone = alone();
    let (left, right) = (host::Device::new(), host::Device::new());
    let (ours, exporter) = exported(&left, 0);
    let theirs = imported(&right, exporter.export().unwrap());
    let mut claim = theirs.claim(1).unwrap();
    let error = claim.submitted().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let queue = right.queue(QueueKind::Compute, "queue").unwrap();
    let waits = queue.submit(&[theirs.at(1)], |_| Ok(()), &[]).unwrap();
    assert!(waits.is_held());
    let home = ours.devices().next().unwrap();
    let port = ours.port::<host::CounterPort>(home).unwrap();
    port.counter().announce(1).unwrap();
    port.counter().note_pending(1);
    claim.submitted().unwrap();
    theirs.at(1).require_pending().unwrap();
    assert!(!theirs.at(1).is_reached().unwrap());
    // Another process has announced the signal, so the host may not make it.
    let error = ours.signal(1).unwrap_err();
    assert!(
        matches!(error, Error::SignalOverlapsClaim { .. }),
        "{error}"
    );
    Hostile::of(&exporter).write_word(REACHED, 1);
    port.counter().wake_all();
    queue.idle(LONG).unwrap();
}
