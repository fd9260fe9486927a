//! Making the object of a plan: the home offers it, and the others take it.

use std::time::Duration;

use syncline_core::{Error, Result, error::Object};

use super::execution::Execution;
use super::parts::{HomeObjects, ImportedObjects};
use super::timeline::SignallerObserver;
use crate::any::Device;
use crate::negotiate::{DeviceSemaphore, Made, MadeBinary, Plan};
use crate::process::endpoint::Endpoint;
use crate::process::handover::{OutgoingObject, hand_over};
use crate::process::message::{Handle, Offer};

impl Plan {
    /// Makes the timeline of a plan whose parties are in several processes.
    ///
    /// Each of the processes calls this with its own devices, and all get the same timeline.
    /// `peers` are endpoints to the other processes. The process of the plan's [home](Plan::home)
    /// needs an endpoint to each other process. Each other process needs one to the home's process.
    /// Further endpoints in `peers` are ignored.
    ///
    /// A page of shared memory comes with the timeline. It shows every process which values are
    /// pending, reached and failed (P4). With [timestamps](Plan::has_timestamps), a second page
    /// shows when values were reached (M6). In a process that does not signal,
    /// [`Point::time`](syncline_core::Point::time) is on the host's clock.
    ///
    /// If the signalling process dies, the timeline fails in every process with
    /// [`Error::PeerLost`], and waiting queues are released (E3). A process without an endpoint to
    /// it gets the same error through the page. A process that closes its endpoint but lives keeps
    /// its part.
    ///
    /// The signalling process must keep the timeline, as it has the right to signal. It must also
    /// keep [`Made`] while points are sent or received. On a bridge, every process must keep
    /// [`Made`]. Otherwise a process may drop [`Made`] and keep views and points.
    ///
    /// The call makes everything or nothing (X1). It returns once every process has taken its part.
    /// If a process fails, is lost or is too late, the home withdraws the offers. A process that
    /// had taken its part gets the reason and drops the part. Every other process continues to
    /// wait. After an error, all processes can call this again. If the home's own part fails first,
    /// the other processes wait until their timeout.
    ///
    /// # Blocking
    /// Up to `timeout` in total, plus the driver calls. [`Duration::ZERO`] checks once, and
    /// [`Duration::MAX`] waits without limit. A process that has taken its part waits at least half
    /// a second for the result. So the call may take one second longer if the home stops
    /// responding. Several threads may call this at the same time with different labels.
    ///
    /// # Errors
    /// * [`Error::Unsupported`] if this process has no party in the plan, if a device is missing in
    ///   `devices` or a required endpoint in `peers`, or if the plan is for a binary semaphore
    ///   ([`Plan::make_binary_across`]).
    /// * [`Error::PeerSilent`] if another process does not do its part in time or uses another
    ///   label.
    /// * [`Error::Import`] if another process refuses its part, or if the home withdraws it, with
    ///   the reason.
    /// * [`Error::Message`] if another process offers a different object.
    /// * [`Error::PeerLost`].
    /// * [`Error::ValueOutOfRange`] for `u64::MAX`.
    /// * A driver error.
    pub fn make_across(
        &self,
        label: &str,
        initial: u64,
        devices: &[Device],
        peers: &[&Endpoint],
        timeout: Duration,
    ) -> Result<Made> {
        let execution = Execution::new(self, self.kind(), label, devices, peers, timeout)?;
        self.require_timeline(label)?;
        if initial == u64::MAX {
            return Err(Error::value_out_of_range(
                Object::new("timeline", label),
                initial,
                0,
                u64::MAX - 1,
            ));
        }
        execution.make(initial).map(|(made, _)| made)
    }

    /// Makes the binary semaphore of a plan whose parties are in two processes.
    ///
    /// Each process calls this with its own device. [`Plan::make_across`] makes the count of
    /// signals. If the signalling process dies, the count fails with [`Error::PeerLost`] and later
    /// waits for the semaphore are refused. If a queue is already waiting, this process signals in
    /// place of the dead process (P3).
    ///
    /// # Errors
    /// Same errors as [`Plan::make_across`]. [`Error::Unsupported`] for a plan for a timeline.
    pub fn make_binary_across(
        &self,
        label: &str,
        devices: &[Device],
        peers: &[&Endpoint],
        timeout: Duration,
    ) -> Result<MadeBinary> {
        let execution = Execution::new(self, self.kind(), label, devices, peers, timeout)?;
        self.require_binary(label)?;
        if !self.crosses_processes() {
            return Err(execution.cannot("all parties are in this process: call Plan::make_binary"));
        }
        let (count, semaphores) = execution.make(0)?;
        Ok(MadeBinary::across(count, semaphores))
    }
}

impl<'c> Execution<'c> {
    /// Makes the timeline. For a binary semaphore, also makes the semaphores of this process.
    fn make(&self, initial: u64) -> Result<(Made, Vec<DeviceSemaphore>)> {
        if self.is_home() {
            self.make_at_home(initial)
        } else {
            self.make_elsewhere(initial)
        }
    }

    fn make_at_home(&self, initial: u64) -> Result<(Made, Vec<DeviceSemaphore>)> {
        let own = HomeObjects::make(self, initial)?;
        let counter = own.counter().clone();
        let offers = self.offers(&own, initial)?;
        let numbers: Vec<_> = offers.iter().map(|o| (o.peer, o.offer.number)).collect();
        let semaphores = own.semaphores(self)?;
        // Register first: a process may send a point as soon as its offer is settled.
        let timelines = own.into_timelines(self, initial)?;
        let made = SignallerObserver::register(self, timelines, &counter, &numbers, &semaphores);
        match hand_over(&offers, self.deadline()) {
            Ok(()) => Ok((made, semaphores)),
            Err(error) => {
                // A process may have the timeline if its offer was settled before the error.
                let cause = format!("not every process has taken it: {error}");
                counter.fail(initial, 0, &cause);
                Err(error)
            }
        }
    }

    /// The offers to all other processes.
    fn offers(&self, own: &HomeObjects, initial: u64) -> Result<Vec<OutgoingObject<'c>>> {
        let others = self.others().into_iter();
        let offer = |process| {
            let peer = self.peer(process)?;
            let handles = self.handles(process);
            let fds = handles.iter().map(|handle| own.export(self, handle.kind));
            let fds = fds.collect::<Result<_>>()?;
            let offer = Offer {
                number: peer.next_number(),
                content: self.content(),
                label: self.label().into(),
                initial,
                reached: initial,
                handles,
                origin: own.origin(),
                extent: None,
                event: None,
            };
            Ok(OutgoingObject { peer, offer, fds })
        };
        others.map(offer).collect()
    }

    fn make_elsewhere(&self, initial: u64) -> Result<(Made, Vec<DeviceSemaphore>)> {
        let peer = self.peer(self.plan().home().id().process)?;
        let (content, deadline) = (self.content(), self.deadline());
        peer.receive_and_settle(content, self.label(), deadline, |offer, fds| {
            self.check_offer(peer, &offer, initial)?;
            let received = ImportedObjects::open(self, offer.handles, fds)?;
            let (timelines, counter, semaphores) = received.into_timelines(self, initial)?;
            // The home fails a timeline that it withdraws.
            if counter.check().is_err() {
                return Ok(None);
            }
            // Register first: the next message may be a point of it.
            let made = SignallerObserver::register(
                self,
                timelines,
                &counter,
                &[(peer, offer.number)],
                &semaphores,
            );
            Ok(Some((made, semaphores)))
        })
    }

    /// Checks an offer against the plan, which defines what this process must get.
    fn check_offer(&self, peer: &Endpoint, offer: &Offer, initial: u64) -> Result<()> {
        let other =
            |expected: String, found: String| Err(Error::message(peer.object(), expected, found));
        if offer.initial != initial {
            return other(
                format!("{} \"{}\" from {initial} on", self.kind(), self.label()),
                format!("it from {} on", offer.initial),
            );
        }
        let handles = self.handles(self.here());
        if offer.handles != handles {
            return other(
                format!("the handles {}", listed(&handles)),
                format!("the handles {}", listed(&offer.handles)),
            );
        }
        Ok(())
    }
}

fn listed(handles: &[Handle]) -> String {
    let names: Vec<_> = handles.iter().map(|handle| handle.kind.name()).collect();
    names.join(", ")
}
