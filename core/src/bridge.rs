//! Timelines of several devices that nothing native joins, and relays that carry each signal on through the host (X6).

use std::sync::Arc;

use smallvec::SmallVec;

use crate::error::{Error, Failure, Object, Result};
use crate::run::Wake;
use crate::state::{Closing, Shared};
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::timeline::{Attachment, Attachments, Timeline};
use crate::waiters::Stage;

/// The timelines on both sides of a bridge, or on all.
pub(crate) struct Sides {
    sides: SmallVec<[Side; 2]>,
    /// The last handle of any of them has gone.
    orphaned: AtomicBool,
    closing: Mutex<()>,
}

struct Side {
    of: Arc<Shared>,
    /// The highest value that a relay has brought, or is bringing, from another side.
    brought: AtomicU64,
}

/// The right to signal, of all sides together: with the last handle of any of them they close.
pub(crate) struct Joined(Arc<Sides>);

impl Drop for Joined {
    fn drop(&mut self) {
        self.0.orphaned.store(true, Ordering::SeqCst);
        self.0.close();
    }
}

impl Joined {
    /// The names of all sides.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Object> {
        self.0.sides.iter().map(|side| &side.of.object)
    }
}

impl Sides {
    /// Once no handle is left, closes each side to all but what was claimed on it or on another. To be called after each change of that: nothing
    /// is claimed any more, so it becomes less each time.
    pub(crate) fn close(&self) {
        if !self.orphaned.load(Ordering::SeqCst) {
            return;
        }
        // One after the other, so that the last to look is the last to tell.
        let closing = self.closing.lock();
        let outstanding: Vec<_> = self
            .sides
            .iter()
            .map(|side| side.of.outstanding())
            .collect();
        let mut ends = SmallVec::<[Closing<'_>; 2]>::new();
        for (at, side) in self.sides.iter().enumerate() {
            let others = outstanding.iter().enumerate();
            let elsewhere = others.filter(|(other, _)| *other != at);
            let elsewhere = elsewhere.flat_map(|(_, claims)| claims).copied().collect();
            ends.push(side.of.close_to(elsewhere));
        }
        drop(closing);
        // Whoever is woken may come here again.
        ends.into_iter().for_each(Closing::end);
    }

    fn fail(&self, cause: &Failure) {
        for side in &self.sides {
            side.of.fail(cause.clone());
        }
    }
}

/// Carries on what one side reaches: registered there, for the next value, as long as one can come.
struct Relay {
    sides: Arc<Sides>,
    from: usize,
    /// What has been carried on, or needed not be.
    told: AtomicU64,
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.carry();
        self.sides.close();
    }
}

impl Relay {
    /// Carries on what there is. Only ever called by one at a time: by whoever made the bridge, and then by who takes out the one
    /// registration that the last call has left.
    fn carry(self: &Arc<Self>) {
        let from = &self.sides.sides[self.from];
        loop {
            let (told, reached) = (self.told.load(Ordering::Relaxed), from.of.reached());
            if reached > told {
                self.told.store(reached, Ordering::Relaxed);
                // What has come from another side is not news to anybody.
                if reached > from.brought.load(Ordering::SeqCst)
                    && let Err(error) = self.bring(reached)
                {
                    self.sides.fail(&error.into_cause());
                    return;
                }
                continue;
            }
            if let Some(cause) = from.of.failure() {
                self.sides.fail(&cause);
                return;
            }
            let next = told.saturating_add(1);
            if from
                .of
                .register(next, Stage::Reached, self.clone())
                .is_some()
            {
                return;
            }
            // It has come meanwhile, or has failed, or never will.
            if from.of.reached() == told && !from.of.is_failed() {
                return;
            }
        }
    }

    /// Signals `value` on every other side.
    fn bring(&self, value: u64) -> Result<()> {
        let sides = self.sides.sides.iter().enumerate();
        for (_, to) in sides.filter(|(at, _)| *at != self.from) {
            to.brought.fetch_max(value, Ordering::SeqCst);
            match to.of.signal_from_host(value) {
                Ok(()) => {}
                // Its own relay tells that.
                Err(Error::Failed { .. }) if to.of.is_failed() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Timeline {
    /// A timeline over each of `sides`, counters that stand at `initial`: what is signalled on one is signalled on all others, by the host, once it is reached.
    /// So each device has a native object of its own, to wait for and to signal, whatever the others have.
    ///
    /// Each side is a timeline by itself, and its [claims](crate::backend::Queue::submit) are decided there. So a submission that
    /// signals has to wait for the value before its own, where another side signals that, as it would for two that take turns. If two
    /// sides signal one value, or one overtakes another, all sides fail with what stood in the way: [`Error::SignalOverlapsClaim`] or
    /// [`Error::SignalNotAboveReached`]. A failure of one side is one of all, with the first cause.
    ///
    /// The right to signal is one, too: all close with the last handle of any of them, once what was claimed has come.
    ///
    /// A signal is carried on by whoever notices it: a thread that waits or asks, the watching thread of the device, or, on the host,
    /// the signaller. It takes a signal of the host on each other side.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for less than two sides; those of [`Timeline::new`].
    pub fn bridged(
        label: &str,
        initial: u64,
        sides: impl IntoIterator<Item = Result<Attachment>>,
    ) -> Result<Vec<Self>> {
        let made = sides
            .into_iter()
            .map(|home| Self::new(label, initial, |_| Ok(Attachments::from_iter([home?]))))
            .collect::<Result<Vec<_>>>()?;
        if made.len() < 2 {
            return Err(Error::Unsupported {
                object: Object::new("timeline", label),
                asked: "be bridged".into(),
                reason: "a bridge has two sides, at least".into(),
            });
        }
        let side = |line: &Self| Side {
            of: line.shared().clone(),
            brought: AtomicU64::new(initial),
        };
        let sides = Arc::new(Sides {
            sides: made.iter().map(side).collect(),
            orphaned: AtomicBool::new(false),
            closing: Mutex::new(()),
        });
        for side in &sides.sides {
            side.of.join(&sides);
        }
        for from in 0..made.len() {
            let told = AtomicU64::new(initial);
            let sides = sides.clone();
            Arc::new(Relay { sides, from, told }).carry();
        }
        let joined = Arc::new(Joined(sides));
        Ok(made.into_iter().map(|line| line.joined(&joined)).collect())
    }
}
