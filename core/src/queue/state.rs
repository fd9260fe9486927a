//! The part of a queue that its lock protects.

use super::held_list::HeldList;
use super::in_flight::InFlight;
use super::relay::Relays;
use super::turn::Turns;
use crate::driver::enqueue::Enqueue;
use crate::timeline::state::Registered;

/// The part of a queue that its lock protects. Each part has methods of its own.
pub(super) struct State<E: Enqueue> {
    /// The number of the last accepted submission.
    pub(super) last: u64,
    pub(super) turns: Turns<E>,
    pub(super) held: HeldList<E>,
    /// The registrations for what the first held submission lacks, while no thread has the turn.
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
            turns: Turns::default(),
            held: HeldList::default(),
            registered: Registered::default(),
            missing: 0,
            in_flight: InFlight::default(),
            relays: Relays::default(),
        }
    }
}
