//! How many commands a stream takes behind a wait, before the call blocks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

/// A stream that has taken so many takes any number.
const MOST: usize = 5000;

/// What must be ready before a stream waits, and the command with its number and its stream.
#[derive(Clone, Copy)]
struct Command {
    prepare: fn(&mut Kit),
    enqueue: fn(&Kit, usize, Handle) -> Code,
}

const fn plain(enqueue: fn(&Kit, usize, Handle) -> Code) -> Command {
    Command {
        prepare: |_| (),
        enqueue,
    }
}

const MEMSET: Command = plain(|kit, _, stream| memset_d32_async(kit.memory, 1, 16, stream));
const LAUNCH: Command = plain(|kit, _, stream| launch(kit.nop, stream, &[]));

const COMMANDS: &[(&str, Command)] = &[
    ("memset", MEMSET),
    ("launch", LAUNCH),
    (
        "copy_device",
        plain(|kit, _, stream| memcpy_dtod_async(kit.memory + 2048, kit.memory, 64, stream)),
    ),
    (
        "copy_pinned",
        plain(|kit, _, stream| memcpy_htod_async(kit.memory, kit.words.host + 512, 64, stream)),
    ),
    (
        "copy_pageable",
        plain(|kit, _, stream| memcpy_htod_async(kit.memory, kit.pageable, 64, stream)),
    ),
    (
        "write_value",
        plain(|kit, _, stream| write_value64(stream, kit.words.at(8), 1, 0)),
    ),
    (
        "wait_value",
        plain(|kit, _, stream| wait_value64(stream, kit.words.at(0), 1, 0)),
    ),
    (
        "wait_value_done",
        plain(|kit, _, stream| wait_value64(stream, kit.words.at(9), 0, 0)),
    ),
    (
        "batch_of_2",
        plain(|kit, _, stream| {
            let words = kit.words;
            batch(
                stream,
                &[wait_op(words.at(9), 0, 0), write_op(words.at(8), 1, 0)],
                0,
            )
        }),
    ),
    (
        "record",
        plain(|kit, _, stream| event_record(kit.event, stream)),
    ),
    (
        "record_timed",
        plain(|kit, _, stream| event_record(kit.timed, stream)),
    ),
    (
        "record_fresh",
        plain(|_, _, stream| event_record(event(NO_TIMING), stream)),
    ),
    (
        "wait_event_complete",
        plain(|kit, _, stream| stream_wait_event(stream, kit.complete, 0)),
    ),
    (
        "wait_event_pending",
        Command {
            prepare: |kit| {
                park(kit.side, kit.words, 0);
                record(kit.event, kit.side);
            },
            enqueue: |kit, _, stream| stream_wait_event(stream, kit.event, 0),
        },
    ),
    (
        "host_function",
        plain(|_, _, stream| launch_host_func(stream, nothing, 0)),
    ),
    (
        "external_signal",
        Command {
            prepare: |kit| {
                kit.semaphore = Some(timeline());
            },
            enqueue: |kit, number, stream| match &kit.semaphore {
                Some(semaphore) => semaphore.signal_code(number as u64 + 1, stream),
                None => stop("not asked: no semaphore"),
            },
        },
    ),
    (
        "graph_launch",
        plain(|kit, _, stream| graph_launch(kit.graph, stream)),
    ),
];

pub(crate) fn list(all: &mut Probes) {
    const TWO: &[(&str, Command)] = &[("memset", MEMSET), ("launch", LAUNCH)];
    all.each("capacity.one", COMMANDS, |command| one(command, park));
    all.each("capacity.behind_wait32", TWO, |command| {
        one(command, |stream, words, index| {
            check(wait_value32(stream, words.at(index), 1, 0));
        });
    });
    all.each("capacity.behind_kernel", TWO, |command| one(command, spin));
    all.each("capacity.of_64_streams", TWO, many);
    for (name, command) in TWO {
        for other in [1, 2, 7, 8, 9, 16] {
            let name = format!("{name}_on_{other:02}");
            let case = [(name.as_str(), *command)];
            all.each("capacity.after_600_on_0", &case, move |command| {
                shared(command, other)
            });
        }
    }
}

/// What the commands need.
struct Kit {
    words: Words,
    memory: u64,
    pageable: usize,
    nop: Handle,
    side: Handle,
    event: Handle,
    timed: Handle,
    complete: Handle,
    graph: Handle,
    semaphore: Option<Imported>,
}

impl Kit {
    fn new(command: Command) -> Self {
        kernel(c"spin");
        let mut kit = Self {
            words: Words::new(),
            memory: alloc(4096),
            pageable: leak(4096),
            nop: kernel(c"nop"),
            side: stream(),
            event: event(NO_TIMING),
            timed: event(0),
            complete: event(NO_TIMING),
            graph: memset_graph().1,
            semaphore: None,
        };
        record(kit.complete, kit.side);
        check(stream_synchronize(kit.side));
        (command.prepare)(&mut kit);
        kit
    }

    /// Counts the calls with which these streams take a command in turn.
    fn count(&self, command: Command, streams: &[Handle]) -> String {
        count(self.words, |number| {
            (command.enqueue)(self, number, streams[number % streams.len()])
        })
    }
}

/// Counts the calls that return before one blocks. A call blocks if it takes 2 seconds. Then the
/// stream is released.
fn count(words: Words, call: impl Fn(usize) -> Code) -> String {
    let (taken, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut last, mut since) = (0, Instant::now());
            while !over.load(Ordering::SeqCst) {
                let now = taken.load(Ordering::SeqCst);
                if now != last {
                    (last, since) = (now, Instant::now());
                }
                if since.elapsed() > Duration::from_secs(2) {
                    words.store(0, 1);
                    return Some(last);
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            None
        });
        let mut failed = None;
        while taken.load(Ordering::SeqCst) < MOST && words.load(0) == 0 {
            let code = call(taken.load(Ordering::SeqCst));
            if code != 0 {
                failed = Some(code);
                break;
            }
            taken.fetch_add(1, Ordering::SeqCst);
        }
        over.store(true, Ordering::SeqCst);
        let blocked = watch.join().unwrap_or_default();
        words.store(0, 1);
        match (failed, blocked) {
            (Some(code), _) => format!("code {code} after {}", taken.load(Ordering::SeqCst)),
            (None, Some(count)) => format!("blocks after {count}"),
            (None, None) => format!("does not block within {MOST}"),
        }
    })
}

/// Counts twice, each time on a new stream: an answer that varies is not compared.
fn one(command: Command, block: fn(Handle, Words, usize)) {
    let [first, second] = [(); 2].map(|()| {
        let (kit, stream) = (Kit::new(command), stream());
        block(stream, kit.words, 0);
        let counted = kit.count(command, &[stream]);
        check(stream_synchronize(stream));
        counted
    });
    answer(match first == second {
        true => first,
        false => format!("~{first}, then {second}"),
    });
}

/// All streams wait, and take commands in turn.
fn many(command: Command) {
    let (kit, streams) = (Kit::new(command), streams(64));
    for stream in &streams {
        park(*stream, kit.words, 0);
    }
    answer(kit.count(command, &streams));
}

/// Stream 0 waits and takes 600 commands. Then another stream, which waits too, takes as many as it
/// can.
fn shared(command: Command, other: usize) {
    let (kit, streams) = (Kit::new(command), streams(17));
    park(streams[0], kit.words, 0);
    park(streams[other], kit.words, 0);
    for number in 0..600 {
        check((command.enqueue)(&kit, number, streams[0]));
    }
    answer(kit.count(command, &[streams[other]]));
}
