//! The part of a queue that its lock protects.

use super::driving::Driving;
use super::held_list::HeldList;
use super::in_flight::InFlight;
use super::relay::Relays;
use crate::driver::enqueue::Enqueue;
use crate::held::Lists;
use crate::timeline::state::Registered;

/// The part of a queue that its lock protects. Each part has methods of its own.
pub(super) struct State<E: Enqueue> {
    /// The number of the last accepted submission.
    pub(super) last: u64,
    pub(super) driving: Driving<E>,
    pub(super) held: HeldList<E>,
    /// Empty lists with capacity, for a submission that enters the graph.
    pub(super) scratch: Option<Box<Lists>>,
    /// The registrations for what the first held submission lacks, while no thread drives.
    pub(super) registered: Registered,
    /// How many of these registrations have not woken the queue yet.
    ///
    /// A wake that comes late may be counted for a later submission, which is then judged too
    /// early and registers again.
    pub(super) missing: usize,
    pub(super) in_flight: InFlight,
    pub(super) relays: Relays,
}

impl<E: Enqueue> Default for State<E> {
    fn default() -> Self {
        Self {
            last: 0,
            driving: Driving::default(),
            held: HeldList::default(),
            scratch: None,
            registered: Registered::default(),
            missing: 0,
            in_flight: InFlight::default(),
            relays: Relays::default(),
        }
    }
}
