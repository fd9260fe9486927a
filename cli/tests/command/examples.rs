//! The examples of the crate `syncline`, on the software drivers and without any driver.

#![allow(clippy::expect_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rstest::rstest;

use super::doctor::lavapipe;
use super::software::{ends_validated, ends_with, has_vulkan};

/// The program of an example. `None` if only this package was built.
fn example(name: &str) -> Option<String> {
    let command = Path::new(env!("CARGO_BIN_EXE_syncline"));
    let folder: PathBuf = command.parent().expect("a folder").join("examples");
    let program = folder.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/examples");
    let is_one_file = source.join(name).with_extension("rs").exists();
    assert!(
        is_one_file || source.join(name).join("main.rs").exists(),
        "{name}"
    );
    if !program.exists() {
        eprintln!("skipped: cargo test --workspace builds {name}");
        return None;
    }
    Some(program.to_str().expect("UTF-8").to_owned())
}

/// The arguments that run a program on the software drivers.
fn on_software<'a>(program: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--software", "--"], program].concat()
}

/// Runs a program that ends with an error. Returns what it said.
fn refused(command: &mut Command) -> String {
    let made = command.output().expect("the example");
    assert_eq!(made.status.code(), Some(1));
    String::from_utf8_lossy(&made.stderr).into_owned()
}

/// The words of a buffer, and the texels of an image, that went both ways.
const OWN_MEMORY: &str = "the last command is Some(9)\n\
    3072 texels of Vulkan and 3072 of CUDA are right, of 3072";

/// With CUDA and Vulkan in software, as on a machine with one GPU.
#[rstest]
#[case::streams("two_queues", &["cuda"], "the last word written is Some(100)")]
#[case::vulkan_queues("two_queues", &["vulkan"], "the last word written is Some(100)")]
#[case::workers("two_queues", &["host"], "the last word written is Some(100)")]
#[case::image("image", &[], "230400 of 230400 texels are right")]
#[case::cuda_memory("cuda_memory", &[], "65536 of 65536 words are 7")]
#[case::cuda_graph("cuda_graph", &[], "frame 100: 1024 of 1024 words are 7")]
#[case::own_memory("own_memory", &[], OWN_MEMORY)]
#[case::word("word", &[], "the kernel has left [7]\nthe word is at 3")]
#[case::own_submission("own_submission", &[], "the line is at 2")]
#[case::vertices("vertices", &[], "\n0 pixels are wrong")]
#[case::filter("filter", &[], "\n0 pixels are wrong")]
#[case::futures("futures", &[], "frame 2 came: false")]
#[case::timing("timing", &[], "on the host's clock")]
#[case::host_processes("two_processes", &[], "PeerLost: ")]
#[case::vulkan_processes("two_processes", &["vulkan"], "PeerLost: ")]
#[case::cuda_processes("two_processes", &["cuda"], "PeerLost: ")]
#[case::image_processes("two_processes_image", &[], "frame 5: 230400 of 230400 texels are right")]
// The negative control: the wrong one of the two waits.
#[case::image_no_sync("two_processes_image", &["--no-sync"], "frame 5: 0 of 230400 texels are right")]
fn examples_run_on_software_drivers(
    #[case] name: &str,
    #[case] arguments: &[&str],
    #[case] says: &str,
) {
    let scratch = format!("example-{name}-{}", arguments.concat());
    let Some(program) = example(name).filter(|_| has_vulkan(&scratch)) else {
        return;
    };
    let run = [&[&*program], arguments].concat();
    let (out, _) = ends_with(0, &scratch, &on_software(&run));
    assert!(out.contains(says), "{out}");
}

/// The negative control: CUDA works behind the draw or the pass that should wait for it.
#[rstest]
#[case::vertices("vertices", 512)]
#[case::filter("filter", 128)]
fn a_picture_is_wrong_without_the_waits(#[case] name: &str, #[case] side: usize) {
    let scratch = format!("example-{name}-no-sync");
    let Some(program) = example(name).filter(|_| has_vulkan(&scratch)) else {
        return;
    };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.png"));
    // Fails if there is none.
    let _ = std::fs::remove_file(&path);
    let file = path.to_str().expect("UTF-8");
    let run = [&program, "--no-sync", file];
    let (out, error) = ends_with(1, &scratch, &on_software(&run));
    let wrong = out
        .lines()
        .find_map(|line| line.strip_suffix(" pixels are wrong"));
    let wrong: Option<usize> = wrong.and_then(|count| count.parse().ok());
    assert!(wrong > Some(1000), "{out}{error}");
    assert!(error.contains("than CUDA's result"), "{error}");
    let (width, bytes) = picture(&path);
    assert_eq!((width, bytes.len()), (side, 3 * side * side));
}

/// Their second kernels are for GPUs. The driver says why it refuses them.
#[rstest]
#[case::vertices("vertices")]
#[case::filter("filter")]
fn a_kernel_of_floating_point_numbers_is_refused(#[case] name: &str) {
    let scratch = format!("example-{name}-float");
    let Some(program) = example(name).filter(|_| has_vulkan(&scratch)) else {
        return;
    };
    let (_, error) = ends_with(1, &scratch, &on_software(&[&program, "--float"]));
    assert!(error.contains("floating-point numbers"), "{error}");
}

/// The output that a page shows below the source of an example.
fn shown_output(page: &str, name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join(page)).expect("a page");
    let source = root.join("interop/examples").join(name);
    let source = std::fs::read_to_string(source.with_extension("rs")).expect("an example");
    let (_, behind) = page.split_once(source.trim()).expect("the source");
    let (between, shown) = behind.split_once("```text\n").expect("a block");
    assert!(!between.contains("```rust"), "{name} has no output");
    let (shown, _) = shown.split_once("```").expect("its end");
    shown.to_owned()
}

/// The lines without the numbers of objects, processes and threads, which differ between runs.
fn without_numbers(text: &str) -> Vec<String> {
    let masked = |line: &str| {
        let mut out = String::new();
        for letter in line.chars() {
            let is_number = ["#", "process ", "host ("]
                .iter()
                .any(|mark| out.ends_with(mark));
            if !(letter.is_ascii_digit() && is_number) {
                out.push(letter);
            }
        }
        out
    };
    text.lines().map(masked).collect()
}

#[rstest]
#[case::hello("docs/tutorial.md", "hello")]
#[case::cuda_to_vulkan("README.md", "cuda_to_vulkan")]
#[case::in_flight("docs/tutorial.md", "in_flight")]
#[case::failure("docs/tutorial.md", "failure")]
#[case::trace("docs/tutorial.md", "trace")]
#[case::server("docs/processes.md", "server")]
fn a_page_shows_what_its_example_prints(#[case] page: &str, #[case] name: &str) {
    let scratch = format!("page-{name}");
    let needs_vulkan = name == "cuda_to_vulkan";
    let Some(program) = example(name).filter(|_| !needs_vulkan || has_vulkan(&scratch)) else {
        return;
    };
    let out = if needs_vulkan {
        ends_with(0, &scratch, &on_software(&[&program])).0
    } else {
        let made = Command::new(&program).output().expect("the example");
        assert!(made.status.success(), "{made:?}");
        String::from_utf8(made.stdout).expect("UTF-8")
    };
    let [mut out, mut shown] = [out, shown_output(page, name)].map(|text| without_numbers(&text));
    if name == "server" {
        // Its two clients run at the same time.
        out.sort();
        shown.sort();
    }
    if needs_vulkan {
        // The first line begins with the name of the device.
        for lines in [&mut out, &mut shown] {
            lines[0] = lines[0].rsplit(": ").next().unwrap_or_default().to_owned();
        }
    }
    assert_eq!(out, shown);
}

/// An example is one file, or the `main.rs` of a folder.
#[test]
fn an_example_has_at_most_80_lines() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/examples");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the examples") {
        let path = entry.expect("an example").path();
        let main = path.join("main.rs");
        let file = if path.is_dir() { main } else { path };
        let text = std::fs::read_to_string(&file).expect("UTF-8");
        let lines = text.lines().count();
        assert!(lines <= 80, "{} has {lines} lines", file.display());
        count += 1;
    }
    assert!(count > 10, "{count}");
}

/// Without CUDA the error says what is missing.
#[test]
fn a_missing_pair_is_named() {
    let Some(program) = example("cuda_to_vulkan") else {
        return;
    };
    let missing = "/nonexistent/libcuda.so.1";
    let said = refused(Command::new(program).env("SYNCLINE_CUDA_DRIVER", missing));
    assert!(said.contains("cuda"), "{said}");
}

/// CUDA on one GPU and Vulkan on another one. The error names both, and what the caller can do.
#[test]
fn devices_of_two_gpus_are_no_pair() {
    let Some((program, lavapipe)) = example("cuda_to_vulkan").zip(lavapipe()) else {
        return;
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    command
        .args(on_software(&[&program]))
        .env("SYNCLINE_SOFTWARE_CUDA_DEVICES", "swiftshader")
        .env_remove("VK_ADD_DRIVER_FILES")
        .env("VK_ICD_FILENAMES", &lavapipe)
        .env("VK_DRIVER_FILES", &lavapipe);
    let said = refused(&mut command);
    for part in [" cuda ", " vulkan ", "`connect`", "syncline doctor"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let uuids = said.split(" with UUID ").skip(1).map(|rest| &rest[..36]);
    let uuids: BTreeSet<_> = uuids.collect();
    assert_eq!(uuids.len(), 2, "{said}");
}

/// The engine ends all frames, although it loses its device, or what stands for that, at frame 15.
#[rstest]
#[case::vulkan("vulkan")]
#[case::host("host")]
fn an_engine_opens_a_lost_device_again(#[case] device: &str) {
    let scratch = format!("example-engine-loop-{device}");
    let Some(program) = example("engine_loop").filter(|_| has_vulkan(&scratch)) else {
        return;
    };
    let (out, _) = ends_with(0, &scratch, &on_software(&[&program, device]));
    let opened = out.lines().filter(|line| line.starts_with(device));
    assert_eq!(opened.count(), 2, "{out}");
    assert!(
        out.contains("frame 15: ") && out.contains("20 frames"),
        "{out}"
    );
    let is_lost = out.contains("vkQueueSubmit returned VK_ERROR_DEVICE_LOST");
    assert_eq!(is_lost, out.contains("llvmpipe"), "{out}");
}

/// An X11 server without a screen. Ended when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) display: String,
}

impl Server {
    /// Starts one on a free display. `None` if it is not installed.
    pub(crate) fn start() -> Option<Self> {
        let mut command = Command::new("Xvfb");
        command.args(["-displayfd", "1", "-screen", "0", "640x480x24"]);
        command.args(["-nolisten", "tcp", "-ac"]);
        let started = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut child) = started else {
            eprintln!("skipped: no Xvfb (Debian: xvfb), so a window cannot be opened");
            return None;
        };
        let mut number = String::new();
        let told = child.stdout.take().expect("a pipe");
        let read = BufReader::new(told).read_line(&mut number);
        let display = format!("DISPLAY=:{}", number.trim());
        let server = Self { child, display };
        assert!(read.expect("a number") > 1, "Xvfb has not started");
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the example `window` and a server for it.
fn window(scratch: &str) -> Option<(String, Server)> {
    let program = example("window").filter(|_| has_vulkan(scratch))?;
    Some((program, Server::start()?))
}

/// The width, and red, green and blue of each pixel.
fn picture(path: &Path) -> (usize, Vec<u8>) {
    let file = BufReader::new(File::open(path).expect("a picture"));
    let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
    let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut bytes).expect("pixels");
    assert_eq!(info.color_type, png::ColorType::Rgb);
    (info.width as usize, bytes)
}

/// How many pixels are not those that the example paints in frame `n`.
fn wrong(picture: &(usize, Vec<u8>), n: usize) -> usize {
    let (width, bytes) = picture;
    let painted = |at: usize| {
        let (x, y) = (at % width, at / width);
        [x + 2 * n, y, 16 * n].map(|channel| (channel & 255) as u8)
    };
    let pixels = bytes.chunks_exact(3).enumerate();
    pixels.filter(|(at, rgb)| *rgb != painted(*at)).count()
}

/// The consumer is submitted first in each frame. One frame fails, and the window's size changes.
#[test]
fn a_window_shows_what_the_host_has_painted() {
    let scratch = "example-window";
    let Some((program, server)) = window(scratch) else {
        return;
    };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("window.png");
    // Fails if there is none.
    let _ = std::fs::remove_file(&path);
    let file = path.to_str().expect("UTF-8");
    let driver = lavapipe().map(|path| format!("VK_DRIVER_FILES={}", path.display()));
    let mut run = vec!["env", &server.display];
    run.extend(driver.as_deref());
    run.extend([&program, "12", file]);
    let (out, _) = ends_validated(0, scratch, &on_software(&run));
    assert!(driver.is_none() || out.starts_with("llvmpipe"), "{out}");
    assert!(out.contains("frame 3 again: work failed"), "{out}");
    assert!(out.contains("a swapchain of 400 x 240"), "{out}");
    assert!(!out.contains("VUID"), "{out}");
    let shown = picture(&path);
    assert_eq!((shown.0, shown.1.len()), (400, 3 * 400 * 240));
    assert_eq!(wrong(&shown, 12), 0);
    // Another frame would be seen.
    for other in [10, 11] {
        assert_eq!(wrong(&shown, other), 400 * 240);
    }
}

/// The server ends while frames are shown.
#[test]
fn a_lost_window_ends_with_what_to_do() {
    let Some((program, server)) = window("example-lost-window") else {
        return;
    };
    let mut child = Command::new(env!("CARGO_BIN_EXE_syncline"))
        .args(on_software(&[
            "env",
            &server.display,
            &program,
            "1000000000",
        ]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let runs = lines.any(|line| line.expect("UTF-8").contains("a swapchain of 400 x 240"));
    drop(server);
    let ended = child.wait_with_output().expect("the end");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(runs, "{said}");
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("Open a window again"), "{said}");
}

/// The swapchain is out of date although the window is as it was, or its surface is lost.
#[rstest]
#[case::acquire_out_of_date("acquire:2:out-of-date", None)]
#[case::present_out_of_date("present:2:out-of-date", None)]
#[case::acquire_lost("acquire:2:surface-lost", Some(1))]
#[case::present_lost("present:2:surface-lost", Some(1))]
fn a_surface_that_a_call_reports_as_changed_is_handled(
    #[case] fails: &str,
    #[case] ends: Option<i32>,
) {
    let scratch = format!("example-surface-{}", fails.replace(':', "-"));
    let Some((program, server)) = window(&scratch) else {
        return;
    };
    // Before the window gets another size.
    let frames = "4";
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    command.args(on_software(&["env", &server.display, &program, frames]));
    command.env("SYNCLINE_SOFTWARE_LAYER_SURFACE", fails);
    let ended = command.output().expect("the command");
    let (out, said) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );
    assert_eq!(ended.status.code(), Some(ends.unwrap_or(0)), "{out}{said}");
    let swapchains = out.matches("a swapchain of 320 x 200").count();
    if ends.is_some() {
        assert!(said.contains("Open a window again"), "{said}");
        assert_eq!(swapchains, 1, "{out}");
    } else {
        assert_eq!(swapchains, 2, "{out}");
    }
}

/// The window is there, and no device can present in it.
#[rstest]
#[case::swapchain(
    "SYNCLINE_SOFTWARE_LAYER_HIDE",
    "VK_KHR_swapchain",
    "it has no VK_KHR_swapchain"
)]
#[case::timelines(
    "SYNCLINE_SOFTWARE_LAYER_HIDE",
    "timelineSemaphore",
    "timeline semaphores"
)]
#[case::driver(
    "VK_DRIVER_FILES",
    "/nonexistent.json",
    "Unable to find a Vulkan driver"
)]
fn a_device_that_cannot_present_says_what_is_missing(
    #[case] variable: &str,
    #[case] value: &str,
    #[case] says: &str,
) {
    let scratch = format!("example-no-device-{}", value.replace('/', ""));
    let Some((program, server)) = window(&scratch) else {
        return;
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_syncline"));
    command.args(on_software(&["env", &server.display, &program]));
    let said = refused(command.env(variable, value));
    assert!(said.contains("can present in the window"), "{said}");
    assert!(
        said.contains(says) && said.contains("mesa-vulkan-drivers"),
        "{said}"
    );
}

/// Without a server, the error says what is missing.
#[rstest]
#[case::none(None, "DISPLAY is not set")]
#[case::no_server(Some(":59999"), "DISPLAY=:59999")]
fn a_window_that_cannot_be_opened_says_what_to_do(
    #[case] display: Option<&str>,
    #[case] says: &str,
) {
    let Some(program) = example("window") else {
        return;
    };
    let mut command = Command::new(program);
    command.env_remove("DISPLAY");
    if let Some(display) = display {
        command.env("DISPLAY", display);
    }
    let said = refused(&mut command);
    assert!(said.contains(says) && said.contains("xvfb-run"), "{said}");
}
