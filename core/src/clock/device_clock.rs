//! The clock of a device: when it is sampled, and conversions by its samples.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::check::{Check, distance};
use super::comparison::{Comparison, Comparisons};
use super::estimate::Estimate;
use super::map::{Drift, Map};
use super::sample::{HostClock, Sampled, Sampler};
use crate::base::error::{Error, Object, Result};
use crate::base::info::Uuid;
use crate::base::process::DroppedByMaker;
use crate::base::sync::{Condvar, Mutex};

/// The clock of a device, in nanoseconds, with its relation to a clock of the host.
///
/// A clone is cheap. Any thread can use it.
///
/// Most conversions are arithmetic under a short lock. A conversion takes a new sample first if
/// both are true: the time lies more than [`Clock::REFIT`] after the latest sample, and the latest
/// sample is older than [`Clock::REFIT`]. A sample calls the driver. The documentation of each
/// device's clock says how long that may take.
///
/// If the sample fails, the earlier samples are used, with the larger error of their age.
/// Conversions try no further sample for ten times as long as the failed attempt took, and at least
/// for [`Clock::REFIT`].
///
/// The first sample, and later ones now and then, check what the driver says of both clocks. If it
/// contradicts a time that the device has written, the clock does not use it any more. See
/// [`Clock::refused_calibration`].
///
/// Use a [`Clock::map`] for conversions that must never call the driver or must keep the order of
/// times.
#[derive(Clone)]
pub struct Clock(
    Arc<Inner>,
    #[allow(dead_code, reason = "kept alive")] Option<Arc<dyn Any + Send + Sync>>,
);

struct Inner {
    object: Object,
    sampler: DroppedByMaker<Box<dyn Sampler>>,
    /// Threads that come during a sample share the next sample. So a thread waits for two samples
    /// at most.
    sampling: (Mutex<Sampling>, Condvar),
    map: Mutex<Map>,
    check: Check,
    /// Set by a failed sample: its error, and the time until which conversions take no sample.
    failed: Mutex<Option<(Instant, Error)>>,
    /// The results of comparisons with other clocks.
    comparisons: Comparisons<Self>,
}

/// The order of samples.
#[derive(Default)]
struct Sampling {
    /// True while a thread takes a sample.
    is_taking: bool,
    /// The number of samples that have begun.
    begun: u64,
    /// The number and the result of the last sample that has ended.
    last: Option<(u64, Result<Sampled>)>,
}

/// A sample that is being taken.
struct SampleInProgress<'c> {
    inner: &'c Inner,
    number: u64,
    result: Option<Result<Sampled>>,
}

impl Drop for SampleInProgress<'_> {
    /// Publishes the result. If the sampler has panicked, lets the next thread take a sample.
    fn drop(&mut self) {
        let mut sampling = self.inner.sampling.0.lock();
        sampling.is_taking = false;
        if let Some(result) = self.result.take() {
            sampling.last = Some((self.number, result));
        }
        drop(sampling);
        self.inner.sampling.1.notify_all();
    }
}

impl Inner {
    fn sample(&self) -> Result<Sampled> {
        let started = Instant::now();
        let forget = || *self.map.lock() = Map::default();
        let sample = self.check.sample(&**self.sampler, forget);
        *self.failed.lock() = sample.as_ref().err().map(|error| {
            let pause = started.elapsed().saturating_mul(PAUSE_FACTOR).max(refit());
            // No pause if its end is too far away for an `Instant`.
            let until = Instant::now().checked_add(pause).unwrap_or(started);
            (until, error.clone())
        });
        let sample = sample?;
        let mut map = self.map.lock();
        let expected = map.to_host(sample.device);
        map.add(sample);
        Ok(Sampled {
            sample,
            host_clock: self.sampler.host_clock(),
            expected,
        })
    }
}

/// The pause after a failed sample, as a multiple of the time that the sample took.
const PAUSE_FACTOR: u32 = 10;

/// [`Clock::REFIT`] as a duration.
const fn refit() -> Duration {
    Duration::from_nanos(Clock::REFIT.unsigned_abs())
}

impl Clock {
    /// The age of the latest sample, in nanoseconds, from which a conversion takes a new sample.
    ///
    /// A conversion of a time that lies less than this after the latest sample takes none.
    pub const REFIT: i64 = 100_000_000;

    /// The clock that `sampler` reads, named `object` in errors and reports.
    #[must_use]
    pub fn new(object: Object, sampler: impl Sampler + 'static) -> Self {
        let map = if sampler.is_host_clock() {
            Map::exact()
        } else {
            Map::default()
        };
        let inner = Inner {
            object,
            sampler: DroppedByMaker::new(Box::new(sampler)),
            sampling: Default::default(),
            map: Mutex::new(map),
            check: Check::default(),
            failed: Mutex::default(),
            comparisons: Comparisons::default(),
        };
        Self(Arc::new(inner), None)
    }

    /// The same clock, which keeps `owner` alive. For backends.
    ///
    /// The sampler of a device that stores its clock holds only a [`Weak`](std::sync::Weak)
    /// reference to the device. So the device returns its clock with itself as `owner`.
    #[must_use]
    pub fn keeping(&self, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self(self.0.clone(), Some(owner))
    }

    /// The same clock, which keeps no owner alive.
    ///
    /// Enough for conversions, and for samples while the device lives.
    pub(crate) fn without_owner(&self) -> Self {
        Self(self.0.clone(), None)
    }

    /// True if both are the same clock of the same device, with the same samples.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// True if it is a clock of the host.
    pub(crate) fn is_host_clock(&self) -> bool {
        self.0.sampler.is_host_clock()
    }

    /// The GPU that the clock belongs to. See [`Sampler::gpu`].
    pub(super) fn gpu(&self) -> Option<Uuid> {
        self.0.sampler.gpu()
    }

    /// The clock's name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The clock of the host that it is compared with.
    #[must_use]
    pub fn host_clock(&self) -> HostClock {
        self.0.sampler.host_clock()
    }

    /// The longest time for which the clock has been seen to show one value, in nanoseconds.
    ///
    /// A time that the clock writes is older by less than that.
    #[must_use]
    pub fn resolution(&self) -> u64 {
        self.0.sampler.resolution()
    }

    /// Samples both clocks now and adds the sample to the conversion.
    ///
    /// The result also contains what the conversion expected before. Threads that call this at the
    /// same time may share one sample, which begins after all of their calls.
    ///
    /// # Errors
    /// A driver error. The conversion then stays unchanged.
    pub fn sample(&self) -> Result<Sampled> {
        let inner = &*self.0;
        inner.sampler.maker().require(&inner.object)?;
        let mut in_progress = {
            let mut sampling = inner.sampling.0.lock();
            let before = sampling.begun;
            loop {
                if let Some((number, result)) = &sampling.last
                    && *number > before
                {
                    return result.clone();
                }
                if !sampling.is_taking {
                    break;
                }
                sampling = inner.sampling.1.wait(sampling);
            }
            sampling.is_taking = true;
            sampling.begun += 1;
            SampleInProgress {
                inner,
                number: sampling.begun,
                result: None,
            }
        };
        let result = inner.sample();
        in_progress.result = Some(result.clone());
        result
    }

    /// Why the driver's calibrated readings of the clock are not used; `None` while they are.
    ///
    /// They have contradicted times that the device wrote. From then on, samples read times that
    /// the device writes, between two readings of the host's clock. Such samples deviate by half of
    /// a round trip to the device. A difference below that cannot be seen.
    #[must_use]
    pub fn refused_calibration(&self) -> Option<&str> {
        self.0.check.refused()
    }

    /// Tells the clock that the device wrote `device` between two times of the host. For backends.
    ///
    /// If that is impossible by the samples so far, the next conversion checks the clock first.
    /// Makes no driver call.
    pub fn seen(&self, device: i64, from: i64, to: i64) {
        let shown = self.0.map.lock().to_host(device);
        let written = shown.map(|shown| self.as_written(shown));
        if written.is_some_and(|written| distance(written, from, to).is_some()) {
            self.0.check.doubt();
        }
    }

    /// The time that the host's clock shows when the device's clock shows `device`.
    ///
    /// # Errors
    /// The error of the latest sample, if no sample has succeeded yet.
    pub fn to_host(&self, device: i64) -> Result<Estimate> {
        self.convert(|map| (map.beyond(device), map.to_host(device)))
    }

    /// The time that the device's clock shows when the host's clock shows `host`.
    ///
    /// # Errors
    /// The error of the latest sample, if no sample has succeeded yet.
    pub fn to_device(&self, host: i64) -> Result<Estimate> {
        self.convert(|map| (map.beyond_host(host), map.to_device(host)))
    }

    /// A copy of the conversion with the samples so far.
    ///
    /// A map makes no driver call and takes no lock. It keeps the order of times. Later samples do
    /// not make it more exact. A profiler takes one map for each batch of times. It first calls
    /// [`Clock::sample`] after the last of these times, so that all of them lie between samples.
    #[must_use]
    pub fn map(&self) -> Map {
        self.0.map.lock().clone()
    }

    /// The time on [`HostClock::Monotonic`] at which the device wrote `device`.
    ///
    /// All processes share that clock. Uses the samples so far and makes no driver call. `None`
    /// before the first sample, and while the samples are doubted ([`Clock::seen`]).
    pub(crate) fn to_monotonic(&self, device: i64) -> Option<Estimate> {
        if self.0.check.is_doubted() {
            return None;
        }
        let own = self.0.map.lock().to_host(device)?;
        Some(self.host_clock().to_monotonic(self.as_written(own)))
    }

    /// The estimate of when the device wrote a value that the clock began to show at `shown`.
    ///
    /// The clock may have shown the value for up to its resolution before the device wrote it.
    pub(crate) fn as_written(&self, shown: Estimate) -> Estimate {
        let error = match self.is_host_clock() {
            true => shown.error,
            false => shown.error.saturating_add(self.resolution()),
        };
        Estimate { error, ..shown }
    }

    /// True if a [sample](Clock::sample) would make conversions of the present time more exact.
    ///
    /// False during the pause after a failed sample.
    pub(crate) fn is_sample_due(&self) -> bool {
        !self.is_host_clock() && self.is_old() && self.recent_failure().is_none()
    }

    /// How much faster the host's clock runs, from the samples so far; `None` before the first.
    #[must_use]
    pub fn drift(&self) -> Option<Drift> {
        self.0.map.lock().drift()
    }

    fn convert(&self, ask: impl Fn(&Map) -> (Option<i64>, Option<Estimate>)) -> Result<Estimate> {
        let (beyond, known) = ask(&self.0.map.lock());
        // Doubted samples are not used before a check.
        let known = known.filter(|_| !self.0.check.is_doubted());
        if let (Some(..=Self::REFIT), Some(estimate)) = (beyond, known) {
            return Ok(estimate);
        }
        if let Some(known) = known.filter(|_| !self.is_old()) {
            return Ok(known);
        }
        if let Some(error) = self.recent_failure() {
            return known.ok_or(error);
        }
        if let Err(error) = self.sample() {
            return known.ok_or(error);
        }
        let (_, estimate) = ask(&self.0.map.lock());
        // Not reached without an estimate, because there is a sample now.
        Ok(estimate.unwrap_or(Estimate {
            nanoseconds: 0,
            error: u64::MAX,
        }))
    }

    /// True if this clock stores the comparisons with `other`. False if `other` does.
    pub(super) fn stores_comparisons_with(&self, other: &Self) -> bool {
        Arc::as_ptr(&self.0) <= Arc::as_ptr(&other.0)
    }

    /// The latest comparison with `other`, and when it was made.
    pub(super) fn latest_comparison(&self, other: &Self) -> Option<(Comparison, Instant)> {
        self.0.comparisons.latest(&other.0)
    }

    /// Stores a comparison with `other`.
    pub(super) fn remember_comparison(&self, other: &Self, found: Comparison) {
        self.0.comparisons.remember(&other.0, found);
    }

    /// The error of the latest sample, during the pause after it failed.
    pub(super) fn recent_failure(&self) -> Option<Error> {
        let failed = self.0.failed.lock();
        let (until, error) = failed.as_ref()?;
        (Instant::now() < *until).then(|| error.clone())
    }

    /// Forgets all samples.
    #[cfg(test)]
    pub(super) fn forget_samples(&self) {
        *self.0.map.lock() = Map::default();
    }

    /// Lets the last check be older by `age`.
    #[cfg(test)]
    pub(super) fn age_check(&self, age: Duration) {
        self.0.check.age(age);
    }

    /// Lets the latest comparisons be older by `age`.
    #[cfg(test)]
    pub(super) fn age_comparisons(&self, age: Duration) {
        self.0.comparisons.age(age);
    }

    /// True if the latest sample is older than [`Clock::REFIT`], or there is none.
    fn is_old(&self) -> bool {
        if self.0.check.is_doubted() {
            return true;
        }
        let now = self.host_clock().now();
        let age = self.0.map.lock().beyond_host(now);
        age.is_none_or(|age| age > Self::REFIT)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} beside {}", self.0.object, self.host_clock().name())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::Error;
    use crate::clock::{SameClock, Sample};

    /// A sampler that succeeds once.
    #[derive(Default)]
    struct Once(Arc<AtomicU32>);

    impl Sampler for Once {
        fn sample(&self) -> Result<Sample> {
            if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
                return Ok(Sample::between(1_000, 0, 1_100));
            }
            Err(Error::clock_silent(
                Object::new("clock", "once"),
                Duration::ZERO,
                "it has answered",
            ))
        }
    }

    #[test]
    fn failed_samples_enlarge_the_error_and_are_not_repeated() {
        let asked = Arc::new(AtomicU32::new(0));
        let clock = Clock::new(Object::new("clock", "once"), Once(asked.clone()));
        let first = clock.to_host(0).unwrap();
        assert_eq!(first.nanoseconds, 1_050);
        for _ in 0..10 {
            let later = clock.to_host(10 * Clock::REFIT).unwrap();
            assert!(later.error > first.error, "{later:?}");
        }
        // One attempt for all ten conversions.
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        clock.sample().unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn a_shared_sample_begins_after_each_call() {
        let taken = Arc::new(AtomicU32::new(0));
        struct Counted(Arc<AtomicU32>);
        impl Sampler for Counted {
            fn sample(&self) -> Result<Sample> {
                // Counts when the sample begins.
                let number = i64::from(self.0.fetch_add(1, Ordering::SeqCst));
                std::thread::sleep(Duration::from_micros(200));
                Ok(Sample::between(number, number, number))
            }
        }
        let clock = Clock::new(Object::new("clock", "slow"), Counted(taken.clone()));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let before = taken.load(Ordering::SeqCst);
                        let got = clock.sample().unwrap().sample.device;
                        assert!(got >= i64::from(before), "{got} after {before}");
                    }
                });
            }
        });
    }

    #[test]
    fn a_sample_succeeds_after_one_that_panicked() {
        struct Panics(AtomicU32);
        impl Sampler for Panics {
            fn sample(&self) -> Result<Sample> {
                assert!(self.0.fetch_add(1, Ordering::Relaxed) > 0, "the first time");
                Ok(Sample::between(1, 1, 1))
            }
        }
        let clock = Clock::new(Object::new("clock", "panics"), Panics(0.into()));
        let first = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clock.sample()));
        assert!(first.is_err());
        assert_eq!(clock.sample().unwrap().sample.device, 1);
    }

    #[test]
    fn conversions_fail_before_the_first_sample() {
        let asked = Arc::new(AtomicU32::new(1));
        let clock = Clock::new(Object::new("clock", "once"), Once(asked.clone()));
        assert!(matches!(clock.to_host(0), Err(Error::ClockSilent { .. })));
        assert!(matches!(clock.to_device(0), Err(Error::ClockSilent { .. })));
        assert_eq!(clock.map().to_host(0), None);
        // One attempt for both.
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_pause_after_a_slow_failure_is_ten_times_as_long() {
        /// A sampler that fails slowly. Stores when each attempt began and ended.
        #[derive(Default)]
        struct Slow(Arc<Mutex<Vec<[Instant; 2]>>>);
        impl Sampler for Slow {
            fn sample(&self) -> Result<Sample> {
                let begun = Instant::now();
                std::thread::sleep(Duration::from_millis(30));
                self.0.lock().push([begun, Instant::now()]);
                Once(Arc::new(1.into())).sample()
            }
        }
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let clock = Clock::new(Object::new("clock", "slow"), Slow(attempts.clone()));
        while attempts.lock().len() < 2 {
            clock.to_host(0).unwrap_err();
        }
        let attempts = attempts.lock();
        let ([first, ended], [second, _]) = (attempts[0], attempts[1]);
        let pause = second - ended;
        assert!(pause >= (ended - first) * PAUSE_FACTOR, "{attempts:?}");
    }

    /// A clock one second behind the host's. Counts its samples.
    struct Late(Arc<AtomicU32>);

    impl Sampler for Late {
        fn sample(&self) -> Result<Sample> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let now = HostClock::Monotonic.now();
            Ok(Sample::between(now, now - 1_000_000_000, now))
        }
    }

    #[test]
    fn conversions_of_future_times_do_not_sample_each_time() {
        let asked = Arc::new(AtomicU32::new(0));
        let clock = Clock::new(Object::new("clock", "late"), Late(asked.clone()));
        let started = Instant::now();
        let mut converted = 0;
        let tomorrow = HostClock::Monotonic.now() + 86_400_000_000_000;
        while converted < 1_000 {
            clock.to_host(tomorrow).unwrap();
            clock.to_device(tomorrow).unwrap();
            converted += 1;
        }
        // The first sample, and one for each `REFIT` that has passed.
        let most = 1 + started.elapsed().as_nanos() / u128::from(Clock::REFIT.unsigned_abs());
        let asked = asked.load(Ordering::Relaxed);
        assert!(u128::from(asked) <= most, "{asked} samples, at most {most}");
    }

    #[test]
    fn later_samples_do_not_change_a_map() {
        let clock = Clock::new(Object::new("clock", "late"), Late(Arc::default()));
        let sampled = clock.sample().unwrap();
        assert_eq!(sampled.host_clock, HostClock::Monotonic);
        let device = sampled.sample.device + 50_000_000;
        let map = clock.map();
        let before = map.to_host(device).unwrap();
        clock.sample().unwrap();
        assert_eq!(map.to_host(device), Some(before));
        // A new map has the later sample.
        assert_ne!(clock.map().to_host(device), Some(before));
    }

    #[test]
    fn conversions_of_the_host_clock_to_itself_are_exact() {
        let clock = Clock::new(Object::new("clock", "host"), SameClock);
        for time in [i64::MIN, -1, 0, HostClock::Monotonic.now(), i64::MAX] {
            let exact = Estimate {
                nanoseconds: time,
                error: 0,
            };
            assert_eq!(clock.to_host(time).unwrap(), exact);
            assert_eq!(clock.to_device(time).unwrap(), exact);
            assert_eq!(clock.map().to_host(time), Some(exact));
        }
        let sampled = clock.sample().unwrap();
        assert!(sampled.holds() && sampled.expected.is_some());
        let drift = clock.drift().unwrap();
        assert_eq!((drift.ppm, drift.error_ppm), (0.0, 0.0));
    }
}
