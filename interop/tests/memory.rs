//! Memory that there is not. In a process of its own, as it takes the room of that away.

#![allow(clippy::unwrap_used, missing_docs)]

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use syncline::{Error, Memory, host};

/// Bytes of addresses that this process has taken.
fn taken() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mut size = status
        .lines()
        .filter_map(|line| line.strip_prefix("VmSize:"));
    let kilobytes = size.next().unwrap().split_whitespace().next().unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

#[test]
fn host_memory_that_there_is_not_is_refused_and_what_there_is_is_taken_once() {
    const BYTES: u64 = 96 << 20;
    let device = host::Device::new().into();
    let refused = |bytes| {
        let refused = Memory::host_visible(&device, bytes);
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
    let memory = Memory::host_visible(&device, BYTES).unwrap();
    assert_eq!(memory.words().unwrap().len() as u64, BYTES / 4);
    refused(BYTES);
    setrlimit(Resource::As, limit).unwrap();
}
