//! The CUDA driver in software answers like the GPU whose answers are recorded in this repository.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test may panic and says what it leaves out"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

const PROBES: &str = env!("CARGO_BIN_EXE_probes");
/// A question that Vulkan is needed for, and its answer without it.
const WITH_VULKAN: (&str, &str) = ("external.timeline", "no Vulkan");
/// Families that need Vulkan.
const OF_VULKAN: [&str; 2] = ["external", "image"];
/// How many questions are asked at once. Most of the time they wait.
const JOBS: u32 = 32;
/// The same for questions whose answer is another one than the GPU's.
///
/// A busy machine may be too slow for the times of a question. So all of them are multiplied.
const JOBS_AGAIN: u32 = 4;
const PATIENCE_AGAIN: u32 = 8;

/// A directory in which loaders find the drivers that were built with this test. Removed when it is
/// dropped.
struct Drivers(PathBuf);

impl Drivers {
    fn link() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("syncline-probes-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let test = std::env::current_exe().unwrap();
        let cuda = test.with_file_name("libsyncline_software_cuda.so");
        let layer = test.with_file_name(syncline_software_layer::LIBRARY);
        assert!(cuda.exists(), "{} is not built", cuda.display());
        assert!(layer.exists(), "{} is not built", layer.display());
        for name in ["libcuda.so.1", "libcuda.so"] {
            std::os::unix::fs::symlink(&cuda, directory.join(name)).unwrap();
        }
        let manifest = directory.join("VkLayer_syncline_software.json");
        std::fs::write(manifest, syncline_software_layer::manifest(&layer)).unwrap();
        Self(directory)
    }

    /// `probes` with the drivers.
    fn probes(&self) -> Command {
        self.probes_on("lavapipe", "*lvp_icd*")
    }

    /// `probes` with this device, whose Vulkan driver has a manifest of such a name.
    fn probes_on(&self, device: &str, manifest: &str) -> Command {
        let mut probes = Command::new(PROBES);
        probes
            .env("LD_LIBRARY_PATH", &self.0)
            .env("VK_ADD_LAYER_PATH", &self.0)
            .env("VK_INSTANCE_LAYERS", "VK_LAYER_SYNCLINE_software")
            .env("VK_LOADER_DRIVERS_SELECT", manifest)
            .env("SYNCLINE_SOFTWARE_CUDA_DEVICES", device);
        probes
    }

    /// The record of the answers to these questions.
    fn answers(&self, questions: &[&str], jobs: u32, patience: u32) -> String {
        let mut probes = self.probes();
        probes.env("SYNCLINE_PROBES_PATIENCE", patience.to_string());
        probes.args(["--jobs", &jobs.to_string()]).args(questions);
        output(&mut probes)
    }

    /// Compares a record with the GPU's, without the answers to questions that were left out.
    ///
    /// # Errors
    /// The lines that differ.
    fn compare(&self, record: &str, left_out: &[&str]) -> Result<(), String> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let known = here.join("differences.txt");
        let recorded = std::fs::read_to_string(here.join("../../../results/h200/probes.txt"));
        let recorded = lines_about_none(&recorded.unwrap(), left_out);
        let (gpu, new) = (self.0.join("gpu.txt"), self.0.join("record.txt"));
        std::fs::write(&gpu, recorded).unwrap();
        std::fs::write(&new, record).unwrap();
        let mut compare = Command::new(PROBES);
        compare.arg("compare").args([&gpu, &new, &known]);
        let compared = compare.output().unwrap();
        if compared.status.success() {
            return Ok(());
        }
        let said = [compared.stdout, compared.stderr].concat();
        Err(String::from_utf8_lossy(&said).into_owned())
    }
}

impl Drop for Drivers {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a line is an answer to the question, or says that one differs.
///
/// Its name is that of the question, perhaps with a part behind it, or a pattern with a `*`.
fn is_about(line: &str, question: &str) -> bool {
    let name = line.split_once(": ").map_or(line, |(name, _)| name);
    if let Some((beginning, _)) = name.split_once('*') {
        return question.starts_with(beginning) || beginning.starts_with(&format!("{question}."));
    }
    let part = name.strip_prefix(question);
    part.is_some_and(|part| part.is_empty() || part.starts_with('.'))
}

/// The lines of a record that are about none of the questions.
fn lines_about_none(record: &str, questions: &[&str]) -> String {
    record
        .lines()
        .filter(|line| !questions.iter().any(|question| is_about(line, question)))
        .flat_map(|line| [line, "\n"])
        .collect()
}

#[test]
fn answers_are_those_of_the_gpu() {
    let drivers = Drivers::link();
    let mut left_out = Vec::new();
    let (question, none) = WITH_VULKAN;
    if output(drivers.probes().arg(question)).contains(none) {
        eprintln!("left out: {OF_VULKAN:?}, because the loader finds no lavapipe");
        left_out.extend(OF_VULKAN);
    }
    let names = output(Command::new(PROBES).arg("--list"));
    let asked: Vec<_> = names
        .lines()
        .filter(|name| !left_out.iter().any(|part| is_about(name, part)))
        .collect();
    let record = drivers.answers(&asked, JOBS, 1);
    let Err(differences) = drivers.compare(&record, &left_out) else {
        return;
    };
    eprintln!("asked again with more time:\n{differences}");
    let differs = |question: &&str| differences.lines().any(|line| is_about(line, question));
    let parts: Vec<_> = asked.iter().copied().filter(differs).collect();
    assert!(!parts.is_empty(), "about no question: {differences}");
    // A filter is a part of a name, so others may be asked, too.
    let is_part = |question: &&str| parts.iter().any(|part| question.contains(part));
    let again: Vec<_> = asked.into_iter().filter(is_part).collect();
    let mut new = lines_about_none(&record, &again);
    new += &drivers.answers(&again, JOBS_AGAIN, PATIENCE_AGAIN);
    if let Err(differences) = drivers.compare(&new, &left_out) {
        panic!("the GPU's answer | the software's answer\n{differences}");
    }
}

#[test]
fn kernels_and_vulkan_see_the_same_texels() {
    let drivers = Drivers::link();
    for (device, manifest) in [("lavapipe", "*lvp_icd*"), ("swiftshader", "*swiftshader*")] {
        let (question, none) = WITH_VULKAN;
        if output(drivers.probes_on(device, manifest).arg(question)).contains(none) {
            eprintln!("left out: {device}, because the loader does not find it");
            continue;
        }
        let record = output(drivers.probes_on(device, manifest).arg("image.kernel_"));
        let lines = record.lines().filter_map(|line| line.split_once(": "));
        let mut right = std::collections::BTreeMap::<&str, u32>::new();
        for (name, answer) in lines {
            let part = name.rsplit('.').next().unwrap_or(name);
            let is_texel = ["suld", "sust", "others", "tex", "tex_level"].contains(&part);
            // A GPU reads no texels of faces and slices in this way.
            let is_other = name.contains("_unsaid.") || name.contains("_face.tex");
            if !is_texel || is_other {
                continue;
            }
            assert_eq!(answer, "0, right", "{name} on {device}");
            *right.entry(part).or_default() += 1;
        }
        let expected = [
            ("others", 13),
            ("suld", 13),
            ("sust", 13),
            ("tex", 10),
            ("tex_level", 10),
        ];
        assert!(expected.into_iter().eq(right), "on {device}: {record}");
    }
}
