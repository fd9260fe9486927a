//! How many streams are independent of each other, and which are not.
//!
//! Streams share hardware connections. A stream that waits holds up each later command of its
//! connection.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

const COUNTS: [usize; 17] = [1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 32];
const LIMIT: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// How many streams there are of which one waits.
const STREAMS: usize = 34;

/// Semaphores that streams wait for.
type Semaphores = Vec<Imported>;

/// Keeps all streams but one waiting.
type Block = fn(&[Handle], Handle, Words) -> Semaphores;

/// How the streams are made, and what keeps all but one waiting until that one has worked.
#[derive(Clone, Copy)]
struct Way {
    waiting: fn() -> Handle,
    signalling: fn() -> Handle,
    /// The signalling stream is created first, and not last.
    is_first: bool,
    block: Block,
}

/// Waits for memory.
const PLAIN: Way = Way {
    waiting: stream,
    signalling: stream,
    is_first: false,
    block: |waiting, _, words| {
        waiting.iter().for_each(|stream| park(*stream, words, 0));
        Vec::new()
    },
};

const WAYS: &[(&str, Way)] = &[
    ("last", PLAIN),
    ("first", PLAIN.first()),
    ("urgent", PLAIN.with(stream, urgent)),
    ("urgent_waits", PLAIN.with(urgent, stream)),
    ("blocking", PLAIN.with(blocking, blocking)),
    ("kernel", PLAIN.behind(spin_in_all)),
    ("event", PLAIN.behind(wait_for_event)),
    ("external", PLAIN.behind(wait_for_semaphores)),
];

/// With limits of connections.
const LIMITED_WAYS: &[(&str, Way, &str)] = &[
    ("last_of_1", PLAIN, "1"),
    ("last_of_2", PLAIN, "2"),
    ("last_of_32", PLAIN, "32"),
    ("kernel_of_32", PLAIN.behind(spin_in_all), "32"),
];

impl Way {
    const fn first(self) -> Self {
        Self {
            is_first: true,
            ..self
        }
    }

    const fn with(self, waiting: fn() -> Handle, signalling: fn() -> Handle) -> Self {
        Self {
            waiting,
            signalling,
            ..self
        }
    }

    const fn behind(self, block: Block) -> Self {
        Self { block, ..self }
    }
}

/// A kernel spins in each stream.
fn spin_in_all(waiting: &[Handle], _: Handle, words: Words) -> Semaphores {
    // Loaded before anything is parked.
    kernel(c"spin");
    waiting.iter().for_each(|stream| spin(*stream, words, 0));
    Vec::new()
}

/// One stream waits for memory, the others for an event behind that.
fn wait_for_event(waiting: &[Handle], _: Handle, words: Words) -> Semaphores {
    let event = event(NO_TIMING);
    for (index, stream) in waiting.iter().enumerate() {
        if index == 0 {
            park(*stream, words, 0);
            record(event, *stream);
        } else {
            wait(*stream, event);
        }
    }
    Vec::new()
}

/// Waits for external semaphores, which CUDA signals.
fn wait_for_semaphores(waiting: &[Handle], signalling: Handle, _: Words) -> Semaphores {
    let wait = |stream: &Handle| {
        let semaphore = timeline();
        semaphore.wait(1, *stream);
        semaphore
    };
    let semaphores: Vec<_> = waiting.iter().map(wait).collect();
    semaphores
        .iter()
        .for_each(|semaphore| semaphore.signal(1, signalling));
    semaphores
}

/// How the streams are made of which the first waits.
type Made = fn() -> Vec<Handle>;
/// What another stream does, with its number, while one waits.
type Work = fn(&Kit, usize, Handle) -> Code;

fn write(kit: &Kit, index: usize, stream: Handle) -> Code {
    write_value64(stream, kit.words.at(index + 1), 1, 0)
}

const WORKS: &[(&str, Work)] = &[
    ("launch", |kit, index, stream| {
        launch(kit.put, stream, &[kit.words.at(index + 1), 1])
    }),
    ("memset", |kit, index, stream| {
        memset_d32_async(kit.words.at(index + 1), 1, 1, stream)
    }),
    ("copy", |kit, _, stream| {
        memcpy_htod_async(kit.memory, kit.words.host, 8, stream)
    }),
    ("record", |kit, _, stream| event_record(kit.event, stream)),
];

const MADE: &[(&str, Made)] = &[
    // Each second one has the greatest priority, the first has the least.
    ("mixed", || {
        (0..STREAMS)
            .map(|index| [stream, urgent][index % 2]())
            .collect()
    }),
    // The first has the greatest priority, the others have the least.
    ("urgent_first", || behind(urgent())),
    ("urgent", || (0..STREAMS).map(|_| urgent()).collect()),
    ("used_backwards", used_backwards),
    // Four have been created and destroyed before.
    ("behind_destroyed", || {
        streams(4)
            .into_iter()
            .for_each(|stream| check(stream_destroy(stream)));
        streams(STREAMS)
    }),
    // Between each two, another is created and destroyed.
    ("between_destroyed", || {
        let make = |_| {
            let one = stream();
            check(stream_destroy(stream()));
            one
        };
        (0..STREAMS).map(make).collect()
    }),
    ("legacy", || behind(1)),
    ("per_thread", || behind(2)),
    // The second half belongs to another context.
    ("other_context", || {
        let mut all = streams(STREAMS / 2);
        another_context();
        all.extend(streams(STREAMS / 2));
        all
    }),
];

pub(crate) fn list(all: &mut Probes) {
    let counts = COUNTS.map(|count| (format!("{count:02}"), count));
    let counts = counts
        .each_ref()
        .map(|(name, count)| (name.as_str(), *count));
    for (name, way) in WAYS {
        all.each(&format!("connections.{name}"), &counts, |count| {
            signalled(*way, count)
        });
    }
    for (name, way, limit) in LIMITED_WAYS {
        all.each(&format!("connections.{name}"), &counts, |count| {
            signalled(*way, count)
        });
        all.limit(COUNTS.len(), limit);
    }
    const HELD_UP: &str = "connections.held_up";
    all.each(HELD_UP, &[("write", 0)], |first| {
        held_up_by_writes(&streams(STREAMS), first)
    });
    all.each(HELD_UP, WORKS, |work| {
        held_up_by(&streams(STREAMS), 0, work);
    });
    all.each(HELD_UP, &[("external", 0)], |first| {
        let semaphore = timeline();
        let signal = |_: &Kit, index, stream| semaphore.signal_code(index as u64 + 1, stream);
        held_up_by(&streams(STREAMS), first, signal);
    });
    all.each(HELD_UP, MADE, |made| held_up_by_writes(&made(), 0));
    for (name, limit) in [("of_1", "1"), ("of_2", "2"), ("of_3", "3"), ("of_32", "32")] {
        all.each(HELD_UP, &[(name, 0)], |first| {
            held_up_by_writes(&streams(STREAMS), first)
        });
        all.limit(1, limit);
    }
    for first in [1, 2, 3, 7, 8, 9] {
        let case = [(&*format!("by_{first}"), first)];
        all.each(HELD_UP, &case, |first| {
            held_up_by_writes(&streams(STREAMS), first)
        });
    }
}

impl Probes {
    /// Sets the limit of connections for the last questions.
    fn limit(&mut self, count: usize, limit: &'static str) {
        for last in self.0.iter_mut().rev().take(count) {
            last.variable = Some((LIMIT, limit));
        }
    }
}

fn blocking() -> Handle {
    stream_with(0)
}

fn urgent() -> Handle {
    let (mut least, mut greatest, mut stream) = (0, 0, 0);
    check(ctx_priority_range(&mut least, &mut greatest));
    check(create_with_priority(&mut stream, 1, greatest));
    stream
}

fn behind(first: Handle) -> Vec<Handle> {
    let mut all = vec![first];
    all.extend(streams(STREAMS - 1));
    all
}

/// Used for the first time in the opposite order.
fn used_backwards() -> Vec<Handle> {
    let (streams, words) = (streams(STREAMS), Words::new());
    for stream in streams.iter().rev() {
        mark(*stream, words, 0);
        check(stream_synchronize(*stream));
    }
    streams
}

/// All streams but one wait for what that one does. Does this finish?
fn signalled(way: Way, count: usize) {
    let words = Words::new();
    let first = way.is_first.then(way.signalling);
    let waiting: Vec<_> = (1..count).map(|_| (way.waiting)()).collect();
    let signalling = first.unwrap_or_else(way.signalling);
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

/// What the work of a stream needs.
struct Kit {
    words: Words,
    put: Handle,
    memory: u64,
    event: Handle,
}

/// The streams that do not write while one of them waits. The writes must arrive.
fn held_up_by_writes(streams: &[Handle], first: usize) {
    let words = held_up_by(streams, first, write);
    if !marked(words, if first == 1 { 1 } else { 2 }) {
        line("written", "no");
    }
}

/// The streams that do not work while one of them waits. Returns the words of the work.
///
/// Streams are called by their number in the order in which they were created.
fn held_up_by(
    streams: &[Handle],
    first: usize,
    work: impl Fn(&Kit, usize, Handle) -> Code,
) -> Words {
    let kit = Kit {
        words: Words::new(),
        put: kernel(c"put"),
        memory: alloc(4096),
        event: event(NO_TIMING),
    };
    park(streams[first], kit.words, 0);
    // One after the other, so that a stream is held up by the first only.
    let mut held_up = Vec::new();
    for (index, stream) in streams
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != first)
    {
        check(work(&kit, index, *stream));
        if !within(150, || stream_query(*stream) == 0) {
            held_up.push(index.to_string());
        }
    }
    kit.words.store(0, 1);
    if !streams.iter().all(|stream| finishes(*stream)) {
        line("finish_afterwards", "no");
    }
    answer(match held_up.is_empty() {
        true => "none".into(),
        false => held_up.join(" "),
    });
    kit.words
}
