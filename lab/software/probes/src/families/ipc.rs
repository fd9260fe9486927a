//! Events of other processes.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};

pub(crate) fn list(all: &mut Probes) {
    all.family("ipc", QUESTIONS);
}

/// `CU_EVENT_INTERPROCESS`, which needs events without timing.
const INTERPROCESS: u32 = 4 | NO_TIMING;

fn handle(event: Handle) -> (Code, EventHandle) {
    let mut handle = EventHandle([0; 64]);
    (get_event_handle(&mut handle, event), handle)
}

/// Another process, which does what it is told.
struct Peer {
    process: Child,
    told: Option<ChildStdin>,
    tells: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts an exporter of an event.
    fn exporter() -> (Self, EventHandle) {
        let mut process = need(crate::harness::peer());
        let told = process.stdin.take();
        let out = need(process.stdout.take().ok_or_else(|| "no pipe".into()));
        let tells = BufReader::new(out);
        let mut peer = Self {
            process,
            told,
            tells,
        };
        let first = peer.reads();
        let digits = first.strip_prefix("handle ").unwrap_or_default();
        let mut bytes = [0; 64];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let two = digits.get(2 * index..2 * index + 2).unwrap_or_default();
            let read = u8::from_str_radix(two, 16);
            *byte = need(read.map_err(|_| format!("the exporter says: {first}")));
        }
        (peer, EventHandle(bytes))
    }

    fn reads(&mut self) -> String {
        let mut line = String::new();
        let read = self.tells.read_line(&mut line);
        need(read.map_err(|error| error.to_string()));
        line.trim_end().into()
    }

    /// Lets it do something, and returns what it says.
    fn does(&mut self, what: &str) -> String {
        let wrote = self.told.as_mut().map(|told| writeln!(told, "{what}"));
        need(wrote.transpose().map_err(|error| error.to_string()));
        self.reads()
    }

    /// Waits until it has ended.
    fn ends(&mut self) {
        self.told = None;
        let _ = self.tells.read_to_end(&mut Vec::new());
        let _ = self.process.wait();
    }
}

/// The other process. It answers each line with a line.
pub(crate) fn exporter() {
    context();
    let (event, stream, words) = (event(INTERPROCESS), stream(), Words::new());
    let (code, handle) = handle(event);
    check(code);
    let digits: Vec<_> = handle.0.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("handle {}", digits.concat());
    for order in std::io::stdin().lines().map_while(Result::ok) {
        let code = match order.as_str() {
            "record" => event_record(event, stream),
            "park" => wait_value64(stream, words.at(0), 1, 0),
            "open" => {
                words.store(0, 1);
                outcome(stream)
            }
            "query" => event_query(event),
            "synchronize" => stream_synchronize(stream),
            "destroy" => event_destroy(event),
            _ => return,
        };
        println!("{code}");
    }
}

/// An exporter, and its event opened here.
fn opened() -> (Peer, EventHandle, Handle) {
    let (peer, handle) = Peer::exporter();
    let mut event = 0;
    check(open_event_handle(&mut event, handle));
    (peer, handle, event)
}

/// Calls with an event whose exporter has destroyed it, or is gone.
fn gone(handle: EventHandle, event: Handle) {
    line("query", event_query(event));
    line("open_again", open_event_handle(&mut 0, handle));
    let stream = stream();
    line("wait", ended(stream_wait_event(stream, event, 0), stream));
    line("record_here", ended(event_record(event, stream), stream));
    line("destroy_here", event_destroy(event));
}

const QUESTIONS: Questions = &[
    ("handle_kinds", || {
        for flags in [0, NO_TIMING, INTERPROCESS, INTERPROCESS | 1] {
            line(format!("flags_{flags}"), handle(event(flags)).0);
        }
        line("null", handle(0).0);
    }),
    ("handle_twice", || {
        let event = event(INTERPROCESS);
        let (first, second) = (handle(event), handle(event));
        answer(([first.0, second.0], that("same", first.1.0 == second.1.0)));
    }),
    ("open_own", || {
        let (code, handle) = handle(event(INTERPROCESS));
        answer([code, open_event_handle(&mut 0, handle)]);
    }),
    ("open_zeros", || {
        answer(open_event_handle(&mut 0, EventHandle([0; 64])))
    }),
    ("open_ones", || {
        answer(open_event_handle(&mut 0, EventHandle([0xff; 64])))
    }),
    ("open_counting", || {
        let mut bytes = [0; 64];
        for (byte, value) in bytes.iter_mut().zip(1..) {
            *byte = value;
        }
        answer(open_event_handle(&mut 0, EventHandle(bytes)));
    }),
    ("no_current", || {
        let event = event(INTERPROCESS);
        let (_, handle_of_other) = Peer::exporter();
        current(0);
        line("get", handle(event).0);
        line("open", open_event_handle(&mut 0, handle_of_other));
    }),
    ("after_handle_elapsed", || {
        let (event, stream) = (event(INTERPROCESS), stream());
        record(event, stream);
        stream_synchronize(stream);
        answer(elapsed(event, event));
    }),
    ("unrecorded", || {
        let (mut peer, _, event) = opened();
        let stream = stream();
        line("query", event_query(event));
        line("wait", ended(stream_wait_event(stream, event, 0), stream));
        line("synchronize", event_synchronize(event));
        line("exporter_query", peer.does("query"));
    }),
    ("complete", || {
        let (mut peer, _, event) = opened();
        let stream = stream();
        line("record", peer.does("record"));
        line("exporter_synchronize", peer.does("synchronize"));
        line("query", event_query(event));
        line("wait", ended(stream_wait_event(stream, event, 0), stream));
        line("synchronize", event_synchronize(event));
    }),
    ("pending", || {
        let (mut peer, _, event) = opened();
        let (stream, words) = (stream(), Words::new());
        line("park", peer.does("park"));
        line("record", peer.does("record"));
        line("query", event_query(event));
        line("wait", stream_wait_event(stream, event, 0));
        mark(stream, words, 1);
        line("passes", marked_early(words, 1));
        line("open", peer.does("open"));
        line("finishes", marked(words, 1));
        line("query_then", event_query(event));
    }),
    ("record_by_importer", || {
        let (mut peer, _, event) = opened();
        let (stream, words) = (stream(), Words::new());
        park(stream, words, 0);
        line("record", event_record(event, stream));
        line("query", event_query(event));
        line("exporter_query", peer.does("query"));
        words.store(0, 1);
        line("then", [outcome(stream), event_query(event)]);
        line("exporter_query_then", peer.does("query"));
    }),
    // A wait, then a second record. Which one is waited for, and what is a query about?
    ("record_again", || {
        let (mut peer, _, event) = opened();
        let (stream, words) = (stream(), Words::new());
        line("record", peer.does("record"));
        line("synchronize", peer.does("synchronize"));
        park(stream, words, 0);
        line("wait", stream_wait_event(stream, event, 0));
        mark(stream, words, 1);
        line("park", peer.does("park"));
        line("record_again", peer.does("record"));
        line("query", event_query(event));
        words.store(0, 1);
        line("waiter_finishes", marked(words, 1));
        line("open", peer.does("open"));
        line("waiter_then", outcome(stream));
    }),
    ("exporter_destroys", || {
        let (mut peer, handle, event) = opened();
        line("record", peer.does("record"));
        line("synchronize", peer.does("synchronize"));
        line("destroy", peer.does("destroy"));
        gone(handle, event);
    }),
    ("exporter_exits", || {
        let (mut peer, handle, event) = opened();
        line("record", peer.does("record"));
        line("synchronize", peer.does("synchronize"));
        peer.ends();
        gone(handle, event)
    }),
    // The exporter is killed while its record is pending.
    ("exporter_killed", || {
        let (mut peer, handle, event) = opened();
        line("park", peer.does("park"));
        line("record", peer.does("record"));
        line("query_before", event_query(event));
        let _ = peer.process.kill();
        peer.ends();
        gone(handle, event)
    }),
    ("two_opens", || {
        let (mut peer, handle, first) = opened();
        let mut second = 0;
        line("open", open_event_handle(&mut second, handle));
        line("same", first == second);
        line("record", peer.does("record"));
        line("destroy_first", event_destroy(first));
        line(
            "query_second",
            [event_synchronize(second), event_query(second)],
        );
    }),
    ("importer_destroys", || {
        let (mut peer, handle, event) = opened();
        line("destroy", event_destroy(event));
        line("record", peer.does("record"));
        line("exporter_synchronize", peer.does("synchronize"));
        line("open_again", open_event_handle(&mut 0, handle));
    }),
    ("handle_of_opened", || {
        let (_peer, first, event) = opened();
        let (code, second) = handle(event);
        answer((code, that("same", code == 0 && first.0 == second.0)));
    }),
];
