//! A plan carried out within this process.
#![allow(unsafe_code, reason = "imports the counters that it exports")]

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use syncline_core::backend::{Attachment, Device as _};
use syncline_core::{Error, Object, Result, SignalOnly, Timeline, WaitOnly, host};

use super::{Duty, Mechanism, Needs, Party, PartyId, Permission, Plan, Process};
use crate::any::Device;

/// What a plan has come to: a timeline, or one for each device, and for each party as much of it as the plan grants.
#[derive(Debug, Clone)]
pub struct Made {
    plan: Plan,
    lines: Lines,
    /// What other processes are known by.
    _across: Option<Across>,
}

#[derive(Clone)]
struct Across {
    _kept: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Across {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("across processes")
    }
}

/// What was made.
#[derive(Debug, Clone)]
pub(crate) enum Lines {
    One(Timeline),
    /// The sides of a bridge.
    Each {
        home: Timeline,
        all: Vec<(PartyId, Timeline)>,
    },
}

impl Lines {
    /// The one that everybody has, or the first side.
    pub(crate) const fn home(&self) -> &Timeline {
        match self {
            Self::One(line) | Self::Each { home: line, .. } => line,
        }
    }

    /// Each, those of devices first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Timeline> {
        let sides = match self {
            Self::One(_) => &[][..],
            Self::Each { all, .. } => all,
        };
        let sides = sides.iter().map(|(_, line)| line);
        sides.chain([self.home()])
    }
}

/// As much of a timeline as a party may have.
#[derive(Debug, Clone)]
pub enum Granted {
    /// It may wait.
    WaitOnly(WaitOnly),
    /// It may signal.
    SignalOnly(SignalOnly),
    /// It may do both.
    Both(Timeline),
}

impl Plan {
    /// Makes the timeline at `initial`, with everything that each party's device has to do for it.
    ///
    /// `devices` are the devices of the plan, in any order; others among them are left alone. Makes everything or nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if a party lives in another process, or its device is not among `devices`, and for what this process has no part in
    /// making: binary semaphores ([`Plan::make_binary`] makes them); [`Error::ValueOutOfRange`] for `u64::MAX`;
    /// a driver error. Where somebody wants to know when values were reached, [`Timeline::is_clocked`], also those of
    /// [`Device::clock`](syncline_core::backend::Device::clock), of each device that signals.
    pub fn make(&self, label: &str, initial: u64, devices: &[Device]) -> Result<Made> {
        let devices: Vec<&Device> = devices.iter().collect();
        let lines = match self.mechanism() {
            Mechanism::Bridge => self.bridge(label, initial, &devices)?,
            _ => Lines::One(self.timeline(label, initial, &devices)?),
        };
        Ok(Made::here(self.clone(), lines))
    }

    /// A timeline on each device.
    fn bridge(&self, label: &str, initial: u64, devices: &[&Device]) -> Result<Lines> {
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
        let all: Vec<_> = ids.into_iter().zip(made).collect();
        match all.first() {
            Some((_, home)) => Ok(Lines::Each {
                home: home.clone(),
                all,
            }),
            None => Err(self.cannot(label, "it has no side".into())),
        }
    }

    /// What [`Plan::make`] makes, to be used by anybody.
    pub(crate) fn timeline(
        &self,
        label: &str,
        initial: u64,
        devices: &[&Device],
    ) -> Result<Timeline> {
        self.require_present(label, devices)?;
        let home = find(devices, self.home().id());
        let made = match (self.mechanism(), home) {
            (Mechanism::SharedMemory, _) => self.shared_memory(label, initial, devices),
            (Mechanism::SameDevice | Mechanism::Engine, Some(home)) => {
                home.timeline_from(label, initial)
            }
            // Threads among themselves.
            (Mechanism::SameDevice, None) => host::Device::new().timeline_from(label, initial),
            (Mechanism::ExternalTimeline, Some(home)) => {
                let importing = |duty: Duty| matches!(duty, Duty::Import(_));
                let importers = self.parts().filter(|part| importing(part.duty));
                let importers: Vec<&Device> = importers
                    .filter_map(|part| find(devices, part.party.id()))
                    .collect();
                external(home, &importers, label, initial)
            }
            (other, _) => Err(self.cannot(label, format!("no one timeline comes of {other}"))),
        };
        self.clocked(made?, devices)
    }

    /// With timestamps, if a party wants them: on the clocks of those of this process that signal by ports of their own.
    pub(crate) fn clocked(&self, line: Timeline, devices: &[&Device]) -> Result<Timeline> {
        if !self.has_timestamps() {
            return Ok(line);
        }
        let here = Process::this();
        let signallers = self
            .parties()
            .iter()
            .filter(|party| party.id().process == here && party.needs().contains(Needs::SIGNAL));
        let clocks = signallers
            .filter_map(|party| find(devices, party.id()))
            .filter(|device| line.devices().any(|id| id == device.id()))
            .map(|device| Ok((device.id(), device.clock()?)))
            .collect::<Result<Vec<_>>>()?;
        line.clocked(clocks)
    }

    /// A counter in memory of the host, which the CUDA devices register. Its home is with the host, whoever asks for it.
    fn shared_memory(&self, label: &str, initial: u64, devices: &[&Device]) -> Result<Timeline> {
        let own = |party: &Party| find(devices, party.id());
        let taking = self.parties().iter().filter_map(own);
        let (hosts, importers): (Vec<_>, Vec<_>) =
            taking.partition(|device| matches!(device, Device::Host(_)));
        let host = match hosts.first() {
            Some(Device::Host(host)) => host.clone(),
            _ => host::Device::new(),
        };
        Timeline::new(label, initial, |initial| {
            let (home, exporter) = host.exportable_port(initial)?;
            let mut ports = smallvec::smallvec![home];
            for importer in importers {
                ports.push(counter_port(importer, &exporter)?);
            }
            Ok(ports)
        })
    }

    /// What is made.
    pub(crate) fn kind(&self) -> &'static str {
        match self.is_binary() {
            true => "binary semaphore",
            false => "timeline",
        }
    }

    pub(super) fn cannot(&self, label: &str, reason: String) -> Error {
        Error::Unsupported {
            object: Object::new(self.kind(), label),
            asked: format!("be made with {}", self.mechanism()),
            reason,
        }
    }

    /// It is a timeline, and everybody is here whose device has a part in it.
    fn require_present(&self, label: &str, devices: &[&Device]) -> Result<()> {
        self.require_here(label, devices)?;
        self.require_timeline(label)
    }

    /// Refuses what needs a plan for a timeline.
    pub(crate) fn require_timeline(&self, label: &str) -> Result<()> {
        match self.is_binary() {
            true => Err(self.cannot(
                label,
                "the plan is for a binary semaphore: Plan::make_binary makes that, or make_binary_across"
                    .into(),
            )),
            false => Ok(()),
        }
    }

    /// Everybody is here whose device has a part in it.
    pub(super) fn require_here(&self, label: &str, devices: &[&Device]) -> Result<()> {
        let here = Process::this();
        let across = match self.is_binary() {
            true => "make_binary_across",
            false => "make_across",
        };
        let reason = if let Some(other) = self.parties().iter().find(|p| p.id().process != here) {
            format!("{other} has to take part, and this is {here}: Plan::{across} is for that")
        } else if self.crosses_processes() {
            format!(
                "it is to leave this process: name who takes part there, and call Plan::{across}"
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

pub(super) fn find<'d>(devices: &[&'d Device], id: PartyId) -> Option<&'d Device> {
    let mut devices = devices.iter().copied();
    devices.find(|device| device.id().get() == id.device)
}

/// A timeline of `home` that is exported once for each importer.
#[cfg(feature = "vulkan")]
fn external(home: &Device, importers: &[&Device], label: &str, initial: u64) -> Result<Timeline> {
    Timeline::new(label, initial, |initial| {
        let Device::Vulkan(vulkan) = home else {
            return Err(exports_nothing(home));
        };
        // The exporter is the home: its counter can be read by the host, not every import can.
        let (port, exporter) = vulkan.exportable_port(initial)?;
        let mut ports = smallvec::smallvec![port];
        for importer in importers {
            // SAFETY: this timeline alone has the counter.
            ports.push(unsafe {
                match importer {
                    #[cfg(feature = "cuda")]
                    Device::Cuda(cuda) => cuda.import_timeline(exporter.export()?)?,
                    Device::Vulkan(vulkan) => vulkan.import_timeline(exporter.export()?)?,
                    Device::Host(_) => continue,
                }
            });
        }
        Ok(ports)
    })
}

#[cfg(not(feature = "vulkan"))]
fn external(home: &Device, _: &[&Device], _: &str, _: u64) -> Result<Timeline> {
    Err(exports_nothing(home))
}

/// What `device` has of a counter in shared memory.
fn counter_port(device: &Device, exporter: &host::Exporter) -> Result<Attachment> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(cuda) => Ok(cuda.import_counter(exporter.export()?)?),
        other => {
            let _ = exporter;
            Err(Error::Unsupported {
                object: other.object().clone(),
                asked: "wait for a counter in shared memory".into(),
                reason: "only CUDA's streams do".into(),
            })
        }
    }
}

fn exports_nothing(home: &Device) -> Error {
    Error::Unsupported {
        object: home.object().clone(),
        asked: "export a timeline".into(),
        reason: "only Vulkan's devices do".into(),
    }
}

impl Made {
    /// What a plan has come to within this process.
    pub(super) const fn here(plan: Plan, lines: Lines) -> Self {
        Self {
            plan,
            lines,
            _across: None,
        }
    }

    /// What this process has of a plan that several have carried out; with `kept`.
    pub(crate) fn across(
        plan: Plan,
        lines: Lines,
        kept: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        Self {
            plan,
            lines,
            _across: kept.map(|kept| Across { _kept: kept }),
        }
    }

    /// The plan that was carried out.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the plan grants to `party`: [`Permission`], as a type.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `party` takes no part in the plan, or lives in another process.
    pub fn auto(&self, party: PartyId) -> Result<Granted> {
        let timeline = self.line(party);
        match self.permission(party, "be used")? {
            Permission::WaitOnly => Ok(Granted::WaitOnly(timeline.wait_only())),
            Permission::SignalOnly => Ok(Granted::SignalOnly(timeline.signal_only())),
            Permission::Both => Ok(Granted::Both(timeline.clone())),
        }
    }

    /// The timeline as `party` may wait for it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the plan does not grant that to `party`, or `party` lives in another process.
    pub fn wait_only(&self, party: PartyId) -> Result<WaitOnly> {
        let asked = "be waited for";
        match self.permission(party, asked)? {
            Permission::SignalOnly => {
                Err(self.refuse(party, asked, "the plan lets it signal only"))
            }
            _ => Ok(self.line(party).wait_only()),
        }
    }

    /// The timeline as `party` may signal it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the plan does not grant that to `party`, or `party` lives in another process.
    pub fn signal_only(&self, party: PartyId) -> Result<SignalOnly> {
        let asked = "be signalled";
        match self.permission(party, asked)? {
            Permission::WaitOnly => Err(self.refuse(party, asked, "the plan lets it wait only")),
            _ => Ok(self.line(party).signal_only()),
        }
    }

    /// The timeline that is `party`'s. Threads have the home's.
    fn line(&self, party: PartyId) -> &Timeline {
        match &self.lines {
            Lines::One(line) => line,
            Lines::Each { home, all } => {
                let own = all.iter().find(|(id, _)| *id == party);
                own.map_or(home, |(_, line)| line)
            }
        }
    }

    fn permission(&self, party: PartyId, asked: &str) -> Result<Permission> {
        let here = Process::this();
        match self.plan.part(party) {
            Some(_) if party.process != here => {
                let reason = format!("that is granted to its own process, and this is {here}");
                Err(self.refuse(party, asked, &reason))
            }
            Some(part) => Ok(part.permission),
            None => Err(self.refuse(party, asked, "it takes no part in the plan")),
        }
    }

    pub(super) fn refuse(&self, id: PartyId, asked: &str, reason: &str) -> Error {
        let party = self.plan.part(id).map_or_else(
            || format!("party {} of {}", id.device, id.process),
            |part| part.party.to_string(),
        );
        Error::Unsupported {
            object: self.line(id).object().clone(),
            asked: format!("{asked} by {party}"),
            reason: reason.into(),
        }
    }
}
