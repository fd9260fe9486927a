//! Host memory that the system cannot provide.
//!
//! The test runs in a process of its own, because it limits the address space of that process.

#![allow(clippy::unwrap_used, missing_docs)]

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use syncline::{Buffer, Error, host};

/// Set in the process that runs this test alone.
const APART: &str = "SYNCLINE_MEMORY_APART";
const TEST: &str = "memory::unavailable_host_memory_is_refused_and_available_memory_is_taken_once";

/// Returns the size of this process's address space, in bytes.
fn taken() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut size = status
        .lines()
        .filter_map(|line| line.strip_prefix("VmSize:"));
    let kilobytes = size.next().unwrap().split_whitespace().next().unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

#[test]
fn unavailable_host_memory_is_refused_and_available_memory_is_taken_once() {
    if std::env::var_os(APART).is_none() {
        let ran = Command::new(std::env::current_exe().unwrap())
            .args([TEST, "--exact", "--nocapture"])
            .env(APART, "1")
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&ran.stdout);
        assert!(
            ran.status.success() && out.contains("test result: ok. 1 passed"),
            "{ran:?}"
        );
        return;
    }
    const BYTES: u64 = 96 << 20;
    let device = host::Device::new().into();
    let refused = |bytes| {
        let refused = Buffer::host_visible(&device, bytes);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{bytes}");
    };
    refused(u64::MAX - 3);
    refused(isize::MAX as u64 - 3);
    let limit = getrlimit(Resource::As);
    let room = Rlimit {
        current: Some(taken() + BYTES * 3 / 2),
        ..limit
    };
    setrlimit(Resource::As, room).unwrap();
    let memory = Buffer::host_visible(&device, BYTES).unwrap();
    assert_eq!(memory.words().unwrap().len() as u64, BYTES / 4);
    refused(BYTES);
    setrlimit(Resource::As, limit).unwrap();
}
