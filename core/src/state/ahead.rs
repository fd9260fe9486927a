//! What other processes are told before a value shows in this process (P4): a process may end right after it has reported a value.
//!
//! - A timeline with a page beside it writes the value to the page first.
//! - A side of a bridge signals the sides that other processes have first.
//! - The position of a queue waits until the signals of the queue's submissions have done so.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use super::Shared;
use crate::run::Wake;
use crate::sync::{Brief, Ordering, yield_now};

/// Tells other processes of a timeline.
pub(crate) trait Tell: Wake {
    /// Tells them that `value` of `of` is reached. Called before the value shows in this process, by several threads at once.
    fn tell_ahead(&self, of: &Shared, value: u64);

    /// True in a process that was forked from the one that tells: it has nothing to tell.
    fn is_forked(&self) -> bool;
}

/// The signals of a queue's submissions that other processes are told of, in the order of the submissions.
#[derive(Default)]
pub(super) struct Owed(Brief<VecDeque<Signalled>>);

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

/// How often a signal is looked for that its driver makes together with the position of the queue. The driver may make the two in any order.
const LOOKS: u32 = 1000;

impl Shared {
    /// Keeps `publisher`, which also hears when the last handle has gone. The first one stays. `ahead`: other processes learn values from it alone.
    pub(crate) fn keep_publisher(&self, publisher: Arc<dyn Tell>, ahead: bool) {
        let _ = self.publisher.set(publisher);
        if ahead {
            self.tell_ahead_from_now_on();
        }
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
    #[cold]
    pub(super) fn tell_ahead(&self, value: u64) {
        self.settle_owed(value);
        if let Some(sides) = self.bridge.get().and_then(Weak::upgrade) {
            sides.carry_ahead(self, value);
        }
        if let Some(publisher) = self.publisher.get() {
            publisher.tell_ahead(self, value);
        }
    }

    /// For the position of a queue: the submission `number` signals `value` of `of`. To be called before the position can get to `number`.
    pub(crate) fn owe(&self, number: u64, of: &Arc<Self>, value: u64) {
        let owed = self.owed.get_or_init(Box::default);
        owed.0.lock().push_back(Signalled {
            number,
            of: Arc::downgrade(of),
            value,
        });
        self.tell_ahead_from_now_on();
    }

    /// Sees to it that all signals of submissions up to `number` are told of. An entry stays until that is done, so that
    /// another thread does not report the position before.
    fn settle_owed(&self, number: u64) {
        let Some(owed) = self.owed.get() else { return };
        let next = || {
            let owed = owed.0.lock();
            owed.front().filter(|next| next.number <= number).cloned()
        };
        while let Some(next) = next() {
            if let Some(of) = next.of.upgrade() {
                of.bring_to(next.value);
            }
            let mut owed = owed.0.lock();
            if owed.front().is_some_and(|front| front.is(&next)) {
                owed.pop_front();
            }
        }
    }

    /// Looks until `value` shows, which its driver makes at this moment, or has made.
    fn bring_to(&self, value: u64) {
        for _ in 0..LOOKS {
            if self.reached() >= value || self.is_failed() || self.refresh() >= value {
                return;
            }
            yield_now();
        }
    }
}
