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
use std::sync::{Arc, Weak};

use super::shared::Shared;
use super::standing::Standing;
use crate::base::error::Result;
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::base::sync::{AtomicU64, Mutex, Ordering};

/// Publishes values of a timeline to other processes.
pub(crate) trait Publish: Wake {
    /// Publishes that `value` of `of` is reached.
    ///
    /// Called before the value is visible in this process, by several threads concurrently.
    fn publish_ahead(&self, of: &Shared, value: u64);
}

/// The signals of a queue's submissions that must be published, in submission order.
pub(super) struct UnpublishedSignals {
    signals: Mutex<VecDeque<UnpublishedSignal>>,
    /// The highest position that a thread has polled before its signals were published.
    seen: AtomicU64,
    waker: Arc<PositionWaker>,
}

impl UnpublishedSignals {
    fn new(own: &Arc<Shared>) -> Box<Self> {
        Box::new(Self {
            signals: Mutex::default(),
            seen: AtomicU64::new(0),
            waker: Arc::new(PositionWaker {
                own: Arc::downgrade(own),
                registered: Mutex::default(),
            }),
        })
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
        if let Some((own, unpublished)) = own
            .as_ref()
            .and_then(|own| Some((own, own.unpublished().get()?)))
        {
            own.advance(unpublished.seen.load(Ordering::SeqCst));
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
    /// Sets the publisher, which is woken when the last handle is dropped. The first one stays.
    ///
    /// `ahead` is true if other processes get values only from the publisher.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if another side of its bridge is
    /// published.
    pub(crate) fn keep_publisher(&self, publisher: Arc<dyn Publish>, ahead: bool) -> Result<()> {
        if let Some(sides) = self.bridge() {
            sides.publish(self)?;
        }
        self.set_publisher(publisher);
        if ahead {
            self.start_publishing_ahead();
        }
        Ok(())
    }

    /// True if other processes have the timeline or read its values from a page.
    pub(crate) fn is_published(&self) -> bool {
        self.publisher().is_some()
    }

    /// Publishes that `value` is reached.
    ///
    /// Call it before the value is visible in this process, with no lock held but `host_signal`.
    ///
    /// Returns the value that may become visible. For a queue's position, the result can differ
    /// from `value`:
    ///
    /// - It is lower while a signal up to `value` is yet to be published.
    /// - It is higher if another thread has seen a later position and its signals are published.
    #[cold]
    pub(super) fn publish_ahead(&self, value: u64) -> u64 {
        let value = self.publish_signals(value);
        if let Some(sides) = self.bridge() {
            sides.carry_ahead(self, value);
        }
        if let Some(publisher) = self.publisher() {
            publisher.publish_ahead(self, value);
        }
        value
    }

    /// Notes, on a queue's position, that submission `number` signals `value` of `of`.
    ///
    /// Call it before the position can reach `number`.
    pub(crate) fn note_unpublished(self: &Arc<Self>, number: u64, of: &Arc<Self>, value: u64) {
        let unpublished = self
            .unpublished()
            .get_or_init(|| UnpublishedSignals::new(self));
        unpublished.signals.lock().push_back(UnpublishedSignal {
            number,
            of: Arc::downgrade(of),
            value,
        });
        self.start_publishing_ahead();
    }

    /// The highest position up to `number` for which all signals of the submissions are published.
    ///
    /// An entry stays until its signal is published. Otherwise another thread could report the
    /// position before that. If the result is below `number`, a waker on the first missing signal
    /// checks the position again. No other code checks it: the watching thread may have consumed
    /// the position's own signal, and a host queue reports its position only once.
    fn publish_signals(&self, number: u64) -> u64 {
        let Some(unpublished) = self.unpublished().get() else {
            return number;
        };
        let mut number = number;
        loop {
            // Another thread with a later position may rely on this one to register.
            number = number.max(unpublished.seen.load(Ordering::SeqCst));
            let Some(first) = unpublished.first(number) else {
                return number;
            };
            let of = first.of.upgrade();
            let Some(of) = of.filter(|of| !of.is_settled(first.value)) else {
                unpublished.forget(&first);
                continue;
            };
            unpublished.seen.fetch_max(number, Ordering::SeqCst);
            if unpublished.waker.register(&of, first.value) {
                return first.number.saturating_sub(1);
            }
        }
    }

    /// Polls the timeline. True if `value` is reached or never will be.
    fn is_settled(&self, value: u64) -> bool {
        self.refresh() >= value
            || !matches!(self.standing(value), Standing::Open | Standing::Pending)
    }
}
