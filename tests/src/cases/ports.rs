//! Counters alone: the ports of a timeline, without the engine that knows its own signals.

use syncline::{Error, Timeline};
use syncline_core::backend::Attachment;

use crate::case::{Verdict, cases, check, check_eq, check_error};
use crate::{Subject, World};

cases! {
    "port.shows_what_the_host_signals": [T1] => shows;
    "port.stands_at_the_value_of_its_timeline": [T1] => stands;
    "port.keeps_to_the_limit_of_its_device": [T7 D3] => limit;
}

/// The engine takes a host signal that it made for reached.
///
/// Other readers of the counter, such as a driver or another process, see only its content.
fn shows<S: Subject>(world: &World<S>) -> Verdict {
    for side in [&world.left, &world.right] {
        for initial in [0, 7, u64::from(u32::MAX) - 1] {
            let mut counter = side.port(initial)?;
            // Some counters cannot be read by the host.
            let is_at = |counter: &Attachment, value| -> Verdict {
                let read = counter.value()?;
                check!(
                    read.is_none_or(|read| read == value),
                    "a counter at {value} reads as {read:?}"
                );
                Ok(())
            };
            is_at(&counter, initial)?;
            let mut value = initial;
            for step in [1, 1, 2, 1000] {
                value += step;
                counter.signal(value)?;
                is_at(&counter, value)?;
            }
        }
    }
    Ok(())
}

/// A timeline that assumed another value than the counter's would signal it backwards.
fn stands<S: Subject>(world: &World<S>) -> Verdict {
    for side in [&world.left, &world.right] {
        for (at, initial) in [(100, 0), (100, 99), (7, 8)] {
            let counter = side.port(at)?;
            check_error!(
                Timeline::new("line", initial, |_| Ok([counter].into_iter().collect())),
                Error::Unsupported { asked, reason, .. }
                    if asked == format!("start at {initial}") && reason.contains(&at.to_string())
            );
        }
        let counter = side.port(100)?;
        let line = Timeline::new("line", 100, |_| Ok([counter].into_iter().collect()))?;
        check_error!(line.signal(1), SignalNotAboveReached);
        line.signal(101)?;
    }
    Ok(())
}

/// The device's stated limit holds for its timelines.
fn limit<S: Subject>(world: &World<S>) -> Verdict {
    for side in [&world.left, &world.right] {
        let stated = side.info().capabilities.max_value_difference;
        let counter = side.port(0)?.max_value_difference();
        check!(counter <= stated);
        let line = side.timeline("line")?;
        let queue = side.queue(syncline::QueueKind::Compute, "queue")?;
        // All ones is not a value.
        let Some(beyond) = counter.checked_add(1).filter(|&value| value < u64::MAX) else {
            continue;
        };
        check!(!line.at(counter).is_reached()?, "{counter} is reached");
        check_error!(
            queue.submit_empty(&[line.at(beyond)], &[]),
            Error::ValueOutOfRange { asked, reached: 0, largest, .. }
                if (asked, largest) == (beyond, counter)
        );
        check_error!(
            line.signal(beyond),
            Error::ValueOutOfRange { asked, reached: 0, largest, .. }
                if (asked, largest) == (beyond, counter)
        );
        line.signal(counter)?;
        line.signal(beyond)?;
        check_eq!(line.value()?, beyond);
    }
    Ok(())
}
