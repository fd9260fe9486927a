//! The rights that a plan grants to one process.

use syncline::negotiate::{Granted, Made, Party, PartyId};
use syncline::{Error, SignalOnly, WaitOnly};

use super::half::Half;
use crate::case::Stop;
use crate::subject::Subject as _;

impl Half {
    /// Returns the party of this process in plans.
    pub(super) fn own(&self) -> PartyId {
        Party::of(self.device.device()).id()
    }

    pub(super) fn made(&self, label: &str) -> Result<Granted, Stop> {
        Ok(self.carried_out(label)?.auto(self.own())?)
    }

    fn carried_out(&self, label: &str) -> Result<&Made, Stop> {
        match self.lines.iter().find(|(known, _)| known == label) {
            Some((_, made)) => Ok(made),
            None => Stop::fail(format!("there is no timeline {label:?}")),
        }
    }

    /// Asks for the rights of the other process's parties, and returns the refusals.
    pub(super) fn asks_for_theirs(&self, label: &str) -> Result<String, Stop> {
        let made = self.carried_out(label)?;
        let own = self.own();
        let parties = made.plan().parties().iter().map(Party::id);
        let mut refusals = Vec::new();
        for id in parties.filter(|id| id.process != own.process) {
            let had = [
                made.auto(id).err(),
                made.wait_only(id).err(),
                made.signal_only(id).err(),
            ];
            for refusal in had {
                match refusal {
                    Some(refusal @ Error::Unsupported { .. }) => refusals.push(refusal.to_string()),
                    other => {
                        return Stop::fail(format!("it has what is another process's: {other:?}"));
                    }
                }
            }
        }
        Ok(refusals.join("; "))
    }

    pub(super) fn signals(&self, label: &str) -> Result<SignalOnly, Stop> {
        match self.made(label)? {
            Granted::SignalOnly(line) => Ok(line),
            Granted::Both(line) => Ok(line.signal_only()),
            Granted::WaitOnly(_) => Stop::fail(format!("{label:?} may only be waited for")),
        }
    }

    /// Returns the timeline for waiting.
    ///
    /// # Errors
    /// There is no such timeline, or this process may not wait for it.
    pub fn waits(&self, label: &str) -> Result<WaitOnly, Stop> {
        match self.made(label)? {
            Granted::WaitOnly(line) => Ok(line),
            Granted::Both(line) => Ok(line.wait_only()),
            Granted::SignalOnly(_) => Stop::fail(format!("{label:?} may only be signalled")),
        }
    }
}
