//! The GPU's clock, sampled together with the host's clock by a kernel of one thread.
//!
//! The host learns of a launch several microseconds late, too late for a narrow bracket. So one
//! launch answers sixteen requests. For each request the host reads its clock, writes a word of
//! pinned memory, sees the answer in another word and reads its clock again. This takes two trips
//! over the bus. The kernel is `clock.ptx`, which also explains the order of its memory accesses.
//! The kernel reads `%globaltimer`, which counts nanoseconds in steps. It measures these steps too.
//!
//! The start of a launch has no time limit. Its stream may share a hardware connection with a
//! stream that waits, the GPU may be full, and the driver may even block the launching thread.
//! Therefore a separate thread launches the kernel, and the sampling thread stops waiting after a
//! time. The launching thread stays until the kernel has ended, because it keeps what the kernel
//! uses. Nothing else is launched meanwhile, so at most one command is in flight.
#![allow(unsafe_code, reason = "launches a kernel")]

use std::any::Any;
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use syncline_core::backend::Sampler;
use syncline_core::backend::kit::{Condvar, Mutex, TeardownGuard};
use syncline_core::clock::{Clock, HostClock, Sample};
use syncline_core::{Error, Result, error::Object, info::Uuid};

use crate::device::context::Context;
use crate::device::inner::DeviceRef;
use crate::device::limits::CLOCK_LIMIT;
use crate::device::open::Device;
use crate::device::stream::Stream;
use crate::memory::buffer::Buffer;
use crate::memory::module::{Function, Module};
use crate::timing::stamp::Timekeeper;

/// The kernels that read the clock.
pub(crate) const KERNELS: &str = include_str!("clock.ptx");
/// The largest step of the clock on any GPU that has one, in nanoseconds.
const LONGEST_STEP: u64 = 1_024;

/// The number of words that the kernel and the host share. `clock.ptx` describes them.
const WORDS: usize = 40;
const ASKED: usize = 0;
const STEPS: std::ops::Range<usize> = 8..17;
const ANSWERS: std::ops::Range<usize> = 24..40;
/// A request for this many answers stops the kernel.
const STOP: u64 = u64::MAX;

/// The time limit for the kernel's start and answers.
///
/// Another API may use the GPU for some milliseconds.
const START_TIMEOUT: Duration = Duration::from_millis(20);
/// The same for a software device, whose processors other programs use, too.
const SOFTWARE_START_TIMEOUT: Duration = Duration::from_millis(200);
/// A running kernel that has not answered for this long has ended. It runs for 2 ms.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(3);
/// The further time of a sample whose launching thread is blocked in the driver.
const LAUNCH_TIMEOUT: Duration = Duration::from_millis(10);
/// The most launches for one sample.
///
/// Another launch follows if the readings contradict each other or their sample is not good enough.
const MAX_LAUNCHES: u32 = 4;
/// A sample that deviates by at most this many nanoseconds is good enough.
const GOOD_DEVIATION: u64 = 2_000;
/// After this time any sample is good enough.
const RETRY_TIME: Duration = Duration::from_millis(5);

/// Two clocks drift apart by at most one nanosecond in this many: 500 parts per million.
const MAX_DRIFT_ONE_IN: u64 = 2_000;

/// How long a request for the clock waits for its kernels.
///
/// Loading them may wait for all work of the context, even for work that waits for the requesting
/// thread.
const LOAD_TIMEOUT: Duration = Duration::from_secs(1);

/// Samples the clock of one device.
///
/// Dropping it frees pinned memory and unloads a kernel, which may block until all work of the
/// context has finished. If a kernel is still being loaded or has not started, the launching thread
/// frees them later, unless the application may destroy the context earlier.
pub(crate) struct ClockSampler(Arc<Setup>);

/// The kernels of the clock once a thread has loaded them, or the error.
pub(crate) struct Setup {
    object: Object,
    gpu: Option<Uuid>,
    /// True if the context lives as long as every object in it.
    kept: bool,
    /// The time until which requests for the clock wait.
    until: Instant,
    /// The time limit for the kernel's start and answers in one sample.
    start_timeout: Duration,
    made: Mutex<Option<Result<ClockKernels>>>,
    changed: Condvar,
}

#[derive(Clone)]
struct ClockKernels {
    sample_kernel: Arc<SampleKernel>,
    keeper: Arc<Timekeeper>,
}

impl ClockKernels {
    /// Loads the kernels. May block until all work of the context has finished.
    ///
    /// # Errors
    /// A driver error.
    fn new(device_ref: DeviceRef, object: &Object) -> Result<Self> {
        let kernels = Module::load(&device_ref, KERNELS)?;
        Ok(Self {
            sample_kernel: Arc::new(SampleKernel {
                object: object.clone(),
                stream: Stream::urgent(device_ref.context(), "clock")?,
                show: kernels.function("show")?,
                words: Buffer::pinned(&device_ref, WORDS as u64 * 8)?,
                last_step: AtomicU64::new(0),
                busy: Mutex::new(false),
                free: Condvar::default(),
                context: device_ref.context().clone(),
            }),
            keeper: Arc::new(Timekeeper::new(device_ref, &kernels)?),
        })
    }
}

impl Setup {
    /// Waits until the kernels are loaded, loading has failed, or [`LOAD_TIMEOUT`] is over.
    ///
    /// # Errors
    /// The driver error of a failed load.
    pub(crate) fn wait(&self) -> Result<()> {
        self.by(self.until).transpose().map(drop)
    }

    /// The object that writes times of the clock. Never blocks.
    ///
    /// # Errors
    /// [`Error::ClockSilent`] if the kernels are not loaded yet, or the driver error of a failed
    /// load.
    pub(crate) fn keeper(&self) -> Result<Arc<Timekeeper>> {
        let now = Instant::now();
        self.required(now).map(|made| made.keeper)
    }

    /// The kernels, if they are loaded by `until`.
    fn required(&self, until: Instant) -> Result<ClockKernels> {
        let started = Instant::now();
        self.by(until).unwrap_or_else(|| {
            Err(self.silent(
                started,
                "the kernels for it are still being loaded, for which the driver may wait for other work of the context",
            ))
        })
    }

    fn by(&self, until: Instant) -> Option<Result<ClockKernels>> {
        let left = until.saturating_duration_since(Instant::now());
        let made = self.made.lock();
        let made = self
            .changed
            .wait_timeout_while(made, left, |made| made.is_none());
        made.clone()
    }

    fn silent(&self, started: Instant, reason: &str) -> Error {
        Error::clock_silent(&self.object, started.elapsed(), reason)
    }
}

impl Drop for ClockSampler {
    fn drop(&mut self) {
        // While the process exits, the threads may have left their work.
        if self.0.kept || TeardownGuard::begin().is_none() {
            return;
        }
        // The application may destroy the context next, so no thread may still use it afterwards.
        let made = self
            .0
            .changed
            .wait_while(self.0.made.lock(), |made| made.is_none())
            .take();
        wait_until_unshared(&self.0);
        if let Some(Ok(ClockKernels { sample_kernel, .. })) = made {
            let busy = sample_kernel
                .free
                .wait_while(sample_kernel.busy.lock(), |busy| *busy);
            drop(busy);
            wait_until_unshared(&sample_kernel);
        }
    }
}

/// Waits until the other thread has dropped its reference. The other thread is about to do so.
fn wait_until_unshared<T>(handle: &Arc<T>) {
    while Arc::strong_count(handle) > 1 {
        thread::yield_now();
    }
    fence(Ordering::Acquire);
}

/// What one launch of the kernel needs. Kept while a kernel may be with the driver.
struct SampleKernel {
    object: Object,
    context: Arc<Context>,
    stream: Stream,
    show: Function,
    words: Buffer,
    /// The last measured step of the clock in nanoseconds, or 0.
    last_step: AtomicU64,
    /// True while a [`Launch`] exists.
    busy: Mutex<bool>,
    free: Condvar,
}

impl ClockSampler {
    /// Starts a thread that loads the kernels. Samples fail until they are loaded.
    ///
    /// # Errors
    /// [`Error::ClockSilent`] if the system has no thread.
    pub(crate) fn new(device: &Device, object: &Object) -> Result<Self> {
        let started = Instant::now();
        let setup = Arc::new(Setup {
            object: object.clone(),
            gpu: device.info().uuid,
            kept: device.context().is_kept(),
            until: started + LOAD_TIMEOUT,
            start_timeout: if device.info().software {
                SOFTWARE_START_TIMEOUT
            } else {
                START_TIMEOUT
            },
            made: Mutex::default(),
            changed: Condvar::default(),
        });
        // The thread keeps the context and not the device, so it never drops the device.
        let device_ref = device.inner().device_ref();
        let making = setup.clone();
        let make = move || {
            let made = match TeardownGuard::begin() {
                Some(_calls) => ClockKernels::new(device_ref, &making.object),
                None => Err(making.silent(started, "the process exits")),
            };
            *making.made.lock() = Some(made);
            making.changed.notify_all();
        };
        spawn(make).map_err(|error| setup.silent(started, &no_thread(&error)))?;
        Ok(Self(setup))
    }

    /// A weak reference to the set-up, for the device.
    fn setup(&self) -> Weak<dyn Any + Send + Sync> {
        let setup: Weak<Setup> = Arc::downgrade(&self.0);
        setup
    }
}

impl Device {
    /// The object that writes times of the clock, or the reason why there is none. Does not block.
    ///
    /// `None` if the clock was not requested yet.
    pub(crate) fn timekeeper(&self) -> Option<Result<Arc<Timekeeper>>> {
        // The device keeps the clock, which keeps its set-up.
        let setup = setup_of(&self.inner().clock_slot().lock().as_ref()?.1)?;
        Some(setup.keeper())
    }

    /// The clock. Waits for its kernels for a limited time.
    ///
    /// # Errors
    /// Same errors as [`Device::clock_and_setup`], or a driver error.
    pub(crate) fn ready_clock(&self) -> Result<Clock> {
        let (clock, setup) = self.clock_and_setup()?;
        let Some(Err(error)) = setup_of(&setup).map(|setup| setup.wait()) else {
            return Ok(clock);
        };
        // A later request may succeed.
        let mut made = self.inner().clock_slot().lock();
        let failed = made.take_if(|(made, _)| made.is_same(&clock));
        drop(made);
        drop(failed);
        Err(error)
    }

    /// The existing clock, or a new one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the device has none, [`Error::ClockSilent`] if the system has no
    /// thread.
    fn clock_and_setup(&self) -> Result<(Clock, Weak<dyn Any + Send + Sync>)> {
        let mut clock = self.inner().clock_slot().lock();
        if let Some(clock) = &*clock {
            return Ok(clock.clone());
        }
        let can = &self.info().capabilities;
        if !can.calibrated_clock {
            let limit = can.limits.iter().find(|(what, _)| *what == CLOCK_LIMIT);
            return Err(Error::unsupported(
                self.object(),
                "read its clock",
                limit.map_or_else(String::new, |(_, reason)| reason.clone()),
            ));
        }
        let object = Object::new("clock", &format!("cuda {}", self.info().name));
        let timer = ClockSampler::new(self, &object)?;
        let setup = timer.setup();
        Ok(clock.insert((Clock::new(object, timer), setup)).clone())
    }
}

/// The set-up of the clock that the device remembers.
fn setup_of(remembered: &Weak<dyn Any + Send + Sync>) -> Option<Arc<Setup>> {
    remembered.upgrade()?.downcast().ok()
}

/// Starts a detached thread.
fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name("syncline-clock".into());
    thread.spawn(run).map(drop)
}

fn no_thread(error: &io::Error) -> String {
    format!("there is no thread to do it ({error})")
}

impl Sampler for ClockSampler {
    /// Takes a sample on a separate thread, in about 100 µs, and at most 30 ms on a GPU.
    ///
    /// The current context and the capture mode of the calling thread are irrelevant.
    fn sample(&self) -> Result<Sample> {
        let started = Instant::now();
        let until = started + self.0.start_timeout;
        let sample_kernel = self.0.required(until)?.sample_kernel;
        let Some(launch) = Launch::begin(&sample_kernel, until) else {
            return Err(self.0.silent(
                started,
                "the kernel of an earlier attempt still stands behind other work of the device",
            ));
        };
        let (answer, answered) = sync_channel(1);
        let run = move || {
            let Some(_calls) = TeardownGuard::begin() else {
                // Its drop asks the driver whether the kernel has ended.
                return std::mem::forget(launch);
            };
            // Dropped before the guard.
            let launch = launch;
            let measured = launch.0.measure(started, until);
            // The sampling thread may have stopped waiting.
            let _ = answer.send(measured);
        };
        if let Err(error) = spawn(run) {
            return Err(self.0.silent(started, &no_thread(&error)));
        }
        answered
            .recv_timeout((until + LAUNCH_TIMEOUT).saturating_duration_since(Instant::now()))
            .unwrap_or_else(|_| {
                Err(self.0.silent(
                    started,
                    "nothing is back from the launch: the driver's hardware queues are full, or the host has had no time for it",
                ))
            })
    }

    fn resolution(&self) -> u64 {
        let made = self.0.by(Instant::now()).and_then(Result::ok);
        match made.map_or(0, |made| {
            made.sample_kernel.last_step.load(Ordering::Relaxed)
        }) {
            0 => LONGEST_STEP,
            step => step,
        }
    }

    fn gpu(&self) -> Option<Uuid> {
        self.0.gpu
    }
}

/// The right to launch the kernel. Dropping it waits until the kernel has ended.
struct Launch(Arc<SampleKernel>);

impl Launch {
    /// Takes the right to launch, or returns `None` if another launch still has it at `until`.
    fn begin(sample_kernel: &Arc<SampleKernel>, until: Instant) -> Option<Self> {
        let left = until.saturating_duration_since(Instant::now());
        let busy = sample_kernel.busy.lock();
        let mut busy = sample_kernel
            .free
            .wait_timeout_while(busy, left, |busy| *busy);
        (!std::mem::replace(&mut *busy, true)).then(|| Self(sample_kernel.clone()))
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        // A kernel that has answered ends at once. A kernel that has not started may take any time.
        let mut nap = Duration::ZERO;
        while !self.0.has_ended() {
            thread::sleep(nap);
            nap = (nap * 2).clamp(Duration::from_micros(1), Duration::from_millis(5));
        }
        *self.0.busy.lock() = false;
        self.0.free.notify_one();
    }
}

impl SampleKernel {
    fn measure(&self, started: Instant, until: Instant) -> Result<Sample> {
        let mut reason = "nothing of it has run: other work of the device stands before it";
        let mut best: Option<Sample> = None;
        for _ in 0..MAX_LAUNCHES {
            let readings = self.read(until)?;
            // The query also detects a lost device.
            let mut idle = self.stream.is_idle()?;
            if !readings.is_empty() {
                match self.step().and_then(|step| fit(&readings, step)) {
                    Some(sample) => {
                        let better = best.is_none_or(|best| sample.deviation < best.deviation);
                        best = if better { Some(sample) } else { best };
                    }
                    None => {
                        reason =
                            "its readings contradict each other: it does not count nanoseconds";
                    }
                }
            }
            let enough =
                |best: Sample| best.deviation <= GOOD_DEVIATION || started.elapsed() >= RETRY_TIME;
            if let Some(best) = best.filter(|best| enough(*best)) {
                return Ok(best);
            }
            // Only an ended kernel makes the words free for reuse.
            while !idle && Instant::now() < until {
                thread::yield_now();
                idle = self.stream.is_idle()?;
            }
            if Instant::now() >= until {
                break;
            }
        }
        best.ok_or_else(|| self.silent(started, reason))
    }

    /// Launches the kernel and collects its answers. No other launch is running.
    fn read(&self, until: Instant) -> Result<Vec<Reading>> {
        let words = self.words();
        for word in words {
            word.store(0, Ordering::Relaxed);
        }
        let Some(asked) = words.get(ASKED) else {
            return Ok(Vec::new());
        };
        let answers = words.get(ANSWERS).unwrap_or_default();
        let mut readings = Vec::with_capacity(answers.len());
        for (round, answer) in (1_u64..).zip(answers) {
            let before = HostClock::Monotonic.now();
            asked.store(round, Ordering::SeqCst);
            let patience = if round == 1 {
                // The first request is made before the kernel starts.
                self.launch()?;
                until
            } else {
                until.min(Instant::now() + ANSWER_TIMEOUT)
            };
            let Some(device) = wait(answer, patience) else {
                break;
            };
            let after = HostClock::Monotonic.now();
            readings.push(Reading {
                before,
                device: device.cast_signed(),
                after,
            });
        }
        // A kernel that has not started has nothing to do.
        asked.store(STOP, Ordering::SeqCst);
        Ok(readings)
    }

    fn launch(&self) -> Result<()> {
        let _bound = self.context.bind_outside_capture()?;
        let mut words = self.words.pointer();
        let mut params = [(&raw mut words).cast()];
        // SAFETY: the kernel takes one 64-bit address of as many pinned words as it uses, and is
        // one thread. The words, the stream and the kernel live until it has ended, because the
        // `Launch` keeps them. The driver copies the parameter during the call.
        unsafe {
            self.context.driver().launch_kernel(
                self.show.raw(),
                1,
                1,
                1,
                1,
                1,
                1,
                0,
                self.stream.raw(),
                params.as_mut_ptr(),
                null_mut(),
            )
        }
        .map_err(|code| self.stream.error(code))
    }

    fn words(&self) -> &[AtomicU64] {
        // Pinned memory always has host words.
        self.words.as_long_words().unwrap_or_default()
    }

    /// The step of the clock in nanoseconds, measured by a kernel that has answered.
    fn step(&self) -> Option<u64> {
        let device = self.words().get(STEPS)?;
        let device: Vec<_> = device
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        let step = middle_step(&device);
        if let Some(step) = step {
            self.last_step.store(step, Ordering::Relaxed);
        }
        step
    }

    /// True if the kernel is no longer with the device.
    ///
    /// `cuStreamQuery` may return another result than "ready" and "not ready". Then the device is
    /// lost, or the stream is gone with its context, which an application may reset. In both cases
    /// there is nothing to wait for.
    fn has_ended(&self) -> bool {
        self.stream.is_idle().unwrap_or(true)
    }

    fn silent(&self, started: Instant, reason: &str) -> Error {
        Error::clock_silent(&self.object, started.elapsed(), reason)
    }
}

/// Polls until there is an answer or the time is over.
fn wait(answer: &AtomicU64, until: Instant) -> Option<u64> {
    loop {
        // Reading the time is slower than polling.
        for _ in 0..64 {
            let device = answer.load(Ordering::Acquire);
            if device != 0 {
                return Some(device);
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= until {
            return None;
        }
    }
}

/// A reading of the device's clock, between two times of the host.
#[derive(Debug, Clone, Copy)]
struct Reading {
    before: i64,
    device: i64,
    after: i64,
}

/// Combines all readings to a sample at the reading with the narrowest bracket.
///
/// The sample lies within every bracket. Returns `None` if there is no such time, because a reading
/// is wrong. The clock moves in steps of `step`, so a reading may be older by one step.
fn fit(readings: &[Reading], step: u64) -> Option<Sample> {
    let best = readings
        .iter()
        .min_by_key(|reading| reading.after.saturating_sub(reading.before))?;
    let step = i64::try_from(step).ok()?;
    let (mut low, mut high) = (i64::MIN, i64::MAX);
    for reading in readings {
        let passed = reading.device.saturating_sub(best.device);
        let drift = passed
            .unsigned_abs()
            .div_ceil(MAX_DRIFT_ONE_IN)
            .cast_signed();
        let then = |host: i64| host.saturating_sub(passed);
        low = low.max(then(reading.before).saturating_sub(drift));
        high = high.min(then(reading.after).saturating_add(drift));
    }
    // Two readings are off by at most one step each.
    if low.saturating_sub(high) > step.saturating_mul(2) {
        return None;
    }
    let (low, high) = (low.min(high), low.max(high));
    Some(Sample::between(
        low.saturating_sub(step),
        best.device,
        high.saturating_add(step),
    ))
}

/// The median difference of consecutive readings, or `None` if they do not rise.
fn middle_step(device: &[u64]) -> Option<u64> {
    let steps = device.windows(2).map(|pair| match pair {
        [early, late] if 0 < *early && early < late => Some(late - early),
        _ => None,
    });
    let mut steps = steps.collect::<Option<Vec<_>>>()?;
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn reading(before: i64, device: i64, after: i64) -> Reading {
        Reading {
            before,
            device,
            after,
        }
    }

    /// The clocks are `offset` apart.
    ///
    /// The device's clock has steps of 32 and is read with various delays.
    #[test]
    fn the_time_lies_within_all_brackets() {
        let offset = 1_700_000_000_000_000_000_i64;
        for first in 0..200 {
            let readings: Vec<_> = (0..16)
                .map(|round| {
                    let at = 5_000_000 + first + round * 1_511;
                    let there = 300 + (round * 397 + first * 31) % 900;
                    let back = 250 + (round * 211 + first * 17) % 700;
                    reading(at - there, (at + offset) / 32 * 32, at + back)
                })
                .collect();
            let sample = fit(&readings, 32).unwrap();
            // The clock shows this value for 32 ns.
            let device = sample.device - offset;
            for host in [device, device + 31] {
                let off = host.abs_diff(sample.host);
                assert!(off <= sample.deviation, "{sample:?} {host}");
            }
            // Better than the best single reading, which is off by at least 275.
            assert!(sample.deviation < 400, "{sample:?}");
        }
    }

    #[test]
    fn one_wide_reading_is_a_wide_sample() {
        let sample = fit(&[reading(0, 77, 9_000_000)], 32).unwrap();
        assert_eq!(sample, Sample::between(-32, 77, 9_000_032));
        assert_eq!(fit(&[], 32), None);
    }

    #[rstest]
    #[case::stopped(1_000)]
    #[case::another_speed(30_000)]
    #[case::an_old_lower_half(1_000 + (1 << 32))]
    #[case::an_old_upper_half(2_000 - (1 << 32))]
    fn readings_that_contradict_each_other_are_found(#[case] device: i64) {
        let sound = [reading(0, 1_000, 900), reading(1_000, 2_000, 1_900)];
        assert!(fit(&sound, 32).is_some());
        let wrong = [sound[0], reading(10_000, device, 10_900)];
        assert_eq!(fit(&wrong, 32), None);
    }

    #[test]
    fn a_difference_within_the_steps_is_no_contradiction() {
        let near = [reading(0, 1_000, 900), reading(1_000, 1_068, 1_500)];
        assert!(fit(&near, 32).is_some());
    }

    // One reading was interrupted, and two took too long.
    #[rstest]
    #[case::delayed(&[32, 64, 96, 160, 192, 256, 1_000_000, 1_000_032, 1_000_064], Some(32))]
    #[case::three(&[1_024, 2_024, 3_048, 4_048], Some(1_000))]
    #[case::not_all_written(&[5, 6, 0], None)]
    #[case::falling(&[9, 5], None)]
    #[case::the_first_is_missing(&[0, 5], None)]
    #[case::none(&[], None)]
    fn the_step_is_the_middle_difference(#[case] device: &[u64], #[case] step: Option<u64>) {
        assert_eq!(middle_step(device), step);
    }
}
