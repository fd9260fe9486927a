//! F7: captures and launches that are refused, and what they leave behind.

#![allow(unsafe_code, reason = "adopts and destroys captured graphs")]

use syncline::cuda::sys;
use syncline::{Device, Error};

use super::super::captures::{Capture, cuda_queue};
use super::{Owned, Slotted, lines};
use crate::case::{Stop, Verdict, check, check_eq, check_error, equipped_cases};
use crate::cases::{WORDS, filling};
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

equipped_cases! {
    "slot.wrong_captures_are_refused": [F7 E5] => wrong_captures;
    "slot.wrong_launches_claim_nothing": [F7 E5 Q5] => wrong_launches;
    "slot.failed_timelines": [F7 E1 Q5] => failed;
}

fn wrong_captures(world: &World<Equipped>) -> Verdict {
    let [line] = lines(world, ["line"])?;
    let ((queue, native), (_, other)) = (
        cuda_queue(world, "captured")?,
        cuda_queue(world, "not captured")?,
    );
    let Device::Cuda(device) = world.left.library() else {
        return Stop::skip("only CUDA captures work into graphs");
    };
    let host = syncline::backend::Device::timeline(&syncline::host::Device::new(), "host")?;
    let mut slots = device.graph_slots("none");
    check_error!(slots.signal(&other, line.library()), Unsupported);
    check_error!(slots.wait(&other, line.library().at(0)), Unsupported);
    let mut slotted = Slotted::begin(world, &native)?;
    // No port here, no timeline at all, a time for each signal, another capture.
    check_error!(slotted.slots.signal(&native, &host), Unsupported);
    check_error!(slotted.slots.wait(&native, host.at(1)), Unsupported);
    check_error!(
        slotted.slots.wait(&native, syncline::Point::EMPTY),
        Unsupported
    );
    if let Ok(clocked) = world.left.clocked_timeline("clocked") {
        check_error!(slotted.signal(&clocked), Unsupported);
    }
    check_error!(slotted.slots.signal(&other, line.library()), Unsupported);
    let signal = slotted.signal(&line)?;
    check_error!(slotted.signal(&line), Unsupported);
    {
        let second = Capture::begin(&other)?;
        check_error!(
            slotted.slots.wait(&other, line.library().at(0)),
            Unsupported
        );
        // To instantiate it now would end the first capture.
        drop(second);
    }
    // The refusals have done the capture no harm.
    let graph = slotted.end()?;
    native.launch(&graph, &[signal.at(1)])?;
    line.at(1).wait(patience())?;
    queue.idle(patience())?;
    // No slot at all, and the slots of another graph.
    for captures_slot in [false, true] {
        let mut slotted = Slotted::begin(world, &native)?;
        if captures_slot {
            slotted.signal(&line)?;
        }
        let (graph, executable) = slotted.capture.end_raw()?;
        let owned = Owned(graph, executable);
        let given = if captures_slot {
            std::ptr::null_mut()
        } else {
            graph
        };
        // SAFETY: refused, and never launched.
        let adopted = unsafe { slotted.slots.adopt(given, owned.1, None) };
        check_error!(adopted, Unsupported);
    }
    Ok(())
}

fn wrong_launches(world: &World<Equipped>) -> Verdict {
    let [ready, done] = lines(world, ["ready", "done"])?;
    let ((queue, native), (_, other)) =
        (cuda_queue(world, "captured")?, cuda_queue(world, "other")?);
    let right = world.right_queue("right")?;
    let mut slotted = Slotted::begin(world, &native)?;
    let wait = slotted.wait(&ready)?;
    let signal = slotted.signal(&done)?;
    let graph = slotted.end()?;
    let mut slotted = Slotted::begin(world, &native)?;
    let foreign = slotted.signal(&ready)?;
    slotted.end()?;
    right.signal(&ready, 1)?;
    for values in [
        &[][..],
        &[wait.at(1)][..],
        &[signal.at(1)][..],
        &[wait.at(1), signal.at(1), wait.at(1)][..],
        &[wait.at(1), signal.at(1), signal.at(2)][..],
        &[wait.at(1), signal.at(1), foreign.at(2)][..],
        &[wait.at(1), foreign.at(2)][..],
    ] {
        check_error!(native.launch(&graph, values), Unsupported);
    }
    check_error!(
        native.launch(&graph, &[wait.at(1), signal.at(u64::MAX)]),
        ValueOutOfRange
    );
    check_error!(
        native.launch(&graph, &[wait.at(u64::MAX), signal.at(1)]),
        ValueOutOfRange
    );
    check_error!(
        native.launch(&graph, &[wait.at(1), signal.at(0)]),
        SignalNotAboveReached
    );
    let capture = Capture::begin(&native)?;
    check_error!(
        native.launch(&graph, &[wait.at(1), signal.at(1)]),
        Capturing
    );
    let (empty, executable) = capture.end_raw()?;
    // SAFETY: nothing uses them.
    unsafe {
        let _ = sys::cuGraphExecDestroy(executable);
        let _ = sys::cuGraphDestroy(empty);
    }
    check!(
        queue.position().value() == 0 && queue.held().count == 0,
        "a refused launch left something behind"
    );
    // Nothing is claimed, on any queue.
    other.launch(&graph, &[signal.at(1), wait.at(1)])?;
    done.at(1).wait(patience())?;
    native.launch(&graph, &[wait.at(1), signal.at(2)])?;
    done.at(2).wait(patience())?;
    // The wait for it releases the graph, whose owner destroys it.
    drop(graph);
    queue.idle(patience())?;
    Ok(())
}

fn failed(world: &World<Equipped>) -> Verdict {
    let cause = || Error::work(std::io::Error::other("on purpose"));
    let [ready, one, two] = lines(world, ["ready", "one", "two"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let right = world.right_queue("right")?;
    let buffer = world.left.buffer(WORDS)?;
    let mut slotted = Slotted::begin(world, &native)?;
    slotted.set(&buffer, 1)?;
    let wait = slotted.wait(&ready)?;
    let signals = [slotted.signal(&one)?, slotted.signal(&two)?];
    let graph = slotted.end()?;
    let values = |n| [wait.at(n), signals[0].at(n), signals[1].at(n)];
    // While the launch is held, one of its timelines fails. The graph would signal it all the same.
    let launch = native.launch(&graph, &values(1))?;
    check!(launch.is_held(), "launched before its wait is pending");
    one.fail(cause());
    right.signal(&ready, 1)?;
    let ended = two.at(1).wait(patience());
    check!(
        matches!(&ended, Err(error) if !matches!(error, Error::TimedOut { .. })),
        "the other timeline of a launch that was refused is {ended:?}"
    );
    queue.idle(patience())?;
    check_eq!(Equipped::read(&buffer)[0], 0);
    // A launch after the failure.
    check_error!(native.launch(&graph, &values(2)), Failed);
    check_eq!(queue.held().count, 0);
    // The queue goes on.
    queue.submit(&[], filling::<Equipped>(&buffer, 7), &[])?;
    queue.idle(patience())?;
    check!(Equipped::read(&buffer)[0] == 7, "the queue did not go on");
    Ok(())
}
