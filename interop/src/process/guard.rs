//! The thread that watches over an endpoint: whether the other process lives, and whether it has closed its end.

use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use smallvec::{SmallVec, smallvec};
use syncline_core::PeerLoss;

use super::connection::Connection;
use super::socket::{Patience, wait};

/// For how long a process whose end is closed is watched before it counts as one that lives: the kernel closes what a dying process has open
/// before it says that it has died. One that runs no more by then is dead, whatever its drivers still have to clear away.
const DYING: Duration = Duration::from_millis(if cfg!(fuzzing) { 2 } else { 300 });

/// How often it is looked whether the other process still runs, while something has to survive it: the system does not tell as long as it has not ended.
const GLANCE: Duration = Duration::from_millis(250);

/// Between two tries where poll(2) itself fails, which it does for want of memory alone.
const NAP: Duration = Duration::from_millis(10);

/// Until nobody has the endpoint any more, or the other process has died.
pub(super) fn watch(connection: &Connection) {
    let Some(how) = loss(connection) else {
        return;
    };
    connection.lose(how);
    if let PeerLoss::Died { .. } = how {
        return;
    }
    // It may have signals to make still, through memory or a semaphore that both have.
    if let Some(how) = death(connection) {
        connection.lose(how);
    }
}

/// Until it is to be looked at again.
fn pause(connection: &Connection) -> Patience {
    Patience::of(match connection.has_survivors() {
        true => GLANCE,
        false => Duration::MAX,
    })
}

/// How the other side is lost, once it is; `None` once nobody has the endpoint any more.
fn loss(connection: &Connection) -> Option<PeerLoss> {
    loop {
        let seen = look(connection, true, pause(connection));
        if connection.is_dropped.load(Ordering::Acquire) {
            return None;
        }
        let is_ending = connection.has_survivors() && connection.peer.is_ending();
        if seen.has_died || seen.has_hung_up || is_ending {
            // Whether it has said that it goes.
            connection.pump_all();
        }
        if let Some(how) = connection.closed() {
            return Some(how);
        }
        if seen.has_died {
            return Some(died(connection));
        }
        if seen.has_hung_up && connection.peer.watched().is_err() {
            return Some(PeerLoss::HungUp);
        }
        if seen.has_hung_up || is_ending {
            let end = end(connection);
            if connection.is_dropped.load(Ordering::Acquire) {
                return None;
            }
            if end.is_some() || seen.has_hung_up {
                return Some(end.unwrap_or(PeerLoss::Left));
            }
        }
    }
}

/// That the other process has died; `None` if nobody has the endpoint any more.
fn death(connection: &Connection) -> Option<PeerLoss> {
    loop {
        let seen = look(connection, false, pause(connection));
        if connection.is_dropped.load(Ordering::Acquire) {
            return None;
        }
        if seen.has_died {
            return Some(died(connection));
        }
        if connection.has_survivors()
            && connection.peer.is_ending()
            && let Some(how) = end(connection)
        {
            return Some(how);
        }
    }
}

/// How a process ends that seems to; `None` if it does not, or nobody has the endpoint any more.
fn end(connection: &Connection) -> Option<PeerLoss> {
    let patience = Patience::of(DYING);
    loop {
        let seen = look(connection, false, patience);
        if connection.is_dropped.load(Ordering::Acquire) {
            return None;
        }
        if seen.has_died {
            return Some(died(connection));
        }
        if patience.is_over() {
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

struct Seen {
    has_died: bool,
    has_hung_up: bool,
}

/// Sleeps until there is something to see, at the socket too if that is asked, or somebody rings.
fn look(connection: &Connection, at_socket: bool, patience: Patience) -> Seen {
    let mut asked: SmallVec<[PollFd<'_>; 3]> = smallvec![connection.bell.heard()];
    asked.extend(connection.peer.ended());
    let process = asked.len() - 1;
    if at_socket {
        asked.push(connection.socket.hung_up());
    }
    if wait(&mut asked, patience).is_err() {
        std::thread::sleep(NAP);
    }
    connection.bell.hush();
    let found = |at: usize| {
        let found = asked.get(at).map(PollFd::revents);
        found.is_some_and(|found| found != PollFlags::empty())
    };
    Seen {
        // Where it cannot be watched, this is the bell's place.
        has_died: process > 0 && found(process),
        has_hung_up: at_socket && found(process + 1),
    }
}
