//! The environment in which a process finds the software drivers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use crate::server;
use syncline_software_layer::{LAYER_NAME, LIBRARY, manifest};

/// A folder with the drivers, for child processes. The drop removes it.
pub(crate) struct Drivers {
    folder: PathBuf,
    layer: PathBuf,
    /// The time limit of a run in seconds, if it is not the usual one.
    limit: Option<usize>,
    /// Instead of lavapipe.
    swiftshader: bool,
}

impl Drivers {
    /// # Errors
    /// A driver's library is not where cargo puts it, or the system's error.
    pub(crate) fn prepare(limit: Option<usize>, swiftshader: bool) -> Result<Self, String> {
        let own = env::current_exe().map_err(|error| error.to_string())?;
        let cuda = library(&own, "libsyncline_software_cuda.so")?;
        let layer = library(&own, LIBRARY)?;
        let folder = env::temp_dir().join(format!("syncline-faults-{}", std::process::id()));
        let made = (|| -> io::Result<()> {
            fs::create_dir_all(&folder)?;
            for name in ["libcuda.so.1", "libcuda.so"] {
                std::os::unix::fs::symlink(&cuda, folder.join(name))?;
            }
            fs::write(folder.join("layer.json"), manifest(&layer))
        })();
        made.map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Self {
            folder,
            layer,
            limit,
            swiftshader,
        })
    }

    /// Lets a child process find the drivers.
    pub(crate) fn apply(&self, command: &mut Command) {
        let own = self.folder.clone().into_os_string();
        let (manifest, device) = match self.swiftshader {
            true => ("*swiftshader_icd*", "swiftshader"),
            false => ("*lvp_icd*", "lavapipe"),
        };
        if let Some(limit) = self.limit {
            command.env(server::LIMIT_VARIABLE, limit.to_string());
        }
        command
            .env("LD_LIBRARY_PATH", before("LD_LIBRARY_PATH", &own))
            .env("SYNCLINE_CUDA_DRIVER", self.folder.join("libcuda.so.1"))
            .env("SYNCLINE_SOFTWARE_CUDA_DEVICES", device)
            .env("SYNCLINE_FAULTS_LAYER", &self.layer)
            .env("SYNCLINE_SOFTWARE_LAYER_GATE", "1")
            .env("VK_ADD_LAYER_PATH", before("VK_ADD_LAYER_PATH", &own))
            .env(
                "VK_INSTANCE_LAYERS",
                OsString::from(LAYER_NAME.to_string_lossy().as_ref()),
            )
            .env("VK_LOADER_DRIVERS_SELECT", manifest)
            // Mesa's layer below calls functions of the layer above it.
            .env("NODEVICE_SELECT", "1");
    }
}

impl Drop for Drivers {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn library(own: &Path, name: &str) -> Result<PathBuf, String> {
    let folder = own.parent().unwrap_or(Path::new("."));
    let places = [folder.join("deps").join(name), folder.join(name)];
    let found = places.into_iter().find(|place| place.is_file());
    found.ok_or_else(|| format!("no {name} beside {}", own.display()))
}

/// A list of paths with `own` before what the environment has.
fn before(variable: &str, own: &OsString) -> OsString {
    let mut list = own.clone();
    if let Some(more) = env::var_os(variable).filter(|more| !more.is_empty()) {
        list.push(":");
        list.push(more);
    }
    list
}
