//! External memory.

use super::external::{fds, open, without_vulkan};
use crate::cuda::{BufferDesc, Handle, MemoryDesc, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{Answer, Words, check, context, name, names, outcome, park, pause, stream, yes};
use crate::vulkan::{FILL, OPAQUE_FD, Vulkan};

pub(crate) fn list() -> Vec<Probe> {
    without_vulkan(
        family!["external"; memory_fds, memory, memory_sizes, memory_ranges,
        memory_arena, memory_with_addresses, memory_destroy_mapped, memory_destroy_used, memory_free_twice],
    )
}

pub(super) fn import_memory(fd: i32, size: u64, flags: u32) -> (u32, Handle) {
    let mut memory = 0;
    let desc = MemoryDesc {
        kind: OPAQUE_FD,
        fd,
        size,
        flags,
        ..Default::default()
    };
    (cu().import_memory(&mut memory, &desc), memory)
}

fn memory_fds() -> Answer {
    context()?;
    for (what, fd) in fds() {
        let (code, _) = import_memory(fd, 65536, 0);
        line(what, format!("{}, open: {}", name(code), open(fd)));
    }
    line("context", name(cu().ctx_synchronize()));
    Ok(String::new())
}

pub(super) fn map(memory: Handle, offset: u64, size: u64, flags: u32) -> (u32, u64) {
    let (mut pointer, desc) = (
        0,
        BufferDesc {
            offset,
            size,
            flags,
            ..Default::default()
        },
    );
    (cu().mapped_buffer(&mut pointer, memory, &desc), pointer)
}

fn memory() -> Answer {
    context()?;
    let (device, stream) = (Vulkan::open()?, stream()?);
    let exported = device.exported_memory(65536, true)?;
    let again = device.export_memory(exported.memory)?;
    line("size", exported.size);
    let (first, one) = import_memory(exported.fd, exported.size, 1);
    let (second, two) = import_memory(again, exported.size, 1);
    line("import", names(&[first, second]));
    let ((first, from), (second, to)) = (map(one, 0, 65536, 0), map(two, 0, 65536, 0));
    line(
        "map",
        format!("{}, same: {}", names(&[first, second]), yes(from == to)),
    );
    let mut value = 0_u64;
    let codes = [
        cu().memset_d32_async(from + 64, 0x0102_0304, 2, stream),
        cu().stream_synchronize(stream),
        cu().memcpy_dtoh(&raw mut value as usize, to + 64, 8),
    ];
    line("use", format!("{} {value:016x}", names(&codes)));
    line("free", names(&[cu().mem_free(from), cu().mem_free(to)]));
    line(
        "destroy",
        names(&[cu().destroy_memory(one), cu().destroy_memory(two)]),
    );
    Ok(String::new())
}

fn memory_sizes() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    for (kind, dedicated) in [("dedicated", true), ("plain", false)] {
        for flags in 0..=2 {
            let exported = device.exported_memory(65536, dedicated)?;
            let code = import_memory(exported.fd, exported.size, flags).0;
            line(format!("{kind}.flags_{flags}"), name(code));
        }
        let flags = u32::from(dedicated);
        for size in [
            0,
            1,
            4096,
            65535,
            65537,
            131_072,
            2 << 20,
            1 << 40,
            u64::MAX,
        ] {
            let exported = device.exported_memory(65536, dedicated)?;
            let (code, memory) = import_memory(exported.fd, size, flags);
            let mapped = if code == 0 {
                name(map(memory, 0, size, 0).0)
            } else {
                "-".into()
            };
            line(
                format!("{kind}.size_{size}"),
                format!("{} {mapped}", name(code)),
            );
        }
    }
    line("context", name(cu().ctx_synchronize()));
    Ok(String::new())
}

fn memory_ranges() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let exported = device.exported_memory(1 << 20, true)?;
    let (code, memory) = import_memory(exported.fd, exported.size, 1);
    check("cuImportExternalMemory", code)?;
    let size = exported.size;
    for (what, offset, bytes, flags) in [
        ("all", 0, size, 0),
        ("nothing", 0, 0, 0),
        ("one_more", 0, size + 1, 0),
        ("twice", 0, 2 * size, 0),
        ("half", size / 2, size / 2, 0),
        ("half_and_one", size / 2, size / 2 + 1, 0),
        ("offset_8", 8, 8, 0),
        ("offset_1", 1, 8, 0),
        ("offset_4096", 4096, 4096, 0),
        ("offset_end", size, 1, 0),
        ("offset_wraps", u64::MAX, 2, 0),
        ("flags_1", 0, size, 1),
    ] {
        line(what, name(map(memory, offset, bytes, flags).0));
    }
    let (_, base) = map(memory, 0, size, 0);
    let (_, part) = map(memory, 8, 8, 0);
    line(
        "offset_8_is_at",
        format!("~{}", part.wrapping_sub(base).cast_signed()),
    );
    Ok(String::new())
}

/// Memory that no buffer has for itself: parts of it are mapped.
fn memory_arena() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let exported = device.exported_memory(1 << 20, false)?;
    let (code, memory) = import_memory(exported.fd, exported.size, 0);
    check("cuImportExternalMemory", code)?;
    let size = exported.size;
    for (what, offset, bytes) in [
        ("all", 0, size),
        ("beginning", 0, size / 2),
        ("half", size / 2, size / 2),
        ("half_and_one", size / 2, size / 2 + 1),
        ("offset_1", 1, 64),
        ("offset_65552", 65552, 4096),
        ("offset_end", size, 1),
        ("offset_wraps", u64::MAX - 65535, 131_072),
    ] {
        line(what, name(map(memory, offset, bytes, 0).0));
    }
    let ((_, whole), (_, part)) = (map(memory, 0, size, 0), map(memory, 65552, 64, 0));
    let mut value = 0_u64;
    let codes = [
        cu().memcpy_htod(part, &raw const size as usize, 8),
        cu().memcpy_dtoh(&raw mut value as usize, whole + 65552, 8),
    ];
    line("use", format!("{} {value}", names(&codes)));
    line("alignment_65552", part % 512);
    Ok(String::new())
}

/// Memory that was allocated with `VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT`, imported by both APIs.
fn memory_with_addresses() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let exported = device.addressed_memory(1 << 20)?;
    let again = device.export_memory(exported.memory)?;
    let (code, memory) = import_memory(exported.fd, exported.size, 0);
    check("cuImportExternalMemory", code)?;
    let (code, pointer) = map(memory, 65536, 4096, 0);
    line("map", name(code));
    // An import without that flag.
    let code = device.fill_imported(again, exported.size, 65536, None)?;
    let mut words = [0_u32; 16];
    let read = cu().memcpy_dtoh(&raw mut words as usize, pointer, 64);
    let filled = words.iter().filter(|word| **word == FILL).count();
    line("fill", format!("{code} {}, {filled} words", name(read)));
    Ok(String::new())
}

fn memory_destroy_mapped() -> Answer {
    context()?;
    let (device, stream) = (Vulkan::open()?, stream()?);
    let exported = device.exported_memory(65536, true)?;
    let (code, memory) = import_memory(exported.fd, exported.size, 1);
    check("cuImportExternalMemory", code)?;
    let (code, pointer) = map(memory, 0, exported.size, 0);
    check("cuExternalMemoryGetMappedBuffer", code)?;
    line("destroy", name(cu().destroy_memory(memory)));
    line(
        "use",
        names(&[
            cu().memset_d32_async(pointer, 1, 1, stream),
            outcome(stream),
        ]),
    );
    line("free", name(cu().mem_free(pointer)));
    line("context", name(cu().ctx_synchronize()));
    Ok(String::new())
}

fn memory_destroy_used() -> Answer {
    context()?;
    let (device, stream, words) = (Vulkan::open()?, stream()?, Words::new()?);
    let exported = device.exported_memory(65536, true)?;
    let (code, memory) = import_memory(exported.fd, exported.size, 1);
    check("cuImportExternalMemory", code)?;
    let (code, pointer) = map(memory, 0, exported.size, 0);
    check("cuExternalMemoryGetMappedBuffer", code)?;
    park(stream, words, 0)?;
    line("memset", name(cu().memset_d32_async(pointer, 1, 1, stream)));
    let opener = std::thread::spawn(move || {
        pause(1000);
        words.store(0, 1);
    });
    line("free", name(cu().mem_free(pointer)));
    line("free_returns_while_parked", yes(words.load(0) == 0));
    line("destroy", name(cu().destroy_memory(memory)));
    line("destroy_returns_while_parked", yes(words.load(0) == 0));
    let _ = opener.join();
    line("then", name(outcome(stream)));
    Ok(String::new())
}

fn memory_free_twice() -> Answer {
    context()?;
    let device = Vulkan::open()?;
    let exported = device.exported_memory(65536, true)?;
    let (code, memory) = import_memory(exported.fd, exported.size, 1);
    check("cuImportExternalMemory", code)?;
    let (_, pointer) = map(memory, 0, exported.size, 0);
    line(
        "free",
        names(&[cu().mem_free(pointer), cu().mem_free(pointer)]),
    );
    line(
        "destroy",
        names(&[cu().destroy_memory(memory), cu().destroy_memory(memory)]),
    );
    Ok(String::new())
}
