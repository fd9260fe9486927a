//! How many streams are independent of each other, and which are not.
//!
//! Streams share hardware connections. A stream that waits holds up each later command of its
//! connection.

use crate::cuda::{Handle, cu};
use crate::harness::{Probe, line};
use crate::kit::{
    Answer, NO_TIMING, Words, alloc, check, context, event, kernel, launch, mark, marked, park,
    record, spin, stream, stream_with, streams, within, yes,
};
use crate::vulkan::Vulkan;

const COUNTS: &[usize] = &[1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 32];
const LIMIT: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// What keeps the streams waiting, and how the stream that ends this was made.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// Waits for memory. The signalling stream is created last.
    Last,
    /// The signalling stream is created first.
    First,
    /// The signalling stream has the greatest priority and is created last.
    Urgent,
    /// The waiting streams have the greatest priority.
    UrgentWaits,
    /// The streams synchronize with the legacy stream.
    Blocking,
    /// A kernel spins in each stream.
    Kernel,
    /// One stream waits for memory, the others for an event behind that.
    Event,
    /// Waits for external semaphores, which CUDA signals.
    External,
}

/// What the other streams do while one waits.
#[derive(Clone, Copy)]
enum Work {
    Write,
    Launch,
    Memset,
    Copy,
    Record,
    External,
}

/// How the streams are made of which the first waits.
#[derive(Clone, Copy)]
enum Made {
    Plainly,
    /// Each second one has the greatest priority, the first has the least.
    Mixed,
    /// The first has the greatest priority, the others have the least.
    UrgentFirst,
    /// All have the greatest priority.
    Urgent,
    /// Used for the first time in the opposite order.
    UsedBackwards,
    /// Four have been created and destroyed before.
    BehindDestroyed,
    /// Between each two, another is created and destroyed.
    BetweenDestroyed,
    /// It is the legacy stream that waits.
    Legacy,
    /// It is the stream of the thread that waits.
    PerThread,
    /// The second half belongs to another context.
    OtherContext,
}

pub(crate) fn list() -> Vec<Probe> {
    let mut list = Vec::new();
    let ways = [
        ("last", Way::Last, None),
        ("first", Way::First, None),
        ("urgent", Way::Urgent, None),
        ("urgent_waits", Way::UrgentWaits, None),
        ("blocking", Way::Blocking, None),
        ("kernel", Way::Kernel, None),
        ("event", Way::Event, None),
        ("external", Way::External, None),
        ("last_of_1", Way::Last, Some("1")),
        ("last_of_2", Way::Last, Some("2")),
        ("last_of_32", Way::Last, Some("32")),
        ("kernel_of_32", Way::Kernel, Some("32")),
    ];
    for (name, way, limit) in ways {
        for count in COUNTS {
            let probe = Probe::new(format!("connections.{name}.{count:02}"), move || {
                signalled(way, *count)
            });
            list.push(match limit {
                Some(limit) => probe.with(LIMIT, limit),
                None => probe,
            });
        }
    }
    let held = [
        ("write", Made::Plainly, Work::Write, None),
        ("launch", Made::Plainly, Work::Launch, None),
        ("memset", Made::Plainly, Work::Memset, None),
        ("copy", Made::Plainly, Work::Copy, None),
        ("record", Made::Plainly, Work::Record, None),
        ("external", Made::Plainly, Work::External, None),
        ("mixed", Made::Mixed, Work::Write, None),
        ("urgent_first", Made::UrgentFirst, Work::Write, None),
        ("urgent", Made::Urgent, Work::Write, None),
        ("used_backwards", Made::UsedBackwards, Work::Write, None),
        ("behind_destroyed", Made::BehindDestroyed, Work::Write, None),
        (
            "between_destroyed",
            Made::BetweenDestroyed,
            Work::Write,
            None,
        ),
        ("legacy", Made::Legacy, Work::Write, None),
        ("per_thread", Made::PerThread, Work::Write, None),
        ("other_context", Made::OtherContext, Work::Write, None),
        ("of_1", Made::Plainly, Work::Write, Some("1")),
        ("of_2", Made::Plainly, Work::Write, Some("2")),
        ("of_3", Made::Plainly, Work::Write, Some("3")),
        ("of_32", Made::Plainly, Work::Write, Some("32")),
    ];
    for (name, made, work, limit) in held {
        let probe = Probe::new(format!("connections.held_up.{name}"), move || {
            held_up(made, work)
        });
        list.push(match limit {
            Some(limit) => probe.with(LIMIT, limit),
            None => probe,
        });
    }
    for first in [1, 2, 3, 7, 8, 9] {
        list.push(Probe::new(
            format!("connections.held_up.by_{first}"),
            move || {
                context()?;
                held_up_by(&streams(34)?, first, Work::Write)
            },
        ));
    }
    list
}

fn urgent() -> Result<Handle, String> {
    let (mut least, mut greatest, mut stream) = (0, 0, 0);
    check(
        "cuCtxGetStreamPriorityRange",
        cu().ctx_priority_range(&mut least, &mut greatest),
    )?;
    let code = cu().stream_create_with_priority(&mut stream, 1, greatest);
    check("cuStreamCreateWithPriority", code)?;
    Ok(stream)
}

/// All streams but one wait for what that one does. Does this finish?
fn signalled(way: Way, count: usize) -> Answer {
    context()?;
    let words = Words::new()?;
    let first = if way == Way::First {
        Some(stream()?)
    } else {
        None
    };
    let mut waiting = Vec::new();
    for _ in 1..count {
        waiting.push(match way {
            Way::UrgentWaits => urgent()?,
            Way::Blocking => stream_with(0)?,
            _ => stream()?,
        });
    }
    let last = match way {
        Way::First => first.unwrap_or_default(),
        Way::Urgent => urgent()?,
        Way::Blocking => stream_with(0)?,
        _ => stream()?,
    };
    let mut vulkan = None;
    match way {
        Way::Kernel => {
            // Loaded before anything is parked.
            kernel(c"spin")?;
            for stream in &waiting {
                spin(*stream, words, 0)?;
            }
        }
        Way::Event => {
            let event = event(NO_TIMING)?;
            for (index, stream) in waiting.iter().enumerate() {
                if index == 0 {
                    park(*stream, words, 0)?;
                    record(event, *stream)?;
                } else {
                    let code = cu().stream_wait_event(*stream, event, 0);
                    check("cuStreamWaitEvent", code)?;
                }
            }
        }
        Way::External => {
            let device = match Vulkan::open() {
                Ok(device) => device,
                Err(reason) => return Ok(reason),
            };
            let mut semaphores = Vec::new();
            for stream in &waiting {
                let semaphore = device.imported_timeline()?;
                semaphore.wait(1, *stream)?;
                semaphores.push(semaphore);
            }
            for semaphore in &semaphores {
                semaphore.signal(1, last)?;
            }
            vulkan = Some((device, semaphores));
        }
        _ => {
            for stream in &waiting {
                park(*stream, words, 0)?;
            }
        }
    }
    mark(last, words, 0)?;
    let finished = within(3000, || {
        cu().stream_query(last) == 0 && waiting.iter().all(|stream| cu().stream_query(*stream) == 0)
    });
    words.store(0, 1);
    if let Some((device, semaphores)) = vulkan {
        for semaphore in &semaphores {
            let _ = device.signal_host(semaphore.vulkan(), 1);
        }
    }
    Ok(if finished { "finishes" } else { "hangs" }.into())
}

/// The streams that do not work while one of them waits.
fn held_up(made: Made, work: Work) -> Answer {
    const COUNT: usize = 34;
    context()?;
    let streams = match made {
        Made::Plainly | Made::UsedBackwards => streams(COUNT)?,
        Made::Mixed => (0..COUNT)
            .map(|index| if index % 2 == 0 { stream() } else { urgent() })
            .collect::<Result<_, _>>()?,
        Made::UrgentFirst => {
            let mut all = vec![urgent()?];
            all.extend(streams(COUNT - 1)?);
            all
        }
        Made::Urgent => (0..COUNT).map(|_| urgent()).collect::<Result<_, _>>()?,
        Made::BehindDestroyed => {
            for stream in streams(4)? {
                check("cuStreamDestroy", cu().stream_destroy(stream))?;
            }
            streams(COUNT)?
        }
        Made::BetweenDestroyed => {
            let mut all = Vec::new();
            for _ in 0..COUNT {
                all.push(stream()?);
                check("cuStreamDestroy", cu().stream_destroy(stream()?))?;
            }
            all
        }
        Made::Legacy | Made::PerThread => {
            let mut all = vec![if matches!(made, Made::Legacy) { 1 } else { 2 }];
            all.extend(streams(COUNT - 1)?);
            all
        }
        Made::OtherContext => {
            let mut all = streams(COUNT / 2)?;
            crate::kit::another_context()?;
            all.extend(streams(COUNT / 2)?);
            all
        }
    };
    if matches!(made, Made::UsedBackwards) {
        let words = Words::new()?;
        for stream in streams.iter().rev() {
            mark(*stream, words, 0)?;
            check("cuStreamSynchronize", cu().stream_synchronize(*stream))?;
        }
    }
    held_up_by(&streams, 0, work)
}

/// Streams are called by their number in the order in which they were created.
fn held_up_by(streams: &[Handle], first: usize, work: Work) -> Answer {
    let words = Words::new()?;
    let (put, memory) = (kernel(c"put")?, alloc(4096)?);
    let mut vulkan = None;
    if matches!(work, Work::External) {
        vulkan = match Vulkan::open() {
            Ok(device) => {
                let semaphore = device.imported_timeline()?;
                Some((device, semaphore))
            }
            Err(reason) => return Ok(reason),
        };
    }
    let event = event(NO_TIMING)?;
    park(streams[first], words, 0)?;
    // One after the other, so that a stream is held up by the first only.
    let mut held_up = Vec::new();
    for (index, stream) in streams.iter().copied().enumerate() {
        if index == first {
            continue;
        }
        let word = words.at(index + 1);
        let code = match work {
            Work::Write => cu().stream_write_value64(stream, word, 1, 0),
            Work::Launch => launch(put, stream, &[word, 1]),
            Work::Memset => cu().memset_d32_async(word, 1, 1, stream),
            Work::Copy => cu().memcpy_htod_async(memory, words.host, 8, stream),
            Work::Record => cu().event_record(event, stream),
            Work::External => match &vulkan {
                Some((_, semaphore)) => semaphore.signal_code(index as u64 + 1, stream),
                None => 0,
            },
        };
        check("the work of a stream", code)?;
        if !within(150, || cu().stream_query(stream) == 0) {
            held_up.push(index);
        }
    }
    words.store(0, 1);
    let finish = streams
        .iter()
        .all(|stream| within(3000, || cu().stream_query(*stream) == 0));
    if !finish {
        line("finish_afterwards", yes(finish));
    }
    if matches!(work, Work::Write) && !marked(words, if first == 1 { 1 } else { 2 }) {
        line("written", "no");
    }
    let held_up: Vec<_> = held_up.iter().map(ToString::to_string).collect();
    Ok(if held_up.is_empty() {
        "none".into()
    } else {
        held_up.join(" ")
    })
}
