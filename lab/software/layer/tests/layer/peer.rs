//! Two processes that share a timeline, a binary semaphore and memory.
#![allow(unsafe_code, reason = "takes descriptors from the parent process")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Child, Command};

use ash::vk;

use crate::Case;
use crate::gpu::{Driver, FOR_EVER};

pub(crate) const CASES: &[(&str, Case)] = &[
    ("two_processes_in_turns", turns),
    ("a_killed_process_just_stops", killed),
];

/// The first argument of the second process.
pub(crate) const FLAG: &str = "--second-process";
const ROUNDS: u32 = 100;

/// Starts the second process with these descriptors. No other process inherits them.
pub(crate) fn start(driver: &Driver, role: &str, files: &[&OwnedFd]) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([FLAG, role, &driver.id.as_raw().to_string()]);
    // Without `FD_CLOEXEC` while the child starts. Cases run one after the other.
    let copies: Vec<OwnedFd> = files
        .iter()
        .map(|file| rustix::io::dup(file).unwrap())
        .collect();
    for copy in &copies {
        command.arg(copy.as_raw_fd().to_string());
    }
    command.spawn().unwrap()
}

pub(crate) fn run(arguments: &[String]) {
    let number = |at: usize| arguments[at].parse::<i32>().unwrap();
    let id = vk::DriverId::from_raw(number(1));
    let driver = Driver {
        id,
        name: String::new(),
    };
    // SAFETY: the parent passes the numbers of descriptors that are this process's alone.
    let mut files = (2..arguments.len()).map(|at| unsafe { OwnedFd::from_raw_fd(number(at)) });
    let mut file = || files.next().unwrap();
    let gpu = driver.open();
    if arguments[0] == "images" {
        return crate::image::in_second_process(&gpu, &file());
    }
    let frames = gpu.imported_timeline(file());
    if arguments[0] == "killed" {
        let never = gpu.timeline(0);
        gpu.submit(&[], &[], &[(frames, 1)]);
        gpu.submit(&[(never, 1)], &[], &[(frames, 2)]);
        gpu.wait(frames, FOR_EVER);
    }
    let drawn = gpu.imported_binary(file());
    let shared = gpu.buffer(Some(file()));
    let shown = gpu.buffer(None);
    let copy = gpu.copy(&shared, &shown);
    for round in 1..=ROUNDS {
        gpu.submit(&[(drawn, 0)], &[copy], &[(frames, u64::from(round) * 2)]);
        gpu.wait(frames, u64::from(round) * 2);
        gpu.idle();
        assert_eq!(gpu.read(&shown), round);
    }
}

/// The second process copies each frame after the binary semaphore's signal.
///
/// It returns the frame with the timeline.
fn turns(driver: &Driver) {
    let gpu = driver.open();
    let (frames, drawn) = (gpu.shared_timeline(0), gpu.shared_binary());
    let buffer = gpu.buffer(None);
    let files = [
        &gpu.export(frames),
        &gpu.export(drawn),
        &gpu.export_memory(&buffer),
    ];
    let mut second = start(driver, "turns", &files);
    for round in 1..=ROUNDS {
        let fill = gpu.fill(&buffer, round);
        let before = u64::from(round - 1) * 2;
        gpu.submit(&[(frames, before)], &[fill], &[(drawn, 0)]);
    }
    assert!(second.wait().unwrap().success());
    gpu.wait(frames, u64::from(ROUNDS) * 2);
}

/// Made signals stay, and outstanding ones never come.
fn killed(driver: &Driver) {
    let gpu = driver.open();
    let frames = gpu.shared_timeline(0);
    let mut second = start(driver, "killed", &[&gpu.export(frames)]);
    gpu.submit(&[(frames, 2)], &[], &[(frames, 3)]);
    gpu.wait(frames, 1);
    second.kill().unwrap();
    assert!(!second.wait().unwrap().success());
    assert_eq!(gpu.value(frames), 1);
    // The surviving process makes the signal.
    gpu.signal(frames, 2);
    gpu.wait(frames, 3);
}
