//! Publishing of values before they become visible in this process (P4).
//!
//! This process may exit right after it has reported a value. So before a value becomes visible
//! here, the thread that has seen it does the following:
//!
//! | timeline | step |
//! |---|---|
//! | with a page beside it | writes the value to the page |
//! | side of a bridge | signals the sides that other processes have |
//! | position of a queue | waits until the signals of the queue's submissions are published |

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

use super::extras::Extras;
use super::shared::Shared;
use super::standing::Standing;
use crate::base::error::Result;
use crate::base::run::{Wake, wake_all};
use crate::base::stage::Stage;
use crate::base::sync::{AtomicU64, Mutex, Ordering};

/// Publishes values of a timeline to other processes.
pub(crate) trait Publish: Wake {
    /// Publishes that `value` of `of` is reached.
    ///
    /// Called before the value is visible in this process, by several threads concurrently.
    fn publish_ahead(&self, of: &Shared, value: u64);
}

/// A bridge, as its sides use it. Woken when fewer values can still come.
pub(crate) trait Bridge: Wake {
    /// Notes that other processes have `side`.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if another side is published.
    fn publish(&self, side: &Shared) -> Result<()>;

    /// Signals `value` on the published side before it becomes visible on `side`.
    fn carry_ahead(self: Arc<Self>, side: &Shared, value: u64);

    /// All sides.
    fn sides(&self) -> Vec<Arc<Shared>>;
}

/// How values of a timeline come to other processes and to other sides of its bridge.
#[derive(Default)]
pub(crate) struct Publication {
    /// The bridge of which the timeline is a side. Set before other threads have the timeline.
    bridge: OnceLock<Weak<dyn Bridge>>,
    /// Publishes the values, if other processes have the timeline.
    publisher: OnceLock<Arc<dyn Publish>>,
    /// True if values must be published before they are visible here.
    ///
    /// Loom does not model it, because it is set once, before the accesses that depend on it.
    is_ahead: AtomicBool,
    /// On a queue's position: the signals that must be published before it is visible.
    unpublished: OnceLock<UnpublishedSignals>,
}

impl Publication {
    /// Makes the timeline a side of `bridge`.
    pub(crate) fn set_bridge(&self, bridge: Weak<dyn Bridge>) {
        let _ = self.bridge.set(bridge);
    }

    /// The bridge of which the timeline is a side, if any.
    fn bridge(&self) -> Option<Arc<dyn Bridge>> {
        self.bridge.get().and_then(Weak::upgrade)
    }

    /// Wakes the bridge.
    pub(super) fn wake_bridge(&self) {
        wake_all(self.bridge().map(|bridge| bridge as Arc<dyn Wake>));
    }

    /// Sets the publisher of `of`, which is woken when the last handle is dropped. The first one
    /// stays.
    ///
    /// `ahead` is true if other processes get values only from the publisher.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if another side of its bridge is
    /// published.
    pub(crate) fn keep_publisher(
        &self,
        of: &Shared,
        publisher: Arc<dyn Publish>,
        ahead: bool,
    ) -> Result<()> {
        if let Some(sides) = self.bridge() {
            sides.publish(of)?;
        }
        let _ = self.publisher.set(publisher);
        if ahead {
            self.start_ahead();
        }
        Ok(())
    }

    /// Wakes the publisher.
    pub(super) fn wake_publisher(&self) {
        let publisher = self.publisher.get().cloned();
        wake_all(publisher.map(|publisher| publisher as Arc<dyn Wake>));
    }

    /// True if other processes have the timeline or read its values from a page.
    pub(crate) fn is_published(&self) -> bool {
        self.publisher.get().is_some()
    }

    /// Notes that values must be published before they are visible here.
    pub(crate) fn start_ahead(&self) {
        self.is_ahead.store(true, Ordering::SeqCst);
    }

    /// True if a value must be published before it becomes visible here.
    #[inline]
    pub(super) fn is_ahead(&self) -> bool {
        self.is_ahead.load(Ordering::Acquire)
    }

    /// Publishes that `value` of `of` is reached. See [`Shared::publish_ahead`].
    #[cold]
    fn publish(&self, of: &Shared, value: u64) -> u64 {
        let unpublished = self.unpublished.get();
        let value = unpublished.map_or(value, |unpublished| unpublished.publish(value));
        if let Some(sides) = self.bridge() {
            sides.carry_ahead(of, value);
        }
        if let Some(publisher) = self.publisher.get() {
            publisher.publish_ahead(of, value);
        }
        value
    }
}

/// The signals of a queue's submissions that must be published, in submission order.
struct UnpublishedSignals {
    signals: Mutex<VecDeque<UnpublishedSignal>>,
    /// The highest position that a thread has polled before its signals were published.
    seen: AtomicU64,
    waker: Arc<PositionWaker>,
}

impl UnpublishedSignals {
    fn new(own: &Arc<Shared>) -> Self {
        Self {
            signals: Mutex::default(),
            seen: AtomicU64::new(0),
            waker: Arc::new(PositionWaker {
                own: Arc::downgrade(own),
                registered: Mutex::default(),
            }),
        }
    }

    /// The first signal of submissions up to `number`.
    fn first(&self, number: u64) -> Option<UnpublishedSignal> {
        let signals = self.signals.lock();
        let first = signals.front();
        first.filter(|first| first.number <= number).cloned()
    }

    fn forget(&self, published: &UnpublishedSignal) {
        let mut signals = self.signals.lock();
        if signals.front().is_some_and(|front| front.is(published)) {
            signals.pop_front();
        }
    }

    /// The highest position up to `number` for which all signals of the submissions are published.
    ///
    /// An entry stays until its signal is published. Otherwise another thread could report the
    /// position before that. If the result is below `number`, a waker on the first missing signal
    /// checks the position again. No other code checks it: the watching thread may have consumed
    /// the position's own signal, and a host queue reports its position only once.
    fn publish(&self, number: u64) -> u64 {
        let mut number = number;
        loop {
            // Another thread with a later position may rely on this one to register.
            number = number.max(self.seen.load(Ordering::SeqCst));
            let Some(first) = self.first(number) else {
                return number;
            };
            let of = first.of.upgrade();
            let Some(of) = of.filter(|of| !is_settled(of, first.value)) else {
                self.forget(&first);
                continue;
            };
            self.seen.fetch_max(number, Ordering::SeqCst);
            if self.waker.register(&of, first.value) {
                return first.number.saturating_sub(1);
            }
        }
    }
}

/// Polls `of`. True if `value` is reached or never will be.
fn is_settled(of: &Shared, value: u64) -> bool {
    of.refresh() >= value || !matches!(of.standing(value), Standing::Open | Standing::Pending)
}

/// Waker for the timeline whose signal delays a queue's position. Checks the position again.
struct PositionWaker {
    own: Weak<Shared>,
    /// Keeps the timeline with which this is registered alive.
    registered: Mutex<Option<Arc<Shared>>>,
}

impl PositionWaker {
    /// Registers for `value`, unless this is registered already.
    ///
    /// False if the value is reached or never will be.
    fn register(self: &Arc<Self>, of: &Arc<Shared>, value: u64) -> bool {
        {
            let mut registered = self.registered.lock();
            if registered.is_some() {
                return true;
            }
            *registered = Some(of.clone());
        }
        let is_registered = of.register(value, Stage::Reached, self.clone()).is_some();
        if !is_registered {
            self.end();
        }
        is_registered
    }

    fn end(&self) -> Option<Arc<Shared>> {
        self.registered.lock().take()
    }
}

impl Wake for PositionWaker {
    fn wake(self: Arc<Self>) {
        let kept = self.end();
        let own = self.own.upgrade();
        let unpublished = |own: &Arc<Shared>| {
            let unpublished = own.publication()?.unpublished.get()?;
            Some(unpublished.seen.load(Ordering::SeqCst))
        };
        if let Some(own) = &own
            && let Some(seen) = unpublished(own)
        {
            own.advance(seen);
        }
        drop((own, kept));
    }
}

/// A signal of a queue's submission.
#[derive(Clone)]
struct UnpublishedSignal {
    number: u64,
    of: Weak<Shared>,
    value: u64,
}

impl UnpublishedSignal {
    fn is(&self, other: &Self) -> bool {
        self.number == other.number && Weak::ptr_eq(&self.of, &other.of)
    }
}

impl Shared {
    /// How its values come to other processes and to other sides of its bridge, if they do.
    #[inline]
    pub(crate) fn publication(&self) -> Option<&Publication> {
        self.extras().map(Extras::publication)
    }

    /// The other sides of its bridge. Empty if it is a side of none.
    pub(crate) fn other_sides(&self) -> Vec<Arc<Self>> {
        let bridge = self.publication().and_then(Publication::bridge);
        let mut sides = bridge.map_or_else(Vec::new, |bridge| bridge.sides());
        sides.retain(|side| side.object() != self.object());
        sides
    }

    /// True if a value must be published before it becomes visible here.
    #[inline]
    pub(crate) fn publishes_ahead(&self) -> bool {
        self.publication().is_some_and(Publication::is_ahead)
    }

    /// Publishes that `value` is reached, if that must come before it is visible here.
    ///
    /// Call it before the value is visible in this process, with no lock held but `host_signal`.
    ///
    /// Returns the value that may become visible. For a queue's position, the result can differ
    /// from `value`:
    ///
    /// - It is lower while a signal up to `value` is yet to be published.
    /// - It is higher if another thread has seen a later position and its signals are published.
    #[inline]
    pub(super) fn publish_ahead(&self, value: u64) -> u64 {
        let ahead = self
            .publication()
            .filter(|publication| publication.is_ahead());
        ahead.map_or(value, |publication| publication.publish(self, value))
    }

    /// Notes, on a queue's position, that submission `number` signals `value` of `of`.
    ///
    /// Call it before the position can reach `number`.
    pub(crate) fn note_unpublished(self: &Arc<Self>, number: u64, of: &Arc<Self>, value: u64) {
        let publication = self.make_extras().publication();
        let unpublished = &publication.unpublished;
        let unpublished = unpublished.get_or_init(|| UnpublishedSignals::new(self));
        unpublished.signals.lock().push_back(UnpublishedSignal {
            number,
            of: Arc::downgrade(of),
            value,
        });
        publication.start_ahead();
    }
}
