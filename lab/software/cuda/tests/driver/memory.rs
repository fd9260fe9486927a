//! Memory of devices and of the host.

use std::ffi::c_void;

use rstest::rstest;

use super::cuda::*;
use super::processes::{child, passes};

#[test]
fn bytes_come_back() {
    let _context = Context::new();
    let (from, to) = (
        made(|to| cuMemAlloc_v2(to, 64)),
        made(|to| cuMemAlloc_v2(to, 64)),
    );
    let sent: Vec<u8> = (0..64).collect();
    ok(cuMemcpyHtoD_v2(from, sent.as_ptr().cast(), 64));
    let stream = stream();
    ok(cuMemcpyDtoDAsync_v2(to, from, 64, stream));
    ok(cuMemsetD8Async(to + 1, 9, 2, stream));
    ok(cuMemsetD32Async(to + 4, 0x0807_0605, 1, stream));
    ok(cuStreamSynchronize(stream));
    let mut read = [0_u8; 64];
    ok(cuMemcpyDtoH_v2(read.as_mut_ptr().cast(), to, 64));
    assert_eq!(read[..8], [0, 9, 9, 3, 5, 6, 7, 8]);
    assert_eq!(read[8..], sent[8..]);
}

#[test]
fn only_what_is_allocated_is_copied() {
    let _context = Context::new();
    let stream = stream();
    let memory = made(|to| cuMemAlloc_v2(to, 64));
    let mut bytes = [0_u8; 65];
    let host = bytes.as_mut_ptr().cast::<c_void>();
    for (address, count) in [
        (memory, 65),
        (memory + 60, 5),
        (memory - 1, 1),
        (16, 4),
        (0, 4),
    ] {
        assert_eq!(cuMemcpyHtoD_v2(address, host, count), 1, "{address:#x}");
        assert_eq!(cuMemcpyDtoH_v2(host, address, count), 1, "{address:#x}");
        assert_eq!(cuMemcpyDtoDAsync_v2(memory, address, count, stream), 1);
        assert_eq!(cuMemsetD8Async(address, 0, count, stream), 1);
    }
    assert_eq!(cuMemsetD32Async(memory + 1, 0, 1, stream), 1);
    assert_eq!(cuMemcpyHtoD_v2(memory, std::ptr::null(), 4), 1);
    ok(cuMemFree_v2(memory));
    assert_eq!(cuMemcpyHtoD_v2(memory, host, 4), 1);
    assert_eq!(cuMemFree_v2(memory), 1);
    ok(cuMemFree_v2(0));
    assert_eq!(cuMemAlloc_v2(&mut 0, 0), 1);
    assert_eq!(cuMemAlloc_v2(&mut 0, usize::MAX), 2);
    ok(cuCtxSynchronize());
}

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

#[test]
fn host_memory_is_registered_once() {
    let _context = Context::new();
    let mut words = vec![0_u64; 1024];
    let at = words.as_mut_ptr().cast::<c_void>();
    assert_eq!(cuMemHostGetDevicePointer_v2(&mut 0, at, 0), 1);
    ok(cuMemHostRegister_v2(at, 8192, 3));
    assert_eq!(cuMemHostRegister_v2(at, 64, 3), 712);
    let address = made(|to| cuMemHostGetDevicePointer_v2(to, at, 0));
    let stream = stream();
    ok(cuStreamWriteValue64_v2(stream, address + 8, 7, 0));
    ok(cuStreamSynchronize(stream));
    ok(cuMemHostUnregister(at));
    assert_eq!(words[1], 7);
    assert_eq!(cuMemHostUnregister(at), 713);
    assert_eq!(cuMemFreeHost(at), 1);
    assert_eq!(cuMemHostRegister_v2(std::ptr::null_mut(), 64, 3), 1);
    assert_eq!(
        cuMemHostRegister_v2(std::ptr::without_provenance_mut(4096), 64, 3),
        1
    );
}

/// The context, type, device address, host address, device, first address and size of memory.
fn attributes(address: u64) -> [u64; 7] {
    let (numbers, mut values) = ([1, 2, 3, 4, 9, 11, 12], [0_u64; 7]);
    let to = std::array::from_fn::<*mut c_void, 7, _>(|at| (&raw mut values[at]).cast());
    ok(cuPointerGetAttributes(
        7,
        numbers.as_ptr(),
        to.as_ptr(),
        address,
    ));
    values
}

#[test]
fn the_driver_tells_what_an_address_is() {
    let context = Context::new();
    let handle = context.0 as u64;
    let memory = made(|to| cuMemAlloc_v2(to, 64));
    let begin = memory;
    assert_eq!(
        attributes(memory + 8),
        [handle, 2, memory + 8, 0, 0, begin, 64]
    );
    let pinned = Pinned::new(2);
    let at = pinned.address();
    assert_eq!(attributes(at + 8), [handle, 1, at + 8, at + 8, 0, at, 16]);
    let mut words = vec![0_u64; 1024];
    let host = words.as_mut_ptr().cast::<c_void>();
    let at = host.expose_provenance() as u64;
    // The device of other memory is -2.
    let unknown = |at: u64| [0, 0, 0, at, u64::from(-2_i32 as u32), 0, 0];
    assert_eq!(attributes(at), unknown(at));
    ok(cuMemHostRegister_v2(host, 8192, 3));
    assert_eq!(attributes(at), [handle, 1, at, at, 0, at, 8192]);
    ok(cuMemHostUnregister(host));
    ok(cuMemFree_v2(memory));
    assert_eq!(attributes(at), unknown(at));
    assert_eq!(attributes(memory), unknown(memory));
    let null = std::ptr::null_mut();
    assert_eq!(cuPointerGetAttributes(1, &2, &null, at), 1);
    assert_eq!(cuPointerGetAttributes(1, &9999, &host, at), 1);
    ok(cuCtxSetCurrent(0));
    ok(cuPointerGetAttributes(1, &2, &host, at));
    ok(cuCtxSetCurrent(context.0));
}

#[test]
fn a_free_waits_for_the_work_of_its_context() {
    let context = Context::new();
    let (stream, memory) = (stream(), made(|to| cuMemAlloc_v2(to, 64)));
    let gate = Pinned::new(1);
    ok(cuStreamWaitValue64_v2(stream, gate.address(), 1, 0));
    ok(cuMemsetD32Async(memory, 1, 16, stream));
    let event = event();
    ok(cuEventRecord(event, stream));
    std::thread::scope(|scope| {
        let freeing = scope.spawn(|| {
            ok(cuCtxSetCurrent(context.0));
            ok(cuMemFree_v2(memory));
            cuEventQuery(event)
        });
        assert_eq!(cuEventQuery(event), 600);
        gate.set(1);
        // If the memory were freed first, the fill would be a fault.
        assert_eq!(freeing.join().unwrap(), 0);
    });
    ok(cuCtxSynchronize());
    ok(cuMemFreeHost(gate.pointer));
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

#[rstest]
#[case::nothing(0, 0)]
#[case::one_byte(1, 1)]
fn a_copy_needs_memory_of_the_host_unless_it_is_empty(#[case] bytes: usize, #[case] code: u32) {
    let _context = Context::new();
    let (stream, memory) = (stream(), made(|to| cuMemAlloc_v2(to, 64)));
    let null = std::ptr::null_mut();
    assert_eq!(cuMemcpyHtoD_v2(memory, null, bytes), code);
    assert_eq!(cuMemcpyHtoDAsync_v2(memory, null, bytes, stream), code);
    assert_eq!(cuMemcpyDtoH_v2(null, memory, bytes), code);
    assert_eq!(cuMemcpyDtoHAsync_v2(null, memory, bytes, stream), code);
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
