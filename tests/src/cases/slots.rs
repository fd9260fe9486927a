//! F7: slots of captured graphs, which wait for timelines and signal them at each launch.
//!
//! On a pair the timelines are semaphores or counters that both devices have. On one device they
//! are rings of events, and the other side is another queue.

#![allow(unsafe_code, reason = "adopts captured graphs, as an application does")]

use std::time::{Duration, Instant};

use syncline::cuda::{self, Graph, GraphSlots, Slot, sys};
use syncline::{Buffer, Device, Error, Mechanism};

use super::captures::{Capture, Stall, cuda_queue, done, set};
use super::{WORDS, filling, sharing};
use crate::case::{Case, Stop, Verdict, check, check_error};
use crate::user::{Queue, Timeline};
use crate::workload::Equipped;
use crate::{Subject as _, World, patience};

/// The cases of this family. They need a CUDA device on the left.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    let case = |id, rules, run| Case { id, rules, run };
    vec![
        case(
            "slot.others_begin_in_the_middle",
            &["F7", "Q2"],
            begin_in_the_middle,
        ),
        case(
            "slot.waits_in_the_middle",
            &["F7", "Q1"],
            waits_in_the_middle,
        ),
        case("slot.a_thousand_launches", &["F7", "T3"], thousand),
        case("slot.two_launches_in_flight", &["F7"], two_in_flight),
        case("slot.held_until_its_waits_may_go", &["F7", "Q2"], held),
        case("slot.own_signal_is_a_circle", &["F7", "Q4"], circle),
        case("slot.predecessor_comes_first", &["F7", "T3"], predecessor),
        case(
            "slot.own_wait_comes_before_the_signal",
            &["F7", "T3"],
            own_wait,
        ),
        case(
            "slot.wrong_captures_are_refused",
            &["F7", "E5"],
            wrong_captures,
        ),
        case(
            "slot.wrong_launches_claim_nothing",
            &["F7", "E5", "Q5"],
            wrong_launches,
        ),
        case("slot.failed_timelines", &["F7", "E1", "Q5"], failed),
        case("slot.changed_by_other_code", &["F7"], changed),
        case("slot.launched_while_traced", &["F7"], traced),
        case("slot.words_of_the_application", &["F7", "X10", "T7"], words),
    ]
}

/// A wait that must time out.
const SHORT: Duration = Duration::from_millis(20);

type Line = Timeline<Equipped>;

/// Makes timelines that queues of both sides signal and wait for natively.
fn lines<const N: usize>(world: &World<Equipped>, labels: [&str; N]) -> Result<[Line; N], Stop> {
    if !matches!(world.left.library(), Device::Cuda(_)) {
        return Stop::skip("only CUDA captures work into graphs");
    }
    let mut lines = Vec::new();
    if world.is_pair() {
        let link = sharing::linked(world.left.library(), world.right.library());
        // Host queues have no port of a counter, and act on values at the end of a launch.
        let is_native = match link.mechanism() {
            Mechanism::ExternalTimeline => true,
            Mechanism::SharedMemory => matches!(world.right.library(), Device::Cuda(_)),
            _ => false,
        };
        if !is_native {
            return Stop::skip("queues of the two do not wait for one timeline natively");
        }
        for label in labels {
            lines.push(world.left.own(link.timeline(label)?));
        }
    } else {
        for label in labels {
            lines.push(world.left.timeline(label)?);
        }
    }
    lines
        .try_into()
        .map_err(|_| Stop::Failed("not as many timelines as labels".into()))
}

/// A graph and its executable form, which the drop destroys.
struct Owned(sys::CUgraph, sys::CUgraphExec);

// SAFETY: any thread may destroy graphs. The library launches from one thread at a time.
unsafe impl Send for Owned {}

// SAFETY: the same.
unsafe impl Sync for Owned {}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: kept until all launches have finished.
        unsafe {
            let _ = sys::cuGraphExecDestroy(self.1);
            let _ = sys::cuGraphDestroy(self.0);
        }
    }
}

/// A capture with its slots.
struct Slotted<'q> {
    capture: Capture<'q>,
    slots: GraphSlots,
    queue: &'q cuda::Queue,
}

impl<'q> Slotted<'q> {
    fn begin(world: &World<Equipped>, queue: &'q cuda::Queue) -> Result<Self, Stop> {
        let Device::Cuda(device) = world.left.library() else {
            return Stop::skip("only CUDA captures work into graphs");
        };
        Ok(Self {
            slots: device.graph_slots("frame"),
            capture: Capture::begin(queue)?,
            queue,
        })
    }

    fn wait(&mut self, line: &Line) -> syncline::Result<Slot> {
        self.slots.wait(self.queue, line.library().at(0))
    }

    fn signal(&mut self, line: &Line) -> syncline::Result<Slot> {
        self.slots.signal(self.queue, line.library())
    }

    fn set(&self, buffer: &Buffer, value: u32) -> Verdict {
        set(self.capture.stream, buffer, value)
    }

    fn stall(&self, stall: &Stall) -> Verdict {
        stall.put_into(self.capture.stream)
    }

    fn end(self) -> Result<Graph, Stop> {
        let (graph, executable) = self.capture.end_raw()?;
        let owner = std::sync::Arc::new(Owned(graph, executable));
        // SAFETY: the owner keeps both. Buffers and stalls outlive the case's waits.
        Ok(unsafe { self.slots.adopt(graph, executable, Some(owner)) }?)
    }
}

/// Waits until the first word of `buffer`, which the host can see, is `value`.
fn shows_value(buffer: &Buffer, value: u32, what: &str) -> Verdict {
    let start = Instant::now();
    while Equipped::read(buffer)[0] != value {
        check!(
            start.elapsed() < patience(),
            "{what}: the word is {} and not {value}",
            Equipped::read(buffer)[0]
        );
        std::thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

/// Submits work of the other side that waits for `from` and signals `to`.
fn pass_on(
    queue: &Queue<Equipped>,
    from: &Line,
    at: u64,
    to: &Line,
    value: u64,
) -> syncline::Result<()> {
    let waits = [from.at(at)];
    queue
        .submit(&waits, |_| Ok(()), &[to.signal_at(value)])
        .map(drop)
}

fn begin_in_the_middle(world: &World<Equipped>) -> Verdict {
    let [half, whole, answer, never] = lines(world, ["half", "whole", "answer", "never"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let (right, other) = (world.right_queue("right")?, world.right_queue("other")?);
    let (before, after) = (world.left.buffer(WORDS)?, world.left.buffer(WORDS)?);
    let stall = Stall::released();
    let mut slotted = Slotted::begin(world, &native)?;
    slotted.set(&before, 1)?;
    let middle = slotted.signal(&half)?;
    slotted.stall(&stall)?;
    slotted.set(&after, 2)?;
    let end = slotted.signal(&whole)?;
    let graph = slotted.end()?;
    for round in 1..=3 {
        stall.hold();
        native.launch(&graph, &[middle.at(round), end.at(round)])?;
        check!(
            half.at(round).is_pending()? && whole.at(round).is_pending()?,
            "the signals of a launch are not pending"
        );
        pass_on(&right, &half, round, &answer, round)?;
        pass_on(&other, &whole, round, &never, round)?;
        // The graph has not ended, and cannot.
        let begun = answer.at(round).wait(patience());
        check!(
            begun.is_ok(),
            "the other side did not begin in the middle of the graph: {begun:?}"
        );
        check!(
            Equipped::read(&before)[0] == 1,
            "the other side began before the work in front of the signal"
        );
        // The control: what waits for the end of the graph has not begun.
        check_error!(never.at(round).wait(SHORT), Error::TimedOut { .. });
        check_error!(
            queue.position().wait(Duration::ZERO),
            Error::TimedOut { .. }
        );
        stall.release();
        never.at(round).wait(patience())?;
        half.at(round).wait(patience())?;
        whole.at(round).wait(patience())?;
        check!(
            Equipped::read(&after)[0] == 2,
            "the signal at the end came before the work in front of it"
        );
        queue.idle(patience())?;
    }
    Ok(())
}

/// A launch begins although the value that it waits for in the middle is only pending.
fn waits_in_the_middle(world: &World<Equipped>) -> Verdict {
    let [gate, ready] = lines(world, ["gate", "ready"])?;
    let (queue, native) = cuda_queue(world, "captured")?;
    let (blocked, right) = (world.left_queue("blocked")?, world.right_queue("right")?);
    let (early, late) = (world.left.buffer(WORDS)?, world.left.buffer(WORDS)?);
    let mut slotted = Slotted::begin(world, &native)?;
    slotted.set(&early, 1)?;
    let wait = slotted.wait(&ready)?;
    slotted.set(&late, 2)?;
    let graph = slotted.end()?;
    for round in 1..=3 {
        for buffer in [&early, &late] {
            queue.submit(&[], filling::<Equipped>(buffer, 0), &[])?;
        }
        queue.idle(patience())?;
        let stall = world.left.stall()?;
        blocked.block(&stall)?;
        blocked.submit(&[], |_| Ok(()), &[gate.signal_at(round)])?;
        pass_on(&right, &gate, round, &ready, round)?;
        let launch = native.launch(&graph, &[wait.at(round)])?;
        check!(!launch.is_held(), "held, although its wait is pending");
        shows_value(&early, 1, "the graph did not begin before its wait")?;
        let end = queue.position().wait(SHORT);
        check!(
            matches!(end, Err(Error::TimedOut { .. })) && Equipped::read(&late)[0] == 0,
            "the graph did not wait in the middle: {end:?}"
        );
        stall.release()?;
        queue.idle(patience())?;
        check!(Equipped::read(&late)[0] == 2, "the graph did not go on");
        // A value that is reached needs no wait.
        native.launch(&graph, &[wait.at(round)])?;
        queue.idle(patience())?;
        blocked.idle(patience())?;
        right.idle(patience())?;
    }
    Ok(())
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
    check!(
        Equipped::read(&buffer)[0] == 3,
        "the last launch did not end"
    );
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
        check_error!(first.at(round).wait(SHORT), Error::TimedOut { .. });
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
    check!(
        !done.at(1).is_pending()?,
        "the signal of a held launch is pending"
    );
    let follows = behind.submit(&[done.at(1)], |_| Ok(()), &[])?;
    check!(follows.is_held(), "went to its driver before the launch");
    // The value belongs to the launch.
    check_error!(
        right.submit(&[], |_| Ok(()), &[done.signal_at(1)]),
        Error::SignalOverlapsClaim { .. }
    );
    check!(
        Equipped::read(&buffer)[0] == 0,
        "a held launch has already begun"
    );
    right.submit(&[], |_| Ok(()), &[ready.signal_at(1)])?;
    done.at(1).wait(patience())?;
    behind.idle(patience())?;
    queue.idle(patience())?;
    check!(
        Equipped::read(&buffer)[0] == 1,
        "the launch did not take place"
    );
    Ok(())
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
    check_error!(
        native.launch(&graph, &[signal.at(1), wait.at(1)]),
        Error::Circular { .. }
    );
    check!(
        queue.held().count == 0 && queue.position().value() == 0,
        "a refused launch left something behind"
    );
    // Nothing is claimed: another submission signals the value.
    queue.submit(&[], |_| Ok(()), &[asked.signal_at(1)])?;
    answered.at(1).wait(patience())?;
    // The launch first: the answer closes the circle.
    let launch = native.launch(&graph, &[signal.at(2), wait.at(2)])?;
    check!(launch.is_held(), "launched before its wait is pending");
    check_error!(
        pass_on(&right, &asked, 2, &answered, 2),
        Error::Circular { .. }
    );
    right.submit(&[], |_| Ok(()), &[answered.signal_at(2)])?;
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
    blocked.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
    native.launch(&graph, &[signal.at(2)])?;
    check!(line.at(2).is_pending()?, "held, although all is pending");
    check_error!(line.at(2).wait(SHORT), Error::TimedOut { .. });
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
    blocked.submit(&[], |_| Ok(()), &[line.signal_at(1)])?;
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
        Error::SignalBehindOwnWait { .. }
    );
    queue.idle(patience())?;
    blocked.idle(patience())?;
    Ok(())
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
    check_error!(
        slots.signal(&other, line.library()),
        Error::Unsupported { .. }
    );
    check_error!(
        slots.wait(&other, line.library().at(0)),
        Error::Unsupported { .. }
    );
    let mut slotted = Slotted::begin(world, &native)?;
    // No port here, no timeline at all, a time for each signal, another capture.
    check_error!(
        slotted.slots.signal(&native, &host),
        Error::Unsupported { .. }
    );
    check_error!(
        slotted.slots.wait(&native, host.at(1)),
        Error::Unsupported { .. }
    );
    check_error!(
        slotted.slots.wait(&native, syncline::Point::EMPTY),
        Error::Unsupported { .. }
    );
    if let Ok(clocked) = world.left.clocked_timeline("clocked") {
        check_error!(slotted.signal(&clocked), Error::Unsupported { .. });
    }
    check_error!(
        slotted.slots.signal(&other, line.library()),
        Error::Unsupported { .. }
    );
    let signal = slotted.signal(&line)?;
    check_error!(slotted.signal(&line), Error::Unsupported { .. });
    {
        let second = Capture::begin(&other)?;
        check_error!(
            slotted.slots.wait(&other, line.library().at(0)),
            Error::Unsupported { .. }
        );
        let (graph, executable) = second.end_raw()?;
        // SAFETY: nothing uses them.
        unsafe {
            done("cuGraphExecDestroy", sys::cuGraphExecDestroy(executable))?;
            done("cuGraphDestroy", sys::cuGraphDestroy(graph))?;
        }
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
        check_error!(adopted, Error::Unsupported { .. });
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
    right.submit(&[], |_| Ok(()), &[ready.signal_at(1)])?;
    for values in [
        &[][..],
        &[wait.at(1)][..],
        &[signal.at(1)][..],
        &[wait.at(1), signal.at(1), wait.at(1)][..],
        &[wait.at(1), signal.at(1), signal.at(2)][..],
        &[wait.at(1), signal.at(1), foreign.at(2)][..],
        &[wait.at(1), foreign.at(2)][..],
    ] {
        check_error!(native.launch(&graph, values), Error::Unsupported { .. });
    }
    check_error!(
        native.launch(&graph, &[wait.at(1), signal.at(u64::MAX)]),
        Error::ValueOutOfRange { .. }
    );
    check_error!(
        native.launch(&graph, &[wait.at(u64::MAX), signal.at(1)]),
        Error::ValueOutOfRange { .. }
    );
    check_error!(
        native.launch(&graph, &[wait.at(1), signal.at(0)]),
        Error::SignalNotAboveReached { .. }
    );
    let capture = Capture::begin(&native)?;
    check_error!(
        native.launch(&graph, &[wait.at(1), signal.at(1)]),
        Error::Capturing { .. }
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
    right.submit(&[], |_| Ok(()), &[ready.signal_at(1)])?;
    let ended = two.at(1).wait(patience());
    check!(
        matches!(&ended, Err(error) if !matches!(error, Error::TimedOut { .. })),
        "the other timeline of a launch that was refused is {ended:?}"
    );
    queue.idle(patience())?;
    check!(
        Equipped::read(&buffer)[0] == 0,
        "the graph ran although it could not make its signals"
    );
    // A launch after the failure.
    check_error!(native.launch(&graph, &values(2)), Error::Failed { .. });
    check!(
        queue.held().count == 0,
        "a refused launch left something behind"
    );
    // The queue goes on.
    queue.submit(&[], filling::<Equipped>(&buffer, 7), &[])?;
    queue.idle(patience())?;
    check!(Equipped::read(&buffer)[0] == 7, "the queue did not go on");
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
        check!(
            line.value()? == value,
            "{} instead of {value}",
            line.value()?
        );
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
    line: &Line,
    executable: sys::CUgraphExec,
    node: sys::CUgraphNode,
    value: u64,
) -> Verdict {
    let device = world.left.id();
    if line.library().port::<cuda::CounterPort>(device).is_some() {
        return Stop::skip("the parameters of words differ between versions of cudarc");
    }
    let Some(port) = line.library().port::<cuda::ExternalPort>(device) else {
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
    let mut slotted = Slotted::begin(world, &native)?;
    let wait = slotted.wait(&ready)?;
    let signal = slotted.signal(&done)?;
    let graph = slotted.end()?;
    let trace = syncline::trace::Trace::new();
    trace.follow(queue.library())?;
    for value in 1..=LAUNCHES {
        // Every other launch is held first.
        let is_held = value % 2 == 0;
        if !is_held {
            right.submit(&[], |_| Ok(()), &[ready.signal_at(value)])?;
        }
        let launch = native.launch(&graph, &[wait.at(value), signal.at(value)])?;
        check!(
            launch.is_held() == is_held,
            "launch {value} is held: {}",
            launch.is_held()
        );
        if is_held {
            right.submit(&[], |_| Ok(()), &[ready.signal_at(value)])?;
        }
        done.at(value).wait(patience())?;
    }
    queue.idle(patience())?;
    let recorded = trace.finish(patience());
    let tracks = recorded.tracks.iter();
    let count: usize = tracks.map(|track| track.submissions.len()).sum();
    check!(
        count == LAUNCHES as usize,
        "the trace has {count} of {LAUNCHES} launches"
    );
    Ok(())
}

/// Slots of words of 64 and of 32 bits, which wrap, in memory that the host can read and cannot.
fn words(world: &World<Equipped>) -> Verdict {
    const START: u64 = 0x3_ffff_fffe;
    /// The largest step of a word of 32 bits.
    const STEP: u64 = (1 << 31) - 1;
    let (Device::Cuda(device), false) = (world.left.library(), world.is_pair()) else {
        return Stop::skip("only one CUDA device captures words of its memory");
    };
    if !world.left.info().capabilities.stream_memory_ops {
        return Stop::skip("the device's streams do not wait for memory");
    }
    let (queue, native) = cuda_queue(world, "captured")?;
    let (asking, seeing) = (world.left_queue("asking")?, world.left_queue("seeing")?);
    for (is_wide, on_host) in [(true, true), (false, true), (true, false), (false, false)] {
        let make = |label| -> Result<Line, Stop> {
            let memory = match on_host {
                true => device.host_buffer(8)?,
                false => device.buffer(8)?,
            };
            let high = if is_wide { (START >> 32) as u32 } else { 0 };
            memory.write_words(&[START as u32, high])?;
            let word = match is_wide {
                true => cuda::Word::Bits64(memory.pointer()),
                false => cuda::Word::Bits32(memory.pointer()),
            };
            let owner = std::sync::Arc::new(memory);
            // SAFETY: the owner keeps the memory, which only this timeline writes.
            let line = unsafe { device.adopt_word(word, START, Some(owner), label) }?;
            Ok(world.left.own(line))
        };
        let (asked, answered) = (make("asked")?, make("answered")?);
        let seen = world.left.timeline("seen")?;
        let stall = Stall::released();
        let mut slotted = Slotted::begin(world, &native)?;
        let wait = slotted.wait(&asked)?;
        let signal = slotted.signal(&answered)?;
        slotted.stall(&stall)?;
        let graph = slotted.end()?;
        stall.hold();
        let (first, second) = (START + 1, START + 2);
        let launch = native.launch(&graph, &[wait.at(first), signal.at(first)])?;
        check!(launch.is_held(), "launched before its wait is pending");
        asking.submit(&[], |_| Ok(()), &[asked.signal_at(first)])?;
        pass_on(&seeing, &answered, first, &seen, 1)?;
        let begun = seen.at(1).wait(patience());
        check!(
            begun.is_ok(),
            "the other queue did not begin in the middle of the graph: {begun:?}"
        );
        check_error!(
            queue.position().wait(Duration::ZERO),
            Error::TimedOut { .. }
        );
        stall.release();
        // So far past the value that a word of 32 bits seems to be before it.
        for value in [first + STEP, first + 2 * STEP] {
            asking.submit(&[], |_| Ok(()), &[asked.signal_at(value)])?;
            asked.at(value).wait(patience())?;
        }
        native.launch(&graph, &[wait.at(first), signal.at(second)])?;
        let ended = answered.at(second).wait(patience());
        check!(
            ended.is_ok(),
            "a slot waits for a value that was reached long ago: {ended:?}"
        );
        queue.idle(patience())?;
        for idle in [&asking, &seeing] {
            idle.idle(patience())?;
        }
    }
    Ok(())
}
