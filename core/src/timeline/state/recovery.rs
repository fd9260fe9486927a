//! Recovery: signals in the place of a dead process, which unblock native waits (E3).
//!
//! The counter in a page only grows, so every survivor may raise it. A driver's semaphore takes one
//! signal at a time, each higher than the last. So the survivors have turns there. In its turn a
//! survivor first checks, where it can, whether an earlier one has made the signal. A survivor that
//! dies in its turn, or a process that takes a false turn number from the page, delays the others
//! by one turn.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::ports::Ports;
use super::shared::Shared;
use crate::base::exiting::DriverCalls;
use crate::base::sync::spawn;
use crate::memory::counter::FAILING_TIMEOUT;
use crate::port::watch::ROUND;
use crate::port::{Port, Recovered};

/// How a process makes the missing signals of a dead process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryMode {
    /// On the calling thread, because no other process survives.
    Alone,
    /// In its turn, because other processes may survive.
    InTurn,
}

/// The time for other processes to fail what depends on the dead process, before its signals are
/// made.
pub(super) const GRACE: Duration = Duration::from_millis(50);

/// The length of a turn. A signal takes a fraction of that.
const TURN: Duration = Duration::from_millis(12);

/// The most turns that a survivor waits.
///
/// Equal to the largest number of parties in a plan, so that each has a turn.
///
/// The turn number comes from the page, which any process can write, so it needs this bound.
const TURNS: u32 = 32;

/// The delays from the last check of the dead process to the last survivor's signal fit into E3.
///
/// The sum includes the time for a process to write why the page has failed.
const _: () = {
    let turns = TURN.as_millis() * TURNS as u128;
    let sum = ROUND.as_millis() + FAILING_TIMEOUT.as_millis() + GRACE.as_millis() + turns;
    assert!(sum < 1000);
    assert!(!GRACE.is_zero() && !TURN.is_zero());
    // At least one turn for each party of a plan.
    assert!(TURNS >= 32);
};

/// What recovery needs: the timeline itself, and whether recovery has started.
#[derive(Default)]
pub(super) struct Recovery {
    /// The timeline itself, if another process signals it.
    own: OnceLock<Weak<Shared>>,
    started: OnceLock<()>,
}

impl Recovery {
    /// Stores a reference to the timeline itself.
    fn set_own(&self, own: Weak<Shared>) {
        let _ = self.own.set(own);
    }

    /// Starts it. Returns the timeline itself, or `None` if it has started already.
    fn start(&self) -> Option<Weak<Shared>> {
        self.started.set(()).ok()?;
        Some(self.own.get().cloned().unwrap_or_default())
    }
}

impl Shared {
    /// Stores a weak reference to itself, for a recovery that has only `&self`.
    pub(crate) fn set_own(self: &Arc<Self>) {
        self.make_extras().recovery().set_own(Arc::downgrade(self));
    }

    /// Makes the missing signals of a dead process, up to the value that it reported as pending.
    ///
    /// Call it after the timeline has failed for that reason. Only the first call has an effect.
    /// With [`RecoveryMode::Alone`] the calling thread makes the signals. Otherwise a new thread
    /// makes them within a second. If the system has no thread, the calling thread makes them at
    /// once.
    pub(crate) fn recover(&self, mode: RecoveryMode) {
        let Some(of) = self.make_extras().recovery().start() else {
            return;
        };
        let pending_elsewhere = self.home().pending_elsewhere().unwrap_or(0);
        let owed = pending_elsewhere.max(self.pending());
        let owed = owed.min(self.largest_legal());
        let turn = match mode {
            RecoveryMode::Alone => 0,
            RecoveryMode::InTurn => {
                let recover = move || recover_in_turn(&of, owed, std::thread::sleep);
                if spawn("syncline-recover", recover).is_ok() {
                    return;
                }
                // Without waiting, but above what earlier survivors may have signalled.
                self.home().recovery_turn()
            }
        };
        self.ports().recover_home(owed);
        self.recover_others(owed, turn);
    }

    /// Signals through the first port that can, unless another survivor has.
    ///
    /// `turn` is the number of earlier turns. In each of these turns a survivor may have made a
    /// signal that this process cannot see. So this process signals `owed` plus `turn`.
    fn recover_others(&self, owed: u64, turn: u32) {
        let value = owed.saturating_add(turn.into()).min(self.largest_legal());
        self.ports().recover_others(owed, value);
    }
}

impl Ports {
    /// Signals `owed` through the home.
    fn recover_home(&self, owed: u64) {
        let Some(_calls) = DriverCalls::begin() else {
            return;
        };
        // The recovery of a page cannot fail.
        let _ = self.home().port().recover(0, owed);
    }

    /// Signals `value` through the first other port that can, unless one has reached `owed`.
    fn recover_others(&self, owed: u64, value: u64) {
        let Some(_calls) = DriverCalls::begin() else {
            return;
        };
        if self.are_recovered(owed) {
            return;
        }
        // After an error the next port is tried.
        let recovered =
            |port: &dyn Port| matches!(port.recover(0, value), Ok(Recovered::Signalled));
        let _ = self.others().any(recovered);
    }

    /// True if a readable port has reached `owed`, so that no native wait is left there.
    fn are_recovered(&self, owed: u64) -> bool {
        let come = |value| value != u64::MAX && value >= owed;
        self.others()
            .any(|port| matches!(port.poll(), Ok(Some(value)) if come(value)))
    }
}

/// Recovery on a thread of its own.
///
/// Ends early once the timeline is dropped: a submission that waits keeps it alive.
fn recover_in_turn(of: &Weak<Shared>, owed: u64, mut sleep: impl FnMut(Duration)) {
    let turn = {
        sleep(GRACE);
        let Some(of) = of.upgrade() else { return };
        of.ports().recover_home(owed);
        if !of.ports().has_others() {
            return;
        }
        of.home().recovery_turn()
    };
    for _ in 0..turn.min(TURNS) {
        sleep(TURN);
        match of.upgrade() {
            Some(of) if !of.ports().are_recovered(owed) => {}
            _ => return,
        }
    }
    if let Some(of) = of.upgrade() {
        of.recover_others(owed, turn);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timeline;
    use crate::base::info::DeviceId;
    use crate::port::attachment::Attachment;
    use crate::timeline::state::shared_semaphore::Semaphore;

    /// The number of survivors before this one.
    const EARLIER: u32 = 2;

    /// Other processes have [`GRACE`], and each earlier survivor its turn. The clock is made up.
    #[test]
    fn a_survivor_signals_after_the_others_had_their_time() {
        let [home, other] = [(); 2].map(|()| Semaphore::behind(EARLIER));
        let ports = [
            Attachment::new(DeviceId::new::<()>(), 0, home.clone()),
            Attachment::imported(DeviceId::new::<()>(), other.clone()),
        ];
        let line = Timeline::new("line", 0, |_| Ok(ports.into_iter().collect())).unwrap();
        let mut slept = Vec::new();
        recover_in_turn(&Arc::downgrade(line.shared()), 3, |time| {
            slept.push((time, home.value(), other.value()));
        });
        assert_eq!(slept, [(GRACE, 0, 0), (TURN, 3, 0), (TURN, 3, 0)]);
        // An earlier survivor may have signalled unseen, so the signal is higher.
        assert_eq!((home.value(), other.value()), (3, 3 + u64::from(EARLIER)));
    }
}
