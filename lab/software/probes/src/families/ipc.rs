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
        let read = first
            .split(' ')
            .map(str::parse)
            .collect::<Result<Vec<u8>, _>>();
        let bytes = read.ok().and_then(|bytes| bytes.try_into().ok());
        let bytes = bytes.ok_or_else(|| format!("the exporter says: {first}"));
        (peer, EventHandle(need(bytes)))
    }

    fn reads(&mut self) -> String {
        let mut line = String::new();
        let read = self.tells.read_line(&mut line);
        need(read.map_err(|error| error.to_string()));
        line.trim_end().into()
    }

    /// Lets it do something, and shows what it says.
    fn does(&mut self, what: &str) {
        self.says(what, what);
    }

    /// Lets it do something, and shows what it says by another name.
    fn says(&mut self, part: &str, what: &str) {
        let wrote = self.told.as_mut().map(|told| writeln!(told, "{what}"));
        need(wrote.transpose().map_err(|error| error.to_string()));
        line(part, self.reads());
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
    let bytes: Vec<_> = handle.0.iter().map(u8::to_string).collect();
    println!("{}", bytes.join(" "));
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

/// Calls with an event whose exporter is gone.
fn gone(handle: EventHandle, event: Handle) {
    line("query", event_query(event));
    line("open_again", open_event_handle(&mut 0, handle));
    let stream = stream();
    line("wait", ended(wait_for(stream, event), stream));
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
    ("open_own", || {
        let (code, handle) = handle(event(INTERPROCESS));
        answer([code, open_event_handle(&mut 0, handle)]);
    }),
    ("open_zeros", || {
        answer(open_event_handle(&mut 0, EventHandle([0; 64])))
    }),
    ("no_current", || {
        let event = event(INTERPROCESS);
        let (_, handle_of_other) = Peer::exporter();
        current(0);
        line("get", handle(event).0);
        line("open", open_event_handle(&mut 0, handle_of_other));
    }),
    ("unrecorded", || {
        let ((mut peer, _, event), stream) = (opened(), stream());
        line("query", event_query(event));
        line("wait", ended(wait_for(stream, event), stream));
        peer.says("exporter_query", "query");
    }),
    ("complete", || {
        let ((mut peer, _, event), stream) = (opened(), stream());
        peer.does("record");
        peer.says("exporter_synchronize", "synchronize");
        line("query", event_query(event));
        line("wait", ended(wait_for(stream, event), stream));
        line("synchronize", event_synchronize(event));
    }),
    ("pending", || {
        let ((mut peer, _, event), stream, words) = (opened(), stream(), Words::new());
        peer.does("park");
        peer.does("record");
        line("query", event_query(event));
        line("wait", wait_for(stream, event));
        mark(stream, words, 1);
        line("passes", marked_early(words, 1));
        peer.does("open");
        line("finishes", marked(words, 1));
        line("query_then", event_query(event));
    }),
    ("record_by_importer", || {
        let ((mut peer, _, event), stream, words) = (opened(), stream(), Words::new());
        park(stream, words, 0);
        line("record", event_record(event, stream));
        line("query", event_query(event));
        peer.says("exporter_query", "query");
        words.store(0, 1);
        line("then", [outcome(stream), event_query(event)]);
        peer.says("exporter_query_then", "query");
    }),
    // A wait, then a second record. Which one is waited for, and what is a query about?
    ("record_again", || {
        let ((mut peer, _, event), stream, words) = (opened(), stream(), Words::new());
        peer.does("record");
        peer.does("synchronize");
        park(stream, words, 0);
        line("wait", wait_for(stream, event));
        mark(stream, words, 1);
        peer.does("park");
        peer.says("record_again", "record");
        line("query", event_query(event));
        words.store(0, 1);
        line("waiter_finishes", marked(words, 1));
        peer.does("open");
    }),
    ("exporter_exits", || {
        let (mut peer, handle, event) = opened();
        peer.does("record");
        peer.does("synchronize");
        peer.ends();
        gone(handle, event)
    }),
    // The exporter is killed while its record is pending.
    ("exporter_killed", || {
        let (mut peer, handle, event) = opened();
        peer.does("park");
        peer.does("record");
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
        peer.does("record");
        line("destroy_first", event_destroy(first));
        let codes = [event_synchronize(second), event_query(second)];
        line("query_second", codes);
    }),
    ("importer_destroys", || {
        let (mut peer, handle, event) = opened();
        line("destroy", event_destroy(event));
        peer.does("record");
        peer.says("exporter_synchronize", "synchronize");
        line("open_again", open_event_handle(&mut 0, handle));
    }),
];
