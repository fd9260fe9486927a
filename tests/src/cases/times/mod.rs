//! M6: timelines with timestamps. Their points have the times at which they were reached.

use crate::case::{Stop, check};
use crate::cases::clocks::{queue, sides};
use crate::user::{Device, Point, Queue, Time, Timeline};
use crate::{Case, Subject, Verdict, World};

mod kept;
mod told;
mod written;

/// The cases of this family.
pub(crate) fn cases<S: Subject>() -> Vec<Case<S>> {
    let files = [told::cases(), written::cases(), kept::cases()];
    files.into_iter().flatten().collect()
}

/// A device, a queue of it that writes times, and a timeline with timestamps.
struct Clocked<'w, S: Subject> {
    device: &'w Device<S>,
    queue: Queue<S>,
    line: Timeline<S>,
}

/// One for each side that has a clock.
fn clocked<S: Subject>(world: &World<S>) -> Result<Vec<Clocked<'_, S>>, Stop> {
    let mut all = Vec::new();
    for device in sides(world)? {
        let line = device.clocked_timeline("clocked")?;
        check!(line.is_clocked(), "{line:?} says that it has no timestamps");
        let queue = queue(device)?;
        all.push(Clocked {
            device,
            queue,
            line,
        });
    }
    Ok(all)
}

/// Checks that the time of `point` is still `before`.
fn tells<S: Subject>(point: Point<'_, S>, before: &Time<S>, when: &str) -> Verdict {
    let now = point.time()?;
    check!(
        now.nanoseconds() == before.nanoseconds()
            && now.clock().library().is_same(before.clock().library()),
        "{point:?} was reached at {before:?}, and {when} at {now:?}"
    );
    Ok(())
}

/// Checks that `late` is not before `early`: exactly on one clock, else within the stated error.
fn follows<S: Subject>(what: &str, late: &Time<S>, early: &Time<S>) -> Verdict {
    let between = late.since(early)?;
    let same = late.clock().library().is_same(early.clock().library());
    let room = if same { 0 } else { between.error.cast_signed() };
    check!(
        between.nanoseconds >= -room,
        "{what} {late:?} {early:?} {room}"
    );
    Ok(())
}
