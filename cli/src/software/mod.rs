//! `--software`: CUDA and Vulkan without a GPU, by the software drivers of this project.
//!
//! Which libraries a process loads is decided by its environment when it starts. So the command
//! runs itself once more, with the software CUDA driver under both names by which programs open
//! one, and with the layer that lets software Vulkan drivers share semaphores. The processes that
//! it starts inherit all of that.

mod child;
#[cfg(any(feature = "cuda", feature = "vulkan"))]
mod libraries;
#[cfg(feature = "vulkan")]
mod vulkan;

use std::env;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use syncline::info::{BackendKind, Info};

use crate::failure::Failure;

/// Set where the software drivers are in use.
const MARK: &str = "SYNCLINE_SOFTWARE";

/// Whether this process runs with the software drivers. `--software` sets that for its children.
pub(crate) fn is_on() -> bool {
    env::var_os(MARK).is_some()
}

/// Runs this command once more with the software drivers, and returns its exit code.
///
/// # Errors
/// A library of this project is missing, or the system refuses a folder or a process. Nothing has
/// run then.
pub(crate) fn run_again() -> Result<ExitCode, Failure> {
    let folder = Folder::create()?;
    let own = env::current_exe().map_err(|error| Failure::Words(error.to_string()))?;
    let mut command = Command::new(&own);
    command.args(env::args_os().skip(1)).env(MARK, "1");
    #[cfg(feature = "cuda")]
    cuda(&mut command, &own, &folder)?;
    #[cfg(feature = "vulkan")]
    vulkan::prepare(&mut command, &own, &folder)?;
    let ended = child::run(&mut command);
    drop(folder);
    ended.map_err(|error| Failure::Words(format!("{} cannot be run: {error}", own.display())))
}

/// Checks what `--software` promises, in the process that it has started.
///
/// # Errors
/// The layer was not found.
pub(crate) fn check() -> Result<(), Failure> {
    #[cfg(feature = "vulkan")]
    vulkan::check()?;
    Ok(())
}

/// Refuses a device that is not a software device.
///
/// # Errors
/// The first such device.
pub(crate) fn refuse_gpus<'i>(devices: impl IntoIterator<Item = &'i Info>) -> Result<(), Failure> {
    let mut devices = devices.into_iter();
    let gpu = devices.find(|info| info.backend != BackendKind::Host && !info.software);
    match gpu {
        None => Ok(()),
        Some(gpu) => Err(Failure::Words(format!(
            "--software uses no GPU, but {} {} was found and does not say that it is software",
            gpu.backend, gpu.name
        ))),
    }
}

/// Makes the process find the software CUDA driver first, under both names.
#[cfg(feature = "cuda")]
fn cuda(command: &mut Command, own: &std::path::Path, folder: &Folder) -> Result<(), Failure> {
    use libraries::{joined, library};

    const PATHS: &str = "LD_LIBRARY_PATH";
    let library = library(own, "libsyncline_software_cuda.so")?;
    // Syncline loads the first name, cudarc the second. Both must get the same library.
    for name in ["libcuda.so.1", "libcuda.so"] {
        folder.link(&library, name)?;
    }
    let paths = [Some(folder.0.clone().into()), env::var_os(PATHS)];
    let driver = folder.0.join("libcuda.so.1");
    command
        .env(PATHS, joined(paths))
        .env(syncline::cuda::Driver::VARIABLE, driver);
    Ok(())
}

/// A folder of this process alone. The drop removes it.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Self, Failure> {
        let process = std::process::id();
        let mut number = 0;
        loop {
            let path = env::temp_dir().join(format!("syncline-software-{process}-{number}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                // Left by an earlier process with the same id that was killed.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && number < 100 => {
                    number += 1;
                }
                Err(error) => return Err(Failure::write(&path)(error)),
            }
        }
    }

    #[cfg(feature = "cuda")]
    fn link(&self, library: &std::path::Path, name: &str) -> Result<(), Failure> {
        let link = self.0.join(name);
        std::os::unix::fs::symlink(library, &link).map_err(Failure::write(&link))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use syncline::backend::Device as _;

    use super::*;

    #[test]
    fn a_gpu_is_refused() {
        let host = syncline::host::Device::new().info().clone();
        let gpu = |software| Info {
            backend: BackendKind::Vulkan,
            software,
            ..host.clone()
        };
        assert!(refuse_gpus([&gpu(true), &host]).is_ok());
        assert!(refuse_gpus([&host, &gpu(false)]).is_err());
    }

    #[test]
    fn a_folder_is_removed_with_its_handle() -> Result<(), Failure> {
        let folder = Folder::create()?;
        let other = Folder::create()?;
        let path = folder.0.clone();
        assert!(path.is_dir() && path != other.0);
        drop(folder);
        assert!(!path.exists());
        Ok(())
    }
}
