//! `--software`: CUDA and Vulkan without a GPU.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rstest::rstest;
use serde_json::Value;

/// The command, with the machine's own Vulkan drivers and a temporary folder of its own.
fn syncline(arguments: &[&str], temporary: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    command
        .args(arguments)
        .env("TMPDIR", temporary)
        .env_remove("SYNCLINE_SOFTWARE")
        .env_remove("SYNCLINE_CUDA_DRIVER");
    command
}

/// Creates an empty folder for one test.
fn scratch(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("software-{name}"));
    // Fails if there is no folder.
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a folder");
    path
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("the folder").next().is_none()
}

/// Runs the command. Checks its exit code, and that it leaves no file behind.
///
/// Returns its standard output and standard error.
pub(crate) fn ends_with(code: i32, name: &str, arguments: &[&str]) -> (String, String) {
    let temporary = scratch(name);
    ends(code, syncline(arguments, &temporary), &temporary)
}

/// As [`ends_with`], under the validation layer if that is installed. It writes to standard output.
pub(crate) fn ends_validated(code: i32, name: &str, arguments: &[&str]) -> (String, String) {
    let temporary = scratch(name);
    let mut command = syncline(arguments, &temporary);
    command.env("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation");
    ends(code, command, &temporary)
}

fn ends(code: i32, mut command: Command, temporary: &Path) -> (String, String) {
    let output = command.output().expect("the command starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let (out, error) = (text(output.stdout), text(output.stderr));
    assert_eq!(
        output.status.code(),
        Some(code),
        "{command:?}: {out}{error}"
    );
    assert!(is_empty(temporary), "{command:?} leaves files behind");
    (out, error)
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Returns the devices of one backend, as `info --json` or a report lists them.
fn of<'r>(report: &'r Value, backend: &str) -> Vec<&'r Value> {
    let devices = report["devices"].as_array().expect("a list").iter();
    devices
        .filter(|device| device["backend"] == backend)
        .collect()
}

/// Whether there is a software Vulkan driver. Without one CUDA can share with no other device.
pub(crate) fn has_vulkan(name: &str) -> bool {
    let (out, _) = ends_with(0, name, &["info", "--software", "--json"]);
    let has = !of(&json(&out), "vulkan").is_empty();
    if !has {
        eprintln!("skipped: no Vulkan driver in software (Debian: mesa-vulkan-drivers)");
    }
    has
}

#[test]
fn every_device_says_that_it_is_software() {
    // `--software` may also come before the subcommand.
    for arguments in [
        ["info", "--software", "--json"],
        ["--software", "info", "--json"],
    ] {
        let (out, _) = ends_with(0, "info", &arguments);
        let info = json(&out);
        assert!(!of(&info, "cuda").is_empty(), "{out}");
        for device in [of(&info, "cuda"), of(&info, "vulkan")].concat() {
            assert_eq!(device["software"], true, "{device}");
        }
        assert_eq!(of(&info, "host")[0]["software"], false);
    }
    let (out, _) = ends_with(0, "info", &["info", "--software"]);
    assert!(
        out.contains("no result of it counts as a result of a GPU"),
        "{out}"
    );
    // A limit of what a device has does not deny it.
    for denied in ["no timestamps", "no exports: counters"] {
        assert!(!out.contains(denied), "{out}");
    }
    for limit in ["timestamps: fences without a clock", "exports: counters"] {
        assert!(out.contains(limit), "no {limit:?} in: {out}");
    }
}

#[test]
fn a_vulkan_device_is_one_gpu_with_a_cuda_device() {
    if !has_vulkan("one-gpu") {
        return;
    }
    let (out, _) = ends_with(0, "one-gpu", &["info", "--software", "--json"]);
    let info = json(&out);
    for device in of(&info, "vulkan") {
        let same = device["same_gpu_as"].as_array().expect("a list");
        assert_eq!(same.len(), 1, "{device}");
    }
}

/// Some devices have no calibrated timestamps, so the text of a device that has them is found.
#[test]
fn a_driver_that_calibrates_another_clock_is_told() {
    if !has_vulkan("calibration") {
        return;
    }
    let run = |arguments: &[&str]| {
        let temporary = scratch("calibration");
        let mut command = syncline(arguments, &temporary);
        command.env("SYNCLINE_SOFTWARE_LAYER_CALIBRATION", "5000000");
        ends(0, command, &temporary).0
    };
    let calibrated = |info: &Value| {
        let devices = of(info, "vulkan").into_iter();
        let mut devices =
            devices.filter(|device| device["capabilities"]["calibrated_clock"] == true);
        devices.next().cloned()
    };
    let info = json(&run(&["info", "--software", "--json"]));
    let Some(device) = calibrated(&info) else {
        eprintln!("skipped: no Vulkan driver in software has calibrated timestamps");
        return;
    };
    let index = device["index"].to_string();
    let info = ["info", "--software"];
    let clocks = ["clocks", "--software", "--for", "0", "--device", &index];
    for arguments in [&info[..], &clocks] {
        // While the machine is busy, a written time may be too inexact to refuse the driver's.
        let says = |arguments: &[&str], key: &str| {
            let told = (0..20).map(|_| run(arguments));
            let says =
                |told: &String| told.contains(key) && told.contains("not of the clock that its");
            assert!(told.into_iter().any(|told| says(&told)), "{arguments:?}");
        };
        says(arguments, "");
        says(&[arguments, &["--json"]].concat(), "calibration_refused");
    }
    // The name is not cut.
    let (out, _) = ends_with(0, "calibration", &clocks);
    let name = device["name"].as_str().expect("a name");
    assert!(out.contains(name), "no {name:?} in: {out}");
    // Without the offset, nothing is said.
    let (out, _) = ends_with(0, "calibration", &["info", "--software", "--json"]);
    let device = calibrated(&json(&out)).expect("the same device");
    assert!(device["capabilities"]["calibration_refused"].is_null());
}

#[test]
fn frames_of_cuda_and_vulkan_on_one_timeline_are_right() {
    if !has_vulkan("demo") {
        return;
    }
    let demo = [
        "demo",
        "--software",
        "--frames",
        "20",
        "--size",
        "64",
        "--json",
    ];
    let (out, _) = ends_with(0, "demo", &demo);
    let report = json(&out);
    assert_eq!(
        (&report["verified"], &report["wrong"]),
        (&20.into(), &0.into()),
        "{out}"
    );
    let text = |key: &str| report[key].as_str().expect("words").to_owned();
    assert!(
        text("producer").starts_with("cuda ") && text("producer").ends_with("(software)"),
        "{out}"
    );
    assert!(
        text("consumer").starts_with("vulkan ") && text("consumer").ends_with("(software)"),
        "{out}"
    );
    let mechanism = report["mechanism"].as_str().expect("words");
    assert!(mechanism.starts_with(NATIVE), "{out}");
    for device in [of(&report, "cuda"), of(&report, "vulkan")].concat() {
        assert_eq!(device["software"], true, "{device}");
    }
}

/// The demo falls back to buffers where two devices have no images in common. These have them.
#[test]
fn every_vulkan_device_shares_images_with_cuda() {
    if !has_vulkan("shares") {
        return;
    }
    let small = ["demo", "--software", "--frames", "4", "--size", "16"];
    let demo = |devices: &[&str]| {
        let demo = [&small[..], devices, &["--json"]].concat();
        json(&ends_with(0, "shares", &demo).0)
    };
    let (out, _) = ends_with(0, "shares", &["info", "--software", "--json"]);
    let info = json(&out);
    let devices = of(&info, "vulkan").into_iter();
    let devices: Vec<_> = devices.map(|device| device["index"].to_string()).collect();
    for device in &devices {
        for processes in [&[][..], &["--processes"]] {
            let report = demo(&[&["--consumer", device], processes].concat());
            assert_eq!(report["shares"], "images", "{report}");
            assert_eq!(report["verified"], 4, "{report}");
        }
        // Two processes with one Vulkan device.
        let report = demo(&["--producer", device, "--consumer", device, "--processes"]);
        assert_eq!(report["shares"], "images", "{report}");
        assert_eq!(report["verified"], 4, "{report}");
    }
    let (out, _) = ends_with(0, "shares", &small);
    assert!(out.contains("shares     images"), "{out}");
    // The host has no images.
    for side in ["--producer", "--consumer"] {
        let report = demo(&[side, "host"]);
        assert_eq!(report["shares"], "buffers", "{report}");
    }
    // Two GPUs share nothing.
    if let [first, second, ..] = &devices[..] {
        let report = demo(&["--producer", first, "--consumer", second]);
        assert_eq!(report["shares"], "nothing", "{report}");
    }
    let report = demo(&["--producer", "host", "--processes"]);
    assert_eq!(report["shares"], "nothing", "{report}");
}

/// CUDA does not draw, and the error says which devices do.
#[rstest]
#[case::one_process(&[])]
#[case::two_processes(&["--processes"])]
fn cuda_is_refused_as_the_consumer(#[case] processes: &[&str]) {
    let demo = ["demo", "--software", "--consumer", "cuda"];
    let name = format!("consumer-{}", processes.len());
    let (_, error) = ends_with(2, &name, &[&demo[..], processes].concat());
    for part in ["(software)\" #", "only Vulkan and the host draw"] {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}

/// The software layer is above the validation layer, which would report its calls as well.
#[test]
fn the_validation_layer_reports_nothing() {
    if !has_vulkan("validation") {
        return;
    }
    let temporary = scratch("validation");
    let frames = ["--frames", "3", "--size", "64"];
    let demo = [
        &["demo", "--software", "--validation", "--json"],
        &frames[..],
    ]
    .concat();
    let output = syncline(&demo, &temporary).output().expect("the command");
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("install the Vulkan validation layers") {
        return eprintln!("skipped: {said}");
    }
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{said}");
    let report = json(&out);
    assert_eq!(report["verified"], 3, "{out}");
    assert_eq!(report["validation_errors"], serde_json::json!([]), "{out}");
}

/// The mechanism of a link on which both APIs use the same semaphore.
const NATIVE: &str = "external timeline semaphore";

/// The negative control: without the waits the frames are wrong.
#[test]
fn without_the_waits_frames_are_wrong() {
    if !has_vulkan("no-sync") {
        return;
    }
    for processes in [&[][..], &["--processes"]] {
        let demo = [
            "demo",
            "--software",
            "--no-sync",
            "--frames",
            "20",
            "--size",
            "64",
            "--json",
        ];
        let (out, _) = ends_with(1, "no-sync", &[&demo, processes].concat());
        assert!(json(&out)["wrong"].as_u64() > Some(0), "{out}");
    }
}

#[test]
fn two_processes_share_a_semaphore_and_outlive_each_other() {
    if !has_vulkan("processes") {
        return;
    }
    let size = ["--software", "--size", "64", "--json"];
    let demo = [&["demo", "--processes", "--frames", "20"], &size[..]].concat();
    let (out, _) = ends_with(0, "processes", &demo);
    let report = json(&out);
    assert_eq!(
        (&report["verified"], &report["wrong"]),
        (&20.into(), &0.into()),
        "{out}"
    );
    let mechanism = report["mechanism"].as_str().expect("words");
    assert!(mechanism.starts_with(NATIVE), "{out}");
    for victim in ["producer", "consumer"] {
        let demo = [&["demo", "--kill", victim], &size[..]].concat();
        let (out, _) = ends_with(0, "processes", &demo);
        assert_eq!(json(&out)["exit_code_of_the_other"], 3, "{out}");
    }
}

/// A faulting kernel ends the frames. The command names the cause and the last whole frame.
#[test]
fn a_lost_producer_ends_the_demo() {
    if !has_vulkan("fault") {
        return;
    }
    let fault = [
        "demo",
        "--software",
        "--size",
        "64",
        "--frames",
        "20",
        "--json",
        "--fault",
    ];
    let (out, said) = ends_with(3, "fault", &[&fault[..], &["producer"]].concat());
    let report = json(&out);
    let whole = report["last_whole_frame"].as_u64().expect("a number");
    // The fault comes after the eleventh frame was compared.
    assert!((11..20).contains(&whole), "{out}");
    assert_eq!(report["wrong"], 0, "{out}");
    let cause = report["cause"].as_str().expect("words");
    assert!(cause.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{out}");
    assert!(said.contains(&format!("whole is {whole} of 20")), "{said}");
    // So few frames that the queues have all of them when the device is lost.
    for frames in ["1", "6"] {
        let mut few = fault;
        few[5] = frames;
        ends_with(3, "fault", &[&few[..], &["producer"]].concat());
    }
    let (_, said) = ends_with(2, "fault", &[&fault[..], &["consumer"]].concat());
    assert!(said.contains("possible values: producer"), "{said}");
    let host = ["producer", "--producer", "host"];
    let (_, said) = ends_with(2, "fault", &[&fault[..], &host].concat());
    assert!(said.contains("needs a CUDA device"), "{said}");
}

#[test]
fn the_suite_names_what_is_software() {
    let folder = scratch("suite-report");
    let file = folder.join("report.json");
    let path = file.to_str().expect("UTF-8");
    let suite = [
        "conformance",
        "--software",
        "--device",
        "cuda",
        "--filter",
        "D2",
        "--json",
        path,
    ];
    ends_with(0, "suite", &suite);
    let report = json(&fs::read_to_string(&file).expect("the report"));
    let cases = report["cases"].as_array().expect("a list");
    assert!(!cases.is_empty());
    for case in cases {
        let subject = case["subject"].as_str().expect("words");
        assert!(subject.contains("(software)"), "{subject}");
    }
    let (page, _) = ends_with(0, "suite", &["conformance", "--matrix", path]);
    assert!(
        page.contains("Their results are not results of a GPU"),
        "{page}"
    );
}

/// Runs the demo without a Vulkan driver.
fn without_vulkan(code: i32, arguments: &[&str]) -> (String, String) {
    let temporary = scratch("no-vulkan");
    let demo = ["demo", "--software", "--frames", "9", "--size", "64"];
    let mut command = syncline(&[&demo, arguments].concat(), &temporary);
    command
        .env("VK_DRIVER_FILES", "/nonexistent.json")
        .env("VK_ICD_FILENAMES", "/nonexistent.json");
    ends(code, command, &temporary)
}

#[test]
fn without_a_vulkan_driver_the_demo_says_so_and_the_host_can_take_its_part() {
    for processes in [&[][..], &["--processes"]] {
        let (_, error) = without_vulkan(2, processes);
        for part in [
            "there is no vulkan device",
            "mesa-vulkan-drivers",
            "--consumer host",
        ] {
            assert!(error.contains(part), "no {part:?} in: {error}");
        }
    }
    let (out, _) = without_vulkan(0, &["--consumer", "host"]);
    for part in [
        "producer   cuda",
        "consumer   host",
        "9 of 9 frames, 0 wrong",
    ] {
        assert!(out.contains(part), "no {part:?} in: {out}");
    }
}

#[test]
fn a_library_that_is_missing_is_named_and_nothing_runs() {
    let (folder, temporary) = (scratch("alone"), scratch("alone-temporary"));
    let alone = folder.join("syncline");
    fs::hard_link(env!("CARGO_BIN_EXE_syncline"), &alone).expect("a link");
    let mut command = Command::new(&alone);
    command
        .args(["info", "--software"])
        .env("TMPDIR", &temporary);
    let (out, error) = ends(2, command, &temporary);
    assert!(out.is_empty(), "{out}");
    assert!(
        error.contains("libsyncline_software_cuda.so beside the command"),
        "{error}"
    );
}

/// A child that is killed at the end of its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command passes a signal to its child, ends as the child does, and removes its folder.
#[test]
fn a_signal_ends_the_child_and_leaves_nothing() {
    let temporary = scratch("signal");
    let mut command = syncline(&["clocks", "--software", "--for", "60"], &temporary);
    let started = command.stdout(Stdio::piped()).spawn();
    let mut running = Running(started.expect("the command starts"));
    let mut out = BufReader::new(running.0.stdout.take().expect("its output"));
    let mut text = String::new();
    out.read_line(&mut text).expect("a line");
    assert!(!is_empty(&temporary));
    let kill = Command::new("kill")
        .arg(running.0.id().to_string())
        .status();
    assert!(kill.expect("kill").success());
    // The child has the other end. So this returns when the child is dead.
    out.read_to_string(&mut text).expect("text");
    let status = running.0.wait().expect("it ends");
    assert_eq!(
        (status.code(), status.signal()),
        (Some(128 + 15), None),
        "{text}"
    );
    assert!(is_empty(&temporary));
}

#[rstest]
#[case::another_library("no-driver", "libm.so.6", "is no CUDA driver")]
#[case::no_file("no-file", "/nonexistent/libcuda.so", "cannot be loaded")]
fn a_library_that_is_no_driver_is_refused_by_name(
    #[case] name: &str,
    #[case] path: &str,
    #[case] why: &str,
) {
    let temporary = scratch(name);

    let mut command = syncline(&["info", "--json"], &temporary);
    command.env("SYNCLINE_CUDA_DRIVER", path);
    let (out, _) = ends(0, command, &temporary);
    let reasons = json(&out)["unavailable"].to_string();
    for part in [path, why, "SYNCLINE_CUDA_DRIVER names the library"] {
        assert!(reasons.contains(part), "no {part:?} in: {reasons}");
    }
}

/// Runs `syncline run` with a shell script, and returns what it wrote.
fn shell(code: i32, name: &str, words: &[&str], script: &str) -> (String, String) {
    let arguments = [words, &["/bin/sh", "-c", script]].concat();
    ends_with(code, name, &arguments)
}

#[test]
fn a_program_sees_the_software_drivers() {
    let layer = has_vulkan("run");
    // `--software` is not needed, and may also come before the subcommand.
    for words in [&["run"][..], &["run", "--software"], &["--software", "run"]] {
        let script = "\
            echo \"mark=$SYNCLINE_SOFTWARE layers=$VK_INSTANCE_LAYERS\"
            for name in libcuda.so libcuda.so.1; do test -e \"${LD_LIBRARY_PATH%%:*}/$name\" && echo $name; done
            test \"$SYNCLINE_CUDA_DRIVER\" -ef \"${LD_LIBRARY_PATH%%:*}/libcuda.so\" && echo one driver";
        let (out, _) = shell(0, "run", words, script);
        for part in ["mark=1", "one driver"] {
            assert!(out.contains(part), "no {part:?} in: {out}");
        }
        assert!(
            out.contains("VK_LAYER_SYNCLINE_software") || !layer,
            "{out}"
        );
        assert!(out.contains("libcuda.so\nlibcuda.so.1\n"), "{out}");
    }
}

#[test]
fn a_program_ends_as_it_likes_and_has_its_own_arguments() {
    // The command itself takes none of these words.
    let words = ["run", "--software", "/bin/sh", "-c", "echo \"$@\"; exit 7"];
    let own = ["name", "--software", "--json", "-x", "--", "last"];
    let (out, _) = ends_with(7, "run-arguments", &[&words[..], &own].concat());
    assert_eq!(out, "--software --json -x -- last\n");
    // Reported as a shell reports an end by a signal.
    shell(128 + 9, "run-killed", &["run", "--software"], "kill -9 $$");
}

#[test]
fn a_program_that_cannot_be_run_is_named() {
    let arguments = ["run", "--software", "/nonexistent/engine"];
    let (_, error) = ends_with(2, "run-missing", &arguments);
    assert!(
        error.contains("/nonexistent/engine cannot be run"),
        "{error}"
    );
}

/// A parent process may ignore SIGCHLD. The command learns of the end of its child nevertheless.
#[test]
fn a_parent_that_ignores_sigchld_does_not_keep_the_command() {
    let temporary = scratch("sigchld");
    let mut command = Command::new("/bin/sh");
    let script = "trap '' CHLD; exec \"$0\" run --software /bin/sh -c 'exit 5'";
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_syncline")])
        .env("TMPDIR", &temporary)
        .env_remove("SYNCLINE_SOFTWARE")
        .env_remove("SYNCLINE_CUDA_DRIVER");
    ends(5, command, &temporary);
}
