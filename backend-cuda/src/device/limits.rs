//! Import checks of a device, and the names of limits in its capabilities.

use syncline_core::{
    Error, Result,
    handle::{HandleKind, Origin},
};

use crate::device::open::Device;

/// The limit with the reason why the clock cannot be read.
pub(crate) const CLOCK_LIMIT: &str = "calibrated clock";

/// The limit with the reason why the device imports no sync files.
pub(crate) const SYNC_FILES_LIMIT: &str = "sync files";

/// The limit with the reason why the device imports no counters in shared memory.
pub(crate) const MEMORY_OPS_LIMIT: &str = "stream memory operations";

/// The limit with the reason why the device exports no memory.
pub(crate) const MEMORY_LIMIT: &str = "exporting memory";

/// The limit with the reason why the device has no interprocess events.
pub(crate) const EVENTS_LIMIT: &str = "interprocess events";

impl Device {
    /// Rejects handles of other GPUs, and handles of kinds that this device does not import.
    ///
    /// Drivers do not check the GPU, and using such a handle is undefined behaviour.
    pub(crate) fn require(
        &self,
        origin: &Origin,
        kind: HandleKind,
        what: &'static str,
    ) -> Result<()> {
        let info = self.info();
        let own = Origin::of(info);
        if own.uuid.is_none() || own.uuid != origin.uuid {
            return Err(Error::cannot_share(
                origin.to_string(),
                own.to_string(),
                what,
                "an opaque handle works only on the GPU that exported it",
                None,
            ));
        }
        self.require_kind(kind, "imports", what)
    }

    /// Rejects the export of kinds that this device does not export.
    pub(crate) fn require_export(&self, kind: HandleKind, asked: &'static str) -> Result<()> {
        let can = &self.info().capabilities;
        if can.exports.contains(&kind) {
            return Ok(());
        }
        let reason = can.limits.iter().find(|(name, _)| *name == MEMORY_LIMIT);
        let reason = reason.map_or("the driver does not offer it", |(_, reason)| reason);
        Err(Error::unsupported(self.object(), asked, reason))
    }

    /// Rejects handles of kinds that this device does not import.
    ///
    /// `limit` is the name of the limit that says why.
    pub(crate) fn require_kind(
        &self,
        kind: HandleKind,
        limit: &'static str,
        what: &'static str,
    ) -> Result<()> {
        let can = &self.info().capabilities;
        if can.imports.contains(&kind) {
            return Ok(());
        }
        let reason = can.limits.iter().find(|(name, _)| *name == limit);
        Err(Error::unsupported(
            self.object(),
            format!("import {what}"),
            reason.map_or_else(
                || "the driver does not offer it".into(),
                |(_, reason)| reason.clone(),
            ),
        ))
    }
}
