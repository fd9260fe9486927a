//! Graphs: launches, nodes for events, memory and semaphores, user objects.

use super::user_objects::destroy;
use crate::cuda::{Handle, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, NO_TIMING, Words, alloc, check, context, event, kernel, launch, mark, marked,
    marked_early, name, names, outcome, park, pause, record, spin, stream, within, yes,
};
use crate::vulkan::{NONE, Vulkan};

pub(crate) fn list() -> Vec<Probe> {
    family!["graph"; instantiate_flags, launch_twice, launch_overlap, launch_two_streams, launch_null_streams,
        destroy_graph_first, destroy_exec_running, destroy_exec_twice, launch_destroyed, record_node,
        record_node_timed, wait_node, wait_node_destroyed_event, write_value_node, wait_value_node,
        parameters_copied, branches_run_apart, semaphore_nodes,   
           launch_during_capture, no_current, no_current_launch]
}

/// Captures what the closure enqueues.
pub(super) fn capture(
    enqueue: impl FnOnce(Handle) -> Result<(), String>,
) -> Result<(Handle, Handle), String> {
    let (stream, mut graph, mut exec) = (stream()?, 0, 0);
    check("cuStreamBeginCapture", cu().stream_begin_capture(stream, 2))?;
    enqueue(stream)?;
    check(
        "cuStreamEndCapture",
        cu().stream_end_capture(stream, &mut graph),
    )?;
    check(
        "cuGraphInstantiateWithFlags",
        cu().graph_instantiate(&mut exec, graph, 0),
    )?;
    Ok((graph, exec))
}

fn memset() -> Result<(Handle, Handle), String> {
    let memory = alloc(64)?;
    capture(|stream| {
        check(
            "cuMemsetD32Async",
            cu().memset_d32_async(memory, 1, 1, stream),
        )
    })
}

fn instantiate_flags() -> Answer {
    context()?;
    let (graph, _) = memset()?;
    for flags in [0, 1, 2, 4, 8, 16, 1 << 40] {
        line(flags, name(cu().graph_instantiate(&mut 0, graph, flags)));
    }
    line("empty_graph", {
        let mut graph = 0;
        let code = cu().graph_create(&mut graph, 0);
        names(&[code, cu().graph_instantiate(&mut 0, graph, 0)])
    });
    line("create_flags_1", name(cu().graph_create(&mut 0, 1)));
    Ok(String::new())
}

fn launch_twice() -> Answer {
    context()?;
    let ((_, exec), stream) = (memset()?, stream()?);
    let codes = [
        cu().graph_launch(exec, stream),
        cu().graph_launch(exec, stream),
    ];
    Ok(names(&[
        codes[0],
        codes[1],
        cu().stream_synchronize(stream),
    ]))
}

/// A graph that is parked is launched again in another stream.
fn launch_overlap() -> Answer {
    context()?;
    let (words, first, second) = (Words::new()?, stream()?, stream()?);
    kernel(c"spin")?;
    let (_, exec) = capture(|stream| {
        mark(stream, words, 1)?;
        spin(stream, words, 0)
    })?;
    line("first", name(cu().graph_launch(exec, first)));
    let began = marked(words, 1);
    line("began", yes(began));
    words.store(1, 0);
    line("second", name(cu().graph_launch(exec, second)));
    line("second_overlaps", yes(marked_early(words, 1)));
    words.store(0, 1);
    line("then", names(&[outcome(first), outcome(second)]));
    line("second_ran", yes(marked(words, 1)));
    Ok(String::new())
}

fn launch_two_streams() -> Answer {
    context()?;
    let ((_, exec), first, second, words) = (memset()?, stream()?, stream()?, Words::new()?);
    park(first, words, 0)?;
    line("behind_gate", name(cu().graph_launch(exec, first)));
    line("other", name(cu().graph_launch(exec, second)));
    line(
        "other_finishes",
        yes(within(300, || cu().stream_query(second) == 0)),
    );
    words.store(0, 1);
    line("then", names(&[outcome(first), outcome(second)]));
    Ok(String::new())
}

fn launch_null_streams() -> Answer {
    context()?;
    let (_, exec) = memset()?;
    let codes = [0, 1, 2].map(|stream| cu().graph_launch(exec, stream));
    Ok(names(&[
        codes[0],
        codes[1],
        codes[2],
        cu().ctx_synchronize(),
    ]))
}

fn destroy_graph_first() -> Answer {
    context()?;
    let ((graph, exec), stream) = (memset()?, stream()?);
    Ok(names(&[
        cu().graph_destroy(graph),
        cu().graph_launch(exec, stream),
        cu().stream_synchronize(stream),
        cu().graph_exec_destroy(exec),
    ]))
}

fn destroy_exec_running() -> Answer {
    context()?;
    let (words, stream) = (Words::new()?, stream()?);
    kernel(c"spin")?;
    let (_, exec) = capture(|stream| {
        spin(stream, words, 0)?;
        mark(stream, words, 1)
    })?;
    line("launch", name(cu().graph_launch(exec, stream)));
    let opener = std::thread::spawn(move || {
        pause(1000);
        words.store(0, 1);
    });
    line("destroy", name(cu().graph_exec_destroy(exec)));
    line("returns_while_running", yes(words.load(0) == 0));
    let _ = opener.join();
    line("then", name(outcome(stream)));
    line("ran_to_its_end", yes(marked_early(words, 1)));
    Ok(String::new())
}

fn destroy_exec_twice() -> Answer {
    context()?;
    let (_, exec) = memset()?;
    Ok(names(&[
        cu().graph_exec_destroy(exec),
        cu().graph_exec_destroy(exec),
    ]))
}

fn launch_destroyed() -> Answer {
    context()?;
    let ((_, exec), stream) = (memset()?, stream()?);
    Ok(names(&[
        cu().graph_exec_destroy(exec),
        cu().graph_launch(exec, stream),
    ]))
}

fn record_node() -> Answer {
    context()?;
    let (words, stream, other, event) = (Words::new()?, stream()?, stream()?, event(NO_TIMING)?);
    kernel(c"spin")?;
    let (_, exec) = capture(|stream| {
        spin(stream, words, 0)?;
        check(
            "cuEventRecordWithFlags",
            cu().event_record_with_flags(event, stream, 1),
        )
    })?;
    line("query_before", name(cu().event_query(event)));
    line("launch", name(cu().graph_launch(exec, stream)));
    line("query_running", name(cu().event_query(event)));
    line("wait", name(cu().stream_wait_event(other, event, 0)));
    mark(other, words, 1)?;
    line("waiter_passes", yes(marked_early(words, 1)));
    words.store(0, 1);
    line("waiter_finishes", yes(marked(words, 1)));
    line("then", names(&[outcome(stream), cu().event_query(event)]));
    Ok(String::new())
}

fn record_node_timed() -> Answer {
    context()?;
    let (stream, first, second) = (stream()?, event(0)?, event(0)?);
    let (_, exec) = capture(|stream| {
        check(
            "cuEventRecordWithFlags",
            cu().event_record_with_flags(first, stream, 1),
        )?;
        check(
            "cuEventRecordWithFlags",
            cu().event_record_with_flags(second, stream, 1),
        )
    })?;
    line(
        "before",
        name(cu().event_elapsed_time(&mut 0.0, first, second)),
    );
    line(
        "launch",
        names(&[cu().graph_launch(exec, stream), outcome(stream)]),
    );
    let mut time = -1.0;
    let code = cu().event_elapsed_time(&mut time, first, second);
    line(
        "after",
        format!("{}, 0 or more: {}", name(code), yes(time >= 0.0)),
    );
    Ok(String::new())
}

/// The event is recorded anew between launches: which record is waited for?
fn wait_node() -> Answer {
    context()?;
    let (words, stream, other, event) = (Words::new()?, stream()?, stream()?, event(NO_TIMING)?);
    let (_, exec) = capture(|stream| {
        check(
            "cuStreamWaitEvent",
            cu().stream_wait_event(stream, event, 1),
        )?;
        mark(stream, words, 1)
    })?;
    line(
        "unrecorded",
        names(&[cu().graph_launch(exec, stream), outcome(stream)]),
    );
    words.store(1, 0);
    park(other, words, 0)?;
    record(event, other)?;
    line("pending", name(cu().graph_launch(exec, stream)));
    line("pending_passes", yes(marked_early(words, 1)));
    words.store(0, 1);
    line("pending_finishes", yes(marked(words, 1)));
    Ok(String::new())
}

fn wait_node_destroyed_event() -> Answer {
    context()?;
    let (words, stream, event) = (Words::new()?, stream()?, event(NO_TIMING)?);
    record(event, stream)?;
    let (_, exec) = capture(|stream| {
        check(
            "cuStreamWaitEvent",
            cu().stream_wait_event(stream, event, 1),
        )?;
        mark(stream, words, 1)
    })?;
    line("destroy", name(cu().event_destroy(event)));
    line(
        "launch",
        names(&[cu().graph_launch(exec, stream), outcome(stream)]),
    );
    Ok(String::new())
}

fn write_value_node() -> Answer {
    context()?;
    let (words, stream) = (Words::new()?, stream()?);
    let (graph, exec) = capture(|stream| mark(stream, words, 1))?;
    line("kinds", super::capture::kinds(graph));
    line(
        "launch",
        names(&[cu().graph_launch(exec, stream), outcome(stream)]),
    );
    line("value", words.load(1));
    Ok(String::new())
}

fn wait_value_node() -> Answer {
    context()?;
    let (words, stream) = (Words::new()?, stream()?);
    let (_, exec) = capture(|stream| {
        park(stream, words, 0)?;
        mark(stream, words, 1)
    })?;
    line("launch", name(cu().graph_launch(exec, stream)));
    line("passes", yes(marked_early(words, 1)));
    words.store(0, 1);
    line("finishes", yes(marked(words, 1)));
    Ok(String::new())
}

/// Parameters are read at the capture.
fn parameters_copied() -> Answer {
    context()?;
    let (words, stream, put) = (Words::new()?, stream()?, kernel(c"put")?);
    let mut params = [words.at(1), 5];
    let (_, exec) = capture(|stream| check("cuLaunchKernel", launch(put, stream, &params)))?;
    params[1] = 6;
    std::hint::black_box(&params);
    let codes = [cu().graph_launch(exec, stream), outcome(stream)];
    Ok(format!("{} {}", names(&codes), words.load(1)))
}

/// Two branches. The first waits until the second releases it.
fn branches_run_apart() -> Answer {
    context()?;
    let (words, stream, side) = (Words::new()?, stream()?, stream()?);
    let (fork, join) = (event(NO_TIMING)?, event(NO_TIMING)?);
    kernel(c"spin")?;
    let (_, exec) = capture(|stream| {
        record(fork, stream)?;
        check("cuStreamWaitEvent", cu().stream_wait_event(side, fork, 0))?;
        spin(stream, words, 0)?;
        mark(side, words, 0)?;
        record(join, side)?;
        check("cuStreamWaitEvent", cu().stream_wait_event(stream, join, 0))
    })?;
    let code = cu().graph_launch(exec, stream);
    let finished = outcome(stream);
    words.store(0, 1);
    Ok(names(&[code, finished]))
}

fn semaphore_nodes() -> Answer {
    context()?;
    let device = match Vulkan::open() {
        Err(reason) if reason == NONE => return Ok(reason),
        device => device?,
    };
    let (semaphore, stream) = (device.imported_timeline()?, stream()?);
    let (graph, exec) = capture(|stream| {
        semaphore.wait(1, stream)?;
        semaphore.signal(2, stream)
    })?;
    line("kinds", super::capture::kinds(graph));
    line("launch", name(cu().graph_launch(exec, stream)));
    line(
        "waits",
        yes(!within(300, || cu().stream_query(stream) == 0)),
    );
    device.signal_host(semaphore.vulkan(), 1)?;
    line("then", name(outcome(stream)));
    line("value", device.value(semaphore.vulkan())?);
    line(
        "again",
        names(&[cu().graph_launch(exec, stream), outcome(stream)]),
    );
    line("value_again", device.value(semaphore.vulkan())?);
    Ok(String::new())
}

fn launch_during_capture() -> Answer {
    context()?;
    let ((_, exec), stream, other) = (memset()?, stream()?, stream()?);
    check("cuStreamBeginCapture", cu().stream_begin_capture(stream, 2))?;
    line("captured", name(cu().graph_launch(exec, stream)));
    line("other", name(cu().graph_launch(exec, other)));
    let mut graph = 0;
    line("end", name(cu().stream_end_capture(stream, &mut graph)));
    Ok(String::new())
}

fn no_current() -> Answer {
    context()?;
    let (graph, exec) = memset()?;
    crate::kit::current(0)?;
    line(
        "instantiate",
        name(cu().graph_instantiate(&mut 0, graph, 0)),
    );
    line("exec_destroy", name(cu().graph_exec_destroy(exec)));
    line("graph_destroy", name(cu().graph_destroy(graph)));
    Ok(String::new())
}

fn no_current_launch() -> Answer {
    context()?;
    let ((_, exec), stream) = (memset()?, stream()?);
    crate::kit::current(0)?;
    line("launch", name(cu().graph_launch(exec, stream)));
    line("begin", name(cu().stream_begin_capture(stream, 0)));
    line(
        "is_capturing",
        name(cu().stream_is_capturing(stream, &mut 0)),
    );
    line("end", name(cu().stream_end_capture(stream, &mut 0)));
    line(
        "object",
        name(cu().user_object_create(&mut 0, 0, destroy, 1, 1)),
    );
    Ok(String::new())
}
