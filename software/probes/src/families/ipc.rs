//! Events of other processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout};

use crate::cuda::{EventHandle, Handle, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, NO_TIMING, Words, check, context, event, mark, marked, marked_early, name, names,
    outcome, park, record, stream, yes,
};

pub(crate) fn list() -> Vec<Probe> {
    family!["ipc"; handle_kinds, handle_twice, open_own, open_zeros, open_ones, open_counting, unrecorded,
        complete, pending, record_by_importer, record_again, exporter_destroys, exporter_exits,
        exporter_killed, two_opens, importer_destroys, no_current, after_handle_elapsed, handle_of_opened]
}

/// `CU_EVENT_INTERPROCESS`, which needs events without timing.
const INTERPROCESS: u32 = 4 | NO_TIMING;

fn handle(event: Handle) -> (u32, EventHandle) {
    let mut handle = EventHandle([0; 64]);
    (cu().ipc_get_event_handle(&mut handle, event), handle)
}

fn handle_kinds() -> Answer {
    context()?;
    for flags in [0, NO_TIMING, INTERPROCESS, INTERPROCESS | 1] {
        line(format!("flags_{flags}"), name(handle(event(flags)?).0));
    }
    line("null", name(handle(0).0));
    Ok(String::new())
}

fn handle_twice() -> Answer {
    context()?;
    let event = event(INTERPROCESS)?;
    let (first, second) = (handle(event), handle(event));
    Ok(format!(
        "{}, same: {}",
        names(&[first.0, second.0]),
        yes(first.1.0 == second.1.0)
    ))
}

fn open_own() -> Answer {
    context()?;
    let (code, handle) = handle(event(INTERPROCESS)?);
    Ok(names(&[code, cu().ipc_open_event_handle(&mut 0, handle)]))
}

fn open_zeros() -> Answer {
    context()?;
    Ok(name(
        cu().ipc_open_event_handle(&mut 0, EventHandle([0; 64])),
    ))
}

fn open_ones() -> Answer {
    context()?;
    Ok(name(
        cu().ipc_open_event_handle(&mut 0, EventHandle([0xff; 64])),
    ))
}

fn open_counting() -> Answer {
    context()?;
    let mut bytes = [0; 64];
    for (byte, value) in bytes.iter_mut().zip(1..) {
        *byte = value;
    }
    Ok(name(cu().ipc_open_event_handle(&mut 0, EventHandle(bytes))))
}

/// Another process, which does what it is told.
struct Peer {
    process: Child,
    told: Option<ChildStdin>,
    tells: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts an exporter of an event.
    fn exporter() -> Result<(Self, EventHandle), String> {
        let mut process = crate::harness::peer("exporter")?;
        let told = process.stdin.take();
        let tells = BufReader::new(process.stdout.take().ok_or("no pipe")?);
        let mut peer = Self {
            process,
            told,
            tells,
        };
        let first = peer.reads()?;
        let Some(digits) = first.strip_prefix("handle ") else {
            return Err(format!("the exporter says: {first}"));
        };
        let mut bytes = [0; 64];
        for (index, byte) in bytes.iter_mut().enumerate() {
            let two = digits
                .get(2 * index..2 * index + 2)
                .ok_or("the handle is too short")?;
            *byte = u8::from_str_radix(two, 16).map_err(|error| error.to_string())?;
        }
        Ok((peer, EventHandle(bytes)))
    }

    fn reads(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.tells
            .read_line(&mut line)
            .map_err(|error| error.to_string())?;
        Ok(line.trim_end().into())
    }

    /// Lets it do something, and returns what it says.
    fn does(&mut self, what: &str) -> Result<String, String> {
        let told = self.told.as_mut().ok_or("no pipe")?;
        writeln!(told, "{what}").map_err(|error| error.to_string())?;
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
pub(crate) fn peer(part: &str) {
    if part == "exporter"
        && let Err(reason) = exporter()
    {
        println!("{reason}");
    }
}

fn exporter() -> Result<(), String> {
    context()?;
    let (event, stream, words) = (event(INTERPROCESS)?, stream()?, Words::new()?);
    let (code, handle) = handle(event);
    check("cuIpcGetEventHandle", code)?;
    let digits: Vec<_> = handle.0.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("handle {}", digits.concat());
    for order in std::io::stdin().lines().map_while(Result::ok) {
        let code = match order.as_str() {
            "record" => cu().event_record(event, stream),
            "park" => cu().stream_wait_value64(stream, words.at(0), 1, 0),
            "open" => {
                words.store(0, 1);
                outcome(stream)
            }
            "close" => {
                words.store(0, 0);
                0
            }
            "query" => cu().event_query(event),
            "synchronize" => cu().stream_synchronize(stream),
            "destroy" => cu().event_destroy(event),
            _ => return Ok(()),
        };
        println!("{}", name(code));
    }
    Ok(())
}

/// An exporter, and its event opened here.
fn opened() -> Result<(Peer, EventHandle, Handle), String> {
    context()?;
    let (peer, handle) = Peer::exporter()?;
    let mut event = 0;
    check(
        "cuIpcOpenEventHandle",
        cu().ipc_open_event_handle(&mut event, handle),
    )?;
    Ok((peer, handle, event))
}

fn unrecorded() -> Answer {
    let (mut peer, _, event) = opened()?;
    let stream = stream()?;
    line("query", name(cu().event_query(event)));
    line(
        "wait",
        names(&[cu().stream_wait_event(stream, event, 0), outcome(stream)]),
    );
    line("synchronize", name(cu().event_synchronize(event)));
    line("exporter_query", peer.does("query")?);
    Ok(String::new())
}

fn complete() -> Answer {
    let (mut peer, _, event) = opened()?;
    let stream = stream()?;
    line("record", peer.does("record")?);
    line("exporter_synchronize", peer.does("synchronize")?);
    line("query", name(cu().event_query(event)));
    line(
        "wait",
        names(&[cu().stream_wait_event(stream, event, 0), outcome(stream)]),
    );
    line("synchronize", name(cu().event_synchronize(event)));
    Ok(String::new())
}

fn pending() -> Answer {
    let (mut peer, _, event) = opened()?;
    let (stream, words) = (stream()?, Words::new()?);
    line("park", peer.does("park")?);
    line("record", peer.does("record")?);
    line("query", name(cu().event_query(event)));
    line("wait", name(cu().stream_wait_event(stream, event, 0)));
    mark(stream, words, 1)?;
    line("passes", yes(marked_early(words, 1)));
    line("open", peer.does("open")?);
    line("finishes", yes(marked(words, 1)));
    line("query_then", name(cu().event_query(event)));
    Ok(String::new())
}

fn record_by_importer() -> Answer {
    let (mut peer, _, event) = opened()?;
    let (stream, words) = (stream()?, Words::new()?);
    park(stream, words, 0)?;
    line("record", name(cu().event_record(event, stream)));
    line("query", name(cu().event_query(event)));
    line("exporter_query", peer.does("query")?);
    words.store(0, 1);
    line("then", names(&[outcome(stream), cu().event_query(event)]));
    line("exporter_query_then", peer.does("query")?);
    Ok(String::new())
}

/// A wait, then a second record. Which one is waited for, and what is a query about?
fn record_again() -> Answer {
    let (mut peer, _, event) = opened()?;
    let (stream, words) = (stream()?, Words::new()?);
    line("record", peer.does("record")?);
    line("synchronize", peer.does("synchronize")?);
    park(stream, words, 0)?;
    line("wait", name(cu().stream_wait_event(stream, event, 0)));
    mark(stream, words, 1)?;
    line("park", peer.does("park")?);
    line("record_again", peer.does("record")?);
    line("query", name(cu().event_query(event)));
    words.store(0, 1);
    line("waiter_finishes", yes(marked(words, 1)));
    line("open", peer.does("open")?);
    line("waiter_then", name(outcome(stream)));
    Ok(String::new())
}

fn exporter_destroys() -> Answer {
    let (mut peer, handle, event) = opened()?;
    line("record", peer.does("record")?);
    line("synchronize", peer.does("synchronize")?);
    line("destroy", peer.does("destroy")?);
    line("query", name(cu().event_query(event)));
    line(
        "open_again",
        name(cu().ipc_open_event_handle(&mut 0, handle)),
    );
    let stream = stream()?;
    line(
        "wait",
        names(&[cu().stream_wait_event(stream, event, 0), outcome(stream)]),
    );
    line(
        "record_here",
        names(&[cu().event_record(event, stream), outcome(stream)]),
    );
    line("destroy_here", name(cu().event_destroy(event)));
    Ok(String::new())
}

fn gone(mut peer: Peer, handle: EventHandle, event: Handle) -> Answer {
    peer.ends();
    line("query", name(cu().event_query(event)));
    line(
        "open_again",
        name(cu().ipc_open_event_handle(&mut 0, handle)),
    );
    let stream = stream()?;
    line(
        "wait",
        names(&[cu().stream_wait_event(stream, event, 0), outcome(stream)]),
    );
    line(
        "record_here",
        names(&[cu().event_record(event, stream), outcome(stream)]),
    );
    line("destroy_here", name(cu().event_destroy(event)));
    Ok(String::new())
}

fn exporter_exits() -> Answer {
    let (mut peer, handle, event) = opened()?;
    line("record", peer.does("record")?);
    line("synchronize", peer.does("synchronize")?);
    gone(peer, handle, event)
}

/// The exporter is killed while its record is pending.
fn exporter_killed() -> Answer {
    let (mut peer, handle, event) = opened()?;
    line("park", peer.does("park")?);
    line("record", peer.does("record")?);
    line("query_before", name(cu().event_query(event)));
    let _ = peer.process.kill();
    gone(peer, handle, event)
}

fn two_opens() -> Answer {
    let (mut peer, handle, first) = opened()?;
    let mut second = 0;
    line(
        "open",
        name(cu().ipc_open_event_handle(&mut second, handle)),
    );
    line("same", yes(first == second));
    line("record", peer.does("record")?);
    line("destroy_first", name(cu().event_destroy(first)));
    line(
        "query_second",
        names(&[cu().event_synchronize(second), cu().event_query(second)]),
    );
    Ok(String::new())
}

fn importer_destroys() -> Answer {
    let (mut peer, handle, event) = opened()?;
    line("destroy", name(cu().event_destroy(event)));
    line("record", peer.does("record")?);
    line("exporter_synchronize", peer.does("synchronize")?);
    line(
        "open_again",
        name(cu().ipc_open_event_handle(&mut 0, handle)),
    );
    Ok(String::new())
}

fn no_current() -> Answer {
    context()?;
    let event = event(INTERPROCESS)?;
    let (_, handle_of_other) = Peer::exporter()?;
    crate::kit::current(0)?;
    line("get", name(handle(event).0));
    line(
        "open",
        name(cu().ipc_open_event_handle(&mut 0, handle_of_other)),
    );
    Ok(String::new())
}

fn after_handle_elapsed() -> Answer {
    context()?;
    let (event, stream) = (event(INTERPROCESS)?, stream()?);
    record(event, stream)?;
    let _ = cu().stream_synchronize(stream);
    Ok(name(cu().event_elapsed_time(&mut 0.0, event, event)))
}

fn handle_of_opened() -> Answer {
    let (_peer, first, event) = opened()?;
    let (code, second) = handle(event);
    Ok(format!(
        "{}, same: {}",
        name(code),
        yes(code == 0 && first.0 == second.0)
    ))
}
