//! Memory of devices and of the host.

use std::ffi::c_void;

use rstest::rstest;

use super::cuda::*;
use super::processes::{child, passes};

/// The bytes of memory of the machine.
fn machine_memory() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1));
    kilobytes.unwrap().parse::<usize>().unwrap() << 10
}

/// In a process of its own, because other tests allocate, too.
#[test]
fn memory_that_the_machine_does_not_have_is_refused() {
    passes(
        &child("memory::no_more_than_the_machine_has")
            .output()
            .unwrap(),
    );
}

#[test]
#[ignore = "run by memory_that_the_machine_does_not_have_is_refused"]
fn no_more_than_the_machine_has() {
    let _context = Context::new();
    let all = machine_memory();
    let pin = |bytes: usize| {
        let mut pointer = std::ptr::null_mut();
        (cuMemHostAlloc(&raw mut pointer, bytes, 0), pointer)
    };
    for bytes in [64 << 40, all + 4096] {
        assert_eq!(pin(bytes).0, 2, "{bytes}");
    }
    // All allocations together, of either kind. Nothing touches them.
    let (code, most) = pin(all / 4 * 3);
    ok(code);
    assert_eq!(pin(all / 2).0, 2);
    let (code, rest) = pin(all - all / 4 * 3);
    ok(code);
    assert_eq!(cuMemAlloc_v2(&mut 0, 1 << 20), 2);
    ok(cuMemFreeHost(rest));
    ok(cuMemFree_v2(made(|to| cuMemAlloc_v2(to, 1 << 20))));
    ok(cuMemFreeHost(most));
    let (code, half) = pin(all / 2);
    ok(code);
    ok(cuMemFreeHost(half));
}

#[test]
fn contexts_of_one_device_reach_the_same_memory() {
    let first = Context::new();
    let memory = made(|to| cuMemAlloc_v2(to, 64));
    let mut bytes = [0_u8; 4];
    let other = made(|to| cuCtxCreate_v2(to, 0, 1));
    assert_eq!(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), memory, 4), 1);
    let _second = Context::new();
    ok(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), memory, 4));
    drop(first);
    assert_eq!(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), memory, 4), 1);
    ok(cuCtxDestroy_v2(other));
}

fn pages(bytes: usize, access: i32) -> *mut c_void {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at a place of the system's choice.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at
}

/// Returns registered pages that cannot be written.
pub(crate) fn read_only(bytes: usize) -> u64 {
    const READ_ONLY: u32 = 8;
    let host = pages(bytes, libc::PROT_READ);
    // The flags of the call must state that.
    assert_eq!(cuMemHostRegister_v2(host, bytes, 3), 1);
    ok(cuMemHostRegister_v2(host, bytes, 3 | READ_ONLY));
    made(|to| cuMemHostGetDevicePointer_v2(to, host, 0))
}

#[test]
fn memory_for_reading_only_is_not_written() {
    let _context = Context::new();
    assert_eq!(made(|to| cuDeviceGetAttribute(to, 113, 0)), 1);
    let (stream, memory) = (stream(), made(|to| cuMemAlloc_v2(to, 4096)));
    let address = read_only(8192);
    let host = std::ptr::with_exposed_provenance_mut(address as usize);
    ok(cuMemcpyHtoDAsync_v2(memory, host, 4096, stream));
    ok(cuStreamWaitValue64_v2(stream, address, 0, 0));
    assert_eq!(cuStreamWriteValue64_v2(stream, address, 1, 0), 1);
    assert_eq!(cuMemsetD32Async(address, 1, 1, stream), 1);
    assert_eq!(cuMemcpyDtoHAsync_v2(host, memory, 4096, stream), 1);
    assert_eq!(cuMemcpyDtoDAsync_v2(address, memory, 4096, stream), 1);
    ok(cuStreamSynchronize(stream));
    ok(cuMemHostUnregister(host));
}

#[test]
fn memory_of_the_host_is_touched_only_by_copies_that_can_be() {
    let _context = Context::new();
    let (stream, memory) = (stream(), made(|to| cuMemAlloc_v2(to, 4096)));
    let mut byte = 7_u8;
    let host = (&raw mut byte).cast::<c_void>();
    for bytes in [1 << 20, 1 << 40, usize::MAX] {
        assert_eq!(cuMemcpyHtoD_v2(memory, host, bytes), 1);
        assert_eq!(cuMemcpyHtoDAsync_v2(memory, host, bytes, stream), 1);
        assert_eq!(cuMemcpyDtoH_v2(host, memory, bytes), 1);
        assert_eq!(cuMemcpyDtoHAsync_v2(host, memory, bytes, stream), 1);
    }
    assert_eq!(byte, 7);
}

/// A context frees memory that a copy of another context will access. Then the copy is a fault.
#[rstest]
#[case::pinned_from("pinned from")]
#[case::pinned_to("pinned to")]
#[case::registered_from("registered from")]
#[case::registered_to("registered to")]
fn memory_that_is_gone_is_not_copied(#[case] case: &str) {
    let mut child = super::processes::child("memory::copies_of_freed_memory");
    super::processes::passes(&child.env("CASE", case).output().unwrap());
}

#[test]
#[ignore = "run by memory_that_is_gone_is_not_copied"]
fn copies_of_freed_memory() {
    let case = std::env::var("CASE").unwrap();
    const BYTES: usize = 1 << 20;
    let owner = Context::new();
    let is_pinned = case.starts_with("pinned");
    let host = if is_pinned {
        Pinned::new(BYTES / 8).pointer
    } else {
        let host = pages(BYTES, libc::PROT_READ | libc::PROT_WRITE);
        ok(cuMemHostRegister_v2(host, BYTES, 3));
        host
    };
    let _user = Context::new();
    let (stream, memory) = (stream(), made(|to| cuMemAlloc_v2(to, BYTES)));
    let gate = Pinned::new(1);
    ok(cuStreamWaitValue64_v2(stream, gate.address(), 1, 0));
    if case.ends_with("from") {
        ok(cuMemcpyHtoDAsync_v2(memory, host, BYTES, stream));
    } else {
        ok(cuMemcpyDtoHAsync_v2(host, memory, BYTES, stream));
    }
    ok(cuCtxSetCurrent(owner.0));
    if is_pinned {
        ok(cuMemFreeHost(host));
    } else {
        ok(cuMemHostUnregister(host));
        // SAFETY: mapped above.
        assert_eq!(unsafe { libc::munmap(host, BYTES) }, 0);
    }
    gate.set(1);
    assert_eq!(cuStreamSynchronize(stream), 700);
}
