//! How what waits natively for the signals of a dead process is let go, by signals in its place (E3).
//!
//! The counter in a page only grows, whoever writes it, so every survivor raises that. An object of a driver's takes the signals of one at a time, each higher
//! than those before: remaining have turns there, and each looks, if he can, whether one before him has made the signal. Who had a turn and died with it,
//! or had none and has written to the page that he had, holds the others up for as long as his turn takes.

use std::sync::Weak;
use std::time::Duration;

use super::Shared;
use crate::base::sync::spawn;
use crate::memory::counter::UNSAID;
use crate::port::watch::ROUND;
use crate::port::{ByEngine, Port};

/// Who has to survive a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemainingPeers {
    /// This process, and no other.
    One,
    /// Perhaps others, too.
    Several,
}

/// For further processes to fail what depends on the dead, before it is let go.
const GRACE: Duration = Duration::from_millis(50);

/// How long a turn takes. A signal is made in a fraction of that.
const TURN: Duration = Duration::from_millis(12);

/// Nobody waits for more turns, whatever number he is given: it stands in the page, where anybody can write. As many have one as a plan may have parties, so that of those who
/// keep to it each has his own.
const TURNS: u32 = 32;

/// From the last look at whoever has died to the last survivor's signal, where nobody says why the page has failed: what the rule gives it (E3).
const _: () = {
    let turns = TURN.as_millis() * TURNS as u128;
    let sum = ROUND.as_millis() + UNSAID.as_millis() + GRACE.as_millis() + turns;
    assert!(sum < 1000);
    assert!(!GRACE.is_zero() && !TURN.is_zero());
    // One turn each, if a plan has as many parties as it may.
    assert!(TURNS >= 32);
};

impl Shared {
    /// For a timeline that another process signalled, once it has failed because that one is gone: makes the signals that nobody makes any more, up to
    /// what was said to be pending. At once on this thread, if there is no other survivor; otherwise on a thread of its own, within a second.
    ///
    /// What comes after the first call changes nothing.
    pub(crate) fn recover(&self, remaining: RemainingPeers) {
        if self.dependents.released.set(()).is_err() {
            return;
        }
        let told = self.home().pending_elsewhere().unwrap_or(0);
        let owed = told.max(self.pending());
        let of = self.dependents.of.get().cloned().unwrap_or_default();
        let alone = remaining == RemainingPeers::One;
        if alone || spawn("syncline-release", move || recover_in_turn(&of, owed)).is_err() {
            self.raise_page(owed);
            self.signal_in_place(owed, 0);
        }
    }

    fn raise_page(&self, owed: u64) {
        // Of a page nothing comes but that it is done.
        let home = self.home();
        let _ = home.recover(owed.min(self.largest_legal()), ByEngine::new(home));
    }

    /// Signals through one port that can, unless somebody has. `turn` tells how many remaining may have done so where that cannot be seen.
    fn signal_in_place(&self, owed: u64, turn: u32) {
        if self.is_let_go(owed) {
            return;
        }
        let value = owed.saturating_add(turn.into()).min(self.largest_legal());
        // An error, too, leaves it to the next.
        let released =
            |port: &dyn Port| matches!(port.recover(value, ByEngine::new(port)), Ok(true));
        let _ = self.other_ports().any(released);
    }

    /// True if a port which the host can read shows that nothing waits there any more.
    fn is_let_go(&self, owed: u64) -> bool {
        let owed = owed.min(self.largest_legal());
        let come = |value| value != u64::MAX && value >= owed;
        self.other_ports()
            .any(|port| matches!(port.poll(), Ok(Some(value)) if come(value)))
    }
}

/// For as long as anybody here has to do with the timeline: a submission that waits for it has.
fn recover_in_turn(of: &Weak<Shared>, owed: u64) {
    let turn = {
        std::thread::sleep(GRACE);
        let Some(of) = of.upgrade() else { return };
        of.raise_page(owed);
        if of.other_ports().next().is_none() {
            return;
        }
        of.home().recovery_turn()
    };
    for _ in 0..turn.min(TURNS) {
        std::thread::sleep(TURN);
        match of.upgrade() {
            Some(of) if !of.is_let_go(owed) => {}
            _ => return,
        }
    }
    if let Some(of) = of.upgrade() {
        of.signal_in_place(owed, turn);
    }
}
