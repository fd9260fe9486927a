//! F7: launches of one graph: many, in flight together, held, traced, and beside other code.

#![allow(unsafe_code, reason = "changes nodes of graphs, as other code does")]

use std::sync::Barrier;
use std::thread;

use syncline::Error;
use syncline::clock::HostClock;
use syncline::cuda::{self, sys};

use super::super::captures::{Stall, cuda_queue, done};
use super::{Owned, SHORT, Slotted, Timeline, lines, pass_on};
use crate::blocked::join;
use crate::case::{Stop, Verdict, check, check_eq, check_error, equipped_cases};
use crate::cases::WORDS;
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

equipped_cases! {
    "slot.a_thousand_launches": [F7 T3] => thousand;
    "slot.two_launches_in_flight": [F7] => two_in_flight;
    "slot.held_until_its_waits_may_go": [F7 Q2] => held;
    "slot.a_held_launch_keeps_its_values": [F7 Q2] => keeps_values;
    "slot.two_threads_launch_one_graph": [F7 Q2] => two_threads;
    "slot.changed_by_other_code": [F7] => changed;
    "slot.launched_while_traced": [F7] => traced;
}

/// Each launch waits for the other side's answer to the one before, and the other side for it.
fn thousand(world: &World<Equipped>) -> Verdict {
    const LAUNCHES: u64 = 1000;
    let [asked, answered] = lines(world, ["asked", "answered"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let right = world.right_queue("right")?;
    let buffer = world.left.buffer(WORDS)?;
    let mut slotted = Slotted::begin(world, &native)?;
    slotted.set(&buffer, 1)?;
    let wait = slotted.wait(&answered)?;
    slotted.set(&buffer, 2)?;
    let signal = slotted.signal(&asked)?;
    slotted.set(&buffer, 3)?;
    let graph = slotted.end()?;
    for launch in 1..=LAUNCHES {
        native.launch(&graph, &[signal.at(2 * launch), wait.at(2 * launch - 2)])?;
        pass_on(&right, &asked, 2 * launch, &answered, 2 * launch)?;
    }
    answered.at(2 * LAUNCHES).wait(patience())?;
    queue.idle(patience())?;
    check!(
        asked.value()? == 2 * LAUNCHES && answered.value()? == 2 * LAUNCHES,
        "after {LAUNCHES} launches the values are {} and {}",
        asked.value()?,
        answered.value()?
    );
    check_eq!(Equipped::read(&buffer)[0], 3);
    Ok(())
}

/// The values of a later launch do not reach one that is in flight.
fn two_in_flight(world: &World<Equipped>) -> Verdict {
    let [line, first, second] = lines(world, ["line", "first", "second"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let (right, other) = (world.right_queue("right")?, world.right_queue("other")?);
    let (start, end) = (Stall::released(), Stall::released());
    let mut slotted = Slotted::begin(world, &native)?;
    slotted.stall(&start)?;
    let signal = slotted.signal(&line)?;
    slotted.stall(&end)?;
    let graph = slotted.end()?;
    for round in 1..=3 {
        start.hold();
        end.hold();
        let (odd, even) = (2 * round - 1, 2 * round);
        native.launch(&graph, &[signal.at(odd)])?;
        native.launch(&graph, &[signal.at(even)])?;
        check!(queue.held().count == 0, "the launches are not in flight");
        pass_on(&right, &line, odd, &first, round)?;
        pass_on(&other, &line, even, &second, round)?;
        check_error!(first.at(round).wait(SHORT), TimedOut);
        start.release();
        first.at(round).wait(patience())?;
        let early = second.at(round).wait(SHORT);
        check!(
            matches!(early, Err(Error::TimedOut { .. })),
            "the first launch signalled the value of the second: {early:?}"
        );
        end.release();
        second.at(round).wait(patience())?;
        queue.idle(patience())?;
    }
    Ok(())
}

fn held(world: &World<Equipped>) -> Verdict {
    let [ready, done] = lines(world, ["ready", "done"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let (right, behind) = (world.right_queue("right")?, world.right_queue("behind")?);
    let buffer = world.left.buffer(WORDS)?;
    let mut slotted = Slotted::begin(world, &native)?;
    slotted.set(&buffer, 1)?;
    let wait = slotted.wait(&ready)?;
    let signal = slotted.signal(&done)?;
    let graph = slotted.end()?;
    let launch = native.launch(&graph, &[wait.at(1), signal.at(1)])?;
    check!(launch.is_held(), "launched before its wait is pending");
    check!(!done.at(1).is_pending()?);
    let follows = behind.submit_empty(&[done.at(1)], &[])?;
    check!(follows.is_held(), "went to its driver before the launch");
    // The value belongs to the launch.
    check_error!(right.signal(&done, 1), SignalOverlapsClaim);
    check_eq!(Equipped::read(&buffer)[0], 0);
    right.signal(&ready, 1)?;
    done.at(1).wait(patience())?;
    behind.idle(patience())?;
    queue.idle(patience())?;
    check_eq!(Equipped::read(&buffer)[0], 1);
    Ok(())
}

/// One queue holds a launch, while another queue launches the graph with other values.
fn keeps_values(world: &World<Equipped>) -> Verdict {
    let [ready, line] = lines(world, ["ready", "line"])?;
    let ((first, holding), (second, passing)) =
        (cuda_queue(world, "holding")?, cuda_queue(world, "passing")?);
    let right = world.right_queue("right")?;
    let mut slotted = Slotted::begin(world, &holding)?;
    let wait = slotted.wait(&ready)?;
    let own = slotted.wait(&line)?;
    let signal = slotted.signal(&line)?;
    let graph = slotted.end()?;
    for round in 0..3 {
        let (start, odd, even) = (2 * round, 2 * round + 1, 2 * round + 2);
        // Its own wait leaves the value below to the other launch.
        let values = [wait.at(round + 1), own.at(odd), signal.at(even)];
        let held = holding.launch(&graph, &values)?;
        check!(held.is_held(), "launched before its wait is pending");
        let values = [wait.at(round), own.at(start), signal.at(odd)];
        let passed = passing.launch(&graph, &values)?;
        check!(!passed.is_held());
        line.at(odd).wait(patience())?;
        second.idle(patience())?;
        check!(
            line.value()? == odd && first.held().count == 1,
            "the held launch has made its signal: the value is {}",
            line.value()?
        );
        right.signal(&ready, round + 1)?;
        let released = line.at(even).wait(patience());
        check!(released.is_ok());
        first.idle(patience())?;
    }
    Ok(())
}

/// Two threads launch one graph on two queues, with other values. A third queue holds a launch.
///
/// The launches of one thread wait for a value that is reached. That of the other waits for one
/// that is pending, and stands still. CUDA executes one launch of a graph after the other.
fn two_threads(world: &World<Equipped>) -> Verdict {
    const ROUNDS: u64 = 20;
    const LAUNCHES: usize = 6;
    let [gate, ready] = lines(world, ["gate", "ready"])?;
    let ((going, goes), (waiting, waits), (holding, holds)) = (
        cuda_queue(world, "going")?,
        cuda_queue(world, "waiting")?,
        cuda_queue(world, "holding")?,
    );
    let (blocked, right) = (world.left_queue("blocked")?, world.right_queue("right")?);
    let mut slotted = Slotted::begin(world, &goes)?;
    let wait = slotted.wait(&ready)?;
    let graph = slotted.end()?;
    let held = holds.launch(&graph, &[wait.at(ROUNDS + 1)])?;
    check!(held.is_held(), "launched before its wait is pending");
    for round in 0..ROUNDS {
        let stall = world.left.stall()?;
        blocked.block(&stall)?;
        blocked.signal(&gate, round + 1)?;
        pass_on(&right, &gate, round + 1, &ready, round + 1)?;
        let start = Barrier::new(2);
        let launch = |native: &cuda::Queue, value, count| -> syncline::Result<()> {
            start.wait();
            (0..count).try_for_each(|_| native.launch(&graph, &[wait.at(value)]).map(drop))
        };
        let (launched, other) = thread::scope(|scope| {
            let other = scope.spawn(|| launch(&waits, round + 1, 1));
            let launched = launch(&goes, round, LAUNCHES);
            (launched, join(other))
        });
        launched?;
        other??;
        let early = waiting.idle(SHORT);
        check!(
            matches!(early, Err(Error::TimedOut { .. })),
            "round {round}: a launch waited for the value of another thread's launch: {early:?}"
        );
        stall.release()?;
        for queue in [&waiting, &going, &blocked] {
            queue.idle(patience())?;
        }
        check!(holding.held().count == 1, "the held launch has gone");
    }
    right.signal(&ready, ROUNDS + 1)?;
    holding.idle(patience())?;
    Ok(())
}

/// Other code changes the parameters of a slot between two launches.
fn changed(world: &World<Equipped>) -> Verdict {
    let [line, seen] = lines(world, ["line", "seen"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let right = world.right_queue("right")?;
    let mut slotted = Slotted::begin(world, &native)?;
    let signal = slotted.signal(&line)?;
    let (graph, executable) = slotted.capture.end_raw()?;
    let owner = std::sync::Arc::new(Owned(graph, executable));
    let node = only_node(graph)?;
    // SAFETY: the owner keeps both.
    let adopted = unsafe { slotted.slots.adopt(graph, executable, Some(owner)) }?;
    for value in 1..=3 {
        spoil(world, &line, executable, node, 100)?;
        native.launch(&adopted, &[signal.at(value)])?;
        pass_on(&right, &line, value, &seen, value)?;
        seen.at(value).wait(patience())?;
        line.at(value).wait(patience())?;
        check_eq!(line.value()?, value);
        queue.idle(patience())?;
    }
    Ok(())
}

fn only_node(graph: sys::CUgraph) -> Result<sys::CUgraphNode, Stop> {
    let (mut node, mut count) = (std::ptr::null_mut(), 1);
    // SAFETY: writes at most one node.
    done("cuGraphGetNodes", unsafe {
        sys::cuGraphGetNodes(graph, &raw mut node, &raw mut count)
    })?;
    check!(count == 1, "a slot is {count} nodes");
    Ok(node)
}

/// Sets another value, or another event, for the node of a slot.
fn spoil(
    world: &World<Equipped>,
    line: &Timeline,
    executable: sys::CUgraphExec,
    node: sys::CUgraphNode,
    value: u64,
) -> Verdict {
    let device = world.left.id();
    if line
        .library()
        .port::<syncline_cuda::CounterPort>(device)
        .is_some()
    {
        return Stop::skip("the parameters of words differ between versions of cudarc");
    }
    let Some(port) = line.library().port::<syncline_cuda::ExternalPort>(device) else {
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one event, which stays. The node is the graph's.
        unsafe {
            done("cuEventCreate", sys::cuEventCreate(&raw mut event, 2))?;
            let set = sys::cuGraphExecEventRecordNodeSetEvent(executable, node, event);
            return done("cuGraphExecEventRecordNodeSetEvent", set);
        }
    };
    let mut semaphore = port.raw();
    // SAFETY: integers, pointers and unions of them, for which zeroes are valid.
    let mut params: sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS = unsafe { std::mem::zeroed() };
    params.params.fence.value = value;
    let params = sys::CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
        extSemArray: &raw mut semaphore,
        paramsArray: &raw const params,
        numExtSems: 1,
    };
    // SAFETY: the node is the graph's. The driver copies the parameters during the call.
    let set = unsafe {
        sys::cuGraphExecExternalSemaphoresSignalNodeSetParams(executable, node, &raw const params)
    };
    done("cuGraphExecExternalSemaphoresSignalNodeSetParams", set)
}

/// A trace puts a time before the launch and one after it.
fn traced(world: &World<Equipped>) -> Verdict {
    const LAUNCHES: u64 = 4;
    let [ready, done] = lines(world, ["ready", "done"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let right = world.right_queue("right")?;
    let stall = Stall::released();
    let mut slotted = Slotted::begin(world, &native)?;
    let wait = slotted.wait(&ready)?;
    slotted.stall(&stall)?;
    let signal = slotted.signal(&done)?;
    let graph = slotted.end()?;
    let trace = syncline::trace::Trace::new();
    trace.follow(queue.library())?;
    let mut released = Vec::new();
    for value in 1..=LAUNCHES {
        stall.hold();
        // Every other launch is held first.
        let is_held = value % 2 == 0;
        if !is_held {
            right.signal(&ready, value)?;
        }
        let launch = native.launch(&graph, &[wait.at(value), signal.at(value)])?;
        check_eq!(launch.is_held(), is_held, "value {value}");
        if is_held {
            right.signal(&ready, value)?;
        }
        launch.wait_submitted(patience())?;
        released.push(HostClock::Monotonic.now());
        stall.release();
        done.at(value).wait(patience())?;
    }
    queue.idle(patience())?;
    let recorded = trace.finish(patience());
    let [track] = recorded.tracks.as_slice() else {
        return Stop::fail(format!("the trace has {} tracks", recorded.tracks.len()));
    };
    check_eq!(track.submissions.len(), released.len());
    for (launch, released) in track.submissions.iter().zip(released) {
        let (Some(began), Some(ended)) = (launch.began, launch.ended) else {
            check!(track.untimed.is_some(), "launch {launch:?}");
            continue;
        };
        let latest = ended.nanoseconds.saturating_add_unsigned(ended.error);
        check!(
            began.nanoseconds <= ended.nanoseconds && latest >= released,
            "a launch that went on at {released} has other times: {launch:?}"
        );
    }
    Ok(())
}
