//! A timeline as a ring of events.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use syncline_core::backend::Port;
use syncline_core::{Error, Object, Result};

use crate::context::Context;
use crate::event::Mark;
use crate::lock;

/// Signals of which nobody asks are looked through when this many have come together.
const TRIM: usize = 64;

/// The signals of one timeline that are with the driver: values in rising order, each with the event
/// that tells when it is reached. They complete in that order (T3).
pub struct EventPort {
    context: Arc<Context>,
    /// The highest value known to be reached. Only written under the ring's lock; grows.
    reached: AtomicU64,
    ring: Mutex<Ring>,
}

#[derive(Default)]
struct Ring {
    entries: VecDeque<Entry>,
    /// The length at which the next signal looks for completed ones; twice what the last look left.
    trim_at: usize,
}

#[derive(Clone)]
struct Entry {
    value: u64,
    mark: Mark,
    /// The stream that signals it, if that is known to be still the same one.
    domain: Option<u64>,
}

impl Ring {
    /// How many entries lie at or below `value`.
    fn through(&self, value: u64) -> usize {
        self.entries.partition_point(|entry| entry.value <= value)
    }

    /// The entry in the middle of those above `low` and below `high`.
    fn between(&self, low: u64, high: u64) -> Option<Entry> {
        let from = self.through(low);
        let to = self.entries.partition_point(|entry| entry.value < high);
        (from < to)
            .then(|| self.entries.get(from.midpoint(to)).cloned())
            .flatten()
    }
}

impl EventPort {
    pub(crate) fn new(context: &Arc<Context>, initial: u64) -> Self {
        Self {
            context: context.clone(),
            reached: AtomicU64::new(initial),
            ring: Mutex::default(),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        lock(&self.ring)
    }

    fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Adds a signal: `value` is reached with `mark`, in the stream of `domain`, after every value before.
    pub(crate) fn push(&self, value: u64, mark: Mark, domain: Option<u64>) {
        let crowded = {
            let mut ring = self.ring();
            // What other timelines' queries have found out costs nothing to know.
            while let Some(front) = ring.entries.front().filter(|entry| entry.mark.known_done()) {
                self.reached.fetch_max(front.value, Ordering::AcqRel);
                ring.entries.pop_front();
            }
            ring.entries.push_back(Entry {
                value,
                mark,
                domain,
            });
            ring.entries.len() >= ring.trim_at.max(TRIM)
        };
        if crowded {
            // Whoever asks for the value next gets the error too.
            let _ = self.poll();
            let mut ring = self.ring();
            ring.trim_at = 2 * ring.entries.len();
        }
    }

    /// What a stream of `domain` must wait for so that `value` is reached: nothing if it is, or if
    /// that stream signals it itself.
    ///
    /// # Errors
    /// `unseen`, if the value was claimed and submitted without an event to wait for.
    pub(crate) fn awaited(
        &self,
        value: u64,
        domain: Option<u64>,
        unseen: impl FnOnce() -> Error,
    ) -> Result<Option<Mark>> {
        if self.reached() >= value {
            return Ok(None);
        }
        let ring = self.ring();
        match ring.entries.get(ring.through(value.saturating_sub(1))) {
            Some(entry) if entry.mark.known_done() => Ok(None),
            Some(entry) if domain.is_some() && entry.domain == domain => Ok(None),
            Some(entry) => Ok(Some(entry.mark.clone())),
            None if self.reached() >= value => Ok(None),
            None => Err(unseen()),
        }
    }
}

/// The error for a value of `timeline` that cannot be waited for.
pub(crate) fn no_event(timeline: &Object, value: u64) -> Error {
    Error::Unsupported {
        object: timeline.clone(),
        asked: format!("be waited for at {value}"),
        reason: "no event stands for the value".into(),
    }
}

impl Port for EventPort {
    /// At most one query where nothing has happened; the logarithm of what is outstanding otherwise.
    fn poll(&self) -> Result<Option<u64>> {
        let (front, back) = {
            let ring = self.ring();
            match (ring.entries.front(), ring.entries.back()) {
                (Some(front), Some(back)) => (front.clone(), back.clone()),
                _ => return Ok(Some(self.reached())),
            }
        };
        // The driver is asked without the lock.
        let _mode = self.context.allow_during_capture();
        if !front.mark.is_done()? {
            return Ok(Some(self.reached()));
        }
        let (mut low, mut high) = (front.value, back.value);
        if low < high && back.mark.is_done()? {
            low = high;
        }
        while low < high {
            let middle = self.ring().between(low, high);
            match middle {
                Some(entry) if entry.mark.is_done()? => low = entry.value,
                Some(entry) => high = entry.value,
                None => break,
            }
        }
        let mut ring = self.ring();
        let done = ring.through(low);
        ring.entries.drain(..done);
        self.reached.fetch_max(low, Ordering::AcqRel);
        Ok(Some(self.reached()))
    }

    fn sees_submitted(&self, value: u64) -> Result<()> {
        let stands = {
            let ring = self.ring();
            let at = ring.through(value.saturating_sub(1));
            ring.entries
                .get(at)
                .is_some_and(|entry| entry.value == value)
        };
        if stands || self.reached() >= value {
            return Ok(());
        }
        Err(Error::Unsupported {
            object: self.context.object().clone(),
            asked: format!("follow a submission to {value} that no event stands for"),
            reason: "its timelines are made of events; submit claims with Device::submit_claimed"
                .into(),
        })
    }

    /// The engine knows the value from the call itself; queues that wait for it later need nothing.
    fn signal(&self, value: u64) -> Result<()> {
        let _ring = self.ring();
        self.reached.fetch_max(value, Ordering::AcqRel);
        Ok(())
    }
}

impl std::fmt::Debug for EventPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let outstanding = self.ring().entries.len();
        write!(
            f,
            "EventPort({} reached, {outstanding} outstanding)",
            self.reached()
        )
    }
}
