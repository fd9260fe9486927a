//! Carrying out a plan in several processes. The home exports handles, and the others import them.
//!
//! | file | contents |
//! |---|---|
//! | `parts` | making the timelines of one process, with or without received handles |
//! | `timeline` | the numbers of timelines in messages, and failing a timeline if its signaller dies |
//! | `memory` | shared memory that goes with the timelines |
//! | `binary` | a binary semaphore in each of two processes |
//! | `waits` | waits for a binary semaphore of another device, and their release if it is lost |
//! | `poller` | the thread that looks for such a loss |

mod binary;
mod memory;
mod parts;
mod poller;
mod timeline;
mod waits;

use std::time::Duration;

use syncline_core::backend::Device as _;
use syncline_core::{Error, Result, error::Object, handle::HandleKind, host};

use self::parts::{HomeObjects, ImportedObjects};
use self::timeline::SignallerObserver;
use super::Endpoint;
use super::handover::{OutgoingObject, hand_over};
use super::message::{Content, Handle, Offer};
use super::socket::Deadline;
use crate::any::Device;
use crate::negotiate::{Duty, Made, Mechanism, Needs, Party, PartyId, Plan, Process};

pub(crate) use self::binary::DeviceSemaphore;
pub(crate) use self::timeline::NumberedTimelines;
pub(crate) use self::waits::{LocalSignaller, SemaphoreWaits};

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
}

/// One call of this process that carries out a plan together with other processes.
struct Execution<'c> {
    plan: &'c Plan,
    /// The kind of the object, for errors.
    kind: &'static str,
    label: &'c str,
    here: Process,
    devices: &'c [Device],
    peers: &'c [&'c Endpoint],
    deadline: Deadline,
}

impl<'c> Execution<'c> {
    /// # Errors
    /// [`Error::Unsupported`] if this process cannot do its part.
    fn new(
        plan: &'c Plan,
        kind: &'static str,
        label: &'c str,
        devices: &'c [Device],
        peers: &'c [&'c Endpoint],
        timeout: Duration,
    ) -> Result<Self> {
        let execution = Self {
            plan,
            kind,
            label,
            here: Process::this(),
            devices,
            peers,
            deadline: Deadline::after(timeout),
        };
        let own: Vec<&Party> = execution.own().collect();
        let missing = own
            .iter()
            .find(|party| party.is_device() && execution.device(party.id()).is_none());
        let reason = if own.is_empty() {
            format!("{} has no part in it", execution.here)
        } else if plan.is_binary() && plan.has_timestamps() {
            "a binary semaphore has no times".into()
        } else if let Some(missing) = missing {
            format!("{missing} is not among the devices that were given")
        } else {
            let mut others = match execution.is_home() {
                true => execution.others(),
                false => vec![plan.home().id().process],
            };
            others.retain(|other| execution.peer(*other).is_err());
            match others.first() {
                Some(other) => no_endpoint(*other),
                None => return Ok(execution),
            }
        };
        Err(execution.cannot(reason))
    }

    fn own(&self) -> impl Iterator<Item = &'c Party> {
        let here = self.here;
        let parties = self.plan.parties().iter();
        parties.filter(move |party| party.id().process == here)
    }

    /// The other processes, without duplicates.
    fn others(&self) -> Vec<Process> {
        let mut others: Vec<_> = self.plan.parties().iter().map(|p| p.id().process).collect();
        others.retain(|process| *process != self.here);
        others.sort_unstable();
        others.dedup();
        others
    }

    fn is_home(&self) -> bool {
        self.plan.home().id().process == self.here
    }

    /// The process that signals.
    fn signaller(&self) -> Process {
        let mut parties = self.plan.parties().iter();
        let signals = parties.find(|party| party.needs().contains(Needs::SIGNAL));
        signals.map_or(self.here, |party| party.id().process)
    }

    fn device(&self, id: PartyId) -> Option<&'c Device> {
        let mut devices = self.devices.iter();
        devices.find(|device| device.id().get() == id.device)
    }

    /// A host device: one of the plan's own devices if there is one, otherwise a new one.
    fn host(&self) -> host::Device {
        let devices = self.own().filter_map(|party| self.device(party.id()));
        let mut hosts = devices.filter_map(|device| match device {
            Device::Host(host) => Some(host.clone()),
            #[allow(unreachable_patterns, reason = "reachable with another backend")]
            _ => None,
        });
        hosts.next().unwrap_or_default()
    }

    /// # Errors
    /// [`Error::Unsupported`] if there is no endpoint to that process.
    fn peer(&self, process: Process) -> Result<&'c Endpoint> {
        let mut peers = self.peers.iter();
        let peer = peers.find(|peer| *peer.peer() == process);
        peer.copied()
            .ok_or_else(|| self.cannot(no_endpoint(process)))
    }

    fn cannot(&self, reason: impl Into<String>) -> Error {
        Error::unsupported(
            Object::new(self.kind, self.label),
            format!("be made with {} across processes", self.plan.mechanism()),
            reason,
        )
    }

    /// The handles that go to `process`.
    ///
    /// These are the page, the page of times if the plan has timestamps, and one handle for each
    /// device that imports a semaphore.
    fn handles(&self, process: Process) -> Vec<Handle> {
        let page = Handle {
            party: None,
            kind: HandleKind::CounterMemfd,
        };
        let times = Handle {
            party: None,
            kind: HandleKind::WordsMemfd,
        };
        let imports = |party: &Party| match self.plan.part(party.id())?.duty {
            // For a counter, the device uses the page that its process gets anyway.
            Duty::Import(kind) if kind != HandleKind::CounterMemfd => Some(Handle {
                party: Some(party.id()),
                kind,
            }),
            _ => None,
        };
        let parties = self.plan.parties().iter();
        let of_it = parties.filter(|party| party.id().process == process);
        [page]
            .into_iter()
            .chain(self.plan.has_timestamps().then_some(times))
            .chain(of_it.filter_map(imports))
            .collect()
    }

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
        match hand_over(&offers, self.deadline) {
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
            let fds = handles.iter().map(|handle| own.export(handle.kind));
            let fds = fds.collect::<Result<_>>()?;
            let offer = Offer {
                number: peer.next_number(),
                content: self.content(),
                label: self.label.into(),
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
        let peer = self.peer(self.plan.home().id().process)?;
        let (content, deadline) = (self.content(), self.deadline);
        peer.receive_and_settle(content, self.label, deadline, |offer, fds| {
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
                format!("{} \"{}\" from {initial} on", self.kind, self.label),
                format!("it from {} on", offer.initial),
            );
        }
        let handles = self.handles(self.here);
        if offer.handles != handles {
            return other(
                format!("the handles {}", listed(&handles)),
                format!("the handles {}", listed(&offer.handles)),
            );
        }
        Ok(())
    }

    const fn content(&self) -> Content {
        match self.plan.mechanism() {
            Mechanism::ExternalBinary => Content::BinarySemaphore,
            _ => Content::Timeline,
        }
    }

    /// True if device queues wait and signal through a native semaphore, in addition to the page.
    const fn is_external(&self) -> bool {
        matches!(
            self.plan.mechanism(),
            Mechanism::ExternalTimeline | Mechanism::ExternalBinary
        )
    }
}

fn no_endpoint(process: Process) -> String {
    format!("there is no endpoint to {process}")
}

fn listed(handles: &[Handle]) -> String {
    let names: Vec<_> = handles.iter().map(|handle| handle.kind.name()).collect();
    names.join(", ")
}
