//! T2: values that others signal, past the engine.
//!
//! The counter here is a word of the case. `devices/frames.rs` has semaphores of Vulkan.

use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline::Error;

use super::super::spies::Others;
use crate::case::{Verdict, cases, check, check_eq, check_error};
use crate::{Subject, World, patience};

cases! {
    "timeline.promised_values_are_pending": [T2 T7] => promised;
    "timeline.a_promise_and_a_claim_exclude_each_other": [T2] => claimed;
    "timeline.a_broken_promise_fails_it": [T2 E1] => broken;
    "timeline.others_get_the_signal_of_skipped_work": [E2 T2] => skipped;
    "timeline.a_time_out_names_the_promise": [T2 Q4] => named;
}

/// The largest legal difference of values here.
const LIMIT: u64 = 8;

fn promised<S: Subject>(world: &World<S>) -> Verdict {
    let others = Arc::new(Others::default());
    let line = others.timeline(world, LIMIT)?;
    check!(!line.at(2).is_pending()?);
    line.signalled_by_others(2)?;
    for value in [1, 2] {
        let point = line.at(value);
        check!(point.is_pending()?, "value {value}");
        check!(!point.is_reached()?, "value {value}");
    }
    check!(!line.at(3).is_pending()?);
    others.signal(2);
    check!(line.at(2).is_reached()?, "a promised signal is not seen");
    // Known values may be promised again, also those that were seen before their promise.
    others.signal(3);
    check!(line.at(3).is_reached()?, "a signal of others is not seen");
    for value in [1, 2, 3] {
        line.signalled_by_others(value)?;
    }
    let too_far = 3 + LIMIT + 1;
    check_error!(
        line.signalled_by_others(too_far),
        Error::ValueOutOfRange { asked, reached: 3, .. } if asked == too_far
    );
    line.signalled_by_others(too_far - 1)?;
    others.signal(too_far - 1);
    check_eq!(line.value()?, too_far - 1);
    let own = world.timeline("own")?;
    check_error!(own.signalled_by_others(1), Unsupported);
    line.fail(Error::NothingToWaitFor);
    check_error!(line.signalled_by_others(too_far), Failed);
    Ok(())
}

/// A signal of a queue that is held, and signals of others at and above it.
fn claimed<S: Subject>(world: &World<S>) -> Verdict {
    let others = Arc::new(Others::default());
    let line = others.timeline(world, u64::MAX)?;
    let (gate, queue) = (world.timeline("gate")?, world.right_queue("right")?);
    line.signalled_by_others(3)?;
    others.signal(3);
    queue.submit_empty(&[gate.at(1)], &[line.signal_at(5)])?;
    for value in [4, 5] {
        check_error!(
            line.signalled_by_others(value),
            Error::SignalOverlapsClaim { asked, above: 3, upto: 5, .. } if asked == value
        );
    }
    // Others may signal it only after the queue's signal.
    check_error!(
        line.signalled_by_others(6),
        Error::NotPending { value: 5, .. }
    );
    gate.signal(1)?;
    line.at(5).wait(patience())?;
    // The refused promise has left nothing behind.
    line.signalled_by_others(6)?;
    check_error!(line.signal(6), Error::SignalOverlapsClaim { asked: 6, .. });
    others.signal(6);
    line.signal(7)?;
    check!(others.value() == 7, "the counter is at {}", others.value());
    Ok(())
}

/// Others signal 8 without a promise, while a queue is to signal 7.
///
/// A query or the signal itself finds it. The counter stays at 8.
fn broken<S: Subject>(world: &World<S>) -> Verdict {
    for is_queried in [false, true] {
        let others = Arc::new(Others::default());
        let line = others.timeline(world, u64::MAX)?;
        let (gate, queue) = (world.timeline("gate")?, world.right_queue("right")?);
        line.signalled_by_others(6)?;
        others.signal(6);
        check!(line.at(6).is_reached()?, "a promised signal is not seen");
        queue.submit_empty(&[gate.at(1)], &[line.signal_at(7)])?;
        others.signal(8);
        if is_queried {
            let seen = line.value();
            check!(seen.is_err());
        }
        gate.signal(1)?;
        let waited = line.at(7).wait(patience());
        check!(
            matches!(&waited, Err(error) if matches!(error.root(), Error::Corrupted { found: 8, .. })),
            "7 is to be signalled after 8: {waited:?}"
        );
        check!(line.at(6).is_reached()?, "6 was reached");
        check_eq!(others.value(), 8);
        queue.idle(patience())?;
        check_eq!(others.value(), 8);
    }
    // The host's own signal finds it in the call, and changes nothing.
    let others = Arc::new(Others::default());
    let line = others.timeline(world, u64::MAX)?;
    others.signal(8);
    check_error!(
        line.signal(7),
        Error::SignalNotAboveReached {
            asked: 7,
            reached: 8,
            ..
        }
    );
    check_eq!(others.value(), 8);
    Ok(())
}

/// Others wait for 7, which a skipped submission was to signal. They signal 6 after the skip.
fn skipped<S: Subject>(world: &World<S>) -> Verdict {
    let others = Arc::new(Others::default());
    let line = others.timeline(world, u64::MAX)?;
    let (gate, queue) = (world.timeline("gate")?, world.right_queue("right")?);
    line.signalled_by_others(6)?;
    queue.submit_empty(&[gate.at(1)], &[line.signal_at(7)])?;
    gate.fail(Error::NothingToWaitFor);
    check!(line.at(7).wait(patience()).is_err());
    check_eq!(others.value(), 0);
    others.signal(6);
    let begun = Instant::now();
    while others.value() < 7 {
        check!(begun.elapsed() < patience(), "others wait for 7 in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
    check!(others.value() == 7, "the counter is at {}", others.value());
    Ok(())
}

fn named<S: Subject>(world: &World<S>) -> Verdict {
    let others = Arc::new(Others::default());
    let line = others.timeline(world, u64::MAX)?;
    line.signalled_by_others(2)?;
    for (value, expected) in [(2, "outside the engine"), (3, "promised it up to 2")] {
        let error = match line.at(value).wait(Duration::from_millis(1)) {
            Err(error @ Error::TimedOut { .. }) => error.to_string(),
            other => return crate::case::Stop::fail(format!("no time-out: {other:?}")),
        };
        for expected in [expected, "promised it up to 2"] {
            check!(error.contains(expected), "{expected:?} is not in {error:?}");
        }
    }
    Ok(())
}
