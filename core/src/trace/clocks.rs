//! The clocks of a trace, and the conversion of their times.

use std::sync::Arc;

use crate::base::sync::Mutex;
use crate::clock::{Clock, Estimate, History};

/// The history of each clock relative to the host's, since it was first followed.
#[derive(Default)]
pub(super) struct Histories(Mutex<Vec<(Clock, History)>>);

/// The traced clocks, each with the history that converts its times.
pub(super) struct Clocks(Vec<(Clock, Arc<History>)>);

impl Histories {
    /// Samples a clock for conversions. A clock that is silent is sampled again next time.
    pub(super) fn sample(&self, clock: &Clock) {
        let _ = clock.sample();
        let mut histories = self.0.lock();
        let known = histories.iter().position(|(one, _)| one.is_same(clock));
        let at = known.unwrap_or_else(|| {
            histories.push((clock.clone(), History::default()));
            histories.len() - 1
        });
        if let Some((clock, history)) = histories.get_mut(at) {
            // Under the lock, so in the order of the samples.
            history.update(clock.map());
        }
    }

    /// Drops all clocks.
    pub(super) fn clear(&self) {
        // Without the lock, because these may be the last references to devices.
        let histories = std::mem::take(&mut *self.0.lock());
        drop(histories);
    }

    /// Samples each clock for the last time, and chooses the history that converts its times.
    ///
    /// Clocks that are found to be one are converted by the first of them, so that differences of
    /// their times stay exact. After the last sample every recorded time lies between two samples.
    pub(super) fn finish<'c>(&self, clocks: impl Iterator<Item = &'c Clock>) -> Clocks {
        let mut known: Vec<(&Clock, &Clock)> = Vec::new();
        for clock in clocks {
            if known.iter().any(|(one, _)| one.is_same(clock)) {
                continue;
            }
            self.sample(clock);
            let is_one = |one: &Clock| one.compare(clock).is_ok_and(|found| found.are_one());
            let first = known
                .iter()
                .find(|(one, by)| one.is_same(by) && is_one(one));
            known.push((clock, first.map_or(clock, |&(_, by)| by)));
        }
        let histories = std::mem::take(&mut *self.0.lock());
        let histories: Vec<_> = histories
            .into_iter()
            .map(|(clock, history)| (clock, Arc::new(history.finish())))
            .collect();
        let with_history = |(clock, by): (&Clock, &Clock)| {
            let mut histories = histories.iter();
            let (_, history) = histories.find(|(one, _)| one.is_same(by))?;
            Some((clock.clone(), history.clone()))
        };
        Clocks(known.into_iter().filter_map(with_history).collect())
    }
}

impl Clocks {
    /// The time at which the device of `clock` wrote `time`, on the host's clock.
    pub(super) fn to_host(&self, clock: &Clock, time: i64) -> Option<Estimate> {
        let (_, history) = self.0.iter().find(|(one, _)| one.is_same(clock))?;
        history.to_host(time).map(|shown| clock.as_written(shown))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;
    use crate::backend::Sampler;
    use crate::base::error::{Object, Result};
    use crate::clock::Sample;

    /// A clock whose samples are a quarter of a second apart.
    struct Stepping(AtomicI64);

    impl Sampler for Stepping {
        fn sample(&self) -> Result<Sample> {
            let device = self.0.fetch_add(250_000_000, Ordering::SeqCst);
            Ok(Sample {
                device,
                host: device + 5_000,
                deviation: 1_000,
            })
        }
    }

    #[test]
    fn early_times_of_a_trace_of_ten_minutes_are_as_exact_as_late_ones() {
        let histories = Histories::default();
        let clock = Clock::new(Object::new("clock", "stepping"), Stepping(0.into()));
        for _ in 0..10 * 240 {
            histories.sample(&clock);
        }
        let clocks = histories.finish([&clock].into_iter());
        for second in [1, 60, 300, 580, 599] {
            let device = second * 1_000_000_000 + 77_000_000;
            let found = clocks.to_host(&clock, device).unwrap();
            let off = found.nanoseconds.abs_diff(device + 5_000);
            assert!(
                off <= found.error && found.error < 1_200,
                "{off} {found:?} {second}"
            );
        }
    }
}
