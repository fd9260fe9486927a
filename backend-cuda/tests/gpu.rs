//! The backend on a real GPU. Without one each test is reported as ignored, with the reason; set
//! `SYNCLINE_REQUIRE_CUDA` to make that a failure.
#![allow(unsafe_code, reason = "launches kernels and makes hostile handles")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test's helpers, too"
)]

mod common;

use std::ffi::c_void;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use common::{LIMIT, alone, open, trials};
use libtest_mimic::{Arguments, Trial};
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::{Error, MemoryFd, Origin, QueueKind, Result, TimelineFd, Uuid, wait_any};
use syncline_cuda::{Device, DeviceBuffer, Driver, Function, Queue, Recorder, sys};

const KERNELS: &str = include_str!("kernels.ptx");
const WORDS: u64 = 1 << 16;

/// The first usable device with the kernels, everything loaded.
fn gpu() -> Gpu {
    let alone = alone();
    let device = open().expect("a device");
    Gpu::new(device, alone).expect("setting the device up")
}

struct Gpu {
    device: Device,
    delay: Function,
    gate: Function,
    _alone: MutexGuard<'static, ()>,
}

impl Gpu {
    fn new(device: Device, alone: MutexGuard<'static, ()>) -> Result<Self> {
        let module = device.module(KERNELS)?;
        let gpu = Self {
            delay: module.function(c"delay")?,
            gate: module.function(c"gate")?,
            device,
            _alone: alone,
        };
        // The driver loads what it needs for the first of each, and may wait for other streams then.
        let queue = gpu.queue("warm-up");
        let (from, to) = (gpu.device.host_buffer(4)?, gpu.device.buffer(4)?);
        let (delay, gate) = (gpu.delay.clone(), gpu.gate.clone());
        queue.submit(
            &[],
            move |r| {
                r.memset_d32(&from, 1)?;
                r.copy(&from, &to)?;
                launch(r, &delay, 1)?;
                launch(r, &gate, from.pointer())
            },
            &[],
        )?;
        queue.idle(LIMIT)?;
        Ok(gpu)
    }

    fn queue(&self, label: &str) -> Queue {
        self.device
            .queue(QueueKind::Compute, label)
            .expect("a queue")
    }

    /// A queue whose stream is busy until the returned gate is opened or dropped.
    fn gated(&self, queue: &Queue) -> Gate {
        let word = self.device.host_buffer(4).expect("a pinned word");
        let (gate, pointer, kept) = (self.gate.clone(), word.pointer(), word.clone());
        let work = move |r: &mut Recorder| {
            r.keep(Arc::new(kept));
            launch(r, &gate, pointer)
        };
        queue.submit(&[], work, &[]).expect("closing the gate");
        Gate(word)
    }
}

/// Opens on drop, so that no failing test leaves a kernel running.
struct Gate(DeviceBuffer);

impl Gate {
    fn open(self) {}
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some([word]) = self.0.as_words() {
            word.store(1, Ordering::Release);
        }
    }
}

/// One thread of a kernel that takes one u64.
fn launch(recorder: &mut Recorder, function: &Function, mut parameter: u64) -> Result<()> {
    let mut params = [(&raw mut parameter).cast::<c_void>()];
    // SAFETY: the kernels used take one u64; pointed-to words are kept by the callers.
    unsafe { recorder.launch(function, [1; 3], [1; 3], &mut params) }
}

/// Both producer and consumer on their own streams, the producer delayed by the device.
fn hand_over(gpu: &Gpu, wait: bool, consumer_first: bool) -> Vec<u32> {
    let (producer, consumer) = (gpu.queue("producer"), gpu.queue("consumer"));
    let data = gpu.device.buffer(WORDS * 4).unwrap();
    let copy = gpu.device.buffer(WORDS * 4).unwrap();
    data.write_words(&vec![1; WORDS as usize]).unwrap();
    copy.write_words(&vec![0; WORDS as usize]).unwrap();
    let timeline = gpu.device.timeline("hand over").unwrap();
    let produce = || {
        let (data, delay) = (data.clone(), gpu.delay.clone());
        let work = move |r: &mut Recorder| {
            launch(r, &delay, 50_000_000)?;
            r.memset_d32(&data, 2)
        };
        producer
            .submit(&[], work, &[timeline.signal_at(1)])
            .unwrap();
    };
    let consume = || {
        let (data, copy) = (data.clone(), copy.clone());
        let waits = [timeline.at(1)];
        let waits = if wait { &waits[..] } else { &[] };
        let work = move |r: &mut Recorder| r.copy(&data, &copy);
        let sent = consumer
            .submit(waits, work, &[timeline.signal_at(2)])
            .unwrap();
        assert_eq!(sent.is_held(), wait && consumer_first);
    };
    if consumer_first {
        consume();
        produce();
    } else {
        produce();
        consume();
    }
    timeline.at(2).wait(LIMIT).unwrap();
    producer.idle(LIMIT).unwrap();
    consumer.idle(LIMIT).unwrap();
    copy.read_words().unwrap()
}

fn an_absent_driver_is_a_typed_reason() {
    if let Err(error) = Driver::load() {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.starts_with("cuda is not available: "), "{text}");
    }
}

fn data_follows_the_wait() {
    let gpu = gpu();
    assert!(hand_over(&gpu, true, false).iter().all(|&word| word == 2));
    assert!(hand_over(&gpu, true, true).iter().all(|&word| word == 2));
}

fn without_the_wait_old_data_is_seen() {
    let gpu = gpu();
    assert!(hand_over(&gpu, false, false).iter().all(|&word| word == 1));
}

/// The driver is told nothing of a submission that only waits. Its position is reached all the same, and neither before
/// what the queue did earlier nor before what it waits for, in whichever order these come.
fn positions_without_an_event_keep_their_place() {
    let gpu = gpu();
    for other_first in [true, false] {
        let (busy, other) = (gpu.queue("busy"), gpu.queue("other"));
        let readers = ["told", "raw", "untold"].map(|label| gpu.queue(label));
        let data = gpu.device.buffer(WORDS * 4).unwrap();
        data.write_words(&vec![1; WORDS as usize]).unwrap();
        let gates = [gpu.gated(&busy), gpu.gated(&other)];
        let done = gpu.device.timeline("done").unwrap();
        other.submit(&[], |_| Ok(()), &[done.signal_at(1)]).unwrap();
        let filled = data.clone();
        let fill = move |r: &mut Recorder| r.memset_d32(&filled, 2);
        busy.submit(&[], fill, &[]).unwrap();
        // More than any bound on such submissions in a row.
        let ends: Vec<_> = (0..40)
            .map(|_| busy.submit(&[done.at(1)], |_| Ok(()), &[]).unwrap().end())
            .collect();
        let copies = [0; 3].map(|_| gpu.device.buffer(WORDS * 4).unwrap());
        // The driver's own wait for one of them; nothing in the negative control.
        let event = gpu.device.event(ends[20]).unwrap().unwrap();
        // SAFETY: a live stream and event.
        let waited = unsafe { sys::cuStreamWaitEvent(readers[1].stream().raw(), event.raw(), 0) };
        assert_eq!(waited, sys::CUresult::CUDA_SUCCESS);
        for ((reader, copy), waits) in readers.iter().zip(&copies).zip([&ends[20..21], &[], &[]]) {
            let (from, to) = (data.clone(), copy.clone());
            let work = move |r: &mut Recorder| r.copy(&from, &to);
            reader.submit(waits, work, &[]).unwrap();
        }
        readers[2].idle(LIMIT).unwrap();
        let [first, second] = gates;
        let (early, late) = if other_first {
            (second, first)
        } else {
            (first, second)
        };
        early.open();
        if other_first {
            done.at(1).wait(LIMIT).unwrap();
        }
        let soon = ends[0].wait(Duration::from_millis(50));
        assert!(soon.unwrap_err().is_timeout());
        assert!(ends.iter().all(|end| !end.is_reached().unwrap()));
        assert!(!readers[0].position().is_reached().unwrap());
        assert!(!readers[1].position().is_reached().unwrap());
        late.open();
        for end in ends.iter().rev() {
            end.wait(LIMIT).unwrap();
        }
        for reader in &readers {
            reader.idle(LIMIT).unwrap();
        }
        let read = copies.each_ref().map(|copy| copy.read_words().unwrap());
        for (words, expected) in read.iter().zip([2, 2, 1]) {
            assert!(words.iter().all(|&word| word == expected), "{expected}");
        }
    }
}

/// What work put into the stream before it failed may still run: the queue's position comes behind that, although nothing
/// else is submitted, and what the work kept lives until then.
fn what_refused_work_has_put_there_comes_first() {
    let gpu = gpu();
    let queue = gpu.queue("refusing");
    let (buffer, word) = (
        gpu.device.buffer(4).unwrap(),
        gpu.device.host_buffer(4).unwrap(),
    );
    buffer.write_words(&[1]).unwrap();
    let gate = Gate(word.clone());
    let kept = Arc::new(());
    let (filled, kernel, pointer, object) = (
        buffer.clone(),
        gpu.gate.clone(),
        word.pointer(),
        kept.clone(),
    );
    let work = move |r: &mut Recorder| {
        r.keep(object);
        r.keep(Arc::new(word));
        launch(r, &kernel, pointer)?;
        r.memset_d32(&filled, 9)?;
        Err(Error::work(std::io::Error::other("after all")))
    };
    let refused = queue.submit(&[], work, &[]).map(|_| ());
    assert!(refused.is_err());
    let fence = gpu.device.fence("behind");
    queue.record(&fence).unwrap();
    queue.submit(&[], |_| Ok(()), &[]).unwrap();
    assert!(!queue.position().is_reached().unwrap());
    assert!(!fence.is_complete().unwrap());
    assert_eq!(Arc::strong_count(&kept), 2);
    gate.open();
    queue.idle(LIMIT).unwrap();
    assert_eq!(buffer.read_words().unwrap(), [9]);
    assert_eq!(Arc::strong_count(&kept), 1);
}

fn any_number_of_streams_wait_for_the_host() {
    let gpu = gpu();
    for count in [64, 1024] {
        let gate = gpu.device.timeline("gate").unwrap();
        let queues: Vec<_> = (0..count)
            .map(|n| gpu.queue(&format!("waiter {n}")))
            .collect();
        for queue in &queues {
            assert!(
                queue
                    .submit(&[gate.at(1)], |_| Ok(()), &[])
                    .unwrap()
                    .is_held()
            );
        }
        gate.signal(1).unwrap();
        for queue in &queues {
            queue.idle(LIMIT).unwrap();
        }
    }
}

fn a_long_chain_is_released_without_recursion() {
    const LINKS: u64 = 32_768;
    let gpu = gpu();
    let (gate, chain) = (
        gpu.device.timeline("gate").unwrap(),
        gpu.device.timeline("chain").unwrap(),
    );
    let queues = [gpu.queue("even"), gpu.queue("odd")];
    for link in 1..=LINKS {
        let waits = if link == 1 {
            [gate.at(1)]
        } else {
            [chain.at(link - 1)]
        };
        queues[(link % 2) as usize]
            .submit(&waits, |_| Ok(()), &[chain.signal_at(link)])
            .unwrap();
    }
    gate.signal(1).unwrap();
    chain.at(LINKS).wait(LIMIT).unwrap();
    assert_eq!(chain.value().unwrap(), LINKS);
}

/// Queues use events again. One that an application holds keeps telling of the point that it was given for, whatever
/// becomes of the queue meanwhile.
fn an_event_that_somebody_holds_is_not_used_again() {
    let gpu = gpu();
    let queue = gpu.queue("signaller");
    let timeline = gpu.device.timeline("held").unwrap();
    let signal = |values: std::ops::Range<u64>| {
        for value in values {
            let signals = [timeline.signal_at(value)];
            queue.submit(&[], |_| Ok(()), &signals).unwrap();
        }
    };
    let gate = gpu.gated(&queue);
    signal(1..33);
    let held = [1, 16, 32].map(|value| gpu.device.event(timeline.at(value)).unwrap().unwrap());
    let status = |event: sys::CUevent| {
        // SAFETY: a live event.
        unsafe { sys::cuEventQuery(event) }
    };
    for event in &held {
        assert_eq!(status(event.raw()), sys::CUresult::CUDA_ERROR_NOT_READY);
    }
    gate.open();
    // Everything leaves the ring, so that its events can be used again.
    queue.idle(LIMIT).unwrap();
    assert_eq!(timeline.value().unwrap(), 32);
    let gate = gpu.gated(&queue);
    signal(33..300);
    for event in &held {
        assert_eq!(status(event.raw()), sys::CUresult::CUDA_SUCCESS);
    }
    gate.open();
    queue.idle(LIMIT).unwrap();
    assert_eq!(timeline.value().unwrap(), 299);
}

fn a_timeline_that_nobody_asks_stays_small() {
    let gpu = gpu();
    let (queue, timeline) = (
        gpu.queue("signaller"),
        gpu.device.timeline("unasked").unwrap(),
    );
    for value in 1..=10_000 {
        queue
            .submit(&[], |_| Ok(()), &[timeline.signal_at(value)])
            .unwrap();
    }
    queue.idle(LIMIT).unwrap();
    queue
        .submit(&[], |_| Ok(()), &[timeline.signal_at(10_001)])
        .unwrap();
    let port = timeline
        .port::<syncline_cuda::EventPort>(gpu.device.id())
        .unwrap();
    let text = format!("{port:?}");
    let outstanding: usize = text
        .split(' ')
        .nth(2)
        .and_then(|word| word.parse().ok())
        .expect(&text);
    assert!(outstanding <= 2048, "{text}");
    timeline.at(10_001).wait(LIMIT).unwrap();
}

fn fences_are_recorded_again_and_timed() {
    let gpu = gpu();
    let queue = gpu.queue("timed");
    let (start, end) = (
        gpu.device.timed_fence("start"),
        gpu.device.timed_fence("end"),
    );
    assert!(start.is_complete().unwrap());
    assert!(matches!(
        end.elapsed_since(&start),
        Err(Error::NotRecorded { .. })
    ));
    for milliseconds in [5, 20] {
        let delay = gpu.delay.clone();
        queue.record(&start).unwrap();
        queue
            .submit(
                &[],
                move |r| launch(r, &delay, milliseconds * 1_000_000),
                &[],
            )
            .unwrap();
        queue.record(&end).unwrap();
        assert!(matches!(
            end.elapsed_since(&start),
            Err(Error::NotReady { .. }) | Ok(_)
        ));
        end.wait(LIMIT).unwrap();
        let forth = end.elapsed_since(&start).unwrap();
        let back = start.elapsed_since(&end).unwrap();
        assert_eq!(forth, -back);
        let about = milliseconds as i64 * 1_000_000;
        assert!(
            (about..about + 50_000_000).contains(&forth),
            "{forth} ns for {milliseconds} ms"
        );
        assert_eq!(end.elapsed_since(&end).unwrap(), 0);
    }
    let plain = gpu.device.fence("plain");
    queue.record(&plain).unwrap();
    plain.wait(LIMIT).unwrap();
    assert!(matches!(
        plain.elapsed_since(&start),
        Err(Error::TimingDisabled { .. })
    ));
}

fn a_record_does_not_move_earlier_waits() {
    let gpu = gpu();
    let (first, second) = (gpu.queue("first"), gpu.queue("second"));
    let fence = gpu.device.fence("moved");
    first.record(&fence).unwrap();
    let before = fence.point().unwrap();
    let gate = gpu.gated(&second);
    second.record(&fence).unwrap();
    assert!(!fence.is_complete().unwrap());
    before.point().wait(LIMIT).unwrap();
    assert!(!fence.is_complete().unwrap());
    gate.open();
    fence.wait(LIMIT).unwrap();
}

fn the_host_signals_forward_only() {
    let gpu = gpu();
    let timeline = gpu.device.timeline_from("host", 3).unwrap();
    timeline.signal(5).unwrap();
    assert!(matches!(
        timeline.signal(5),
        Err(Error::SignalNotAboveReached { reached: 5, .. })
    ));
    assert!(matches!(
        timeline.signal(4),
        Err(Error::SignalNotAboveReached { .. })
    ));
    let queue = gpu.queue("after the host");
    queue
        .submit(&[timeline.at(5)], |_| Ok(()), &[timeline.signal_at(6)])
        .unwrap();
    timeline.at(6).wait(LIMIT).unwrap();
    timeline.signal(7).unwrap();
    assert_eq!(timeline.value().unwrap(), 7);
}

fn cudarcs_context_and_streams_are_adopted() {
    let _gpu = gpu();
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    let device = Device::adopt(&context).unwrap();
    assert_eq!(device.raw_context(), context.cu_ctx());
    for stream in [context.new_stream().unwrap(), context.default_stream()] {
        let queue = device.adopt_stream(&stream, "adopted").unwrap();
        let twin = device.adopt_stream(&stream, "its twin").unwrap();
        let buffer = device.host_buffer(16).unwrap();
        let timeline = device.timeline("adopted").unwrap();
        let filled = buffer.clone();
        queue
            .submit(
                &[],
                move |r| r.memset_d32(&filled, 7),
                &[timeline.signal_at(1)],
            )
            .unwrap();
        twin.submit(&[timeline.at(1)], |_| Ok(()), &[timeline.signal_at(2)])
            .unwrap();
        timeline.at(2).wait(LIMIT).unwrap();
        assert_eq!(buffer.read_words().unwrap(), [7; 4]);
        assert_eq!(twin.stream().held(), 0);
    }
    let refused = device.adopt_stream(&context.per_thread_stream(), "per thread");
    assert!(
        matches!(refused, Err(Error::Unsupported { .. })),
        "{refused:?}"
    );
    // The device outlives the application's own handle.
    drop(context);
    let timeline = device.timeline("after").unwrap();
    let queue = device.queue(QueueKind::Transfer, "after").unwrap();
    queue
        .submit(&[], |_| Ok(()), &[timeline.signal_at(1)])
        .unwrap();
    timeline.at(1).wait(LIMIT).unwrap();
}

fn a_captured_stream_is_refused_and_not_harmed() {
    let gpu = gpu();
    let context = cudarc::driver::CudaContext::new(0).unwrap();
    let device = Device::adopt(&context).unwrap();
    let stream = context.new_stream().unwrap();
    let queue = device.adopt_stream(&stream, "captured").unwrap();
    let other = gpu.queue("beside the capture");
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    stream.begin_capture(mode).unwrap();
    let refused = queue
        .submit(&[], |_| Ok(()), &[])
        .map(|sent| sent.is_held());
    assert!(
        matches!(refused, Err(Error::Capturing { .. })),
        "{refused:?}"
    );
    // Queries of other streams go on meanwhile, on this thread and the watcher's.
    other.submit(&[], |_| Ok(()), &[]).unwrap();
    other.idle(LIMIT).unwrap();
    let flags = sys::CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    stream.end_capture(flags).expect("the capture is whole");
    queue.submit(&[], |_| Ok(()), &[]).unwrap();
    queue.idle(LIMIT).unwrap();
}

fn failing_work_signals_nothing_and_the_queue_goes_on() {
    let gpu = gpu();
    let (queue, timeline) = (
        gpu.queue("failing"),
        gpu.device.timeline("failing").unwrap(),
    );
    let buffer = gpu.device.host_buffer(4).unwrap();
    let (filled, delay) = (buffer.clone(), gpu.delay.clone());
    let work = move |r: &mut Recorder| {
        launch(r, &delay, 10_000_000)?;
        r.memset_d32(&filled, 9)?;
        Err(Error::work(std::io::Error::other("on purpose")))
    };
    let refused = queue
        .submit(&[], work, &[timeline.signal_at(1)])
        .map(|_| ());
    assert!(matches!(refused, Err(Error::Work(_))), "{refused:?}");
    assert_eq!(timeline.value().unwrap(), 0);
    queue
        .submit(&[], |_| Ok(()), &[timeline.signal_at(1)])
        .unwrap();
    timeline.at(1).wait(LIMIT).unwrap();
    // What the driver had taken is in order before it.
    assert_eq!(buffer.read_words().unwrap(), [9]);
}

fn everything_may_be_dropped_in_flight() {
    let gpu = gpu();
    let buffer = gpu.device.host_buffer(4).unwrap();
    let end = {
        let (queue, other) = (gpu.queue("dropped"), gpu.queue("dropped too"));
        let timeline = gpu.device.timeline("dropped").unwrap();
        let gate = gpu.gated(&queue);
        let filled = buffer.clone();
        queue
            .submit(
                &[],
                move |r| r.memset_d32(&filled, 3),
                &[timeline.signal_at(1)],
            )
            .unwrap();
        let sent = other.submit(&[timeline.at(1)], |_| Ok(()), &[]).unwrap();
        let end = sent.end().keep();
        drop((queue, timeline));
        assert!(!end.point().is_reached().unwrap());
        gate.open();
        end
    };
    end.point().wait(LIMIT).unwrap();
    assert_eq!(buffer.read_words().unwrap(), [3]);
}

fn a_closed_gate_never_blocks_the_submitter() {
    const SUBMISSIONS: u64 = 5000;
    let gpu = gpu();
    let (queue, timeline) = (gpu.queue("gated"), gpu.device.timeline("gated").unwrap());
    let buffer = gpu.device.host_buffer(4).unwrap();
    let gate = gpu.gated(&queue);
    let started = Instant::now();
    for value in 1..=SUBMISSIONS {
        let filled = buffer.clone();
        let work = move |r: &mut Recorder| r.memset_d32(&filled, value as u32);
        queue
            .submit(&[], work, &[timeline.signal_at(value)])
            .unwrap();
    }
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    assert!(
        queue.held().count as u64 >= SUBMISSIONS - 512,
        "{:?}",
        queue.held()
    );
    assert_eq!(timeline.value().unwrap(), 0);
    gate.open();
    timeline.at(SUBMISSIONS).wait(LIMIT).unwrap();
    assert_eq!(buffer.read_words().unwrap(), [SUBMISSIONS as u32]);
}

/// Runs `submit` behind closed gates, which somebody else opens if that does not end: a driver that is full blocks
/// whoever submits. True if it ended by itself.
fn ends_by_itself(gates: Vec<Gate>, submit: impl FnOnce() + Send) -> bool {
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            submit();
            let _ = ended.send(());
        });
        let by_itself = end.recv_timeout(Duration::from_secs(4)).is_ok();
        drop(gates);
        by_itself
    })
}

fn commands_and_not_submissions_are_bounded() {
    let gpu = gpu();
    let buffer = gpu.device.host_buffer(4).unwrap();
    for (queues, submissions, commands) in [(1, 600, 2), (1, 400, 8), (16, 120, 6), (64, 40, 4)] {
        let queues: Vec<Queue> = (0..queues).map(|_| gpu.queue("full")).collect();
        let gates = queues.iter().map(|queue| gpu.gated(queue)).collect();
        let by_itself = ends_by_itself(gates, || {
            for _ in 0..submissions {
                for queue in &queues {
                    let filled = buffer.clone();
                    let work = move |r: &mut Recorder| {
                        (0..commands).try_for_each(|value| r.memset_d32(&filled, value))
                    };
                    queue.submit(&[], work, &[]).unwrap();
                }
            }
        });
        let count = queues.len();
        assert!(
            by_itself,
            "{commands} commands in each of {submissions} submissions to {count} queues"
        );
        for queue in &queues {
            queue.idle(LIMIT).unwrap();
        }
        assert_eq!(buffer.read_words().unwrap(), [commands - 1]);
    }
}

fn what_another_queue_has_in_flight_counts_and_goes() {
    let gpu = gpu();
    let (gated, other) = (gpu.queue("gated"), gpu.queue("other"));
    let buffer = gpu.device.host_buffer(4).unwrap();
    let fill = |queue: &Queue| {
        let filled = buffer.clone();
        let work = move |r: &mut Recorder| r.memset_d32(&filled, 5);
        queue.submit(&[], work, &[]).unwrap().is_held()
    };
    let gate = gpu.gated(&gated);
    while !fill(&gated) {}
    assert!(fill(&other), "there is room left");
    gate.open();
    // Nobody asks the first queue how far it is.
    other.position().wait(LIMIT).unwrap();
    gated.idle(LIMIT).unwrap();
}

fn the_callers_context_survives_work_that_sets_none() {
    fn set(context: sys::CUcontext) {
        // SAFETY: none, or the device's own, which lives.
        let set = unsafe { sys::cuCtxSetCurrent(context) };
        assert_eq!(set, sys::CUresult::CUDA_SUCCESS);
    }
    let gpu = gpu();
    let current = || {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let asked = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
        assert_eq!(asked, sys::CUresult::CUDA_SUCCESS);
        context
    };
    let queue = gpu.queue("rude");
    for before in [gpu.device.raw_context(), std::ptr::null_mut()] {
        set(before);
        let rude = |_: &mut Recorder| {
            set(std::ptr::null_mut());
            Ok(())
        };
        queue.submit(&[], rude, &[]).unwrap();
        assert_eq!(current(), before);
        queue.idle(LIMIT).unwrap();
        assert_eq!(current(), before);
    }
    set(std::ptr::null_mut());
}

fn native_errors_name_the_stream() {
    let gpu = gpu();
    let queue = gpu.queue("named");
    let delay = gpu.delay.clone();
    let mut time = 1_u64;
    let nothing = move |r: &mut Recorder| {
        let mut params = [(&raw mut time).cast::<c_void>()];
        // SAFETY: as for `launch`; no blocks at all are refused.
        unsafe { r.launch(&delay, [0; 3], [1; 3], &mut params) }
    };
    let refused = queue.submit(&[], nothing, &[]).map(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::Native { .. }), "{refused:?}");
    assert!(
        refused.to_string().contains("stream \"named\""),
        "{refused}"
    );
    queue.idle(LIMIT).unwrap();
}

fn an_applications_event_becomes_a_fence() {
    let gpu = gpu();
    let (busy, waiter) = (gpu.queue("busy"), gpu.queue("waiter"));
    let mut event = std::ptr::null_mut();
    let ok = |result| assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
    // SAFETY: the context lives to the end of the test.
    ok(unsafe { sys::cuCtxSetCurrent(gpu.device.raw_context()) });
    // SAFETY: writes one handle.
    ok(unsafe { sys::cuEventCreate(&raw mut event, 0) });
    // SAFETY: a live event, never recorded.
    let never = unsafe { gpu.device.adopt_event(event, "never recorded") }.unwrap();
    never.wait(LIMIT).unwrap();
    let gate = gpu.gated(&busy);
    // SAFETY: a live event and stream.
    ok(unsafe { sys::cuEventRecord(event, busy.stream().raw()) });
    // SAFETY: as above.
    let fence = unsafe { gpu.device.adopt_event(event, "the application's") }.unwrap();
    assert!(!fence.is_complete().unwrap());
    // A later record moves nothing, and the event may go.
    // SAFETY: as above.
    ok(unsafe { sys::cuEventRecord(event, waiter.stream().raw()) });
    // SAFETY: made above, destroyed once.
    ok(unsafe { sys::cuEventDestroy_v2(event) });
    waiter.wait(&fence).unwrap();
    let waited = fence.wait(Duration::from_millis(20));
    assert!(waited.unwrap_err().is_timeout());
    assert!(!waiter.position().is_reached().unwrap());
    assert!(matches!(
        busy.record(&fence),
        Err(Error::ForeignFence { .. })
    ));
    gate.open();
    fence.wait(LIMIT).unwrap();
    waiter.idle(LIMIT).unwrap();
    // SAFETY: none is current.
    ok(unsafe { sys::cuCtxSetCurrent(std::ptr::null_mut()) });
}

fn a_guarded_stream_takes_no_submissions() {
    let gpu = gpu();
    let queue = gpu.queue("guarded");
    let timeline = gpu.device.timeline("done").unwrap();
    let guard = queue.stream();
    // The same thread may take it again.
    assert_eq!(queue.stream().raw(), guard.raw());
    for value in 1..=3 {
        let sent = std::thread::scope(|scope| {
            let submit = || {
                let signal = [timeline.signal_at(value)];
                queue.submit(&[], |_| Ok(()), &signal).unwrap().is_held()
            };
            scope.spawn(submit).join().unwrap()
        });
        assert!(sent);
    }
    assert!(
        timeline
            .at(1)
            .wait(Duration::from_millis(20))
            .unwrap_err()
            .is_timeout()
    );
    assert_eq!(queue.held().count, 3);
    drop(guard);
    timeline.at(3).wait(LIMIT).unwrap();
    queue.idle(LIMIT).unwrap();
}

fn raw_handles_say_what_is_held() {
    let gpu = gpu();
    let (queue, gate) = (gpu.queue("raw"), gpu.device.timeline("gate").unwrap());
    let done = gpu.device.timeline("done").unwrap();
    queue
        .submit(&[gate.at(1)], |_| Ok(()), &[done.signal_at(1)])
        .unwrap();
    assert_eq!(queue.stream().held(), 1);
    assert!(matches!(
        gpu.device.event(done.at(1)),
        Err(Error::NotPending { .. })
    ));
    gate.signal(1).unwrap();
    queue.settle(LIMIT).unwrap();
    assert_eq!(queue.stream().held(), 0);
    let _ = gpu.device.event(done.at(1)).unwrap();
    done.at(1).wait(LIMIT).unwrap();
    assert!(gpu.device.event(done.at(1)).unwrap().is_none());

    // The application's own submission: claim, submit, say so.
    let busy = gpu.queue("the application's");
    let opens = gpu.gated(&busy);
    let mut claim = done.claim(2, 0).unwrap();
    // Without an event nobody could see the signal: refused, and the claim stays open.
    assert!(matches!(claim.submitted(), Err(Error::Unsupported { .. })));
    assert!(!done.at(2).is_pending().unwrap());
    // SAFETY: a claim of this timeline; the queue keeps its stream alive.
    unsafe {
        gpu.device
            .submit_claimed(&done, &mut claim, busy.stream().raw())
    }
    .unwrap();
    queue
        .submit(&[done.at(2)], |_| Ok(()), &[done.signal_at(3)])
        .unwrap();
    assert!(gpu.device.event(done.at(2)).unwrap().is_some());
    assert_eq!(done.value().unwrap(), 1);
    opens.open();
    done.at(3).wait(LIMIT).unwrap();
    assert_eq!(wait_any(&[done.at(3)], LIMIT).unwrap(), 0);
    gpu.device.check().unwrap();
}

/// Descriptors that are anything but what they claim to be; the first is not even open.
fn hostile() -> [OwnedFd; 4] {
    // SAFETY: no process has that many descriptors, so nothing is closed by accident; the test never
    // drops it.
    let closed = unsafe { OwnedFd::from_raw_fd(1_000_000) };
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap().into();
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    [closed, pipe, file, socket.into()]
}

fn still_the_callers(index: usize, fd: OwnedFd) {
    if index == 0 {
        let _ = fd.into_raw_fd();
    } else {
        rustix::io::fcntl_getfd(&fd).expect("still open");
    }
}

fn hostile_handles_stay_with_the_caller() {
    let gpu = gpu();
    let origin = Origin::of(gpu.device.info());
    for (index, fd) in hostile().into_iter().enumerate() {
        // SAFETY: it is not, which is the point: drivers refuse these kinds.
        let handle = unsafe { TimelineFd::from_fd(fd, origin.clone()) };
        let rejected = gpu
            .device
            .import_timeline(handle)
            .expect_err("no semaphore");
        eprintln!("timeline {index}: {}", rejected.error);
        still_the_callers(index, rejected.handle.into_fd());
    }
    for (index, fd) in hostile().into_iter().enumerate() {
        // SAFETY: as above.
        let handle = unsafe { MemoryFd::from_fd(fd, origin.clone(), 4096, 4096, true) };
        let rejected = gpu.device.import_memory(handle).expect_err("no memory");
        eprintln!("memory {index}: {}", rejected.error);
        still_the_callers(index, rejected.handle.into_fd());
    }
    gpu.device.check().unwrap();
    assert!(hand_over(&gpu, true, true).iter().all(|&word| word == 2));
}

fn another_gpus_handles_are_refused_unasked() {
    let gpu = gpu();
    let origin = Origin {
        device: "another GPU".into(),
        uuid: Some(Uuid([7; 16])),
        driver_uuid: None,
    };
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    // SAFETY: refused before anything looks at it.
    let handle = unsafe { TimelineFd::from_fd(pipe, origin) };
    let rejected = gpu
        .device
        .import_timeline(handle)
        .expect_err("another GPU's");
    let text = rejected.error.to_string();
    assert!(
        matches!(rejected.error, Error::CannotShare { .. }),
        "{text}"
    );
    assert!(
        text.contains("another GPU") && text.contains(&gpu.device.info().name),
        "{text}"
    );
    still_the_callers(1, rejected.handle.into_fd());
}

fn the_callers_current_context_is_left_as_found() {
    let gpu = gpu();
    let current = || {
        let mut context = std::ptr::null_mut();
        // SAFETY: writes one handle; the driver is there.
        let asked = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
        assert_eq!(asked, sys::CUresult::CUDA_SUCCESS);
        context
    };
    let before = current();
    let (queue, timeline) = (gpu.queue("polite"), gpu.device.timeline("polite").unwrap());
    let ours = gpu.device.raw_context() as usize;
    let work = move |_: &mut Recorder| {
        let mut context = std::ptr::null_mut();
        // SAFETY: as above.
        let _ = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
        assert_eq!(context as usize, ours);
        Ok(())
    };
    queue.submit(&[], work, &[timeline.signal_at(1)]).unwrap();
    timeline.at(1).wait(LIMIT).unwrap();
    let _ = gpu.device.buffer(64).unwrap().read_words().unwrap();
    assert_eq!(current(), before);
}

fn refusals_are_typed() {
    let gpu = gpu();
    assert!(matches!(
        gpu.device.queue(QueueKind::Graphics, "pictures"),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(
        gpu.device.buffer(0),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(
        gpu.device.buffer(6),
        Err(Error::Unsupported { .. })
    ));
    assert!(matches!(
        gpu.device.module("not PTX"),
        Err(Error::Native { .. })
    ));
    assert!(matches!(
        gpu.device.module("\0"),
        Err(Error::Unsupported { .. })
    ));
    gpu.device.check().unwrap();
}

/// The fault below kills the context of its whole process, so it gets one of its own.
fn a_fault_is_typed() {
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", FAULT])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success() && printed.contains("1 passed"),
        "{printed}"
    );
}

const FAULT: &str = "a_fault_in_this_process";

fn a_fault_in_this_process() {
    let gpu = gpu();
    let (queue, timeline) = (gpu.queue("faulty"), gpu.device.timeline("faulty").unwrap());
    let fault = gpu
        .device
        .module(KERNELS)
        .unwrap()
        .function(c"fault")
        .unwrap();
    // SAFETY: takes no parameters; what it does to the device is what is tested.
    let work = move |r: &mut Recorder| unsafe { r.launch(&fault, [1; 3], [1; 3], &mut []) };
    queue.submit(&[], work, &[timeline.signal_at(1)]).unwrap();
    let started = Instant::now();
    let error = timeline.at(1).wait(LIMIT).expect_err("the kernel faults");
    let Error::Failed { cause, .. } = &error else {
        panic!("{error:?}")
    };
    assert!(matches!(**cause, Error::DeviceLost { .. }), "{error:?}");
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    assert!(matches!(gpu.device.check(), Err(Error::DeviceLost { .. })));
    // The position fails too, and nothing hangs or crashes on the way out.
    assert!(queue.idle(LIMIT).is_err());
    assert!(queue.submit(&[], |_| Ok(()), &[]).is_err());
}

fn main() -> std::process::ExitCode {
    let tests = trials![
        data_follows_the_wait,
        without_the_wait_old_data_is_seen,
        positions_without_an_event_keep_their_place,
        what_refused_work_has_put_there_comes_first,
        any_number_of_streams_wait_for_the_host,
        a_long_chain_is_released_without_recursion,
        an_event_that_somebody_holds_is_not_used_again,
        a_timeline_that_nobody_asks_stays_small,
        fences_are_recorded_again_and_timed,
        a_record_does_not_move_earlier_waits,
        the_host_signals_forward_only,
        cudarcs_context_and_streams_are_adopted,
        a_captured_stream_is_refused_and_not_harmed,
        failing_work_signals_nothing_and_the_queue_goes_on,
        everything_may_be_dropped_in_flight,
        a_closed_gate_never_blocks_the_submitter,
        commands_and_not_submissions_are_bounded,
        what_another_queue_has_in_flight_counts_and_goes,
        the_callers_context_survives_work_that_sets_none,
        native_errors_name_the_stream,
        an_applications_event_becomes_a_fence,
        a_guarded_stream_takes_no_submissions,
        raw_handles_say_what_is_held,
        hostile_handles_stay_with_the_caller,
        another_gpus_handles_are_refused_unasked,
        the_callers_current_context_is_left_as_found,
        refusals_are_typed,
        a_fault_is_typed,
    ];
    let mut trials = common::trials_on_a_gpu(tests);
    trials.push(Trial::test("an_absent_driver_is_a_typed_reason", || {
        an_absent_driver_is_a_typed_reason();
        Ok(())
    }));
    let fault = common::trials_on_a_gpu(vec![(FAULT, a_fault_in_this_process)]);
    trials.extend(fault.into_iter().map(|trial| trial.with_ignored_flag(true)));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
