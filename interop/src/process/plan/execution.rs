//! One call that carries out a plan: its parties, devices, peers and handles.

use std::time::Duration;

use syncline_core::backend::Device as _;
use syncline_core::{Error, Result, error::Object, handle::HandleKind, host};

use crate::any::Device;
use crate::negotiate::{Duty, Mechanism, Needs, Party, PartyId, Plan, Process};
use crate::process::endpoint::Endpoint;
use crate::process::message::{Content, Handle};
use crate::process::poll::Deadline;

/// One call of this process that carries out a plan together with other processes.
pub(super) struct Execution<'c> {
    plan: &'c Plan,
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
    pub(super) fn new(
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

    pub(super) const fn plan(&self) -> &'c Plan {
        self.plan
    }

    pub(super) const fn label(&self) -> &'c str {
        self.label
    }

    /// The kind of the object, for errors.
    pub(super) const fn kind(&self) -> &'static str {
        self.kind
    }

    pub(super) const fn here(&self) -> Process {
        self.here
    }

    pub(super) const fn devices(&self) -> &'c [Device] {
        self.devices
    }

    pub(super) const fn peers(&self) -> &'c [&'c Endpoint] {
        self.peers
    }

    pub(super) const fn deadline(&self) -> Deadline {
        self.deadline
    }

    pub(super) fn own(&self) -> impl Iterator<Item = &'c Party> {
        let here = self.here;
        let parties = self.plan.parties().iter();
        parties.filter(move |party| party.id().process == here)
    }

    /// The other processes, without duplicates.
    pub(super) fn others(&self) -> Vec<Process> {
        let mut others: Vec<_> = self.plan.parties().iter().map(|p| p.id().process).collect();
        others.retain(|process| *process != self.here);
        others.sort_unstable();
        others.dedup();
        others
    }

    pub(super) fn is_home(&self) -> bool {
        self.plan.home().id().process == self.here
    }

    /// The process that signals.
    pub(super) fn signaller(&self) -> Process {
        let mut parties = self.plan.parties().iter();
        let signals = parties.find(|party| party.needs().contains(Needs::SIGNAL));
        signals.map_or(self.here, |party| party.id().process)
    }

    pub(super) fn device(&self, id: PartyId) -> Option<&'c Device> {
        let mut devices = self.devices.iter();
        devices.find(|device| device.id().get() == id.device)
    }

    /// A host device: one of the plan's own devices if there is one, otherwise a new one.
    pub(super) fn host(&self) -> host::Device {
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
    pub(super) fn peer(&self, process: Process) -> Result<&'c Endpoint> {
        let mut peers = self.peers.iter();
        let peer = peers.find(|peer| *peer.peer() == process);
        peer.copied()
            .ok_or_else(|| self.cannot(no_endpoint(process)))
    }

    pub(super) fn cannot(&self, reason: impl Into<String>) -> Error {
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
    pub(super) fn handles(&self, process: Process) -> Vec<Handle> {
        let page = Handle {
            party: None,
            kind: HandleKind::CounterMemfd,
        };
        let times = Handle {
            party: None,
            kind: HandleKind::WordsMemfd,
        };
        let imports = |party: &Party| match self.plan.duty_of(party) {
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

    pub(super) const fn content(&self) -> Content {
        match self.plan.mechanism() {
            Mechanism::ExternalBinary => Content::BinarySemaphore,
            _ => Content::Timeline,
        }
    }

    /// True if device queues wait and signal through a native semaphore, in addition to the page.
    pub(super) const fn is_external(&self) -> bool {
        matches!(
            self.plan.mechanism(),
            Mechanism::ExternalTimeline | Mechanism::ExternalBinary
        )
    }
}

fn no_endpoint(process: Process) -> String {
    format!("there is no endpoint to {process}")
}
