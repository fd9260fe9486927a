//! Timelines that two devices use together: natively on one GPU, through the engine otherwise.

use syncline_core::backend::Device as _;
use syncline_core::{Error, Result, Timeline};

use crate::any::Device;
use crate::buffer::SharedBuffer;
use crate::negotiate::{Mechanism, Needs, Obstacle, Party, Plan, Requirements, list, negotiate};

/// Two devices, and how they synchronize.
#[derive(Debug, Clone)]
pub struct Link {
    left: Device,
    right: Device,
    /// `None`: through the engine.
    native: Option<Plan>,
    why: String,
}

/// Links two devices natively: signals pass from one to the other without the host. So does memory, where one device exports
/// it and the other imports it; [`SharedBuffer::is_relayed`] tells when a buffer is made.
///
/// # Errors
/// [`Error::CannotShare`] if no timeline can be shared, decided by UUIDs and capabilities before any driver is asked to export.
pub fn share<A, B>(left: &A, right: &B) -> Result<Link>
where
    A: Clone + Into<Device>,
    B: Clone + Into<Device>,
{
    let (left, right) = (left.clone().into(), right.clone().into());
    match negotiate(sides(&left, &right, Needs::NATIVE)) {
        Ok(plan) => Ok(Link::native(left, right, plan)),
        Err(conflict) => Err(Error::CannotShare {
            left: describe(&left),
            right: describe(&right),
            what: "timelines",
            reason: reason(conflict.refused()),
        }),
    }
}

/// Links two devices natively if that is the shorter way, else through the engine. [`Link::why`] tells the reason.
pub fn connect<A, B>(left: &A, right: &B) -> Link
where
    A: Clone + Into<Device>,
    B: Clone + Into<Device>,
{
    let (left, right) = (left.clone().into(), right.clone().into());
    let why = match negotiate(sides(&left, &right, Needs::empty())) {
        Ok(plan) if plan.mechanism().is_native() => return Link::native(left, right, plan),
        Ok(plan) => reason(plan.better()),
        // Two devices of a process always have the engine.
        Err(conflict) => reason(conflict.refused()),
    };
    Link {
        left,
        right,
        native: None,
        why,
    }
}

/// Both sides signal and wait.
fn sides(left: &Device, right: &Device, besides: Needs) -> Requirements {
    let needs = Needs::SIGNAL | Needs::WAIT | besides;
    Requirements::from([left, right].map(|side| Party::of(side).needing(needs)))
}

/// What keeps two devices from a native timeline: what keeps one from exporting it to the other.
fn reason(refused: &[(Mechanism, Vec<Obstacle>)]) -> String {
    let mut refused = refused.iter();
    let external = refused.find(|(mechanism, _)| *mechanism == Mechanism::ExternalTimeline);
    external.map_or_else(String::new, |(_, obstacles)| list(obstacles))
}

impl Link {
    fn native(left: Device, right: Device, plan: Plan) -> Self {
        Self {
            left,
            right,
            why: plan.why().to_owned(),
            native: Some(plan),
        }
    }

    /// How the two sides synchronize.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        let native = self.native.as_ref();
        native.map_or(Mechanism::Engine, Plan::mechanism)
    }

    /// Why this mechanism and no other, in words.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// One side.
    #[must_use]
    pub const fn left(&self) -> &Device {
        &self.left
    }

    /// The other side.
    #[must_use]
    pub const fn right(&self) -> &Device {
        &self.right
    }

    /// A timeline at 0 for queues of both sides.
    ///
    /// # Errors
    /// A driver error.
    pub fn timeline(&self, label: &str) -> Result<Timeline> {
        self.timeline_from(label, 0)
    }

    /// A timeline at `initial` for queues of both sides: one counter, whichever side signals.
    ///
    /// # Errors
    /// [`Error::ValueOutOfRange`] for `u64::MAX`; a driver error.
    pub fn timeline_from(&self, label: &str, initial: u64) -> Result<Timeline> {
        match &self.native {
            Some(plan) => plan.timeline(label, initial, &[&self.left, &self.right]),
            None => self.left.timeline_from(label, initial),
        }
    }

    /// Memory that both sides use: one memory if one device exports it and the other imports it, or if the host addresses it; else a buffer
    /// on each device, which the host [relays](SharedBuffer::relay).
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless `bytes` is a positive multiple of 4 that the host can address; a driver error.
    pub fn buffer(&self, bytes: u64) -> Result<SharedBuffer> {
        SharedBuffer::new(self, bytes)
    }
}

/// The device with its number: two may have one name, and one GPU may be opened twice.
fn describe(device: &Device) -> String {
    let (info, number) = (device.info(), device.id().get());
    let uuid = info
        .uuid
        .map_or_else(|| "no UUID".into(), |uuid| uuid.to_string());
    format!("{} {} #{number} ({uuid})", info.backend, info.marked_name())
}

#[cfg(test)]
mod tests {
    use syncline_core::host;

    use super::*;

    #[test]
    fn two_devices_of_one_name_are_told_apart() {
        let devices = [host::Device::new(), host::Device::new()].map(Device::from);
        let told = [&devices[0], &devices[1]].map(describe);
        assert_ne!(told[0], told[1]);
        for (device, told) in devices.iter().zip(told) {
            let number = format!("#{} ", device.id().get());
            assert!(told.contains(&number), "{told}");
        }
    }
}
