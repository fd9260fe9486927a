//! The part of a context that runs its commands.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::bug::Bug;
use crate::code::{Answer, Code};
use crate::device::Device;
use crate::host_thread::HostThread;
use crate::settings::settings;
use crate::{lock, news};

/// The time between a fault and the first call that reports it.
const FAULT_NOTICE: Duration = Duration::from_millis(145);
/// How often a command that has faulted checks whether its context has ended.
const FAULT_LOOK: Duration = Duration::from_millis(5);

/// True if [`Bug::FaultChanges`] changes the code at the next call.
static CHANGED: AtomicBool = AtomicBool::new(false);

/// The part of a context that its commands need. It lives as long as one of them.
pub(crate) struct Engine {
    /// The id of the context.
    pub(crate) context: u64,
    pub(crate) device: &'static Device,
    pub(crate) life: Life,
    pub(crate) connections: Connections,
    pub(crate) host: HostThread,
}

impl Engine {
    pub(crate) fn new(context: u64, device: &'static Device) -> Self {
        Self {
            context,
            device,
            life: Life {
                fault: &device.fault,
                ended: AtomicBool::new(false),
            },
            connections: Connections::new(),
            host: HostThread::default(),
        }
    }
}

/// Whether a context still runs work.
pub(crate) struct Life {
    /// The sticky error, or 0. All contexts of a device share it.
    fault: &'static AtomicU32,
    /// True once the context is destroyed.
    ended: AtomicBool,
}

impl Life {
    /// True if no work of the context runs any more. Waiting commands end then.
    pub(crate) fn is_over(&self) -> bool {
        self.fault.load(Ordering::Acquire) != 0 || self.ended.load(Ordering::Acquire)
    }

    /// Returns the sticky error, if there is one.
    pub(crate) fn check(&self) -> Answer {
        match self.fault.load(Ordering::Acquire) {
            0 if self.ended.load(Ordering::Acquire) => Err(Code::CONTEXT_IS_DESTROYED),
            0 => Ok(()),
            _ if Bug::FaultChanges.is_planted() && CHANGED.fetch_xor(true, Ordering::AcqRel) => {
                Err(Code::LAUNCH_TIMEOUT)
            }
            fault => Err(Code::from_number(fault)),
        }
    }

    /// Makes `code` the sticky error, unless there is one.
    ///
    /// A GPU reports a fault late, and other streams continue until then.
    pub(crate) fn fail_late(&self, code: Code) {
        let start = Instant::now();
        while start.elapsed() < FAULT_NOTICE && !self.is_over() {
            std::thread::sleep(FAULT_LOOK);
        }
        if Bug::FaultIsForgotten.is_planted() {
            return;
        }
        let (set, get) = (Ordering::AcqRel, Ordering::Acquire);
        let _ = self.fault.compare_exchange(0, code.number(), set, get);
        news::tell();
    }

    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        news::tell();
    }
}

/// The place of a command in the order in which a context's commands were submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    command: u64,
    /// The node of a graph launch. All nodes are submitted as one command.
    node: usize,
}

impl Ticket {
    /// Returns the ticket of a node of the graph that the command launches.
    pub(crate) const fn of_node(self, node: usize) -> Self {
        Self { node, ..self }
    }
}

/// The hardware connections of a context.
///
/// A wait for memory or for an external semaphore keeps its connection until it ends. Commands that
/// are submitted while all connections are in such waits are blocked. A wait never blocks commands
/// that were submitted before it. So no command blocks its own signaller if each wait is submitted
/// after its signal.
pub(crate) struct Connections {
    count: usize,
    commands: AtomicU64,
    /// The waits that have a connection.
    parked: Mutex<BTreeSet<Ticket>>,
    changed: Condvar,
}

impl Connections {
    /// The time after which a command that waits for a connection checks its context.
    const LOOK: Duration = Duration::from_millis(20);

    fn new() -> Self {
        Self {
            count: settings().map_or(1, |settings| settings.connections),
            commands: AtomicU64::new(0),
            parked: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Returns the next ticket.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket {
            command: self.commands.fetch_add(1, Ordering::AcqRel),
            node: 0,
        }
    }

    /// Waits until a connection is free for the command. Returns false if the context has ended.
    ///
    /// A wait keeps the connection until it [leaves](Connections::leave).
    pub(crate) fn pass(&self, ticket: Ticket, is_wait: bool, life: &Life) -> bool {
        let mut parked = lock(&self.parked);
        while parked.range(..ticket.of_node(0)).count() >= self.count {
            if life.is_over() {
                return false;
            }
            let waited = self.changed.wait_timeout(parked, Self::LOOK);
            parked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if is_wait {
            parked.insert(ticket);
        }
        !life.is_over()
    }

    /// Keeps a connection for a wait before it [passes](Connections::pass).
    pub(crate) fn park(&self, ticket: Ticket) {
        lock(&self.parked).insert(ticket);
    }

    /// Returns how many waits have a connection.
    #[cfg(test)]
    pub(crate) fn parked(&self) -> usize {
        lock(&self.parked).len()
    }

    /// Frees the connection of a wait.
    pub(crate) fn leave(&self, ticket: Ticket) {
        lock(&self.parked).remove(&ticket);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two connections of a context without errors.
    fn two_connections() -> (Connections, Life) {
        static FAULT: AtomicU32 = AtomicU32::new(0);
        let life = Life {
            fault: &FAULT,
            ended: AtomicBool::new(false),
        };
        let connections = Connections {
            count: 2,
            ..Connections::new()
        };
        (connections, life)
    }

    #[test]
    fn nodes_of_a_launch_hold_up_what_comes_behind_it_but_not_each_other() {
        let (connections, life) = two_connections();
        let (launch, behind) = (connections.ticket(), connections.ticket());
        // A wait is parked when it passes, so no other command can pass in between.
        for node in 0..3 {
            assert!(connections.pass(launch.of_node(node), true, &life));
        }
        assert_eq!(connections.parked(), 3);
        // Two waits remain when one has ended.
        connections.leave(launch.of_node(0));
        std::thread::scope(|scope| {
            let behind = scope.spawn(|| connections.pass(behind, false, &life));
            life.end();
            assert!(behind.join().is_ok_and(|passed| !passed));
        });
        assert_eq!(connections.parked(), 2);
    }

    #[test]
    fn a_command_is_held_up_by_earlier_waits_alone() {
        let (connections, life) = two_connections();
        let tickets = [(); 4].map(|()| connections.ticket());
        connections.park(tickets[1]);
        connections.park(tickets[2]);
        // Submitted before both.
        assert!(connections.pass(tickets[0], false, &life));
        std::thread::scope(|scope| {
            let behind = scope.spawn(|| connections.pass(tickets[3], false, &life));
            connections.leave(tickets[2]);
            assert!(behind.join().is_ok_and(|passed| passed));
        });
        // A command of a context that has ended does not pass.
        life.end();
        assert!(!connections.pass(tickets[0], false, &life));
    }
}
