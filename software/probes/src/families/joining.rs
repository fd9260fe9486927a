//! Streams that join a capture, by waiting for an event of it.

use super::capture::{begin, end, status};
use crate::cuda::cu;
use crate::harness::{Probe, family, line};
use crate::kit::{Answer, NO_TIMING, alloc, context, event, name, record, stream, stream_with};

pub(crate) fn list() -> Vec<Probe> {
    family!["capture"; wait_outside, wait_joins, join_not_returned, joined_twice, two_captures]
}

/// A stream that is not captured waits for a captured event.
fn wait_outside() -> Answer {
    context()?;
    for (kind, flags) in [("blocking", 0), ("non_blocking", 1)] {
        let (first, second, event) = (stream()?, stream_with(flags)?, event(NO_TIMING)?);
        begin(first, 0)?;
        record(event, first)?;
        line(
            format!("{kind}.wait"),
            name(cu().stream_wait_event(second, event, 0)),
        );
        line(
            format!("{kind}.status"),
            format!("{} {}", status(first), status(second)),
        );
        line(format!("{kind}.end"), end(first));
        line(
            format!("{kind}.status_after"),
            format!("{} {}", status(first), status(second)),
        );
    }
    let (first, event) = (stream()?, event(NO_TIMING)?);
    begin(first, 0)?;
    record(event, first)?;
    line("null.wait", name(cu().stream_wait_event(0, event, 0)));
    line("null.status", status(first));
    line("null.end", end(first));
    Ok(String::new())
}

fn wait_joins() -> Answer {
    context()?;
    let (first, second, memory) = (stream()?, stream()?, alloc(64)?);
    let (fork, join) = (event(NO_TIMING)?, event(NO_TIMING)?);
    begin(first, 0)?;
    let _ = cu().memset_d32_async(memory, 1, 1, first);
    record(fork, first)?;
    line("wait", name(cu().stream_wait_event(second, fork, 0)));
    line(
        "memset",
        name(cu().memset_d32_async(memory + 8, 1, 1, second)),
    );
    line("record", name(cu().event_record(join, second)));
    line("wait_back", name(cu().stream_wait_event(first, join, 0)));
    line("end", end(first));
    line("status", format!("{} {}", status(first), status(second)));
    Ok(String::new())
}

fn join_not_returned() -> Answer {
    context()?;
    let (first, second, memory, fork) = (stream()?, stream()?, alloc(64)?, event(NO_TIMING)?);
    begin(first, 0)?;
    record(fork, first)?;
    line("wait", name(cu().stream_wait_event(second, fork, 0)));
    line("memset", name(cu().memset_d32_async(memory, 1, 1, second)));
    line("end", end(first));
    line("status", format!("{} {}", status(first), status(second)));
    line("use", name(cu().memset_d32_async(memory, 1, 1, second)));
    Ok(String::new())
}

fn joined_twice() -> Answer {
    context()?;
    let (first, second, third, memory) = (stream()?, stream()?, stream()?, alloc(64)?);
    let (one, two) = (event(NO_TIMING)?, event(NO_TIMING)?);
    begin(first, 0)?;
    begin(second, 0)?;
    record(one, first)?;
    record(two, second)?;
    line("first", name(cu().stream_wait_event(third, one, 0)));
    line("second", name(cu().stream_wait_event(third, two, 0)));
    line(
        "status",
        format!("{} {} {}", status(first), status(second), status(third)),
    );
    let _ = cu().memset_d32_async(memory, 1, 1, third);
    line("end", format!("{}, {}", end(first), end(second)));
    Ok(String::new())
}

fn two_captures() -> Answer {
    context()?;
    let (first, second, event) = (stream()?, stream()?, event(NO_TIMING)?);
    begin(first, 0)?;
    begin(second, 0)?;
    record(event, first)?;
    line("wait", name(cu().stream_wait_event(second, event, 0)));
    line("status", format!("{} {}", status(first), status(second)));
    line("end", format!("{}, {}", end(first), end(second)));
    Ok(String::new())
}
