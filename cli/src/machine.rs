//! The devices of all backends, and which backend each is of.

use std::cell::RefCell;
use std::ops::Range;
use std::process::ExitCode;

use syncline::backend::{Candidate, Device as _};
use syncline::clock::Clock;
use syncline::error::Object;
use syncline::info::{BackendKind, Info};
use syncline::{Error, Found, Inventory, connect};
use syncline_conformance::expected::{Expected, TABLE, expected};
use syncline_conformance::inventory::{Devices, Sides, sides};
use syncline_conformance::runner::serve;
use syncline_conformance::workload::Equipped;
use syncline_conformance::{Paired, Settings, Subject, Suite, World};
use syncline_demo::Pipeline;

use crate::demo::Run;
use crate::failure::Failure;
use crate::{Checked, ForeignBackend, software};

/// A [`ForeignBackend`] without its types.
pub(crate) trait AnyBackend {
    /// Adds its devices, or the reasons why they cannot be used.
    fn add_to(&self, inventory: &mut Inventory);

    /// Opens a device of the backend and returns its clock.
    fn clock(&self, found: &Found) -> syncline::Result<Clock>;

    /// The suite on devices of the backend.
    fn suite<'m>(&'m self, machine: &'m Machine<'_>, number: usize) -> Box<dyn AnySuite + 'm>;

    /// See [`ForeignBackend::checks`].
    fn checks(&self) -> Vec<Checked>;

    /// Makes the frames of the demo, of which `producer` is a device of the backend.
    fn demo(&self, run: Run<'_>, producer: &Found, consumer: &Found) -> Result<ExitCode, Failure>;
}

/// The type of the devices of a backend.
type DeviceOf<B> = <<B as ForeignBackend>::Subject as Subject>::Device;

impl<B: ForeignBackend> AnyBackend for B {
    fn add_to(&self, inventory: &mut Inventory) {
        let devices = match self.devices() {
            Ok(devices) => devices,
            Err(error) => return inventory.add_backend::<B::Candidate>(Err(error)),
        };
        for device in devices {
            match refusal(device.info()) {
                None => inventory.add(device),
                Some(error) => inventory.add_backend::<B::Candidate>(Err(error)),
            }
        }
    }

    fn clock(&self, found: &Found) -> syncline::Result<Clock> {
        found.open_as::<DeviceOf<B>>()?.clock()
    }

    fn suite<'m>(&'m self, machine: &'m Machine<'_>, number: usize) -> Box<dyn AnySuite + 'm> {
        Box::new(ForeignSuite {
            machine,
            backend: self,
            number,
            complaints: RefCell::default(),
        })
    }

    fn checks(&self) -> Vec<Checked> {
        ForeignBackend::checks(self)
    }

    fn demo(&self, run: Run<'_>, producer: &Found, consumer: &Found) -> Result<ExitCode, Failure> {
        let device: DeviceOf<B> = producer.open_as()?;
        let link = connect(&device, &consumer.open()?);
        run.frames([producer, consumer], &link, |link, view| {
            let waves = self.producer(link.left(), view.field())?;
            Pipeline::relayed(link, view, waves)
        })
    }
}

/// Why a device of a foreign backend is left out, or `None`.
fn refusal(info: &Info) -> Option<Error> {
    let own = [BackendKind::Host, BackendKind::Cuda, BackendKind::Vulkan];
    let name = info.backend.name();
    if own.iter().any(|own| own.name() == name) {
        let reason = format!("{name} is the name of a backend of Syncline");
        let device = Object::new("device", &info.name);
        return Some(Error::unsupported(&device, "be added", reason));
    }
    if software::is_on() && !info.software {
        let reason = format!(
            "--software uses no GPU, and {} does not say that it is software",
            info.name
        );
        return Some(Error::unavailable(info.backend, reason));
    }
    None
}

/// The devices of all backends.
pub(crate) struct Machine<'b> {
    devices: Devices,
    foreign: Vec<(&'b dyn AnyBackend, Range<usize>)>,
}

impl<'b> Machine<'b> {
    /// Adds the devices of `backends` to those of this project.
    pub(crate) fn new(mut inventory: Inventory, backends: &'b [Box<dyn AnyBackend>]) -> Self {
        let mut foreign = Vec::new();
        for backend in backends {
            let first = inventory.devices().len();
            backend.add_to(&mut inventory);
            foreign.push((&**backend, first..inventory.devices().len()));
        }
        Self {
            devices: Devices::new(inventory),
            foreign,
        }
    }

    pub(crate) const fn inventory(&self) -> &Inventory {
        self.devices.inventory()
    }

    /// The number of the foreign backend of a device.
    fn owner(&self, index: usize) -> Option<usize> {
        let mut owned = self.foreign.iter().map(|(_, devices)| devices);
        owned.position(|devices| devices.contains(&index))
    }

    /// The foreign backend of a device.
    pub(crate) fn backend_of(&self, found: &Found) -> Option<&'b dyn AnyBackend> {
        Some(self.foreign[self.owner(found.index())?].0)
    }

    /// The suite on this project's devices.
    pub(crate) const fn own_suite(&self) -> &dyn AnySuite {
        &self.devices
    }

    /// The suite of each foreign backend.
    pub(crate) fn foreign_suites(&self) -> Vec<Box<dyn AnySuite + '_>> {
        let foreign = self.foreign.iter().enumerate();
        let suites = foreign.map(|(number, (backend, _))| backend.suite(self, number));
        suites.collect()
    }

    /// The subjects of a foreign backend: its devices, and pairs with them.
    fn sides(&self, number: usize) -> Vec<Sides> {
        sides(self.inventory(), |left, right| {
            let owners = [self.owner(left), self.owner(right)];
            owners.contains(&Some(number)) && owners.iter().flatten().all(|owner| *owner == number)
        })
    }
}

/// Answers cases of `subject`, in a process that the runner of the suite has started.
///
/// A process for devices of this project alone never asks a foreign backend.
pub(crate) fn answer(backends: &[Box<dyn AnyBackend>], subject: &str) -> ExitCode {
    let devices = Devices::probe(&Settings::from_env());
    if backends.is_empty() || devices.subjects().iter().any(|name| name == subject) {
        return serve(&devices, subject);
    }
    let machine = Machine::new(devices.into_inventory(), backends);
    let foreign = machine.foreign_suites();
    let mut suites = foreign.iter();
    let suite = suites.find(|suite| suite.sides().iter().any(|sides| sides.name == subject));
    suite
        .map_or(machine.own_suite(), |suite| &**suite)
        .answer(subject)
}

/// A suite without the type of its subjects.
pub(crate) trait AnySuite {
    fn sides(&self) -> Vec<Sides>;
    /// The name and the rules of each case.
    fn cases(&self) -> Vec<(&'static str, &'static [&'static str])>;
    fn expected(&self, subject: &str) -> Vec<Expected>;
    fn answer(&self, subject: &str) -> ExitCode;
}

/// A suite whose subjects are devices of an inventory.
trait OnDevices: Suite {
    fn sides(&self) -> Vec<Sides>;
}

impl<L: OnDevices> AnySuite for L {
    fn sides(&self) -> Vec<Sides> {
        OnDevices::sides(self)
    }

    fn cases(&self) -> Vec<(&'static str, &'static [&'static str])> {
        let cases = Suite::cases(self).into_iter();
        cases.map(|case| (case.id, case.rules)).collect()
    }

    fn expected(&self, subject: &str) -> Vec<Expected> {
        Suite::expected(self, subject)
    }

    fn answer(&self, subject: &str) -> ExitCode {
        serve(self, subject)
    }
}

impl OnDevices for Devices {
    fn sides(&self) -> Vec<Sides> {
        Self::sides(self)
    }
}

/// The suite on devices of a foreign backend, alone and in pairs.
struct ForeignSuite<'m, B> {
    machine: &'m Machine<'m>,
    backend: &'m B,
    number: usize,
    complaints: RefCell<Complaints>,
}

/// What the foreign backend and this project's have complained about.
#[derive(Default)]
struct Complaints {
    all: Vec<String>,
    /// How many are of each.
    known: [usize; 2],
}

impl<B: ForeignBackend> ForeignSuite<'_, B> {
    fn find(&self, subject: &str) -> syncline::Result<Sides> {
        let all = OnDevices::sides(self);
        let names = || {
            all.iter()
                .map(|sides| sides.name.as_str())
                .collect::<Vec<_>>()
        };
        let found = all.iter().find(|sides| sides.name == subject);
        let none = || Error::no_such_device(subject, names().join(", "));
        found.cloned().ok_or_else(none)
    }

    fn side(&self, index: usize) -> syncline::Result<Paired<B::Subject, Equipped>> {
        let Some(number) = self.machine.owner(index) else {
            return Ok(Paired::right(self.machine.devices.device(index)?));
        };
        debug_assert_eq!(number, self.number);
        let device: DeviceOf<B> = self.machine.inventory().devices()[index].open_as()?;
        device.check()?;
        Ok(Paired::left(self.backend.subject(device)?))
    }
}

impl<B: ForeignBackend> OnDevices for ForeignSuite<'_, B> {
    fn sides(&self) -> Vec<Sides> {
        self.machine.sides(self.number)
    }
}

impl<B: ForeignBackend> Suite for ForeignSuite<'_, B> {
    type Subject = Paired<B::Subject, Equipped>;

    fn subjects(&self) -> Vec<String> {
        let sides = OnDevices::sides(self).into_iter();
        sides.map(|sides| sides.name).collect()
    }

    fn open(&self, subject: &str) -> syncline::Result<World<Self::Subject>> {
        let Sides { left, right, .. } = self.find(subject)?;
        let first = self.side(left)?;
        if left == right {
            return Ok(World::one(first));
        }
        Ok(World::two(first, self.side(right)?))
    }

    fn expected(&self, subject: &str) -> Vec<Expected> {
        let mut all = self.backend.expected(subject);
        if let Ok(Sides { left, right, .. }) = self.find(subject) {
            let devices = self.machine.inventory().devices();
            all.extend(expected(
                TABLE,
                &[left, right].map(|index| devices[index].info()),
            ));
        }
        all
    }

    fn complaints(&self) -> Vec<String> {
        let lists = [self.backend.complaints(), self.machine.devices.complaints()];
        let mut complaints = self.complaints.borrow_mut();
        let Complaints { all, known } = &mut *complaints;
        // Both lists grow, and so must be appended to in the order of time.
        for (list, known) in lists.iter().zip(known) {
            all.extend_from_slice(list.get(*known..).unwrap_or_default());
            *known = list.len();
        }
        all.clone()
    }

    fn remarks(&self) -> Vec<String> {
        self.machine.devices.remarks()
    }
}
