//! What devices there are, and the reason for each that there is not.

use syncline_core::{BackendKind, Error, Info, Result, backend::Device as _, host};

use crate::any::Device;
#[cfg(feature = "cuda")]
use crate::cuda;
#[cfg(feature = "vulkan")]
use crate::vulkan;

/// How to look for devices.
#[derive(Debug, Clone, Default)]
pub struct ProbeOptions {
    /// Load the Vulkan validation layer; its absence is then an error of the Vulkan backend.
    pub validation: bool,
}

/// Every device of every backend. Making one opens no device; nothing is global, so any number may
/// be made side by side.
#[derive(Debug)]
pub struct Inventory {
    found: Vec<Found>,
    unavailable: Vec<Error>,
    #[cfg(feature = "vulkan")]
    vulkan: Option<vulkan::Instance>,
}

/// A device that was found; it may still be refused, with the reason.
#[derive(Debug)]
pub struct Found {
    index: usize,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Host(host::Device),
    #[cfg(feature = "cuda")]
    Cuda(Box<cuda::Candidate>),
    #[cfg(feature = "vulkan")]
    Vulkan(Box<vulkan::Candidate>),
}

impl Inventory {
    /// Asks every backend. Never fails: a backend that is not there is listed with the reason.
    #[must_use]
    pub fn probe(options: &ProbeOptions) -> Self {
        let mut sources = Vec::new();
        let mut unavailable = Vec::new();
        #[cfg(feature = "cuda")]
        match cuda::Driver::load().and_then(|driver| driver.devices()) {
            Ok(candidates) => {
                sources.extend(candidates.into_iter().map(|c| Source::Cuda(Box::new(c))))
            }
            Err(error) => unavailable.push(error),
        }
        #[cfg(feature = "vulkan")]
        let vulkan = {
            let wanted = vulkan::InstanceOptions {
                validation: options.validation,
                ..vulkan::InstanceOptions::default()
            };
            match vulkan::Instance::load_with(&wanted).and_then(|i| Ok((i.devices()?, i))) {
                Ok((candidates, instance)) => {
                    sources.extend(candidates.into_iter().map(|c| Source::Vulkan(Box::new(c))));
                    Some(instance)
                }
                Err(error) => {
                    unavailable.push(error);
                    None
                }
            }
        };
        let _ = options;
        sources.push(Source::Host(host::Device::new()));
        for (compiled, backend) in [
            (cfg!(feature = "cuda"), BackendKind::Cuda),
            (cfg!(feature = "vulkan"), BackendKind::Vulkan),
        ] {
            if !compiled {
                let reason = format!("built without the feature \"{backend}\"");
                unavailable.push(Error::Unavailable { backend, reason });
            }
        }
        let found = sources.into_iter().enumerate();
        Self {
            found: found
                .map(|(index, source)| Found { index, source })
                .collect(),
            unavailable,
            #[cfg(feature = "vulkan")]
            vulkan,
        }
    }

    /// The devices, in the order of their indices: CUDA's, then Vulkan's, then the host.
    #[must_use]
    pub fn devices(&self) -> &[Found] {
        &self.found
    }

    /// The backends that cannot be used at all, with the reasons.
    #[must_use]
    pub fn unavailable(&self) -> &[Error] {
        &self.unavailable
    }

    /// What the validation layer has complained about so far; empty if it was not asked for.
    #[must_use]
    pub fn validation_errors(&self) -> Vec<String> {
        #[cfg(feature = "vulkan")]
        if let Some(instance) = &self.vulkan {
            return instance.validation_errors();
        }
        Vec::new()
    }

    /// What the validation layer has reported and is known to be wrong about.
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

    /// The device that `asked` means: an index, a backend's name, or a part of a device's name. Of
    /// several, the first that is usable.
    ///
    /// # Errors
    /// [`Error::NoSuchDevice`] with the list of those there are; the reason for which it was refused.
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

    fn no_such_device(&self, asked: &str) -> Error {
        // A backend that is not there at all has its own reason.
        let absent = self.unavailable.iter().find(|error| {
            matches!(error, Error::Unavailable { backend, .. } if backend.name() == asked.to_lowercase())
        });
        if let Some(error) = absent {
            return error.clone();
        }
        let have: Vec<String> = self
            .found
            .iter()
            .map(|found| {
                format!(
                    "{} {} \"{}\"",
                    found.index,
                    found.info().backend,
                    found.info().name
                )
            })
            .collect();
        Error::NoSuchDevice {
            asked: asked.into(),
            have: have.join(", "),
        }
    }
}

impl Found {
    /// Its number in this inventory.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// What it is and what it can do.
    #[must_use]
    pub fn info(&self) -> &Info {
        match &self.source {
            Source::Host(device) => device.info(),
            #[cfg(feature = "cuda")]
            Source::Cuda(candidate) => &candidate.info,
            #[cfg(feature = "vulkan")]
            Source::Vulkan(candidate) => &candidate.info,
        }
    }

    /// Why it cannot be used, if so.
    #[must_use]
    pub fn rejected(&self) -> Option<&Error> {
        match &self.source {
            Source::Host(_) => None,
            #[cfg(feature = "cuda")]
            Source::Cuda(candidate) => candidate.rejected.as_ref(),
            #[cfg(feature = "vulkan")]
            Source::Vulkan(candidate) => candidate.rejected.as_ref(),
        }
    }

    /// Opens it. Opening twice gives two devices.
    ///
    /// # Errors
    /// Why it was rejected; a driver error.
    pub fn open(&self) -> Result<Device> {
        if let Some(error) = self.rejected() {
            return Err(error.clone());
        }
        match &self.source {
            Source::Host(_) => Ok(host::Device::new().into()),
            #[cfg(feature = "cuda")]
            Source::Cuda(candidate) => candidate.open().map(Device::Cuda),
            #[cfg(feature = "vulkan")]
            Source::Vulkan(candidate) => candidate.open().map(Device::Vulkan),
        }
    }
}
