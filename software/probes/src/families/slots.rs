//! Nodes of graphs whose values and events change from launch to launch.

use std::time::Instant;

use super::graph::capture;
use crate::cuda::{Handle, MemOp, MemoryNode, SemaphoreNode, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, NO_TIMING, Words, check, context, event, mark, marked, marked_early, name, names,
    outcome, park, record, stream, wait_op, within, write_op, yes,
};
use crate::vulkan::{Imported, NONE, Vulkan, params};

pub(crate) fn list() -> Vec<Probe> {
    family!["slot"; told, values, in_flight, wait_in_flight, middle, other_semaphore, wrong, graph_gone,
        events, event_in_flight, event_never_recorded, words,
        cost]
}

/// The nodes after which the next node of a captured stream comes.
fn nodes(stream: Handle) -> Result<Vec<Handle>, String> {
    let (mut status, mut id, mut graph, mut nodes, mut count) = (0, 0, 0, 0_usize, 0_usize);
    let (to, number) = (&raw mut nodes as usize, &raw mut count as usize);
    let code = cu().stream_get_capture_info(stream, &mut status, &mut id, &mut graph, to, number);
    check("cuStreamGetCaptureInfo", code)?;
    let first = nodes as *const Handle;
    // SAFETY: the driver has written where so many handles are.
    Ok((0..count)
        .map(|at| unsafe { first.add(at).read() })
        .collect())
}

fn node(stream: Handle) -> Result<Handle, String> {
    match nodes(stream)?[..] {
        [node] => Ok(node),
        ref other => Err(format!("{} nodes", other.len())),
    }
}

/// A device of Vulkan's, or the answer without one.
fn vulkan() -> Result<Result<Vulkan, String>, String> {
    match Vulkan::open() {
        Err(reason) if reason == NONE => Ok(Err(reason)),
        device => device.map(Ok),
    }
}

fn set_signal(exec: Handle, node: Handle, semaphore: &Imported, value: u64) -> u32 {
    set(semaphore.cuda, value, |params| {
        cu().graph_set_signal(exec, node, params)
    })
}

fn set_wait(exec: Handle, node: Handle, semaphore: &Imported, value: u64) -> u32 {
    set(semaphore.cuda, value, |params| {
        cu().graph_set_wait(exec, node, params)
    })
}

fn set(semaphore: Handle, value: u64, call: impl FnOnce(&SemaphoreNode) -> u32) -> u32 {
    let params = params(value);
    call(&SemaphoreNode {
        semaphores: &raw const semaphore,
        params: &raw const params,
        count: 1,
    })
}

/// Captures a signal between two parked places. Returns the node and the executable graph.
fn signal_between(semaphore: &Imported, words: Words) -> Result<(Handle, Handle), String> {
    let mut signal = 0;
    let (_, exec) = capture(|stream| {
        park(stream, words, 0)?;
        semaphore.signal(0, stream)?;
        signal = node(stream)?;
        park(stream, words, 1)
    })?;
    Ok((signal, exec))
}

/// What `cuStreamGetCaptureInfo` tells before and after each command.
fn told() -> Answer {
    context()?;
    let device = match vulkan()? {
        Err(none) => return Ok(none),
        Ok(device) => device,
    };
    let semaphore = device.imported_timeline()?;
    let (graph, _) = capture(|stream| {
        line("empty", nodes(stream)?.len());
        semaphore.wait(1, stream)?;
        let first = node(stream)?;
        semaphore.signal(2, stream)?;
        let second = node(stream)?;
        line("differ", yes(first != second));
        line("again", yes(node(stream)? == second));
        let (mut kind, mut other) = (99, 99);
        let codes = [
            cu().graph_node_get_type(first, &mut kind),
            cu().graph_node_get_type(second, &mut other),
        ];
        line("kinds", format!("{} {kind} {other}", names(&codes)));
        Ok(())
    })?;
    line("after", super::capture::kinds(graph));
    Ok(String::new())
}

fn values() -> Answer {
    context()?;
    let device = match vulkan()? {
        Err(none) => return Ok(none),
        Ok(device) => device,
    };
    let (semaphore, stream, mut signal) = (device.imported_timeline()?, stream()?, 0);
    let (_, exec) = capture(|stream| {
        semaphore.signal(0, stream)?;
        signal = node(stream)?;
        Ok(())
    })?;
    for value in [3, 4, 1000, 1 << 40] {
        let codes = [
            set_signal(exec, signal, &semaphore, value),
            cu().graph_launch(exec, stream),
            outcome(stream),
        ];
        let seen = device.value(semaphore.vulkan())?;
        line(value, format!("{} {seen}", names(&codes)));
    }
    Ok(String::new())
}

/// Whether a change reaches a launch that is in flight.
fn in_flight() -> Answer {
    context()?;
    let device = match vulkan()? {
        Err(none) => return Ok(none),
        Ok(device) => device,
    };
    let (semaphore, stream, words) = (device.imported_timeline()?, stream()?, Words::new()?);
    let (signal, exec) = signal_between(&semaphore, words)?;
    for value in [1, 2] {
        let set = set_signal(exec, signal, &semaphore, value);
        line(value, names(&[set, cu().graph_launch(exec, stream)]));
    }
    words.store(0, 1);
    let value = || device.value(semaphore.vulkan()).unwrap_or(99);
    line("begun", yes(within(1000, || value() > 0)));
    line("first", value());
    // While the first launch runs.
    line("set_running", name(set_signal(exec, signal, &semaphore, 3)));
    words.store(1, 1);
    line("then", name(outcome(stream)));
    line("second", value());
    line(
        "third",
        names(&[cu().graph_launch(exec, stream), outcome(stream)]),
    );
    line("value", value());
    Ok(String::new())
}

fn wait_in_flight() -> Answer {
    context()?;
    let device = match vulkan()? {
        Err(none) => return Ok(none),
        Ok(device) => device,
    };
    let (semaphore, stream, words) = (device.imported_timeline()?, stream()?, Words::new()?);
    let mut wait = 0;
    let (_, exec) = capture(|stream| {
        semaphore.wait(0, stream)?;
        wait = node(stream)?;
        mark(stream, words, 0)
    })?;
    for value in [1, 5] {
        let set = set_wait(exec, wait, &semaphore, value);
        line(value, names(&[set, cu().graph_launch(exec, stream)]));
    }
    line("passes", yes(marked_early(words, 0)));
    device.signal_host(semaphore.vulkan(), 1)?;
    line("first", yes(marked(words, 0)));
    line(
        "second_waits",
        yes(!within(300, || cu().stream_query(stream) == 0)),
    );
    device.signal_host(semaphore.vulkan(), 5)?;
    line("then", name(outcome(stream)));
    Ok(String::new())
}

/// Whether others see the signal while the rest of the graph has not executed.
fn middle() -> Answer {
    context()?;
    let device = match vulkan()? {
        Err(none) => return Ok(none),
        Ok(device) => device,
    };
    let (semaphore, launching) = (device.imported_timeline()?, stream()?);
    let (words, other) = (Words::new()?, stream()?);
    let (signal, exec) = signal_between(&semaphore, words)?;
    words.store(0, 1);
    line("set", name(set_signal(exec, signal, &semaphore, 7)));
    line("launch", name(cu().graph_launch(exec, launching)));
    semaphore.wait(7, other)?;
    mark(other, words, 2)?;
    line("other_stream", yes(marked(words, 2)));
    line("host", device.wait_host(semaphore.vulkan(), 7));
    line("still_runs", name(cu().stream_query(launching)));
    words.store(1, 1);
    line("then", name(outcome(launching)));
    Ok(String::new())
}

/// Whether a node takes another semaphore than that of the capture.
fn other_semaphore() -> Answer {
    context()?;
    let device = match vulkan()? {
        Err(none) => return Ok(none),
        Ok(device) => device,
    };
    let (semaphore, other) = (device.imported_timeline()?, device.imported_timeline()?);
    let (stream, mut signal) = (stream()?, 0);
    let (_, exec) = capture(|stream| {
        semaphore.signal(0, stream)?;
        signal = node(stream)?;
        Ok(())
    })?;
    let codes = [
        set_signal(exec, signal, &other, 3),
        cu().graph_launch(exec, stream),
        outcome(stream),
    ];
    line("codes", names(&codes));
    line("captured", device.value(semaphore.vulkan())?);
    line("other", device.value(other.vulkan())?);
    Ok(String::new())
}

fn wrong() -> Answer {
    context()?;
    let device = match vulkan()? {
        Err(none) => return Ok(none),
        Ok(device) => device,
    };
    let (semaphore, mut signal, mut wait) = (device.imported_timeline()?, 0, 0);
    let (_, exec) = capture(|stream| {
        semaphore.wait(0, stream)?;
        wait = node(stream)?;
        semaphore.signal(0, stream)?;
        signal = node(stream)?;
        Ok(())
    })?;
    let mut foreign = 0;
    let (_, other) = capture(|stream| {
        semaphore.signal(0, stream)?;
        foreign = node(stream)?;
        Ok(())
    })?;
    line("other_kind", name(set_signal(exec, wait, &semaphore, 3)));
    line(
        "other_graph",
        name(set_signal(exec, foreign, &semaphore, 3)),
    );
    line("other_exec", name(set_signal(other, signal, &semaphore, 3)));
    line(
        "event",
        name(cu().graph_set_record(exec, signal, event(NO_TIMING)?)),
    );
    let (semaphores, values) = ([semaphore.cuda; 2], [params(3); 2]);
    for count in [0, 2] {
        let node = SemaphoreNode {
            semaphores: semaphores.as_ptr(),
            params: values.as_ptr(),
            count,
        };
        let code = cu().graph_set_signal(exec, signal, &node);
        line(format_args!("count_{count}"), name(code));
    }
    Ok(String::new())
}

/// Changes after the original graph was destroyed. The documentation forbids it.
fn graph_gone() -> Answer {
    context()?;
    let device = match vulkan()? {
        Err(none) => return Ok(none),
        Ok(device) => device,
    };
    let (semaphore, stream, mut signal) = (device.imported_timeline()?, stream()?, 0);
    let (graph, exec) = capture(|stream| {
        semaphore.signal(0, stream)?;
        signal = node(stream)?;
        Ok(())
    })?;
    line("set", name(set_signal(exec, signal, &semaphore, 3)));
    line("destroy", name(cu().graph_destroy(graph)));
    line(
        "launch",
        names(&[cu().graph_launch(exec, stream), outcome(stream)]),
    );
    line("value", device.value(semaphore.vulkan())?);
    Ok(String::new())
}

fn events() -> Answer {
    context()?;
    let (words, stream, mut place) = (Words::new()?, stream()?, 0);
    let (first, second) = (event(NO_TIMING)?, event(NO_TIMING)?);
    let (_, exec) = capture(|stream| {
        park(stream, words, 0)?;
        check(
            "cuEventRecordWithFlags",
            cu().event_record_with_flags(first, stream, 1),
        )?;
        place = node(stream)?;
        park(stream, words, 1)
    })?;
    line("set", name(cu().graph_set_record(exec, place, second)));
    line("launch", name(cu().graph_launch(exec, stream)));
    let queries = || names(&[cu().event_query(first), cu().event_query(second)]);
    line("launched", queries());
    words.store(0, 1);
    line(
        "in_the_middle",
        yes(within(1000, || cu().event_query(second) == 0)),
    );
    line("still_runs", name(cu().stream_query(stream)));
    words.store(1, 1);
    line("then", name(outcome(stream)));
    Ok(String::new())
}

/// Two launches in flight, with an event each, and a wait whose event changes.
fn event_in_flight() -> Answer {
    context()?;
    let (words, stream, other) = (Words::new()?, stream()?, stream()?);
    let (gate, done) = (
        [event(NO_TIMING)?, event(NO_TIMING)?],
        [event(NO_TIMING)?, event(NO_TIMING)?],
    );
    let (mut wait, mut place) = (0, 0);
    let (_, exec) = capture(|stream| {
        check(
            "cuStreamWaitEvent",
            cu().stream_wait_event(stream, gate[0], 1),
        )?;
        wait = node(stream)?;
        check(
            "cuEventRecordWithFlags",
            cu().event_record_with_flags(done[0], stream, 1),
        )?;
        place = node(stream)?;
        Ok(())
    })?;
    for (index, gate) in gate.into_iter().enumerate() {
        park(other, words, index)?;
        record(gate, other)?;
        let codes = [
            cu().graph_set_event_wait(exec, wait, gate),
            cu().graph_set_record(exec, place, done[index]),
            cu().graph_launch(exec, stream),
        ];
        line(index, names(&codes));
    }
    let queries = || names(&[cu().event_query(done[0]), cu().event_query(done[1])]);
    line("launched", queries());
    words.store(0, 1);
    line(
        "first",
        yes(within(1000, || cu().event_query(done[0]) == 0)),
    );
    line(
        "second_waits",
        yes(!within(300, || cu().event_query(done[1]) == 0)),
    );
    words.store(1, 1);
    line("then", name(outcome(stream)));
    line("ended", queries());
    Ok(String::new())
}

/// A node that waits for an event without a record.
fn event_never_recorded() -> Answer {
    context()?;
    let (stream, never, mut wait) = (stream()?, event(NO_TIMING)?, 0);
    let (_, exec) = capture(|stream| {
        check(
            "cuStreamWaitEvent",
            cu().stream_wait_event(stream, never, 1),
        )?;
        wait = node(stream)?;
        Ok(())
    })?;
    let codes = [cu().graph_launch(exec, stream), outcome(stream)];
    line("captured", names(&codes));
    let fresh = event(NO_TIMING)?;
    let codes = [
        cu().graph_set_event_wait(exec, wait, fresh),
        cu().graph_launch(exec, stream),
        outcome(stream),
    ];
    line("set", names(&codes));
    Ok(String::new())
}

fn set_op(exec: Handle, node: Handle, context: Handle, op: MemOp) -> u32 {
    cu().graph_set_mem_op(
        exec,
        node,
        &MemoryNode {
            context,
            count: 1,
            ops: &raw const op,
            flags: 0,
        },
    )
}

/// Waits for a word and writes of a word, with two launches in flight.
fn words() -> Answer {
    let context = context()?;
    let (words, stream, mut wait, mut write) = (Words::new()?, stream()?, 0, 0);
    let (graph, exec) = capture(|stream| {
        park(stream, words, 0)?;
        wait = node(stream)?;
        mark(stream, words, 1)?;
        write = node(stream)?;
        Ok(())
    })?;
    line("kinds", super::capture::kinds(graph));
    for value in [1, 2] {
        let codes = [
            set_op(exec, wait, context, wait_op(words.at(0), value, 0)),
            set_op(exec, write, context, write_op(words.at(1), 10 * value, 0)),
            cu().graph_launch(exec, stream),
        ];
        line(value, names(&codes));
    }
    line("passes", yes(marked_early(words, 1)));
    words.store(0, 1);
    line("first", yes(within(1000, || words.load(1) == 10)));
    line("second_waits", yes(!within(300, || words.load(1) == 20)));
    words.store(0, 2);
    line(
        "then",
        format!("{} {}", name(outcome(stream)), words.load(1)),
    );
    // Another address, a wait as a write, and flags of a flush.
    line(
        "address",
        name(set_op(exec, write, context, write_op(words.at(2), 1, 0))),
    );
    line(
        "other_kind",
        name(set_op(exec, wait, context, write_op(words.at(0), 1, 0))),
    );
    line(
        "flush",
        name(set_op(
            exec,
            wait,
            context,
            wait_op(words.at(0), 1, 1 << 30),
        )),
    );
    line(
        "no_context",
        name(set_op(exec, write, 0, write_op(words.at(1), 1, 0))),
    );
    Ok(String::new())
}

/// The nanoseconds of one call, as the median of 2000.
fn median(mut call: impl FnMut(u64) -> Result<(), String>) -> Result<String, String> {
    let mut times = Vec::new();
    for round in 1..=2000 {
        let start = Instant::now();
        call(round)?;
        times.push(start.elapsed().as_nanos());
    }
    times.sort_unstable();
    Ok(format!("~{} ns", times[times.len() / 2]))
}

/// What a change costs, and a launch with such nodes beside one without.
fn cost() -> Answer {
    context()?;
    let device = match vulkan()? {
        Err(none) => return Ok(none),
        Ok(device) => device,
    };
    let (waited, signalled) = (device.imported_timeline()?, device.imported_timeline()?);
    let (words, launching) = (Words::new()?, stream()?);
    let (first, second) = (event(NO_TIMING)?, event(NO_TIMING)?);
    let idle = |exec| {
        move |_| {
            check("cuGraphLaunch", cu().graph_launch(exec, launching))?;
            check("cuStreamSynchronize", cu().stream_synchronize(launching))
        }
    };
    let (_, plain) = capture(|stream| mark(stream, words, 0))?;
    line("launch_and_end_without", median(idle(plain))?);
    let (mut wait, mut signal) = (0, 0);
    let (_, exec) = capture(|stream| {
        waited.wait(0, stream)?;
        wait = node(stream)?;
        mark(stream, words, 0)?;
        signalled.signal(0, stream)?;
        signal = node(stream)?;
        Ok(())
    })?;
    let set = |code| check("set", code);
    line(
        "set_wait",
        median(|_| set(set_wait(exec, wait, &waited, 0)))?,
    );
    line(
        "set_signal",
        median(|round| set(set_signal(exec, signal, &signalled, round)))?,
    );
    let mut next = 2000;
    let both = median(|_| {
        next += 1;
        set(set_wait(exec, wait, &waited, 0))?;
        set(set_signal(exec, signal, &signalled, next))?;
        check("cuGraphLaunch", cu().graph_launch(exec, launching))?;
        check("cuStreamSynchronize", cu().stream_synchronize(launching))
    });
    line("launch_and_end_with_two", both?);
    let (mut place, mut gate) = (0, 0);
    let (_, exec) = capture(|stream| {
        check(
            "cuStreamWaitEvent",
            cu().stream_wait_event(stream, first, 1),
        )?;
        gate = node(stream)?;
        mark(stream, words, 0)?;
        check(
            "cuEventRecordWithFlags",
            cu().event_record_with_flags(first, stream, 1),
        )?;
        place = node(stream)?;
        Ok(())
    })?;
    line(
        "set_event_wait",
        median(|_| set(cu().graph_set_event_wait(exec, gate, first)))?,
    );
    line(
        "set_record",
        median(|_| set(cu().graph_set_record(exec, place, second)))?,
    );
    line("launch_and_end_with_events", median(idle(exec))?);
    Ok(String::new())
}
