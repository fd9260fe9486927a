//! F7: a device is lost, or a process forks, while it has graphs with slots.

use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::{Device, ErrorKind, QueueKind, Recorder};

use super::super::captures::{Stall, cuda_queue};
use super::super::processes::lost::in_time;
use super::super::sharing::lost::native_code;
use super::{Slotted, lines, pass_on};
use crate::case::{Stop, Verdict, check, check_error, end_process, equipped_cases};
use crate::cases::{WORDS, filling};
use crate::forked::in_child;
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

equipped_cases! {
    "slot.lost_in_the_middle": [F7 E3 E2] => lost;
    "slot.a_forked_child_drops_its_graph": [F7 P3 D1] => forked;
}

/// The device is lost while a launch stands behind its first signal. Another launch is held.
///
/// The first signal was made, and stays reached. All other signals of both launches fail.
fn lost(world: &World<Equipped>) -> Verdict {
    let left = world.left.subject();
    let [ready, half, whole, answer, after] =
        lines(world, ["ready", "half", "whole", "answer", "after"])?;
    end_process();
    let (queue, native) = cuda_queue(world, "captured")?;
    let (second, other) = cuda_queue(world, "held")?;
    let (right, waiting) = (world.right_queue("right")?, world.right_queue("waiting")?);
    let stall = Stall::released();
    let mut slotted = Slotted::begin(world, &native)?;
    let wait = slotted.wait(&ready)?;
    let middle = slotted.signal(&half)?;
    slotted.stall(&stall)?;
    let end = slotted.signal(&whole)?;
    let graph = slotted.end()?;
    let values = |n| [wait.at(n), middle.at(n), end.at(n)];
    stall.hold();
    right.signal(&ready, 1)?;
    native.launch(&graph, &values(1))?;
    pass_on(&right, &half, 1, &answer, 1)?;
    answer.at(1).wait(patience())?;
    let held = other.launch(&graph, &values(2))?;
    check!(held.is_held(), "launched before its wait is pending");
    pass_on(&waiting, &whole, 1, &after, 1)?;

    let loss = left.loss()?;
    let losing = world.left.library().queue(QueueKind::Compute, "losing")?;
    let (subject, blocks) = (left.clone(), loss.clone());
    let blocked = move |recorder: &mut Recorder<'_>| subject.block_until_lost(recorder, &blocks);
    losing.submit(&[], blocked, &[])?;
    left.lose(&loss)?;
    let lost = Instant::now();
    let mut codes = Vec::new();
    for point in [whole.at(1), half.at(2), whole.at(2), after.at(1)] {
        codes.push(native_code(&point, point.wait(patience()))?);
    }
    in_time(lost)?;
    check!(
        codes.iter().all(|code| *code == codes[0]),
        "the causes are {codes:?}"
    );
    native_code(&"the held launch", held.wait_submitted(patience()))?;
    if world.is_pair() {
        // The right device has the wait for the end of the graph, and goes on.
        waiting.idle(patience())?;
        in_time(lost)?;
    }
    answer.at(1).wait(Duration::ZERO)?;
    let launch = native.launch(&graph, &values(3)).map(drop);
    native_code(&"a further launch", launch)?;
    stall.release();
    drop((graph, queue, second));
    Ok(())
}

/// A child drops the last handles of graphs, while a launch of its parent is held.
///
/// A launch by the child is refused. Its parent goes on.
fn forked(world: &World<Equipped>) -> Verdict {
    let [ready, done] = lines(world, ["ready", "done"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let right = world.right_queue("right")?;
    let buffer = world.left.buffer(WORDS)?;
    let capture = || {
        let mut slotted = Slotted::begin(world, &native)?;
        slotted.set(&buffer, 1)?;
        let slots = (slotted.wait(&ready)?, slotted.signal(&done)?);
        Ok::<_, Stop>((slotted.end()?, slots))
    };
    let (graph, (wait, signal)) = capture()?;
    let idle = capture()?.0;
    let Device::Cuda(device) = world.left.library() else {
        return Stop::skip("only CUDA captures work into graphs");
    };
    let empty = device.graph_slots("empty");
    let launch = native.launch(&graph, &[wait.at(1), signal.at(1)])?;
    check!(launch.is_held(), "launched before its wait is pending");
    let mut copies = Some((idle, empty));
    in_child(|| {
        match native.launch(&graph, &[wait.at(2), signal.at(2)]) {
            Err(error) if error.kind() == ErrorKind::MadeBeforeFork => {}
            other => return Err(format!("a launch by the child: {other:?}")),
        }
        // A driver in software ends the child if this reaches it.
        drop(copies.take());
        Ok(())
    })?;
    right.signal(&ready, 1)?;
    done.at(1).wait(patience())?;
    let (idle, _) = copies
        .as_ref()
        .ok_or_else(|| Stop::Failed("no graph".into()))?;
    check_error!(
        native.launch(idle, &[wait.at(1), signal.at(2)]),
        Unsupported
    );
    queue.submit(&[], filling::<Equipped>(&buffer, 0), &[])?;
    native.launch(&graph, &[wait.at(1), signal.at(2)])?;
    done.at(2).wait(patience())?;
    queue.idle(patience())?;
    check!(Equipped::read(&buffer)[0] == 1, "the graph did not run");
    Ok(())
}
