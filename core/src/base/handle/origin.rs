//! The exporter of a handle.

use std::fmt;

use crate::base::info::{Info, Uuid};

/// The exporter of a handle. An import compares it with the importing device before a driver call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The exporting device, in words.
    pub device: String,
    /// The device's UUID.
    pub uuid: Option<Uuid>,
    /// The UUID of the device's driver. `None` for CUDA, whose driver has none.
    pub driver_uuid: Option<Uuid>,
}

impl Origin {
    /// The origin of handles that the device described by `info` exports.
    #[must_use]
    pub fn of(info: &Info) -> Self {
        let device = format!("{} {}", info.backend, info.name);
        Self {
            device,
            uuid: info.uuid,
            driver_uuid: info.driver_uuid,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.uuid {
            Some(uuid) => write!(f, "{} ({uuid})", self.device),
            None => f.write_str(&self.device),
        }
    }
}
