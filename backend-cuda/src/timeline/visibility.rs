//! Visibility of imported values to the host.
//!
//! The host may act on a value once the event behind its signal is complete.

use std::collections::VecDeque;

use syncline_core::Result;
use syncline_core::backend::kit::{Mutex, MutexGuard};

use crate::device::context::Context;
use crate::device::event::Mark;

/// The pending signals of this device on one imported timeline.
#[derive(Default)]
pub(crate) struct Visibility(Mutex<Signals>);

/// Signals in the order of their values.
#[derive(Default)]
struct Signals {
    entries: VecDeque<Signalled>,
    /// The highest value whose event is known to be complete.
    visible: u64,
    /// The length at which the next signal polls for completed ones.
    trim_at: usize,
}

/// A pending signal.
#[derive(Clone)]
struct Signalled {
    value: u64,
    /// The event behind the signal, which may not be recorded yet, and the domain of their stream.
    behind: Mark,
    stream: u64,
}

impl Signals {
    /// The number of first entries up to `reached` that belong to one stream.
    ///
    /// If the event of one of them is complete, those before it are complete too.
    fn in_one_stream(&self, reached: u64) -> usize {
        let first = self.entries.front().map(|entry| entry.stream);
        let same = |entry: &&Signalled| entry.value <= reached && Some(entry.stream) == first;
        self.entries.iter().take_while(same).count()
    }
}

/// The number of signals at which the next signal polls, as in event rings.
const TRIM: usize = 256;

impl Visibility {
    /// For a timeline at `initial`.
    pub(crate) fn from(initial: u64) -> Self {
        Self(Mutex::new(Signals {
            visible: initial,
            ..Signals::default()
        }))
    }

    /// The highest value whose event is complete.
    ///
    /// If only this device signals, it is the reached value.
    ///
    /// # Errors
    /// Same errors as [`Visibility::visible`].
    pub(crate) fn reached(&self, context: &Context) -> Result<u64> {
        self.visible(u64::MAX, context)?;
        Ok(self.signals().visible)
    }

    /// True if a signal above `reached`, the value of the counter, was announced.
    pub(crate) fn owes_above(&self, reached: u64) -> bool {
        let signals = self.signals();
        let mut entries = signals.entries.iter();
        entries.any(|entry| entry.value > reached && !entry.behind.is_known_done())
    }

    /// The number of signals in `stream` that were announced and are not known to be complete.
    pub(crate) fn outstanding_in(&self, stream: u64) -> usize {
        let signals = self.signals();
        let entries = signals.entries.iter();
        entries.filter(|entry| entry.stream == stream).count()
    }

    /// True if a signal of `value` was announced, or the value is reached.
    pub(crate) fn knows(&self, value: u64) -> bool {
        let signals = self.signals();
        signals.visible >= value || signals.entries.iter().any(|entry| entry.value == value)
    }

    #[inline]
    fn signals(&self) -> MutexGuard<'_, Signals> {
        self.0.lock()
    }

    /// Announces a signal of `value` in `stream`, with the event `behind` it.
    ///
    /// From now on the counter may show the value. Returns true if the caller should
    /// [`trim`](Visibility::trim).
    pub(crate) fn announce(&self, value: u64, behind: Mark, stream: u64) -> bool {
        let mut signals = self.signals();
        // Events that are known to be complete cost no query.
        while let Some(front) = signals.entries.front()
            && front.behind.is_known_done()
        {
            signals.visible = signals.visible.max(front.value);
            signals.entries.pop_front();
        }
        signals.entries.push_back(Signalled {
            value,
            behind,
            stream,
        });
        signals.entries.len() >= signals.trim_at.max(TRIM)
    }

    /// Removes an announced signal that was not made.
    #[cold]
    pub(crate) fn withdraw(&self, value: u64) {
        let mut signals = self.signals();
        let at = signals
            .entries
            .partition_point(|earlier| earlier.value < value);
        let there = signals.entries.get(at);
        if there.is_some_and(|entry| entry.value == value) {
            let withdrawn = signals.entries.remove(at);
            drop(signals);
            drop(withdrawn);
        }
    }

    /// Removes completed signals.
    #[cold]
    pub(crate) fn trim(&self, context: &Context) {
        // A later query of the value reports this error too.
        let _ = self.visible(u64::MAX, context);
        let mut signals = self.signals();
        signals.trim_at = 2 * signals.entries.len();
    }

    /// The highest value up to `reached` that the host may act on.
    ///
    /// The counter runs ahead of what the host sees of this device's writes to host memory. On an
    /// H200 an external semaphore does so by enough to read old data about once in a few hundred
    /// times. A completed event does not, so a value counts once the event behind its signal is
    /// complete.
    ///
    /// # Errors
    /// A driver error, including a lost device.
    pub(crate) fn visible(&self, reached: u64, context: &Context) -> Result<u64> {
        // Among the entries of one stream, query the first, then the last, then bisect.
        let (mut first, mut within) = (true, 1);
        loop {
            let asked = {
                let signals = self.signals();
                match signals.entries.front() {
                    Some(front) if front.value <= reached => {}
                    _ => return Ok(reached),
                }
                let last = signals.in_one_stream(reached).min(within).checked_sub(1);
                last.and_then(|last| Some((last, signals.entries.get(last).cloned()?)))
            };
            let done = match &asked {
                Some((_, entry)) => {
                    // The query runs without the lock.
                    let _mode = context.allow_during_capture();
                    entry.behind.is_done()?
                }
                None => false,
            };
            let mut signals = self.signals();
            match asked {
                Some((_, entry)) if done => {
                    signals.visible = signals.visible.max(entry.value);
                    let through = |earlier: &Signalled| earlier.value <= entry.value;
                    let count = signals.entries.partition_point(through);
                    for passed in signals.entries.drain(..count) {
                        // Event rings that also have it need not query it.
                        passed.behind.note_done();
                    }
                    within = if first {
                        usize::MAX
                    } else {
                        within.div_ceil(2)
                    };
                    first = false;
                }
                Some((last, _)) if last > 0 => within = last.div_ceil(2),
                _ => return Ok(signals.visible),
            }
        }
    }
}
