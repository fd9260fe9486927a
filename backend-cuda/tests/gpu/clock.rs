//! The GPU's clock compared with the host's. Each test prints what it measured.
//!
//! `SYNCLINE_CLOCK_SECONDS` sets for how long the conversion is checked. The default is 10 s.
#![allow(
    unsafe_code,
    reason = "launches kernels, and calls the driver as an application does"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test may panic"
)]

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use crate::common::{LIMIT, alone, open, trials};
use syncline_core::backend::kit::MutexGuard;
use syncline_core::backend::{Device as _, Queue as _};
use syncline_core::clock::{Clock, HostClock, Sampled};
use syncline_core::trace::{Outcome, Trace};
use syncline_core::{Error, QueueKind, Result};
use syncline_cuda::{Buffer, Device, Function, Queue, Recorder, sys};

/// Largest stated error that the test accepts, in nanoseconds.
const BAR: u64 = 3_000;
/// An error of the map that fresh samples must detect.
const SHIFT: i64 = 20_000;
/// An error of the map that launches must detect. They do not use samples.
///
/// If other processes use the GPU, a launch takes a quarter of a millisecond.
const GREAT_SHIFT: i64 = 2_000_000;

struct Setup {
    device: Device,
    delay: Function,
    gate: Function,
    peek: Function,
    _alone: MutexGuard<'static, ()>,
}

impl Setup {
    /// Loads everything but what the clock needs.
    fn new() -> Self {
        let alone = alone();
        let device = open().unwrap();
        let module = device.module(include_str!("../kernels.ptx")).unwrap();
        let [delay, gate, peek] =
            ["delay", "gate", "peek"].map(|name| module.function(name).unwrap());
        let setup = Self {
            device,
            delay,
            gate,
            peek,
            _alone: alone,
        };
        let (queue, word) = (setup.queue("warm-up"), setup.word());
        setup.launch(&queue, &setup.delay, [1, 1], 1);
        setup.launch(&queue, &setup.peek, [1, 1], word.pointer());
        setup.launch(&queue, &setup.gate, [1, 1], word.pointer());
        queue.idle(LIMIT).unwrap();
        setup
    }

    /// Returns a clock that has a sample.
    fn clock(&self) -> Clock {
        let clock = self.device.clock().unwrap();
        sampled_in_the_end(&clock);
        clock
    }

    fn queue(&self, label: &str) -> Queue {
        self.device.queue(QueueKind::Compute, label).unwrap()
    }

    fn word(&self) -> Buffer {
        self.device.host_buffer(8).unwrap()
    }

    fn launch(&self, queue: &Queue, function: &Function, [blocks, threads]: [u32; 2], value: u64) {
        let function = function.clone();
        let work = move |r: &mut Recorder| {
            let mut value = value;
            let mut params = [(&raw mut value).cast::<c_void>()];
            // SAFETY: the kernels take one u64. The caller keeps words that it points to until the
            // kernel has finished.
            unsafe { r.launch(&function, [blocks, 1, 1], [threads, 1, 1], &mut params) }
        };
        queue.submit(&[], work, &[]).unwrap();
    }

    /// Stalls new `streams` until the release, with `behind` further kernels on each.
    fn stalled(&self, streams: usize, behind: usize) -> Stalls {
        let word = self.word();
        let queues: Vec<_> = (0..streams).map(|_| self.queue("gated")).collect();
        for queue in &queues {
            self.launch(queue, &self.gate, [1, 1], word.pointer());
        }
        for queue in &queues {
            for _ in 0..behind {
                self.launch(queue, &self.delay, [1, 1], 1);
            }
        }
        Stalls { word, queues }
    }
}

/// Stalled streams. The drop releases them, so that no failing test leaves a kernel running.
struct Stalls {
    word: Buffer,
    queues: Vec<Queue>,
}

impl Stalls {
    fn release(&self) {
        self.word.as_words().unwrap()[0].store(1, Ordering::Release);
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.release();
        for queue in &self.queues {
            let _ = queue.idle(LIMIT);
        }
    }
}

/// Takes a sample. It may fail with [`Error::ClockSilent`] only.
///
/// The tests release their stalls after this returns, so a sample that waits for the device's work
/// never returns.
fn sampled(clock: &Clock) -> Result<Sampled> {
    let before = HostClock::Monotonic.now();
    let answer = clock.sample();
    let after = HostClock::Monotonic.now();
    match &answer {
        Ok(Sampled { sample, .. }) => {
            let deviation = sample.deviation.cast_signed();
            assert!(
                before <= sample.host + deviation && sample.host - deviation <= after,
                "taken from {before} to {after}: {sample:?}"
            );
        }
        Err(error) => assert!(matches!(error, Error::ClockSilent { .. }), "{error}"),
    }
    answer
}

/// Takes a sample. Retries for a limited time, because another process may use the GPU.
fn sampled_in_the_end(clock: &Clock) -> Sampled {
    let started = Instant::now();
    loop {
        match sampled(clock) {
            Ok(sampled) => return sampled,
            Err(error) => assert!(started.elapsed() < LIMIT, "{error}"),
        }
    }
}

/// Prints the minimum, median, 90th and 99th percentile and maximum of `values`.
fn tell(what: &str, mut values: Vec<u64>) {
    values.sort_unstable();
    let at = |share: usize| values.get((values.len().max(1) - 1) * share / 100);
    println!(
        "{what}: {} values; least {:?}, median {:?}, 90 % {:?}, 99 % {:?}, most {:?}",
        values.len(),
        at(0),
        at(50),
        at(90),
        at(99),
        at(100)
    );
}

/// Takes `samples` samples, prints their errors, and returns how many succeeded.
fn outcomes(what: &str, clock: &Clock, samples: usize) -> usize {
    let (mut deviations, mut times, mut refused) = (Vec::new(), Vec::new(), None);
    for _ in 0..samples {
        let started = Instant::now();
        match sampled(clock) {
            Ok(sampled) => deviations.push(sampled.sample.deviation),
            Err(error) => refused = Some(error),
        }
        times.push(started.elapsed().as_nanos() as u64);
    }
    let taken = deviations.len();
    println!("{what}: {taken} of {samples} samples taken");
    tell(&format!("{what}: deviation, ns"), deviations);
    tell(&format!("{what}: a sample takes, ns"), times);
    if let Some(error) = refused {
        println!("{what}: {error}");
    }
    taken
}

fn it_says_that_it_has_a_clock() {
    let setup = Setup::new();
    let can = &setup.device.info().capabilities;
    assert!(can.calibrated_clock, "{:?}", can.limits);
    let limit = can
        .limits
        .iter()
        .find(|(what, _)| *what == "calibrated clock");
    assert_eq!(limit, None);
    let started = Instant::now();
    let clock = setup.device.clock().unwrap();
    println!("the first clock() takes {:?}", started.elapsed());
    let started = Instant::now();
    let first = sampled_in_the_end(&clock);
    println!("the first sample takes {:?}: {first:?}", started.elapsed());
    let started = Instant::now();
    let again = setup.device.clock().unwrap();
    println!("the second clock() takes {:?}", started.elapsed());
    assert_eq!(clock.object(), again.object());
    assert_eq!(clock.host_clock(), HostClock::Monotonic);
}

fn samples_bracket_and_rise() {
    const SAMPLES: usize = 2_000;
    let setup = Setup::new();
    let clock = setup.clock();
    let (mut deviations, mut times) = (Vec::new(), Vec::new());
    let mut last = i64::MIN;
    for _ in 0..SAMPLES {
        let started = Instant::now();
        let Sampled { sample, .. } = sampled_in_the_end(&clock);
        times.push(started.elapsed().as_nanos() as u64);
        deviations.push(sample.deviation);
        assert!(sample.device > last, "{sample:?} after {last}");
        last = sample.device;
    }
    let good = deviations.iter().filter(|one| **one <= BAR).count();
    tell("deviation, ns", deviations);
    tell("a sample takes, ns", times);
    println!("{good} of {SAMPLES} deviate by {BAR} ns at most");
    assert!(good * 10 >= SAMPLES * 9);
}

/// Conversions agree with fresh samples, and with kernels that store the time.
///
/// The kernels do not use samples. Both would detect a map that is 20 µs off. Runs for 10 s or for
/// `SYNCLINE_CLOCK_SECONDS`.
fn the_conversion_holds() {
    let asked = std::env::var("SYNCLINE_CLOCK_SECONDS").ok();
    let seconds = asked.map_or(10, |seconds| seconds.parse().expect("a number of seconds"));
    let setup = Setup::new();
    let clock = setup.clock();
    let (queue, word) = (setup.queue("peek"), setup.word());
    let words = word.as_words().unwrap();
    let (mut stated, mut aged, mut widths, mut off) = (vec![], vec![], vec![], vec![]);
    let (mut by_samples, mut near, mut far) = (0, 0, 0);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(seconds) {
        // Varies the interval, so that it is not in step with anything else.
        sleep(Duration::from_micros(
            17_000 + (stated.len() as u64 * 7_919) % 71_000,
        ));

        // A kernel stores the time, between two readings of the host's clock.
        words[0].store(0, Ordering::SeqCst);
        words[1].store(0, Ordering::SeqCst);
        let before = HostClock::Monotonic.now();
        setup.launch(&queue, &setup.peek, [1, 1], word.pointer());
        while words[1].load(Ordering::Acquire) == 0 {
            assert!(HostClock::Monotonic.now() - before < 2_000_000_000);
        }
        let after = HostClock::Monotonic.now();
        queue.idle(LIMIT).unwrap();
        let [low, high] = [0, 1].map(|half: usize| i64::from(words[half].load(Ordering::Acquire)));
        let device = (high << 32) | low;
        let there = clock.to_host(device).unwrap();
        let error = there.error.cast_signed();
        let within =
            |at: i64, error: i64| before <= at.saturating_add(error) && at - error <= after;
        assert!(
            within(there.nanoseconds, error),
            "{there:?} is not from {before} to {after}"
        );
        for (shift, counts) in [(SHIFT, &mut near), (GREAT_SHIFT, &mut far)] {
            // Only a narrow bracket can detect the error.
            if after - before + 2 * error < shift {
                let found = [shift, -shift].map(|by| !within(there.nanoseconds + by, error));
                assert_eq!(found, [true; 2], "{there:?} from {before} to {after}");
                *counts += 1;
            }
        }
        // The conversion back.
        let back = clock.to_device(there.nanoseconds).unwrap();
        let both = there.error + back.error;
        assert!(back.nanoseconds.abs_diff(device) <= both, "{back:?}");
        widths.push((after - before).cast_unsigned());
        stated.push(there.error);

        // A fresh sample.
        let look = sampled_in_the_end(&clock);
        assert!(look.holds(), "{look:?}");
        let expected = look.expected.unwrap();
        aged.push(expected.error);
        off.push(expected.nanoseconds.abs_diff(look.sample.host));
        if 2 * (expected.error + look.sample.deviation) < SHIFT.cast_unsigned() {
            for shift in [SHIFT, -SHIFT] {
                let mut shifted = look;
                shifted.expected.as_mut().unwrap().nanoseconds += shift;
                assert!(!shifted.holds(), "{shifted:?}");
            }
            by_samples += 1;
        }
    }
    let looks = stated.len();
    // The clock needs some time to learn the drift.
    let settled: Vec<_> = aged.split_off(aged.len() / 2);
    let good = settled.iter().filter(|error| **error <= BAR).count();
    println!(
        "{looks} looks in {:?}; {:?}",
        started.elapsed(),
        clock.drift()
    );
    tell("stated error of a conversion, ns", stated);
    tell("stated error just before a sample, first half, ns", aged);
    tell(
        "stated error just before a sample, second half, ns",
        settled.clone(),
    );
    tell("how far the next sample is off, ns", off);
    tell("width of the launches' brackets, ns", widths);
    println!(
        "a shift of 20 µs is found by {by_samples} of {looks} samples and {near} launches, one of 2 ms by {far} launches"
    );
    assert!(by_samples * 2 >= looks && far * 2 >= looks);
    assert!(good * 10 >= settled.len() * 9);
}

/// Stalls one stream, and then streams on all hardware connections of the process.
fn stalls_cost_accuracy_not_time() {
    let setup = Setup::new();
    let clock = setup.clock();
    for (streams, behind) in [(1, 0), (1, 5), (8, 1), (40, 1), (40, 10)] {
        let stalls = setup.stalled(streams, behind);
        let what = format!("{streams} stalls, {behind} behind each");
        outcomes(&what, &clock, 20);
        let device = sampled_time(&clock) + 50_000_000;
        let started = Instant::now();
        for _ in 0..100 {
            clock.to_host(device + 10 * Clock::REFIT).unwrap();
        }
        println!("{what}: 100 conversions take {:?}", started.elapsed());
        assert!(
            !stalls
                .queues
                .iter()
                .any(|queue| queue.idle(Duration::ZERO).is_ok())
        );
        drop(stalls);
        let after = sampled_in_the_end(&clock);
        assert!(after.holds(), "{after:?}");
    }
}

/// Loading the clock's kernel can wait for all work of the context.
///
/// `Device::clock` must return nevertheless, because its caller may be the thread that ends the
/// stall.
fn a_clock_may_be_created_while_streams_are_stalled() {
    let setup = Setup::new();
    for streams in [1, 40] {
        let device = open().unwrap();
        let stalls = setup.stalled(streams, 1);
        let started = Instant::now();
        let clock = device.clock().unwrap();
        let took = started.elapsed();
        println!("behind {streams} stalls the first clock() takes {took:?}");
        outcomes("a clock that may still be in the making", &clock, 3);
        assert!(stalls.queues[0].idle(Duration::ZERO).is_err());
        stalls.release();
        let first = sampled_in_the_end(&clock);
        assert!(first.holds(), "{first:?}");
        drop(stalls);
    }
}

/// Returns a device time of about now.
fn sampled_time(clock: &Clock) -> i64 {
    clock
        .to_device(HostClock::Monotonic.now())
        .unwrap()
        .nanoseconds
}

/// The application has filled a hardware queue itself, so the driver blocks its calls.
fn a_full_hardware_queue_costs_accuracy_not_time() {
    let setup = Setup::new();
    let clock = setup.clock();
    let memory = setup.device.buffer(64).unwrap();
    let stalls = setup.stalled(1, 0);
    let put = Arc::new(AtomicU32::new(0));
    thread::scope(|scope| {
        let guard = stalls.queues[0].stream();
        let (stream, count, pointer) = (guard.raw() as usize, put.clone(), memory.pointer());
        let context = setup.device.raw_context() as usize;
        let blocked = scope.spawn(move || {
            // SAFETY: the context lives to the end of the test.
            ok(unsafe { sys::cuCtxSetCurrent(context as sys::CUcontext) });
            for _ in 0..3_000 {
                // SAFETY: words that live to the end of the test; the stream is the guard's.
                ok(unsafe { sys::cuMemsetD32Async(pointer, 1, 16, stream as sys::CUstream) });
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        sleep(Duration::from_millis(300));
        println!(
            "the application has put {} commands, and is {}",
            put.load(Ordering::Relaxed),
            if blocked.is_finished() {
                "done"
            } else {
                "blocked"
            }
        );
        outcomes("a full hardware queue", &clock, 20);
        stalls.release();
        blocked.join().unwrap();
        drop(guard);
    });
    assert!(sampled_in_the_end(&clock).holds());
    for queue in &stalls.queues {
        queue.idle(LIMIT).unwrap();
    }
}

fn busy_streams_cost_accuracy_not_time() {
    let setup = Setup::new();
    let clock = setup.clock();
    let queues: Vec<_> = (0..16).map(|_| setup.queue("busy")).collect();
    for _ in 0..20 {
        for queue in &queues {
            setup.launch(queue, &setup.delay, [1, 1], 2_000_000);
        }
    }
    let taken = outcomes("16 streams of small kernels", &clock, 100);
    assert!(taken > 0);
    for queue in &queues {
        queue.idle(LIMIT).unwrap();
    }
    // These kernels occupy the whole GPU. Each block takes 0.2 ms.
    let queue = &queues[0];
    for _ in 0..10 {
        setup.launch(queue, &setup.delay, [4_000, 1_024], 200_000);
    }
    outcomes("a full GPU", &clock, 30);
    println!("still full: {}", queue.idle(Duration::ZERO).is_err());
    queue.idle(LIMIT).unwrap();
    // Blocks of 50 ms take longer than a sample waits.
    setup.launch(queue, &setup.delay, [2_000, 1_024], 50_000_000);
    outcomes("a GPU full of long blocks", &clock, 10);
    println!("still full: {}", queue.idle(Duration::ZERO).is_err());
    queue.idle(LIMIT).unwrap();
    assert!(sampled_in_the_end(&clock).holds());
}

/// The clock is created and sampled during a capture in global mode.
///
/// In this mode a forbidden call of any thread would invalidate the capture.
fn captures_go_on() {
    let setup = Setup::new();
    // SAFETY: the context lives to the end of the test.
    ok(unsafe { sys::cuCtxSetCurrent(setup.device.raw_context()) });
    let (queue, word) = (setup.queue("captured"), setup.word());
    let guard = queue.stream();
    let mode = sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: a live stream.
    ok(unsafe { sys::cuStreamBeginCapture_v2(guard.raw(), mode) });
    let clock = setup.device.clock().unwrap();
    for _ in 0..10 {
        sampled_in_the_end(&clock);
        // SAFETY: a word that lives to the end of the test.
        ok(unsafe { sys::cuMemsetD32Async(word.pointer(), 1, 1, guard.raw()) });
        thread::scope(|scope| {
            scope.spawn(|| sampled_in_the_end(&clock));
        });
    }
    let mut graph = null_mut();
    // SAFETY: begun by this thread; writes one handle.
    ok(unsafe { sys::cuStreamEndCapture(guard.raw(), &raw mut graph) });
    // SAFETY: just captured, and only this function has the graph.
    ok(unsafe { sys::cuGraphDestroy(graph) });
    // SAFETY: nothing is current any more.
    ok(unsafe { sys::cuCtxSetCurrent(null_mut()) });
}

fn ok(result: sys::CUresult) {
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS);
}

fn current() -> sys::CUcontext {
    let mut context = null_mut();
    // SAFETY: writes one handle.
    ok(unsafe { sys::cuCtxGetCurrent(&raw mut context) });
    context
}

/// Creates another context and makes it current.
fn another_context(device: &Device) -> sys::CUcontext {
    type Create = unsafe extern "C" fn(*mut sys::CUcontext, u32, sys::CUdevice) -> u32;
    // Newer versions of the function take other arguments.
    // SAFETY: the driver is loaded already, and stays so.
    let driver = unsafe { libloading::Library::new("libcuda.so.1") }.unwrap();
    // SAFETY: cuda.h has declared this version so since 3.2.
    let create = unsafe { driver.get::<Create>(b"cuCtxCreate_v2") }.unwrap();
    let (mut other, mut gpu) = (null_mut(), 0);
    // SAFETY: the device has its context; the others write a number and a handle.
    unsafe {
        ok(sys::cuCtxSetCurrent(device.raw_context()));
        ok(sys::cuCtxGetDevice(&raw mut gpu));
        assert_eq!(create(&raw mut other, 0, gpu), 0);
    }
    other
}

/// An application may destroy an adopted context right after the device and its clock are dropped.
fn a_lent_context_may_be_destroyed_next() {
    let setup = Setup::new();
    for _ in 0..5 {
        let context = another_context(&setup.device);
        // SAFETY: it lives until the device and its clock are dropped.
        let device = unsafe { Device::adopt_context(context, None) }.unwrap();
        let clock = device.clock().unwrap();
        sampled_in_the_end(&clock);
        drop((clock, device));
        // SAFETY: nothing uses it.
        unsafe {
            ok(sys::cuCtxSetCurrent(null_mut()));
            ok(sys::cuCtxDestroy_v2(context));
        }
        setup.device.check().unwrap();
    }
    setup.clock();
}

fn the_callers_context_is_left_as_found() {
    let setup = Setup::new();
    let other = another_context(&setup.device);
    let clock = setup.device.clock().unwrap();
    for context in [other, null_mut(), setup.device.raw_context(), other] {
        // SAFETY: none, or a live one.
        ok(unsafe { sys::cuCtxSetCurrent(context) });
        // Setting no context pops the topmost one, and others may lie below it.
        let before = current();
        sampled_in_the_end(&clock);
        clock.to_host(sampled_time(&clock)).unwrap();
        assert_eq!(current(), before);
    }
    // SAFETY: nothing uses it.
    unsafe {
        ok(sys::cuCtxSetCurrent(null_mut()));
        ok(sys::cuCtxDestroy_v2(other));
    }
}

fn threads_sample_together() {
    let setup = Setup::new();
    let clock = setup.clock();
    let other = setup.device.clock().unwrap();
    let end = Instant::now() + Duration::from_secs(1);
    thread::scope(|scope| {
        for clock in [&clock, &other, &clock, &other] {
            scope.spawn(move || {
                let (mut samples, mut last) = (0_u32, i64::MIN);
                while Instant::now() < end {
                    let look = sampled_in_the_end(clock);
                    assert!(look.holds(), "{look:?}");
                    assert!(look.sample.device > last);
                    last = look.sample.device;
                    samples += 1;
                    clock.to_host(sampled_time(clock)).unwrap();
                }
                println!("a thread of four took {samples} samples in a second");
            });
        }
    });
    // Each of two devices over one context has its own clock.
    let second = open().unwrap();
    let second = second.clock().unwrap();
    thread::scope(|scope| {
        for clock in [&clock, &second] {
            scope.spawn(move || outcomes("one of two devices", clock, 500));
        }
    });
    // Both clocks agree.
    let device = sampled_in_the_end(&clock).sample.device;
    let [one, two] = [&clock, &second].map(|clock| clock.to_host(device).unwrap());
    let off = one.nanoseconds.abs_diff(two.nanoseconds);
    println!("two devices over one context differ by {off} ns: {one:?}, {two:?}");
    assert!(off <= one.error + two.error);
}

fn everything_may_be_dropped_in_the_middle() {
    let setup = Setup::new();
    for round in 0..20 {
        let device = open().unwrap();
        let clock = device.clock().unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let other = clock.clone();
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    sampled_in_the_end(&other);
                }
            });
            sleep(Duration::from_micros(round * 137));
            drop(clock);
            drop(device);
            stop.store(true, Ordering::Relaxed);
        });
    }
    // Drops a clock whose kernel may wait behind the stalls. Freeing the clock's memory waits for
    // the stalls, or a thread frees the memory later.
    for (streams, behind) in [(1, 1), (40, 2)] {
        let device = open().unwrap();
        let stalls = setup.stalled(streams, behind);
        thread::scope(|scope| {
            // Creating the clock may wait for the stalls, too.
            let opener = scope.spawn(|| {
                sleep(Duration::from_millis(500));
                stalls.release();
            });
            let started = Instant::now();
            let clock = device.clock().unwrap();
            println!(
                "behind {streams} stalls the first clock() takes {:?} (the stalls are released after 500 ms)",
                started.elapsed()
            );
            let _ = sampled(&clock);
            let closed = !opener.is_finished();
            let started = Instant::now();
            drop((clock, device));
            println!(
                "dropping it takes {:?} (the stalls were in place: {closed})",
                started.elapsed()
            );
        });
        drop(stalls);
        setup.device.check().unwrap();
    }
    let device = open().unwrap();
    let clock = device.clock().unwrap();
    let stalls = setup.stalled(40, 2);
    let taken = sampled(&clock).is_ok();
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            sleep(Duration::from_millis(500));
            stalls.release();
        });
        drop((clock, device));
        println!(
            "a clock whose sample was {} is dropped in {:?} while 40 stalls block for 500 ms",
            if taken { "taken" } else { "refused" },
            started.elapsed()
        );
    });
    drop(stalls);
    setup.device.check().unwrap();
    setup.clock();
}

/// `record` of clocked fences returns while a kernel blocks another stream.
///
/// The first record may load the kernel that writes times. Many records at once need more memory
/// for times.
fn records_do_not_wait_for_a_stall() {
    let setup = Setup::new();
    let fences: Vec<_> = (0..1_300)
        .map(|_| setup.device.clocked_fence("behind a stall").unwrap())
        .collect();
    let queue = setup.queue("recorded");
    let stalls = setup.stalled(1, 0);
    let started = Instant::now();
    for fence in &fences[..1] {
        queue.record(fence).unwrap();
    }
    let first = started.elapsed();
    fences[0].wait(LIMIT).unwrap();
    for fence in &fences {
        queue.record(fence).unwrap();
    }
    println!(
        "the first record behind a stall took {first:?}, another {} {:?}",
        fences.len(),
        started.elapsed() - first
    );
    // If a record had waited for the stall, it would not have returned.
    assert_eq!(
        stalls.word.as_words().unwrap()[0].load(Ordering::Acquire),
        0
    );
    drop(stalls);
    queue.idle(LIMIT).unwrap();
    let times: Vec<_> = fences.iter().map(|one| one.time().unwrap()).collect();
    for pair in times.windows(2) {
        let passed = pair[1].since(&pair[0]).unwrap();
        assert!(passed.nanoseconds >= 0, "{passed:?} along a queue");
    }
}

/// The device's times lie between the host's before and after, within their stated error.
///
/// They are whole nanoseconds, so the intervals add up exactly.
fn clocked_fences_tell_the_time() {
    let setup = Setup::new();
    setup.clock();
    let queue = setup.queue("timed");
    let fence = || setup.device.clocked_fence("time").unwrap();
    let (mut times, mut errors) = (Vec::new(), Vec::new());
    for round in 0..200 {
        let fence = fence();
        let before = HostClock::Monotonic.now();
        if round % 4 == 0 {
            setup.launch(&queue, &setup.delay, [1, 1], 200_000);
        }
        queue.record(&fence).unwrap();
        fence.wait(LIMIT).unwrap();
        let after = HostClock::Monotonic.now();
        let time = fence.time().unwrap();
        let host = time.to_host().unwrap();
        let error = host.error.cast_signed();
        assert!(
            before - error <= host.nanoseconds && host.nanoseconds <= after + error,
            "{host:?} is not between {before} and {after}"
        );
        errors.push(host.error);
        times.push((time, fence));
    }
    tell("stated error of a stamp on the host's clock, ns", errors);
    let mut sum = 0;
    for pair in times.windows(2) {
        let ((start, first), (end, second)) = (&pair[0], &pair[1]);
        let passed = second.elapsed_since(first).unwrap();
        assert_eq!(end.since(start).unwrap().nanoseconds, passed);
        sum += passed;
    }
    let (first, last) = (&times[0].1, &times[199].1);
    assert_eq!(last.elapsed_since(first).unwrap(), sum);
}

/// Compares intervals of events with times of the clock, on one queue.
fn events_and_the_clock_agree() {
    let setup = Setup::new();
    let queue = setup.queue("timed");
    let mut apart = Vec::new();
    for _ in 0..50 {
        let clocked = ["start", "end"].map(|name| setup.device.clocked_fence(name).unwrap());
        let timed = ["start", "end"].map(|name| setup.device.timed_fence(name));
        let before = HostClock::Monotonic.now();
        queue.record(&clocked[0]).unwrap();
        queue.record(&timed[0]).unwrap();
        setup.launch(&queue, &setup.delay, [1, 1], 2_000_000);
        queue.record(&timed[1]).unwrap();
        queue.record(&clocked[1]).unwrap();
        queue.idle(LIMIT).unwrap();
        let on_the_host = HostClock::Monotonic.now() - before;
        let by_events = timed[1].elapsed_since(&timed[0]).unwrap();
        let by_the_clock = clocked[1].elapsed_since(&clocked[0]).unwrap();
        // The clocked fences are recorded outside the events. Event times are `float` milliseconds.
        assert!(
            by_the_clock >= by_events - 1_000,
            "{by_the_clock} ns around {by_events} ns"
        );
        // All of it happens between two readings of the host's clock. Each device time is rounded,
        // to at most a microsecond.
        assert!(
            by_the_clock <= on_the_host + 2_000,
            "{by_the_clock} ns within {on_the_host} ns"
        );
        apart.push((by_the_clock - by_events).unsigned_abs());
        let mixed = clocked[1].elapsed_since(&timed[0]);
        assert!(matches!(mixed, Err(Error::TimingDiffers { .. })));
    }
    tell("by the clock more than by events, ns", apart);
}

/// The time after a kernel in a submission is later than the end of that kernel.
///
/// This also holds if the kernel lets the next one begin before its own end.
fn a_time_behind_a_kernel_is_not_before_its_end() {
    const TAKES: u64 = 500_000;
    let setup = Setup::new();
    let mut kernels = vec![setup.delay.clone()];
    match setup.device.module(include_str!("../early.ptx")) {
        Ok(module) => kernels.push(module.function("early").unwrap()),
        Err(Error::Native {
            code: 209 | 218 | 222,
            ..
        }) => {
            println!("no kernel of this GPU, or for this driver, lets the next one begin");
        }
        Err(why) => panic!("{why}"),
    }
    let queue = setup.queue("timed");
    for kernel in kernels {
        // On a busy machine the trace may get no sample of the clock, and then it knows no time.
        let recording = (0..20).find_map(|_| {
            let trace = Trace::new();
            trace.follow(&queue).unwrap();
            for _ in 0..20 {
                setup.launch(&queue, &kernel, [1, 1], TAKES);
            }
            queue.idle(LIMIT).unwrap();
            let recording = trace.finish(LIMIT);
            let mut submissions = recording.tracks[0].submissions.iter();
            let known = submissions.all(|one| one.began.is_some() && one.ended.is_some());
            known.then_some(recording)
        });
        let recording = recording.expect("a trace that knows all times");
        let submissions = &recording.tracks[0].submissions;
        assert_eq!(submissions.len(), 20);
        let mut took = Vec::new();
        for one in submissions {
            let (began, ended) = (one.began.unwrap(), one.ended.unwrap());
            took.push(ended.nanoseconds.abs_diff(began.nanoseconds));
            // On the host's clock, which may run a little faster or slower.
            let least = (TAKES - TAKES / 1_000).cast_signed();
            assert!(
                ended.nanoseconds - began.nanoseconds >= least,
                "{kernel:?} took {began:?} to {ended:?}"
            );
        }
        tell("a kernel of 500 µs between two times, ns", took);
    }
}

/// A submission that hangs on the device has a time of its begin.
fn a_trace_tells_what_has_begun_and_not_ended() {
    // On a busy machine the trace may get no sample of the clock, and then it knows no time.
    let known = (0..20).any(|_| traces_what_has_begun(&Setup::new()));
    assert!(known, "no trace knows when the work began");
}

/// Checks a trace that ends while work runs. False if it does not know when the work began.
fn traces_what_has_begun(setup: &Setup) -> bool {
    let queue = setup.queue("hangs");
    let trace = Trace::new();
    trace.follow(&queue).unwrap();
    let told = setup.word();
    let stalls = Stalls {
        word: setup.word(),
        queues: vec![queue.clone()],
    };
    let (gate, pointer, filled) = (setup.gate.clone(), stalls.word.pointer(), told.clone());
    let work = move |r: &mut Recorder| {
        r.memset_d32(&filled, 1)?;
        let mut word = pointer;
        let mut params = [(&raw mut word).cast::<c_void>()];
        // SAFETY: the kernel takes the address of a word, which outlives the queue's work.
        unsafe { r.launch(&gate, [1, 1, 1], [1, 1, 1], &mut params) }
    };
    let before = HostClock::Monotonic.now();
    queue.submit(&[], work, &[]).unwrap();
    queue.submit(&[], |_| Ok(()), &[]).unwrap();
    let started = Instant::now();
    while told.as_words().unwrap()[0].load(Ordering::Acquire) == 0 {
        assert!(started.elapsed() < LIMIT, "the kernel has not begun");
        thread::yield_now();
    }
    let recording = trace.finish(Duration::ZERO);
    assert_eq!(
        stalls.word.as_words().unwrap()[0].load(Ordering::Acquire),
        0
    );
    drop(stalls);
    let [hung, behind] = &recording.tracks[0].submissions[..] else {
        panic!("{recording:?}");
    };
    for one in [hung, behind] {
        assert_eq!((&one.outcome, one.ended), (&Outcome::Pending, None));
    }
    assert_eq!(behind.began, None);
    let Some(began) = hung.began else {
        return false;
    };
    let error = began.error.cast_signed();
    let times = before - error..=recording.ended + error;
    assert!(
        times.contains(&began.nanoseconds),
        "{began:?} not in {times:?}"
    );
    true
}

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    trials![
        records_do_not_wait_for_a_stall,
        a_trace_tells_what_has_begun_and_not_ended,
        a_time_behind_a_kernel_is_not_before_its_end,
        clocked_fences_tell_the_time,
        events_and_the_clock_agree,
        it_says_that_it_has_a_clock,
        stalls_cost_accuracy_not_time,
        a_clock_may_be_created_while_streams_are_stalled,
        a_full_hardware_queue_costs_accuracy_not_time,
        captures_go_on,
        the_callers_context_is_left_as_found,
        a_lent_context_may_be_destroyed_next,
        threads_sample_together,
        everything_may_be_dropped_in_the_middle,
    ]
}

/// Tests of the accuracy of a GPU's clock, and of how much a GPU runs at once.
pub(crate) fn tests_of_a_gpu() -> Vec<(&'static str, fn())> {
    trials![
        samples_bracket_and_rise,
        the_conversion_holds,
        busy_streams_cost_accuracy_not_time,
    ]
}
