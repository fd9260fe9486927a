//! How many commands a stream takes behind a wait, before the call blocks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

/// A stream that has taken so many takes any number.
const MOST: usize = 5000;

/// What is enqueued in a stream.
type Command = fn(&Kit, Handle) -> Code;

const MEMSET: Command = |kit, stream| fill(kit.memory, stream);

const COMMANDS: Table<Command> = &[
    ("memset", MEMSET),
    ("launch", |kit, stream| launch(kit.nop, stream, &[])),
    ("copy_pinned", |kit, stream| {
        memcpy_htod_async(kit.memory, kit.words.host + 512, 64, stream)
    }),
    ("copy_pageable", |kit, stream| {
        memcpy_htod_async(kit.memory, kit.pageable, 64, stream)
    }),
    ("write_value", |kit, stream| {
        write_value64(stream, kit.words.at(8), 1, 0)
    }),
    ("wait_value", |kit, stream| {
        wait_value64(stream, kit.words.at(0), 1, 0)
    }),
    ("batch_of_2", |kit, stream| {
        let [waited, written] = [9, 8].map(|index| kit.words.at(index));
        let ops = [wait_op(waited, 0, 0), write_op(written, 1, 0)];
        batch(stream, &ops, 0)
    }),
    ("record", |kit, stream| event_record(kit.event, stream)),
    ("record_timed", |kit, stream| {
        event_record(kit.timed, stream)
    }),
    ("wait_event_pending", |kit, stream| {
        wait_for(stream, kit.pending)
    }),
    ("host_function", |_, stream| {
        launch_host_func(stream, nothing, 0)
    }),
    ("graph_launch", |kit, stream| {
        graph_launch(kit.graph, stream)
    }),
];

pub(crate) fn list(all: &mut Probes) {
    const ONE: Table<Command> = &[("memset", MEMSET)];
    all.each("capacity.one", COMMANDS, |command| {
        let (kit, stream) = (Kit::new(), stream());
        park(stream, kit.words, 0);
        answer(kit.count(&[stream], |_, stream| command(&kit, stream)));
    });
    all.each("capacity.one", &[("external_signal", ())], |()| {
        let (kit, stream, semaphore) = (Kit::new(), stream(), timeline());
        park(stream, kit.words, 0);
        let signal = |number, stream| semaphore.signal_code(number + 1, stream);
        answer(kit.count(&[stream], signal));
    });
    all.each("capacity.behind_kernel", ONE, |command| {
        let (kit, stream) = (Kit::new(), stream());
        spin(stream, kit.words, 0);
        answer(kit.count(&[stream], |_, stream| command(&kit, stream)));
    });
    // All streams wait, and take commands in turn.
    all.each("capacity.of_64_streams", ONE, |command| {
        let (kit, streams) = (Kit::new(), streams(64));
        for stream in &streams {
            park(*stream, kit.words, 0);
        }
        answer(kit.count(&streams, |_, stream| command(&kit, stream)));
    });
}

/// What the commands need.
struct Kit {
    words: Words,
    memory: u64,
    pageable: usize,
    nop: Handle,
    event: Handle,
    timed: Handle,
    pending: Handle,
    graph: Handle,
}

impl Kit {
    fn new() -> Self {
        kernel(c"spin");
        let kit = Self {
            words: Words::new(),
            memory: alloc(4096),
            pageable: leak(4096),
            nop: kernel(c"nop"),
            event: event(NO_TIMING),
            timed: event(0),
            pending: event(NO_TIMING),
            graph: memset_graph().1,
        };
        let side = stream();
        park(side, kit.words, 0);
        record(kit.pending, side);
        kit
    }

    /// Counts the calls with which these streams take a command in turn, before one blocks.
    ///
    /// A call blocks if it takes 2 seconds. Then the streams are released.
    fn count(&self, streams: &[Handle], command: impl Fn(u64, Handle) -> Code) -> String {
        let (words, over) = (self.words, AtomicBool::new(false));
        let taken = AtomicUsize::new(0);
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
                        return format!("blocks after {last}");
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
                format!("does not block within {MOST}")
            });
            for number in 0..MOST {
                let stream = streams[number % streams.len()];
                check(command(number as u64, stream));
                if words.load(0) != 0 {
                    break;
                }
                taken.fetch_add(1, Ordering::SeqCst);
            }
            over.store(true, Ordering::SeqCst);
            words.store(0, 1);
            need(watch.join().map_err(|_| "a thread has panicked".into()))
        })
    }
}
