//! The devices of the machine, and the subjects of rows.

use std::cell::RefCell;
use std::collections::BTreeMap;

use syncline::{
    Device, Error, Found, Inventory,
    info::{BackendKind, QueueFamily},
};
use syncline_conformance::inventory::name_of;
use syncline_conformance::workload::Equipped;

use crate::side::{Outcome, Stop};

/// The kinds of subjects of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// The threads of the host.
    Host,
    /// Each CUDA device.
    Cuda,
    /// Each Vulkan device.
    Vulkan,
    /// Each Vulkan device, once for each kind of its queue families.
    VulkanQueues,
    /// Each CUDA device with each Vulkan device that shares timelines with it natively.
    Shared,
    /// Each device.
    Each,
    /// The host alone, and all devices together.
    Mixed,
}

/// The devices that one row runs on, by their indices in the inventory.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The devices in words, as `syncline conformance` names them.
    pub devices: String,
    /// Their indices.
    pub indices: Vec<usize>,
    /// The Vulkan queue family, if the row depends on it.
    pub family: Option<QueueFamily>,
}

impl Subject {
    /// The devices and the kind of queue, in words.
    pub(crate) fn name(&self) -> String {
        match self.family {
            Some(family) => format!("{}, {}", self.devices, family.kind),
            None => self.devices.clone(),
        }
    }
}

/// The devices of this machine. Each is opened once, when it is first needed.
#[derive(Debug)]
pub struct Machine {
    inventory: Inventory,
    opened: RefCell<BTreeMap<usize, Device>>,
    equipped: RefCell<BTreeMap<usize, Equipped>>,
}

impl Machine {
    /// A machine with the devices of `inventory`.
    #[must_use]
    pub fn new(inventory: Inventory) -> Self {
        Self {
            inventory,
            opened: RefCell::default(),
            equipped: RefCell::default(),
        }
    }

    /// The inventory.
    pub(crate) const fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// The subjects of a row.
    pub(crate) fn subjects(&self, on: On) -> Result<Vec<Subject>, String> {
        match on {
            On::Host => self.each(BackendKind::Host),
            On::Cuda => self.each(BackendKind::Cuda),
            On::Vulkan => self.each(BackendKind::Vulkan),
            On::VulkanQueues => {
                let devices = self.each(BackendKind::Vulkan)?;
                Ok(devices.iter().flat_map(|one| self.by_kind(one)).collect())
            }
            On::Shared => self.shared(),
            On::Each => Ok(self.usable().map(|found| self.alone(found)).collect()),
            On::Mixed => {
                let mut subjects = self.each(BackendKind::Host)?;
                let all: Vec<_> = self.usable().map(|found| self.alone(found)).collect();
                if all.len() > 1 {
                    let names: Vec<_> = all.iter().map(|one| one.devices.as_str()).collect();
                    subjects.push(Subject {
                        devices: names.join(" + "),
                        indices: all.iter().flat_map(|one| one.indices.clone()).collect(),
                        family: None,
                    });
                }
                Ok(subjects)
            }
        }
    }

    fn usable(&self) -> impl Iterator<Item = &Found> {
        let devices = self.inventory.devices().iter();
        devices.filter(|found| found.rejected().is_none())
    }

    fn alone(&self, found: &Found) -> Subject {
        Subject {
            devices: name_of(&self.inventory, found),
            indices: vec![found.index()],
            family: None,
        }
    }

    /// The usable devices of one backend, or the reason why there are none.
    fn each(&self, backend: BackendKind) -> Result<Vec<Subject>, String> {
        let subjects: Vec<_> = self
            .inventory
            .of(backend)
            .map(|found| self.alone(found))
            .collect();
        if subjects.is_empty() {
            return Err(self.absent(backend));
        }
        Ok(subjects)
    }

    /// The reason why there is no usable device of `backend`.
    fn absent(&self, backend: BackendKind) -> String {
        let missing = self.inventory.unavailable().iter().find(
            |error| matches!(error, Error::Unavailable { backend: of, .. } if *of == backend),
        );
        let refused = || {
            let mut found = self.inventory.devices().iter();
            found.find_map(|found| found.rejected().filter(|_| found.info().backend == backend))
        };
        missing.or_else(refused).map_or_else(
            || format!("there is no {backend} device"),
            ToString::to_string,
        )
    }

    /// A Vulkan device for each kind of its queue families, with the first family of that kind.
    fn by_kind(&self, device: &Subject) -> Vec<Subject> {
        let mut subjects: Vec<Subject> = Vec::new();
        for index in &device.indices {
            let info = self.inventory.devices()[*index].info();
            for family in &info.capabilities.queues {
                let known = |one: &Subject| one.family.is_some_and(|of| of.kind == family.kind);
                if !subjects.iter().any(known) {
                    subjects.push(Subject {
                        family: Some(*family),
                        ..device.clone()
                    });
                }
            }
        }
        subjects
    }

    fn shared(&self) -> Result<Vec<Subject>, String> {
        let vulkan = self.each(BackendKind::Vulkan)?;
        let (mut subjects, mut reason) = (Vec::new(), None);
        for left in self.each(BackendKind::Cuda)? {
            for right in &vulkan {
                let indices = [left.indices[0], right.indices[0]];
                let link = || -> Outcome<_> {
                    let [cuda, vulkan] = indices.map(|index| self.device(index));
                    Ok(syncline::share(&cuda?, &vulkan?)?)
                };
                match link() {
                    Ok(_) => subjects.push(Subject {
                        devices: format!("{} -> {}", left.devices, right.devices),
                        indices: indices.into(),
                        family: None,
                    }),
                    Err(stop) => reason = reason.or(Some(stop.to_string())),
                }
            }
        }
        match subjects.is_empty() {
            true => Err(reason.unwrap_or_else(|| "no two devices".into())),
            false => Ok(subjects),
        }
    }

    /// The device with this index.
    pub(crate) fn device(&self, index: usize) -> Outcome<Device> {
        if let Some(device) = self.opened.borrow().get(&index) {
            return Ok(device.clone());
        }
        let devices = self.inventory.devices();
        let found = devices
            .get(index)
            .ok_or_else(|| Stop::Failed(format!("there is no device {index}")))?;
        let device = found.open()?;
        self.opened.borrow_mut().insert(index, device.clone());
        Ok(device)
    }

    /// The device with this index, with work and gates for tests.
    pub(crate) fn equipped(&self, index: usize) -> Outcome<Equipped> {
        if let Some(equipped) = self.equipped.borrow().get(&index) {
            return Ok(equipped.clone());
        }
        let equipped = Equipped::new(self.device(index)?)?;
        self.equipped.borrow_mut().insert(index, equipped.clone());
        Ok(equipped)
    }

    /// The host device of a subject.
    pub(crate) fn host(&self, subject: &Subject) -> Outcome<syncline::host::Device> {
        self.first(subject, |device| match device {
            Device::Host(host) => Some(host),
            #[allow(unreachable_patterns, reason = "reachable with more than one backend")]
            _ => None,
        })
    }

    /// The CUDA device of a subject.
    #[cfg(feature = "cuda")]
    pub(crate) fn cuda(&self, subject: &Subject) -> Outcome<syncline::cuda::Device> {
        self.first(subject, |device| match device {
            Device::Cuda(cuda) => Some(cuda),
            _ => None,
        })
    }

    /// The Vulkan device of a subject.
    #[cfg(feature = "vulkan")]
    pub(crate) fn vulkan(&self, subject: &Subject) -> Outcome<syncline::vulkan::Device> {
        self.first(subject, |device| match device {
            Device::Vulkan(vulkan) => Some(vulkan),
            _ => None,
        })
    }

    fn first<T>(&self, subject: &Subject, of: impl Fn(Device) -> Option<T>) -> Outcome<T> {
        for index in &subject.indices {
            if let Some(found) = of(self.device(*index)?) {
                return Ok(found);
            }
        }
        let none = format!("{} has no such device", subject.devices);
        Err(Stop::Skipped(none))
    }
}
