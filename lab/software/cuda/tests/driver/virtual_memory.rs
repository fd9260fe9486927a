//! Memory that is made apart from its addresses: `cuMemCreate` and its relatives.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rstest::rstest;

use super::cuda::*;
use super::external::plain_file;
use super::processes::{child, passes};

const GRANULE: usize = 2 << 20;
/// The handle type of descriptors.
const FD: u32 = 1;
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
