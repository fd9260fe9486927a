//! The thread of an endpoint that watches whether the peer is alive and has closed its end.

use std::time::Duration;

use syncline_core::error::PeerLoss;

use super::connection::{Connection, PeerState};
use super::poll::Deadline;

/// How long a peer that has closed its end is watched before it counts as alive.
///
/// The kernel closes the descriptors of a dying process before it reports the death. A process that
/// no longer runs after this time counts as dead, even if its drivers are still releasing
/// resources.
const EXIT_GRACE: Duration = Duration::from_millis(if cfg!(fuzzing) { 2 } else { 300 });

/// Interval of checks in /proc whether the peer still runs, while there is a loss observer.
///
/// The kernel does not report a process that no longer runs until it has ended.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(250);

/// Pause before a retry if poll(2) fails, which happens only if memory is short.
pub(super) const POLL_RETRY: Duration = Duration::from_millis(10);

/// Watches the peer until the endpoint is dropped or the peer process has died.
pub(super) fn watch(connection: &Connection) {
    let Some(how) = wait_for_loss(connection) else {
        return;
    };
    match how {
        // `Connection::give_up` reports it.
        PeerLoss::GivenUp => {}
        how => connection.report_loss(how),
    }
    if let PeerLoss::Died { .. } = how {
        return;
    }
    // The peer may still signal through shared memory or a semaphore, so watch for its death.
    if let Some(how) = wait_for_death(connection) {
        connection.report_loss(how);
    }
}

/// The deadline of the next check of the peer.
fn next_check(connection: &Connection) -> Deadline {
    Deadline::after(match connection.has_loss_observers() {
        true => LIVENESS_INTERVAL,
        false => Duration::MAX,
    })
}

/// Waits for the loss of the peer. `None` once the endpoint is dropped.
fn wait_for_loss(connection: &Connection) -> Option<PeerLoss> {
    loop {
        let state = poll_peer(connection, true, next_check(connection));
        if connection.is_dropped() {
            return None;
        }
        let is_ending = connection.has_loss_observers() && connection.peer().is_ending();
        if state.has_died() || state.has_hung_up() || is_ending {
            // The peer's farewell may be in the socket.
            connection.pump_all();
        }
        if let Some(how) = connection.closed() {
            return Some(how);
        }
        if state.has_died() {
            return Some(died(connection));
        }
        if state.has_hung_up() && connection.peer().watched().is_err() {
            return Some(PeerLoss::HungUp);
        }
        if state.has_hung_up() || is_ending {
            let end = confirmed_exit(connection);
            if connection.is_dropped() {
                return None;
            }
            if end.is_some() || state.has_hung_up() {
                return Some(end.unwrap_or(PeerLoss::Left));
            }
        }
    }
}

/// Waits for the death of the peer process. `None` once the endpoint is dropped.
fn wait_for_death(connection: &Connection) -> Option<PeerLoss> {
    loop {
        let state = poll_peer(connection, false, next_check(connection));
        if connection.is_dropped() {
            return None;
        }
        if state.has_died() {
            return Some(died(connection));
        }
        if connection.has_loss_observers()
            && connection.peer().is_ending()
            && let Some(how) = confirmed_exit(connection)
        {
            return Some(how);
        }
    }
}

/// Waits up to [`EXIT_GRACE`] for the end of a peer that seems to end.
///
/// `None` if it still runs, or once the endpoint is dropped.
fn confirmed_exit(connection: &Connection) -> Option<PeerLoss> {
    let deadline = Deadline::after(EXIT_GRACE);
    loop {
        let state = poll_peer(connection, false, deadline);
        if connection.is_dropped() {
            return None;
        }
        if state.has_died() {
            return Some(died(connection));
        }
        if deadline.has_passed() {
            let is_ending = connection.peer().is_ending();
            return is_ending.then_some(PeerLoss::Died { exit: None });
        }
    }
}

fn died(connection: &Connection) -> PeerLoss {
    PeerLoss::Died {
        exit: connection.peer().exit(),
    }
}

/// Same as [`Connection::wait_for_peer`]. Finds nothing if poll(2) fails.
fn poll_peer(connection: &Connection, at_socket: bool, deadline: Deadline) -> PeerState {
    connection
        .wait_for_peer(at_socket, deadline)
        .unwrap_or_else(|_| {
            std::thread::sleep(POLL_RETRY);
            PeerState::default()
        })
}
