//! Whether two clocks are one.
//!
//! Two APIs of a GPU mostly read the same counter, but nobody says so. It is found out: if they are one, then at every
//! moment both show the same, and the difference of what two samples say of one moment is 0 within their error. Two
//! counters of different beginnings would have to show the same to some microseconds by chance, and those that were set to
//! the same time part again with their drift: so the question is asked again while the answer is used.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{Clock, Inner};
use crate::base::error::Result;

/// How two clocks stand beside each other, as far as samples say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// How far the second is ahead of the first, in nanoseconds, at the time of the latest look; 0 before one.
    pub ahead: i64,
    /// The truth lies no further than this from it, either way; `u64::MAX` before a look, as where none is needed to tell that they are two.
    pub error: u64,
    /// What that says, together with what was found before.
    pub finding: Finding,
}

/// Whether two clocks are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Finding {
    /// They belong to one GPU, and at every look showed the same within an error of at most [`Clock::CLOSE`].
    One,
    /// They are of different GPUs, or of none, or at three looks, one after the other, did not show the same. That is kept for good: one clock
    /// shows nothing else than itself, and times that they had told before must not be subtracted if they agree later.
    Two,
    /// The latest looks were not exact enough, or did not agree.
    Unknown,
}

impl Comparison {
    /// Nobody has looked.
    const fn without_a_look(finding: Finding) -> Self {
        Self {
            ahead: 0,
            error: u64::MAX,
            finding,
        }
    }

    /// True if they were found to be one: their times can be subtracted.
    #[must_use]
    pub fn are_one(&self) -> bool {
        self.finding == Finding::One
    }
}

/// The clock it was compared with, what was found, and when.
pub(super) struct Compared {
    with: Weak<Inner>,
    found: Comparison,
    at: Instant,
}

impl Compared {
    /// True if it is told without another look.
    fn stands(&self) -> bool {
        self.found.finding == Finding::Two || self.at.elapsed() < Clock::COMPARE_AGAIN
    }
}

/// So many looks are needed before two clocks are said to be one, or two.
const LOOKS: u32 = 3;

impl Clock {
    /// Two clocks are not said to be one by a look whose error is larger than this, in nanoseconds.
    pub const CLOSE: u64 = 50_000;
    /// Two clocks that were not found to be two are looked at again after this.
    pub const COMPARE_AGAIN: Duration = Duration::from_secs(1);

    /// Whether this clock and `other` are one, as CUDA's and Vulkan's of one GPU may be. That is measured and not assumed: both are
    /// sampled beside the host's clock, three times at first and once again after [`Clock::COMPARE_AGAIN`] (up to three times if that
    /// look is not exact, or contradicts what was found), and in between nothing is done. Clocks of different GPUs, and those that were
    /// found to be two, are not sampled for it.
    ///
    /// # Errors
    /// A driver error, if a clock cannot be sampled and nothing was found before.
    pub fn compare(&self, other: &Self) -> Result<Comparison> {
        self.compared(other, true)
    }

    /// As [`Clock::compare`]; with `again` also where a clock has just been silent, which may take as long once more.
    pub(super) fn compared(&self, other: &Self, again: bool) -> Result<Comparison> {
        if self.is_same(other) {
            return Ok(Comparison {
                ahead: 0,
                error: 0,
                finding: Finding::One,
            });
        }
        if !self.is_comparable(other) {
            return Ok(Comparison::without_a_look(Finding::Two));
        }
        // One of the two knows, the same each time.
        let swapped = Arc::as_ptr(&self.0) > Arc::as_ptr(&other.0);
        let (first, second) = if swapped {
            (other, self)
        } else {
            (self, other)
        };
        let found = match first.0.known(&second.0) {
            Some((found, true)) => found,
            before => {
                let before = before.map(|(found, _)| found);
                let silent = || first.refused().or_else(|| second.refused());
                let looked = match silent().filter(|_| !again) {
                    Some(error) => Err(error),
                    None => first.look(second, before.is_some_and(|found| found.are_one())),
                };
                match looked {
                    Ok(found) => {
                        first.0.learn(&second.0, found);
                        found
                    }
                    Err(error) => before.ok_or(error)?,
                }
            }
        };
        Ok(if swapped {
            Comparison {
                ahead: found.ahead.saturating_neg(),
                ..found
            }
        } else {
            found
        })
    }

    /// True if they may be one at all.
    fn is_comparable(&self, other: &Self) -> bool {
        let gpus = [self, other].map(|clock| clock.0.sampler.gpu());
        gpus[0].is_some() && gpus[0] == gpus[1] && self.host_clock() == other.host_clock()
    }

    /// What up to [`LOOKS`] looks say; `one` if the two were found to be one before, which a single exact look confirms.
    fn look(&self, other: &Self, one: bool) -> Result<Comparison> {
        let (mut agree, mut apart) = (0, 0);
        let mut found = Comparison::without_a_look(Finding::Unknown);
        for looks in 1..=LOOKS {
            found = self.look_once(other)?;
            match found.finding {
                Finding::One => agree += 1,
                Finding::Two => apart += 1,
                Finding::Unknown => {}
            }
            if one && agree == 1 && apart == 0 {
                return Ok(found);
            }
            let inexact = agree + apart < looks;
            if (agree > 0 && apart > 0) || (inexact && !one) {
                break;
            }
        }
        found.finding = match (agree, apart) {
            (LOOKS, _) => Finding::One,
            (_, LOOKS) => Finding::Two,
            _ => Finding::Unknown,
        };
        Ok(found)
    }

    fn look_once(&self, other: &Self) -> Result<Comparison> {
        let (mine, its) = (self.sample()?.sample, other.sample()?.sample);
        // Both are converted for the later of the two moments: each map has a sample just before it.
        let at = mine.host.max(its.host);
        let (mine, its) = (self.to_device(at)?, other.to_device(at)?);
        let ahead = its.nanoseconds.saturating_sub(mine.nanoseconds);
        let error = mine.error.saturating_add(its.error);
        let finding = if ahead.unsigned_abs() > error {
            Finding::Two
        } else if error > Self::CLOSE {
            Finding::Unknown
        } else {
            Finding::One
        };
        Ok(Comparison {
            ahead,
            error,
            finding,
        })
    }
}

impl Inner {
    /// What was found, and whether that is told without another look.
    fn known(&self, other: &Arc<Self>) -> Option<(Comparison, bool)> {
        let compared = self.compared.lock();
        let of = |one: &&Compared| Weak::as_ptr(&one.with) == Arc::as_ptr(other);
        let found = compared.iter().find(of)?;
        Some((found.found, found.stands()))
    }

    fn learn(&self, other: &Arc<Self>, found: Comparison) {
        let mut compared = self.compared.lock();
        // As long as there is a weak reference, nothing else stands at the same address.
        compared.retain(|one| one.with.strong_count() > 0);
        let learnt = Compared {
            with: Arc::downgrade(other),
            found,
            at: Instant::now(),
        };
        match compared
            .iter_mut()
            .find(|one| Weak::as_ptr(&one.with) == Arc::as_ptr(other))
        {
            // Another thread may have found that they differ meanwhile.
            Some(known) if known.found.finding == Finding::Two => {}
            Some(known) => *known = learnt,
            None => compared.push(learnt),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::base::error::{Error, Object};
    use crate::base::info::Uuid;
    use crate::base::sync::Mutex;
    use crate::clock::{Axis, Elapsed, HostClock, Map, Sample, Sampler, Time};

    /// A clock that is ahead of the host's by what the test says, and its samples off by up to their deviation.
    struct Synthetic {
        ahead: Arc<AtomicI64>,
        deviation: u64,
        /// Where in its deviation the truth lies, from -1 to 1.
        off: f64,
        gpu: Option<Uuid>,
        host: HostClock,
    }

    impl Sampler for Synthetic {
        fn sample(&self) -> Result<Sample> {
            let now = self.host.now();
            let ahead = self.ahead.load(Ordering::SeqCst);
            if ahead == i64::MAX {
                return Err(Error::ClockSilent {
                    clock: Object::new("clock", "synthetic"),
                    waited: Duration::ZERO,
                    reason: "the test says so".into(),
                });
            }
            Ok(Sample {
                device: now + ahead,
                host: now + (self.deviation as f64 * self.off) as i64,
                deviation: self.deviation,
            })
        }

        fn host_clock(&self) -> HostClock {
            self.host
        }

        fn resolution(&self) -> u64 {
            32
        }

        fn gpu(&self) -> Option<Uuid> {
            self.gpu
        }
    }

    const GPU: Option<Uuid> = Some(Uuid([7; 16]));
    const FAR: i64 = 1_700_000_000_000_000_000;

    fn clock(ahead: i64, deviation: u64, off: f64, gpu: Option<Uuid>) -> (Clock, Arc<AtomicI64>) {
        let ahead = Arc::new(AtomicI64::new(ahead));
        let sampler = Synthetic {
            ahead: ahead.clone(),
            deviation,
            off,
            gpu,
            host: HostClock::Monotonic,
        };
        (
            Clock::new(Object::new("clock", "synthetic"), sampler),
            ahead,
        )
    }

    /// A clock that is as far ahead, and reads with such a deviation, as the test says of each sample; [`FAR`] and 900 ns after that. The
    /// host's clock beside it goes on by a microsecond with each, however busy the machine is.
    #[derive(Clone, Default)]
    struct Scripted {
        script: Arc<Mutex<VecDeque<(i64, u64)>>>,
        asked: Arc<AtomicI64>,
        host: Arc<AtomicI64>,
    }

    impl Scripted {
        /// Another one, and what is said to it.
        fn pair() -> (Clock, Clock, Self) {
            let host = Arc::default();
            let [one, other] = [(); 2].map(|()| Self {
                host: Arc::clone(&host),
                ..Self::default()
            });
            (one.clock(), other.clock(), other)
        }

        fn says(&self, script: &[(i64, u64)]) {
            *self.script.lock() = script.iter().copied().collect();
        }

        fn asked(&self) -> i64 {
            self.asked.swap(0, Ordering::SeqCst)
        }

        fn clock(&self) -> Clock {
            Clock::new(Object::new("clock", "scripted"), self.clone())
        }
    }

    impl Sampler for Scripted {
        fn sample(&self) -> Result<Sample> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let (ahead, deviation) = self.script.lock().pop_front().unwrap_or((FAR, 900));
            let host = self.host.fetch_add(1_000, Ordering::SeqCst);
            Ok(Sample {
                device: host + ahead,
                host,
                deviation,
            })
        }

        fn gpu(&self) -> Option<Uuid> {
            GPU
        }
    }

    /// As though the next comparison were later than [`Clock::COMPARE_AGAIN`].
    fn let_it_be_later(clocks: [&Clock; 2]) {
        for clock in clocks {
            for compared in clock.0.compared.lock().iter_mut() {
                compared.at -= 2 * Clock::COMPARE_AGAIN;
            }
        }
    }

    fn times(one: &Clock, other: &Clock) -> (Time, Time) {
        (
            Time::new(one.clone(), FAR + 1_000),
            Time::new(other.clone(), FAR + 5_000),
        )
    }

    #[test]
    fn one_counter_read_by_two_is_found_to_be_one() {
        let (cuda, vulkan) = (clock(FAR, 900, 0.8, GPU).0, clock(FAR, 2_800, -0.9, GPU).0);
        let found = cuda.compare(&vulkan).unwrap();
        assert_eq!(found.finding, Finding::One, "{found:?}");
        assert!(found.error >= 3_700, "{found:?}");
        let (start, end) = times(&cuda, &vulkan);
        let forward = end.since(&start).unwrap();
        let exact = Elapsed {
            nanoseconds: 4_000,
            error: 64,
            axis: Axis::One,
        };
        assert_eq!(forward, exact);
        assert_eq!(start.since(&end).unwrap().nanoseconds, -4_000);
        let itself = start.since(&start).unwrap();
        assert_eq!((itself.nanoseconds, itself.axis), (0, Axis::Same));
    }

    #[test]
    fn others_are_compared_on_the_hosts_clock() {
        let ours = || clock(FAR, 900, 0.0, GPU).0;
        let other_gpu = clock(FAR, 900, 0.0, Some(Uuid([8; 16]))).0;
        let of_no_gpu = clock(FAR, 900, 0.0, None).0;
        // Off by more than the errors of both.
        let off = clock(FAR + 20_000, 900, 0.0, GPU).0;
        for other in [other_gpu, of_no_gpu, off] {
            let ours = ours();
            for (one, two) in [(&ours, &other), (&other, &ours)] {
                assert_eq!(one.compare(two).unwrap().finding, Finding::Two);
                let (start, end) = times(one, two);
                let elapsed = end.since(&start).unwrap();
                assert_eq!(elapsed.axis, Axis::Host);
                assert!(elapsed.error >= 1_800, "{elapsed:?}");
            }
        }
        // Too coarse to tell.
        let coarse = clock(FAR, 60_000, 0.0, GPU).0;
        let found = ours().compare(&coarse).unwrap();
        assert_eq!(found.finding, Finding::Unknown);
        let (start, end) = times(&ours(), &coarse);
        assert_eq!(end.since(&start).unwrap().axis, Axis::Host);
    }

    /// Set to the same time once, but another counter: it is found out when it is looked at again, and not forgotten.
    #[test]
    fn who_parts_later_is_found_out() {
        let (one, (other, ahead)) = (clock(FAR, 900, 0.0, GPU).0, clock(FAR, 900, 0.0, GPU));
        assert!(one.compare(&other).unwrap().are_one());
        ahead.fetch_add(100_000, Ordering::SeqCst);
        assert!(one.compare(&other).unwrap().are_one(), "asked too soon");
        let_it_be_later([&one, &other]);
        assert_eq!(one.compare(&other).unwrap().finding, Finding::Two);
        ahead.fetch_sub(100_000, Ordering::SeqCst);
        let_it_be_later([&one, &other]);
        assert_eq!(other.compare(&one).unwrap().finding, Finding::Two);
    }

    /// A single look that contradicts the others is no proof, neither at first nor later; three are.
    #[test]
    fn an_accident_is_not_kept_for_good() {
        let (right, off) = ((FAR, 900), (FAR + 100_000, 900));
        for first in [
            &[off][..],
            &[right, off],
            &[right, right, off],
            &[off, off, right],
        ] {
            let (one, other, scripted) = Scripted::pair();
            scripted.says(first);
            assert_eq!(
                one.compare(&other).unwrap().finding,
                Finding::Unknown,
                "{first:?}"
            );
            let_it_be_later([&one, &other]);
            assert!(one.compare(&other).unwrap().are_one(), "{first:?}");
            for later in [&[off][..], &[off, off]] {
                let_it_be_later([&one, &other]);
                scripted.says(later);
                assert_eq!(
                    one.compare(&other).unwrap().finding,
                    Finding::Unknown,
                    "{later:?}"
                );
                let_it_be_later([&one, &other]);
                assert!(one.compare(&other).unwrap().are_one(), "{later:?}");
            }
            let_it_be_later([&one, &other]);
            scripted.says(&[off; 3]);
            assert_eq!(one.compare(&other).unwrap().finding, Finding::Two);
        }
    }

    /// What could not be told is not asked again with each time that is compared, and is told once it can be.
    #[test]
    fn what_is_unknown_is_remembered_for_a_while() {
        let (one, other, scripted) = Scripted::pair();
        let coarse = (FAR, 2 * Clock::CLOSE);
        scripted.says(&[coarse]);
        let (start, end) = times(&one, &other);
        assert_eq!(end.since(&start).unwrap().axis, Axis::Host);
        assert_eq!(scripted.asked(), 1);
        for _ in 0..20 {
            assert_eq!(end.since(&start).unwrap().axis, Axis::Host);
            assert_eq!(other.compare(&one).unwrap().finding, Finding::Unknown);
        }
        assert_eq!(scripted.asked(), 0);
        let_it_be_later([&one, &other]);
        assert_eq!(end.since(&start).unwrap().axis, Axis::One);
        assert_eq!(scripted.asked(), 3);
        // One exact look confirms it, if not the first. (With good samples of just before none is coarse.)
        let_it_be_later([&one, &other]);
        *other.0.map.lock() = Map::default();
        scripted.says(&[coarse, coarse]);
        assert_eq!(end.since(&start).unwrap().axis, Axis::One);
        assert_eq!(scripted.asked(), 3);
        // None does.
        let_it_be_later([&one, &other]);
        *other.0.map.lock() = Map::default();
        scripted.says(&[coarse, coarse, coarse]);
        assert_eq!(end.since(&start).unwrap().axis, Axis::Host);
        assert_eq!(scripted.asked(), 3);
    }

    /// What cannot be one is not looked at.
    #[test]
    fn clocks_of_different_gpus_are_not_sampled() {
        let scripted = Scripted::default();
        let other = scripted.clock();
        for gpu in [None, Some(Uuid([8; 16]))] {
            let one = clock(FAR, 900, 0.0, gpu).0;
            for (one, other) in [(&one, &other), (&other, &one)] {
                let found = one.compare(other).unwrap();
                assert_eq!((found.finding, found.error), (Finding::Two, u64::MAX));
            }
        }
        assert_eq!(scripted.asked(), 0);
    }

    #[test]
    fn a_silent_clock_leaves_what_was_found() {
        let (one, (other, ahead)) = (clock(FAR, 900, 0.0, GPU).0, clock(FAR, 900, 0.0, GPU));
        ahead.store(i64::MAX, Ordering::SeqCst);
        assert!(matches!(
            one.compare(&other),
            Err(Error::ClockSilent { .. })
        ));
        let (start, end) = times(&one, &other);
        assert!(matches!(end.since(&start), Err(Error::ClockSilent { .. })));
        ahead.store(FAR, Ordering::SeqCst);
        assert!(one.compare(&other).unwrap().are_one());
        ahead.store(i64::MAX, Ordering::SeqCst);
        let_it_be_later([&one, &other]);
        assert_eq!(end.since(&start).unwrap().axis, Axis::One);
    }

    /// However many times of it are compared.
    #[test]
    fn a_silent_clock_is_not_asked_for_each_time() {
        struct Silent(Arc<AtomicI64>);
        impl Sampler for Silent {
            fn sample(&self) -> Result<Sample> {
                self.0.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                Err(Error::ClockSilent {
                    clock: Object::new("clock", "silent"),
                    waited: Duration::from_millis(20),
                    reason: "the test says so".into(),
                })
            }
        }
        let asked = Arc::new(AtomicI64::new(0));
        let silent = Clock::new(Object::new("clock", "silent"), Silent(asked.clone()));
        let (start, end) = times(&clock(FAR, 900, 0.0, GPU).0, &silent);
        let started = Instant::now();
        for _ in 0..20 {
            assert!(matches!(end.since(&start), Err(Error::ClockSilent { .. })));
        }
        // Once, and again whenever ten times as long has passed.
        let most = 1 + started.elapsed().as_millis() as i64 / 200;
        let asked = asked.load(Ordering::SeqCst);
        assert!(asked <= most, "{asked} times, {most} would do");
    }

    #[test]
    fn times_beside_different_clocks_of_the_host_are_not_compared() {
        let raw = Synthetic {
            ahead: Arc::new(AtomicI64::new(FAR)),
            deviation: 900,
            off: 0.0,
            gpu: GPU,
            host: HostClock::MonotonicRaw,
        };
        let raw = Clock::new(Object::new("clock", "raw"), raw);
        let (start, end) = times(&clock(FAR, 900, 0.0, GPU).0, &raw);
        assert!(matches!(end.since(&start), Err(Error::Unsupported { .. })));
    }
}
