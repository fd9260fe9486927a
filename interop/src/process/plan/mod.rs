//! A plan carried out by several processes: each makes its own part, and hands the others what they need for theirs.
//!
//! | file | what is in it |
//! |---|---|
//! | `parts` | what one process makes of a timeline, with or without handles that it was sent |
//! | `line` | a timeline that was made so, while it lives: what becomes of it when the process that signals it is lost |
//! | `memory` | memory that goes with it |
//! | `binary` | a binary semaphore, as each of two processes has it |
//! | `waits` | waits for one that another process signals, and what lets them go if that one dies |

mod binary;
mod line;
mod memory;
mod parts;
mod waits;

use std::time::Duration;

use syncline_core::backend::Device as _;
use syncline_core::{Error, HandleKind, Object, Result, host};

use self::line::Line;
use self::parts::{Own, Received};
use super::Endpoint;
use super::handover::{Handed, hand_over};
use super::message::{Content, Handle, Offer};
use super::socket::Patience;
use crate::any::Device;
use crate::negotiate::{Duty, Made, Mechanism, Needs, Party, PartyId, Plan, Process};

pub(crate) use self::binary::End;
pub(crate) use self::line::Names;
pub(crate) use self::waits::Waits;

impl Plan {
    /// As [`Plan::make`], for a plan whose parties are in several processes: each of them calls this, with its own devices, and has the same timeline
    /// then.
    ///
    /// `peers` are endpoints to the other processes: the one that has the plan's [home](Plan::home) needs one to each of them, the others one
    /// to that. Others among them are left alone. Beside the object a page of shared memory goes along, which tells every process what is
    /// pending, reached and failed (P4); and one more where [timestamps](Plan::has_timestamps) are wanted, which tells when values were reached (M6):
    /// [`Point::time`](syncline_core::Point::time) of a process that does not signal is on the host's clock. If the process that signals dies, the timeline fails everywhere with [`Error::PeerLost`], and queues that its signals
    /// would have released are released. A process that closes its end and lives goes on with its part. A third process that has no endpoint to the one
    /// that signals hears of its death by the page, from one that has: with the same error.
    ///
    /// The right to signal is with the process that does: the others may let go of what is made here, and keep views and points. Of a bridge, for which each process has
    /// timelines of its own, [`Made`] is to be kept; and by who signals, for as long as points of it are sent or received.
    ///
    /// Makes everything or nothing: the call returns once every process has taken its part, and all are told so. Where one cannot, or is lost, or is too late, the home gives
    /// it up: who had taken it by then has nothing, and is told why; who had not waits for the next try. So where one process fails or runs out of time, all try again. What
    /// was given up does not stand in the way then. If the home's own part fails before, the others wait until their time is over.
    ///
    /// # Blocking
    /// Up to `timeout`, for all of it, beside the drivers' calls; [`Duration::ZERO`] looks once, and [`Duration::MAX`] has no end. A process that has taken its part waits half a second at
    /// the least to hear that all have, so it may take a second longer where the home says nothing more. Any thread may call it, and several may at once, for
    /// different labels: each takes what it is to have.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if this process has no party in the plan, or the device of one is not among `devices`, or there is no endpoint to a process that is needed, and
    /// for a plan for a binary semaphore ([`Plan::make_binary_across`] makes it); [`Error::PeerLost`]; [`Error::PeerSilent`] if another process does not do its part in time, or
    /// under another label; [`Error::Import`] if it refuses, with what it says, or has given it up, with why; [`Error::Message`] if it has made something else; [`Error::ValueOutOfRange`] for `u64::MAX`; a
    /// driver error.
    pub fn make_across(
        &self,
        label: &str,
        initial: u64,
        devices: &[Device],
        peers: &[&Endpoint],
        timeout: Duration,
    ) -> Result<Made> {
        let across = Across::new(self, self.kind(), label, devices, peers, timeout)?;
        self.require_timeline(label)?;
        if initial == u64::MAX {
            return Err(Error::ValueOutOfRange {
                timeline: Object::new("timeline", label),
                asked: initial,
                reached: 0,
                largest: u64::MAX - 1,
            });
        }
        across.make(initial).map(|(made, _)| made)
    }
}

/// A plan that this process is about to carry out together with others.
struct Across<'c> {
    plan: &'c Plan,
    /// What is made.
    kind: &'static str,
    label: &'c str,
    here: Process,
    devices: &'c [Device],
    peers: &'c [&'c Endpoint],
    patience: Patience,
}

impl<'c> Across<'c> {
    /// # Errors
    /// This process cannot do its part.
    fn new(
        plan: &'c Plan,
        kind: &'static str,
        label: &'c str,
        devices: &'c [Device],
        peers: &'c [&'c Endpoint],
        timeout: Duration,
    ) -> Result<Self> {
        let across = Self {
            plan,
            kind,
            label,
            here: Process::this(),
            devices,
            peers,
            patience: Patience::of(timeout),
        };
        let own: Vec<&Party> = across.own().collect();
        let missing = own
            .iter()
            .find(|party| party.is_device() && across.device(party.id()).is_none());
        let reason = if own.is_empty() {
            format!("{} has no part in it", across.here)
        } else if plan.is_binary() && plan.has_timestamps() {
            "nobody tells when a binary semaphore was signalled".into()
        } else if let Some(missing) = missing {
            format!("{missing} is not among the devices that were given")
        } else {
            let mut others = match across.is_home() {
                true => across.others(),
                false => vec![plan.home().id().process],
            };
            others.retain(|other| across.peer(*other).is_err());
            match others.first() {
                Some(other) => no_endpoint(*other),
                None => return Ok(across),
            }
        };
        Err(across.cannot(reason))
    }

    fn own(&self) -> impl Iterator<Item = &'c Party> {
        let here = self.here;
        let parties = self.plan.parties().iter();
        parties.filter(move |party| party.id().process == here)
    }

    /// The other processes, each once.
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

    /// The host that makes what is the host's: one of the plan's if there is one here.
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
    /// There is no endpoint to that process.
    fn peer(&self, process: Process) -> Result<&'c Endpoint> {
        let mut peers = self.peers.iter();
        let peer = peers.find(|peer| *peer.peer() == process);
        peer.copied()
            .ok_or_else(|| self.cannot(no_endpoint(process)))
    }

    fn cannot(&self, reason: impl Into<String>) -> Error {
        Error::Unsupported {
            object: Object::new(self.kind, self.label),
            asked: format!("be made with {} across processes", self.plan.mechanism()),
            reason: reason.into(),
        }
    }

    /// The handles that go to `process`: the page, that of times if somebody wants them, and what each of its devices imports besides.
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
            // That of a page it makes itself of the one that all have.
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

    /// The timeline, and of a binary semaphore what the devices of this process have.
    fn make(&self, initial: u64) -> Result<(Made, Vec<End>)> {
        if self.is_home() {
            self.make_at_home(initial)
        } else {
            self.make_elsewhere(initial)
        }
    }

    fn make_at_home(&self, initial: u64) -> Result<(Made, Vec<End>)> {
        let own = Own::make(self, initial)?;
        let counter = own.counter().clone();
        let offers = self.offers(&own, initial)?;
        let numbers: Vec<_> = offers.iter().map(|o| (o.peer, o.offer.number)).collect();
        let ends = own.ends(self)?;
        // First, as whoever is told that all have taken it may send a point of it at once.
        let line = own.line(self, initial)?;
        let made = Line::start(self, line, &counter, &numbers, &ends);
        match hand_over(&offers, self.patience) {
            Ok(()) => Ok((made, ends)),
            Err(error) => {
                // One may have it that was told so before another could not be.
                let cause = format!("not every process has taken it: {error}");
                counter.fail(initial, 0, &cause);
                Err(error)
            }
        }
    }

    /// What goes to everybody else.
    fn offers(&self, own: &Own, initial: u64) -> Result<Vec<Handed<'c>>> {
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
            Ok(Handed { peer, offer, fds })
        };
        others.map(offer).collect()
    }

    fn make_elsewhere(&self, initial: u64) -> Result<(Made, Vec<End>)> {
        let peer = self.peer(self.plan.home().id().process)?;
        let (content, patience) = (self.content(), self.patience);
        peer.take_over(content, self.label, patience, |offer, fds| {
            self.judge(peer, &offer, initial)?;
            let received = Received::open(self, offer.handles, fds)?;
            let (lines, counter, ends) = received.line(self, initial)?;
            // It has failed already, as one does that was given up.
            if counter.check().is_err() {
                return Ok(None);
            }
            // First, as a point of it may be what comes next.
            let made = Line::start(self, lines, &counter, &[(peer, offer.number)], &ends);
            Ok(Some((made, ends)))
        })
    }

    /// Whether that is what this process is to have: the plan says so, and no word of the other side is needed.
    fn judge(&self, peer: &Endpoint, offer: &Offer, initial: u64) -> Result<()> {
        let other = |expected: String, found: String| {
            Err(Error::Message {
                endpoint: peer.object().clone(),
                expected,
                found,
            })
        };
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

    /// True if queues of devices wait and signal through an object of a driver's, beside the page.
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
