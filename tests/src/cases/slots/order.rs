//! F7: the order between the waits and the signals of a graph.

use syncline::Error;

use super::super::captures::cuda_queue;
use super::{SHORT, Slotted, lines, pass_on};
use crate::case::{Verdict, check, check_error, equipped_cases};
use crate::cases::WORDS;
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

equipped_cases! {
    "slot.own_signal_is_a_circle": [F7 Q4] => circle;
    "slot.predecessor_comes_first": [F7 T3] => predecessor;
    "slot.own_wait_comes_before_the_signal": [F7 T3] => own_wait;
}

/// The other side would answer the middle of the graph, and a later node waits for the answer.
fn circle(world: &World<Equipped>) -> Verdict {
    let [asked, answered] = lines(world, ["asked", "answered"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let right = world.right_queue("right")?;
    let mut slotted = Slotted::begin(world, &native)?;
    let signal = slotted.signal(&asked)?;
    let wait = slotted.wait(&answered)?;
    let graph = slotted.end()?;
    // The answer first: the launch closes the circle.
    pass_on(&right, &asked, 1, &answered, 1)?;
    check_error!(native.launch(&graph, &[signal.at(1), wait.at(1)]), Circular);
    check!(
        queue.held().count == 0 && queue.position().value() == 0,
        "a refused launch left something behind"
    );
    // Nothing is claimed: another submission signals the value.
    queue.signal(&asked, 1)?;
    answered.at(1).wait(patience())?;
    // The launch first: the answer closes the circle.
    let launch = native.launch(&graph, &[signal.at(2), wait.at(2)])?;
    check!(launch.is_held(), "launched before its wait is pending");
    check_error!(pass_on(&right, &asked, 2, &answered, 2), Circular);
    right.signal(&answered, 2)?;
    asked.at(2).wait(patience())?;
    queue.idle(patience())?;
    right.idle(patience())?;
    Ok(())
}

fn predecessor(world: &World<Equipped>) -> Verdict {
    let [line] = lines(world, ["line"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let blocked = world.left_queue("blocked")?;
    let buffer = world.left.buffer(WORDS)?;
    let mut slotted = Slotted::begin(world, &native)?;
    slotted.set(&buffer, 1)?;
    let signal = slotted.signal(&line)?;
    let graph = slotted.end()?;
    let stall = world.left.stall()?;
    blocked.block(&stall)?;
    blocked.signal(&line, 1)?;
    native.launch(&graph, &[signal.at(2)])?;
    check!(line.at(2).is_pending()?, "held, although all is pending");
    check_error!(line.at(2).wait(SHORT), TimedOut);
    check!(
        Equipped::read(&buffer)[0] == 0 && line.value()? == 0,
        "the launch did not wait for the signal before its own"
    );
    stall.release()?;
    line.at(2).wait(patience())?;
    queue.idle(patience())?;
    blocked.idle(patience())?;
    Ok(())
}

/// The node of the wait comes after that of the signal, and the values the other way round.
fn own_wait(world: &World<Equipped>) -> Verdict {
    let [line, seen] = lines(world, ["line", "seen"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let (blocked, right) = (world.left_queue("blocked")?, world.right_queue("right")?);
    let mut slotted = Slotted::begin(world, &native)?;
    let signal = slotted.signal(&line)?;
    let wait = slotted.wait(&line)?;
    let graph = slotted.end()?;
    let stall = world.left.stall()?;
    blocked.block(&stall)?;
    blocked.signal(&line, 1)?;
    native.launch(&graph, &[signal.at(2), wait.at(1)])?;
    pass_on(&right, &line, 2, &seen, 1)?;
    let early = seen.at(1).wait(SHORT);
    check!(
        matches!(early, Err(Error::TimedOut { .. })),
        "2 was signalled before 1: {early:?}"
    );
    stall.release()?;
    seen.at(1).wait(patience())?;
    line.at(2).wait(patience())?;
    check_error!(
        native.launch(&graph, &[signal.at(3), wait.at(3)]),
        SignalBehindOwnWait
    );
    queue.idle(patience())?;
    blocked.idle(patience())?;
    Ok(())
}
