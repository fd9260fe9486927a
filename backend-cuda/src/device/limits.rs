//! What a device takes from other APIs, and under which names it says why not.

use syncline_core::{Error, HandleKind, Origin, Result};

use crate::device::open::Device;

/// Under which name a device says why its clock cannot be read.
pub(crate) const CLOCK_LIMIT: &str = "calibrated clock";

/// Under which name a device says why it knows no sync files.
pub(crate) const SYNC_FILES_LIMIT: &str = "sync files";

/// Under which name a device says why it takes no counters in shared memory.
pub(crate) const MEMORY_OPS_LIMIT: &str = "stream memory operations";

/// Under which name a device says why it has no events that other processes can open.
pub(crate) const EVENTS_LIMIT: &str = "interprocess events";

impl Device {
    /// Refuses handles of other GPUs, and of kinds that this one does not take. Drivers do not check the first, and
    /// what comes of it is undefined.
    pub(crate) fn require(
        &self,
        origin: &Origin,
        kind: HandleKind,
        what: &'static str,
    ) -> Result<()> {
        let info = self.info();
        let own = Origin::of(info);
        if own.uuid.is_none() || own.uuid != origin.uuid {
            return Err(Error::CannotShare {
                left: origin.to_string(),
                right: own.to_string(),
                what,
                reason: "an opaque handle works only on the GPU that exported it".into(),
            });
        }
        self.require_kind(kind, what)
    }

    /// Refuses kinds of handles that the device does not take.
    pub(crate) fn require_kind(&self, kind: HandleKind, what: &'static str) -> Result<()> {
        let can = &self.info().capabilities;
        if can.imports.contains(&kind) {
            return Ok(());
        }
        let limit = match kind {
            HandleKind::CounterMemfd => MEMORY_OPS_LIMIT,
            HandleKind::SyncFd => SYNC_FILES_LIMIT,
            _ => "imports",
        };
        let reason = can.limits.iter().find(|(known, _)| *known == limit);
        Err(Error::Unsupported {
            object: self.object().clone(),
            asked: format!("import {what}"),
            reason: reason.map_or_else(
                || "the driver does not offer it".into(),
                |(_, reason)| reason.clone(),
            ),
        })
    }
}
