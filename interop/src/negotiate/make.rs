//! A plan carried out within this process.

use syncline_core::backend::Device as _;
use syncline_core::{Error, Object, Result, SignalOnly, Timeline, WaitOnly};

use super::{Duty, Mechanism, PartyId, Permission, Plan, Process};
use crate::any::Device;

/// What a plan has come to: a timeline, and for each party as much of it as the plan grants.
#[derive(Debug, Clone)]
pub struct Made {
    plan: Plan,
    timeline: Timeline,
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
    /// making: binary semaphores ([`Device::binary_semaphore`] makes them); [`Error::ValueOutOfRange`] for `u64::MAX`;
    /// a driver error.
    pub fn make(&self, label: &str, initial: u64, devices: &[Device]) -> Result<Made> {
        let devices: Vec<&Device> = devices.iter().collect();
        let timeline = self.timeline(label, initial, &devices)?;
        let plan = self.clone();
        Ok(Made { plan, timeline })
    }

    /// What [`Plan::make`] makes, to be used by anybody.
    pub(crate) fn timeline(
        &self,
        label: &str,
        initial: u64,
        devices: &[&Device],
    ) -> Result<Timeline> {
        let refuse = |reason: String| {
            Err(Error::Unsupported {
                object: Object::new("timeline", label),
                asked: format!("be made by {}", self.mechanism()),
                reason,
            })
        };
        let here = Process::this();
        if let Some(other) = self.parties().iter().find(|p| p.id().process != here) {
            return refuse(format!("{other} has to take part, and this is {here}"));
        }
        if self.is_binary() {
            return refuse("a binary semaphore is none".into());
        }
        let find = |id: PartyId| {
            let mut devices = devices.iter().copied();
            devices.find(|device| device.id().get() == id.device)
        };
        let present = |id: PartyId| id.device == 0 || find(id).is_some();
        if let Some(missing) = self.parties().iter().find(|party| !present(party.id())) {
            return refuse(format!(
                "{missing} is not among the devices that were given"
            ));
        }
        let Some(home) = find(self.home().id()) else {
            // Threads among themselves.
            return syncline_core::host::Device::new().timeline_from(label, initial);
        };
        match self.mechanism() {
            Mechanism::SameDevice | Mechanism::Engine => home.timeline_from(label, initial),
            Mechanism::ExternalTimeline => {
                let importing = |duty: Duty| matches!(duty, Duty::Import(_));
                let importers = self.parts().filter(|part| importing(part.duty));
                let importers: Vec<&Device> =
                    importers.filter_map(|part| find(part.party.id())).collect();
                external(home, &importers, label, initial)
            }
            other => refuse(format!("nothing here makes {other}")),
        }
    }
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
            ports.push(match importer {
                #[cfg(feature = "cuda")]
                Device::Cuda(cuda) => cuda.import_timeline(exporter.export()?)?,
                Device::Vulkan(vulkan) => vulkan.import_timeline(exporter.export()?)?,
                Device::Host(_) => continue,
            });
        }
        Ok(ports)
    })
}

#[cfg(not(feature = "vulkan"))]
fn external(home: &Device, _: &[&Device], _: &str, _: u64) -> Result<Timeline> {
    Err(exports_nothing(home))
}

fn exports_nothing(home: &Device) -> Error {
    Error::Unsupported {
        object: home.object().clone(),
        asked: "export a timeline".into(),
        reason: "only Vulkan's devices do".into(),
    }
}

impl Made {
    /// The plan that was carried out.
    #[must_use]
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What the plan grants to `party`: [`Permission`], as a type.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if `party` takes no part in the plan.
    pub fn auto(&self, party: PartyId) -> Result<Granted> {
        let timeline = &self.timeline;
        match self.permission(party, "be used")? {
            Permission::WaitOnly => Ok(Granted::WaitOnly(timeline.wait_only())),
            Permission::SignalOnly => Ok(Granted::SignalOnly(timeline.signal_only())),
            Permission::Both => Ok(Granted::Both(timeline.clone())),
        }
    }

    /// The timeline as `party` may wait for it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the plan does not grant that to `party`.
    pub fn wait_only(&self, party: PartyId) -> Result<WaitOnly> {
        let asked = "be waited for";
        match self.permission(party, asked)? {
            Permission::SignalOnly => {
                Err(self.refuse(party, asked, "the plan lets it signal only"))
            }
            _ => Ok(self.timeline.wait_only()),
        }
    }

    /// The timeline as `party` may signal it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the plan does not grant that to `party`.
    pub fn signal_only(&self, party: PartyId) -> Result<SignalOnly> {
        let asked = "be signalled";
        match self.permission(party, asked)? {
            Permission::WaitOnly => Err(self.refuse(party, asked, "the plan lets it wait only")),
            _ => Ok(self.timeline.signal_only()),
        }
    }

    fn permission(&self, party: PartyId, asked: &str) -> Result<Permission> {
        match self.plan.part(party) {
            Some(part) => Ok(part.permission),
            None => Err(self.refuse(party, asked, "it takes no part in the plan")),
        }
    }

    fn refuse(&self, id: PartyId, asked: &str, reason: &str) -> Error {
        let party = self.plan.part(id).map_or_else(
            || format!("party {} of {}", id.device, id.process),
            |part| part.party.to_string(),
        );
        Error::Unsupported {
            object: self.timeline.object().clone(),
            asked: format!("{asked} by {party}"),
            reason: reason.into(),
        }
    }
}
