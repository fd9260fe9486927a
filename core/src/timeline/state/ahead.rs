//! What other processes are told before a value shows in this process (P4): a process may end right after it has reported a value.
//!
//! - A timeline with a page beside it writes the value to the page first.
//! - A side of a bridge signals the sides that other processes have first.
//! - The position of a queue waits until the signals of the queue's submissions have done so.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::{Shared, Standing};
use crate::base::error::Result;
use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::base::sync::{AtomicU64, Mutex, Ordering};

/// Tells other processes of a timeline.
pub(crate) trait Tell: Wake {
    /// Tells them that `value` of `of` is reached. Called before the value shows in this process, by several threads at once.
    fn tell_ahead(&self, of: &Shared, value: u64);

    /// True in a process that was forked from the one that tells: it has nothing to tell.
    fn is_forked(&self) -> bool;
}

/// The signals of a queue's submissions that other processes are told of, in the order of the submissions.
pub(super) struct Owed {
    signals: Mutex<VecDeque<Signalled>>,
    /// The highest position that the driver has shown before the signals up to it were told.
    seen: AtomicU64,
    listener: Arc<Listener>,
}

impl Owed {
    fn new(own: &Arc<Shared>) -> Box<Self> {
        Box::new(Self {
            signals: Mutex::default(),
            seen: AtomicU64::new(0),
            listener: Arc::new(Listener {
                own: Arc::downgrade(own),
                registered: Mutex::default(),
            }),
        })
    }

    /// The first signal of submissions up to `number`.
    fn first(&self, number: u64) -> Option<Signalled> {
        let signals = self.signals.lock();
        let first = signals.front();
        first.filter(|first| first.number <= number).cloned()
    }

    fn forget(&self, told: &Signalled) {
        let mut signals = self.signals.lock();
        if signals.front().is_some_and(|front| front.is(told)) {
            signals.pop_front();
        }
    }
}

/// Registered with the timeline whose signal keeps the position of a queue from showing: looks at the position again.
struct Listener {
    own: Weak<Shared>,
    /// The timeline stays while this is registered with it.
    registered: Mutex<Option<Arc<Shared>>>,
}

impl Listener {
    /// Registers for `value`, unless it is registered already. False if the value has come, or never will.
    fn listen(self: &Arc<Self>, of: &Arc<Shared>, value: u64) -> bool {
        {
            let mut registered = self.registered.lock();
            if registered.is_some() {
                return true;
            }
            *registered = Some(of.clone());
        }
        let listens = of.register(value, Stage::Reached, self.clone()).is_some();
        if !listens {
            self.end();
        }
        listens
    }

    fn end(&self) -> Option<Arc<Shared>> {
        self.registered.lock().take()
    }
}

impl Wake for Listener {
    fn wake(self: Arc<Self>) {
        let kept = self.end();
        let own = self.own.upgrade();
        if let Some((own, owed)) = own.as_ref().and_then(|own| Some((own, own.owed.get()?))) {
            own.advance(owed.seen.load(Ordering::SeqCst));
        }
        drop((own, kept));
    }
}

/// A signal of a queue's submission.
#[derive(Clone)]
struct Signalled {
    number: u64,
    of: Weak<Shared>,
    value: u64,
}

impl Signalled {
    fn is(&self, other: &Self) -> bool {
        self.number == other.number && Weak::ptr_eq(&self.of, &other.of)
    }
}

impl Shared {
    /// Keeps `publisher`, which also hears when the last handle has gone. The first one stays. `ahead`: other processes learn values from it alone.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if another side of its bridge is published.
    pub(crate) fn keep_publisher(&self, publisher: Arc<dyn Tell>, ahead: bool) -> Result<()> {
        if let Some(sides) = self.bridge.get().and_then(Weak::upgrade) {
            sides.publish(self)?;
        }
        let _ = self.publisher.set(publisher);
        if ahead {
            self.tell_ahead_from_now_on();
        }
        Ok(())
    }

    /// True if other processes have it, or are told of it by a page.
    pub(crate) fn is_published(&self) -> bool {
        self.publisher.get().is_some()
    }

    /// True if other processes are told of it by the process that this one was forked from.
    pub(crate) fn is_forked(&self) -> bool {
        let publisher = self.publisher.get();
        publisher.is_some_and(|publisher| publisher.is_forked())
    }

    pub(crate) fn tell_ahead_from_now_on(&self) {
        self.tells_ahead.store(true, Ordering::SeqCst);
    }

    /// True if other processes are told of a value before it shows here.
    #[inline]
    pub(crate) fn tells_ahead(&self) -> bool {
        self.tells_ahead.load(Ordering::Acquire)
    }

    /// Tells other processes that `value` is reached. To be called before it shows in this process, without a lock.
    ///
    /// Returns the value that may show. For the position of a queue it may be lower, while a signal up to `value` is
    /// yet to be told. It may be higher, if another thread has seen a later position meanwhile.
    #[cold]
    pub(super) fn tell_ahead(&self, value: u64) -> u64 {
        let value = self.settle_owed(value);
        if let Some(sides) = self.bridge.get().and_then(Weak::upgrade) {
            sides.carry_ahead(self, value);
        }
        if let Some(publisher) = self.publisher.get() {
            publisher.tell_ahead(self, value);
        }
        value
    }

    /// For the position of a queue: the submission `number` signals `value` of `of`. To be called before the position can get to `number`.
    pub(crate) fn owe(self: &Arc<Self>, number: u64, of: &Arc<Self>, value: u64) {
        let owed = self.owed.get_or_init(|| Owed::new(self));
        owed.signals.lock().push_back(Signalled {
            number,
            of: Arc::downgrade(of),
            value,
        });
        self.tell_ahead_from_now_on();
    }

    /// The highest position up to `number` for which all signals of the submissions are told. An entry stays until that
    /// is done, so that another thread does not report the position before.
    ///
    /// Where that is below `number`, the position is looked at again once the first of these signals has come: its
    /// watcher may have taken the position's own signal, and a host queue shows its position only once.
    fn settle_owed(&self, number: u64) -> u64 {
        let Some(owed) = self.owed.get() else {
            return number;
        };
        let mut number = number;
        loop {
            // Another thread, with a later position, may rely on this one to be registered.
            number = number.max(owed.seen.load(Ordering::SeqCst));
            let Some(first) = owed.first(number) else {
                return number;
            };
            let of = first.of.upgrade();
            let Some(of) = of.filter(|of| !of.bring_to(first.value)) else {
                owed.forget(&first);
                continue;
            };
            owed.seen.fetch_max(number, Ordering::SeqCst);
            if owed.listener.listen(&of, first.value) {
                return first.number.saturating_sub(1);
            }
        }
    }

    /// Looks whether `value` shows. False if it is still to come.
    fn bring_to(&self, value: u64) -> bool {
        self.refresh() >= value
            || !matches!(self.standing(value), Standing::Open | Standing::Pending)
    }
}
