//! Timelines of several devices that nothing native joins, and what carries each signal on through the host (X6).

use std::sync::{Arc, Weak};

use smallvec::SmallVec;

use crate::base::error::{Error, Failure, Object, Result};
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::port::attachment::{Attachment, Attachments};
use crate::timeline::state::{Bridge, Closing, Interval, Shared};
use crate::timeline::{self, Timeline};

/// The timelines on both sides of a bridge, or on all.
///
/// One thread at a time carries, whichever has noticed something: so what one side reaches is on all others before anything else is looked
/// at. Whoever comes meanwhile leaves word, and goes on.
pub(crate) struct Sides {
    sides: SmallVec<[Side; 2]>,
    turn: Mutex<Turn>,
    /// The id of the side that other processes have; 0 for none.
    published: AtomicU64,
    /// The last handle of any of them has gone.
    orphaned: AtomicBool,
}

struct Side {
    of: Arc<Shared>,
    /// Who comes for what it reaches next.
    listener: Arc<Listener>,
    /// Of a side that other processes have: the last value that was signalled there [ahead](Sides::carry_ahead) of the side which brought it.
    ahead: AtomicU64,
}

impl Side {
    fn ahead(&self) -> u64 {
        self.ahead.load(Ordering::SeqCst)
    }
}

#[derive(Clone, Copy)]
enum Turn {
    /// Nobody carries. All sides are at this value, but for what nobody has noticed yet.
    At(u64),
    /// Somebody does, and has to look once more if there is word for him.
    Taken { again: bool },
    /// One side has failed, and so have all.
    Over,
}

/// The right to signal, of all sides together: with the last handle of any of them they close.
pub(crate) struct Joined(Arc<Sides>);

impl Drop for Joined {
    fn drop(&mut self) {
        if self.0.sides.iter().any(|side| side.of.is_forked()) {
            return;
        }
        self.0.orphaned.store(true, Ordering::SeqCst);
        self.0.carry();
    }
}

impl timeline::Joined for Joined {
    fn objects(&self) -> Vec<&Object> {
        self.0.sides.iter().map(|side| &side.of.object).collect()
    }
}

/// Registered with one side, for what it reaches next: again and again, so that what is carried allocates nothing.
#[derive(Default)]
struct Listener {
    /// While it is registered, it keeps the bridge, which may have no handle any more.
    registered: Mutex<Option<Arc<Sides>>>,
}

impl Listener {
    /// Whether that is news.
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

impl Wake for Listener {
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
    /// The other sides tell `of` of each value first from now on. So there can be only one such side.
    fn publish(&self, of: &Shared) -> Result<()> {
        let (id, order) = (of.object.id(), Ordering::SeqCst);
        let published = self.published.compare_exchange(0, id, order, order);
        if published.is_err_and(|other| other != id) {
            return Err(Error::Unsupported {
                object: of.object.clone(),
                asked: "be published".into(),
                reason: "other processes have another side of its bridge".into(),
            });
        }
        let others = self.sides.iter().map(|side| &side.of);
        for other in others.filter(|other| !std::ptr::eq(&raw const ***other, of)) {
            other.start_telling_ahead();
        }
        Ok(())
    }

    /// Signals `value` on the sides that other processes have, because what this process reports must
    /// hold there even if this process dies. Does so only while all sides are at the same value.
    /// Otherwise [`Sides::carry`] fails the bridge.
    fn carry_ahead(self: Arc<Self>, from: &Shared, value: u64) {
        for to in &self.sides {
            if !to.of.is_published() || std::ptr::eq(&raw const *to.of, from) {
                continue;
            }
            let in_step = || {
                // Otherwise it has gone on by itself, and the bridge fails.
                to.of.reached() == from.reached().max(to.ahead())
            };
            if to.of.reached() < value {
                let note = || to.ahead.store(value, Ordering::SeqCst);
                to.of.signal_ahead(value, in_step, note);
            }
        }
    }
}

impl Sides {
    /// Carries on what there is, unless somebody does: then he looks once more. To be called after whatever changes what
    /// a side has reached, or what may still come there.
    pub(crate) fn carry(self: &Arc<Self>) {
        let mut at = {
            let mut turn = self.turn.lock();
            match &mut *turn {
                Turn::At(at) => {
                    let at = *at;
                    *turn = Turn::Taken { again: false };
                    at
                }
                Turn::Taken { again } => {
                    *again = true;
                    return;
                }
                Turn::Over => return,
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
                *self.turn.lock() = Turn::Over;
                for side in &self.sides {
                    side.of.fail(cause.clone());
                }
                self.close();
                return;
            }
            self.close();
            self.listen(at);
            let mut turn = self.turn.lock();
            match &mut *turn {
                Turn::Taken { again } if *again => *again = false,
                _ => {
                    *turn = Turn::At(at);
                    return;
                }
            }
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.sides.iter().find_map(|side| side.of.failure())
    }

    /// What `side` has reached by itself, if that is above `before`: a value that was signalled there ahead is news of the side that brought it.
    fn news(side: &Side, before: u64) -> Option<u64> {
        let reached = side.of.reached();
        (reached > before.max(side.ahead())).then_some(reached)
    }

    /// Brings all sides, which were at `before`, to what one of them has reached since. Where they are then.
    ///
    /// # Errors
    /// Two sides have gone on without each other.
    fn carry_from(&self, before: u64) -> Result<u64> {
        let mut sides = self.sides.iter();
        let news = |side| Some((side, Self::news(side, before)?));
        let Some((from, value)) = sides.find_map(news) else {
            return Ok(before);
        };
        for to in self.sides.iter().filter(|to| !std::ptr::eq(*to, from)) {
            // What its driver has signalled meanwhile shows before it is hidden.
            let reached = to.of.refresh();
            if value <= to.ahead() {
                continue;
            }
            if reached > before.max(from.ahead()) {
                return Err(Error::SignalNotAboveReached {
                    timeline: to.of.object.clone(),
                    asked: value,
                    reached,
                });
            }
            match to.of.signal_from_host(value) {
                Ok(()) => {}
                // That is told of next.
                Err(Error::Failed { .. }) if to.of.is_failed() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(value)
    }

    /// Registers with each side for what comes there next above `at`, if anything may.
    fn listen(self: &Arc<Self>, at: u64) {
        for side in &self.sides {
            if !side.listener.begin(self) {
                continue;
            }
            // Once it is closed, a value that nobody has claimed does not come, but one above it may.
            let claimed = || {
                let claims = side.of.outstanding().into_iter();
                let first = |claim: Interval| (claim.upto > at).then(|| claim.above.max(at) + 1);
                claims.filter_map(first).min()
            };
            let registers = |value: u64| {
                let listener = side.listener.clone();
                let registered = side.of.register(value, Stage::Reached, listener);
                registered.is_some()
            };
            if registers(at.saturating_add(1))
                || (side.of.is_closed() && claimed().is_some_and(registers))
            {
                continue;
            }
            // It has come meanwhile, or has failed, or nothing comes any more.
            side.listener.end();
            if Self::news(side, at).is_some() || side.of.is_failed() {
                self.look_again();
            }
        }
    }

    /// To be called by who has the turn.
    fn look_again(&self) {
        if let Turn::Taken { again } = &mut *self.turn.lock() {
            *again = true;
        }
    }

    /// Once no handle is left, closes each side to all but what was claimed on it or on another. Nothing is claimed any
    /// more, so it becomes less each time.
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
    /// A timeline over each of `sides`, counters that stand at `initial`: what is signalled on one is signalled on all others, by the host,
    /// once it is reached. So each device has a native object of its own, to wait for and to signal, whatever the others have.
    ///
    /// Each side is a timeline by itself, and its [claims](crate::backend::Queue::submit) are decided there. So a submission that
    /// signals has to wait for the value before its own, where another side signals that, as it would for two that take turns. If two
    /// sides signal one value, or one goes on without the other, all sides fail with what stood in the way: [`Error::SignalOverlapsClaim`] or
    /// [`Error::SignalNotAboveReached`]. A failure of one side is one of all, with the first cause. A circle of held submissions that leads over a
    /// bridge is not found: each side knows of its own claims.
    ///
    /// The right to signal is one, too: all close with the last handle of any of them, to all but what was claimed by then.
    ///
    /// A signal is carried on by whoever notices it: a thread that waits or asks, the watching thread of the device, or, on the host,
    /// the signaller. It takes a signal of the host on each other side, one after the other: a side whose driver is slow holds up that thread.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for less than two sides; those of [`Timeline::new`].
    pub fn bridged(
        label: &str,
        initial: u64,
        sides: impl IntoIterator<Item = Result<Attachment>>,
    ) -> Result<Vec<Self>> {
        Self::bridged_as(label, initial, sides, |_, _| Ok(()))
    }

    /// As [`Timeline::bridged`], and shows each side, with its place, to `prepare` before anything is carried: carrying may begin at once where
    /// others signal a side already.
    ///
    /// What `prepare` keeps of a side is a handle like those that are returned: the bridge closes with the last of all handles.
    ///
    /// # Errors
    /// Those of [`Timeline::bridged`]; what `prepare` returns.
    pub fn bridged_as(
        label: &str,
        initial: u64,
        sides: impl IntoIterator<Item = Result<Attachment>>,
        mut prepare: impl FnMut(usize, &Self) -> Result<()>,
    ) -> Result<Vec<Self>> {
        let make = |home| Self::new(label, initial, |_| Ok(Attachments::from_iter([home?])));
        let made = sides.into_iter().map(make).collect::<Result<Vec<_>>>()?;
        if made.len() < 2 {
            return Err(Error::Unsupported {
                object: Object::new("timeline", label),
                asked: "be bridged".into(),
                reason: "a bridge has two sides, at least".into(),
            });
        }
        let side = |line: &Self| Side {
            of: line.shared().clone(),
            listener: Arc::default(),
            ahead: AtomicU64::new(initial),
        };
        let sides = Arc::new(Sides {
            sides: made.iter().map(side).collect(),
            turn: Mutex::new(Turn::At(initial)),
            published: AtomicU64::new(0),
            orphaned: AtomicBool::new(false),
        });
        for side in &sides.sides {
            let bridge: Weak<dyn Bridge> = Arc::<Sides>::downgrade(&sides);
            side.of.set_bridge(bridge);
        }
        let joined: Arc<dyn timeline::Joined> = Arc::new(Joined(sides.clone()));
        let made: Vec<_> = made.into_iter().map(|line| line.joined(&joined)).collect();
        for (at, side) in made.iter().enumerate() {
            prepare(at, side)?;
        }
        sides.carry();
        Ok(made)
    }
}
