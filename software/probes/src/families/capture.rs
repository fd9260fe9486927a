//! Stream capture: what ends it, what joins it, what it forbids.

use crate::cuda::{Handle, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, NO_TIMING, Words, alloc, context, elsewhere, event, kernel, launch, name, names,
    record, stream, stream_with, yes,
};

pub(crate) fn list() -> Vec<Probe> {
    family!["capture"; modes, plain, info, empty, nested, end_not_begun, end_wrong_stream,
        end_wrong_thread, end_wrong_thread_relaxed, null_streams, legacy_during, 
           event_after, record_outside_during, external_flags,
        external_wait_outside, destroy_stream, destroy_event, exchange, elapsed_outside,
        wait_uncaptured, wait_pending_uncaptured, ]
}

pub(super) const MODES: &[(&str, u32)] = &[("global", 0), ("thread_local", 1), ("relaxed", 2)];

pub(super) fn begin(stream: Handle, mode: u32) -> Result<(), String> {
    crate::kit::check(
        "cuStreamBeginCapture",
        cu().stream_begin_capture(stream, mode),
    )
}

pub(super) fn status(stream: Handle) -> String {
    let mut status = 9;
    let code = cu().stream_is_capturing(stream, &mut status);
    let status = match status {
        0 => "none",
        1 => "active",
        2 => "invalidated",
        _ => "not told",
    };
    if code == 0 {
        status.into()
    } else {
        format!("{} {status}", name(code))
    }
}

pub(super) fn end(stream: Handle) -> String {
    let (mut graph, mut count) = (0, 0);
    let code = cu().stream_end_capture(stream, &mut graph);
    if graph == 0 {
        return format!("{} no graph", name(code));
    }
    let _ = cu().graph_get_nodes(graph, 0, &mut count);
    format!("{} {count} nodes", name(code))
}

/// The kinds of the nodes, in numbers of `CUgraphNodeType`.
pub(super) fn kinds(graph: Handle) -> String {
    let mut count = 0;
    let code = cu().graph_get_nodes(graph, 0, &mut count);
    let mut nodes = vec![0_usize; count];
    let _ = cu().graph_get_nodes(graph, nodes.as_mut_ptr() as usize, &mut count);
    let mut kinds: Vec<_> = nodes
        .into_iter()
        .map(|node| {
            let mut kind = 99;
            let _ = cu().graph_node_get_type(node, &mut kind);
            kind
        })
        .collect();
    kinds.sort_unstable();
    format!("{} {kinds:?}", name(code))
}

fn modes() -> Answer {
    context()?;
    for mode in 0..=3 {
        let stream = stream()?;
        let code = cu().stream_begin_capture(stream, mode);
        line(
            mode,
            format!("{}, {}, {}", name(code), status(stream), end(stream)),
        );
    }
    Ok(String::new())
}

/// The kinds of nodes that calls become.
fn plain() -> Answer {
    context()?;
    let (memory, words, nop) = (alloc(4096)?, Words::new()?, kernel(c"nop")?);
    unsafe extern "C" fn nothing(_: usize) {}
    let capture = |what: &str, call: &dyn Fn(Handle) -> u32| -> Result<(), String> {
        let (stream, mut graph) = (stream()?, 0);
        begin(stream, 0)?;
        let code = call(stream);
        let ended = cu().stream_end_capture(stream, &mut graph);
        let kinds = if graph == 0 {
            "no graph".into()
        } else {
            kinds(graph)
        };
        line(what, format!("{}, {kinds}", names(&[code, ended])));
        Ok(())
    };
    capture("memset", &|stream| {
        cu().memset_d32_async(memory, 1, 1, stream)
    })?;
    capture("memset_d8", &|stream| {
        cu().memset_d8_async(memory, 1, 1, stream)
    })?;
    capture("copy", &|stream| {
        cu().memcpy_dtod_async(memory + 64, memory, 8, stream)
    })?;
    capture("launch", &|stream| launch(nop, stream, &[]))?;
    capture("host_function", &|stream| {
        cu().launch_host_func(stream, nothing, 0)
    })?;
    capture("wait_value", &|stream| {
        cu().stream_wait_value64(stream, words.at(0), 0, 0)
    })?;
    capture("wait_value_32", &|stream| {
        cu().stream_wait_value32(stream, words.at(0), 0, 0)
    })?;
    capture("write_value", &|stream| {
        cu().stream_write_value64(stream, words.at(0), 0, 0)
    })?;
    capture("batch", &|stream| {
        let ops = [
            crate::kit::write_op(words.at(0), 1, 0),
            crate::kit::wait_op(words.at(0), 1, 0),
        ];
        cu().stream_batch_mem_op(stream, 2, ops.as_ptr() as usize, 0)
    })?;
    let plain = event(NO_TIMING)?;
    capture("record", &|stream| cu().event_record(plain, stream))?;
    capture("record_external", &|stream| {
        cu().event_record_with_flags(plain, stream, 1)
    })?;
    capture("wait_external", &|stream| {
        cu().stream_wait_event(stream, plain, 1)
    })?;
    let timed = event(0)?;
    capture("record_timed", &|stream| cu().event_record(timed, stream))?;
    capture("record_external_timed", &|stream| {
        cu().event_record_with_flags(timed, stream, 1)
    })?;
    let interprocess = event(6)?;
    capture("record_interprocess", &|stream| {
        cu().event_record(interprocess, stream)
    })?;
    capture("record_external_interprocess", &|stream| {
        cu().event_record_with_flags(interprocess, stream, 1)
    })?;
    Ok(String::new())
}

fn info() -> Answer {
    context()?;
    let (stream, memory) = (stream()?, alloc(64)?);
    let ask = |when: &str, stream: Handle| {
        let (mut status, mut id, mut graph) = (9, 0, 0);
        let code = cu().stream_get_capture_info(stream, &mut status, &mut id, &mut graph, 0, 0);
        line(
            when,
            format!(
                "{} {status}, id: {}, graph: {}",
                name(code),
                yes(id != 0),
                yes(graph != 0)
            ),
        );
    };
    ask("before", stream);
    begin(stream, 0)?;
    ask("begun", stream);
    let _ = cu().memset_d32_async(memory, 1, 1, stream);
    ask("active", stream);
    let _ = cu().stream_query(stream);
    ask("invalidated", stream);
    end(stream);
    ask("ended", stream);
    ask("null", 0);
    ask("legacy", 1);
    ask("per_thread", 2);
    Ok(String::new())
}

fn empty() -> Answer {
    context()?;
    let (stream, mut graph, mut exec) = (stream()?, 0, 0);
    begin(stream, 0)?;
    line("end", name(cu().stream_end_capture(stream, &mut graph)));
    line(
        "instantiate",
        name(cu().graph_instantiate(&mut exec, graph, 0)),
    );
    line(
        "launch",
        names(&[
            cu().graph_launch(exec, stream),
            cu().stream_synchronize(stream),
        ]),
    );
    Ok(String::new())
}

fn nested() -> Answer {
    context()?;
    let stream = stream()?;
    begin(stream, 0)?;
    line("begin", name(cu().stream_begin_capture(stream, 0)));
    line("status", status(stream));
    line("end", end(stream));
    Ok(String::new())
}

fn end_not_begun() -> Answer {
    context()?;
    Ok(end(stream()?))
}

fn end_wrong_stream() -> Answer {
    context()?;
    let (first, second, event) = (stream()?, stream()?, event(NO_TIMING)?);
    begin(first, 0)?;
    record(event, first)?;
    line("join", name(cu().stream_wait_event(second, event, 0)));
    line("end_joined", end(second));
    line("status", status(first));
    line("end", end(first));
    Ok(String::new())
}

fn end_wrong_thread() -> Answer {
    let context = context()?;
    for (mode, number) in &MODES[..2] {
        let stream = stream()?;
        begin(stream, *number)?;
        line(format!("{mode}_other"), elsewhere(context, || end(stream))?);
        line(format!("{mode}_status"), status(stream));
        line(format!("{mode}_own"), end(stream));
    }
    Ok(String::new())
}

fn end_wrong_thread_relaxed() -> Answer {
    let context = context()?;
    let stream = stream()?;
    begin(stream, 2)?;
    elsewhere(context, || end(stream))
}

fn null_streams() -> Answer {
    context()?;
    for stream in [0, 1, 2] {
        let code = cu().stream_begin_capture(stream, 0);
        line(
            stream,
            format!("{}, {}, {}", name(code), status(stream), end(stream)),
        );
    }
    Ok(String::new())
}

/// The legacy stream while streams that do or do not synchronize with it are captured.
fn legacy_during() -> Answer {
    context()?;
    let memory = alloc(64)?;
    for (mode, number) in MODES {
        for (kind, stream) in [("blocking", stream_with(0)?), ("non_blocking", stream()?)] {
            begin(stream, *number)?;
            let code = cu().memset_d32_async(memory, 1, 1, 0);
            line(
                format!("{mode}.{kind}.memset"),
                format!("{}, {}", name(code), status(stream)),
            );
            line(format!("{mode}.{kind}.end"), end(stream));
            let other = stream_with(u32::from(kind == "non_blocking"))?;
            begin(other, *number)?;
            let event = event(NO_TIMING)?;
            let code = cu().event_record(event, 0);
            line(
                format!("{mode}.{kind}.record"),
                format!("{}, {}", name(code), status(other)),
            );
            let code = cu().stream_wait_event(0, event, 0);
            line(
                format!("{mode}.{kind}.wait"),
                format!("{}, {}", name(code), status(other)),
            );
            let code = cu().stream_query(0);
            // Without an error, it depends on whether the record has ended.
            let varies = if matches!(code, 0 | 600) { "~" } else { "" };
            line(
                format!("{mode}.{kind}.query"),
                format!("{varies}{}, {}", name(code), status(other)),
            );
            line(format!("{mode}.{kind}.is_capturing"), status(0));
            line(format!("{mode}.{kind}.end_second"), end(other));
        }
    }
    Ok(String::new())
}

/// An event that was recorded in a capture, once the capture is over.
fn event_after() -> Answer {
    context()?;
    let (first, second, timed, memory) = (stream()?, stream()?, event(0)?, alloc(64)?);
    begin(first, 0)?;
    let _ = cu().memset_d32_async(memory, 1, 1, first);
    record(timed, first)?;
    line("end", end(first));
    line("query", name(cu().event_query(timed)));
    line("synchronize", name(cu().event_synchronize(timed)));
    line("wait", name(cu().stream_wait_event(second, timed, 0)));
    line(
        "elapsed",
        name(cu().event_elapsed_time(&mut 0.0, timed, timed)),
    );
    line("record", name(cu().event_record(timed, second)));
    line(
        "query_again",
        names(&[cu().event_synchronize(timed), cu().event_query(timed)]),
    );
    Ok(String::new())
}

/// A captured event is recorded in a stream that is not captured, while the capture is active.
fn record_outside_during() -> Answer {
    context()?;
    let (first, second, event) = (stream()?, stream()?, event(NO_TIMING)?);
    begin(first, 2)?;
    record(event, first)?;
    line("record", name(cu().event_record(event, second)));
    crate::kit::within(1000, || cu().event_query(event) != crate::kit::NOT_READY);
    line("query", name(cu().event_query(event)));
    line("status", status(first));
    line("wait", name(cu().stream_wait_event(first, event, 0)));
    line("end", end(first));
    Ok(String::new())
}

/// An event recorded by a node: query before and after the launch.
fn external_flags() -> Answer {
    context()?;
    let (stream, event, mut graph, mut exec) = (stream()?, event(NO_TIMING)?, 0, 0);
    begin(stream, 0)?;
    line(
        "record",
        name(cu().event_record_with_flags(event, stream, 1)),
    );
    line("query_during", name(cu().event_query(event)));
    line("status", status(stream));
    line("end", name(cu().stream_end_capture(stream, &mut graph)));
    line(
        "instantiate",
        name(cu().graph_instantiate(&mut exec, graph, 0)),
    );
    line("query_before", name(cu().event_query(event)));
    line("launch", name(cu().graph_launch(exec, stream)));
    line(
        "query_after",
        names(&[cu().event_synchronize(event), cu().event_query(event)]),
    );
    Ok(String::new())
}

/// Waits for an event of outside with the flag, and without.
fn external_wait_outside() -> Answer {
    context()?;
    let (first, second, event) = (stream()?, stream()?, event(NO_TIMING)?);
    record(event, second)?;
    begin(first, 0)?;
    line("external", name(cu().stream_wait_event(first, event, 1)));
    line("status", status(first));
    line("plain", name(cu().stream_wait_event(first, event, 0)));
    line("status_then", status(first));
    line("end", end(first));
    Ok(String::new())
}

fn wait_uncaptured() -> Answer {
    context()?;
    let (first, fresh) = (stream()?, event(NO_TIMING)?);
    begin(first, 0)?;
    line("unrecorded", name(cu().stream_wait_event(first, fresh, 0)));
    line("status", status(first));
    line("end", end(first));
    Ok(String::new())
}

fn wait_pending_uncaptured() -> Answer {
    context()?;
    let (first, second, event, words) = (stream()?, stream()?, event(NO_TIMING)?, Words::new()?);
    crate::kit::park(second, words, 0)?;
    record(event, second)?;
    begin(first, 0)?;
    line("pending", name(cu().stream_wait_event(first, event, 0)));
    line("status", status(first));
    line("end", end(first));
    words.store(0, 1);
    Ok(String::new())
}

fn destroy_stream() -> Answer {
    context()?;
    let stream = stream()?;
    begin(stream, 0)?;
    line("destroy", name(cu().stream_destroy(stream)));
    line("alloc", name(cu().mem_alloc(&mut 0, 64)));
    Ok(String::new())
}

fn destroy_event() -> Answer {
    context()?;
    let (first, second, event) = (stream()?, stream()?, event(NO_TIMING)?);
    begin(first, 0)?;
    record(event, first)?;
    let _ = second;
    line("destroy", name(cu().event_destroy(event)));
    line("status", status(first));
    line("end", end(first));
    Ok(String::new())
}

fn exchange() -> Answer {
    let context = context()?;
    let mut mode = 0;
    line(
        "first",
        format!("{} {mode}", name(cu().thread_exchange(&mut mode))),
    );
    mode = 2;
    let code = cu().thread_exchange(&mut mode);
    line("to_relaxed", format!("{} {mode}", name(code)));
    mode = 1;
    let code = cu().thread_exchange(&mut mode);
    line("to_thread_local", format!("{} {mode}", name(code)));
    mode = 3;
    let code = cu().thread_exchange(&mut mode);
    line("to_3", format!("{} {mode}", name(code)));
    let other = elsewhere(context, || {
        let mut mode = 0;
        let code = cu().thread_exchange(&mut mode);
        format!("{} {mode}", name(code))
    })?;
    line("other_thread", other);
    Ok(String::new())
}

fn elapsed_outside() -> Answer {
    context()?;
    let (first, one, two) = (stream()?, event(0)?, event(0)?);
    let second = stream()?;
    record(one, second)?;
    record(two, second)?;
    let _ = cu().stream_synchronize(second);
    begin(first, 0)?;
    line("elapsed", name(cu().event_elapsed_time(&mut 0.0, one, two)));
    line("status", status(first));
    line("end", end(first));
    Ok(String::new())
}
