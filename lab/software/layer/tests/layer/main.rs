//! The layer below the real loader and above the installed software drivers.
//!
//! The program runs itself again with the environment in which the loader finds the layer of this
//! build. Without a software driver it skips the cases and says so.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's way to fail")]

mod alone;
mod gpu;
mod image;
mod memory;
mod ownership;
mod pair;
mod peer;
mod refusals;
mod settings;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use gpu::Driver;
use libtest_mimic::{Arguments, Failed, Trial};

/// A case, which runs with each driver.
type Case = fn(&Driver);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == peer::FLAG) {
        peer::run(&arguments[1..]);
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(INSIDE).is_none() {
        return again();
    }
    let mut arguments = Arguments::from_args();
    // The cases count threads and descriptors of the process.
    arguments.test_threads = Some(1);
    let drivers = Driver::all();
    if drivers.is_empty() {
        println!("skipped: the loader finds no software driver (a device of type CPU)");
    }
    let trials = drivers.into_iter().flat_map(|driver| {
        cases().into_iter().map(move |(name, case)| {
            let driver = driver.clone();
            let title = format!("{name} on {}", driver.name);
            Trial::test(title, move || {
                case(&driver);
                Ok::<(), Failed>(())
            })
        })
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn cases() -> Vec<(&'static str, Case)> {
    [
        alone::CASES,
        image::CASES,
        memory::CASES,
        ownership::CASES,
        pair::CASES,
        peer::CASES,
        refusals::CASES,
        settings::CASES,
    ]
    .concat()
}

/// Set in the process whose loader finds the layer.
const INSIDE: &str = "SYNCLINE_LAYER_TEST";

/// Runs this program with a manifest of the layer that lies beside it.
fn again() -> ExitCode {
    let program = std::env::current_exe().unwrap();
    let library = program.with_file_name(syncline_software_layer::LIBRARY);
    assert!(library.exists(), "{} is not built", library.display());
    let directory = Manifest::write(&library);
    let status = Command::new(&program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .env("VK_ADD_LAYER_PATH", &directory.0)
        .env_remove("VK_INSTANCE_LAYERS")
        .status()
        .unwrap();
    drop(directory);
    if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A directory with a manifest, removed when it is dropped.
struct Manifest(PathBuf);

impl Manifest {
    fn write(library: &Path) -> Self {
        let name = format!("syncline-layer-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let text = syncline_software_layer::manifest(library);
        std::fs::write(directory.join("VkLayer_syncline_software.json"), text).unwrap();
        Self(directory)
    }
}

impl Drop for Manifest {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
