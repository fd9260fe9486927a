//! Whether two clocks are one.
//!
//! Two APIs of a GPU mostly read the same counter, but nobody says so. It is found out: if they are one, then at every
//! moment both show the same, and the difference of what two samples say of one moment is 0 within their error. Two
//! counters of different beginnings would have to show the same to some microseconds by chance, and those that were set to
//! the same time part again with their drift: so the question is asked again while the answer is used.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::{Clock, Inner};
use crate::error::Result;

/// How two clocks stand beside each other, as far as samples say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// How far the second is ahead of the first, in nanoseconds, at the time of the latest look.
    pub ahead: i64,
    /// The truth lies no further than this from it, either way.
    pub error: u64,
    /// What that says, together with what was found before.
    pub finding: Finding,
}

/// Whether two clocks are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Finding {
    /// They belong to one GPU, and at every look showed the same within an error of at most [`Clock::CLOSE`].
    One,
    /// They are of different GPUs, or of none, or did not show the same at some look; that is kept for good.
    Two,
    /// No look was exact enough yet.
    Unknown,
}

impl Comparison {
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

/// So many looks are needed before two clocks are said to be one.
const LOOKS: u32 = 3;

impl Clock {
    /// Two clocks are not said to be one by a look whose error is larger than this, in nanoseconds.
    pub const CLOSE: u64 = 50_000;
    /// Two clocks that were found to be one are looked at again after this.
    pub const COMPARE_AGAIN: Duration = Duration::from_secs(1);

    /// Whether this clock and `other` are one, as CUDA's and Vulkan's of one GPU may be. That is measured and not assumed: both are
    /// sampled beside the host's clock, three times at first and once again after [`Clock::COMPARE_AGAIN`], and
    /// in between nothing is done. Who was found once to differ is taken as another clock for good.
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
        // One of the two knows, the same each time.
        let swapped = Arc::as_ptr(&self.0) > Arc::as_ptr(&other.0);
        let (first, second) = if swapped {
            (other, self)
        } else {
            (self, other)
        };
        let known = first.0.known(&second.0);
        let found = match known {
            Some((found, at))
                if found.finding == Finding::Two
                    || (found.finding == Finding::One && at.elapsed() < Self::COMPARE_AGAIN) =>
            {
                found
            }
            _ => {
                let before = known.map(|(found, _)| found);
                let silent = || first.refused().or_else(|| second.refused());
                let looked = match silent().filter(|_| !again) {
                    Some(error) => Err(error),
                    None => first.look(second, before.map(|found| found.finding)),
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

    fn look(&self, other: &Self, before: Option<Finding>) -> Result<Comparison> {
        let looks = if before == Some(Finding::One) {
            1
        } else {
            LOOKS
        };
        let one_gpu =
            self.0.sampler.gpu().is_some() && self.0.sampler.gpu() == other.0.sampler.gpu();
        let comparable = one_gpu && self.host_clock() == other.host_clock();
        let mut last = None;
        for _ in 0..looks {
            let (mine, its) = (self.sample()?.sample, other.sample()?.sample);
            // Both are converted for the later of the two moments: each map has a sample just before it.
            let at = mine.host.max(its.host);
            let (mine, its) = (self.to_device(at)?, other.to_device(at)?);
            let ahead = its.nanoseconds.saturating_sub(mine.nanoseconds);
            let error = mine.error.saturating_add(its.error);
            let finding = if !comparable || ahead.unsigned_abs() > error {
                Finding::Two
            } else if error > Self::CLOSE {
                Finding::Unknown
            } else {
                Finding::One
            };
            let found = Comparison {
                ahead,
                error,
                finding,
            };
            if finding != Finding::One {
                return Ok(found);
            }
            last = Some(found);
        }
        // At least one look was made.
        Ok(last.unwrap_or(Comparison {
            ahead: 0,
            error: u64::MAX,
            finding: Finding::Unknown,
        }))
    }
}

impl Inner {
    fn known(&self, other: &Arc<Self>) -> Option<(Comparison, Instant)> {
        let compared = self.compared.lock();
        let of = |one: &&Compared| Weak::as_ptr(&one.with) == Arc::as_ptr(other);
        compared.iter().find(of).map(|one| (one.found, one.at))
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
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::clock::{Axis, Elapsed, HostClock, Sample, Sampler, Time};
    use crate::error::{Error, Object};
    use crate::info::Uuid;

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
        let learnt = Instant::now() - 2 * Clock::COMPARE_AGAIN;
        for clock in [&one, &other] {
            for compared in clock.0.compared.lock().iter_mut() {
                compared.at = learnt;
            }
        }
        assert_eq!(one.compare(&other).unwrap().finding, Finding::Two);
        ahead.fetch_sub(100_000, Ordering::SeqCst);
        assert_eq!(other.compare(&one).unwrap().finding, Finding::Two);
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
        let before = Instant::now() - 2 * Clock::COMPARE_AGAIN;
        for clock in [&one, &other] {
            for compared in clock.0.compared.lock().iter_mut() {
                compared.at = before;
            }
        }
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
