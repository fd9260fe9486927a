//! The Vulkan side of `--software`: the layer, and no driver of a GPU.
#![allow(unsafe_code, reason = "loads the Vulkan loader")]

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use syncline::vulkan::ash::{Entry, vk};
use syncline_software_layer::{LAYER_NAME, LIBRARY, manifest};

use super::Folder;
use super::libraries::{joined, library};
use crate::failure::Failure;
use crate::output::complain;

/// The first loader that selects drivers by the names of their manifests.
const OLDEST: u32 = vk::make_api_version(0, 1, 3, 234);

/// Parts of the file names of the manifests of lavapipe and SwiftShader.
const DRIVERS: [&str; 2] = ["lvp_icd", "swiftshader"];

/// Lets the process load the layer, and only software drivers.
///
/// Does nothing without a loader. The inventory then says what to install.
pub(super) fn prepare(command: &mut Command, own: &Path, folder: &Folder) -> Result<(), Failure> {
    const LAYERS: &str = "VK_INSTANCE_LAYERS";
    let library = library(own, LIBRARY)?;
    match version() {
        Some(version) if version < OLDEST => {
            let words = |version| {
                let (minor, patch) = (
                    vk::api_version_minor(version),
                    vk::api_version_patch(version),
                );
                format!("1.{minor}.{patch}")
            };
            complain(format_args!(
                "note: --software leaves Vulkan out: the Vulkan loader is {}, and {} is needed to keep it from GPUs",
                words(version),
                words(OLDEST)
            ));
            for drivers in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
                command.env(drivers, folder.0.join("none.json"));
            }
            command.env_remove("VK_ADD_DRIVER_FILES");
            return Ok(());
        }
        _ => {}
    }
    let file = folder.0.join("syncline_software_layer.json");
    fs::write(&file, manifest(&library)).map_err(Failure::write(&file))?;
    // The loader does not read the second variable where the first is set.
    let paths = match env::var_os("VK_LAYER_PATH") {
        Some(path) if !path.is_empty() => "VK_LAYER_PATH",
        _ => "VK_ADD_LAYER_PATH",
    };
    command
        .env(
            paths,
            joined([env::var_os(paths), Some(folder.0.clone().into())]),
        )
        .env(
            LAYERS,
            joined([
                env::var_os(LAYERS),
                Some(OsStr::from_bytes(LAYER_NAME.to_bytes()).into()),
            ]),
        )
        .env(
            "VK_LOADER_DRIVERS_SELECT",
            DRIVERS.map(|name| format!("*{name}*")).join(","),
        );
    // The loader does not read the second variable where the first is set.
    let lists = ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"].into_iter();
    let list = lists.filter(|list| env::var_os(list).is_some()).take(1);
    for variable in list.chain(["VK_ADD_DRIVER_FILES"]) {
        for path in left_out(&env::var_os(variable).unwrap_or_default()) {
            complain(format_args!(
                "note: --software leaves out the Vulkan driver {} of {variable}: it takes manifests that have {} in their names",
                path.display(),
                DRIVERS.join(" or ")
            ));
        }
    }
    Ok(())
}

/// Returns the manifests of a list that the loader does not open. A folder may contain others.
fn left_out(manifests: &OsStr) -> Vec<PathBuf> {
    let paths = env::split_paths(manifests).filter(|path| !path.as_os_str().is_empty());
    let is_left_out = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        !path.is_dir() && !DRIVERS.iter().any(|driver| name.contains(driver))
    };
    paths.filter(is_left_out).collect()
}

/// The version of the Vulkan loader, if there is one.
fn version() -> Option<u32> {
    // SAFETY: the loader's initializers are trusted, as they are by every Vulkan program.
    let loader = unsafe { Entry::load() }.ok()?;
    // SAFETY: no preconditions. Opens no driver.
    let version = unsafe { loader.try_enumerate_instance_version() }.ok()?;
    Some(version.unwrap_or(vk::API_VERSION_1_0))
}

/// Checks that the loader, if there is one, has found the layer.
///
/// # Errors
/// It has not.
pub(super) fn check() -> Result<(), Failure> {
    // SAFETY: as in `version`.
    let Ok(loader) = (unsafe { Entry::load() }) else {
        return Ok(());
    };
    if version().is_none_or(|version| version < OLDEST) {
        return Ok(());
    }
    // SAFETY: no preconditions.
    let layers = unsafe { loader.enumerate_instance_layer_properties() }.unwrap_or_default();
    let mut names = layers.iter().map(|layer| layer.layer_name_as_c_str());
    if names.any(|name| name.is_ok_and(|name| name == LAYER_NAME)) {
        return Ok(());
    }
    Err(Failure::Words(format!(
        "the Vulkan loader does not find the layer {}, so CUDA and Vulkan could not share semaphores; VK_LOADER_DEBUG=layer shows \
         what it has looked for",
        LAYER_NAME.to_string_lossy()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_of_another_name_is_left_out() {
        let folder = env::temp_dir();
        let list = format!(
            "/a/lvp_icd.x86_64.json:/b/vk_swiftshader_icd.json::/swiftshader/mine.json:{}",
            folder.display()
        );
        let left: Vec<_> = left_out(OsStr::new(&list));
        assert_eq!(left, [PathBuf::from("/swiftshader/mine.json")]);
        assert!(left_out(OsStr::new("")).is_empty());
    }
}
