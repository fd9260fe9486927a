//! Memory that is made apart from its addresses: `cuMemCreate` and its relatives.

use super::external::{fds, open};
use super::external_memory::{import_fd, map};
use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

/// The granularity of an H200.
const GRANULE: usize = 2 << 20;
const SIZE: u64 = GRANULE as u64;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FD: u32 = 1;

/// Pinned memory of device 0 with descriptors.
const PROP: AllocationProp = AllocationProp {
    kind: 1,
    handles: FD,
    location: [1, 0],
    rest: [0; 2],
};

pub(crate) fn list(all: &mut Probes) {
    all.family("virtual", QUESTIONS);
    all.bare("virtual", BARE);
    all.each("virtual", WITHOUT, |take| {
        let (stream, put) = (stream(), kernel(c"put"));
        let address = mapped(create(GRANULE), GRANULE);
        let used = || ended(launch(put, stream, &[address, 1]), stream);
        line("with_all", used());
        line("taken", take(address));
        line("then", used());
    });
}

/// What takes the rights to a mapping from a kernel.
const WITHOUT: Table<fn(u64) -> Code> = &[
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

fn create(bytes: usize) -> Handle {
    let mut handle = 0;
    check(mem_create(&mut handle, bytes, &PROP, 0));
    handle
}

fn reserve(bytes: usize) -> u64 {
    let mut address = 0;
    check(address_reserve(&mut address, bytes, 0, 0, 0));
    address
}

fn allow(address: u64, bytes: usize, flags: u32) -> Code {
    let location = [1, 0];
    mem_set_access(address, bytes, &AccessDesc { location, flags }, 1)
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
    check(mem_export(&mut fd, handle, FD, 0));
    fd
}

/// Writes and reads a word. Returns the results and the word.
fn used(address: u64) -> String {
    let (stored, (code, value)) = (store(address, 7), read(address));
    format!("{stored} {code} {value}")
}

/// Lets Vulkan fill 64 bytes of memory at an address and an offset. Returns what CUDA reads.
fn filled(handle: Handle, address: u64, offset: u64, memory_type: Option<u32>) -> String {
    let fd = exported(handle);
    let code = match vulkan().fill_imported(fd, SIZE, offset, memory_type) {
        Ok(code) => code.to_string(),
        Err(reason) => reason,
    };
    let mut words = [0_u32; 16];
    let read = memcpy_dtoh(&raw mut words as usize, address + offset, 64);
    let filled = words.iter().filter(|word| **word == FILL).count();
    format!("{code} {read}, {filled} words")
}

const QUESTIONS: Questions = &[
    ("granularity", || {
        for option in 0..3 {
            let mut bytes = 0;
            let code = mem_granularity(&mut bytes, &PROP, option);
            line(option, format!("{code}, {bytes}"));
        }
    }),
    ("properties", || {
        type Change = fn(&mut AllocationProp);
        let changes: [(&str, Change); 5] = [
            ("kind_0", |prop| prop.kind = 0),
            ("handles_0", |prop| prop.handles = 0),
            ("handles_2", |prop| prop.handles = 2),
            ("nowhere", |prop| prop.location = [0, 0]),
            ("device_99", |prop| prop.location = [1, 99]),
        ];
        for (what, change) in changes {
            let (mut prop, mut bytes) = (PROP, 0);
            change(&mut prop);
            let created = mem_create(&mut 0, GRANULE, &prop, 0);
            line(what, [created, mem_granularity(&mut bytes, &prop, 0)]);
        }
        line("flags_1", mem_create(&mut 0, GRANULE, &PROP, 1));
    }),
    ("sizes", || {
        for bytes in [0, 1, GRANULE - 1, GRANULE, 1 << 50] {
            line(bytes, mem_create(&mut 0, bytes, &PROP, 0));
        }
    }),
    ("addresses", || {
        for (what, bytes, alignment, flags) in [
            ("nothing", 0, 0, 0),
            ("page", 4096, 0, 0),
            ("granule", GRANULE, 0, 0),
            ("tebibyte", 1 << 40, 0, 0),
            ("alignment_3", GRANULE, 3, 0),
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
        line("free_inside", address_free(address + SIZE, GRANULE));
        line("free_unknown", address_free(16 << 20, GRANULE));
        let free = |()| address_free(address, 4 * GRANULE);
        line("free_twice", [(); 2].map(free));
    }),
    ("map_wrong", || {
        let (one, two, address) = (create(GRANULE), create(2 * GRANULE), reserve(4 * GRANULE));
        for (what, at, bytes, offset, handle, flags) in [
            ("unreserved", 16 << 20, GRANULE, 0, one, 0),
            ("beyond", address + 3 * SIZE, 2 * GRANULE, 0, two, 0),
            ("misaligned", address + 4096, GRANULE, 0, one, 0),
            ("page", address, 4096, 0, one, 0),
            ("too_large", address, 2 * GRANULE, 0, one, 0),
            ("flags_1", address, GRANULE, 0, one, 1),
            ("right", address, GRANULE, 0, one, 0),
            ("again", address, GRANULE, 0, one, 0),
            ("over_it", address, 2 * GRANULE, 0, two, 0),
            ("beginning", address + SIZE, GRANULE, 0, two, 0),
            ("offset", address + 2 * SIZE, GRANULE, GRANULE, two, 0),
        ] {
            line(what, mem_map(at, bytes, offset, handle, flags));
        }
    }),
    ("unmap", || {
        let (one, two, address) = (create(GRANULE), create(2 * GRANULE), reserve(4 * GRANULE));
        check(mem_map(address, GRANULE, 0, one, 0));
        check(mem_map(address + SIZE, 2 * GRANULE, 0, two, 0));
        for (what, at, bytes) in [
            ("nothing", address, 0),
            ("page", address, 4096),
            ("part", address + SIZE, GRANULE),
            ("one_and_a_part", address, 2 * GRANULE),
            ("with_a_hole", address, 4 * GRANULE),
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
        for flags in 0..=3 {
            line(format!("set_{flags}"), allow(address, GRANULE, flags));
            line(format!("use_{flags}"), used(address));
        }
        check(mem_unmap(address, GRANULE));
        check(mem_map(address, GRANULE, 0, handle, 0));
        line("mapped_again", used(address));
        line("context", ctx_synchronize());
    }),
    ("access_of_part", || {
        let (address, stream) = (reserve(6 * GRANULE), stream());
        for at in [address, address + 2 * SIZE] {
            check(mem_map(at, 2 * GRANULE, 0, create(2 * GRANULE), 0));
        }
        line("page", allow(address, 4096, 3));
        line("part", allow(address, GRANULE, 3));
        line("across", allow(address + SIZE, 2 * GRANULE, 3));
        line("with_a_hole", allow(address, 6 * GRANULE, 3));
        line("both", allow(address, 4 * GRANULE, 3));
        let across = memset_d32_async(address + 2 * SIZE - 64, 1, 32, stream);
        line("memset_across", ended(across, stream));
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
        let prop = AllocationProp { handles: 0, ..PROP };
        check(mem_create(&mut own, GRANULE, &prop, 0));
        line("own", mem_export(&mut fd, own, FD, 0));
        for kind in 0..=2 {
            let code = mem_export(&mut fd, shared, kind, 0);
            line(format!("kind_{kind}"), code);
        }
        line("flags_1", mem_export(&mut fd, shared, FD, 1));
        line("twice", that("same", exported(shared) == exported(shared)));
    }),
    ("import_fds", || {
        for (what, fd) in fds() {
            let code = mem_import(&mut 0, fd as usize, FD);
            line(what, (code, open(fd)));
        }
        let fd = exported(create(GRANULE));
        for kind in [0, 2] {
            let code = mem_import(&mut 0, fd as usize, kind);
            line(format!("kind_{kind}"), code);
        }
    }),
    ("import", || {
        let handle = create(GRANULE);
        let (address, fd, mut other) = (mapped(handle, GRANULE), exported(handle), 0);
        let code = mem_import(&mut other, fd as usize, FD);
        line("import", (code, open(fd)));
        line("write", used(address));
        line("end", [mem_unmap(address, GRANULE), mem_release(handle)]);
        let (code, value) = read(mapped(other, GRANULE));
        line("read", format!("{code} {value}"));
    }),
    ("as_external", || {
        let handle = create(GRANULE);
        for (what, flags) in [("plain", 0), ("dedicated", 1)] {
            let (code, memory) = import_fd(exported(handle), SIZE, flags);
            line(format!("{what}.import"), code);
            for (offset, size) in [(0, SIZE), (64, 64)] {
                let code = map(memory, offset, size, 0).0;
                line(format!("{what}.at_{offset}_of_{size}"), code);
            }
        }
    }),
    ("after_fault", || {
        let handle = create(GRANULE);
        let address = mapped(handle, GRANULE);
        stream_synchronize(fault());
        let (mut fd, mut place) = (-1, 0);
        line("create", mem_create(&mut 0, GRANULE, &PROP, 0));
        line("export", mem_export(&mut fd, handle, FD, 0));
        line("reserve", address_reserve(&mut place, GRANULE, 0, 0, 0));
        line("set_access", allow(address, GRANULE, 1));
        line("unmap", mem_unmap(address, GRANULE));
        line("map", mem_map(address, GRANULE, 0, handle, 0));
        line("release", mem_release(handle));
    }),
    ("unmap_while_used", || {
        let (stream, words) = (stream(), Words::new());
        let address = mapped(create(GRANULE), GRANULE);
        park(stream, words, 0);
        line("memset", fill(address, stream));
        let (code, early) = words.call_before(1000, || mem_unmap(address, GRANULE));
        line("unmap", code);
        line("returns_while_parked", early);
        line("then", outcome(stream));
    }),
    ("to_vulkan", || {
        let handle = create(GRANULE);
        let address = mapped(handle, GRANULE);
        for offset in [0, 65536, SIZE / 2 + 256, SIZE - 65536] {
            line(offset, filled(handle, address, offset, None));
        }
        // CUDA's own references go first.
        let fd = exported(handle);
        line("end", [mem_unmap(address, GRANULE), mem_release(handle)]);
        let afterwards = vulkan().fill_imported(fd, SIZE, 0, None);
        line("afterwards", need(afterwards));
    }),
    ("to_vulkan_sizes", || {
        let handle = create(4 * GRANULE);
        for size in [2 * SIZE, 4 * SIZE, 8 * SIZE] {
            let code = vulkan().fill_imported(exported(handle), size, 0, None);
            line(size, need(code));
        }
    }),
    ("to_vulkan_types", || {
        let handle = create(GRANULE);
        let address = mapped(handle, GRANULE);
        for index in 0..vulkan().memory_types().len() as u32 {
            check(memset_d32_async(address, 1, 16, 0));
            check(ctx_synchronize());
            line(index, filled(handle, address, 0, Some(index)));
        }
    }),
];

const BARE: Questions = &[("no_context", || {
    check(init(0));
    let (mut handle, mut address) = (0, 0);
    let codes = [
        mem_create(&mut handle, GRANULE, &PROP, 0),
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
