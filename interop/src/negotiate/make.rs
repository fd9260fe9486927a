//! Making the timeline of a plan within this process.
#![allow(
    unsafe_code,
    reason = "imports a semaphore that this module has just exported"
)]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use syncline_core::backend::{self, Attachment, Attachments, Sharing};
use syncline_core::clock::Clock;
use syncline_core::{
    Error, Result, SignalOnly, Timeline, WaitOnly,
    error::Object,
    host,
    info::{DeviceId, Info},
};

use super::mechanism::Mechanism;
use super::party::{Needs, Party, PartyId, Process};
use super::plan::{Duty, Permission, Plan};
use crate::any::Device;

/// A device of any backend, with what making a timeline needs. Object-safe.
pub(crate) trait AnyDevice {
    fn id(&self) -> DeviceId;
    fn object(&self) -> &Object;
    fn info(&self) -> &Info;
    fn port(&self, initial: u64) -> Result<Attachment>;
    fn timeline_from(&self, label: &str, initial: u64) -> Result<Timeline>;
    fn clock(&self) -> Result<Clock>;
    fn sharing(&self) -> Option<&dyn Sharing>;
}

impl<D: backend::Device> AnyDevice for D {
    fn id(&self) -> DeviceId {
        backend::Device::id(self)
    }

    fn object(&self) -> &Object {
        backend::Device::object(self)
    }

    fn info(&self) -> &Info {
        backend::Device::info(self)
    }

    fn port(&self, initial: u64) -> Result<Attachment> {
        backend::Device::port(self, initial)
    }

    fn timeline_from(&self, label: &str, initial: u64) -> Result<Timeline> {
        backend::Device::timeline_from(self, label, initial)
    }

    fn clock(&self) -> Result<Clock> {
        backend::Device::clock(self)
    }

    fn sharing(&self) -> Option<&dyn Sharing> {
        backend::Device::sharing(self)
    }
}

impl dyn AnyDevice + '_ {
    /// How the device shares timelines.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if its capabilities promise that and its backend does not do it.
    fn sharer(&self) -> Result<&dyn Sharing> {
        self.sharing().ok_or_else(|| {
            Error::unsupported(
                self.object(),
                "share a timeline",
                "its backend does not do so",
            )
        })
    }

    /// Requires that the device has made a handle for each importer.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if its backend returns another number.
    fn require_handles(&self, made: usize, asked: usize) -> Result<()> {
        if made == asked {
            return Ok(());
        }
        Err(Error::unsupported(
            self.object(),
            format!("export a timeline as {asked} handles"),
            format!("its backend returned {made}"),
        ))
    }
}

/// The timeline of a plan, with the access that the plan grants to each party.
///
/// On a bridge each device has its own timeline.
#[derive(Debug, Clone)]
pub struct Made {
    plan: Plan,
    timelines: Timelines,
    _kept: Option<KeptAlive>,
}

/// What a plan across processes needs for as long as its timeline exists.
#[derive(Clone)]
struct KeptAlive {
    _object: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for KeptAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("across processes")
    }
}

/// The timelines of a plan in this process.
#[derive(Debug, Clone)]
pub(crate) enum Timelines {
    /// One timeline for all parties.
    Single(Timeline),
    /// The sides of a bridge.
    Bridge {
        home: Timeline,
        sides: Vec<(PartyId, Timeline)>,
    },
}

impl Timelines {
    /// The timeline of the plan's home.
    pub(crate) const fn home(&self) -> &Timeline {
        match self {
            Self::Single(timeline) | Self::Bridge { home: timeline, .. } => timeline,
        }
    }

    /// All timelines: the sides of a bridge, then the home.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Timeline> {
        let sides = match self {
            Self::Single(_) => &[][..],
            Self::Bridge { sides, .. } => sides,
        };
        let sides = sides.iter().map(|(_, timeline)| timeline);
        sides.chain([self.home()])
    }
}

/// The access to a timeline that a plan grants to a party.
#[derive(Debug, Clone)]
pub enum Granted {
    /// The party may wait and query.
    WaitOnly(WaitOnly),
    /// The party may signal.
    SignalOnly(SignalOnly),
    /// The party may signal, wait and query.
    Both(Timeline),
}

impl Plan {
    /// Makes the timeline at `initial`, and carries out the duty of each party.
    ///
    /// `devices` must contain the devices of the plan, in any order. Other devices in it are
    /// ignored. If an error occurs, nothing is left behind.
    ///
    /// # Errors
    /// * [`Error::Unsupported`] if a party is in another process, if its device is not in
    ///   `devices`, or if the plan is for a binary semaphore ([`Plan::make_binary`]).
    /// * [`Error::ValueOutOfRange`] for `u64::MAX`.
    /// * A driver error.
    /// * If [`Plan::has_timestamps`] is true, the errors of
    ///   [`Device::clock`](syncline_core::backend::Device::clock) for each device that signals.
    pub fn make(&self, label: &str, initial: u64, devices: &[Device]) -> Result<Made> {
        let devices: Vec<_> = devices.iter().map(|device| device as _).collect();
        let timelines = match self.mechanism() {
            Mechanism::Bridge => self.bridge(label, initial, &devices)?,
            _ => Timelines::Single(self.timeline(label, initial, &devices)?),
        };
        Ok(Made::here(self.clone(), timelines))
    }

    /// Makes a timeline on each device, the home's first.
    fn bridge(&self, label: &str, initial: u64, devices: &[&dyn AnyDevice]) -> Result<Timelines> {
        self.require_present(label, devices)?;
        let home = self.home().id();
        let mut sides: Vec<_> = self
            .parties()
            .iter()
            .filter(|party| party.is_device())
            .collect();
        sides.sort_by_key(|party| party.id() != home);
        let sides = sides
            .iter()
            .filter_map(|side| Some((side.id(), find(devices, side.id())?)));
        let (ids, devices): (Vec<_>, Vec<_>) = sides.unzip();
        let ports = devices.iter().map(|device| device.port(initial));
        let made = Timeline::bridged(label, initial, ports)?;
        let made = made.into_iter().map(|side| self.clocked(side, &devices));
        let made = made.collect::<Result<Vec<_>>>()?;
        let sides: Vec<_> = ids.into_iter().zip(made).collect();
        match sides.first() {
            Some((_, home)) => Ok(Timelines::Bridge {
                home: home.clone(),
                sides,
            }),
            None => Err(self.cannot(label, "it has no side".into())),
        }
    }

    /// Like [`Plan::make`], without checks of permissions. Not for bridges.
    pub(crate) fn timeline(
        &self,
        label: &str,
        initial: u64,
        devices: &[&dyn AnyDevice],
    ) -> Result<Timeline> {
        self.require_present(label, devices)?;
        let home = find(devices, self.home().id());
        let made = match (self.mechanism(), home) {
            (Mechanism::SharedMemory, _) => self.shared_memory(label, initial, devices),
            (Mechanism::SameDevice | Mechanism::Engine, Some(home)) => {
                home.timeline_from(label, initial)
            }
            // All parties are threads.
            (Mechanism::SameDevice, None) => host::Device::new().timeline_from(label, initial),
            (Mechanism::ExternalTimeline, Some(home)) => {
                self.external(label, initial, home, devices)
            }
            (other, _) => Err(self.cannot(label, format!("{other} has no single timeline"))),
        };
        self.clocked(made?, devices)
    }

    /// Enables timestamps of `timeline` if a party needs them.
    ///
    /// The timeline gets the clock of each device of this process that signals it through a port.
    pub(crate) fn clocked(
        &self,
        timeline: Timeline,
        devices: &[&dyn AnyDevice],
    ) -> Result<Timeline> {
        if !self.has_timestamps() {
            return Ok(timeline);
        }
        let here = Process::this();
        let signallers = self
            .parties()
            .iter()
            .filter(|party| party.id().process == here && party.needs().contains(Needs::SIGNAL));
        let clocks = signallers
            .filter_map(|party| find(devices, party.id()))
            .filter(|device| timeline.devices().any(|id| id == device.id()))
            .map(|device| Ok((device.id(), device.clock()?)))
            .collect::<Result<Vec<_>>>()?;
        timeline.clocked(clocks)
    }

    /// Makes a timeline semaphore of `home`, which the other devices import.
    ///
    /// The home port is the exporter's, because the host can read its counter. The host cannot read
    /// the counter of every import.
    fn external(
        &self,
        label: &str,
        initial: u64,
        home: &dyn AnyDevice,
        devices: &[&dyn AnyDevice],
    ) -> Result<Timeline> {
        let imports = |party: &&Party| matches!(self.duty_of(party), Duty::Import(_));
        let importers = self.parties().iter().filter(imports);
        let importers: Vec<_> = importers
            .filter_map(|party| find(devices, party.id()))
            .collect();
        Timeline::new(label, initial, |initial| {
            let (port, handles) = home.sharer()?.export_timeline(initial, importers.len())?;
            home.require_handles(handles.len(), importers.len())?;
            let mut ports = smallvec::smallvec![port];
            for (importer, handle) in importers.into_iter().zip(handles) {
                // SAFETY: the semaphore is new, and this timeline is the only one over it. So all
                // signals of the semaphore have increasing values.
                ports.push(unsafe { importer.sharer()?.import_timeline(handle)? });
            }
            Ok(ports)
        })
    }

    /// Makes a counter in host memory, which the devices with driver queues import. The home port
    /// is the host's.
    fn shared_memory(
        &self,
        label: &str,
        initial: u64,
        devices: &[&dyn AnyDevice],
    ) -> Result<Timeline> {
        let own = self.parties().iter();
        let (importers, hosts): (Vec<_>, Vec<_>) = own
            .filter_map(|party| find(devices, party.id()))
            .partition(|device| device.info().capabilities.driver_queues);
        let new = host::Device::new();
        let host = hosts.first().copied().unwrap_or(&new);
        Timeline::new(label, initial, |initial| {
            let (port, handles) = host.sharer()?.export_counter(initial, importers.len())?;
            host.require_handles(handles.len(), importers.len())?;
            let mut ports: Attachments = smallvec::smallvec![port];
            for (importer, handle) in importers.into_iter().zip(handles) {
                ports.push(importer.sharer()?.import_counter(handle)?);
            }
            Ok(ports)
        })
    }

    /// The kind of the object, as text.
    pub(crate) fn kind(&self) -> &'static str {
        match self.is_binary() {
            true => "binary semaphore",
            false => "timeline",
        }
    }

    pub(super) fn cannot(&self, label: &str, reason: String) -> Error {
        Error::unsupported(
            Object::new(self.kind(), label),
            format!("be made with {}", self.mechanism()),
            reason,
        )
    }

    /// Requires a plan for a timeline, and [`Plan::require_here`].
    fn require_present(&self, label: &str, devices: &[&dyn AnyDevice]) -> Result<()> {
        self.require_here(label, devices)?;
        self.require_timeline(label)
    }

    /// Requires a plan for a timeline.
    pub(crate) fn require_timeline(&self, label: &str) -> Result<()> {
        match self.is_binary() {
            true => Err(self.cannot(
                label,
                "the plan is for a binary semaphore: call Plan::make_binary or make_binary_across"
                    .into(),
            )),
            false => Ok(()),
        }
    }

    /// Requires that all parties are in this process and that `devices` has their devices.
    pub(super) fn require_here(&self, label: &str, devices: &[&dyn AnyDevice]) -> Result<()> {
        let here = Process::this();
        let across = match self.is_binary() {
            true => "make_binary_across",
            false => "make_across",
        };
        let reason = if let Some(other) = self.parties().iter().find(|p| p.id().process != here) {
            format!("{other} is not in this process, which is {here}: call Plan::{across}")
        } else if self.crosses_processes() {
            format!(
                "it may go to another process: add the parties of that process, and call Plan::{across}"
            )
        } else {
            let missing = |party: &&Party| party.is_device() && find(devices, party.id()).is_none();
            match self.parties().iter().find(missing) {
                Some(missing) => format!("{missing} is not among the devices that were given"),
                None => return Ok(()),
            }
        };
        Err(self.cannot(label, reason))
    }
}

/// The device of the party `id`.
pub(super) fn find<'d>(devices: &[&'d dyn AnyDevice], id: PartyId) -> Option<&'d dyn AnyDevice> {
    let mut devices = devices.iter().copied();
    devices.find(|device| device.id().get() == id.device)
}

impl Made {
    /// The result of a plan that this process alone has carried out.
    pub(super) const fn here(plan: Plan, timelines: Timelines) -> Self {
        Self {
            plan,
            timelines,
            _kept: None,
        }
    }

    /// The result of a plan across processes. Keeps `kept` alive.
    pub(crate) fn across(
        plan: Plan,
        timelines: Timelines,
        kept: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        Self {
            plan,
            timelines,
            _kept: kept.map(|object| KeptAlive { _object: object }),
        }
    }

    /// The plan that was carried out.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The access that the plan grants to `party`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the plan does not have `party`, or `party` is in another process.
    pub fn auto(&self, party: PartyId) -> Result<Granted> {
        let timeline = self.timeline(party);
        match self.permission(party, "be used")? {
            Permission::WaitOnly => Ok(Granted::WaitOnly(timeline.wait_only())),
            Permission::SignalOnly => Ok(Granted::SignalOnly(timeline.signal_only())),
            Permission::Both => Ok(Granted::Both(timeline.clone())),
        }
    }

    /// The timeline, as a type that can wait and query.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the plan does not grant this to `party`, or if `party` is in
    /// another process.
    pub fn wait_only(&self, party: PartyId) -> Result<WaitOnly> {
        let asked = "be waited for";
        match self.permission(party, asked)? {
            Permission::SignalOnly => {
                Err(self.refuse(party, asked, "the plan lets it signal only"))
            }
            _ => Ok(self.timeline(party).wait_only()),
        }
    }

    /// The timeline, as a type that can signal.
    ///
    /// # Errors
    /// Same errors as [`Made::wait_only`].
    pub fn signal_only(&self, party: PartyId) -> Result<SignalOnly> {
        let asked = "be signalled";
        match self.permission(party, asked)? {
            Permission::WaitOnly => Err(self.refuse(party, asked, "the plan lets it wait only")),
            _ => Ok(self.timeline(party).signal_only()),
        }
    }

    /// The timeline of `party`. Threads use the home's timeline.
    fn timeline(&self, party: PartyId) -> &Timeline {
        match &self.timelines {
            Timelines::Single(timeline) => timeline,
            Timelines::Bridge { home, sides } => {
                let own = sides.iter().find(|(id, _)| *id == party);
                own.map_or(home, |(_, timeline)| timeline)
            }
        }
    }

    fn permission(&self, party: PartyId, asked: &str) -> Result<Permission> {
        let here = Process::this();
        match self.plan.permission(party) {
            Some(_) if party.process != here => {
                let reason = format!("its access is in its own process, and this is {here}");
                Err(self.refuse(party, asked, &reason))
            }
            Some(permission) => Ok(permission),
            None => Err(self.refuse(party, asked, "it takes no part in the plan")),
        }
    }

    pub(super) fn refuse(&self, id: PartyId, asked: &str, reason: &str) -> Error {
        let party = self.plan.party(id).map_or_else(
            || format!("party {} of {}", id.device, id.process),
            ToString::to_string,
        );
        Error::unsupported(
            self.timeline(id).object(),
            format!("{asked} by {party}"),
            reason,
        )
    }
}
