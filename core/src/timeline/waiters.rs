//! The registrations of waiters for values of a timeline.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::base::run::Wake;
use crate::base::stage::Stage;
use crate::base::steps;

/// One registration in a timeline.
struct Waiter {
    value: u64,
    ticket: u64,
    wake: Arc<dyn Wake>,
}

/// Identifies a registration, to cancel it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    stage: Stage,
    ticket: u64,
    value: u64,
}

impl Ticket {
    /// The value that is waited for.
    pub(crate) const fn value(self) -> u64 {
        self.value
    }

    /// The stage that it must come to.
    pub(crate) const fn stage(self) -> Stage {
        self.stage
    }
}

/// Wakers taken out under a timeline's lock. They are called after it is released.
pub(crate) type Woken = SmallVec<[Arc<dyn Wake>; 8]>;

/// The registrations of one timeline, sorted by value; equal values are in order of registration.
#[derive(Default)]
pub(crate) struct Waiters {
    for_reached: VecDeque<Waiter>,
    for_pending: VecDeque<Waiter>,
    next_ticket: u64,
}

impl Waiters {
    fn list(&mut self, stage: Stage) -> &mut VecDeque<Waiter> {
        match stage {
            Stage::Reached => &mut self.for_reached,
            Stage::Pending => &mut self.for_pending,
        }
    }

    pub(crate) fn insert(&mut self, value: u64, stage: Stage, wake: Arc<dyn Wake>) -> Ticket {
        steps::count(1);
        self.next_ticket += 1;
        let ticket = self.next_ticket;
        let list = self.list(stage);
        let at = list.partition_point(|waiter| waiter.value <= value);
        list.insert(
            at,
            Waiter {
                value,
                ticket,
                wake,
            },
        );
        Ticket {
            stage,
            ticket,
            value,
        }
    }

    /// Removes a registration, if it is still there.
    pub(crate) fn remove(&mut self, ticket: Ticket) -> Option<Arc<dyn Wake>> {
        let list = self.list(ticket.stage);
        // Registrations for one value are in the order of their tickets.
        let key = |waiter: &Waiter| (waiter.value, waiter.ticket);
        let at = list.binary_search_by_key(&(ticket.value, ticket.ticket), key);
        list.remove(at.ok()?).map(|waiter| waiter.wake)
    }

    /// True if there is no registration.
    pub(crate) fn is_empty(&self) -> bool {
        self.for_reached.is_empty() && self.for_pending.is_empty()
    }

    /// True if `ticket` is the only registration.
    pub(crate) fn are_only(&self, ticket: Ticket) -> bool {
        let for_reached = self.for_reached.front().map(|waiter| waiter.ticket);
        for_reached == Some(ticket.ticket)
            && self.for_reached.len() == 1
            && self.for_pending.is_empty()
    }

    /// Removes the registration of `ticket`, if it is the only one and its value is reached.
    pub(crate) fn take_only(&mut self, ticket: Ticket, reached: u64) -> Option<Arc<dyn Wake>> {
        let come = ticket.value <= reached && self.are_only(ticket);
        let waiter = if come {
            self.for_reached.pop_front()
        } else {
            None
        };
        waiter.map(|waiter| waiter.wake)
    }

    /// The lowest value that a waiter needs reached.
    pub(crate) fn lowest_for_reached(&self) -> Option<u64> {
        self.for_reached.front().map(|waiter| waiter.value)
    }

    /// The lowest value of all registrations.
    pub(crate) fn lowest(&self) -> Option<u64> {
        let fronts = [self.for_reached.front(), self.for_pending.front()];
        fronts
            .into_iter()
            .flatten()
            .map(|waiter| waiter.value)
            .min()
    }

    /// Removes every registration whose value has come to the stage that it waits for.
    pub(crate) fn take_settled(&mut self, reached: u64, pending: u64) -> Woken {
        let mut woken = Woken::new();
        for (list, value) in [
            (&mut self.for_pending, pending),
            (&mut self.for_reached, reached),
        ] {
            while list.front().is_some_and(|waiter| waiter.value <= value) {
                woken.extend(list.pop_front().map(|waiter| waiter.wake));
            }
        }
        woken
    }

    /// Removes every registration for whose value `served` returns false.
    pub(crate) fn take_unserved(&mut self, served: impl Fn(u64) -> bool) -> Woken {
        let mut woken = Woken::new();
        for list in [&mut self.for_pending, &mut self.for_reached] {
            list.retain(|waiter| {
                let stays = served(waiter.value);
                if !stays {
                    woken.push(waiter.wake.clone());
                }
                stays
            });
        }
        woken
    }
}
