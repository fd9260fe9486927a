//! `syncline doctor`: each finding, with its defect produced, and a machine in order.
#![allow(clippy::expect_used, reason = "a test may panic")]
#![allow(unsafe_code, reason = "drops capabilities of a child")]

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rstest::rstest;
use serde_json::Value;

use super::usage::{ends_with, json, scratch};

/// A machine with an NVIDIA GPU as far as files tell, and the command that examines it.
///
/// The drivers are those of the machine that runs the test: a CUDA driver in software that does
/// not start, and no Vulkan driver of NVIDIA.
struct Machine {
    root: PathBuf,
    command: Command,
}

const PCI: &str = "sys/bus/pci/devices/0000:01:00.0";
const MANIFEST: &str = "usr/share/vulkan/icd.d/nvidia_icd.json";
const NODE: &str = "dev/dri/renderD128";
const FAIL: &str = "SYNCLINE_SOFTWARE_CUDA_FAIL";
const HIDE: &str = "SYNCLINE_SOFTWARE_LAYER_HIDE";
const LACKS: &str = "SYNCLINE_SOFTWARE_CUDA_LACKS";
const VERSION: &str = "SYNCLINE_SOFTWARE_CUDA_VERSION";

/// Variables of the test's own environment that would change a result.
const OTHERS: [&str; 24] = [
    "CUDA_VISIBLE_DEVICES",
    "KUBERNETES_SERVICE_HOST",
    "NVIDIA_DRIVER_CAPABILITIES",
    "NVIDIA_VISIBLE_DEVICES",
    "SYNCLINE_CUDA_DRIVER",
    "SYNCLINE_SOFTWARE",
    "SYNCLINE_SOFTWARE_CUDA_BUG",
    "SYNCLINE_SOFTWARE_CUDA_DEVICES",
    "SYNCLINE_SOFTWARE_LAYER_BUG",
    "VK_ADD_DRIVER_FILES",
    "VK_DRIVER_FILES",
    "VK_ICD_FILENAMES",
    "VK_INSTANCE_LAYERS",
    "VK_LOADER_DRIVERS_DISABLE",
    "VK_LOADER_DRIVERS_SELECT",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "XDG_DATA_DIRS",
    "XDG_DATA_HOME",
    "container",
    FAIL,
    HIDE,
    LACKS,
    VERSION,
];

impl Machine {
    fn new(name: &str, arguments: &[&str]) -> Self {
        let root = scratch(&format!("doctor-{name}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
        command
            .arg("doctor")
            .args(arguments)
            .env("SYNCLINE_DOCTOR_ROOT", &root);
        for variable in OTHERS {
            command.env_remove(variable);
        }
        command.env("HOME", &root);
        let machine = Self { root, command };
        for (path, text) in [
            (&*format!("{PCI}/vendor"), "0x10de\n"),
            (&*format!("{PCI}/class"), "0x030200\n"),
            ("sys/module/nvidia/version", "580.159.04\n"),
            ("dev/nvidia0", ""),
            ("dev/nvidiactl", ""),
            ("dev/nvidia-uvm", ""),
            (NODE, ""),
            ("etc/group", "root:x:0:\nvideo:x:44:\n"),
            // A library that every machine has.
            (MANIFEST, r#"{"ICD": {"library_path": "libm.so.6"}}"#),
        ] {
            machine.write(path, text);
        }
        machine
    }

    fn write(&self, path: &str, text: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, text).expect("a file");
        path
    }

    fn remove(&self, path: &str) {
        let path = self.root.join(path);
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.expect("there was one");
    }

    fn env(&mut self, name: &str, value: impl AsRef<std::ffi::OsStr>) {
        self.command.env(name, value);
    }

    /// The CUDA driver in software, a call of which fails.
    fn cuda_fails(&mut self, call: &str) {
        self.env("SYNCLINE_CUDA_DRIVER", software_cuda());
        self.env(FAIL, format!("{call}:always"));
    }

    /// `library` takes the place of the system's CUDA driver.
    fn system_cuda(&mut self, library: impl AsRef<Path>) {
        let folder = self.root.join("first");
        fs::create_dir(&folder).expect("a folder");
        symlink(library, folder.join("libcuda.so.1")).expect("a link");
        self.env("LD_LIBRARY_PATH", folder);
    }

    /// A container that was given the GPU, as far as variables tell.
    fn in_container(&self) {
        self.write(".dockerenv", "");
    }

    /// A manifest of this name at the root, which names this library.
    fn manifest(&self, name: &str, library: &str) -> PathBuf {
        let text = serde_json::json!({
            "file_format_version": "1.0.0",
            "ICD": { "library_path": library, "api_version": "1.3.0" },
        });
        self.write(name, &text.to_string())
    }

    /// Libraries of these names in a folder that is searched first, each of which is no library.
    fn broken_libraries(&mut self, names: &[&str]) {
        for name in names {
            self.write(&format!("lib/{name}"), "no library");
        }
        self.env("LD_LIBRARY_PATH", self.root.join("lib"));
    }

    /// Takes all rights at a file from this user, even from root, and leaves `mode` to the group.
    fn forbid(&mut self, path: &str, mode: u32) {
        let path = self.root.join(path);
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("own file");
        // Fails for other users than root. Then the file has their own group.
        let _ = chown(&path, None, Some(44));
        let group = fs::metadata(&path).expect("the file").gid();
        self.write("etc/group", &format!("video:x:{group}:\n"));
        // SAFETY: `drop_rights` makes system calls only, which is allowed between fork and exec.
        unsafe { self.command.pre_exec(drop_rights) };
    }

    /// Runs the command, checks its exit code, and returns its output.
    fn ends_with(&mut self, code: i32) -> String {
        let output = self.command.output().expect("the command starts");
        let out = String::from_utf8(output.stdout).expect("UTF-8");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{out}{error}");
        out
    }
}

/// After this, root passes no permission checks in the program that is executed next.
fn drop_rights() -> io::Result<()> {
    // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH of linux/capability.h.
    for capability in [1, 2] {
        // SAFETY: takes integers only. Fails for other users than root, which lack both.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    Ok(())
}

fn software_cuda() -> PathBuf {
    let command = Path::new(env!("CARGO_BIN_EXE_syncline"));
    let folder = command.parent().expect("a folder");
    folder.join("deps/libsyncline_software_cuda.so")
}

/// The manifest of lavapipe. Without a Vulkan driver in software these tests show nothing.
pub(crate) fn lavapipe() -> Option<PathBuf> {
    let folders = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
    let files = folders
        .iter()
        .filter_map(|folder| fs::read_dir(folder).ok());
    let paths = files.flatten().flatten().map(|entry| entry.path());
    let mut lavapipe = paths.filter(|path| path.to_string_lossy().contains("/lvp_icd"));
    let found = lavapipe.next();
    if found.is_none() {
        eprintln!("skipped: no lavapipe (Debian: mesa-vulkan-drivers)");
    }
    found
}

/// True if a defect can be produced: the machine has lavapipe and no driver of NVIDIA.
fn can_be_without_gpu() -> bool {
    let has_gpu = Path::new("/proc/driver/nvidia").exists();
    if has_gpu {
        eprintln!("skipped: the driver of this machine's GPU works");
    }
    !has_gpu && lavapipe().is_some()
}

/// The library that lavapipe's manifest names.
fn lavapipe_library() -> String {
    let text = lavapipe().and_then(|path| fs::read_to_string(path).ok());
    let manifest = json(&text.expect("a manifest"));
    let library = manifest["ICD"]["library_path"].as_str();
    library.expect("a path").to_owned()
}

fn of<'r>(report: &'r Value, result: &str) -> Vec<&'r Value> {
    let checks = report["checks"].as_array().expect("a list").iter();
    checks.filter(|check| check["result"] == result).collect()
}

/// Produces a defect. Exactly the checks in `found` find something, the first as told.
fn finds(mut machine: Machine, found: &[&str], what: &str, fix: &str) {
    machine.command.arg("--json");
    let report = json(&machine.ends_with(1));
    let findings = of(&report, "found");
    let ids: Vec<_> = findings.iter().map(|check| check["id"].as_str()).collect();
    let expected: Vec<_> = found.iter().map(|id| Some(*id)).collect();
    assert_eq!(ids, expected, "{report:#}");
    let text = |key: &str| findings[0][key].as_str().expect("words");
    assert!(text("what").contains(what), "{report:#}");
    assert!(text("do").contains(fix), "{report:#}");
    assert_eq!(report["shares"], false);
}

/// The machine has no Vulkan device of NVIDIA. That is found, too, unless its check depends on the
/// defect.
const AND_VULKAN: &str = "vulkan-device";

#[rstest]
#[case::none("no-gpu", |machine: &mut Machine| {
    machine.remove(PCI);
    machine.remove("sys/module");
}, &["gpu"], "no GPU of NVIDIA", "run --software")]
#[case::of_another_vendor("other-gpu", |machine: &mut Machine| {
    machine.write(&format!("{PCI}/vendor"), "0x1002\n");
    machine.remove("sys/module");
}, &["gpu"], "no GPU of NVIDIA", "run --software")]
#[case::module("module", |machine: &mut Machine| machine.remove("sys/module"),
    &["kernel-module"], "is not loaded", "modprobe nvidia")]
#[case::module_in_container("module-container", |machine: &mut Machine| {
    machine.remove("sys/module");
    machine.in_container();
}, &["kernel-module"], "is not loaded", "on the host")]
#[case::container_without_gpu("void", |machine: &mut Machine| {
    machine.in_container();
    machine.remove("dev/nvidia0");
    machine.env("NVIDIA_VISIBLE_DEVICES", "void");
}, &["container"], "\"void\"", "--gpus all")]
#[case::container_without_compute("no-compute", |machine: &mut Machine| {
    machine.in_container();
    machine.env("NVIDIA_DRIVER_CAPABILITIES", "utility,graphics");
}, &["container"], "CUDA needs \"compute\"", "NVIDIA_DRIVER_CAPABILITIES=all")]
#[case::container_without_graphics("no-graphics", |machine: &mut Machine| {
    machine.in_container();
    machine.env("NVIDIA_DRIVER_CAPABILITIES", "compute,utility");
}, &["container"], "Vulkan needs \"graphics\"", "NVIDIA_DRIVER_CAPABILITIES=all")]
#[case::files("files", |machine: &mut Machine| {
    machine.remove("dev/nvidia-uvm");
    machine.cuda_fails("cuInit:1:999");
}, &["device-files"], "/dev has no nvidia-uvm", "nvidia-modprobe")]
#[case::files_in_container("files-container", |machine: &mut Machine| {
    machine.remove("dev/nvidia0");
    machine.in_container();
    machine.cuda_fails("cuInit:1:999");
}, &["device-files"], "/dev has no nvidia0", "--gpus all")]
#[case::permissions("permissions", |machine: &mut Machine| {
    machine.forbid("dev/nvidia0", 0);
    machine.cuda_fails("cuInit:1:999");
}, &["device-permissions"], "mode 0000) cannot be opened: Permission denied", "chmod 0666 /dev/nvidia0")]
#[case::group("group", |machine: &mut Machine| {
    machine.forbid("dev/nvidiactl", 0o060);
    machine.cuda_fails("cuInit:1:999");
}, &["device-permissions"], "/dev/nvidiactl (group video", "usermod -aG video")]
#[case::permissions_in_container("permissions-container", |machine: &mut Machine| {
    machine.forbid("dev/nvidia0", 0);
    machine.in_container();
    machine.cuda_fails("cuInit:1:999");
}, &["device-permissions"], "Permission denied", "--gpus all")]
#[case::no_such_driver("no-driver", |machine: &mut Machine| {
    machine.env("SYNCLINE_CUDA_DRIVER", "/nonexistent/libcuda.so.1");
}, &["cuda-library", AND_VULKAN], "/nonexistent/libcuda.so.1 cannot be loaded", "Take SYNCLINE_CUDA_DRIVER out")]
#[case::no_driver("broken-driver", |machine: &mut Machine| {
    machine.broken_libraries(&["libcuda.so.1", "libcuda.so"]);
}, &["cuda-library", AND_VULKAN], "library was not found", "libnvidia-compute-580")]
#[case::no_driver_in_container("driver-container", |machine: &mut Machine| {
    machine.broken_libraries(&["libcuda.so.1", "libcuda.so"]);
    machine.in_container();
}, &["cuda-library", AND_VULKAN], "library was not found", "--gpus all")]
#[case::another_library("another-library", |machine: &mut Machine| {
    machine.system_cuda(software_cuda().with_file_name("libsyncline_software_layer.so"));
}, &["cuda-library", AND_VULKAN], "is no CUDA driver: it has no function cuInit", "out of LD_LIBRARY_PATH")]
#[case::old_driver("old-driver", |machine: &mut Machine| {
    machine.system_cuda(software_cuda());
    machine.env(VERSION, "11030");
}, &["cuda-library", AND_VULKAN], "for CUDA 11.3; CUDA 11.4 (470) or newer is needed", "out of LD_LIBRARY_PATH")]
#[case::stub("stub", |machine: &mut Machine| {
    machine.system_cuda(software_cuda());
    machine.env(FAIL, "cuInit:1:34:always");
}, &["cuda-library", AND_VULKAN], "the toolkit's stub", "out of LD_LIBRARY_PATH")]
#[case::versions("versions", |machine: &mut Machine| machine.cuda_fails("cuInit:1:803"),
    &["cuda-versions", AND_VULKAN], "the kernel module is 580.159.04", "Restart the machine")]
#[case::versions_from_proc("versions-proc", |machine: &mut Machine| {
    machine.remove("sys/module");
    machine.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.1.02  Mon\n");
    machine.cuda_fails("cuInit:1:803");
}, &["cuda-versions", AND_VULKAN], "the kernel module is 570.1.02", "Restart the machine")]
#[case::compatibility("compatibility", |machine: &mut Machine| machine.cuda_fails("cuInit:1:804"),
    &["cuda-versions", AND_VULKAN], "(804)", "cuda/compat")]
#[case::nothing_visible("visible", |machine: &mut Machine| {
    machine.cuda_fails("cuInit:1:100");
    machine.env("CUDA_VISIBLE_DEVICES", "");
}, &["cuda-visible", AND_VULKAN], "CUDA_VISIBLE_DEVICES is \"\"", "unset CUDA_VISIBLE_DEVICES")]
#[case::no_device("no-device", |machine: &mut Machine| machine.cuda_fails("cuInit:1:100"),
    &["cuda-start", AND_VULKAN], "(100)", "MIG mode needs a partition")]
#[case::no_start("no-start", |machine: &mut Machine| machine.cuda_fails("cuInit:1:999"),
    &["cuda-start", AND_VULKAN], "(999)", "modprobe nvidia_uvm")]
#[case::no_fabric("no-fabric", |machine: &mut Machine| machine.cuda_fails("cuInit:1:802"),
    &["cuda-start", AND_VULKAN], "(802)", "fabricmanager")]
#[case::no_count("no-count", |machine: &mut Machine| machine.cuda_fails("cuDeviceGetCount:1:999"),
    &["cuda-start", AND_VULKAN], "cuDeviceGetCount failed", "Xid")]
#[case::no_answer("no-answer", |machine: &mut Machine| machine.cuda_fails("cuDeviceGetName:1:999"),
    &["cuda-device"], "cuDeviceGetName failed", "nvidia-smi -c 0")]
fn what_keeps_cuda_from_a_gpu_is_found(
    #[case] name: &str,
    #[case] defect: fn(&mut Machine),
    #[case] found: &[&str],
    #[case] what: &str,
    #[case] fix: &str,
) {
    if !can_be_without_gpu() {
        return;
    }
    let mut machine = Machine::new(name, &[]);
    defect(&mut machine);
    finds(machine, found, what, fix);
}

/// The CUDA driver does not start, so there is a finding about that, too.
const AND_CUDA: &str = "cuda-start";

#[rstest]
#[case::loader("loader", |machine: &mut Machine| machine.broken_libraries(&["libvulkan.so.1"]),
    "vulkan-loader", "cannot be loaded", "apt install libvulkan1")]
#[case::files_that_are_missing("missing", |machine: &mut Machine| {
    machine.env("VK_DRIVER_FILES", "/nonexistent.json");
}, "vulkan-environment", "VK_DRIVER_FILES names /nonexistent.json, which does not exist", "unset VK_DRIVER_FILES")]
#[case::old_name("missing-old", |machine: &mut Machine| {
    machine.env("VK_ICD_FILENAMES", "/nonexistent.json");
}, "vulkan-environment", "VK_ICD_FILENAMES names /nonexistent.json", "unset VK_ICD_FILENAMES")]
#[case::lavapipe_only("lavapipe", |machine: &mut Machine| {
    machine.env("VK_DRIVER_FILES", lavapipe().expect("a manifest"));
}, "vulkan-environment", "and no manifest of NVIDIA's driver", "unset VK_DRIVER_FILES")]
#[case::disabled("disabled", |machine: &mut Machine| {
    machine.env("VK_LOADER_DRIVERS_DISABLE", "*nvidia*");
}, "vulkan-environment", "VK_LOADER_DRIVERS_DISABLE is \"*nvidia*\"", "unset VK_LOADER_DRIVERS_DISABLE")]
#[case::not_selected("selected", |machine: &mut Machine| {
    machine.env("VK_LOADER_DRIVERS_SELECT", "lvp*");
}, "vulkan-environment", "VK_LOADER_DRIVERS_SELECT is \"lvp*\"", "unset VK_LOADER_DRIVERS_SELECT")]
#[case::no_manifest("no-manifest", |machine: &mut Machine| machine.remove(MANIFEST),
    "vulkan-manifest", "NVIDIA's driver has no manifest in ", "libnvidia-gl-580")]
#[case::no_manifest_in_container("no-manifest-container", |machine: &mut Machine| {
    machine.remove(MANIFEST);
    machine.in_container();
}, "vulkan-manifest", "has no manifest in ", "NVIDIA_DRIVER_CAPABILITIES=all")]
#[case::manifest_elsewhere("manifest-elsewhere", |machine: &mut Machine| {
    machine.remove(MANIFEST);
    machine.manifest("usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json", "libm.so.6");
}, "vulkan-manifest", "where the loader does not look", "export VK_DRIVER_FILES=/")]
#[case::no_json("no-json", |machine: &mut Machine| {
    machine.write(MANIFEST, "{");
}, "vulkan-manifest", "nvidia_icd.json cannot be read: ", "libnvidia-gl-580")]
#[case::nothing_named("nothing-named", |machine: &mut Machine| {
    machine.write(MANIFEST, "{}");
}, "vulkan-manifest", "it has no ICD.library_path", "libnvidia-gl-580")]
#[case::no_library("no-library", |machine: &mut Machine| {
    let manifest = machine.manifest("nvidia_icd.json", "libGLX_missing.so.0");
    machine.env("VK_DRIVER_FILES", manifest);
}, "vulkan-library", "names libGLX_missing.so.0: ", "libx11-6")]
#[case::no_library_beside("no-library-beside", |machine: &mut Machine| {
    machine.manifest(MANIFEST, "../libGLX_nvidia.so.0");
}, "vulkan-library", "names ../libGLX_nvidia.so.0: ", "libnvidia-gl-580")]
#[case::render_node("node", |machine: &mut Machine| machine.forbid(NODE, 0o060),
    "render-permissions", "/dev/dri/renderD128 (group video", "usermod -aG video")]
#[case::no_driver("no-icd", |machine: &mut Machine| {
    let manifest = machine.manifest("nvidia_icd.json", "libm.so.6");
    machine.env("VK_DRIVER_FILES", manifest);
}, "vulkan-device", "vulkan is not available", "VK_LOADER_DEBUG")]
#[case::software_only("software-only", |machine: &mut Machine| {
    let manifest = machine.manifest("nvidia_icd.json", &lavapipe_library());
    machine.env("VK_DRIVER_FILES", manifest);
}, "vulkan-device", "no GPU of NVIDIA. Its devices: llvmpipe", "nvidia-modeset")]
fn what_keeps_vulkan_from_a_gpu_is_found(
    #[case] name: &str,
    #[case] defect: fn(&mut Machine),
    #[case] found: &str,
    #[case] what: &str,
    #[case] fix: &str,
) {
    if !can_be_without_gpu() {
        return;
    }
    let mut machine = Machine::new(&format!("vulkan-{name}"), &["--json"]);
    machine.cuda_fails("cuInit:1:999");
    defect(&mut machine);
    let report = json(&machine.ends_with(1));
    let findings = of(&report, "found");
    let ids: Vec<_> = findings.iter().map(|check| check["id"].as_str()).collect();
    assert_eq!(ids, [Some(AND_CUDA), Some(found)], "{report:#}");
    let text = |key: &str| findings[1][key].as_str().expect("words");
    assert!(text("what").contains(what), "{report:#}");
    assert!(text("do").contains(fix), "{report:#}");
    // Each check behind a finding names the check that it waits for.
    for skipped in of(&report, "skipped") {
        let after = skipped["after"].as_str().expect("an id");
        let earlier = report["checks"].as_array().expect("a list").iter();
        let earlier = earlier.filter(|check| check["id"] == after);
        assert!(
            earlier.clone().count() == 1 && earlier.clone().all(|check| check["result"] != "ok"),
            "{report:#}"
        );
    }
}

/// With both drivers in software, which need no GPU.
#[rstest]
#[case::no_vulkan_driver("manifest", |machine: &mut Machine| {
    machine.env("VK_DRIVER_FILES", "/nonexistent/lvp_icd.json");
}, "vulkan-environment", "which does not exist", "unset VK_DRIVER_FILES")]
#[case::no_timelines("timelines", |machine: &mut Machine| machine.env(HIDE, "timelineSemaphore"),
    "timeline-semaphores", "no timeline semaphores", "Update the driver")]
#[case::partition("partition", |machine: &mut Machine| {
    machine.env("SYNCLINE_SOFTWARE_CUDA_BUG", "uuid-changes");
}, "mig", "is a MIG partition of the GPU", "nvidia-smi -mig 0")]
#[case::two_gpus("two-gpus", |machine: &mut Machine| {
    machine.env("SYNCLINE_SOFTWARE_CUDA_DEVICES", "swiftshader");
    machine.env("VK_DRIVER_FILES", lavapipe().expect("a manifest"));
}, "same-gpu", "no two have the same UUID", "SYNCLINE_SOFTWARE_CUDA_DEVICES")]
#[case::semaphores("semaphores", |machine: &mut Machine| machine.env(HIDE, "VK_KHR_external_semaphore_fd"),
    "semaphores", "VK_KHR_external_semaphore_fd is not there", "--software")]
#[case::memory("memory", |machine: &mut Machine| machine.env(HIDE, "VK_KHR_external_memory_fd"),
    "memory", "VK_KHR_external_memory_fd is not there", "--software")]
#[case::refused("refused", |machine: &mut Machine| {
    machine.env("SYNCLINE_SOFTWARE_CUDA_BUG", "imports-are-refused");
}, "exchange", "cuImportExternal", "syncline conformance --device cuda")]
#[case::other_memory("other-memory", |machine: &mut Machine| {
    machine.env("SYNCLINE_SOFTWARE_CUDA_BUG", "imports-other-memory");
}, "exchange", "16384 of 16384 words that Vulkan has read are not those", "syncline conformance --device cuda")]
#[case::no_wait("no-wait", |machine: &mut Machine| {
    // Vulkan does not wait, and CUDA writes late.
    machine.env("SYNCLINE_SOFTWARE_LAYER_BUG", "forgets-wait");
    machine.env("SYNCLINE_SOFTWARE_CUDA_SLOW", "200000");
}, "exchange", "16384 of 16384 words that Vulkan has read are not those", "syncline conformance --device cuda")]
#[case::no_signal("no-signal", |machine: &mut Machine| {
    machine.env("SYNCLINE_SOFTWARE_LAYER_BUG", "exports-another");
}, "exchange", "timed out after 10s", "syncline conformance --device cuda")]
fn what_keeps_two_drivers_apart_is_found(
    #[case] name: &str,
    #[case] defect: fn(&mut Machine),
    #[case] found: &str,
    #[case] what: &str,
    #[case] fix: &str,
) {
    if lavapipe().is_none() {
        return;
    }
    let mut machine = Machine::new(&format!("pair-{name}"), &["--software"]);
    defect(&mut machine);
    finds(machine, &[found], what, fix);
}

/// CUDA's attribute stands for semaphores and memory, so both checks find something.
#[test]
fn a_cuda_device_that_imports_nothing_is_found() {
    if lavapipe().is_none() {
        return;
    }
    let mut machine = Machine::new("imports-nothing", &["--software"]);
    // CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED
    machine.env(LACKS, "114");
    let what = "imports no timelines: the driver takes no timeline semaphores";
    finds(
        machine,
        &["semaphores", "memory"],
        what,
        "Update the CUDA driver",
    );
}

#[rstest]
#[case::option(&["doctor", "--software"])]
#[case::around(&["run", "--software", "--", env!("CARGO_BIN_EXE_syncline"), "doctor"])]
fn drivers_that_share_are_in_order(#[case] arguments: &[&str]) {
    if lavapipe().is_none() {
        return;
    }
    let mut machine = Machine::new(&format!("order-{}", arguments[0]), &[]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    command.args(arguments);
    for variable in OTHERS {
        command.env_remove(variable);
    }
    machine.command = command;
    let out = machine.ends_with(0);
    let is_ok = |line: &&str| line.starts_with("ok ");
    assert_eq!(
        out.lines().filter(is_ok).count(),
        out.lines().count() - 2,
        "{out}"
    );
    let last = out.lines().last().expect("a line");
    assert!(last.ends_with("in software. No GPU was used."), "{last}");

    machine.command.arg("--json");
    let report = json(&machine.ends_with(0));
    assert_eq!(
        (&report["shares"], &report["software"]),
        (&true.into(), &true.into())
    );
    for key in ["commit", "command", "date"] {
        assert!(report[key].is_string(), "{report:#}");
    }
}

#[test]
fn findings_are_listed_with_what_to_do() {
    if !can_be_without_gpu() {
        return;
    }
    let mut machine = Machine::new("words", &[]);
    machine.remove("sys/module");
    let out = machine.ends_with(1);
    let lines: Vec<_> = out.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.starts_with("found    kernel-module "));
    let fix = lines[at.expect("the finding") + 1];
    assert!(
        fix.trim_start().starts_with("-> Install NVIDIA's driver"),
        "{out}"
    );
    // One line counts all checks that were skipped.
    let skipped = lines.iter().filter(|line| line.starts_with("skipped "));
    let skipped: Vec<_> = skipped.collect();
    let counts = |line: &str| line.contains(" checks ") && line.contains("kernel-module");
    assert!(skipped.len() == 1 && counts(skipped[0]), "{out}");
    let last = lines.last().expect("a line");
    assert!(last.contains("Repair kernel-module first"), "{out}");
}

#[test]
fn help_lists_the_checks_and_wrong_usage_ends_with_2() {
    let (help, _) = ends_with(0, &["doctor", "--help"]);
    for part in ["vulkan-environment", "exchange", "--json", "Exit code 0"] {
        assert!(help.contains(part), "no {part:?} in: {help}");
    }
    let (_, error) = ends_with(2, &["doctor", "--nosuch"]);
    assert!(error.contains("--nosuch"), "{error}");
}
