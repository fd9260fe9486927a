//! X2, Q9: two processes. The child is this program again, with the page as its standard input.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::MemfdFlags;
use syncline_core::{CounterFd, Error, Timeline, host};

use super::{LONG, alone, exported, imported};

/// How the child behaves, and that it is one.
const ROLE: &str = "SYNCLINE_COUNTERS_CHILD";
/// What the counter guards: two words in a file.
const DATA: &str = "SYNCLINE_COUNTERS_DATA";

const ROUNDS: u64 = 10_000;

/// Exit codes of the child besides 0: what it found.
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

/// Starts the child, in a role, with a handle of its own.
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

/// No test, but for the other tests' children.
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
        "waits for nobody" => (1, Duration::from_millis(50)),
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

/// Ten thousand times there and back, each side looking at what the other has written before its
/// signal.
#[test]
fn two_processes_pass_values_to_and_fro() {
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

/// The signal taken out: who waits for it times out.
#[test]
fn without_the_signal_the_other_process_times_out() {
    let _alone = alone();
    let (_line, exporter, data) = parent();
    set_word(&data, 0, 1);
    let mut child = child("waits for nobody", exporter.export().unwrap(), &data);
    assert_eq!(child.wait().unwrap().code(), Some(TIMED_OUT));
}

/// The wait taken out: who does not wait reads what was there before.
#[test]
fn without_the_wait_the_other_process_reads_old_data() {
    let _alone = alone();
    let (line, exporter, data) = parent();
    let mut child = child("does not wait", exporter.export().unwrap(), &data);
    // What it should have waited for comes when it has gone.
    assert_eq!(child.wait().unwrap().code(), Some(WRONG_DATA));
    set_word(&data, 0, 1);
    line.signal(1).unwrap();
}

/// A process that is killed while it sleeps leaves the page whole: the others go on.
#[test]
fn a_process_killed_in_its_sleep_harms_nobody() {
    let _alone = alone();
    let (line, exporter, data) = parent();
    let page = super::Hostile::of(&exporter);
    let mut dying = child("dies in its sleep", exporter.export().unwrap(), &data);
    // It has marked the page, and is about to sleep or does.
    while page.read_word(384) as u32 == 0 {
        std::thread::yield_now();
    }
    dying.kill().unwrap();
    assert!(!dying.wait().unwrap().success());
    // The first signal finds that nobody sleeps there any more: later ones make no system call.
    line.signal(1).unwrap();
    assert_eq!(page.read_word(384) as u32, 0);
    let bell = page.read_word(384) >> 32;
    line.signal(2).unwrap();
    line.signal(3).unwrap();
    assert_eq!(page.read_word(384) >> 32, bell, "it rings for the dead");
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
