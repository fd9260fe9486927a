//! Signals that the host makes for a queue without a port for them.

use std::sync::Arc;

use crate::graph::Place;
use crate::run::Wake;
use crate::state::{Interval, Shared, Standing};
use crate::waiters::Stage;

/// Makes a signal from the host once a queue that has no port for it has done its work.
pub(super) struct Relay {
    pub(super) own: Arc<Shared>,
    pub(super) number: u64,
    pub(super) of: Arc<Shared>,
    pub(super) claim: Interval,
    /// The signal's place among those who wait for each other, given up once it is made.
    pub(super) _place: Option<Place>,
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        loop {
            // First the work, then the predecessor; each wait ends in another call of this.
            let (of, value) = match self.own.standing(self.number) {
                Standing::Reached => match self.of.standing(self.claim.above) {
                    Standing::Reached => return self.of.signal_claimed(self.claim.upto),
                    Standing::Failed(_) => return,
                    // The predecessor never comes, so neither does this one.
                    Standing::Cancelled => return self.of.withdraw(self.claim),
                    Standing::Pending | Standing::Open => (&self.of, self.claim.above),
                },
                Standing::Failed(cause) => return self.of.fail(cause),
                Standing::Cancelled => return self.of.withdraw(self.claim),
                Standing::Pending | Standing::Open => (&self.own, self.number),
            };
            if of.register(value, Stage::Reached, self.clone()).is_some() {
                return;
            }
        }
    }
}
