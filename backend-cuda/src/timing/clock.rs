//! The GPU's clock beside the host's: a kernel of one thread shows it each time the host asks.
//!
//! A launch takes several microseconds until the host hears of it, too long for a good bracket. So one launch answers
//! sixteen times: the host takes the time, asks in a word of pinned memory, sees the answer in another and takes the time
//! again, which is two trips over the bus. The kernel is `clock.ptx`; what orders its accesses is told there. It reads `%globaltimer`,
//! which counts nanoseconds, in steps that it measures as well.
//!
//! Nobody can say when a launch begins: its stream may share a hardware connection with one that stands behind a closed
//! gate, or the GPU may be full; and the driver may even block who launches. So a thread of its own launches, and whoever asked for the sample
//! gives up on it after a time. The thread stays until the kernel has ended, for what the kernel uses lives no longer than
//! that. Meanwhile nothing else is launched, so one command at most stands with the driver.
#![allow(unsafe_code, reason = "launches a kernel")]

use std::any::Any;
use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use syncline_core::backend::Mutex;
use syncline_core::clock::{Clock, HostClock, Sample, Sampler};
use syncline_core::{Error, Object, Result, Uuid};

use crate::device::context::Context;
use crate::device::limits::CLOCK_LIMIT;
use crate::device::open::{Device, DeviceRef};
use crate::device::stream::Stream;
use crate::memory::buffer::DeviceBuffer;
use crate::memory::module::{Function, Module};
use crate::timing::stamp::Timekeeper;

/// What reads the clock.
pub(crate) const KERNELS: &str = include_str!("clock.ptx");
/// The clock moves by no more than this at a time, on any GPU that has one, in nanoseconds.
const LONGEST_STEP: u64 = 1_024;

/// Of the words that the kernel and the host share; the kernel says what is in them.
const WORDS: usize = 40;
const ASKED: usize = 0;
const STEPS: std::ops::Range<usize> = 8..17;
const ANSWERS: std::ops::Range<usize> = 24..40;
/// Asked for so many answers the kernel leaves.
const LEAVE: u64 = u64::MAX;

/// How long the kernel has to begin, and to answer. Another API's turn on the GPU lasts some milliseconds.
const LIMIT: Duration = Duration::from_millis(20);
/// A kernel that has not answered for so long once it had begun is gone: it stays 2 ms.
const SILENCE: Duration = Duration::from_millis(3);
/// Who asked for a sample gives up after this, also if the thread that makes it has not come back from the driver.
const PATIENCE: Duration = Duration::from_millis(30);
/// So often the kernel is launched for one sample at most: again if its readings contradict each other, or ...
const TRIES: u32 = 4;
/// ... if the sample deviates by more than this, in nanoseconds, as the host or the GPU had something else to do, ...
const ENOUGH: u64 = 2_000;
/// ... unless so much time has passed.
const HASTE: Duration = Duration::from_millis(5);

/// A clock that runs at most so much faster or slower than another gains one nanosecond in so many: 500 parts per million.
const GAINS_ONE_IN: u64 = 2_000;

/// Whoever asks for a clock waits so long for its kernels to be there. To load them may wait for all work of the context, also for a gate
/// that he himself is to open.
const LOADING: Duration = Duration::from_secs(1);

/// Reads the clock of one device. Dropping it frees pinned memory and unloads a kernel, which may wait for all work of the
/// context; if it is still being loaded, or waits for its turn, the thread of that does it later, unless nobody keeps the context.
pub(crate) struct Timer(Arc<Setup>);

/// What a clock is read with, and writes times, once a thread has made it; or why there is none.
pub(crate) struct Setup {
    object: Object,
    gpu: Option<Uuid>,
    /// The context lives as long as anything in it.
    kept: bool,
    /// Whoever asks for the clock waits so long.
    until: Instant,
    made: Mutex<Option<Result<Made>>>,
    news: Condvar,
}

#[derive(Clone)]
struct Made {
    rig: Arc<Rig>,
    keeper: Arc<Timekeeper>,
}

impl Made {
    /// Loads the kernels. Blocks, and may wait for all work of the context.
    ///
    /// # Errors
    /// A driver error.
    fn new(device_ref: DeviceRef, object: &Object) -> Result<Self> {
        let kernels = Module::load(&device_ref, KERNELS)?;
        Ok(Self {
            rig: Arc::new(Rig {
                object: object.clone(),
                stream: Stream::urgent(&device_ref.context, "clock")?,
                show: kernels.function(c"show")?,
                words: DeviceBuffer::pinned(&device_ref, WORDS as u64 * 8)?,
                stepped: AtomicU64::new(0),
                busy: Mutex::new(false),
                free: Condvar::new(),
                context: device_ref.context.clone(),
            }),
            keeper: Arc::new(Timekeeper::new(device_ref, &kernels)?),
        })
    }
}

impl Setup {
    /// Waits until it is made, or has failed, or [`LOADING`] is over.
    ///
    /// # Errors
    /// A driver error, if it has come by then.
    pub(crate) fn wait(&self) -> Result<()> {
        self.by(self.until).transpose().map(drop)
    }

    /// What writes times. Never blocks.
    ///
    /// # Errors
    /// [`Error::ClockSilent`] if it is not there yet; the driver error that it was not made for.
    pub(crate) fn keeper(&self) -> Result<Arc<Timekeeper>> {
        let now = Instant::now();
        self.required(now).map(|made| made.keeper)
    }

    /// What has been made by then.
    fn required(&self, until: Instant) -> Result<Made> {
        let started = Instant::now();
        self.by(until).unwrap_or_else(|| {
            Err(self.silent(
                started,
                "the kernels for it are still being loaded, for which the driver may wait for other work of the context",
            ))
        })
    }

    fn by(&self, until: Instant) -> Option<Result<Made>> {
        let left = until.saturating_duration_since(Instant::now());
        let (made, _) = self
            .news
            .wait_timeout_while(self.made.lock(), left, |made| made.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        made.clone()
    }

    fn silent(&self, started: Instant, reason: &str) -> Error {
        Error::ClockSilent {
            clock: self.object.clone(),
            waited: started.elapsed(),
            reason: reason.into(),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.0.kept {
            return;
        }
        // Whoever lent the context may destroy it next: nothing may be left to a thread.
        let made = self
            .0
            .news
            .wait_while(self.0.made.lock(), |made| made.is_none())
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        alone(&self.0);
        if let Some(Ok(Made { rig, .. })) = made {
            let busy = rig.free.wait_while(rig.busy.lock(), |busy| *busy);
            drop(busy);
            alone(&rig);
        }
    }
}

/// Waits for the thread that still has a handle, and has only to let go.
fn alone<T>(handle: &Arc<T>) {
    while Arc::strong_count(handle) > 1 {
        thread::yield_now();
    }
    fence(Ordering::Acquire);
}

/// What one kernel needs. Whoever may have one with the driver keeps it.
struct Rig {
    object: Object,
    context: Arc<Context>,
    stream: Stream,
    show: Function,
    words: DeviceBuffer,
    /// The step that was seen last, in nanoseconds; 0 before.
    stepped: AtomicU64,
    /// An [`Attempt`] exists.
    busy: Mutex<bool>,
    free: Condvar,
}

impl Timer {
    /// Has the kernels loaded by a thread. Samples are refused for as long as they are not there.
    ///
    /// # Errors
    /// [`Error::ClockSilent`] if the system has no thread.
    pub(crate) fn new(device: &Device, object: &Object) -> Result<Self> {
        let started = Instant::now();
        let setup = Arc::new(Setup {
            object: object.clone(),
            gpu: device.info().uuid,
            kept: device.context().is_kept(),
            until: started + LOADING,
            made: Mutex::default(),
            news: Condvar::new(),
        });
        // The thread keeps the context, not the device: that is dropped by who has it.
        let device_ref = device.device_ref();
        let making = setup.clone();
        let make = move || {
            let made = Made::new(device_ref, &making.object);
            *making.made.lock() = Some(made);
            making.news.notify_all();
        };
        spawn(make).map_err(|error| setup.silent(started, &no_thread(&error)))?;
        Ok(Self(setup))
    }

    /// What it is made of, which it keeps.
    fn setup(&self) -> Weak<dyn Any + Send + Sync> {
        let setup: Weak<Setup> = Arc::downgrade(&self.0);
        setup
    }
}

impl Device {
    /// What writes times of the clock, once that was asked for, or why there is nothing. Does not block.
    pub(crate) fn timekeeper(&self) -> Option<Result<Arc<Timekeeper>>> {
        // The device has the clock, and that has it.
        let setup = setup_of(&self.clock_slot().lock().as_ref()?.1)?;
        Some(setup.keeper())
    }

    /// The clock, once its kernels are there or the time for that is over.
    ///
    /// # Errors
    /// As [`Device::clock_and_setup`]; a driver error.
    pub(crate) fn ready_clock(&self) -> Result<Clock> {
        let (clock, setup) = self.clock_and_setup()?;
        let Some(Err(error)) = setup_of(&setup).map(|setup| setup.wait()) else {
            return Ok(clock);
        };
        // Whoever asks next may have more luck.
        let mut made = self.clock_slot().lock();
        let failed = made.take_if(|(made, _)| made.is_same(&clock));
        drop(made);
        drop(failed);
        Err(error)
    }

    /// The clock that is there, or another one.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is none; [`Error::ClockSilent`] if the system has no thread.
    fn clock_and_setup(&self) -> Result<(Clock, Weak<dyn Any + Send + Sync>)> {
        let mut clock = self.clock_slot().lock();
        if let Some(clock) = &*clock {
            return Ok(clock.clone());
        }
        let can = &self.info().capabilities;
        if !can.calibrated_clock {
            let limit = can.limits.iter().find(|(what, _)| *what == CLOCK_LIMIT);
            return Err(Error::Unsupported {
                object: self.object().clone(),
                asked: "read its clock".into(),
                reason: limit.map_or_else(String::new, |(_, reason)| reason.clone()),
            });
        }
        let object = Object::new("clock", &format!("cuda {}", self.info().name));
        let timer = Timer::new(self, &object)?;
        let setup = timer.setup();
        Ok(clock.insert((Clock::new(object, timer), setup)).clone())
    }
}

/// What the device remembers of its clock.
fn setup_of(remembered: &Weak<dyn Any + Send + Sync>) -> Option<Arc<Setup>> {
    remembered.upgrade()?.downcast().ok()
}

/// Starts a thread that nobody joins.
fn spawn(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name("syncline-clock".into());
    thread.spawn(run).map(drop)
}

fn no_thread(error: &io::Error) -> String {
    format!("there is no thread to do it ({error})")
}

impl Sampler for Timer {
    /// Takes some 100 µs, and [`PATIENCE`] at most, with a thread of its own. The caller's current context and his thread's capture
    /// mode have no part in it.
    fn sample(&self) -> Result<Sample> {
        let started = Instant::now();
        let rig = self.0.required(started + LIMIT)?.rig;
        let Some(attempt) = Attempt::begin(&rig, started + LIMIT) else {
            return Err(self.0.silent(
                started,
                "the kernel of an earlier attempt still stands behind other work of the device",
            ));
        };
        let (answer, answered) = sync_channel(1);
        let run = move || {
            let measured = attempt.0.measure(started);
            // Who asked may have given up.
            let _ = answer.send(measured);
        };
        if let Err(error) = spawn(run) {
            return Err(self.0.silent(started, &no_thread(&error)));
        }
        answered
            .recv_timeout(PATIENCE.saturating_sub(started.elapsed()))
            .unwrap_or_else(|_| {
                Err(self.0.silent(
                    started,
                    "nothing is back from the launch: the driver's hardware queues are full, or the host has had no time for it",
                ))
            })
    }

    fn resolution(&self) -> u64 {
        let made = self.0.by(Instant::now()).and_then(Result::ok);
        match made.map_or(0, |made| made.rig.stepped.load(Ordering::Relaxed)) {
            0 => LONGEST_STEP,
            step => step,
        }
    }

    fn gpu(&self) -> Option<Uuid> {
        self.0.gpu
    }
}

/// The right to launch. Dropping it waits until the kernel has ended.
struct Attempt(Arc<Rig>);

impl Attempt {
    /// `None` if another one is still there at `until`.
    fn begin(rig: &Arc<Rig>, until: Instant) -> Option<Self> {
        let left = until.saturating_duration_since(Instant::now());
        let (mut busy, _) = rig
            .free
            .wait_timeout_while(rig.busy.lock(), left, |busy| *busy)
            .unwrap_or_else(PoisonError::into_inner);
        (!std::mem::replace(&mut *busy, true)).then(|| Self(rig.clone()))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // A kernel that has answered is gone at once; one that has not begun may take for ever.
        let mut nap = Duration::ZERO;
        while !self.0.has_ended() {
            thread::sleep(nap);
            nap = (nap * 2).clamp(Duration::from_micros(1), Duration::from_millis(5));
        }
        *self.0.busy.lock() = false;
        self.0.free.notify_one();
    }
}

impl Rig {
    fn measure(&self, started: Instant) -> Result<Sample> {
        let until = started + LIMIT;
        let mut reason = "nothing of it has run: other work of the device stands before it";
        let mut best: Option<Sample> = None;
        for _ in 0..TRIES {
            let readings = self.read(until)?;
            // Also tells of a device that was lost.
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
            let enough = |best: Sample| best.deviation <= ENOUGH || started.elapsed() >= HASTE;
            if let Some(best) = best.filter(|best| enough(*best)) {
                return Ok(best);
            }
            // Only then may the words be used again.
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

    /// Launches the kernel, and takes what it answers. No other one is running.
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
                // Already asked when it begins.
                self.launch()?;
                until
            } else {
                until.min(Instant::now() + SILENCE)
            };
            let Some(shown) = wait(answer, patience) else {
                break;
            };
            let after = HostClock::Monotonic.now();
            readings.push(Reading {
                before,
                shown: shown.cast_signed(),
                after,
            });
        }
        // One that has not begun yet need not do more.
        asked.store(LEAVE, Ordering::SeqCst);
        Ok(readings)
    }

    fn launch(&self) -> Result<()> {
        let _bound = self.context.bind_outside_capture()?;
        let mut words = self.words.pointer();
        let mut params = [(&raw mut words).cast()];
        // SAFETY: the kernel takes one address of 64 bits, of as many pinned words as it uses, and
        // is one thread. The words, the stream and the kernel live until it has ended: the attempt
        // keeps them. The driver copies the parameter during the call.
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
        // Pinned, so it has them.
        self.words.as_long_words().unwrap_or_default()
    }

    /// By how much the clock moves at a time, in nanoseconds. After an answer.
    fn step(&self) -> Option<u64> {
        let shown = self.words().get(STEPS)?;
        let shown: Vec<_> = shown
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        let step = middle_step(&shown);
        if let Some(step) = step {
            self.stepped.store(step, Ordering::Relaxed);
        }
        step
    }

    /// True once nothing of it is with the device any more. Whatever `cuStreamQuery` answers but 'ready' and 'not ready', the device has been
    /// lost, or the stream is gone, with its context: an application may reset that. There is nothing to wait for then.
    fn has_ended(&self) -> bool {
        self.stream.is_idle().unwrap_or(true)
    }

    fn silent(&self, started: Instant, reason: &str) -> Error {
        Error::ClockSilent {
            clock: self.object.clone(),
            waited: started.elapsed(),
            reason: reason.into(),
        }
    }
}

/// Looks until there is something, or the time is over.
fn wait(answer: &AtomicU64, until: Instant) -> Option<u64> {
    loop {
        // To ask the time is slower than to look.
        for _ in 0..64 {
            let shown = answer.load(Ordering::Acquire);
            if shown != 0 {
                return Some(shown);
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= until {
            return None;
        }
    }
}

/// What the clock showed between two times of the host.
#[derive(Debug, Clone, Copy)]
struct Reading {
    before: i64,
    shown: i64,
    after: i64,
}

/// What all readings say together, about the time of the one with the smallest bracket: that lies within each bracket.
/// `None` if there is no such time, as some reading is wrong.
///
/// The clock moves by `step` at a time: what it shows may be older by that.
fn fit(readings: &[Reading], step: u64) -> Option<Sample> {
    let best = readings
        .iter()
        .min_by_key(|reading| reading.after.saturating_sub(reading.before))?;
    let step = i64::try_from(step).ok()?;
    let (mut low, mut high) = (i64::MIN, i64::MAX);
    for reading in readings {
        let passed = reading.shown.saturating_sub(best.shown);
        let parted = passed.unsigned_abs().div_ceil(GAINS_ONE_IN).cast_signed();
        let then = |host: i64| host.saturating_sub(passed);
        low = low.max(then(reading.before).saturating_sub(parted));
        high = high.min(then(reading.after).saturating_add(parted));
    }
    // Two readings are off by a step each at most.
    if low.saturating_sub(high) > step.saturating_mul(2) {
        return None;
    }
    let (low, high) = (low.min(high), low.max(high));
    Some(Sample::between(
        low.saturating_sub(step),
        best.shown,
        high.saturating_add(step),
    ))
}

/// The middle one of the differences between readings one after another, all of them different. `None` if they do not rise.
fn middle_step(shown: &[u64]) -> Option<u64> {
    let steps = shown.windows(2).map(|pair| match pair {
        [early, late] if 0 < *early && early < late => Some(late - early),
        _ => None,
    });
    let mut steps = steps.collect::<Option<Vec<_>>>()?;
    steps.sort_unstable();
    steps.get(steps.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(before: i64, shown: i64, after: i64) -> Reading {
        Reading {
            before,
            shown,
            after,
        }
    }

    /// Clocks `offset` apart, the device's in steps of 32, read with all sorts of delays.
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
            // The clock shows that for 32 ns.
            let shown = sample.device - offset;
            for host in [shown, shown + 31] {
                let off = host.abs_diff(sample.host);
                assert!(off <= sample.deviation, "{sample:?} {host}");
            }
            // Better than the best alone, which is off by 275 or more.
            assert!(sample.deviation < 400, "{sample:?}");
        }
    }

    #[test]
    fn one_wide_reading_is_a_wide_sample() {
        let sample = fit(&[reading(0, 77, 9_000_000)], 32).unwrap();
        assert_eq!(sample, Sample::between(-32, 77, 9_000_032));
        assert_eq!(fit(&[], 32), None);
    }

    #[test]
    fn readings_that_contradict_each_other_are_found() {
        let sound = [reading(0, 1_000, 900), reading(1_000, 2_000, 1_900)];
        assert!(fit(&sound, 32).is_some());
        // It stands still, runs at another speed, or was read in two halves.
        for wrong in [1_000, 30_000, 1_000 + (1 << 32), 2_000 - (1 << 32)] {
            let readings = [sound[0], reading(10_000, wrong, 10_900)];
            assert_eq!(fit(&readings, 32), None, "{wrong}");
        }
        // As much as steps explain is no contradiction.
        let near = [reading(0, 1_000, 900), reading(1_000, 1_068, 1_500)];
        assert!(fit(&near, 32).is_some());
    }

    #[test]
    fn the_step_is_the_middle_difference() {
        // One of them was interrupted, and two took too long.
        let shown = [32, 64, 96, 160, 192, 256, 1_000_000, 1_000_032, 1_000_064];
        assert_eq!(middle_step(&shown), Some(32));
        assert_eq!(middle_step(&[1_024, 2_024, 3_048, 4_048]), Some(1_000));
        assert_eq!(middle_step(&[5, 6, 0]), None);
        assert_eq!(middle_step(&[9, 5]), None);
        assert_eq!(middle_step(&[0, 5]), None);
        assert_eq!(middle_step(&[]), None);
    }
}
