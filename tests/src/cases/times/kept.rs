//! A timeline remembers the times of its last signals, and no more.

use syncline::{Error, Timeline};

use super::{clocked, follows, tells};
use crate::case::{Verdict, cases, check, check_error};
use crate::cases::cause;
use crate::footprint::grows_nothing;
use crate::{Subject, World, patience};

cases! {
    "times.of_the_last_signals_are_kept": [M6 H2] => last_kept;
    "times.refusals_forget_nothing": [M6 Q5 T2] => refusals;
    "times.grow_nothing": [M6 H2] => grow_nothing;
}

/// How many signals are remembered.
const KEPT: u64 = Timeline::TIMES as u64;

/// After any number of signals the last times are known. Older ones are reported as forgotten.
fn last_kept<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let (queue, line) = (&on.queue, &on.line);
        // Every third value, in groups. A group may or may not be reached when the next one
        // follows.
        let last = 3 * (KEPT + KEPT / 2);
        for value in (3..=last).step_by(3) {
            queue.submit(&[], |_| Ok(()), &[line.signal_at(value)])?;
            if value % 96 == 0 {
                line.at(value).wait(patience())?;
            }
        }
        line.at(last).wait(patience())?;
        let oldest = last - 3 * (KEPT - 1);
        let mut before = line.at(oldest).time()?;
        for value in (oldest..=last).step_by(3) {
            let time = line.at(value).time()?;
            follows("a value after the one before it", &time, &before)?;
            tells(line.at(value - 2), &time, "passed over")?;
            before = time;
        }
        let name = line.object();
        // The last ones are promised. One more may be there.
        for value in [1, 2, 3, oldest / 2, oldest - 9] {
            let asked = value;
            check_error!(
                line.at(asked).time(),
                Error::TimeForgotten { timeline, value, kept, oldest: told, .. }
                    if timeline == *name && value == asked && kept == Timeline::TIMES
                        && told > asked && told <= oldest
            );
        }
        check!(line.at(1).is_reached()?);
    }
    Ok(())
}

/// Refused calls use no place: neither illegal signals nor work that fails.
fn refusals<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let (queue, line) = (&on.queue, &on.line);
        for value in 1..=KEPT {
            queue.submit(&[], |_| Ok(()), &[line.signal_at(value)])?;
        }
        line.at(KEPT).wait(patience())?;
        let (first, last) = (line.at(1).time()?, line.at(KEPT).time()?);
        for _ in 0..KEPT / 4 {
            let refused = queue.submit(&[], |_| Err(cause("no")), &[line.signal_at(KEPT + 1)]);
            check_error!(refused, Error::Work(_));
            let late = queue.submit(&[], |_| Ok(()), &[line.signal_at(KEPT)]);
            check_error!(late, SignalNotAboveReached);
            check_error!(line.signal(1), SignalNotAboveReached);
        }
        check_error!(line.at(KEPT + 1).time(), NotReached);
        tells(line.at(1), &first, "after refusals")?;
        tells(line.at(KEPT), &last, "after refusals")?;
        // The value is free. Its time is that of the accepted signal.
        queue.submit(&[], |_| Ok(()), &[line.signal_at(KEPT + 2)])?;
        line.at(KEPT + 2).wait(patience())?;
        let time = line.at(KEPT + 1).time()?;
        follows("what came after the refusals", &time, &last)?;
        tells(line.at(KEPT + 2), &time, "asked for it")?;
        queue.idle(patience())?;
    }
    Ok(())
}

/// Memory for times comes from pools, and a timeline has as much as it remembers.
///
/// Nothing grows with the number of signals, or of timelines that come and go.
fn grow_nothing<S: Subject>(world: &World<S>) -> Verdict {
    for on in clocked(world)? {
        let (queue, line) = (&on.queue, &on.line);
        let each = if world.is_pair() { 300 } else { 1000 };
        let mut value = 0;
        grows_nothing(|| {
            for nth in 0..each {
                value += 1;
                queue.submit(&[], |_| Ok(()), &[line.signal_at(value)])?;
                if nth % 50 == 0 {
                    // Dropped while its time is not written yet.
                    let dropped = on.device.clocked_timeline("dropped")?;
                    queue.submit(&[], |_| Ok(()), &[dropped.signal_at(1)])?;
                    drop(dropped);
                    line.at(value).wait(patience())?;
                    line.at(value).time()?;
                }
            }
            queue.idle(patience())?;
            Ok(())
        })?;
    }
    Ok(())
}
