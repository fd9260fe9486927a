//! How many streams are independent of each other, and which are not.
//!
//! Streams share hardware connections. A stream that waits holds up each later command of its
//! connection.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

/// How many streams there are of which one waits.
const STREAMS: usize = 34;

pub(crate) fn list(all: &mut Probes) {
    // The last count of streams that finish, and the first that hangs.
    const EIGHT: Table<usize> = &[("08", 8), ("09", 9)];
    for (name, way) in WAYS {
        all.each(&format!("connections.{name}"), EIGHT, |count| {
            signalled(*way, count)
        });
    }
    const LIMITED: &[(&str, &str, Table<usize>)] = &[
        ("last_of_1", "1", &[("01", 1), ("02", 2)]),
        ("last_of_2", "2", &[("02", 2), ("04", 4)]),
        ("last_of_32", "32", &[("32", 32)]),
    ];
    for (name, limit, counts) in LIMITED {
        all.each_bare(&format!("connections.{name}"), counts, |count| {
            limited(limit);
            signalled(PLAIN, count);
        });
    }
    all.each("connections.held_up", MADE, |make| held_up(&make()));
    all.each_bare("connections.held_up", &[("of_1", "1")], |limit| {
        limited(limit);
        held_up(&streams(STREAMS));
    });
}

/// The primary context with this many connections.
fn limited(limit: &str) {
    // SAFETY: this process has no other thread yet.
    unsafe { std::env::set_var(MAX_CONNECTIONS, limit) };
    context();
}

/// How the streams are made, and what keeps all but one waiting until that one has worked.
#[derive(Clone, Copy)]
struct Way {
    signalling: fn() -> Handle,
    block: fn(&[Handle], Handle, Words) -> Vec<Imported>,
}

/// Waits for memory.
const PLAIN: Way = Way {
    signalling: stream,
    block: |waiting, _, words| {
        waiting.iter().for_each(|stream| park(*stream, words, 0));
        Vec::new()
    },
};

const WAYS: Table<Way> = &[
    ("last", PLAIN),
    (
        "urgent",
        Way {
            signalling: urgent,
            ..PLAIN
        },
    ),
    (
        "kernel",
        Way {
            block: |waiting, _, words| {
                // Loaded before anything is parked.
                kernel(c"spin");
                waiting.iter().for_each(|stream| spin(*stream, words, 0));
                Vec::new()
            },
            ..PLAIN
        },
    ),
    // One stream waits for memory, the others for an event behind that.
    (
        "event",
        Way {
            block: |waiting, _, words| {
                let event = event(NO_TIMING);
                park(waiting[0], words, 0);
                record(event, waiting[0]);
                waiting[1..].iter().for_each(|stream| wait(*stream, event));
                Vec::new()
            },
            ..PLAIN
        },
    ),
    // CUDA signals what the streams wait for.
    (
        "external",
        Way {
            block: |waiting, signalling, _| {
                let semaphores: Vec<_> = waiting.iter().map(|_| timeline()).collect();
                for (semaphore, stream) in semaphores.iter().zip(waiting) {
                    semaphore.wait(1, *stream);
                }
                for semaphore in &semaphores {
                    semaphore.signal(1, signalling);
                }
                semaphores
            },
            ..PLAIN
        },
    ),
];

const MADE: Table<fn() -> Vec<Handle>> = &[
    ("write", || streams(STREAMS)),
    // The first has the greatest priority, the others have the least.
    ("urgent_first", || {
        [vec![urgent()], streams(STREAMS - 1)].concat()
    }),
    ("legacy", || [vec![1], streams(STREAMS - 1)].concat()),
    // The second half belongs to another context.
    ("other_context", || {
        let first = streams(STREAMS / 2);
        another_context();
        [first, streams(STREAMS / 2)].concat()
    }),
];

fn urgent() -> Handle {
    let (mut least, mut greatest, mut stream) = (0, 0, 0);
    check(ctx_priority_range(&mut least, &mut greatest));
    check(create_with_priority(&mut stream, 1, greatest));
    stream
}

/// All streams but one wait for what that one does. Does this finish?
fn signalled(way: Way, count: usize) {
    let (words, waiting) = (Words::new(), streams(count - 1));
    let signalling = (way.signalling)();
    let semaphores = (way.block)(&waiting, signalling, words);
    mark(signalling, words, 0);
    let finished = within(SOON, || {
        let mut all = waiting.iter().chain([&signalling]);
        all.all(|stream| stream_query(*stream) == 0)
    });
    words.store(0, 1);
    for semaphore in &semaphores {
        let _ = semaphore.signal_host(1);
    }
    answer(if finished { "finishes" } else { "hangs" });
}

/// The streams that do not write while the first one waits.
///
/// Streams are called by their number in the order in which they were created.
fn held_up(streams: &[Handle]) {
    let words = Words::new();
    park(streams[0], words, 0);
    // One after the other, so that a stream is held up by the first only.
    let mut held_up = Vec::new();
    for (index, stream) in streams.iter().enumerate().skip(1) {
        mark(*stream, words, index + 1);
        if !within(150, || stream_query(*stream) == 0) {
            held_up.push(index.to_string());
        }
    }
    words.store(0, 1);
    if !streams.iter().all(|stream| finishes(*stream)) || !marked(words, 2) {
        line("finish_afterwards", "no");
    }
    answer(match held_up.is_empty() {
        true => "none".into(),
        false => held_up.join(" "),
    });
}
