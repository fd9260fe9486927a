//! Bridges: timelines of several devices without a common native object, joined by the host (X6).

use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::base::error::{Error, Failure, Object, Result};
use crate::base::process::MakerProcess;
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::port::attachment::{Attachment, Attachments};
use crate::timeline::state::{Bridge, Closing, Interval, Publication, Shared};
use crate::timeline::{self, Timeline};

/// The timelines on all sides of a bridge.
///
/// One thread at a time carries values. So all sides have one new value before a thread looks for
/// the next. A thread that finds a new value meanwhile only asks the carrying thread to repeat.
pub(crate) struct Sides {
    sides: SmallVec<[Side; 2]>,
    carrying: Mutex<Carrying>,
    /// The id of the side that other processes have; 0 for none.
    published: AtomicU64,
    /// True once no side has a handle.
    orphaned: AtomicBool,
    maker: MakerProcess,
}

struct Side {
    of: Arc<Shared>,
    /// Registered for the next value of this side.
    waker: Arc<SideWaker>,
    /// The last value that was signalled on this side before it was visible on its own side.
    ///
    /// The value's own side is the side that reached it first. Used only on a published side. See
    /// [`Sides::carry_ahead`].
    ahead: AtomicU64,
}

impl Side {
    fn ahead(&self) -> u64 {
        self.ahead.load(Ordering::SeqCst)
    }
}

#[derive(Clone, Copy)]
enum Carrying {
    /// No thread carries. All sides are at this value, apart from values that no thread has seen.
    Idle(u64),
    /// A thread carries. It must repeat if `again` is true.
    Busy { again: bool },
    /// One side has failed, so all have.
    Over,
}

/// The right to signal any side. When the last handle is dropped, all sides close together.
pub(crate) struct Joined(Arc<Sides>);

impl Drop for Joined {
    fn drop(&mut self) {
        // In a forked child, another thread of the parent may have held a lock at the fork (P3).
        if !self.0.maker.is_this() {
            return;
        }
        self.0.orphaned.store(true, Ordering::SeqCst);
        self.0.carry();
    }
}

impl timeline::JoinedSides for Joined {
    fn objects(&self) -> Vec<&Object> {
        self.0.sides.iter().map(|side| side.of.object()).collect()
    }
}

/// Waker for the next value of one side. It is reused, so that carrying a value does not allocate.
#[derive(Default)]
struct SideWaker {
    /// Keeps the bridge alive while this is registered, even without any handle.
    registered: Mutex<Option<Arc<Sides>>>,
}

impl SideWaker {
    /// Marks this as registered. False if it was already.
    fn begin(&self, sides: &Arc<Sides>) -> bool {
        let mut registered = self.registered.lock();
        let is_new = registered.is_none();
        registered.get_or_insert_with(|| sides.clone());
        is_new
    }

    fn end(&self) -> Option<Arc<Sides>> {
        self.registered.lock().take()
    }
}

impl Wake for SideWaker {
    fn wake(self: Arc<Self>) {
        if let Some(sides) = self.end() {
            sides.carry();
        }
    }
}

impl Wake for Sides {
    fn wake(self: Arc<Self>) {
        self.carry();
    }
}

impl Bridge for Sides {
    /// Notes that other processes have `of`. Each value is signalled there first.
    ///
    /// So only one side can be published.
    fn publish(&self, of: &Shared) -> Result<()> {
        let (id, order) = (of.object().id(), Ordering::SeqCst);
        let published = self.published.compare_exchange(0, id, order, order);
        if published.is_err_and(|other| other != id) {
            return Err(Error::unsupported(
                of.object(),
                "be published",
                "other processes have another side of its bridge",
            ));
        }
        let others = self.sides.iter().map(|side| &side.of);
        for other in others.filter(|other| !std::ptr::eq(&raw const ***other, of)) {
            other.make_extras().publication().start_ahead();
        }
        Ok(())
    }

    /// Signals `value` on the published side before it becomes visible on `from`.
    ///
    /// A value that this process reports must be valid in other processes even if this process
    /// dies. Does nothing unless all sides are at the same value. Otherwise [`Sides::carry`] fails
    /// the bridge.
    fn carry_ahead(self: Arc<Self>, from: &Shared, value: u64) {
        for to in &self.sides {
            let publication = to.of.publication();
            let is_published = publication.is_some_and(Publication::is_published);
            if !is_published || std::ptr::eq(&raw const *to.of, from) {
                continue;
            }
            let in_step = || {
                // If the published side has advanced by itself, the bridge fails.
                to.of.reached() == from.reached().max(to.ahead())
            };
            if to.of.reached() < value {
                let note = || to.ahead.store(value, Ordering::SeqCst);
                let signal = || to.of.signal_ahead(value, in_step, note);
                // A refused signal changes nothing, and `carry` finds the reason later.
                let _ = to.of.signal_observed(value, signal);
            }
        }
    }

    fn sides(&self) -> Vec<Arc<Shared>> {
        self.sides.iter().map(|side| side.of.clone()).collect()
    }
}

impl Sides {
    fn new(lines: &[Timeline], initial: u64, maker: MakerProcess) -> Self {
        let side = |line: &Timeline| Side {
            of: line.shared().clone(),
            waker: Arc::default(),
            ahead: AtomicU64::new(initial),
        };
        Self {
            sides: lines.iter().map(side).collect(),
            carrying: Mutex::new(Carrying::Idle(initial)),
            published: AtomicU64::new(0),
            orphaned: AtomicBool::new(false),
            maker,
        }
    }

    /// Carries values between the sides, or asks the thread that does so to repeat.
    ///
    /// Call it after a change of what a side has reached or can still reach.
    pub(crate) fn carry(self: &Arc<Self>) {
        let mut at = {
            let mut carrying = self.carrying.lock();
            match &mut *carrying {
                Carrying::Idle(at) => {
                    let at = *at;
                    *carrying = Carrying::Busy { again: false };
                    at
                }
                Carrying::Busy { again } => {
                    *again = true;
                    return;
                }
                Carrying::Over => return,
            }
        };
        loop {
            let carried = self.carry_from(at);
            let over = match carried {
                Ok(to) => {
                    at = to;
                    self.failure()
                }
                Err(error) => Some(error.into_cause()),
            };
            if let Some(cause) = over {
                *self.carrying.lock() = Carrying::Over;
                for side in &self.sides {
                    side.of.fail(cause.clone());
                }
                self.close();
                return;
            }
            self.close();
            self.register(at);
            let mut carrying = self.carrying.lock();
            match &mut *carrying {
                Carrying::Busy { again } if *again => *again = false,
                _ => {
                    *carrying = Carrying::Idle(at);
                    return;
                }
            }
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.sides.iter().find_map(|side| side.of.failure())
    }

    /// The reached value of `side` if it is above `before` and was not signalled ahead by another
    /// side.
    fn news(side: &Side, before: u64) -> Option<u64> {
        let reached = side.of.reached();
        (reached > before.max(side.ahead())).then_some(reached)
    }

    /// Brings all sides from `before` to what one of them has reached since. Returns their new
    /// value.
    ///
    /// # Errors
    /// Two sides have advanced independently.
    fn carry_from(&self, before: u64) -> Result<u64> {
        let mut sides = self.sides.iter();
        let news = |side| Some((side, Self::news(side, before)?));
        let Some((from, value)) = sides.find_map(news) else {
            return Ok(before);
        };
        for to in self.sides.iter().filter(|to| !std::ptr::eq(*to, from)) {
            // A signal by the driver of `to` must be seen before the host signals a higher value.
            let reached = to.of.refresh();
            if value <= to.ahead() {
                continue;
            }
            if reached > before.max(from.ahead()) {
                return Err(Error::SignalNotAboveReached {
                    timeline: to.of.object().clone(),
                    asked: value,
                    reached,
                });
            }
            match to
                .of
                .signal_observed(value, || to.of.signal_from_host(value))
            {
                Ok(()) => {}
                // The failure is handled next.
                Err(Error::Failed { .. }) if to.of.is_failed() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(value)
    }

    /// Registers with each side for its next value above `at`, if one can come.
    fn register(self: &Arc<Self>, at: u64) {
        for side in &self.sides {
            if !side.waker.begin(self) {
                continue;
            }
            // On a closed side only claimed values can come.
            let claimed = || {
                let claims = side.of.outstanding().into_iter();
                let first = |claim: Interval| (claim.upto > at).then(|| claim.above.max(at) + 1);
                claims.filter_map(first).min()
            };
            let registers = |value: u64| {
                let waker = side.waker.clone();
                let registered = side.of.register(value, Stage::Reached, waker);
                registered.is_some()
            };
            if registers(at.saturating_add(1))
                || (side.of.is_closed() && claimed().is_some_and(registers))
            {
                continue;
            }
            // The value came meanwhile, the side failed, or nothing can come.
            side.waker.end();
            if Self::news(side, at).is_some() || side.of.is_failed() {
                self.request_repeat();
            }
        }
    }

    /// Makes the carrying thread, which calls this, repeat.
    fn request_repeat(&self) {
        if let Carrying::Busy { again } = &mut *self.carrying.lock() {
            *again = true;
        }
    }

    /// Closes the sides once no handle is left, except for values that are claimed on any of them.
    ///
    /// There are no new claims, so these values become fewer with each call.
    fn close(&self) {
        if !self.orphaned.load(Ordering::SeqCst) {
            return;
        }
        let outstanding: Vec<_> = self
            .sides
            .iter()
            .map(|side| side.of.outstanding())
            .collect();
        let mut closing = SmallVec::<[Closing<'_>; 2]>::new();
        for (at, side) in self.sides.iter().enumerate() {
            let others = outstanding.iter().enumerate();
            let elsewhere = others.filter(|(other, _)| *other != at);
            let elsewhere = elsewhere.flat_map(|(_, claims)| claims).copied().collect();
            closing.push(side.of.close_to(elsewhere));
        }
        closing.into_iter().for_each(Closing::end);
    }
}

impl Timeline {
    /// Makes one timeline per attachment in `sides`, all at `initial`, and joins them by a bridge.
    ///
    /// A value that is reached on one side is signalled on all others by the host. So each device
    /// has a native object of its own to wait for and to signal.
    ///
    /// - Each side is a timeline of its own, and its [claims](crate::backend::Queue::submit) are
    ///   decided there. If another side signals the value before a signal, the submission must wait
    ///   for it, as when two sides take turns.
    /// - If two sides signal one value, or advance independently, all sides fail with
    ///   [`Error::SignalOverlapsClaim`] or [`Error::SignalNotAboveReached`].
    /// - If one side fails, all fail with the first cause.
    /// - A circle of held submissions that leads across a bridge is not found.
    /// - All sides close when the last handle of all of them is dropped, except for values that are
    ///   claimed by then.
    ///
    /// The thread that sees a value reached carries it: a thread that waits or queries, the
    /// device's watching thread, or the signalling thread on the host. It signals the other sides
    /// one after the other, so a slow driver delays it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for fewer than two sides. Same errors as [`Timeline::new`].
    pub fn bridged(
        label: &str,
        initial: u64,
        sides: impl IntoIterator<Item = Result<Attachment>>,
    ) -> Result<Vec<Self>> {
        Self::bridged_as(label, initial, sides, |_, _| Ok(()))
    }

    /// Same as [`Timeline::bridged`], but first calls `prepare` with each side and its index.
    ///
    /// The host carries no value before these calls. It may carry values right after them, if
    /// another process has signalled a side already. A handle that `prepare` keeps also keeps the
    /// bridge open.
    ///
    /// # Errors
    /// Same errors as [`Timeline::bridged`], and any error of `prepare`.
    #[doc(hidden)]
    pub fn bridged_as(
        label: &str,
        initial: u64,
        sides: impl IntoIterator<Item = Result<Attachment>>,
        mut prepare: impl FnMut(usize, &Self) -> Result<()>,
    ) -> Result<Vec<Self>> {
        let make = |home| Self::new(label, initial, |_| Ok(Attachments::from_iter([home?])));
        let made = sides.into_iter().map(make).collect::<Result<Vec<_>>>()?;
        if made.len() < 2 {
            return Err(Error::unsupported(
                Object::new("timeline", label),
                "be bridged",
                "a bridge has two sides, at least",
            ));
        }
        let sides = Arc::new(Sides::new(&made, initial, MakerProcess::this()));
        for side in &sides.sides {
            let bridge: Weak<dyn Bridge> = Arc::<Sides>::downgrade(&sides);
            side.of.make_extras().publication().set_bridge(bridge);
        }
        let joined: Arc<dyn timeline::JoinedSides> = Arc::new(Joined(sides.clone()));
        let made: Vec<_> = made.into_iter().map(|line| line.joined(&joined)).collect();
        for (at, side) in made.iter().enumerate() {
            prepare(at, side)?;
        }
        sides.carry();
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;
    use crate::api::Device as _;
    use crate::host;

    /// P3: a thread of the parent may have held a lock at the fork.
    #[test]
    fn the_last_handle_of_a_forked_copy_closes_nothing() {
        for (maker, closes) in [(MakerProcess::this(), true), (MakerProcess::NONE, false)] {
            let device = host::Device::new();
            let lines = ["one", "other"].map(|label| device.timeline(label).unwrap());
            let sides = Arc::new(Sides::new(&lines, 0, maker));
            drop(Joined(sides));
            assert!(lines.iter().all(|line| line.shared().is_closed() == closes));
        }
    }
}
