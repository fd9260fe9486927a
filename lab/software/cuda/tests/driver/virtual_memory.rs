//! Memory that is made apart from its addresses: `cuMemCreate` and its relatives.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};

use rstest::rstest;

use super::cuda::*;
use super::external::plain_file;
use super::kernels::KERNELS;
use super::processes::{child, passes};

const GRANULE: usize = 2 << 20;
/// The handle type of descriptors.
const FD: u32 = 1;
const NO_ACCESS: u32 = 0;
const READ: u32 = 1;
const READ_AND_WRITE: u32 = 3;

fn prop(device: u32, handles: u32) -> AllocationProp {
    AllocationProp {
        kind: 1,
        handles,
        location: [1, device],
        rest: [0; 2],
    }
}

fn create(bytes: usize) -> Handle {
    ok(cuInit(0));
    made(|to| cuMemCreate(to, bytes, &raw const PROP, 0))
}

/// Memory of device 0 that is exported as a descriptor.
static PROP: AllocationProp = AllocationProp {
    kind: 1,
    handles: FD,
    location: [1, 0],
    rest: [0; 2],
};

fn export(handle: Handle) -> OwnedFd {
    let fd = made(|to| cuMemExportToShareableHandle(to, handle, FD, 0));
    // SAFETY: the driver has made it for the caller.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn reserve(bytes: usize) -> u64 {
    made(|to| cuMemAddressReserve(to, bytes, 0, 0, 0))
}

fn allow(address: u64, bytes: usize, flags: u32) -> u32 {
    let access = AccessDesc {
        location: [1, 0],
        flags,
    };
    cuMemSetAccess(address, bytes, &raw const access, 1)
}

/// Maps memory with all rights.
fn map(handle: Handle, bytes: usize) -> u64 {
    let address = reserve(bytes);
    ok(cuMemMap(address, bytes, 0, handle, 0));
    ok(allow(address, bytes, READ_AND_WRITE));
    address
}

fn read(address: u64) -> Result<u64, u32> {
    let mut value = 0_u64;
    match cuMemcpyDtoH_v2((&raw mut value).cast(), address, 8) {
        0 => Ok(value),
        code => Err(code),
    }
}

fn write(address: u64, value: u64) -> u32 {
    cuMemcpyHtoD_v2(address, (&raw const value).cast(), 8)
}

#[rstest]
#[case::kind(AllocationProp { kind: 0, ..PROP }, 1)]
#[case::managed(AllocationProp { kind: 2, ..PROP }, 1)]
#[case::handles_of_windows(AllocationProp { handles: 2, ..PROP }, 1)]
#[case::fabric(AllocationProp { handles: 8, ..PROP }, 801)]
#[case::nowhere(AllocationProp { location: [0, 0], ..PROP }, 1)]
#[case::on_the_host(AllocationProp { location: [2, 0], ..PROP }, 801)]
#[case::no_such_device(AllocationProp { location: [1, 9], ..PROP }, 101)]
fn wrong_properties_are_refused(#[case] wrong: AllocationProp, #[case] code: u32) {
    ok(cuInit(0));
    assert_eq!(cuMemCreate(&mut 0, GRANULE, &raw const wrong, 0), code);
    // The granularity is told all the same.
    let granularity = made(|to| cuMemGetAllocationGranularity(to, &raw const wrong, 0));
    assert_eq!(granularity, GRANULE);
}

#[test]
fn unknown_handle_types_are_ignored() {
    ok(cuInit(0));
    let prop = AllocationProp {
        handles: 16,
        ..PROP
    };
    let handle = made(|to| cuMemCreate(to, GRANULE, &raw const prop, 0));
    assert_eq!(cuMemExportToShareableHandle(&mut 0, handle, FD, 0), 1);
    ok(cuMemRelease(handle));
}

#[test]
fn sizes_are_multiples_of_the_granularity() {
    ok(cuInit(0));
    for option in [0, 1] {
        let bytes = made(|to| cuMemGetAllocationGranularity(to, &raw const PROP, option));
        assert_eq!(bytes, GRANULE);
    }
    assert_eq!(cuMemGetAllocationGranularity(&mut 0, &raw const PROP, 2), 1);
    for bytes in [0, 1, GRANULE - 1, GRANULE + 4096] {
        assert_eq!(cuMemCreate(&mut 0, bytes, &raw const PROP, 0), 1);
        assert_eq!(cuMemAddressReserve(&mut 0, bytes, 0, 0, 0), 1);
    }
    // The device has 8 GiB.
    assert_eq!(cuMemCreate(&mut 0, 16 << 30, &raw const PROP, 0), 2);
    assert_eq!(cuMemCreate(&mut 0, 1 << 62, &raw const PROP, 0), 2);
    assert_eq!(cuMemCreate(&mut 0, GRANULE, &raw const PROP, 1), 1);
    assert_eq!(cuMemCreate(&mut 0, GRANULE, std::ptr::null(), 0), 1);
    assert_eq!(
        cuMemCreate(std::ptr::null_mut(), GRANULE, &raw const PROP, 0),
        1
    );
    assert_eq!(cuMemAddressReserve(&mut 0, 1 << 62, 0, 0, 0), 2);
    assert_eq!(cuMemAddressReserve(&mut 0, GRANULE, 3, 0, 0), 1);
    assert_eq!(cuMemAddressReserve(&mut 0, GRANULE, 0, 0, 1), 1);
    let aligned = made(|to| cuMemAddressReserve(to, GRANULE, 8 << 20, 0, 0));
    assert_eq!(aligned % (8 << 20), 0);
    ok(cuMemAddressFree(aligned, GRANULE));
}

#[test]
fn memory_is_there_once_it_is_mapped_and_allowed() {
    let _context = Context::new();
    let (handle, address) = (create(GRANULE), reserve(GRANULE));
    assert_eq!(write(address, 1), 1);
    ok(cuMemMap(address, GRANULE, 0, handle, 0));
    assert_eq!(write(address, 1), 1);
    ok(allow(address, GRANULE, READ_AND_WRITE));
    assert_eq!(read(address), Ok(0));
    ok(write(address + GRANULE as u64 - 8, 7));
    assert_eq!(write(address + GRANULE as u64 - 4, 7), 1);
    ok(allow(address, GRANULE, READ));
    assert_eq!(read(address + GRANULE as u64 - 8), Ok(7));
    assert_eq!(write(address, 1), 1);
    ok(allow(address, GRANULE, NO_ACCESS));
    assert_eq!(read(address), Err(1));
    assert_eq!(allow(address, GRANULE, 2), 1);
    // The memory stays for its second mapping, which begins without access.
    ok(cuMemUnmap(address, GRANULE));
    ok(cuMemMap(address, GRANULE, 0, handle, 0));
    assert_eq!(read(address), Err(1));
    ok(allow(address, GRANULE, READ));
    assert_eq!(read(address + GRANULE as u64 - 8), Ok(7));
    ok(cuMemUnmap(address, GRANULE));
    ok(cuMemAddressFree(address, GRANULE));
    ok(cuMemRelease(handle));
}

#[test]
fn released_memory_stays_while_it_is_mapped() {
    let _context = Context::new();
    let handle = create(GRANULE);
    let address = map(handle, GRANULE);
    ok(cuMemRelease(handle));
    assert_eq!(cuMemRelease(handle), 1);
    assert_eq!(cuMemMap(reserve(GRANULE), GRANULE, 0, handle, 0), 1);
    assert_eq!(cuMemExportToShareableHandle(&mut 0, handle, FD, 0), 1);
    ok(write(address, 5));
    assert_eq!(read(address), Ok(5));
    // It is no memory of cuMemAlloc.
    assert_eq!(cuMemFree_v2(address), 1);
    ok(cuMemUnmap(address, GRANULE));
    assert_eq!(read(address), Err(1));
}

#[test]
fn ranges_of_mappings_are_whole() {
    let _context = Context::new();
    let (one, two) = (create(GRANULE), create(2 * GRANULE));
    let size = GRANULE as u64;
    let address = reserve(4 * GRANULE);
    // Outside, and misaligned.
    assert_eq!(cuMemMap(address + 3 * size, 2 * GRANULE, 0, two, 0), 1);
    assert_eq!(cuMemMap(address + 4096, GRANULE, 0, one, 0), 1);
    // Nothing, a page, a part with an offset, the first part, more than the memory.
    assert_eq!(cuMemMap(address, 0, 0, one, 0), 1);
    assert_eq!(cuMemMap(address, 4096, 0, one, 0), 801);
    assert_eq!(cuMemMap(address, GRANULE, GRANULE, two, 0), 801);
    assert_eq!(cuMemMap(address, GRANULE, 0, two, 0), 801);
    assert_eq!(cuMemMap(address, 2 * GRANULE, 0, one, 0), 801);
    assert_eq!(cuMemMap(address, GRANULE, 0, one, 1), 1);
    ok(cuMemMap(address, GRANULE, 0, one, 0));
    ok(cuMemMap(address + size, 2 * GRANULE, 0, two, 0));
    assert_eq!(cuMemMap(address, GRANULE, 0, one, 0), 1);
    assert_eq!(cuMemMap(address + 2 * size, GRANULE, 0, one, 0), 1);
    // A hole, a part, and both.
    assert_eq!(allow(address, 4 * GRANULE, READ), 1);
    assert_eq!(allow(address, 2 * GRANULE, READ), 1);
    ok(allow(address, 3 * GRANULE, READ_AND_WRITE));
    ok(write(address, 1));
    ok(write(address + 3 * size - 8, 2));
    assert_eq!(cuMemAddressFree(address, 4 * GRANULE), 1);
    assert_eq!(cuMemUnmap(address, 2 * GRANULE), 1);
    assert_eq!(cuMemUnmap(address + 2 * size, GRANULE), 1);
    // With the hole, and where nothing is mapped. Not outside of what is reserved.
    ok(cuMemUnmap(address, 4 * GRANULE));
    ok(cuMemUnmap(address, GRANULE));
    assert_eq!(cuMemUnmap(address, 8 * GRANULE), 1);
    assert_eq!(cuMemUnmap(address, 4096), 1);
    assert_eq!(cuMemAddressFree(address, GRANULE), 1);
    ok(cuMemAddressFree(address, 4 * GRANULE));
    assert_eq!(cuMemAddressFree(address, 4 * GRANULE), 1);
    // Another device has no access.
    let again = reserve(GRANULE);
    ok(cuMemMap(again, GRANULE, 0, one, 0));
    let other = AccessDesc {
        location: [1, 1],
        flags: READ,
    };
    assert_eq!(cuMemSetAccess(again, GRANULE, &raw const other, 1), 101);
    assert_eq!(cuMemSetAccess(again, GRANULE, &raw const other, 0), 1);
    for handle in [one, two] {
        ok(cuMemRelease(handle));
    }
}

#[test]
fn a_descriptor_is_the_same_memory() {
    let _context = Context::new();
    let handle = create(GRANULE);
    let address = map(handle, GRANULE);
    ok(write(address + 64, 3));
    let fd = export(handle);
    let other = made(|to| cuMemImportFromShareableHandle(to, fd.as_raw_fd() as usize, FD));
    // The exporter's own references go.
    ok(cuMemUnmap(address, GRANULE));
    ok(cuMemRelease(handle));
    let there = map(other, GRANULE);
    assert_eq!(read(there + 64), Ok(3));
    let told = made(|to| cuMemGetAllocationPropertiesFromHandle(to, other));
    assert_eq!(told, PROP);
    ok(cuMemRelease(other));
    // The same descriptor as external memory, which takes it. Its ranges have offsets.
    let desc = MemoryDesc {
        kind: 1,
        descriptor: fd.into_raw_fd().into(),
        unused: 0,
        size: GRANULE as u64,
        rest: [0; 9],
    };
    let external = made(|to| cuImportExternalMemory(to, &raw const desc));
    let desc = BufferDesc {
        offset: 64,
        size: 128,
        rest: [0; 9],
    };
    let part = made(|to| cuExternalMemoryGetMappedBuffer(to, external, &raw const desc));
    assert_eq!(read(part), Ok(3));
    ok(write(part + 8, 4));
    assert_eq!(read(there + 72), Ok(4));
}

#[test]
fn only_what_was_made_for_it_is_exported() {
    ok(cuInit(0));
    let (own, shared) = (prop(0, 0), prop(1, FD));
    let own = made(|to| cuMemCreate(to, GRANULE, &raw const own, 0));
    let shared = made(|to| cuMemCreate(to, GRANULE, &raw const shared, 0));
    assert_eq!(cuMemExportToShareableHandle(&mut 0, own, FD, 0), 1);
    for (kind, flags) in [(0, 0), (3, 0), (2, 0), (8, 0), (FD, 1)] {
        let code = cuMemExportToShareableHandle(&mut 0, shared, kind, flags);
        assert_eq!(code, 1);
    }
    // The importer finds the device of the memory.
    let fd = export(shared);
    let again = made(|to| cuMemImportFromShareableHandle(to, fd.as_raw_fd() as usize, FD));
    let told = made(|to| cuMemGetAllocationPropertiesFromHandle(to, again));
    assert_eq!(told.location, [1, 1]);
    for handle in [own, shared, again] {
        ok(cuMemRelease(handle));
    }
    let foreign = [
        plain_file(GRANULE as u64),
        std::fs::File::open("/proc/self/exe").unwrap().into(),
    ];
    for file in foreign {
        let descriptor = file.as_raw_fd() as usize;
        assert_eq!(cuMemImportFromShareableHandle(&mut 0, descriptor, FD), 999);
        // The test still owns the descriptor: a second close of it would abort.
    }
    for descriptor in [usize::MAX, 1_000_000] {
        assert_eq!(cuMemImportFromShareableHandle(&mut 0, descriptor, FD), 999);
    }
}

/// Each in a process of its own, because a fault stays.
#[rstest]
#[case::not_allowed("none")]
#[case::only_reads("read")]
#[case::unmapped("unmapped")]
fn a_kernel_without_access_is_a_fault(#[case] case: &str) {
    let mut child = child("virtual_memory::accesses");
    passes(&child.env("CASE", case).output().unwrap());
}

#[test]
#[ignore = "run by a_kernel_without_access_is_a_fault"]
fn accesses() {
    let _context = Context::new();
    let (stream, add) = (stream(), function(KERNELS, "add"));
    let handle = create(GRANULE);
    let address = map(handle, GRANULE);
    ok(launch(add, stream, &[address, 10]));
    ok(cuStreamSynchronize(stream));
    assert_eq!(read(address), Ok(10));
    match std::env::var("CASE").unwrap().as_str() {
        "none" => ok(allow(address, GRANULE, NO_ACCESS)),
        "read" => ok(allow(address, GRANULE, READ)),
        _ => ok(cuMemUnmap(address, GRANULE)),
    }
    ok(launch(add, stream, &[address, 10]));
    assert_eq!(cuStreamSynchronize(stream), 700);
    // Memory belongs to no context, so the calls for it go on.
    ok(cuMemRelease(create(GRANULE)));
    ok(cuMemRelease(handle));
}

/// In a process of its own, because other tests make objects, too.
#[test]
fn all_memory_is_given_back() {
    passes(
        &child("virtual_memory::thousands_of_mappings")
            .output()
            .unwrap(),
    );
}

#[test]
#[ignore = "run by all_memory_is_given_back"]
fn thousands_of_mappings() {
    let _context = Context::new();
    let before = live_objects();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let open = descriptors();
    // Together they are more than the device has.
    for round in 0..5000 {
        let handle = create(GRANULE);
        let address = map(handle, GRANULE);
        if round % 2 == 0 {
            ok(cuMemRelease(handle));
            ok(cuMemUnmap(address, GRANULE));
        } else {
            ok(cuMemUnmap(address, GRANULE));
            ok(cuMemRelease(handle));
        }
        ok(cuMemAddressFree(address, GRANULE));
    }
    assert_eq!((live_objects(), descriptors()), (before, open));
}
