//! Memory that is made apart from its addresses: `cuMemCreate` and its relatives.

use super::external::{fds, open};
use super::external_memory::{import_fd, map};
use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

/// The granularity of an H200.
const GRANULE: usize = 2 << 20;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FD: u32 = 1;

/// Takes the rights to a mapping.
type Take = fn(u64) -> Code;

pub(crate) fn list(all: &mut Probes) {
    all.family("virtual", QUESTIONS);
    all.bare("virtual", BARE);
    const WITHOUT: &[(&str, Take)] = &[
        ("kernel_with_no_access", |address| {
            allow(address, GRANULE, 0)
        }),
        ("kernel_with_read_access", |address| {
            allow(address, GRANULE, 1)
        }),
        ("kernel_with_no_mapping", |address| {
            mem_unmap(address, GRANULE)
        }),
    ];
    all.each("virtual", WITHOUT, kernel_without_access);
}

/// Pinned memory of device 0 with these handle types.
fn prop(handles: u32) -> AllocationProp {
    AllocationProp {
        kind: 1,
        handles,
        location: [1, 0],
        rest: [0; 2],
    }
}

fn create(bytes: usize) -> Handle {
    let mut handle = 0;
    let code = mem_create(&mut handle, bytes, &prop(FD), 0);
    check(code);
    handle
}

fn reserve(bytes: usize) -> u64 {
    let mut address = 0;
    let code = address_reserve(&mut address, bytes, 0, 0, 0);
    check(code);
    address
}

fn allow(address: u64, bytes: usize, flags: u32) -> Code {
    let access = AccessDesc {
        location: [1, 0],
        flags,
    };
    mem_set_access(address, bytes, &access, 1)
}

/// Maps memory at new addresses, with all rights.
fn mapped(handle: Handle, bytes: usize) -> u64 {
    let address = reserve(bytes);
    check(mem_map(address, bytes, 0, handle, 0));
    check(allow(address, bytes, 3));
    address
}

fn exported(handle: Handle) -> i32 {
    let mut fd = -1;
    let code = mem_export(&mut fd, handle, FD, 0);
    check(code);
    fd
}

/// Writes and reads a word. Returns the results and the word.
fn used(address: u64) -> String {
    let (from, mut to) = (7_u64, 0_u64);
    let codes = [
        memcpy_htod(address, &raw const from as usize, 8),
        memcpy_dtoh(&raw mut to as usize, address, 8),
    ];
    format!("{} {to}", names(&codes))
}

fn kernel_without_access(take: Take) {
    let stream = stream();
    let address = mapped(create(GRANULE), GRANULE);
    let put = kernel(c"put");
    line(
        "with_all",
        ended(launch(put, stream, &[address, 1]), stream),
    );
    line("taken", take(address));
    line("then", ended(launch(put, stream, &[address, 1]), stream));
}

const QUESTIONS: Questions = &[
    ("granularity", || {
        for option in 0..3 {
            let mut bytes = 0;
            let code = mem_granularity(&mut bytes, &prop(FD), option);
            line(option, format!("{code}, {bytes}"));
        }
    }),
    ("properties", || {
        let base = prop(FD);
        for (what, prop) in [
            ("kind_0", AllocationProp { kind: 0, ..base }),
            ("kind_2", AllocationProp { kind: 2, ..base }),
            ("kind_9", AllocationProp { kind: 9, ..base }),
            ("handles_0", AllocationProp { handles: 0, ..base }),
            ("handles_2", AllocationProp { handles: 2, ..base }),
            (
                "handles_16",
                AllocationProp {
                    handles: 16,
                    ..base
                },
            ),
            (
                "nowhere",
                AllocationProp {
                    location: [0, 0],
                    ..base
                },
            ),
            (
                "location_9",
                AllocationProp {
                    location: [9, 0],
                    ..base
                },
            ),
            (
                "device_99",
                AllocationProp {
                    location: [1, 99],
                    ..base
                },
            ),
            (
                "device_minus_1",
                AllocationProp {
                    location: [1, u32::MAX],
                    ..base
                },
            ),
        ] {
            let (mut handle, mut bytes) = (0, 0);
            let created = mem_create(&mut handle, GRANULE, &prop, 0);
            let asked = mem_granularity(&mut bytes, &prop, 0);
            line(what, [created, asked]);
        }
        let (mut handle, mut told) = (0, prop(0));
        line("flags_1", mem_create(&mut handle, GRANULE, &base, 1));
        let handle = create(GRANULE);
        let code = mem_properties(&mut told, handle);
        line("told", (code, that("same", told == base)));
    }),
    ("sizes", || {
        for bytes in [
            0,
            1,
            4096,
            GRANULE - 1,
            GRANULE + 65536,
            GRANULE,
            1 << 50,
            1 << 62,
        ] {
            let mut handle = 0;
            line(bytes, mem_create(&mut handle, bytes, &prop(FD), 0));
        }
    }),
    ("addresses", || {
        for (what, bytes, alignment, flags) in [
            ("nothing", 0, 0, 0),
            ("page", 4096, 0, 0),
            ("odd", GRANULE + 1, 0, 0),
            ("granule", GRANULE, 0, 0),
            ("tebibyte", 1 << 40, 0, 0),
            ("2_to_62", 1 << 62, 0, 0),
            ("alignment_3", GRANULE, 3, 0),
            ("alignment_4096", GRANULE, 4096, 0),
            ("alignment_8_mib", GRANULE, 8 << 20, 0),
            ("flags_1", GRANULE, 0, 1),
        ] {
            let mut address = 0;
            let code = address_reserve(&mut address, bytes, alignment, 0, flags);
            let aligned = address % (GRANULE.max(alignment) as u64) == 0;
            line(what, (code, that("aligned", aligned)));
        }
        let address = reserve(4 * GRANULE);
        line("free_part", address_free(address, GRANULE));
        let inside = address + GRANULE as u64;
        line("free_inside", address_free(inside, GRANULE));
        line("free_unknown", address_free(16 << 20, GRANULE));
        let code = [(); 2].map(|()| address_free(address, 4 * GRANULE));
        line("free_twice", code);
    }),
    ("map_wrong", || {
        let (one, two) = (create(GRANULE), create(2 * GRANULE));
        let (address, size) = (reserve(4 * GRANULE), GRANULE as u64);
        for (what, at, bytes, offset, handle, flags) in [
            ("unreserved", 16 << 20, GRANULE, 0, one, 0),
            ("beyond", address + 3 * size, 2 * GRANULE, 0, two, 0),
            ("misaligned", address + 4096, GRANULE, 0, one, 0),
            ("page", address, 4096, 0, one, 0),
            ("nothing", address, 0, 0, one, 0),
            ("too_large", address, 2 * GRANULE, 0, one, 0),
            ("flags_1", address, GRANULE, 0, one, 1),
            ("right", address, GRANULE, 0, one, 0),
            ("again", address, GRANULE, 0, one, 0),
            ("over_it", address, 2 * GRANULE, 0, two, 0),
            ("beginning", address + size, GRANULE, 0, two, 0),
            ("offset", address + 2 * size, GRANULE, GRANULE, two, 0),
            ("elsewhere", address + 3 * size, GRANULE, 0, one, 0),
        ] {
            line(what, mem_map(at, bytes, offset, handle, flags));
        }
    }),
    ("unmap", || {
        let (one, two) = (create(GRANULE), create(2 * GRANULE));
        let (address, size) = (reserve(4 * GRANULE), GRANULE as u64);
        check(mem_map(address, GRANULE, 0, one, 0));
        check(mem_map(address + size, 2 * GRANULE, 0, two, 0));
        for (what, at, bytes) in [
            ("nothing", address, 0),
            ("page", address, 4096),
            ("part", address + size, GRANULE),
            ("one_and_a_part", address, 2 * GRANULE),
            ("with_a_hole", address, 4 * GRANULE),
            ("both", address, 3 * GRANULE),
            ("again", address, 3 * GRANULE),
        ] {
            line(what, mem_unmap(at, bytes));
        }
    }),
    ("access", || {
        let (handle, address) = (create(GRANULE), reserve(GRANULE));
        line("reserved", used(address));
        line("reserved_set", allow(address, GRANULE, 3));
        check(mem_map(address, GRANULE, 0, handle, 0));
        line("mapped", used(address));
        for flags in [0, 1, 2, 3, 4] {
            line(format!("set_{flags}"), allow(address, GRANULE, flags));
            line(format!("use_{flags}"), used(address));
        }
        let wrong = AccessDesc {
            location: [1, 99],
            flags: 3,
        };
        line("device_99", mem_set_access(address, GRANULE, &wrong, 1));
        line("count_0", mem_set_access(address, GRANULE, &wrong, 0));
        check(mem_unmap(address, GRANULE));
        check(mem_map(address, GRANULE, 0, handle, 0));
        line("mapped_again", used(address));
        line("context", ctx_synchronize());
    }),
    ("access_of_part", || {
        let (one, two) = (create(2 * GRANULE), create(2 * GRANULE));
        let (address, size) = (reserve(6 * GRANULE), GRANULE as u64);
        check(mem_map(address, 2 * GRANULE, 0, one, 0));
        check(mem_map(address + 2 * size, 2 * GRANULE, 0, two, 0));
        line("page", allow(address, 4096, 3));
        line("part", allow(address, GRANULE, 3));
        line("across", allow(address + size, 2 * GRANULE, 3));
        line("with_a_hole", allow(address, 6 * GRANULE, 3));
        line("both", allow(address, 4 * GRANULE, 3));
        let stream = stream();
        let across = address + 2 * size - 64;
        line(
            "memset_across",
            ended(memset_d32_async(across, 1, 32, stream), stream),
        );
    }),
    ("free_while_mapped", || {
        let address = mapped(create(GRANULE), GRANULE);
        line("free", address_free(address, GRANULE));
        line("use", used(address));
    }),
    ("release", || {
        let handle = create(GRANULE);
        let address = mapped(handle, GRANULE);
        line("release", mem_release(handle));
        line("use", used(address));
        line("unmap", mem_unmap(address, GRANULE));
        line("free", address_free(address, GRANULE));
        line("release_0", mem_release(0));
    }),
    ("export", || {
        let (shared, mut own, mut fd) = (create(GRANULE), 0, -1);
        let code = mem_create(&mut own, GRANULE, &prop(0), 0);
        check(code);
        line("own", mem_export(&mut fd, own, FD, 0));
        for kind in [0, 1, 2, 3, 8] {
            let code = mem_export(&mut fd, shared, kind, 0);
            line(format!("kind_{kind}"), code);
        }
        line("flags_1", mem_export(&mut fd, shared, FD, 1));
        let (one, two) = (exported(shared), exported(shared));
        line("twice", format!("same: {}", yes(one == two)));
    }),
    ("import_fds", || {
        for (what, fd) in fds() {
            let mut handle = 0;
            let code = mem_import(&mut handle, fd as usize, FD);
            line(what, (code, open(fd)));
        }
        let (fd, mut handle) = (exported(create(GRANULE)), 0);
        for kind in [0, 2, 8] {
            let code = mem_import(&mut handle, fd as usize, kind);
            line(format!("kind_{kind}"), code);
        }
        line("context", ctx_synchronize());
    }),
    ("import", || {
        let handle = create(GRANULE);
        let (address, fd, mut other) = (mapped(handle, GRANULE), exported(handle), 0);
        let code = mem_import(&mut other, fd as usize, FD);
        line("import", (code, open(fd)));
        line("write", used(address));
        line("end", [mem_unmap(address, GRANULE), mem_release(handle)]);
        let there = mapped(other, GRANULE);
        let mut value = 0_u64;
        let code = memcpy_dtoh(&raw mut value as usize, there, 8);
        line("read", format!("{code} {value}"));
    }),
    ("as_external", || {
        let handle = create(GRANULE);
        let address = mapped(handle, GRANULE);
        for (what, flags) in [("plain", 0), ("dedicated", 1)] {
            let (code, memory) = import_fd(exported(handle), GRANULE as u64, flags);
            line(format!("{what}.import"), code);
            if code != 0 {
                continue;
            }
            for (offset, size) in [(0, GRANULE as u64), (0, 64), (64, 64), (1 << 20, 1 << 20)] {
                line(
                    format!("{what}.at_{offset}_of_{size}"),
                    map(memory, offset, size, 0).0,
                );
            }
        }
        line("use", used(address));
    }),
    ("mem_free", || {
        let handle = create(GRANULE);
        let address = mapped(handle, GRANULE);
        line("free", mem_free(address));
        line("use", used(address));
    }),
    ("after_fault", || {
        let handle = create(GRANULE);
        let (address, stream) = (mapped(handle, GRANULE), stream());
        line(
            "fault",
            ended(launch(kernel(c"put"), stream, &[16, 1]), stream),
        );
        let (mut fd, mut other, mut place) = (-1, 0, 0);
        line("create", mem_create(&mut other, GRANULE, &prop(FD), 0));
        line("export", mem_export(&mut fd, handle, FD, 0));
        line("reserve", address_reserve(&mut place, GRANULE, 0, 0, 0));
        line("set_access", allow(address, GRANULE, 1));
        line("unmap", mem_unmap(address, GRANULE));
        line("map", mem_map(address, GRANULE, 0, handle, 0));
        line("release", mem_release(handle));
    }),
    ("unmap_while_used", || {
        let (stream, words) = (stream(), Words::new());
        let handle = create(GRANULE);
        let address = mapped(handle, GRANULE);
        park(stream, words, 0);
        line("memset", memset_d32_async(address, 1, 1, stream));
        let opener = words.open_after(1000);
        line("unmap", mem_unmap(address, GRANULE));
        line("returns_while_parked", words.load(0) == 0);
        let _ = opener.join();
        line("then", outcome(stream));
    }),
    ("vulkan_as_shareable", || {
        let device = vulkan();
        let exported = device.exported_memory(GRANULE as u64, false);
        let mut handle = 0;
        let code = mem_import(&mut handle, exported.fd as usize, FD);
        line("import", (code, open(exported.fd)));
        line("context", ctx_synchronize());
    }),
    ("to_vulkan", || {
        let device = vulkan();
        let handle = create(GRANULE);
        let (address, size) = (mapped(handle, GRANULE), GRANULE as u64);
        for offset in [0, 65536, size / 2 + 256, size - 65536] {
            let code = need(device.fill_imported(exported(handle), size, offset, None));
            let mut words = [0_u32; 18];
            let from = &raw mut words as usize;
            let before = if offset == 0 { 0 } else { 4 };
            let read = memcpy_dtoh(from, address + offset - before, 72);
            let filled = words.iter().filter(|word| **word == FILL).count();
            line(offset, format!("{code} {read}, {filled} words"));
        }
        // CUDA's own references go first.
        let fd = exported(handle);
        line("end", [mem_unmap(address, GRANULE), mem_release(handle)]);
        line("afterwards", need(device.fill_imported(fd, size, 0, None)));
    }),
    ("to_vulkan_sizes", || {
        let device = vulkan();
        let handle = create(4 * GRANULE);
        for size in [2 * GRANULE, 4 * GRANULE, 8 * GRANULE] {
            let code = need(device.fill_imported(exported(handle), size as u64, 0, None));
            line(size, code);
        }
    }),
    ("to_vulkan_types", || {
        let device = vulkan();
        let handle = create(GRANULE);
        let (address, size) = (mapped(handle, GRANULE), GRANULE as u64);
        for index in 0..device.memory_types().len() as u32 {
            let before = [1_u32; 16];
            let from = &raw const before as usize;
            check(memcpy_htod(address, from, 64));
            let fd = exported(handle);
            let code = match device.fill_imported(fd, size, 0, Some(index)) {
                Ok(code) => code.to_string(),
                Err(reason) => reason,
            };
            let mut words = [0_u32; 16];
            let read = memcpy_dtoh(&raw mut words as usize, address, 64);
            let filled = words.iter().filter(|word| **word == FILL).count();
            line(index, format!("{code} {read}, {filled} words"));
        }
    }),
    // What files the descriptors of both APIs are.
    ("files", || {
        let device = vulkan();
        let vulkan = device.exported_memory(GRANULE as u64, false).fd;
        for (what, fd) in [("cuda", exported(create(GRANULE))), ("vulkan", vulkan)] {
            // SAFETY: a structure of integers, for which zeroes are valid.
            let mut status: libc::stat = unsafe { std::mem::zeroed() };
            // SAFETY: writes one structure.
            let code = unsafe { libc::fstat(fd, &raw mut status) };
            let device = (libc::major(status.st_rdev), libc::minor(status.st_rdev));
            let (mode, size) = (status.st_mode & libc::S_IFMT, status.st_size);
            line(
                what,
                format!("{code}, mode {mode:o}, {device:?}, {size} bytes"),
            );
            let path = std::fs::read_link(format!("/proc/self/fd/{fd}"));
            let path = path.map_err(|error| error.to_string());
            line(format!("{what}.path"), need(path).to_string_lossy());
        }
    }),
];

const BARE: Questions = &[("no_context", || {
    check(init(0));
    let (mut handle, mut address) = (0, 0);
    let codes = [
        mem_create(&mut handle, GRANULE, &prop(FD), 0),
        address_reserve(&mut address, GRANULE, 0, 0, 0),
        mem_map(address, GRANULE, 0, handle, 0),
        allow(address, GRANULE, 3),
    ];
    line("make", codes);
    let first = another_context();
    line("use", used(address));
    another_context();
    line("use_in_another", used(address));
    line("destroy_context", ctx_destroy(first));
    line("use_afterwards", used(address));
    let codes = [
        mem_unmap(address, GRANULE),
        address_free(address, GRANULE),
        mem_release(handle),
    ];
    line("end", codes);
})];
