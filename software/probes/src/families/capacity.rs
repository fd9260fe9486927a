//! How many commands a stream takes behind a wait, before the call blocks.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::cuda::{Handle, cu};
use crate::harness::Probe;
use crate::kit::{
    Answer, NO_TIMING, Words, alloc, check, context, event, kernel, launch, park, record, spin,
    stream, streams, wait_op,
};
use crate::vulkan::{Imported, Vulkan};

/// A stream that has taken so many takes any number.
const MOST: usize = 5000;

#[derive(Clone, Copy)]
enum Command {
    Memset,
    Launch,
    CopyDevice,
    CopyPinned,
    CopyPageable,
    Write,
    Wait,
    WaitDone,
    Batch,
    Record,
    RecordTimed,
    RecordFresh,
    WaitEvent,
    WaitOther,
    HostFunction,
    Signal,
    GraphLaunch,
}

const COMMANDS: &[(&str, Command)] = &[
    ("memset", Command::Memset),
    ("launch", Command::Launch),
    ("copy_device", Command::CopyDevice),
    ("copy_pinned", Command::CopyPinned),
    ("copy_pageable", Command::CopyPageable),
    ("write_value", Command::Write),
    ("wait_value", Command::Wait),
    ("wait_value_done", Command::WaitDone),
    ("batch_of_2", Command::Batch),
    ("record", Command::Record),
    ("record_timed", Command::RecordTimed),
    ("record_fresh", Command::RecordFresh),
    ("wait_event_complete", Command::WaitEvent),
    ("wait_event_pending", Command::WaitOther),
    ("host_function", Command::HostFunction),
    ("external_signal", Command::Signal),
    ("graph_launch", Command::GraphLaunch),
];

pub(crate) fn list() -> Vec<Probe> {
    let mut list = Vec::new();
    for (name, command) in COMMANDS {
        list.push(Probe::new(format!("capacity.one.{name}"), move || {
            one(*command, BlockedBy::Wait)
        }));
    }
    for (name, command) in [("memset", Command::Memset), ("launch", Command::Launch)] {
        list.push(Probe::new(
            format!("capacity.behind_wait32.{name}"),
            move || one(command, BlockedBy::Wait32),
        ));
        list.push(Probe::new(
            format!("capacity.behind_kernel.{name}"),
            move || one(command, BlockedBy::Kernel),
        ));
        list.push(Probe::new(
            format!("capacity.of_64_streams.{name}"),
            move || many(command),
        ));
        for other in [1, 2, 7, 8, 9, 16] {
            list.push(Probe::new(
                format!("capacity.after_600_on_0.{name}_on_{other:02}"),
                move || shared(command, other),
            ));
        }
    }
    list
}

#[derive(Clone, Copy)]
enum BlockedBy {
    Wait,
    Wait32,
    Kernel,
}

/// What the commands need.
struct Kit {
    words: Words,
    memory: u64,
    pageable: usize,
    nop: Handle,
    event: Handle,
    timed: Handle,
    complete: Handle,
    pending: Handle,
    graph: Handle,
    external: Option<(Vulkan, Imported)>,
}

impl Kit {
    fn new(command: Command) -> Result<Self, String> {
        context()?;
        kernel(c"spin")?;
        let words = Words::new()?;
        let (complete, pending) = (event(NO_TIMING)?, event(NO_TIMING)?);
        let side = stream()?;
        record(complete, side)?;
        check("cuStreamSynchronize", cu().stream_synchronize(side))?;
        let mut external = None;
        if matches!(command, Command::Signal) {
            let device = Vulkan::open()?;
            let semaphore = device.imported_timeline()?;
            external = Some((device, semaphore));
        }
        let kit = Self {
            words,
            memory: alloc(4096)?,
            pageable: Box::leak(Box::new([0_u64; 512])).as_ptr() as usize,
            nop: kernel(c"nop")?,
            event: event(NO_TIMING)?,
            timed: event(0)?,
            complete,
            pending,
            graph: graph(side)?,
            external,
        };
        if matches!(command, Command::WaitOther) {
            park(side, words, 0)?;
            record(kit.pending, side)?;
        }
        Ok(kit)
    }

    fn enqueue(&self, command: Command, number: usize, stream: Handle) -> u32 {
        let word = self.words.at(8);
        match command {
            Command::Memset => cu().memset_d32_async(self.memory, 1, 16, stream),
            Command::Launch => launch(self.nop, stream, &[]),
            Command::CopyDevice => {
                cu().memcpy_dtod_async(self.memory + 2048, self.memory, 64, stream)
            }
            Command::CopyPinned => {
                cu().memcpy_htod_async(self.memory, self.words.host + 512, 64, stream)
            }
            Command::CopyPageable => cu().memcpy_htod_async(self.memory, self.pageable, 64, stream),
            Command::Write => cu().stream_write_value64(stream, word, 1, 0),
            Command::Wait => cu().stream_wait_value64(stream, self.words.at(0), 1, 0),
            Command::WaitDone => cu().stream_wait_value64(stream, self.words.at(9), 0, 0),
            Command::Batch => {
                let ops = [
                    wait_op(self.words.at(9), 0, 0),
                    crate::kit::write_op(word, 1, 0),
                ];
                cu().stream_batch_mem_op(stream, 2, ops.as_ptr() as usize, 0)
            }
            Command::Record => cu().event_record(self.event, stream),
            Command::RecordTimed => cu().event_record(self.timed, stream),
            Command::RecordFresh => {
                let mut event = 0;
                match cu().event_create(&mut event, NO_TIMING) {
                    0 => cu().event_record(event, stream),
                    code => code,
                }
            }
            Command::WaitEvent => cu().stream_wait_event(stream, self.complete, 0),
            Command::WaitOther => cu().stream_wait_event(stream, self.pending, 0),
            Command::HostFunction => cu().launch_host_func(stream, nothing, 0),
            Command::Signal => match &self.external {
                Some((_, semaphore)) => semaphore.signal_code(number as u64 + 1, stream),
                None => 0,
            },
            Command::GraphLaunch => cu().graph_launch(self.graph, stream),
        }
    }
}

unsafe extern "C" fn nothing(_: usize) {}

/// An executable graph of one memset.
fn graph(stream: Handle) -> Result<Handle, String> {
    let (memory, mut graph, mut exec) = (alloc(64)?, 0, 0);
    check("cuStreamBeginCapture", cu().stream_begin_capture(stream, 2))?;
    check(
        "cuMemsetD32Async",
        cu().memset_d32_async(memory, 1, 1, stream),
    )?;
    check(
        "cuStreamEndCapture",
        cu().stream_end_capture(stream, &mut graph),
    )?;
    check(
        "cuGraphInstantiate",
        cu().graph_instantiate(&mut exec, graph, 0),
    )?;
    Ok(exec)
}

/// Counts the calls that return before one blocks. A call blocks if it takes 2 seconds. Then the
/// stream is released.
fn count(words: Words, call: impl Fn(usize) -> u32) -> Answer {
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
        let blocked = watch.join().map_err(|_| "a thread has panicked")?;
        words.store(0, 1);
        Ok(match (failed, blocked) {
            (Some(code), _) => format!("code {code} after {}", taken.load(Ordering::SeqCst)),
            (None, Some(count)) => format!("blocks after {count}"),
            (None, None) => format!("does not block within {MOST}"),
        })
    })
}

/// Counts twice, each time on a new stream: an answer that varies is not compared.
fn one(command: Command, by: BlockedBy) -> Answer {
    let mut answers = Vec::new();
    for _ in 0..2 {
        let kit = match Kit::new(command) {
            Err(reason) if reason == crate::vulkan::NONE => return Ok(reason),
            kit => kit?,
        };
        let stream = stream()?;
        match by {
            BlockedBy::Wait => park(stream, kit.words, 0)?,
            BlockedBy::Wait32 => {
                let code = cu().stream_wait_value32(stream, kit.words.at(0), 1, 0);
                check("cuStreamWaitValue32", code)?;
            }
            BlockedBy::Kernel => spin(stream, kit.words, 0)?,
        }
        answers.push(count(kit.words, |number| {
            kit.enqueue(command, number, stream)
        })?);
        check("cuStreamSynchronize", cu().stream_synchronize(stream))?;
    }
    Ok(same(&answers))
}

fn same(answers: &[String]) -> String {
    match answers {
        [first, second] if first == second => first.clone(),
        _ => format!("~{}", answers.join(", then ")),
    }
}

/// All streams wait, and take commands in turn.
fn many(command: Command) -> Answer {
    let kit = Kit::new(command)?;
    let streams = streams(64)?;
    for stream in &streams {
        park(*stream, kit.words, 0)?;
    }
    count(kit.words, |number| {
        kit.enqueue(command, number, streams[number % 64])
    })
}

/// Stream 0 waits and takes 600 commands. Then another stream, which waits too, takes as many as it
/// can.
fn shared(command: Command, other: usize) -> Answer {
    let kit = Kit::new(command)?;
    let streams = streams(17)?;
    park(streams[0], kit.words, 0)?;
    park(streams[other], kit.words, 0)?;
    for number in 0..600 {
        check("the command", kit.enqueue(command, number, streams[0]))?;
    }
    count(kit.words, |number| {
        kit.enqueue(command, number, streams[other])
    })
}
