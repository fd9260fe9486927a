//! What the checks look at: files, the environment, and the devices that were found.

use std::env;
use std::fs;
use std::path::PathBuf;

use syncline::info::{BackendKind, Info};
use syncline::{Error, Found, Inventory};

use crate::failure::Failure;
use crate::software;

/// Names another folder than `/` in which `dev`, `etc`, `proc`, `run`, `sys` and `usr` are.
///
/// For tests: so a machine can have a defect that it does not have.
const ROOT: &str = "SYNCLINE_DOCTOR_ROOT";

/// What is known of this machine.
pub(super) struct Facts {
    root: PathBuf,
    pub(super) built: Built,
    pub(super) inventory: Inventory,
}

/// The backends of this command.
pub(super) struct Built {
    pub(super) cuda: bool,
    pub(super) vulkan: bool,
}

impl Facts {
    /// Lists the devices. Other facts are read where a check needs them.
    pub(super) fn gather() -> Result<Self, Failure> {
        Ok(Self {
            root: variable(ROOT).unwrap_or_else(|| "/".into()).into(),
            built: Built {
                cuda: cfg!(feature = "cuda"),
                vulkan: cfg!(feature = "vulkan"),
            },
            inventory: crate::probe(false)?,
        })
    }

    /// A file or folder of this machine. `path` is without the leading slash.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Names of the entries of a folder, sorted. Empty if it cannot be read.
    pub(super) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
        names.sort();
        names
    }

    /// The text of a file without white space around it. `None` if it cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.path(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// True if the software drivers are in use, which need no GPU.
    pub(super) fn is_software(&self) -> bool {
        let mut cuda = self.all(BackendKind::Cuda).peekable();
        let has_cuda = cuda.peek().is_some();
        software::is_on() || (has_cuda && cuda.all(|found| found.info().software))
    }

    /// Every device of one backend, also those that cannot be used.
    pub(super) fn all(&self, backend: BackendKind) -> impl Iterator<Item = &Found> {
        let devices = self.inventory.devices().iter();
        devices.filter(move |found| found.info().backend == backend)
    }

    /// True if CUDA lists a device. Then its driver works.
    pub(super) fn has_cuda(&self) -> bool {
        self.all(BackendKind::Cuda).next().is_some()
    }

    /// The Vulkan devices that CUDA could share with: those of NVIDIA, or software for software.
    pub(super) fn wanted_vulkan(&self) -> impl Iterator<Item = &Found> {
        let software = self.is_software();
        let is_wanted = move |info: &Info| info.software == software;
        let is_nvidia = move |info: &Info| software || info.vendor == "NVIDIA";
        self.all(BackendKind::Vulkan)
            .filter(move |found| is_wanted(found.info()) && is_nvidia(found.info()))
    }

    /// True if Vulkan lists such a device. Then its driver works.
    pub(super) fn has_vulkan(&self) -> bool {
        self.wanted_vulkan().next().is_some()
    }

    /// The error of a backend that cannot be used at all.
    pub(super) fn unavailable(&self, asked: BackendKind) -> Option<&Error> {
        let of = |error: &Error| match error {
            Error::Unavailable { backend, .. } => *backend,
            // The CUDA driver works, but cannot list its devices.
            _ => BackendKind::Cuda,
        };
        let mut errors = self.inventory.unavailable().iter();
        errors.find(|error| of(error) == asked)
    }

    /// True in a container.
    pub(super) fn is_in_container(&self) -> bool {
        let marks = [".dockerenv", "run/.containerenv"];
        marks.iter().any(|mark| self.path(mark).exists())
            || variable("container").is_some()
            || variable("KUBERNETES_SERVICE_HOST").is_some()
    }

    /// The version of the loaded kernel module, such as `580.159.04`.
    pub(super) fn module(&self) -> Option<String> {
        if let Some(version) = self.text("sys/module/nvidia/version") {
            return Some(version);
        }
        let text = self.text("proc/driver/nvidia/version")?;
        let is_version = |word: &&str| {
            word.split('.').count() > 1 && word.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        };
        let version = text.split_whitespace().find(is_version);
        Some(version.unwrap_or("of an unknown version").to_owned())
    }

    /// The first part of that version, as packages have it in their names; or `NNN`.
    pub(super) fn series(&self) -> String {
        let version = self.module().unwrap_or_default();
        let series = version.split('.').next().unwrap_or_default();
        let is_number = !series.is_empty() && series.bytes().all(|b| b.is_ascii_digit());
        if is_number { series } else { "NNN" }.to_owned()
    }
}

/// An environment variable that is not empty.
pub(super) fn variable(name: &str) -> Option<String> {
    let value = env::var_os(name)?.to_string_lossy().into_owned();
    Some(value).filter(|value| !value.is_empty())
}

/// The command that gives a container the GPU, for both APIs.
pub(super) const GPUS: &str = "`docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all`";

#[cfg(test)]
mod tests {
    use super::super::checks::{Outcome, run};
    use super::*;

    /// A command with one backend is hard to run from a test of the command with both.
    #[test]
    fn a_backend_that_was_not_built_is_found_first() -> Result<(), Failure> {
        let mut facts = Facts::gather()?;
        facts.built.vulkan = false;
        let results = run(&facts);
        let (_, first) = &results[0];
        assert!(
            matches!(first, Outcome::Found { what, .. } if what.ends_with("without vulkan")),
            "{first:?}"
        );
        let skipped = |(_, outcome): &(_, Outcome)| matches!(outcome, Outcome::Skipped { .. });
        assert!(results[1..].iter().all(skipped));
        Ok(())
    }
}
