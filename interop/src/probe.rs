//! The devices of this machine, and why a device or backend cannot be used.

use std::any::{Any, TypeId};
use std::fmt;

use syncline_core::backend::{self, Candidate, Device as _};
use syncline_core::{
    Error, Result,
    error::Object,
    host,
    info::{BackendKind, Info},
};

use crate::any::Device;
#[cfg(feature = "cuda")]
use crate::cuda;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// Options of [`Inventory::probe`].
#[derive(Debug, Clone, Default)]
pub struct ProbeOptions {
    /// Load the Vulkan validation layer. Without that layer, Vulkan then counts as unavailable.
    pub validation: bool,
}

/// A list of every device of every backend.
///
/// Making an inventory opens no device. Inventories are independent of each other.
#[derive(Debug)]
pub struct Inventory {
    found: Vec<Found>,
    unavailable: Vec<Error>,
    #[cfg(feature = "vulkan")]
    vulkan: Option<vulkan::Instance>,
}

/// A device that was found. It may be [rejected](Found::rejected).
#[derive(Debug)]
pub struct Found {
    index: usize,
    candidate: Box<dyn AnyCandidate>,
}

/// A [`Candidate`] without its type.
trait AnyCandidate: fmt::Debug + Send + Sync {
    fn info(&self) -> &Info;
    fn rejected(&self) -> Option<&Error>;
    fn device_type(&self) -> TypeId;
    fn open(&self) -> Result<Box<dyn Any>>;
}

impl<C: Candidate> AnyCandidate for C {
    fn info(&self) -> &Info {
        Candidate::info(self)
    }

    fn rejected(&self) -> Option<&Error> {
        Candidate::rejected(self)
    }

    fn device_type(&self) -> TypeId {
        TypeId::of::<C::Device>()
    }

    fn open(&self) -> Result<Box<dyn Any>> {
        Ok(Box::new(Candidate::open(self)?))
    }
}

/// The host, which is always there.
#[derive(Debug)]
struct Host(host::Device);

impl Candidate for Host {
    type Device = host::Device;

    fn info(&self) -> &Info {
        self.0.info()
    }

    fn open(&self) -> Result<host::Device> {
        Ok(host::Device::new())
    }
}

impl Inventory {
    /// Lists the devices of every backend.
    ///
    /// Never fails. [`Inventory::unavailable`] lists the backends that cannot be used.
    #[must_use]
    pub fn probe(options: &ProbeOptions) -> Self {
        let mut inventory = Self {
            found: Vec::new(),
            unavailable: Vec::new(),
            #[cfg(feature = "vulkan")]
            vulkan: None,
        };
        #[cfg(feature = "cuda")]
        inventory.add_backend(cuda::Driver::load().and_then(|driver| driver.devices()));
        #[cfg(feature = "vulkan")]
        {
            let wanted = vulkan::InstanceOptions {
                validation: options.validation,
                ..vulkan::InstanceOptions::default()
            };
            let loaded = vulkan::Instance::load_with(&wanted);
            let candidates = loaded.and_then(|instance| {
                let candidates = instance.devices()?;
                inventory.vulkan = Some(instance);
                Ok(candidates)
            });
            inventory.add_backend(candidates);
        }
        let _ = options;
        inventory.add(Host(host::Device::new()));
        for (compiled, backend) in [
            (cfg!(feature = "cuda"), BackendKind::Cuda),
            (cfg!(feature = "vulkan"), BackendKind::Vulkan),
        ] {
            if !compiled {
                let reason = format!("built without the feature \"{backend}\"");
                inventory
                    .unavailable
                    .push(Error::unavailable(backend, reason));
            }
        }
        inventory
    }

    /// Adds a device of a backend outside this library. It gets the next index.
    ///
    /// [`Found::open_as`] opens it.
    pub fn add<C: Candidate>(&mut self, candidate: C) {
        self.found.push(Found {
            index: self.found.len(),
            candidate: Box::new(candidate),
        });
    }

    /// Adds the devices of a backend outside this library, or the reason why it cannot be used.
    ///
    /// The devices get the next indices. The reason is an [`Error::Unavailable`] with the backend's
    /// own [`BackendKind::Other`]. [`Inventory::unavailable`] lists it, and [`Inventory::select`]
    /// returns it for the name of the backend.
    pub fn add_backend<C: Candidate>(&mut self, devices: Result<Vec<C>>) {
        match devices {
            Ok(devices) => devices.into_iter().for_each(|device| self.add(device)),
            Err(error) => self.unavailable.push(error),
        }
    }

    /// The devices in the order of their indices: CUDA, Vulkan, the host, then those that were
    /// [added](Inventory::add).
    #[must_use]
    pub fn devices(&self) -> &[Found] {
        &self.found
    }

    /// One error for each backend that cannot be used at all.
    #[must_use]
    pub fn unavailable(&self) -> &[Error] {
        &self.unavailable
    }

    /// The errors that the validation layer has reported so far. Empty without that layer.
    #[must_use]
    pub fn validation_errors(&self) -> Vec<String> {
        #[cfg(feature = "vulkan")]
        if let Some(instance) = &self.vulkan {
            return instance.validation_errors();
        }
        Vec::new()
    }

    /// Reports of the validation layer that are known to be wrong.
    #[must_use]
    pub fn validation_false_positives(&self) -> Vec<String> {
        #[cfg(feature = "vulkan")]
        if let Some(instance) = &self.vulkan {
            return instance.validation_false_positives();
        }
        Vec::new()
    }

    /// The usable devices of one backend.
    pub fn of(&self, backend: BackendKind) -> impl Iterator<Item = &Found> {
        self.found
            .iter()
            .filter(move |f| f.info().backend == backend && f.rejected().is_none())
    }

    /// The device with the index, the backend name or the part of a device name in `asked`.
    ///
    /// If several devices match, returns the first that is usable.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`] with a list of the devices. [`Error::Unavailable`] if `asked` names
    /// an unavailable backend. The error of [`Found::rejected`] if every matching device is
    /// rejected.
    pub fn select(&self, asked: &str) -> Result<&Found> {
        let wanted = asked.to_lowercase();
        let by_index = asked
            .parse()
            .ok()
            .and_then(|index: usize| self.found.get(index));
        let of_backend = |found: &&Found| found.info().backend.name() == wanted;
        let by_name = || {
            self.found
                .iter()
                .filter(|found| found.info().name.to_lowercase().contains(&wanted))
                .min_by_key(|found| found.rejected().is_some())
        };
        let by_backend = || {
            self.found
                .iter()
                .filter(of_backend)
                .min_by_key(|found| found.rejected().is_some())
        };
        let found = by_index
            .or_else(by_backend)
            .or_else(by_name)
            .filter(|_| !wanted.is_empty());
        match found {
            Some(found) => match found.rejected() {
                None => Ok(found),
                Some(error) => Err(error.clone()),
            },
            None => Err(self.no_such_device(asked)),
        }
    }

    /// Opens CUDA and Vulkan on one GPU: the first usable devices that have the same UUID.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if CUDA or Vulkan cannot be used at all. [`Error::NoSuchDevice`] with
    /// a list of the devices if no two of them are one GPU. A driver error.
    #[cfg(all(feature = "cuda", feature = "vulkan"))]
    pub fn pair(&self) -> Result<(cuda::Device, vulkan::Device)> {
        for backend in [BackendKind::Cuda, BackendKind::Vulkan] {
            if self.of(backend).next().is_none() {
                self.select(backend.name())?;
            }
        }
        let vulkan = || self.of(BackendKind::Vulkan);
        let pairs = self
            .of(BackendKind::Cuda)
            .filter_map(|cuda| Some((cuda, vulkan().find(|other| other.is_same_gpu(cuda))?)));
        match { pairs }.next() {
            Some((cuda, vulkan)) => Ok((cuda.open_as()?, vulkan.open_as()?)),
            None => Err(self.no_pair()),
        }
    }

    #[cfg(all(feature = "cuda", feature = "vulkan"))]
    fn no_pair(&self) -> Error {
        let line = |found: &Found| {
            let (info, index) = (found.info(), found.index());
            let of = info.uuid.map(|uuid| format!(" with UUID {uuid}"));
            let of = of.unwrap_or_default();
            format!("{index} {} \"{}\"{of}", info.backend, info.name)
        };
        let (cuda, vulkan) = (self.of(BackendKind::Cuda), self.of(BackendKind::Vulkan));
        let lines: Vec<_> = cuda.chain(vulkan).map(line).collect();
        Error::no_such_device(
            "CUDA and Vulkan on one GPU",
            format!(
                "{}. `connect` takes devices of two GPUs. `syncline doctor` looks for the cause",
                lines.join(", ")
            ),
        )
    }

    fn no_such_device(&self, asked: &str) -> Error {
        // The reason why a backend is unavailable says more than a list of devices.
        let absent = self.unavailable.iter().find(|error| {
            let absent = match error {
                Error::Unavailable { backend, .. } => *backend,
                // Only CUDA cannot be opened again in a forked child.
                Error::MadeBeforeFork { .. } => BackendKind::Cuda,
                _ => return false,
            };
            absent.name() == asked.to_lowercase()
        });
        if let Some(error) = absent {
            return error.clone();
        }
        Error::no_device_among(asked, self.found.iter().map(Found::info))
    }
}

impl Found {
    /// The number of the device in its inventory.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The identity and capabilities of the device.
    #[must_use]
    pub fn info(&self) -> &Info {
        self.candidate.info()
    }

    /// The reason why the device cannot be used, or `None`.
    #[must_use]
    pub fn rejected(&self) -> Option<&Error> {
        self.candidate.rejected()
    }

    /// Opens the device, as a device that is chosen at run time. Each call returns a new, separate
    /// device.
    ///
    /// # Errors
    /// The error of [`Found::rejected`]. [`Error::Unsupported`] for a device that was
    /// [added](Inventory::add), which [`Found::open_as`] opens. A driver error.
    pub fn open(&self) -> Result<Device> {
        if self.is::<host::Device>() {
            return self.open_as().map(Device::Host);
        }
        #[cfg(feature = "cuda")]
        if self.is::<cuda::Device>() {
            return self.open_as().map(Device::Cuda);
        }
        #[cfg(feature = "vulkan")]
        if self.is::<vulkan::Device>() {
            return self.open_as().map(Device::Vulkan);
        }
        self.require_usable()?;
        Err(self.no_type("one of the backends of this library"))
    }

    /// True if its device is of type `D`.
    fn is<D: 'static>(&self) -> bool {
        self.candidate.device_type() == TypeId::of::<D>()
    }

    /// Opens the device with its own type, such as `cuda::Device`.
    ///
    /// Each call returns a new, separate device.
    ///
    /// # Errors
    /// The error of [`Found::rejected`]. [`Error::Unsupported`] if the device is not of type `D`,
    /// which is found before any driver call. A driver error.
    pub fn open_as<D: backend::Device>(&self) -> Result<D> {
        self.require_usable()?;
        let other_type = || {
            // The crate and the type, without private modules between them.
            let path = std::any::type_name::<D>();
            let (first, rest) = path.split_once("::").unwrap_or(("", path));
            let last = rest.rsplit("::").next().unwrap_or(rest);
            self.no_type(&format!("{first}::{last}"))
        };
        if !self.is::<D>() {
            return Err(other_type());
        }
        let opened = self.candidate.open()?.downcast();
        opened.map_or_else(|_| Err(other_type()), |device| Ok(*device))
    }

    #[cfg(all(feature = "cuda", feature = "vulkan"))]
    fn is_same_gpu(&self, other: &Self) -> bool {
        self.info().same_gpu(other.info())
    }

    fn require_usable(&self) -> Result<()> {
        self.rejected().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The device has another type than the caller wants.
    fn no_type(&self, wanted: &str) -> Error {
        let info = self.info();
        Error::unsupported(
            Object::new("device", &info.name),
            format!("be opened as {wanted}"),
            format!("it is a device of the backend {}", info.backend),
        )
    }
}
