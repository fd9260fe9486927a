//! Clocks: those of devices beside the host's, and times on them.
//!
//! A device counts by itself. What its counter shows becomes a time by [`Counter`] and [`Rounds`]; what the host's clock
//! shows at that time, and how far that may be off, by [`Clock`], which samples both together now and then and keeps what
//! that says in a [`Map`].

mod compare;
mod counter;
mod course;
mod map;
mod sample;
mod time;

pub use compare::{Comparison, Finding};
pub use counter::{Counter, Rounds};
pub(crate) use course::Course;
pub use map::{Drift, Estimate, Map};
pub(crate) use sample::SameClock;
pub use sample::{Effort, HostClock, Sample};
pub use time::{Axis, Elapsed, Time};

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::error::{Error, Object, Result};
use crate::base::info::Uuid;
use crate::base::sync::{Condvar, Mutex};

/// Reads a device's clock together with the host's. For backends.
pub trait Sampler: Send + Sync {
    /// One sample, in bounded time. Called by one thread at a time.
    ///
    /// # Errors
    /// A driver error.
    fn sample(&self) -> Result<Sample>;

    /// The clock of the host that it reads.
    fn host_clock(&self) -> HostClock {
        HostClock::Monotonic
    }

    /// True if the device's clock is that clock of the host itself, so that conversions are exact, and nothing is ever sampled for
    /// them.
    fn is_host_clock(&self) -> bool {
        false
    }

    /// For so long the device's clock may show the same, in nanoseconds: the times that it writes are older by less than that.
    /// Asked after a sample.
    fn resolution(&self) -> u64 {
        1
    }

    /// The GPU whose clock it is, if that has an identity which other APIs know too.
    fn gpu(&self) -> Option<Uuid> {
        None
    }
}

/// The clock of a device: what its timestamps count, in nanoseconds, and how that goes beside the host's clock.
///
/// Cheap to clone; usable from any thread. Conversions mostly are arithmetic under a short lock; one of a time that lies
/// more than [`Clock::REFIT`] beyond the latest sample, where that is as old, takes another sample first, which asks the driver
/// (how long that may take is said where a device's clock is). If that fails the earlier ones still hold, with the larger error that their age gives
/// them; no conversion tries it again before ten times as long has passed as it took, and [`Clock::REFIT`]. What must never ask the
/// driver, and what must stay in its order, converts by a [`Clock::map`].
#[derive(Clone)]
pub struct Clock(
    Arc<Inner>,
    #[allow(dead_code, reason = "kept alive")] Option<Arc<dyn Any + Send + Sync>>,
);

struct Inner {
    object: Object,
    sampler: Box<dyn Sampler>,
    /// Who comes while a sample is taken waits for the next one, and shares that with all who have come until it begins: so
    /// nobody waits for more than two.
    rounds: (Mutex<Round>, Condvar),
    map: Mutex<Map>,
    /// Until when conversions do not try to sample, and why: the latest attempt has failed.
    failed: Mutex<Option<(Instant, Error)>>,
    /// Others that this was compared with.
    compared: Mutex<Vec<compare::Compared>>,
}

/// One sample after the other.
#[derive(Default)]
struct Round {
    taking: bool,
    /// How many have been begun.
    begun: u64,
    /// The number of the last one that has ended, and what came of it.
    last: Option<(u64, Result<Sampled>)>,
}

/// A sample that is being taken.
struct Taking<'c> {
    inner: &'c Inner,
    number: u64,
    result: Option<Result<Sampled>>,
}

impl Drop for Taking<'_> {
    /// Also where the sampler has panicked: the next one may take one then.
    fn drop(&mut self) {
        let mut round = self.inner.rounds.0.lock();
        round.taking = false;
        if let Some(result) = self.result.take() {
            round.last = Some((self.number, result));
        }
        drop(round);
        self.inner.rounds.1.notify_all();
    }
}

impl Inner {
    fn sample(&self) -> Result<Sampled> {
        let started = Instant::now();
        let sample = self.sampler.sample();
        *self.failed.lock() = sample.as_ref().err().map(|error| {
            let pause = started.elapsed().saturating_mul(PAUSE).max(refit());
            // A time so far away that it cannot be said is not waited for.
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

/// So many times as long as a failed attempt took no conversion makes another one.
const PAUSE: u32 = 10;

/// [`Clock::REFIT`].
const fn refit() -> Duration {
    Duration::from_nanos(Clock::REFIT.unsigned_abs())
}

impl Clock {
    /// A time further than this beyond the latest sample, where that is as old, is converted only after another one, in nanoseconds.
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
            sampler: Box::new(sampler),
            rounds: Default::default(),
            map: Mutex::new(map),
            failed: Mutex::default(),
            compared: Mutex::default(),
        };
        Self(Arc::new(inner), None)
    }

    /// The same clock, which keeps `owner` alive. For backends: a device that has its clock hands it out so, since the
    /// sampler, which the clock has, can have no more than a [`Weak`](std::sync::Weak) of the device.
    #[must_use]
    pub fn keeping(&self, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self(self.0.clone(), Some(owner))
    }

    /// The same clock, which keeps nobody: for who only converts.
    pub(crate) fn keeping_nobody(&self) -> Self {
        Self(self.0.clone(), None)
    }

    /// True if both are the same clock of the same device, with the same samples.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// True if it is the host's clock itself.
    pub(crate) fn is_the_hosts(&self) -> bool {
        self.0.sampler.is_host_clock()
    }

    /// Its name in errors and reports.
    #[must_use]
    pub fn object(&self) -> &Object {
        &self.0.object
    }

    /// The clock of the host with which it is compared.
    #[must_use]
    pub fn host_clock(&self) -> HostClock {
        self.0.sampler.host_clock()
    }

    /// For so long it may show the same, in nanoseconds, as far as has been seen: what it writes is older by less than that.
    #[must_use]
    pub fn resolution(&self) -> u64 {
        self.0.sampler.resolution()
    }

    /// Reads both clocks now, and fits the conversion to that. Tells what the conversion said before. Threads that call it
    /// at the same time may be given one sample together; it is begun after all of their calls.
    ///
    /// # Errors
    /// A driver error; the conversion stays as it is then.
    pub fn sample(&self) -> Result<Sampled> {
        let inner = &*self.0;
        let mut taking = {
            let mut round = inner.rounds.0.lock();
            let before = round.begun;
            loop {
                if let Some((number, result)) = &round.last
                    && *number > before
                {
                    return result.clone();
                }
                if !round.taking {
                    break;
                }
                round = inner.rounds.1.wait(round);
            }
            round.taking = true;
            round.begun += 1;
            Taking {
                inner,
                number: round.begun,
                result: None,
            }
        };
        let result = inner.sample();
        taking.result = Some(result.clone());
        result
    }

    /// What the host's clock showed, or will show, when the device's shows `device`.
    ///
    /// # Errors
    /// That of the latest sample, if none has succeeded yet.
    pub fn to_host(&self, device: i64) -> Result<Estimate> {
        self.convert(|map| (map.beyond(device), map.to_host(device)))
    }

    /// What the device's clock showed, or will show, when the host's shows `host`.
    ///
    /// # Errors
    /// That of the latest sample, if none has succeeded yet.
    pub fn to_device(&self, host: i64) -> Result<Estimate> {
        self.convert(|map| (map.beyond_host(host), map.to_device(host)))
    }

    /// The conversion as the samples so far have it. It asks no driver and takes no lock, what it answers is in the order of what was
    /// asked, and it grows no better: a profiler takes one for each batch of times, after a [`Clock::sample`] that is taken
    /// when all of them have passed, so that they lie between samples.
    #[must_use]
    pub fn map(&self) -> Map {
        self.0.map.lock().clone()
    }

    /// When the device has written `device`, on the host's clock that every process has ([`HostClock::Monotonic`]), as far as the samples so far say: asks no
    /// driver. `None` before the first sample.
    pub(crate) fn on_every_host(&self, device: i64) -> Option<Estimate> {
        let own = self.0.map.lock().to_host(device)?;
        // It may have shown the same for as long before it was written.
        let error = match self.is_the_hosts() {
            true => own.error,
            false => own.error.saturating_add(self.resolution()),
        };
        let own = Estimate { error, ..own };
        Some(self.host_clock().to_monotonic(own))
    }

    /// True if conversions of the present would be more exact after another [sample](Clock::sample), which may be tried now.
    pub(crate) fn wants_a_sample(&self) -> bool {
        !self.is_the_hosts() && self.is_old() && self.refused().is_none()
    }

    /// How much faster the host's clock runs, as far as the samples say; `None` before the first.
    #[must_use]
    pub fn drift(&self) -> Option<Drift> {
        self.0.map.lock().drift()
    }

    fn convert(&self, ask: impl Fn(&Map) -> (Option<i64>, Option<Estimate>)) -> Result<Estimate> {
        let (beyond, known) = ask(&self.0.map.lock());
        if let (Some(..=Self::REFIT), Some(estimate)) = (beyond, known) {
            return Ok(estimate);
        }
        if let Some(known) = known.filter(|_| !self.is_old()) {
            return Ok(known);
        }
        if let Some(error) = self.refused() {
            return known.ok_or(error);
        }
        if let Err(error) = self.sample() {
            return known.ok_or(error);
        }
        let (_, estimate) = ask(&self.0.map.lock());
        // There is a sample now.
        Ok(estimate.unwrap_or(Estimate {
            nanoseconds: 0,
            error: u64::MAX,
        }))
    }

    /// Why the latest attempt to sample has failed, if what is not asked to may not make another one yet.
    fn refused(&self) -> Option<Error> {
        let failed = self.0.failed.lock();
        let (until, error) = failed.as_ref()?;
        (Instant::now() < *until).then(|| error.clone())
    }

    /// True if another sample would say more of the present than the latest one.
    fn is_old(&self) -> bool {
        let now = self.host_clock().now();
        let age = self.0.map.lock().beyond_host(now);
        age.is_none_or(|age| age > Self::REFIT)
    }
}

/// A sample, and what was expected of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampled {
    /// What was read.
    pub sample: Sample,
    /// Which clock of the host was.
    pub host_clock: HostClock,
    /// What the conversion made of the device's time before; `None` for the first sample.
    pub expected: Option<Estimate>,
}

impl Sampled {
    /// True unless the sample contradicts what was expected: their intervals have nothing in common.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.expected.is_none_or(|expected| {
            let off = expected.nanoseconds.abs_diff(self.sample.host);
            off <= expected.error.saturating_add(self.sample.deviation)
        })
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

    /// Succeeds once.
    #[derive(Default)]
    struct Once(Arc<AtomicU32>);

    impl Sampler for Once {
        fn sample(&self) -> Result<Sample> {
            if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
                return Ok(Sample::between(1_000, 0, 1_100));
            }
            Err(Error::ClockSilent {
                clock: Object::new("clock", "once"),
                waited: Duration::ZERO,
                reason: "it has answered".into(),
            })
        }
    }

    #[test]
    fn a_clock_that_falls_silent_costs_accuracy_not_time() {
        let asked = Arc::new(AtomicU32::new(0));
        let clock = Clock::new(Object::new("clock", "once"), Once(asked.clone()));
        let first = clock.to_host(0).unwrap();
        assert_eq!(first.nanoseconds, 1_050);
        for _ in 0..10 {
            let later = clock.to_host(10 * Clock::REFIT).unwrap();
            assert!(later.error > first.error, "{later:?}");
        }
        // One attempt for all of them, so that they do not take long.
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        clock.sample().unwrap_err();
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    /// However many threads share samples, each gets one that was begun after its call.
    #[test]
    fn a_shared_sample_is_not_an_old_one() {
        let taken = Arc::new(AtomicU32::new(0));
        struct Counted(Arc<AtomicU32>);
        impl Sampler for Counted {
            fn sample(&self) -> Result<Sample> {
                // Counted where it begins.
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
    fn a_sampler_that_panics_holds_nobody_up() {
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
    fn a_clock_that_was_never_read_converts_nothing() {
        let asked = Arc::new(AtomicU32::new(1));
        let clock = Clock::new(Object::new("clock", "once"), Once(asked.clone()));
        assert!(matches!(clock.to_host(0), Err(Error::ClockSilent { .. })));
        assert!(matches!(clock.to_device(0), Err(Error::ClockSilent { .. })));
        assert_eq!(clock.map().to_host(0), None);
        // One attempt for both.
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    /// A clock of which each failing attempt takes long.
    #[test]
    fn conversions_wait_for_a_silent_clock_a_tenth_of_the_time_at_most() {
        /// When each attempt began and ended.
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
        assert!(second - ended >= (ended - first) * PAUSE, "{attempts:?}");
    }

    /// Counts what it is asked, and shows the host's clock a second late.
    struct Late(Arc<AtomicU32>);

    impl Sampler for Late {
        fn sample(&self) -> Result<Sample> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let now = HostClock::Monotonic.now();
            Ok(Sample::between(now, now - 1_000_000_000, now))
        }
    }

    #[test]
    fn the_future_is_not_asked_for_again_and_again() {
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
        // As often as a sample becomes old, and once where there is none.
        let most = 1 + started.elapsed().as_nanos() / u128::from(Clock::REFIT.unsigned_abs());
        let asked = asked.load(Ordering::Relaxed);
        assert!(u128::from(asked) <= most, "{asked} times, {most} would do");
    }

    #[test]
    fn a_map_stays_as_it_is() {
        let clock = Clock::new(Object::new("clock", "late"), Late(Arc::default()));
        let sampled = clock.sample().unwrap();
        assert_eq!(sampled.host_clock, HostClock::Monotonic);
        let device = sampled.sample.device + 50_000_000;
        let map = clock.map();
        let before = map.to_host(device).unwrap();
        clock.sample().unwrap();
        assert_eq!(map.to_host(device), Some(before));
        // The clock has another sample to go by.
        assert_ne!(clock.map().to_host(device), Some(before));
    }

    #[test]
    fn the_hosts_clock_beside_itself_is_exact() {
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
