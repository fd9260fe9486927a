//! The thread that watches over an endpoint: whether the other process lives, and whether it has closed its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use smallvec::{SmallVec, smallvec};
use syncline_core::PeerLoss;

use super::connection::Connection;
use super::socket::{Deadline, wait};

/// For how long a process whose end is closed is watched before it counts as one that lives: the kernel closes what a dying process has open
/// before it says that it has died. One that runs no more by then is dead, whatever its drivers still have to clear away.
const EXIT_GRACE: Duration = Duration::from_millis(if cfg!(fuzzing) { 2 } else { 300 });

/// How often it is looked whether the other process still runs, while something has to survive it: the system does not tell as long as it has not ended.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(250);

/// Between two tries where poll(2) itself fails, which it does for want of memory alone.
const POLL_RETRY: Duration = Duration::from_millis(10);

/// Until nobody has the endpoint any more, or the other process has died.
pub(super) fn watch(connection: &Connection) {
    let Some(how) = wait_for_loss(connection) else {
        return;
    };
    connection.report_loss(how);
    if let PeerLoss::Died { .. } = how {
        return;
    }
    // It may have signals to make still, through memory or a semaphore that both have.
    if let Some(how) = wait_for_death(connection) {
        connection.report_loss(how);
    }
}

/// Until it is to be looked at again.
fn next_check(connection: &Connection) -> Deadline {
    Deadline::after(match connection.has_loss_observers() {
        true => LIVENESS_INTERVAL,
        false => Duration::MAX,
    })
}

/// How the other side is lost, once it is; `None` once nobody has the endpoint any more.
fn wait_for_loss(connection: &Connection) -> Option<PeerLoss> {
    loop {
        let state = poll_peer(connection, true, next_check(connection));
        if connection.is_dropped.load(Ordering::Acquire) {
            return None;
        }
        let is_ending = connection.has_loss_observers() && connection.peer.is_ending();
        if state.has_died || state.has_hung_up || is_ending {
            // Whether it has said that it goes.
            connection.pump_all();
        }
        if let Some(how) = connection.closed() {
            return Some(how);
        }
        if state.has_died {
            return Some(died(connection));
        }
        if state.has_hung_up && connection.peer.watched().is_err() {
            return Some(PeerLoss::HungUp);
        }
        if state.has_hung_up || is_ending {
            let end = confirmed_exit(connection);
            if connection.is_dropped.load(Ordering::Acquire) {
                return None;
            }
            if end.is_some() || state.has_hung_up {
                return Some(end.unwrap_or(PeerLoss::Left));
            }
        }
    }
}

/// That the other process has died; `None` if nobody has the endpoint any more.
fn wait_for_death(connection: &Connection) -> Option<PeerLoss> {
    loop {
        let state = poll_peer(connection, false, next_check(connection));
        if connection.is_dropped.load(Ordering::Acquire) {
            return None;
        }
        if state.has_died {
            return Some(died(connection));
        }
        if connection.has_loss_observers()
            && connection.peer.is_ending()
            && let Some(how) = confirmed_exit(connection)
        {
            return Some(how);
        }
    }
}

/// How a process ends that seems to; `None` if it does not, or nobody has the endpoint any more.
fn confirmed_exit(connection: &Connection) -> Option<PeerLoss> {
    let deadline = Deadline::after(EXIT_GRACE);
    loop {
        let state = poll_peer(connection, false, deadline);
        if connection.is_dropped.load(Ordering::Acquire) {
            return None;
        }
        if state.has_died {
            return Some(died(connection));
        }
        if deadline.has_passed() {
            let is_ending = connection.peer.is_ending();
            return is_ending.then_some(PeerLoss::Died { exit: None });
        }
    }
}

fn died(connection: &Connection) -> PeerLoss {
    PeerLoss::Died {
        exit: connection.peer.exit(),
    }
}

struct PeerState {
    has_died: bool,
    has_hung_up: bool,
}

/// Sleeps until there is something to see, at the socket too if that is asked, or somebody rings.
fn poll_peer(connection: &Connection, at_socket: bool, deadline: Deadline) -> PeerState {
    let mut asked: SmallVec<[PollFd<'_>; 3]> = smallvec![connection.guard_wake.readable()];
    asked.extend(connection.peer.exit_poll());
    let process = asked.len() - 1;
    if at_socket {
        asked.push(connection.socket.hung_up());
    }
    if wait(&mut asked, deadline).is_err() {
        std::thread::sleep(POLL_RETRY);
    }
    connection.guard_wake.clear();
    let found = |at: usize| {
        let found = asked.get(at).map(PollFd::revents);
        found.is_some_and(|found| found != PollFlags::empty())
    };
    PeerState {
        // Where it cannot be watched, this is the bell's place.
        has_died: process > 0 && found(process),
        has_hung_up: at_socket && found(process + 1),
    }
}
