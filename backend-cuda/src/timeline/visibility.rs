//! What the host may act on of values that a counter shows: each counts once the event behind its signal is complete.

use std::collections::VecDeque;

use syncline_core::Result;
use syncline_core::backend::{Mutex, MutexGuard};

use crate::device::context::Context;
use crate::device::event::Mark;

/// The signals that this device has made of one imported timeline, or is making.
#[derive(Default)]
pub(crate) struct Visibility(Mutex<Signals>);

/// Values in rising order.
#[derive(Default)]
struct Signals {
    entries: VecDeque<Signalled>,
    /// The highest of the values that have left the ring, their events being complete.
    visible: u64,
    /// The length at which the next signal looks for completed ones.
    trim_at: usize,
}

/// One of them.
#[derive(Clone)]
struct Signalled {
    value: u64,
    /// The event behind it, perhaps to be recorded yet, and the stream of both.
    behind: Mark,
    stream: u64,
}

impl Signals {
    /// How many of those up to `reached`, from the first on, stand in one stream: if one event of these is complete, so
    /// are those before it.
    fn in_one_stream(&self, reached: u64) -> usize {
        let first = self.entries.front().map(|entry| entry.stream);
        let same = |entry: &&Signalled| entry.value <= reached && Some(entry.stream) == first;
        self.entries.iter().take_while(same).count()
    }
}

/// Signals of which nobody asks are looked through when this many have come together, as in the rings of events.
const TRIM: usize = 256;

impl Visibility {
    /// For a timeline at `initial`.
    pub(crate) fn from(initial: u64) -> Self {
        Self(Mutex::new(Signals {
            visible: initial,
            ..Signals::default()
        }))
    }

    /// The highest of the values whose events are complete: what is reached, if nobody else signals the timeline.
    ///
    /// # Errors
    /// As for [`Shown::visible`].
    pub(crate) fn reached(&self, context: &Context) -> Result<u64> {
        self.visible(u64::MAX, context)?;
        Ok(self.signals().visible)
    }

    /// True if a signal has been announced that is not known to be made.
    pub(crate) fn owes(&self) -> bool {
        let signals = self.signals();
        signals
            .entries
            .iter()
            .any(|entry| !entry.behind.is_known_done())
    }

    /// True if a signal of `value` has been announced, or is reached.
    pub(crate) fn knows(&self, value: u64) -> bool {
        let signals = self.signals();
        signals.visible >= value || signals.entries.iter().any(|entry| entry.value == value)
    }

    #[inline]
    fn signals(&self) -> MutexGuard<'_, Signals> {
        self.0.lock()
    }

    /// A signal of `value` is about to be made in this stream, with an event behind it: the counter may show it from now
    /// on. True if it is time to [look](Shown::trim) for those that are complete.
    pub(crate) fn announce(&self, value: u64, behind: Mark, stream: u64) -> bool {
        let mut signals = self.signals();
        // What queues have found out about their own positions costs nothing to know.
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

    /// The announced signal was not made.
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

    /// Forgets those that are complete.
    #[cold]
    pub(crate) fn trim(&self, context: &Context) {
        // Whoever asks for the value next gets the error too.
        let _ = self.visible(u64::MAX, context);
        let mut signals = self.signals();
        signals.trim_at = 2 * signals.entries.len();
    }

    /// The counter, which others read, runs ahead of what the host sees of this device's writes to
    /// host memory (on an H200 an external semaphore's by enough to read old data once in some hundred times). An event that
    /// has completed does not, so a value counts once the event behind its signal has.
    ///
    /// # Errors
    /// A driver error, a lost device among them.
    pub(crate) fn visible(&self, reached: u64, context: &Context) -> Result<u64> {
        // Of those in one stream the first is asked, then the last, then how far it goes by halves.
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
                    // The driver is asked without the lock.
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
                        // Rings that have it need not ask.
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
