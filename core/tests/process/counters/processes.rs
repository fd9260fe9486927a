//! X2, Q9: two processes that share a page.
//!
//! The child runs this program again, with the page as its standard input.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::MemfdFlags;
use syncline_core::{Error, Timeline, handle::CounterFd, host};

use super::{FUTEX_WAIT, LONG, alone, exported, imported};

/// The environment variable with the role of a child. Set in children only.
const ROLE: &str = "SYNCLINE_COUNTERS_CHILD";
/// The environment variable with the path of the file whose two words the counter guards.
const DATA: &str = "SYNCLINE_COUNTERS_DATA";

const ROUNDS: u64 = 10_000;

/// Exit codes of a child that found an error.
const TIMED_OUT: i32 = 71;
const WRONG_DATA: i32 = 72;

fn word(file: &File, at: u64) -> u64 {
    let mut word = [0; 8];
    rustix::io::pread(file, &mut word, at).unwrap();
    u64::from_ne_bytes(word)
}

fn set_word(file: &File, at: u64, value: u64) {
    rustix::io::pwrite(file, &value.to_ne_bytes(), at).unwrap();
}

/// Starts a child in the role `role` with its own handle of the page.
fn child(role: &str, handle: CounterFd, data: &File) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "counters::processes::the_child", "--nocapture"])
        .env(ROLE, role)
        .env(
            DATA,
            format!("/proc/{}/fd/{}", std::process::id(), data.as_raw_fd()),
        )
        .stdin(Stdio::from(handle.into_fd()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn parent() -> (Timeline, host::Exporter, File) {
    let device = host::Device::new();
    let (line, exporter) = exported(&device, 0);
    let data = rustix::fs::memfd_create("data", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&data, 16).unwrap();
    (line, exporter, data.into())
}

/// Not a test. The children of the other tests run it.
#[test]
fn the_child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let page: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let line = imported(&host::Device::new(), CounterFd::from_fd(page).unwrap());
    let path = std::env::var(DATA).unwrap();
    let data = File::options().read(true).write(true).open(path).unwrap();
    let (rounds, patience) = match &*role {
        "answers" => (ROUNDS, LONG),
        "waits without a signal" => (1, Duration::from_millis(50)),
        "does not wait" => (1, Duration::ZERO),
        "dies in its sleep" => (1, Duration::MAX),
        other => panic!("no role {other}"),
    };
    for round in 0..rounds {
        if role != "does not wait" {
            match line.at(2 * round + 1).wait(patience) {
                Err(Error::TimedOut { .. }) => std::process::exit(TIMED_OUT),
                other => other.unwrap(),
            }
        }
        if word(&data, 0) != round + 1 {
            std::process::exit(WRONG_DATA);
        }
        set_word(&data, 8, 3 * round);
        line.signal(2 * round + 2).unwrap();
    }
}

/// Two processes signal in turn 10,000 times. Each checks the data that the other wrote before.
#[test]
fn two_processes_signal_in_turn() {
    let _alone = alone();
    let (line, exporter, data) = parent();
    let mut child = child("answers", exporter.export().unwrap(), &data);
    for round in 0..ROUNDS {
        set_word(&data, 0, round + 1);
        line.signal(2 * round + 1).unwrap();
        line.at(2 * round + 2).wait(LONG).unwrap();
        assert_eq!(word(&data, 8), 3 * round, "in round {round}");
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(line.value().unwrap(), 2 * ROUNDS);
}

/// Same as the test above without the parent's signal. The child times out.
#[test]
fn without_the_signal_the_other_process_times_out() {
    let _alone = alone();
    let (_line, exporter, data) = parent();
    set_word(&data, 0, 1);
    let mut child = child("waits without a signal", exporter.export().unwrap(), &data);
    assert_eq!(child.wait().unwrap().code(), Some(TIMED_OUT));
}

/// Same as the test above without the child's wait. The child reads the old data.
#[test]
fn without_the_wait_the_other_process_reads_old_data() {
    let _alone = alone();
    let (line, exporter, data) = parent();
    let mut child = child("does not wait", exporter.export().unwrap(), &data);
    // The parent writes and signals only after the child has exited.
    assert_eq!(child.wait().unwrap().code(), Some(WRONG_DATA));
    set_word(&data, 0, 1);
    line.signal(1).unwrap();
}

/// A process that is killed while it sleeps on a page does not disturb others that use the page.
#[test]
fn a_process_killed_in_its_sleep_leaves_the_page_usable() {
    let _alone = alone();
    let (line, exporter, data) = parent();
    let page = super::Hostile::of(&exporter);
    let mut dying = child("dies in its sleep", exporter.export().unwrap(), &data);
    let sleepers = || page.read_word(FUTEX_WAIT) as u32;
    let wakes = || page.read_word(FUTEX_WAIT) >> 32;
    // Until the child has set `sleepers`. It sleeps then, or is about to.
    while sleepers() == 0 {
        std::thread::yield_now();
    }
    dying.kill().unwrap();
    assert!(!dying.wait().unwrap().success());
    // The first signal clears `sleepers`, so later signals make no system call.
    line.signal(1).unwrap();
    assert_eq!(sleepers(), 0);
    let before = wakes();
    line.signal(2).unwrap();
    line.signal(3).unwrap();
    assert_eq!(wakes(), before, "a signal woke a dead process");
    let (line, exporter, data) = parent();
    let mut other = child("answers", exporter.export().unwrap(), &data);
    for round in 0..100 {
        set_word(&data, 0, round + 1);
        line.signal(2 * round + 1).unwrap();
        line.at(2 * round + 2).wait(LONG).unwrap();
    }
    other.kill().unwrap();
    other.wait().unwrap();
}
