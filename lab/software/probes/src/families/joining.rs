//! Streams that join a capture, by waiting for an event of it.

use super::capture::{begin, end, status};
use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("capture", QUESTIONS);
}

const QUESTIONS: Questions = &[
    // A stream that is not captured waits for a captured event.
    ("wait_outside", || {
        for (kind, flags) in [("blocking", 0), ("non_blocking", 1)] {
            let (first, second, event) = (stream(), stream_with(flags), event(NO_TIMING));
            begin(first, 0);
            record(event, first);
            line(format!("{kind}.wait"), stream_wait_event(second, event, 0));
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
        let (first, event) = (stream(), event(NO_TIMING));
        begin(first, 0);
        record(event, first);
        line("null.wait", stream_wait_event(0, event, 0));
        line("null.status", status(first));
        line("null.end", end(first));
    }),
    ("wait_joins", || {
        let (first, second, memory) = (stream(), stream(), alloc(64));
        let (fork, join) = (event(NO_TIMING), event(NO_TIMING));
        begin(first, 0);
        memset_d32_async(memory, 1, 1, first);
        record(fork, first);
        line("wait", stream_wait_event(second, fork, 0));
        line("memset", memset_d32_async(memory + 8, 1, 1, second));
        line("record", event_record(join, second));
        line("wait_back", stream_wait_event(first, join, 0));
        line("end", end(first));
        line("status", format!("{} {}", status(first), status(second)));
    }),
    ("join_not_returned", || {
        let (first, second, memory, fork) = (stream(), stream(), alloc(64), event(NO_TIMING));
        begin(first, 0);
        record(fork, first);
        line("wait", stream_wait_event(second, fork, 0));
        line("memset", memset_d32_async(memory, 1, 1, second));
        line("end", end(first));
        line("status", format!("{} {}", status(first), status(second)));
        line("use", memset_d32_async(memory, 1, 1, second));
    }),
    ("joined_twice", || {
        let (first, second, third, memory) = (stream(), stream(), stream(), alloc(64));
        let (one, two) = (event(NO_TIMING), event(NO_TIMING));
        begin(first, 0);
        begin(second, 0);
        record(one, first);
        record(two, second);
        line("first", stream_wait_event(third, one, 0));
        line("second", stream_wait_event(third, two, 0));
        line(
            "status",
            format!("{} {} {}", status(first), status(second), status(third)),
        );
        memset_d32_async(memory, 1, 1, third);
        line("end", (end(first), end(second)));
    }),
    ("two_captures", || {
        let (first, second, event) = (stream(), stream(), event(NO_TIMING));
        begin(first, 0);
        begin(second, 0);
        record(event, first);
        line("wait", stream_wait_event(second, event, 0));
        line("status", format!("{} {}", status(first), status(second)));
        line("end", (end(first), end(second)));
    }),
];
