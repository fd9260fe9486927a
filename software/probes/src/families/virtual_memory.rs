//! Memory that is made apart from its addresses: `cuMemCreate` and its relatives.

use super::external::{fds, open, without_vulkan};
use super::external_memory::{import_memory, map};
use crate::cuda::{AccessDesc, AllocationProp, Handle, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, Words, another_context, check, context, kernel, launch, name, names, outcome, park,
    pause, stream, yes,
};
use crate::vulkan::{FILL, Vulkan};

/// The granularity of an H200.
const GRANULE: usize = 2 << 20;
/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
const FD: u32 = 1;

pub(crate) fn list() -> Vec<Probe> {
    let alone = family!["virtual"; granularity, properties, sizes, addresses, map_wrong, unmap,
        access, access_of_part, free_while_mapped, release, no_context, export, import_fds, import,
        as_external, mem_free, after_fault, unmap_while_used];
    let faults = ["no_access", "read_access", "no_mapping"].map(|what| {
        let name = format!("virtual.kernel_with_{what}");
        Probe::new(name, move || kernel_without_access(what))
    });
    let with_vulkan = without_vulkan(family!["virtual"; vulkan_as_shareable, to_vulkan,
        to_vulkan_sizes, to_vulkan_types, files]);
    let all = alone.into_iter().chain(faults).chain(with_vulkan);
    all.collect()
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

fn create(bytes: usize) -> Result<Handle, String> {
    let mut handle = 0;
    let code = cu().mem_create(&mut handle, bytes, &prop(FD), 0);
    check("cuMemCreate", code)?;
    Ok(handle)
}

fn reserve(bytes: usize) -> Result<u64, String> {
    let mut address = 0;
    let code = cu().mem_address_reserve(&mut address, bytes, 0, 0, 0);
    check("cuMemAddressReserve", code)?;
    Ok(address)
}

fn allow(address: u64, bytes: usize, flags: u32) -> u32 {
    let access = AccessDesc {
        location: [1, 0],
        flags,
    };
    cu().mem_set_access(address, bytes, &access, 1)
}

/// Maps memory at new addresses, with all rights.
fn mapped(handle: Handle, bytes: usize) -> Result<u64, String> {
    let address = reserve(bytes)?;
    check("cuMemMap", cu().mem_map(address, bytes, 0, handle, 0))?;
    check("cuMemSetAccess", allow(address, bytes, 3))?;
    Ok(address)
}

fn exported(handle: Handle) -> Result<i32, String> {
    let mut fd = -1;
    let code = cu().mem_export(&mut fd, handle, FD, 0);
    check("cuMemExportToShareableHandle", code)?;
    Ok(fd)
}

/// Writes and reads a word. Returns the results and the word.
fn used(address: u64) -> String {
    let (from, mut to) = (7_u64, 0_u64);
    let codes = [
        cu().memcpy_htod(address, &raw const from as usize, 8),
        cu().memcpy_dtoh(&raw mut to as usize, address, 8),
    ];
    format!("{} {to}", names(&codes))
}

fn granularity() -> Answer {
    context()?;
    for option in 0..3 {
        let mut bytes = 0;
        let code = cu().mem_granularity(&mut bytes, &prop(FD), option);
        line(option, format!("{}, {bytes}", name(code)));
    }
    Ok(String::new())
}

fn properties() -> Answer {
    context()?;
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
        let created = cu().mem_create(&mut handle, GRANULE, &prop, 0);
        let asked = cu().mem_granularity(&mut bytes, &prop, 0);
        line(what, names(&[created, asked]));
    }
    let (mut handle, mut told) = (0, prop(0));
    line(
        "flags_1",
        name(cu().mem_create(&mut handle, GRANULE, &base, 1)),
    );
    let handle = create(GRANULE)?;
    let code = cu().mem_properties(&mut told, handle);
    line(
        "told",
        format!("{}, same: {}", name(code), yes(told == base)),
    );
    Ok(String::new())
}

fn sizes() -> Answer {
    context()?;
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
        line(
            bytes,
            name(cu().mem_create(&mut handle, bytes, &prop(FD), 0)),
        );
    }
    Ok(String::new())
}

fn addresses() -> Answer {
    context()?;
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
        let code = cu().mem_address_reserve(&mut address, bytes, alignment, 0, flags);
        let aligned = address % (GRANULE.max(alignment) as u64) == 0;
        line(what, format!("{}, aligned: {}", name(code), yes(aligned)));
    }
    let address = reserve(4 * GRANULE)?;
    line("free_part", name(cu().mem_address_free(address, GRANULE)));
    let inside = address + GRANULE as u64;
    line("free_inside", name(cu().mem_address_free(inside, GRANULE)));
    line(
        "free_unknown",
        name(cu().mem_address_free(16 << 20, GRANULE)),
    );
    let code = [(); 2].map(|()| cu().mem_address_free(address, 4 * GRANULE));
    line("free_twice", names(&code));
    Ok(String::new())
}

fn map_wrong() -> Answer {
    context()?;
    let (one, two) = (create(GRANULE)?, create(2 * GRANULE)?);
    let (address, size) = (reserve(4 * GRANULE)?, GRANULE as u64);
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
        line(what, name(cu().mem_map(at, bytes, offset, handle, flags)));
    }
    Ok(String::new())
}

fn unmap() -> Answer {
    context()?;
    let (one, two) = (create(GRANULE)?, create(2 * GRANULE)?);
    let (address, size) = (reserve(4 * GRANULE)?, GRANULE as u64);
    check("cuMemMap", cu().mem_map(address, GRANULE, 0, one, 0))?;
    check(
        "cuMemMap",
        cu().mem_map(address + size, 2 * GRANULE, 0, two, 0),
    )?;
    for (what, at, bytes) in [
        ("nothing", address, 0),
        ("page", address, 4096),
        ("part", address + size, GRANULE),
        ("one_and_a_part", address, 2 * GRANULE),
        ("with_a_hole", address, 4 * GRANULE),
        ("both", address, 3 * GRANULE),
        ("again", address, 3 * GRANULE),
    ] {
        line(what, name(cu().mem_unmap(at, bytes)));
    }
    Ok(String::new())
}

fn access() -> Answer {
    context()?;
    let (handle, address) = (create(GRANULE)?, reserve(GRANULE)?);
    line("reserved", used(address));
    line("reserved_set", name(allow(address, GRANULE, 3)));
    check("cuMemMap", cu().mem_map(address, GRANULE, 0, handle, 0))?;
    line("mapped", used(address));
    for flags in [0, 1, 2, 3, 4] {
        line(format!("set_{flags}"), name(allow(address, GRANULE, flags)));
        line(format!("use_{flags}"), used(address));
    }
    let wrong = AccessDesc {
        location: [1, 99],
        flags: 3,
    };
    line(
        "device_99",
        name(cu().mem_set_access(address, GRANULE, &wrong, 1)),
    );
    line(
        "count_0",
        name(cu().mem_set_access(address, GRANULE, &wrong, 0)),
    );
    check("cuMemUnmap", cu().mem_unmap(address, GRANULE))?;
    check("cuMemMap", cu().mem_map(address, GRANULE, 0, handle, 0))?;
    line("mapped_again", used(address));
    line("context", name(cu().ctx_synchronize()));
    Ok(String::new())
}

fn access_of_part() -> Answer {
    context()?;
    let (one, two) = (create(2 * GRANULE)?, create(2 * GRANULE)?);
    let (address, size) = (reserve(6 * GRANULE)?, GRANULE as u64);
    check("cuMemMap", cu().mem_map(address, 2 * GRANULE, 0, one, 0))?;
    check(
        "cuMemMap",
        cu().mem_map(address + 2 * size, 2 * GRANULE, 0, two, 0),
    )?;
    line("page", name(allow(address, 4096, 3)));
    line("part", name(allow(address, GRANULE, 3)));
    line("across", name(allow(address + size, 2 * GRANULE, 3)));
    line("with_a_hole", name(allow(address, 6 * GRANULE, 3)));
    line("both", name(allow(address, 4 * GRANULE, 3)));
    let stream = stream()?;
    let across = address + 2 * size - 64;
    let code = cu().memset_d32_async(across, 1, 32, stream);
    line("memset_across", names(&[code, outcome(stream)]));
    Ok(String::new())
}

fn free_while_mapped() -> Answer {
    context()?;
    let address = mapped(create(GRANULE)?, GRANULE)?;
    line("free", name(cu().mem_address_free(address, GRANULE)));
    line("use", used(address));
    Ok(String::new())
}

fn release() -> Answer {
    context()?;
    let handle = create(GRANULE)?;
    let address = mapped(handle, GRANULE)?;
    line("release", name(cu().mem_release(handle)));
    line("use", used(address));
    line("unmap", name(cu().mem_unmap(address, GRANULE)));
    line("free", name(cu().mem_address_free(address, GRANULE)));
    line("release_0", name(cu().mem_release(0)));
    Ok(String::new())
}

fn no_context() -> Answer {
    check("cuInit", cu().init(0))?;
    let (mut handle, mut address) = (0, 0);
    let codes = [
        cu().mem_create(&mut handle, GRANULE, &prop(FD), 0),
        cu().mem_address_reserve(&mut address, GRANULE, 0, 0, 0),
        cu().mem_map(address, GRANULE, 0, handle, 0),
        allow(address, GRANULE, 3),
    ];
    line("make", names(&codes));
    let first = another_context()?;
    line("use", used(address));
    another_context()?;
    line("use_in_another", used(address));
    line("destroy_context", name(cu().ctx_destroy(first)));
    line("use_afterwards", used(address));
    let codes = [
        cu().mem_unmap(address, GRANULE),
        cu().mem_address_free(address, GRANULE),
        cu().mem_release(handle),
    ];
    line("end", names(&codes));
    Ok(String::new())
}

fn export() -> Answer {
    context()?;
    let (shared, mut own, mut fd) = (create(GRANULE)?, 0, -1);
    let code = cu().mem_create(&mut own, GRANULE, &prop(0), 0);
    check("cuMemCreate", code)?;
    line("own", name(cu().mem_export(&mut fd, own, FD, 0)));
    for kind in [0, 1, 2, 3, 8] {
        let code = cu().mem_export(&mut fd, shared, kind, 0);
        line(format!("kind_{kind}"), name(code));
    }
    line("flags_1", name(cu().mem_export(&mut fd, shared, FD, 1)));
    let (one, two) = (exported(shared)?, exported(shared)?);
    line("twice", format!("same: {}", yes(one == two)));
    Ok(String::new())
}

fn import_fds() -> Answer {
    context()?;
    for (what, fd) in fds() {
        let mut handle = 0;
        let code = cu().mem_import(&mut handle, fd as usize, FD);
        line(what, format!("{}, open: {}", name(code), open(fd)));
    }
    let (fd, mut handle) = (exported(create(GRANULE)?)?, 0);
    for kind in [0, 2, 8] {
        let code = cu().mem_import(&mut handle, fd as usize, kind);
        line(format!("kind_{kind}"), name(code));
    }
    line("context", name(cu().ctx_synchronize()));
    Ok(String::new())
}

fn import() -> Answer {
    context()?;
    let handle = create(GRANULE)?;
    let (address, fd, mut other) = (mapped(handle, GRANULE)?, exported(handle)?, 0);
    let code = cu().mem_import(&mut other, fd as usize, FD);
    line("import", format!("{}, open: {}", name(code), open(fd)));
    line("write", used(address));
    line(
        "end",
        names(&[cu().mem_unmap(address, GRANULE), cu().mem_release(handle)]),
    );
    let there = mapped(other, GRANULE)?;
    let mut value = 0_u64;
    let code = cu().memcpy_dtoh(&raw mut value as usize, there, 8);
    line("read", format!("{} {value}", name(code)));
    Ok(String::new())
}

fn as_external() -> Answer {
    context()?;
    let handle = create(GRANULE)?;
    let address = mapped(handle, GRANULE)?;
    for (what, flags) in [("plain", 0), ("dedicated", 1)] {
        let (code, memory) = import_memory(exported(handle)?, GRANULE as u64, flags);
        line(format!("{what}.import"), name(code));
        if code != 0 {
            continue;
        }
        for (offset, size) in [(0, GRANULE as u64), (0, 64), (64, 64), (1 << 20, 1 << 20)] {
            line(
                format!("{what}.at_{offset}_of_{size}"),
                name(map(memory, offset, size, 0).0),
            );
        }
    }
    line("use", used(address));
    Ok(String::new())
}

fn mem_free() -> Answer {
    context()?;
    let handle = create(GRANULE)?;
    let address = mapped(handle, GRANULE)?;
    line("free", name(cu().mem_free(address)));
    line("use", used(address));
    Ok(String::new())
}

fn after_fault() -> Answer {
    context()?;
    let handle = create(GRANULE)?;
    let (address, stream) = (mapped(handle, GRANULE)?, stream()?);
    let code = launch(kernel(c"put")?, stream, &[16, 1]);
    line("fault", names(&[code, outcome(stream)]));
    let (mut fd, mut other, mut place) = (-1, 0, 0);
    line(
        "create",
        name(cu().mem_create(&mut other, GRANULE, &prop(FD), 0)),
    );
    line("export", name(cu().mem_export(&mut fd, handle, FD, 0)));
    line(
        "reserve",
        name(cu().mem_address_reserve(&mut place, GRANULE, 0, 0, 0)),
    );
    line("set_access", name(allow(address, GRANULE, 1)));
    line("unmap", name(cu().mem_unmap(address, GRANULE)));
    line("map", name(cu().mem_map(address, GRANULE, 0, handle, 0)));
    line("release", name(cu().mem_release(handle)));
    Ok(String::new())
}

fn unmap_while_used() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    let handle = create(GRANULE)?;
    let address = mapped(handle, GRANULE)?;
    park(stream, words, 0)?;
    line("memset", name(cu().memset_d32_async(address, 1, 1, stream)));
    let opener = std::thread::spawn(move || {
        pause(1000);
        words.store(0, 1);
    });
    line("unmap", name(cu().mem_unmap(address, GRANULE)));
    line("returns_while_parked", yes(words.load(0) == 0));
    let _ = opener.join();
    line("then", name(outcome(stream)));
    Ok(String::new())
}

fn kernel_without_access(what: &str) -> Answer {
    context()?;
    let stream = stream()?;
    let address = mapped(create(GRANULE)?, GRANULE)?;
    let put = kernel(c"put")?;
    let code = launch(put, stream, &[address, 1]);
    line("with_all", names(&[code, outcome(stream)]));
    let code = match what {
        "no_access" => allow(address, GRANULE, 0),
        "read_access" => allow(address, GRANULE, 1),
        _ => cu().mem_unmap(address, GRANULE),
    };
    line("taken", name(code));
    let code = launch(put, stream, &[address, 1]);
    line("then", names(&[code, outcome(stream)]));
    Ok(String::new())
}

fn vulkan_as_shareable() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let exported = device.exported_memory(GRANULE as u64, false)?;
    let mut handle = 0;
    let code = cu().mem_import(&mut handle, exported.fd as usize, FD);
    line(
        "import",
        format!("{}, open: {}", name(code), open(exported.fd)),
    );
    line("context", name(cu().ctx_synchronize()));
    Ok(String::new())
}

fn to_vulkan() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let handle = create(GRANULE)?;
    let (address, size) = (mapped(handle, GRANULE)?, GRANULE as u64);
    for offset in [0, 65536, size / 2 + 256, size - 65536] {
        let code = device.fill_imported(exported(handle)?, size, offset, None)?;
        let mut words = [0_u32; 18];
        let from = &raw mut words as usize;
        let before = if offset == 0 { 0 } else { 4 };
        let read = cu().memcpy_dtoh(from, address + offset - before, 72);
        let filled = words.iter().filter(|word| **word == FILL).count();
        line(offset, format!("{code} {}, {filled} words", name(read)));
    }
    // CUDA's own references go first.
    let fd = exported(handle)?;
    line(
        "end",
        names(&[cu().mem_unmap(address, GRANULE), cu().mem_release(handle)]),
    );
    line("afterwards", device.fill_imported(fd, size, 0, None)?);
    Ok(String::new())
}

fn to_vulkan_sizes() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let handle = create(4 * GRANULE)?;
    for size in [2 * GRANULE, 4 * GRANULE, 8 * GRANULE] {
        let code = device.fill_imported(exported(handle)?, size as u64, 0, None)?;
        line(size, code);
    }
    Ok(String::new())
}

fn to_vulkan_types() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let handle = create(GRANULE)?;
    let (address, size) = (mapped(handle, GRANULE)?, GRANULE as u64);
    for index in 0..device.memory_types() {
        let before = [1_u32; 16];
        let from = &raw const before as usize;
        check("cuMemcpyHtoD_v2", cu().memcpy_htod(address, from, 64))?;
        let fd = exported(handle)?;
        let code = match device.fill_imported(fd, size, 0, Some(index)) {
            Ok(code) => code.to_string(),
            Err(reason) => reason,
        };
        let mut words = [0_u32; 16];
        let read = cu().memcpy_dtoh(&raw mut words as usize, address, 64);
        let filled = words.iter().filter(|word| **word == FILL).count();
        line(index, format!("{code} {}, {filled} words", name(read)));
    }
    Ok(String::new())
}

/// What files the descriptors of both APIs are.
fn files() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let vulkan = device.exported_memory(GRANULE as u64, false)?.fd;
    for (what, fd) in [("cuda", exported(create(GRANULE)?)?), ("vulkan", vulkan)] {
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
        let path = path.map_err(|error| error.to_string())?;
        line(format!("{what}.path"), path.display());
    }
    Ok(String::new())
}
