//! Two CUDA drivers in one process: cudarc's and ours.
//!
//! Which library a name leads to is decided when a process starts. So each test starts this program
//! once more, with a folder of libraries.
#![allow(clippy::unwrap_used, reason = "a test's")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use cudarc::driver::CudaContext;
use syncline_core::backend::Device as _;
use syncline_core::{Error, info::Uuid};
use syncline_cuda::{Device, Driver};

/// The software CUDA driver, which cargo has built beside this program.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.with_file_name("libsyncline_software_cuda.so")
}

fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    // Fails if it was not there.
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    symlink(library(), path.join("libcuda.so.1")).unwrap();
    path
}

/// Runs one of the ignored tests in a process that looks for libraries in `folder` first.
fn runs(test: &str, folder: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("LD_LIBRARY_PATH", folder)
        .env_remove(Driver::VARIABLE);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{test}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn both_names_of_one_library_are_one_driver() {
    let folder = folder("one-driver");
    symlink(library(), folder.join("libcuda.so")).unwrap();
    runs("one_driver_adopts", &folder);
}

#[test]
fn two_libraries_are_two_drivers() {
    let folder = folder("two-drivers");
    // Another file is another library to the system, whatever is in it.
    fs::copy(library(), folder.join("libcuda.so")).unwrap();
    runs("two_drivers_do_not", &folder);
}

#[test]
fn an_ordinal_is_found_without_a_context() {
    runs("ordinals_need_no_context", &folder("ordinals"));
}

#[test]
#[ignore = "runs in a process of its own"]
fn ordinals_need_no_context() {
    let driver = Driver::load().unwrap();
    let devices = driver.devices().unwrap();
    let uuids: Vec<_> = devices.iter().map(|it| it.info.uuid.unwrap()).collect();
    assert_eq!(uuids.len(), 2);
    for (ordinal, uuid) in uuids.iter().enumerate() {
        assert_eq!(driver.ordinal_of(*uuid).unwrap(), ordinal);
    }
    let none = Uuid([7; 16]);
    let refused = driver.ordinal_of(none).unwrap_err();
    assert!(matches!(refused, Error::NoSuchDevice { .. }), "{refused:?}");
    let text = refused.to_string();
    for uuid in uuids.iter().chain([&none]) {
        assert!(text.contains(&uuid.to_string()), "no {uuid} in: {text}");
    }
    assert_eq!(live_objects(), 0);
    // The count is of this driver, and counts a context.
    let device = Device::open(1).unwrap();
    assert_eq!(device.info().uuid, Some(uuids[1]));
    assert!(live_objects() > 0);
}

/// The objects that the software driver has made and not destroyed.
#[allow(unsafe_code, reason = "calls a function of the software driver")]
fn live_objects() -> u64 {
    // SAFETY: the library is loaded already, and the function is declared so.
    unsafe {
        let library = libloading::Library::new("libcuda.so.1").unwrap();
        let count = library.get::<unsafe extern "C" fn() -> u64>(b"synclineSoftwareLiveObjects");
        count.unwrap()()
    }
}

#[test]
#[ignore = "runs in a process of its own"]
fn one_driver_adopts() {
    let device = Driver::load().unwrap().devices().unwrap()[0]
        .open()
        .unwrap();
    let context = CudaContext::new(0).unwrap();
    let adopted = Device::adopt(&context).unwrap();
    assert_eq!(adopted.raw_context(), device.raw_context());
}

#[test]
#[ignore = "runs in a process of its own"]
fn two_drivers_do_not() {
    let own = Driver::load().unwrap().devices().unwrap()[0]
        .open()
        .unwrap();
    // Nothing else has a driver yet, so there is no doubt.
    // SAFETY: the legacy default stream always lives.
    #[allow(unsafe_code, reason = "takes a raw stream")]
    let stream = || unsafe { own.adopt_raw_stream(std::ptr::null_mut(), None, "legacy") };
    assert!(stream().is_ok());
    let context = CudaContext::new(0).unwrap();
    for refused in [Device::adopt(&context).map(drop), stream().map(drop)] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("two CUDA drivers"), "{text}");
        for library in [
            "two-drivers/libcuda.so.1 is used",
            "two-drivers/libcuda.so is loaded",
        ] {
            assert!(text.contains(library), "no {library:?} in: {text}");
        }
    }
}
