//! Builds programs of `tests/cases` against the shared library.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The folder of the shared library, which is that of the tests.
pub(crate) fn folder() -> PathBuf {
    let exe = std::env::current_exe().expect("a path");
    exe.parent().expect("a folder").into()
}

/// Lets a program find the shared library.
pub(crate) fn find_library(command: &mut Command) {
    command.env("LD_LIBRARY_PATH", folder());
}

/// Builds a program of `tests/cases`, in C or C++.
pub(crate) fn build(source: &str, arguments: &[&str]) -> PathBuf {
    build_with(source, &format!("case-{source}"), arguments)
}

/// Same as [`build`], with a name of the program.
pub(crate) fn build_with(source: &str, name: &str, arguments: &[&str]) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (compiler, standard) = match source.ends_with(".cpp") {
        true => ("c++", "-std=c++17"),
        false => ("cc", "-std=c11"),
    };
    let output = Command::new(compiler)
        .args([standard, "-D_DEFAULT_SOURCE", "-pedantic", "-g"])
        .args(["-Wall", "-Wextra", "-Werror", "-Iinclude"])
        .arg(format!("tests/cases/{source}"))
        .arg("-o")
        .arg(&program)
        .args([
            &format!("-L{}", folder().display()),
            "-lsyncline_c",
            "-pthread",
        ])
        .args(arguments)
        .current_dir(ROOT)
        .output()
        .expect("a compiler is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    program
}

/// A folder with the software drivers, as `lab/software/README.md` describes it.
pub(crate) fn software(name: &str) -> PathBuf {
    let software = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&software);
    std::fs::create_dir_all(&software).unwrap();
    let cuda = folder().join("libsyncline_software_cuda.so");
    for name in ["libcuda.so.1", "libcuda.so"] {
        std::os::unix::fs::symlink(&cuda, software.join(name)).unwrap();
    }
    let layer = "libsyncline_software_layer.so";
    std::fs::copy(folder().join(layer), software.join(layer)).unwrap();
    let manifest = "VkLayer_syncline_software.json";
    let from = Path::new(ROOT).join("../lab/software/layer").join(manifest);
    std::fs::copy(from, software.join(manifest)).unwrap();
    software
}

/// Runs a program on the drivers in that folder.
pub(crate) fn use_software(command: &mut Command, drivers: &Path) {
    let own = [drivers.to_path_buf(), folder()];
    command
        .env("LD_LIBRARY_PATH", std::env::join_paths(own).unwrap())
        .env_remove("SYNCLINE_CUDA_DRIVER")
        .env("VK_ADD_LAYER_PATH", drivers)
        .env("VK_INSTANCE_LAYERS", "VK_LAYER_SYNCLINE_software");
}
