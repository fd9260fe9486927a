//! M1, F5: times on a clock, written on the queue and read without blocking. Also refusals.

use syncline::Error;
use syncline_core::backend::Timing;

use super::{queue, sides};
use crate::case::{Verdict, cases, check, check_eq, check_error};
use crate::cases::time::{comes_once, use_again};
use crate::user::Fence;
use crate::{Subject, World, patience};

cases! {
    "clocks.time_not_ready_until_written": [M1 F3] => not_ready;
    "clocks.time_errors": [M1 F5] => errors;
    "clocks.stamps_are_used_again": [M1 F6 H2] => used_again;
}

/// While the device is blocked there is no time.
///
/// A thread that polls all the time sees the time come once, and it does not change.
fn not_ready<S: Subject>(world: &World<S>) -> Verdict {
    for device in sides(world)? {
        let (clock, queue) = (device.clock()?, queue(device)?);
        let known = device.clocked_fence("known")?;
        queue.record(&known)?;
        known.wait(patience())?;
        let before = known.time()?.nanoseconds();
        let stall = device.stall()?;
        queue.block(&stall)?;
        let late = device.clocked_fence("late")?;
        queue.record(&late)?;
        let name = late.object();
        // A query that blocked would hang: this thread releases the stall only later.
        check_error!(late.time(), Error::NotReady { fence, .. } if fence == *name);
        check_error!(late.elapsed_since(&known), Error::NotReady { fence, .. } if fence == *name);
        let told = known.time()?.nanoseconds();
        check_eq!(told, before);
        let asked = comes_once(&stall, &late, || Ok(late.time()?.nanoseconds()))?;
        let told = late.time()?;
        check_eq!(told.nanoseconds(), asked);
        check!(asked >= before);
        check!(told.clock().library().is_same(clock.library()));
        queue.idle(patience())?;
    }
    Ok(())
}

/// Each missing time has an error of its own. The errors change nothing.
fn errors<S: Subject>(world: &World<S>) -> Verdict {
    for device in sides(world)? {
        let queue = queue(device)?;
        let (plain, timed) = (device.fence("plain"), device.timed_fence("timed"));
        let (first, second) = (
            device.clocked_fence("first")?,
            device.clocked_fence("second")?,
        );
        check!(
            first.is_timed() && first.library().timing() == Timing::Clock,
            "a clocked fence writes {}",
            first.library().timing()
        );
        let name = first.object();
        check_error!(first.time(), Error::NotRecorded { fence, .. } if fence == *name);
        check_error!(second.elapsed_since(&first), NotRecorded);
        check!(first.is_complete()?, "asking for a time changed a fence");
        for fence in [&plain, &timed, &first, &second] {
            queue.record(fence)?;
        }
        queue.idle(patience())?;
        for without in [&plain, &timed] {
            let name = without.object();
            check_error!(
                without.time(),
                Error::TimingDisabled { fence, asked: Timing::Clock, .. } if fence == *name
            );
        }
        let foreign = device
            .import_descriptor(None, "foreign")
            .map_err(|rejected| rejected.error)?;
        check_error!(
            foreign.time(),
            Error::TimingDisabled {
                asked: Timing::Clock,
                ..
            }
        );
        check_error!(first.elapsed_since(&plain), TimingDisabled);
        check_error!(plain.elapsed_since(&first), TimingDisabled);
        for (start, end) in [(&timed, &first), (&first, &timed)] {
            let names = (start.object(), end.object());
            check_error!(
                end.elapsed_since(start),
                Error::TimingDiffers { start, end, .. } if (&start, &end) == names
            );
        }
        check!(second.elapsed_since(&first)? >= 0, "time ran backwards");
        let known = first.time()?.nanoseconds();

        // Held on the host, so the record has not even begun.
        let opens = world.timeline("opens")?;
        queue.submit_empty(&[opens.at(1)], &[])?;
        queue.record(&second)?;
        let name = second.object();
        check_error!(second.time(), Error::NotReady { fence, .. } if fence == *name);
        check_error!(second.elapsed_since(&first), NotReady);
        opens.signal(1)?;
        second.wait(patience())?;
        check!(second.time()?.nanoseconds() >= known, "time ran backwards");
        queue.idle(patience())?;
    }
    if world.is_pair() {
        let (Ok(left), Ok(right)) = (
            world.left.clocked_fence("left"),
            world.right.clocked_fence("right"),
        ) else {
            return Ok(());
        };
        let queues = [queue(&world.left)?, queue(&world.right)?];
        check_error!(queues[1].record(&left), WrongDevice);
        check_error!(left.time(), NotRecorded);
        queues[0].record(&left)?;
        queues[1].record(&right)?;
        queues.iter().try_for_each(|queue| queue.idle(patience()))?;
        // Intervals need one device. Times do not.
        check_error!(right.elapsed_since(&left), WrongDevice);
        right.time()?.since(&left.time()?)?;
    }
    Ok(())
}

fn used_again<S: Subject>(world: &World<S>) -> Verdict {
    for device in sides(world)? {
        let queue = queue(device)?;
        let told = |again: &Fence<S>| again.time().map(|time| time.nanoseconds());
        use_again(world, &queue, |label| device.clocked_fence(label), told)?;
    }
    Ok(())
}
