//! Scenarios of CUDA alone.
#![allow(
    unsafe_code,
    reason = "captures streams and adopts handles, as an application does"
)]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use syncline::backend::{Device as _, Queue as _};
use syncline::clock::Clock;
use syncline::cuda::{self, Device, Driver, sys};
use syncline::negotiate::{Granted, Mechanism, Party, Plan, negotiate};
use syncline::{
    Error, QueueKind, Stopwatch, Timeline, handle::HandleKind, host, info::BackendKind,
};

use super::{PATIENCE, Scenario, Stop, Verdict, events, expect};
use crate::one_run::{DROPPING, step};

pub(super) static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "cuda.submit",
        run: submit,
    },
    Scenario {
        name: "cuda.waits",
        run: waits,
    },
    Scenario {
        name: "cuda.notices",
        run: notices,
    },
    Scenario {
        name: "cuda.fences",
        run: fences,
    },
    Scenario {
        name: "cuda.clock",
        run: clock,
    },
    Scenario {
        name: "cuda.memory",
        run: memory,
    },
    Scenario {
        name: "cuda.copies",
        run: copies,
    },
    Scenario {
        name: "cuda.refused",
        run: refused,
    },
    Scenario {
        name: "cuda.capture",
        run: capture,
    },
    Scenario {
        name: "cuda.counter",
        run: counter,
    },
    Scenario {
        name: "cuda.word",
        run: word,
    },
    Scenario {
        name: "cuda.adopt",
        run: adopt,
    },
    Scenario {
        name: "cuda.foreign",
        run: foreign,
    },
    Scenario {
        name: "cuda.cuda",
        run: two_devices,
    },
    Scenario {
        name: "cuda.exports",
        run: exports,
    },
    Scenario {
        name: "cuda.event",
        run: event,
    },
];

/// Opens the first device, without the other backends of an inventory.
pub(super) fn open() -> Verdict<Device> {
    step("opening CUDA");
    let candidates = Driver::load()?.devices()?;
    let first = candidates
        .first()
        .ok_or_else(|| Error::unavailable(BackendKind::Cuda, "no device"))?;
    Ok(first.open()?)
}

/// One queue, one timeline, memory, and a wait.
fn submit() -> Verdict {
    let device = open()?;
    step("set-up");
    let line = device.timeline("line")?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let buffer = device.host_buffer(64)?;
    step("submitting");
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| recorder.memset_d32(&to, 7),
        &[line.signal_at(1)],
    )?;
    step("waiting");
    line.at(1).wait(PATIENCE)?;
    expect(
        buffer.read_words()? == [7; 16],
        "the memset did not write 7",
    )?;
    queue.submit(&[line.at(1)], |_| Ok(()), &[line.signal_at(2)])?;
    expect(
        line.at(2).is_pending()?,
        "a submission is not pending after a wait that was reached",
    )?;
    step("idle");
    queue.idle(PATIENCE)?;
    expect(line.value()? == 2, "the timeline is not at 2")?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Waits across queues, before and after their signals, and for several timelines.
fn waits() -> Verdict {
    let device = open()?;
    step("set-up");
    let (first, second) = (device.timeline("first")?, device.timeline("second")?);
    let gate = device.timeline("gate")?;
    let queues = [
        device.queue(QueueKind::Compute, "a")?,
        device.queue(QueueKind::Transfer, "b")?,
    ];
    let buffer = device.host_buffer(64)?;
    step("a wait before its signal");
    let to = buffer.clone();
    queues[1].submit(
        &[first.at(1), gate.at(1)],
        move |recorder| recorder.memset_d32(&to, 2),
        &[second.signal_at(1)],
    )?;
    let to = buffer.clone();
    queues[0].submit(
        &[],
        move |recorder| recorder.memset_d32(&to, 1),
        &[first.signal_at(1)],
    )?;
    step("a signal of the host");
    first.at(1).wait(PATIENCE)?;
    gate.signal(1)?;
    step("work of two queues");
    for value in 2..6 {
        let queue = &queues[value as usize % 2];
        queue.submit(
            &[first.at(value - 1), second.at(value - 1)],
            |_| Ok(()),
            &[first.signal_at(value), second.signal_at(value)],
        )?;
    }
    step("waits of the host");
    syncline::wait_all(&[first.at(5), second.at(5)], PATIENCE)?;
    syncline::wait_any(&[first.at(5), gate.at(1)], PATIENCE)?;
    expect(
        buffer.read_words()? == [2; 16],
        "the second memset came first",
    )?;
    for queue in &queues {
        queue.idle(PATIENCE)?;
    }
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Futures and eventfds, whose wakes other threads make.
fn notices() -> Verdict {
    let device = open()?;
    step("set-up");
    let (line, gate) = (device.timeline("line")?, device.timeline("gate")?);
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let buffer = device.host_buffer(1 << 16)?;
    let notice = events::EventFd::new()?;
    step("submitting");
    let kept = line.at(2).notify(notice.duplicate()?)?;
    queue.submit(&[gate.at(1)], |_| Ok(()), &[line.signal_at(1)])?;
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| recorder.memset_d32(&to, 5),
        &[line.signal_at(2)],
    )?;
    gate.signal(1)?;
    step("an eventfd");
    notice.wait(PATIENCE, &line.at(2))?;
    drop(kept);
    line.at(2).wait(PATIENCE)?;
    step("a future");
    queue.submit(&[], |_| Ok(()), &[line.signal_at(3)])?;
    events::block_on(line.at(3), PATIENCE)?;
    queue.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Fences without a time and with one.
fn fences() -> Verdict {
    let device = open()?;
    step("set-up");
    let (first, second) = (
        device.queue(QueueKind::Compute, "a")?,
        device.queue(QueueKind::Compute, "b")?,
    );
    let buffer = device.host_buffer(64)?;
    let (plain, start, stop) = (
        device.fence("plain"),
        device.timed_fence("start"),
        device.timed_fence("stop"),
    );
    step("recording");
    first.record(&start)?;
    let to = buffer.clone();
    first.submit(&[], move |recorder| recorder.memset_d32(&to, 3), &[])?;
    first.record(&stop)?;
    first.record(&plain)?;
    second.wait(&plain)?;
    second.wait(&stop)?;
    let to = buffer.clone();
    second.submit(&[], move |recorder| recorder.memset_d32(&to, 4), &[])?;
    step("waiting");
    second.idle(PATIENCE)?;
    stop.wait(PATIENCE)?;
    plain.wait(PATIENCE)?;
    expect(plain.is_complete()?, "a fence is not complete")?;
    expect(stop.elapsed_since(&start)? >= 0, "time goes backwards")?;
    expect(
        buffer.read_words()? == [4; 16],
        "the second memset came first",
    )?;
    first.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// The time limit for a sample of a clock. A busy host may be too slow for it many times.
const SAMPLING: Duration = Duration::from_secs(10);

fn sample(clock: &Clock) -> Verdict {
    let end = Instant::now() + SAMPLING;
    loop {
        match clock.sample() {
            Err(Error::ClockSilent { .. }) if Instant::now() < end => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

/// The device's clock, fences and timelines with its times.
fn clock() -> Verdict {
    let device = open()?;
    step("making the clock");
    let clock = device.clock()?;
    step("sampling the clock");
    sample(&clock)?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let watch = Stopwatch::new(&device, "watch")?;
    let line = device.clocked_timeline("line")?;
    step("recording times");
    watch.start(&queue)?;
    let module = device.module(PTX)?;
    let function = module.function(c"add")?;
    let buffer = device.host_buffer(64)?;
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| {
            let (mut words, mut more) = (to.pointer(), 1_u32);
            let mut params = [
                (&raw mut words).cast::<c_void>(),
                (&raw mut more).cast::<c_void>(),
            ];
            // SAFETY: the kernel has these two parameters, and accesses 16 words.
            unsafe { recorder.launch(&function, [1, 1, 1], [16, 1, 1], &mut params) }
        },
        &[line.signal_at(1)],
    )?;
    watch.stop(&queue)?;
    step("waiting");
    watch.wait(PATIENCE)?;
    line.at(1).wait(PATIENCE)?;
    line.at(1).time()?;
    queue.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Adds a number to the words of a buffer.
const PTX: &str = r#"
.version 6.4
.target sm_60
.address_size 64

.visible .entry add(.param .u64 words, .param .u32 more)
{
    .reg .u32 %thread, %more, %word;
    .reg .u64 %words, %offset;
    ld.param.u64 %words, [words];
    ld.param.u32 %more, [more];
    cvta.to.global.u64 %words, %words;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %offset, %thread, 4;
    add.u64 %words, %words, %offset;
    ld.global.u32 %word, [%words];
    add.u32 %word, %word, %more;
    st.global.u32 [%words], %word;
    ret;
}
"#;

/// Device memory, copies and a kernel.
fn memory() -> Verdict {
    let device = open()?;
    step("set-up");
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let (first, second) = (device.buffer(64)?, device.buffer(64)?);
    let module = device.module(PTX)?;
    let function = module.function(c"add")?;
    first.write_words(&[5; 16])?;
    step("submitting");
    let (from, to) = (first.clone(), second.clone());
    queue.submit(
        &[],
        move |recorder| {
            recorder.copy(&from, &to)?;
            let (mut words, mut more) = (to.pointer(), 4_u32);
            let mut params = [
                (&raw mut words).cast::<c_void>(),
                (&raw mut more).cast::<c_void>(),
            ];
            // SAFETY: the kernel has these two parameters, and accesses 16 words.
            unsafe { recorder.launch(&function, [1, 1, 1], [16, 1, 1], &mut params) }
        },
        &[],
    )?;
    step("waiting");
    queue.idle(PATIENCE)?;
    expect(
        second.read_words()? == [9; 16],
        "the kernel did not add 4 to 5",
    )?;
    step("freeing");
    drop((first, second));
    device.free_what_is_due()?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// A copy between two host buffers, also in a graph.
fn copies() -> Verdict {
    let device = open()?;
    step("set-up");
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let (first, second) = (device.host_buffer(64)?, device.host_buffer(64)?);
    first.write_words(&[5; 16])?;
    let (from, to) = (first.clone(), second.clone());
    step("submitting");
    queue.submit(&[], move |recorder| recorder.copy(&from, &to), &[])?;
    step("waiting");
    queue.idle(PATIENCE)?;
    expect(second.read_words()? == [5; 16], "the copy was not made")?;
    step("capturing");
    let captured = queue.submit(
        &[],
        move |recorder| {
            let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            let mut graph = null_mut();
            // SAFETY: a live stream, whose lock the submission has. The graph is destroyed once.
            unsafe {
                sys::cuStreamBeginCapture_v2(recorder.stream(), mode);
                let copied = recorder.copy(&first, &second);
                sys::cuStreamEndCapture(recorder.stream(), &raw mut graph);
                sys::cuGraphDestroy(graph);
                copied
            }
        },
        &[],
    );
    step("idle");
    queue.idle(PATIENCE)?;
    captured?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Text that is no PTX, so that the driver names a code.
fn refused() -> Verdict {
    let device = open()?;
    match device.module("no PTX") {
        // What the driver returns for such text.
        Err(Error::Native {
            code: 200 | 218,
            name,
            ..
        }) => {
            device.check()?;
            step(DROPPING);
            expect(
                name.starts_with("CUDA_") || name.contains("not name"),
                format!("the code has the name {name}"),
            )
        }
        Err(error) => Err(error.into()),
        Ok(_) => Err(Stop::Wrong("text that is no PTX became a module".into())),
    }
}

/// A call of the application itself, which never fails by an order.
pub(super) fn done(call: &str, result: sys::CUresult) -> Verdict {
    match result {
        sys::CUresult::CUDA_SUCCESS => Ok(()),
        other => Err(Stop::Own(format!("{call} returned {other:?}"))),
    }
}

/// The end of a capture, which the application reaches also after an error.
pub(super) fn end_capture(queue: &cuda::Queue) -> Result<sys::CUgraph, sys::CUresult> {
    let mut graph = null_mut();
    let guard = queue.stream();
    // SAFETY: this thread began the capture.
    match unsafe { sys::cuStreamEndCapture(guard.raw(), &raw mut graph) } {
        sys::CUresult::CUDA_SUCCESS => Ok(graph),
        other => Err(other),
    }
}

/// Makes an executable graph, and destroys the graph.
///
/// The context is current during the work of a submission.
fn instantiate(queue: &cuda::Queue, graph: sys::CUgraph) -> Verdict<sys::CUgraphExec> {
    let address = graph.expose_provenance();
    let (sender, receiver) = std::sync::mpsc::channel();
    let submitted = queue.submit(
        &[],
        move |_| {
            let mut executable = null_mut::<sys::CUgraphExec_st>();
            // SAFETY: the graph has just been captured, and is destroyed after this.
            let made = unsafe {
                sys::cuGraphInstantiateWithFlags(
                    &raw mut executable,
                    std::ptr::with_exposed_provenance_mut(address),
                    0,
                )
            };
            let _ = sender.send((made, executable.expose_provenance()));
            Ok(())
        },
        &[],
    );
    let submitted = submitted.map(drop);
    // SAFETY: the graph is destroyed once.
    unsafe { sys::cuGraphDestroy(graph) };
    let made = receiver.try_recv();
    let executable: sys::CUgraphExec = match made {
        Ok((code, executable)) => {
            done("cuGraphInstantiate", code)?;
            std::ptr::with_exposed_provenance_mut(executable)
        }
        Err(_) => null_mut(),
    };
    if let Err(error) = submitted {
        if !executable.is_null() {
            // SAFETY: nothing launches it.
            unsafe { sys::cuGraphExecDestroy(executable) };
        }
        return Err(error.into());
    }
    Ok(executable)
}

/// Fences in a capture, and fences that each launch records and waits for.
fn capture() -> Verdict {
    let device = open()?;
    step("set-up");
    let queue = device.queue(QueueKind::Compute, "captured")?;
    let other = device.queue(QueueKind::Compute, "other")?;
    let buffer = device.host_buffer(64)?;
    let (inner, each, before) = (
        device.fence("inner"),
        device.fence("each"),
        device.fence("before"),
    );
    step("capturing");
    {
        let guard = queue.stream();
        let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: a live stream.
        done("cuStreamBeginCapture", unsafe {
            sys::cuStreamBeginCapture_v2(guard.raw(), mode)
        })?;
    }
    let captured = (|| -> Verdict {
        queue.wait_external(&before)?;
        queue.record(&inner)?;
        other.wait(&inner)?;
        other.record(&inner)?;
        queue.wait(&inner)?;
        queue.record_external(&each)?;
        let refused = queue.submit(&[], |_| Ok(()), &[]);
        match refused {
            Err(Error::Capturing { .. }) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(_) => Err(Stop::Wrong("a captured stream took a submission".into())),
        }
    })();
    let graph = end_capture(&queue);
    if let (Err(_), Ok(graph)) = (&captured, &graph) {
        // SAFETY: the graph has just been captured.
        unsafe { sys::cuGraphDestroy(*graph) };
    }
    captured?;
    let graph = graph.map_err(|code| Stop::Own(format!("cuStreamEndCapture: {code:?}")))?;
    let executable = instantiate(&other, graph)?;
    step("launching");
    let launched = (|| -> Verdict {
        other.record(&before)?;
        let address = executable.addr();
        let to = buffer.clone();
        queue.submit(
            &[],
            move |recorder| {
                // SAFETY: the graph lives until the queue is idle.
                unsafe { recorder.launch_graph(std::ptr::with_exposed_provenance_mut(address)) }?;
                recorder.memset_d32(&to, 6)
            },
            &[],
        )?;
        other.wait(&each)?;
        other.idle(PATIENCE)?;
        each.wait(PATIENCE)?;
        queue.idle(PATIENCE)?;
        expect(
            buffer.read_words()? == [6; 16],
            "nothing was written behind the graph",
        )
    })();
    // Work of it may be in flight after an error.
    let idle = queue.idle(PATIENCE);
    // SAFETY: nothing launches it any more.
    unsafe { sys::cuGraphExecDestroy(executable) };
    launched?;
    idle?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// The timeline of a plan, with all rights.
pub(super) fn made(plan: &Plan, label: &str, devices: &[syncline::Device]) -> Verdict<Timeline> {
    let made = plan.make(label, 0, devices)?;
    match made.auto(plan.home().id())? {
        Granted::Both(timeline) => Ok(timeline),
        other => Err(Stop::Wrong(format!("the home may only {other:?}"))),
    }
}

/// A counter in shared memory, which the host and CUDA signal and wait for.
fn counter() -> Verdict {
    let device = open()?;
    let threads = host::Device::new();
    step("set-up");
    let exports = &threads.info().capabilities.exports;
    if !exports.contains(&HandleKind::CounterMemfd) {
        // No descriptor was left for a counter. The error says so.
        threads.exportable_port(0)?;
    }
    let parties = [
        Party::of(&device).signals().waits().natively(),
        Party::of(&threads).signals().waits(),
    ];
    let plan = negotiate(parties).map_err(|conflict| Stop::Wrong(conflict.to_string()))?;
    expect(
        plan.mechanism() == Mechanism::SharedMemory,
        format!("not a counter: {plan}"),
    )?;
    let devices: [syncline::Device; 2] = [device.clone().into(), threads.into()];
    let (first, second) = (
        made(&plan, "first", &devices)?,
        made(&plan, "second", &devices)?,
    );
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let worker = devices[1].queue(QueueKind::Compute, "worker")?;
    step("submitting");
    worker.submit(&[], |_| Ok(()), &[first.signal_at(1), second.signal_at(1)])?;
    queue.submit(
        &[first.at(1), second.at(1)],
        |_| Ok(()),
        &[first.signal_at(2), second.signal_at(2)],
    )?;
    first.at(2).wait(PATIENCE)?;
    first.signal(3)?;
    queue.submit(&[first.at(3)], |_| Ok(()), &[first.signal_at(4)])?;
    // Its signal is pending for a while, so CUDA waits for the memory.
    worker.submit(
        &[first.at(4)],
        |recorder| {
            if let syncline::Recorder::Host(worker) = recorder {
                worker.run(|| std::thread::sleep(std::time::Duration::from_millis(5)));
            }
            Ok(())
        },
        &[second.signal_at(3)],
    )?;
    first.at(4).wait(PATIENCE)?;
    queue.submit(&[second.at(3)], |_| Ok(()), &[first.signal_at(5)])?;
    first.at(5).wait(PATIENCE)?;
    step("waiting");
    second.at(3).wait(PATIENCE)?;
    queue.idle(PATIENCE)?;
    worker.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Words that the application has, in device memory and in memory that the host reads.
fn word() -> Verdict {
    let device = open()?;
    step("set-up");
    let (hidden, shown) = (device.buffer(64)?, device.host_buffer(64)?);
    hidden.write_words(&[0; 16])?;
    let queues = [
        device.queue(QueueKind::Compute, "writes")?,
        device.queue(QueueKind::Compute, "waits")?,
    ];
    step("adopting");
    let adopt = |word, label| {
        let owner = Arc::new((hidden.clone(), shown.clone()));
        // SAFETY: the owner keeps the memory. Only promised values are written.
        unsafe { device.adopt_word(word, 0, Some(owner), label) }
    };
    let first = adopt(cuda::Word::Bits64(hidden.pointer()), "hidden")?;
    let second = adopt(cuda::Word::Bits32(shown.pointer()), "shown")?;
    step("a wait before its promise");
    let lines = [&first, &second];
    queues[1].submit(
        &[first.at(1), second.at(1)],
        |_| Ok(()),
        &[first.signal_at(2), second.signal_at(2)],
    )?;
    step("writing");
    let words = [hidden.view(0, 4)?, shown.view(0, 4)?];
    queues[0].submit(
        &[],
        move |recorder| {
            for word in &words {
                recorder.memset_d32(word, 1)?;
            }
            Ok(())
        },
        &[],
    )?;
    step("promising");
    for line in lines {
        line.signalled_by_others(1)?;
    }
    step("waiting");
    for line in lines {
        line.at(2).wait(PATIENCE)?;
        expect(line.value()? == 2, "the word is not at 2")?;
    }
    step("a signal of the host");
    second.signal(3)?;
    for queue in &queues {
        queue.submit(&[second.at(3)], |_| Ok(()), &[])?;
        queue.idle(PATIENCE)?;
    }
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// Memory of one device that another one of the same GPU imports.
fn exports() -> Verdict {
    let (left, right) = (open()?, open()?);
    step("exporting");
    let (ours, handle) = left.export_buffer(1 << 16)?;
    step("importing");
    let theirs = right.import_memory(handle)?;
    let (writes, reads) = (
        left.queue(QueueKind::Compute, "writes")?,
        right.queue(QueueKind::Compute, "reads")?,
    );
    let line = left.timeline("line")?;
    let target = right.host_buffer(64)?;
    step("submitting");
    let part = ours.view(4096, 64)?;
    writes.submit(
        &[],
        move |recorder| recorder.memset_d32(&part, 7),
        &[line.signal_at(1)],
    )?;
    // The importer keeps the memory.
    drop(ours);
    let (from, to) = (theirs.view(4096, 64)?, target.clone());
    reads.submit(
        &[line.at(1)],
        move |recorder| recorder.copy(&from, &to),
        &[line.signal_at(2)],
    )?;
    step("waiting");
    line.at(2).wait(PATIENCE)?;
    expect(
        target.read_words()? == [7; 16],
        "the importer reads other words",
    )?;
    writes.idle(PATIENCE)?;
    reads.idle(PATIENCE)?;
    left.free_what_is_due()?;
    left.check()?;
    right.check()?;
    step(DROPPING);
    Ok(())
}

/// An application's own context, stream and event.
fn adopt() -> Verdict {
    let owner = open()?;
    step("adopting");
    // SAFETY: the context lives as long as its device, which the new device keeps.
    let device =
        unsafe { Device::adopt_context(owner.raw_context(), Some(Arc::new(owner.clone()))) }?;
    let own = owner.queue(QueueKind::Compute, "owner's")?;
    let raw = own.stream().raw();
    // SAFETY: the stream lives as long as its queue, which the new queue keeps.
    let queue = unsafe { device.adopt_raw_stream(raw, Some(Arc::new(own.clone())), "adopted") }?;
    let line = device.timeline("line")?;
    let buffer = device.host_buffer(1 << 16)?;
    step("submitting");
    let to = buffer.clone();
    queue.submit(
        &[],
        move |recorder| recorder.memset_d32(&to, 1),
        &[line.signal_at(1)],
    )?;
    let other = device.queue(QueueKind::Compute, "other")?;
    other.submit(&[], |_| Ok(()), &[line.signal_at(2)])?;
    if let Some(event) = device.event(line.at(2))? {
        // SAFETY: a live event, recorded outside of captures.
        let fence = unsafe { device.adopt_event(event.raw(), "adopted") }?;
        fence.wait(PATIENCE)?;
    }
    let mut claim = line.claim(3)?;
    claim.wait_ready(PATIENCE)?;
    // SAFETY: the claim is of this timeline, and the queue keeps the stream.
    unsafe { device.submit_claimed(&line, &mut claim, own.stream().raw()) }?;
    step("waiting");
    line.at(3).wait(PATIENCE)?;
    queue.idle(PATIENCE)?;
    other.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    drop((queue, other, line, claim, buffer, device, own));
    drop(owner);
    Ok(())
}

/// A stream of the application, and work that leaves another context current.
fn foreign() -> Verdict {
    let device = open()?;
    step("an own stream");
    let own = device.queue(QueueKind::Compute, "own")?;
    let (sender, receiver) = std::sync::mpsc::channel();
    let submitted = own.submit(
        &[],
        move |_| {
            let mut stream = null_mut::<sys::CUstream_st>();
            // SAFETY: writes one handle, of a stream of the current context.
            let made = unsafe { sys::cuStreamCreate(&raw mut stream, 1) };
            let _ = sender.send((made, stream.expose_provenance()));
            Ok(())
        },
        &[],
    );
    let made = receiver.try_recv();
    submitted?;
    let Ok((code, address)) = made else {
        return Err(Stop::Wrong("work was not recorded".into()));
    };
    done("cuStreamCreate", code)?;
    let stream = Arc::new(OwnStream(address));
    step("adopting");
    // SAFETY: the queue keeps the stream.
    let queue = unsafe { device.adopt_raw_stream(stream.raw(), Some(stream), "foreign") }?;
    let line = device.timeline("line")?;
    let context = device.raw_context().expose_provenance();
    step("submitting");
    queue.submit(
        &[],
        move |_| {
            // SAFETY: a live context, which stays on the thread's stack of contexts.
            let _ =
                unsafe { sys::cuCtxPushCurrent_v2(std::ptr::with_exposed_provenance_mut(context)) };
            Ok(())
        },
        &[line.signal_at(1)],
    )?;
    step("waiting");
    line.at(1).wait(PATIENCE)?;
    queue.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}

/// A stream of the application, by its address. The drop destroys it.
struct OwnStream(usize);

impl OwnStream {
    fn raw(&self) -> sys::CUstream {
        std::ptr::with_exposed_provenance_mut(self.0)
    }
}

impl Drop for OwnStream {
    fn drop(&mut self) {
        // SAFETY: created by the application, and used no more.
        unsafe { sys::cuStreamDestroy_v2(self.raw()) };
    }
}

/// Two devices of one GPU and a counter in shared memory, for which streams wait.
fn two_devices() -> Verdict {
    let (left, right) = (open()?, open()?);
    step("sharing");
    let parties = [
        Party::of(&left).signals().waits().natively(),
        Party::of(&right).signals().waits().natively(),
    ];
    let plan = negotiate(parties).map_err(|conflict| Stop::Wrong(conflict.to_string()))?;
    let devices: [syncline::Device; 2] = [left.clone().into(), right.clone().into()];
    let line = made(&plan, "line", &devices)?;
    let (first, second) = (
        left.queue(QueueKind::Compute, "first")?,
        right.queue(QueueKind::Compute, "second")?,
    );
    let buffer = left.host_buffer(1 << 20)?;
    step("submitting");
    for value in 0..3 {
        let to = buffer.clone();
        first.submit(
            &[line.at(2 * value)],
            move |recorder| recorder.memset_d32(&to, 1),
            &[line.signal_at(2 * value + 1)],
        )?;
        second.submit(
            &[line.at(2 * value + 1)],
            |_| Ok(()),
            &[line.signal_at(2 * value + 2)],
        )?;
    }
    step("waiting");
    line.at(6).wait(PATIENCE)?;
    first.idle(PATIENCE)?;
    second.idle(PATIENCE)?;
    left.check()?;
    right.check()?;
    step(DROPPING);
    Ok(())
}

/// An event that other processes can open.
fn event() -> Verdict {
    let device = open()?;
    step("set-up");
    let event = device.interprocess_event("shared")?;
    let queue = device.queue(QueueKind::Compute, "queue")?;
    let recorded = event.clone();
    step("recording");
    queue.submit(&[], move |recorder| recorder.record_event(&recorded), &[])?;
    event.fence().wait(PATIENCE)?;
    queue.idle(PATIENCE)?;
    device.check()?;
    step(DROPPING);
    Ok(())
}
