//! Runs every recipe as a user runs it, on every Vulkan device of the machine.
//!
//! Frames are right with the waits and wrong without them. If both APIs have the same GPU, CUDA
//! produces, and also the host. Else the host produces. `SYNCLINE_REQUIRE_CUDA` makes the absence
//! of CUDA a failure.
#![allow(clippy::expect_used, clippy::panic, reason = "a test may panic")]

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use syncline::{Inventory, ProbeOptions, info::BackendKind};

/// Longer than any recipe runs on the slowest machine. A child that takes longer is killed.
const LIMIT: Duration = Duration::from_secs(120);

const RECIPES: &[(&str, &str)] = &[
    ("cudarc_ash", env!("CARGO_BIN_EXE_cudarc_ash")),
    #[cfg(feature = "wgpu")]
    ("wgpu_frames", env!("CARGO_BIN_EXE_wgpu_frames")),
];

/// The recipe whose producer is another library.
const LIBRARY: (&str, &str) = ("library_frames", env!("CARGO_BIN_EXE_library_frames"));

/// All recipes.
fn all() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    RECIPES.iter().chain([&LIBRARY])
}

/// How a child ended, and what it wrote.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    error: String,
}

impl Ended {
    fn last_line(&self) -> &str {
        self.out.lines().last().unwrap_or_default()
    }

    /// Returns the numbers of `verified … of … frames` in the last line.
    fn verdict(&self) -> Option<(u32, u32)> {
        let words: Vec<_> = self.last_line().split(' ').collect();
        match words[..] {
            ["verified", right, "of", all, "frames"] => {
                Some((right.parse().ok()?, all.parse().ok()?))
            }
            _ => None,
        }
    }
}

/// Runs a recipe, with its output in files of this name.
///
/// A pipe that is not read would make the recipe wait.
fn run(name: &str, recipe: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (out, error) = (
        folder.join(format!("{name}.out")),
        folder.join(format!("{name}.error")),
    );
    let file = |path| File::create(path).expect("a file");
    let mut child = Command::new(recipe)
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(file(&out))
        .stderr(file(&error))
        .spawn()
        .expect("the recipe starts");
    let until = Instant::now() + LIMIT;
    let code = loop {
        if let Some(status) = child.try_wait().expect("the recipe can be waited for") {
            break status.code();
        }
        if Instant::now() > until {
            child.kill().expect("the recipe can be ended");
            let _ = child.wait();
            panic!("{name} {arguments:?} hangs: {:?}", fs::read_to_string(&out));
        }
        sleep(Duration::from_millis(5));
    };
    let text = |path| fs::read_to_string(path).expect("UTF-8");
    let ended = Ended {
        code,
        out: text(&out),
        error: text(&error),
    };
    assert!(!ended.error.contains("panicked"), "{name}: {ended:?}");
    ended
}

/// Returns the names of the machine's Vulkan devices. Prints why there are none.
fn devices() -> Vec<String> {
    let inventory = Inventory::probe(&ProbeOptions::default());
    let found = inventory.of(BackendKind::Vulkan);
    let names: Vec<_> = found.map(|found| found.info().name.clone()).collect();
    if names.is_empty() {
        println!("skipped: no Vulkan device: {:?}", inventory.unavailable());
    }
    names
}

#[test]
fn every_frame_is_right_with_the_waits() {
    for device in devices() {
        for (name, recipe) in RECIPES {
            let arguments = ["--frames", "40", "--producer", "host", "--device", &device];
            let ended = run(&format!("{name}-right"), recipe, &arguments, &[]);
            println!("{name} on {device}: {}", ended.last_line());
            assert_eq!(ended.verdict(), Some((40, 40)), "{name}: {ended:?}");
            assert_eq!(ended.code, Some(0), "{name}: {ended:?}");
            assert!(
                ended.out.contains("producer: host (asked for)"),
                "{ended:?}"
            );
        }
    }
}

/// 300 frames of another library, through a few semaphores of its own.
#[test]
fn every_frame_of_another_library_is_right() {
    let (name, recipe) = LIBRARY;
    for device in devices() {
        let ended = run(
            &format!("{name}-right"),
            recipe,
            &["--device", &device],
            &[],
        );
        println!("{name} on {device}: {}", ended.last_line());
        assert_eq!(ended.verdict(), Some((300, 300)), "{ended:?}");
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

/// The negative control: without the waits the frames are wrong.
///
/// The producer is 5 ms late. On a busy machine the consumer may be later than that each time, and
/// find right frames. So this is tried several times.
#[test]
fn frames_are_wrong_without_the_waits() {
    for device in devices() {
        for (name, recipe) in all() {
            let arguments = ["--no-sync", "--frames", "12", "--device", &device];
            let mut ends = (0..10).map(|_| {
                let ended = run(&format!("{name}-wrong"), recipe, &arguments, &[]);
                println!("{name} on {device}: {}", ended.last_line());
                let Some((right, all)) = ended.verdict() else {
                    panic!("{name} has no verdict: {ended:?}");
                };
                assert_eq!(all, 12, "{name}: {ended:?}");
                let is_wrong = right < all;
                assert_eq!(ended.code, Some(is_wrong.into()), "{name}: {ended:?}");
                is_wrong
            });
            assert!(
                ends.any(|is_wrong| is_wrong),
                "{name}: the frames are right"
            );
        }
    }
}

/// As many frames as there are buffers, and fewer.
#[test]
fn few_frames_are_all_compared() {
    if let Some(device) = devices().first() {
        for (name, recipe) in all() {
            for frames in 1..=4 {
                let count = frames.to_string();
                let arguments = ["--frames", &count, "--device", device];
                let ended = run(&format!("{name}-few"), recipe, &arguments, &[]);
                assert_eq!(ended.verdict(), Some((frames, frames)), "{name}: {ended:?}");
            }
        }
    }
}

#[test]
fn cuda_produces_if_it_can_and_the_reason_is_printed_if_not() {
    let inventory = Inventory::probe(&ProbeOptions::default());
    // CUDA can produce for a Vulkan device of the same GPU. A software Vulkan device has another
    // one.
    let cuda = inventory.of(BackendKind::Cuda).any(|cuda| {
        let mut vulkan = inventory.of(BackendKind::Vulkan);
        vulkan.any(|vulkan| vulkan.info().same_gpu(cuda.info()))
    });
    assert!(
        cuda || std::env::var_os("SYNCLINE_REQUIRE_CUDA").is_none(),
        "no GPU with both APIs: {:?}",
        inventory.unavailable()
    );
    if devices().is_empty() {
        return;
    }
    for (name, recipe) in RECIPES {
        let asked = run(
            &format!("{name}-cuda"),
            recipe,
            &["--producer", "cuda"],
            &[],
        );
        let found = run(&format!("{name}-found"), recipe, &["--frames", "5"], &[]);
        println!("{name}: {} {}", asked.last_line(), asked.error.trim());
        if cuda {
            assert_eq!(asked.verdict(), Some((300, 300)), "{name}: {asked:?}");
            assert_eq!(asked.code, Some(0), "{name}: {asked:?}");
            assert!(found.out.contains("producer: CUDA on"), "{found:?}");
        } else {
            assert_eq!(asked.code, Some(1), "{name}: {asked:?}");
            assert!(asked.error.contains("failed: "), "{name}: {asked:?}");
            // The line that names the producer also has the reason.
            let producer = found.out.lines().find(|line| line.starts_with("producer"));
            let producer = producer.unwrap_or_default().to_lowercase();
            assert!(producer.starts_with("producer: host ("), "{found:?}");
            assert!(producer.contains("cuda"), "{found:?}");
            assert_eq!(found.code, Some(0), "{name}: {found:?}");
        }
    }
}

#[test]
fn no_vulkan_is_exit_code_3_with_the_reason() {
    let nowhere = [
        ("VK_DRIVER_FILES", "/nonexistent.json"),
        ("VK_ICD_FILENAMES", "/nonexistent.json"),
    ];
    for (name, recipe) in all() {
        let ended = run(&format!("{name}-nowhere"), recipe, &[], &nowhere);
        assert_eq!(ended.code, Some(3), "{name}: {ended:?}");
        assert!(
            ended.last_line().starts_with("skipped: there is no Vulkan"),
            "{name}: {ended:?}"
        );
    }
}

#[test]
fn bad_arguments_are_exit_code_2() {
    for (name, recipe) in all() {
        for arguments in [
            &["--nosuch"][..],
            &["--frames", "0"],
            &["--producer", "nosuch"],
        ] {
            let ended = run(&format!("{name}-usage"), recipe, arguments, &[]);
            assert_eq!(ended.code, Some(2), "{name} {arguments:?}: {ended:?}");
            assert!(ended.error.contains("--help"), "{name}: {ended:?}");
        }
        if !devices().is_empty() {
            let ended = run(
                &format!("{name}-nosuch"),
                recipe,
                &["--device", "no such device"],
                &[],
            );
            assert_eq!(ended.code, Some(2), "{name}: {ended:?}");
            assert!(ended.error.contains("there are: "), "{name}: {ended:?}");
        }
    }
}
