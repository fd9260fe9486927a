//! Event ports: a timeline as a ring of events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use syncline_core::backend::kit::{Mutex, MutexGuard};
use syncline_core::backend::{Attachment, ByEngine, Port, SharedPort};
use syncline_core::{Error, Result, Timeline, error::Object};

use crate::device::context::Context;
use crate::device::event::{Events, Mark};
use crate::device::open::Device;
use crate::timeline::ring::{Entry, NO_STREAM, Reached, Ring};

/// The ring length at which a signal polls for completed entries.
///
/// Rarely reached: queues poll their own positions now and then, and each ring drops entries that
/// are known to be complete at its later signals.
const TRIM: usize = 256;

/// The longest run of consecutive entries without an event of their own.
///
/// Each of them is polled separately.
const MAX_RUN: u32 = 4;

/// The number of signals between two removals of entries that are known to be reached.
const LOOK_INTERVAL: u32 = 8;

/// The port of a timeline that CUDA events signal: a ring of pending values in rising order.
///
/// Each value has the event that tells when it is reached. Values are reached in order (T3).
pub struct EventPort {
    context: Arc<Context>,
    /// The highest value known to be reached.
    ///
    /// Written only under the lock of the state. Never decreases.
    reached: AtomicU64,
    state: Mutex<RingState>,
    /// Keeps the device's events without timing.
    ///
    /// Marks are dropped under the lock of the state, where they must not destroy an event. The
    /// attachment's watch keeps the device, and with it the events with timing.
    _events: Events,
}

struct RingState {
    ring: Ring,
    /// Keeps the events of reached entries for reuse, because [`EventPort::begin`] is used.
    recycles: bool,
    /// The number of last entries without an event of their own.
    run: u32,
    /// The number of signals until the next removal of reached entries.
    until_look: u32,
    /// The ring length at which a signal polls.
    ///
    /// Twice the length after the last poll, and at least [`TRIM`].
    trim_at: usize,
}

impl Default for RingState {
    fn default() -> Self {
        Self {
            ring: Ring::default(),
            recycles: false,
            run: 0,
            until_look: LOOK_INTERVAL,
            trim_at: TRIM,
        }
    }
}

/// The events to wait for so that one value is reached.
pub(crate) type Marks = SmallVec<[Mark; 6]>;

/// What a stream waits for so that values are reached.
pub(crate) enum Awaited {
    /// Nothing but the stream itself.
    Nothing,
    /// One event of another stream.
    Event(Mark),
    /// Several events, or anything other than events.
    Several,
}

impl Awaited {
    #[inline]
    const fn mark(&self) -> Option<&Mark> {
        match self {
            Self::Event(mark) => Some(mark),
            _ => None,
        }
    }
}

impl RingState {
    /// The index of the first entry at or above `value`. Usually it is the last entry or the end.
    #[inline]
    fn at(&self, value: u64) -> usize {
        let length = self.ring.len();
        let below = |back: usize| {
            let at = length.checked_sub(back)?;
            Some(self.ring.get(at)?.value() < value)
        };
        match (below(1), below(2)) {
            (None | Some(true), _) => length,
            (_, None | Some(true)) => length - 1,
            _ => self.ring.through(value.saturating_sub(1)),
        }
    }

    /// The last entry up to index `at` whose event covers all earlier entries.
    fn at_or_before(&self, at: usize) -> Option<&Entry> {
        let mut entries = (0..=at).rev().filter_map(|at| self.ring.get(at));
        entries.find(|entry| entry.reached().covers_all_before())
    }

    /// An entry between `low` and `high` (both exclusive) whose event covers all earlier entries.
    ///
    /// It is the entry after `step` others or the middle one, whichever comes first, or an entry
    /// near it.
    fn between(&self, low: u64, high: u64, step: usize) -> Option<Entry> {
        let from = self.ring.through(low);
        let to = self.ring.through(high.saturating_sub(1));
        if from >= to {
            return None;
        }
        let middle = from.midpoint(to).min(from.saturating_add(step));
        let before = self
            .at_or_before(middle)
            .filter(|entry| entry.value() > low);
        let mut after = (middle..to).filter_map(|at| self.ring.get(at));
        let found = before.or_else(|| after.find(|entry| entry.reached().covers_all_before()));
        found.cloned()
    }

    /// The entry after `value`, if it has no event that covers all earlier entries.
    fn following(&self, value: u64) -> Option<Entry> {
        let entry = self.ring.get(self.ring.through(value))?;
        (!entry.reached().covers_all_before()).then(|| entry.clone())
    }

    /// Removes the first entries as long as `is_reached` returns true.
    #[inline]
    fn retire_while(&mut self, is_reached: impl FnMut(&Entry) -> bool) {
        self.ring.retire_while(self.recycles, is_reached);
    }
}

impl EventPort {
    pub(crate) fn new(context: &Arc<Context>, events: &Events, initial: u64) -> Self {
        Self {
            context: context.clone(),
            reached: AtomicU64::new(initial),
            state: Mutex::default(),
            _events: events.clone(),
        }
    }

    #[inline]
    fn state(&self) -> MutexGuard<'_, RingState> {
        self.state.lock()
    }

    /// The highest value known to be reached. Does not query the driver.
    #[inline]
    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    /// Adds a signal: `value` is reached, with all earlier values, when `mark` is complete.
    ///
    /// `domain` is the order domain of the stream that signals.
    #[inline]
    pub(crate) fn push(&self, value: u64, mark: Mark, domain: u64) {
        let mut state = self.state();
        state.run = 0;
        self.add(state, value, domain, Reached::With(mark));
    }

    /// Adds a signal before its event is recorded, and returns the event.
    ///
    /// The caller records the event next, in the stream of `domain`, or calls
    /// [`EventPort::withdraw`]. Used only for the timeline of a queue's own positions.
    ///
    /// # Errors
    /// A driver error.
    #[inline]
    pub(crate) fn begin(&self, value: u64, domain: u64, events: &Events) -> Result<Mark> {
        let mut state = self.state();
        state.recycles = true;
        let mark = match state.ring.unused() {
            Some(mark) => mark,
            None => {
                // Taking an event may call the driver, so unlock first.
                drop(state);
                let mark = events.take()?;
                state = self.state();
                mark
            }
        };
        state.run = 0;
        self.add(state, value, domain, Reached::With(mark.clone()));
        Ok(mark)
    }

    /// Removes the last signal, `value`, because its event was not recorded.
    #[cold]
    pub(crate) fn withdraw(&self, value: u64) {
        let mut state = self.state();
        if state.ring.last().is_some_and(|last| last.value() == value) {
            let taken = state.ring.pop();
            drop(state);
            drop(taken);
        }
    }

    /// Adds a signal without an event of its own.
    ///
    /// `value` is reached when every earlier value is reached and what the stream of `domain` has
    /// `waited` for is complete. That stream signals the earlier values too. Returns false if the
    /// next signal needs an event of its own.
    #[inline]
    pub(crate) fn push_without_event(&self, value: u64, waited: &Awaited, domain: u64) -> bool {
        if matches!(waited, Awaited::Several) {
            return false;
        }
        let mut state = self.state();
        if state.run >= MAX_RUN {
            return false;
        }
        state.run += 1;
        let mark = waited.mark().cloned();
        self.add(state, value, domain, Reached::After(mark));
        true
    }

    /// Raises `reached`. The caller holds the lock of the state.
    #[inline]
    fn note_reached(&self, value: u64) {
        if value > self.reached.load(Ordering::Relaxed) {
            self.reached.store(value, Ordering::Release);
        }
    }

    #[inline(always)]
    fn add(&self, mut state: MutexGuard<'_, RingState>, value: u64, domain: u64, reached: Reached) {
        state.ring.push(value, domain, reached);
        state.until_look -= 1;
        if state.until_look == 0 {
            self.retire_known(state);
        }
    }

    /// Removes entries that are known to be reached, and polls if the ring is still long.
    #[inline(never)]
    fn retire_known(&self, mut state: MutexGuard<'_, RingState>) {
        state.until_look = LOOK_INTERVAL;
        state.retire_while(|entry| {
            let is_reached = entry.reached().is_known_reached();
            if is_reached {
                self.note_reached(entry.value());
            }
            is_reached
        });
        let is_long = state.ring.len() >= state.trim_at;
        drop(state);
        if is_long {
            self.trim();
        }
    }

    #[cold]
    fn trim(&self) {
        // A later query of the value reports this error too.
        let _ = self.poll();
        let mut state = self.state();
        state.trim_at = TRIM.max(2 * state.ring.len());
    }

    /// Removes the entries at or below `low`, which is reached.
    #[inline]
    fn retire(&self, state: &mut RingState, low: u64) {
        self.note_reached(low);
        state.retire_while(|entry| {
            let reached = entry.value() <= low;
            // Other rings with this event need not query it.
            if let Some(mark) = entry.reached().mark().filter(|_| reached) {
                mark.note_done();
            }
            reached
        });
    }

    /// Polls further after `value`, which was the first entry, was reached.
    ///
    /// Returns the highest reached value.
    fn advance_from(&self, state: MutexGuard<'_, RingState>, value: u64) -> u64 {
        let more = state.ring.last().is_some_and(|last| last.value() > value);
        let (mut state, low) = if more {
            drop(state);
            let low = self.furthest(value);
            (self.state(), low)
        } else {
            (state, value)
        };
        self.retire(&mut state, low);
        self.reached.load(Ordering::Relaxed)
    }

    /// The highest reached value of the ring. `low` is reached.
    ///
    /// A failing query ends the search, because what is reached counts. The next poll fails again.
    ///
    /// The caller has [allowed](Context::allow_during_capture) queries.
    fn furthest(&self, mut low: u64) -> u64 {
        let is_reached = |entry: &Entry| entry.reached().is_reached_now().unwrap_or(false);
        let (last, end) = {
            let state = self.state();
            let end = state.ring.len();
            let last = end.checked_sub(1).and_then(|at| state.at_or_before(at));
            let beyond = state
                .ring
                .last()
                .map_or(0, |last| last.value().saturating_add(1));
            (last.cloned(), beyond)
        };
        let mut high = end;
        if let Some(last) = last.filter(|last| last.value() > low) {
            if is_reached(&last) {
                low = last.value();
            } else {
                high = last.value();
            }
        }
        // Usually only one or two more values are reached, so start with small steps.
        let mut step = 0;
        loop {
            let next = self.state().between(low, high, step);
            match next {
                Some(entry) if is_reached(&entry) => low = entry.value(),
                Some(entry) => high = entry.value(),
                None => break,
            }
            step = 2 * step + 1;
        }
        loop {
            let next = self.state().following(low);
            match next {
                Some(entry) if is_reached(&entry) => low = entry.value(),
                _ => return low,
            }
        }
    }

    /// What a stream of `domain` must wait for so that `value` is reached.
    ///
    /// After [`Awaited::Several`], use [`EventPort::add_awaited`]. There may be no entry at all
    /// then.
    #[inline]
    pub(crate) fn awaited(&self, value: u64, domain: u64) -> Awaited {
        if self.reached() >= value {
            return Awaited::Nothing;
        }
        let state = self.state();
        // Check again under the lock. A thread that found the value reached may have removed its
        // entry, and the next entry has another event.
        if self.reached() >= value {
            return Awaited::Nothing;
        }
        match state.ring.get(state.at(value)) {
            Some(entry) if entry.domain() == domain => Awaited::Nothing,
            Some(entry) => match entry.reached() {
                Reached::With(mark) if mark.is_known_done() => Awaited::Nothing,
                Reached::With(mark) => Awaited::Event(mark.clone()),
                Reached::After(_) => Awaited::Several,
            },
            None => Awaited::Several,
        }
    }

    /// Adds the events that a stream of `domain` must wait for so that `value` is reached.
    ///
    /// Adds nothing if the value is reached, or if that stream signals it.
    ///
    /// # Errors
    /// `unseen`, if the value was claimed and submitted without an event to wait for.
    #[inline]
    pub(crate) fn add_awaited(
        &self,
        value: u64,
        domain: u64,
        marks: &mut Marks,
        unseen: impl FnOnce() -> Error,
    ) -> Result<()> {
        if self.reached() >= value {
            return Ok(());
        }
        let state = self.state();
        // Check again under the lock, as in [`EventPort::awaited`].
        if self.reached() >= value {
            return Ok(());
        }
        let mut at = state.at(value);
        match state.ring.get(at) {
            Some(entry) if domain != NO_STREAM && entry.domain() == domain => {}
            Some(_) => {
                while let Some(entry) = state.ring.get(at) {
                    if let Some(mark) = entry.reached().mark()
                        && !mark.is_known_done()
                        && !marks.iter().any(|added| added.is(mark))
                    {
                        marks.push(mark.clone());
                    }
                    if entry.reached().covers_all_before() || at == 0 {
                        break;
                    }
                    at -= 1;
                }
            }
            None => return Err(unseen()),
        }
        Ok(())
    }
}

impl Device {
    /// A home port for a timeline, made of events.
    pub(crate) fn event_port(&self, initial: u64) -> Attachment {
        let port = EventPort::new(self.context(), self.plain_events(), initial);
        Attachment::new(self.id(), initial, port)
            .watched_by(self.watched())
            .with_max_value_difference(self.info().capabilities.max_value_difference)
    }

    /// A timeline whose home is an event port of this device.
    ///
    /// # Errors
    /// Same errors as [`Timeline::new`].
    pub(crate) fn event_timeline(&self, label: &str) -> Result<Timeline> {
        Timeline::new(label, 0, |initial| {
            Ok([self.event_port(initial)].into_iter().collect())
        })
    }
}

/// The error for a value of `timeline` that no event signals.
pub(crate) fn no_event(timeline: &Object, value: u64) -> Error {
    Error::unsupported(
        timeline,
        format!("be waited for at {value}"),
        "no event stands for the value",
    )
}

impl Port for EventPort {
    /// Makes one query if nothing has completed.
    ///
    /// Otherwise the number of queries grows with the logarithm of the number of completed signals.
    fn poll(&self) -> Result<Option<u64>> {
        let _mode = self.context.allow_during_capture();
        // Cloned because the query runs without the lock. The clone keeps the event from being
        // reused.
        let Some(first) = self.state().ring.first().cloned() else {
            return Ok(Some(self.reached()));
        };
        if !first.reached().is_reached_now()? {
            return Ok(Some(self.reached()));
        }
        Ok(Some(self.advance_from(self.state(), first.value())))
    }

    fn sees_submitted(&self, value: u64) -> Result<()> {
        let stands = {
            let state = self.state();
            let at = state.at(value);
            state
                .ring
                .get(at)
                .is_some_and(|entry| entry.value() == value)
        };
        if stands || self.reached() >= value {
            return Ok(());
        }
        Err(Error::unsupported(
            self.context.object(),
            format!("follow a submission to {value} that no event stands for"),
            "its timelines are made of events: submit a claim with the stream that signals it",
        ))
    }

    fn shared(&self) -> Option<&dyn SharedPort> {
        Some(self)
    }

    /// Raises `reached`. The engine knows the value, and later waits need no event.
    fn signal(&self, value: u64, by: ByEngine<'_>) -> Result<()> {
        by.check(self, self.context.object())?;
        let _state = self.state();
        self.note_reached(value);
        Ok(())
    }
}

impl SharedPort for EventPort {
    /// A signal may have found it without a poll of the engine.
    fn last_polled(&self) -> u64 {
        self.reached()
    }
}

impl std::fmt::Debug for EventPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let outstanding = self.state().ring.len();
        write!(
            f,
            "EventPort({} reached, {outstanding} outstanding)",
            self.reached()
        )
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test's")]

    use std::thread;

    use syncline_core::backend::{Device as _, Queue as _};
    use syncline_core::{QueueKind, Timeline};

    use super::*;
    use crate::driver::emulated::{device, finish, put, while_asked};
    use crate::queue::submission::Queue;

    fn queue_and_timeline() -> (Queue, Timeline) {
        let device = device();
        let queue = device.queue(QueueKind::Compute, "queue").unwrap();
        let timeline = device.timeline("timeline").unwrap();
        (queue, timeline)
    }

    fn signal(queue: &Queue, timeline: &Timeline, value: u64) {
        let signals = [timeline.signal_at(value)];
        queue.submit(&[], |_| Ok(()), &signals).unwrap();
    }

    /// The query runs without the lock.
    ///
    /// Other threads may remove the signal and add others before it returns.
    #[test]
    fn a_late_answer_is_not_taken_for_another_signal() {
        let (queue, timeline) = queue_and_timeline();
        signal(&queue, &timeline, 1);
        finish(&queue, 1);
        let (to, line) = (queue.clone(), timeline.clone());
        while_asked(move || {
            assert_eq!(line.value().unwrap(), 1);
            signal(&to, &line, 2);
        });
        assert_eq!(timeline.value().unwrap(), 1, "2 is outstanding");
        let (to, line) = (queue.clone(), timeline.clone());
        while_asked(move || {
            finish(&to, 2);
            assert_eq!(line.value().unwrap(), 2);
            signal(&to, &line, 3);
            finish(&to, 3);
        });
        assert_eq!(timeline.value().unwrap(), 2, "3 was not asked for");
        assert_eq!(timeline.value().unwrap(), 3);
    }

    /// The other ring was not polled and still has the event.
    #[test]
    fn an_event_in_another_ring_is_not_reused() {
        let (queue, timeline) = queue_and_timeline();
        let other = queue.device().timeline("other").unwrap();
        signal(&queue, &timeline, 1);
        finish(&queue, 1);
        assert!(queue.position().is_reached().unwrap());
        for value in 1..=3 {
            signal(&queue, &other, value);
        }
        assert_eq!(timeline.value().unwrap(), 1);
        assert_eq!(other.value().unwrap(), 0);
    }

    /// The events are reused, so the polling threads meet events that now belong to later signals.
    #[test]
    fn polls_during_signals_return_only_reached_values() {
        const SIGNALS: u64 = 5000;
        /// The most outstanding signals.
        const BEHIND: u64 = 3;
        let (queue, timeline) = queue_and_timeline();
        // Each signal is one event, at the position of its value.
        let (finished, submitted) = (AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let (mut before, mut looks) = (0, 0);
                    while before < SIGNALS {
                        let known = submitted.load(Ordering::SeqCst);
                        let known = known.min(finished.load(Ordering::SeqCst));
                        let value = timeline.value().unwrap();
                        assert!(
                            value >= known.max(before),
                            "{value} after {known}, {before}"
                        );
                        let put = put(&queue);
                        assert!(value <= put, "{value} of {put}");
                        before = value;
                        looks += 1;
                    }
                    assert!(looks > 0);
                });
            }
            scope.spawn(|| {
                let mut through = 0;
                while through < SIGNALS {
                    through = put(&queue).min(through + 1);
                    finish(&queue, through);
                    finished.store(through, Ordering::SeqCst);
                    thread::yield_now();
                }
            });
            for value in 1..=SIGNALS {
                signal(&queue, &timeline, value);
                submitted.store(value, Ordering::SeqCst);
                while finished.load(Ordering::SeqCst) + BEHIND < value {
                    thread::yield_now();
                }
            }
        });
    }

    /// In each round a thread polls a timeline while two queues signal it.
    ///
    /// The round ends with the drop of the timeline and of one queue. Later rounds can
    /// reuse the events.
    #[test]
    fn events_outlive_their_queues_and_timelines() {
        let device = device();
        let queue = device.queue(QueueKind::Compute, "queue").unwrap();
        for round in 1..=50 {
            let timeline = device.timeline("timeline").unwrap();
            let point = timeline.at(1).keep();
            let asking = thread::spawn(move || while !point.point().is_reached().unwrap() {});
            // A queue of the same device whose events return to the pool when it is dropped.
            let other = device.queue(QueueKind::Compute, "other").unwrap();
            signal(&other, &timeline, 1);
            signal(&queue, &timeline, 2);
            finish(&queue, round);
            finish(&other, 1);
            asking.join().unwrap();
        }
    }
}
