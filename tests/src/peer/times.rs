//! Commands of both processes for timelines with times of signals.

use std::time::Instant;

use syncline::backend::Queue as _;
use syncline::clock::{Estimate, HostClock};
use syncline::{Error, Point};

use super::half::{Half, number};
use crate::case::Stop;
use crate::patience;

impl Half {
    /// Obeys a command: see [`Half::run`].
    pub(super) fn run_with_times(
        &mut self,
        what: &str,
        label: &str,
        rest: &str,
    ) -> Option<Result<String, Stop>> {
        Some(match what {
            "clock" => Ok(HostClock::Monotonic.now().to_string()),
            "signals" => self.signal_all(label, rest),
            "time" => self.time(label, rest),
            "times" => self.times(label, rest),
            _ => return None,
        })
    }

    fn signal_all(&mut self, label: &str, values: &str) -> Result<String, Stop> {
        let line = self.signals(label)?;
        let queue = self.queue()?;
        for value in all(values)? {
            queue.submit(&[], |_| Ok(()), &[line.signal_at(value)])?;
        }
        Ok(String::new())
    }

    fn time(&self, label: &str, value: &str) -> Result<String, Stop> {
        let line = self.waits(label)?;
        Ok(match told(line.at(number(value)?)) {
            Ok(at) => format!("{} {}", at.nanoseconds, at.error),
            Err(Error::TimesNotEnabled { .. }) => "not enabled".into(),
            Err(Error::NotReached { .. }) => "not reached".into(),
            Err(Error::TimeForgotten { .. }) => "forgotten".into(),
            Err(Error::NoTime { .. }) => "never written".into(),
            Err(Error::Failed { .. } | Error::Cancelled { .. }) => "never".into(),
            Err(other) => return Err(other.into()),
        })
    }

    /// Checks that times never decrease.
    fn times(&self, label: &str, values: &str) -> Result<String, Stop> {
        let line = self.waits(label)?;
        let mut before = None;
        for value in all(values)? {
            let at = told(line.at(value))?.nanoseconds;
            if let Some(before) = before.filter(|before| *before > at) {
                return Ok(format!("{value} at {at}, and the one before at {before}"));
            }
            before = Some(at);
        }
        Ok("in order".into())
    }
}

/// Returns the values that `FROM STEP TO` names.
fn all(values: &str) -> Result<impl Iterator<Item = u64> + use<>, Stop> {
    let numbers = values.split(' ').map(number);
    match numbers.collect::<Result<Vec<_>, _>>()?.as_slice() {
        &[from, step, to] if step > 0 => Ok((from..=to).step_by(step as usize)),
        _ => Stop::fail(format!("{values:?} names no values")),
    }
}

/// Returns the time of a point on the host's clock.
///
/// The time may not have come over yet, so this retries. It comes without any other call.
fn told(point: Point<'_>) -> syncline::Result<Estimate> {
    let until = Instant::now() + patience();
    loop {
        match point.time() {
            Err(Error::TimeNotTold { .. }) if Instant::now() < until => std::thread::yield_now(),
            told => return told?.to_host(),
        }
    }
}
