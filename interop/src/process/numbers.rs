//! The numbers of timelines in messages.

use std::fmt;
use std::sync::Arc;

use syncline_core::KeptPoint;
use syncline_core::backend::kit::Mutex;
use syncline_core::internal::WeakTimeline;

/// The number of an object in messages. Each side of an endpoint numbers its own objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ObjectNumber {
    ours: bool,
    number: u32,
}

/// Bit in a point message: the sender of the message assigned the number.
const SENDERS: u32 = 1 << 31;

impl ObjectNumber {
    /// `ours` says whether this side assigned the number.
    pub(super) const fn new(number: u32, ours: bool) -> Self {
        Self { ours, number }
    }

    /// The number without the side that assigned it.
    pub(super) const fn number(self) -> u32 {
        self.number
    }

    /// The number in a point message of this side.
    pub(super) const fn sent(self) -> u32 {
        if self.ours {
            self.number | SENDERS
        } else {
            self.number
        }
    }

    /// The number of a point message of the peer.
    pub(super) const fn received(number: u32) -> Self {
        Self {
            ours: number & SENDERS == 0,
            number: number & !SENDERS,
        }
    }
}

/// The timelines with one number. On a bridge, all sides in this process have the same number.
pub(crate) struct NumberedTimeline {
    number: ObjectNumber,
    timelines: Vec<WeakTimeline>,
}

/// The timelines of an endpoint by number.
///
/// If a peer assigns a number twice, the number refers to the first timeline while that exists.
#[derive(Default)]
pub(crate) struct NumberedTimelines(Mutex<Vec<Arc<NumberedTimeline>>>);

impl NumberedTimelines {
    pub(super) fn add(
        &self,
        number: ObjectNumber,
        timelines: Vec<WeakTimeline>,
    ) -> Arc<NumberedTimeline> {
        let named = Arc::new(NumberedTimeline { number, timelines });
        self.0.lock().push(named.clone());
        named
    }

    pub(super) fn remove(&self, named: &Arc<NumberedTimeline>) {
        self.0
            .lock()
            .retain(|registered| !Arc::ptr_eq(registered, named));
    }

    /// The number of the first timeline that `matches`.
    pub(super) fn number(&self, matches: impl Fn(&WeakTimeline) -> bool) -> Option<ObjectNumber> {
        let list = self.0.lock();
        let registered = list
            .iter()
            .find(|named| named.timelines.iter().any(&matches));
        registered.map(|named| named.number)
    }

    /// A point of the timeline with that number.
    pub(super) fn at(&self, number: ObjectNumber, value: u64) -> Option<KeptPoint> {
        let list = self.0.lock();
        let mut registered = list.iter().filter(|named| named.number == number);
        registered.find_map(|named| {
            named
                .timelines
                .iter()
                .find_map(|timeline| timeline.at(value))
        })
    }
}

impl fmt::Debug for NumberedTimelines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Do not access the timelines: dropping the last handle of one locks this list.
        let list = self.0.lock();
        let numbers = list.iter().map(|named| named.number);
        f.debug_list().entries(numbers).finish()
    }
}
