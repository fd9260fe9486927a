//! External memory.

use super::external::{fds, open};
use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use crate::vulkan::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("external", QUESTIONS);
}

pub(super) fn import_fd(fd: i32, size: u64, flags: u32) -> (Code, Handle) {
    let mut memory = 0;
    let desc = MemoryDesc {
        kind: OPAQUE_FD,
        fd,
        size,
        flags,
        ..Default::default()
    };
    (import_memory(&mut memory, &desc), memory)
}

pub(super) fn map(memory: Handle, offset: u64, size: u64, flags: u32) -> (Code, u64) {
    let (mut pointer, desc) = (
        0,
        BufferDesc {
            offset,
            size,
            flags,
            ..Default::default()
        },
    );
    (mapped_buffer(&mut pointer, memory, &desc), pointer)
}

const QUESTIONS: Questions = &[
    ("memory_fds", || {
        for (what, fd) in fds() {
            let (code, _) = import_fd(fd, 65536, 0);
            line(what, (code, open(fd)));
        }
        line("context", ctx_synchronize());
    }),
    ("memory", || {
        let (device, stream) = (vulkan(), stream());
        let exported = device.exported_memory(65536, true);
        let again = device.export_memory(exported.memory);
        line("size", exported.size);
        let (first, one) = import_fd(exported.fd, exported.size, 1);
        let (second, two) = import_fd(again, exported.size, 1);
        line("import", [first, second]);
        let ((first, from), (second, to)) = (map(one, 0, 65536, 0), map(two, 0, 65536, 0));
        line("map", ([first, second], that("same", from == to)));
        let mut value = 0_u64;
        let codes = [
            memset_d32_async(from + 64, 0x0102_0304, 2, stream),
            stream_synchronize(stream),
            memcpy_dtoh(&raw mut value as usize, to + 64, 8),
        ];
        line("use", format!("{} {value:016x}", names(&codes)));
        line("free", [mem_free(from), mem_free(to)]);
        line("destroy", [destroy_memory(one), destroy_memory(two)]);
    }),
    ("memory_sizes", || {
        let device = vulkan();
        for (kind, dedicated) in [("dedicated", true), ("plain", false)] {
            for flags in 0..=2 {
                let exported = device.exported_memory(65536, dedicated);
                let code = import_fd(exported.fd, exported.size, flags).0;
                line(format!("{kind}.flags_{flags}"), code);
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
                let exported = device.exported_memory(65536, dedicated);
                let (code, memory) = import_fd(exported.fd, size, flags);
                let mapped = match code.number {
                    0 => map(memory, 0, size, 0).0.to_string(),
                    _ => "-".into(),
                };
                line(format!("{kind}.size_{size}"), format!("{code} {mapped}"));
            }
        }
        line("context", ctx_synchronize());
    }),
    ("memory_ranges", || {
        let device = vulkan();
        let exported = device.exported_memory(1 << 20, true);
        let (code, memory) = import_fd(exported.fd, exported.size, 1);
        check(code);
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
            line(what, map(memory, offset, bytes, flags).0);
        }
        let (_, base) = map(memory, 0, size, 0);
        let (_, part) = map(memory, 8, 8, 0);
        line(
            "offset_8_is_at",
            format!("~{}", part.wrapping_sub(base).cast_signed()),
        );
    }),
    // Memory that no buffer has for itself: parts of it are mapped.
    ("memory_arena", || {
        let device = vulkan();
        let exported = device.exported_memory(1 << 20, false);
        let (code, memory) = import_fd(exported.fd, exported.size, 0);
        check(code);
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
            line(what, map(memory, offset, bytes, 0).0);
        }
        let ((_, whole), (_, part)) = (map(memory, 0, size, 0), map(memory, 65552, 64, 0));
        let mut value = 0_u64;
        let codes = [
            memcpy_htod(part, &raw const size as usize, 8),
            memcpy_dtoh(&raw mut value as usize, whole + 65552, 8),
        ];
        line("use", format!("{} {value}", names(&codes)));
        line("alignment_65552", part % 512);
    }),
    // Memory with `VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT`, imported by both APIs.
    ("memory_with_addresses", || {
        let device = vulkan();
        let exported = device.addressed_memory(1 << 20);
        let again = device.export_memory(exported.memory);
        let (code, memory) = import_fd(exported.fd, exported.size, 0);
        check(code);
        let (code, pointer) = map(memory, 65536, 4096, 0);
        line("map", code);
        // An import without that flag.
        let code = need(device.fill_imported(again, exported.size, 65536, None));
        let mut words = [0_u32; 16];
        let read = memcpy_dtoh(&raw mut words as usize, pointer, 64);
        let filled = words.iter().filter(|word| **word == FILL).count();
        line("fill", format!("{code} {read}, {filled} words"));
    }),
    ("memory_destroy_mapped", || {
        let (device, stream) = (vulkan(), stream());
        let exported = device.exported_memory(65536, true);
        let (code, memory) = import_fd(exported.fd, exported.size, 1);
        check(code);
        let (code, pointer) = map(memory, 0, exported.size, 0);
        check(code);
        line("destroy", destroy_memory(memory));
        line(
            "use",
            [memset_d32_async(pointer, 1, 1, stream), outcome(stream)],
        );
        line("free", mem_free(pointer));
        line("context", ctx_synchronize());
    }),
    ("memory_destroy_used", || {
        let (device, stream, words) = (vulkan(), stream(), Words::new());
        let exported = device.exported_memory(65536, true);
        let (code, memory) = import_fd(exported.fd, exported.size, 1);
        check(code);
        let (code, pointer) = map(memory, 0, exported.size, 0);
        check(code);
        park(stream, words, 0);
        line("memset", memset_d32_async(pointer, 1, 1, stream));
        let opener = words.open_after(1000);
        line("free", mem_free(pointer));
        line("free_returns_while_parked", words.load(0) == 0);
        line("destroy", destroy_memory(memory));
        line("destroy_returns_while_parked", words.load(0) == 0);
        let _ = opener.join();
        line("then", outcome(stream));
    }),
    ("memory_free_twice", || {
        let device = vulkan();
        let exported = device.exported_memory(65536, true);
        let (code, memory) = import_fd(exported.fd, exported.size, 1);
        check(code);
        let (_, pointer) = map(memory, 0, exported.size, 0);
        line("free", [mem_free(pointer), mem_free(pointer)]);
        line("destroy", [destroy_memory(memory), destroy_memory(memory)]);
    }),
];
