//! The suite on every device that this project's backends find, and on every pair of devices.

use std::process::ExitCode;

use syncline::backend::Device as _;
use syncline::{Found, Inventory, ProbeOptions, info::BackendKind};

use crate::expected::{Expected, TABLE, expected};
use crate::report::DeviceLine;
use crate::runner::Suite;
use crate::workload::Equipped;
use crate::{Case, Settings, World};

/// The devices of the machine.
#[derive(Debug)]
pub struct Devices {
    inventory: Inventory,
}

/// The devices that one round of the suite runs on, by their numbers in the inventory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sides {
    /// The side that signals first.
    pub left: usize,
    /// The side that waits. The same number if there is one device.
    pub right: usize,
    /// The name of the subject.
    pub name: String,
}

/// Returns every usable device, and every ordered pair of them, for which `are_wanted` is true.
///
/// It gets the numbers of both devices in the inventory, which are the same for a single device.
#[must_use]
pub fn sides(inventory: &Inventory, are_wanted: impl Fn(usize, usize) -> bool) -> Vec<Sides> {
    let devices = inventory.devices();
    let usable = || devices.iter().filter(|found| found.rejected().is_none());
    let mut subjects = Vec::new();
    for found in usable() {
        let (index, name) = (found.index(), name_of(inventory, found));
        let (left, right) = (index, index);
        subjects.push(Sides { left, right, name });
    }
    for left in usable() {
        for right in usable().filter(|right| right.index() != left.index()) {
            let names = [left, right].map(|found| name_of(inventory, found));
            let (left, right, name) = (left.index(), right.index(), names.join(" -> "));
            subjects.push(Sides { left, right, name });
        }
    }
    subjects.retain(|sides| are_wanted(sides.left, sides.right));
    subjects
}

/// Returns how the suite looks for devices.
pub(crate) fn options(settings: &Settings) -> ProbeOptions {
    ProbeOptions {
        validation: settings.validation,
    }
}

impl Devices {
    /// Looks for devices.
    #[must_use]
    pub fn probe(settings: &Settings) -> Self {
        Self {
            inventory: Inventory::probe(&options(settings)),
        }
    }

    /// Uses devices that were found before.
    #[must_use]
    pub const fn new(inventory: Inventory) -> Self {
        Self { inventory }
    }

    /// See [`left_out`].
    #[must_use]
    pub fn left_out(&self) -> Vec<String> {
        left_out(&self.inventory)
    }

    /// The devices of the machine.
    #[must_use]
    pub const fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// Returns the inventory, for more devices to be added.
    #[must_use]
    pub fn into_inventory(self) -> Inventory {
        self.inventory
    }

    /// Returns every device of this project's backends, and every ordered pair of them.
    #[must_use]
    pub fn sides(&self) -> Vec<Sides> {
        let devices = self.inventory.devices();
        let is_own = |index: usize| !matches!(devices[index].info().backend, BackendKind::Other(_));
        sides(&self.inventory, |left, right| is_own(left) && is_own(right))
    }

    /// Opens the device with this number in the inventory, and equips it.
    ///
    /// # Errors
    /// Errors of the backend. [`Error::NoSuchDevice`](syncline::Error::NoSuchDevice), and
    /// [`Error::Unsupported`](syncline::Error::Unsupported) for a device of another project's
    /// backend.
    pub fn device(&self, index: usize) -> syncline::Result<Equipped> {
        let devices = self.inventory.devices();
        let found = devices.get(index).ok_or_else(|| {
            syncline::Error::no_such_device(index.to_string(), format!("{} devices", devices.len()))
        })?;
        let device = found.open()?;
        device.check()?;
        Equipped::new(device)
    }
}

/// Returns the name of a usable device as a subject.
///
/// It has a number if another device has the same name. It says whether the device is software, as
/// does every recorded outcome of it.
#[must_use]
pub fn name_of(inventory: &Inventory, found: &Found) -> String {
    let info = found.info();
    if info.backend == BackendKind::Host {
        return "host".into();
    }
    let same = inventory
        .of(info.backend)
        .filter(|other| other.info().name == info.name);
    let number = if same.count() > 1 {
        format!(" #{}", found.index())
    } else {
        String::new()
    };
    format!("{} {}{number}", info.backend, info.marked_name())
}

/// Lists what is part of no subject, with the reasons: absent backends and refused devices.
#[must_use]
pub fn left_out(inventory: &Inventory) -> Vec<String> {
    let refused = inventory.devices().iter().filter_map(Found::rejected);
    let absent = inventory.unavailable().iter();
    absent.chain(refused).map(ToString::to_string).collect()
}

/// Lists the devices of the machine, for a report.
#[must_use]
pub fn device_lines(inventory: &Inventory) -> Vec<DeviceLine> {
    let line = |found: &Found| {
        let info = found.info();
        DeviceLine {
            index: found.index(),
            backend: info.backend.to_string(),
            name: info.name.clone(),
            uuid: info.uuid.map(|uuid| uuid.to_string()),
            driver: info.driver.clone(),
            software: info.software,
        }
    };
    inventory.devices().iter().map(line).collect()
}

/// Returns every case, for the devices of this project's backends.
#[must_use]
pub fn cases() -> Vec<Case<Equipped>> {
    let mut cases = crate::cases::all();
    cases.extend(crate::cases::devices::cases());
    cases.extend(crate::cases::sharing::cases());
    cases.extend(crate::cases::counters::cases());
    cases.extend(crate::cases::processes::cases());
    #[cfg(feature = "vulkan")]
    cases.extend(crate::cases::handles::cases());
    #[cfg(feature = "vulkan")]
    cases.extend(crate::cases::binaries::cases());
    #[cfg(feature = "vulkan")]
    cases.extend(crate::cases::sync_files::cases());
    #[cfg(feature = "cuda")]
    cases.extend(crate::cases::captures::cases());
    #[cfg(feature = "cuda")]
    cases.extend(crate::cases::slots::cases());
    cases
}

/// Whether a complaint of a validation layer is known to be no defect of the library.
///
/// Layers newer than Debian 12's complain about:
///
/// - The latch of Vulkan work. It is a `VkEvent` that the host sets while a command buffer waits
///   for it. The specification forbids that, but no other command blocks a queue that only
///   transfers, and lavapipe, SwiftShader and NVIDIA's driver support it. The library itself uses
///   no events.
/// - Data that an exported semaphore orders. The layer does not follow the semaphore to its import,
///   and reports a race between queues. The cases check that data arrives in order.
fn is_known(complaint: &str) -> bool {
    complaint.starts_with("VUID-vkSetEvent-event-09543:")
        || (complaint.starts_with("SYNC-HAZARD-") && complaint.contains("-RACING-"))
}

impl Suite for Devices {
    type Subject = Equipped;

    fn subjects(&self) -> Vec<String> {
        self.sides().into_iter().map(|sides| sides.name).collect()
    }

    fn open(&self, subject: &str) -> syncline::Result<World<Equipped>> {
        let sides = self.sides();
        let Some(sides) = sides.iter().find(|sides| sides.name == subject) else {
            return Err(syncline::Error::no_such_device(
                subject,
                self.subjects().join(", "),
            ));
        };
        let left = self.device(sides.left)?;
        if sides.right == sides.left {
            return Ok(World::one(left));
        }
        Ok(World::two(left, self.device(sides.right)?))
    }

    fn cases(&self) -> Vec<Case<Equipped>> {
        cases()
    }

    fn serve_peer(&self, subject: &str) -> Option<ExitCode> {
        let sides = self.sides();
        let sides = sides.iter().find(|sides| sides.name == subject)?;
        Some(crate::peer::serve(self.device(sides.right)))
    }

    fn expected(&self, subject: &str) -> Vec<Expected> {
        let sides = self.sides();
        let sides = sides.iter().find(|sides| sides.name == subject);
        let devices = self.inventory.devices();
        let infos = sides.map(|sides| [sides.left, sides.right].map(|side| devices[side].info()));
        infos.map_or_else(Vec::new, |infos| expected(TABLE, &infos))
    }

    fn complaints(&self) -> Vec<String> {
        let mut said = self.inventory.validation_errors();
        said.retain(|text| !is_known(text));
        said
    }

    fn remarks(&self) -> Vec<String> {
        self.inventory.validation_false_positives()
    }
}
