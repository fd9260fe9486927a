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
    let mut pointer = 0;
    let desc = BufferDesc {
        offset,
        size,
        flags,
        ..Default::default()
    };
    (mapped_buffer(&mut pointer, memory, &desc), pointer)
}

/// Memory that Vulkan has exported and CUDA has imported, and its size.
fn imported(bytes: u64, dedicated: bool) -> (Handle, u64) {
    let exported = vulkan().exported_memory(bytes, dedicated);
    let (code, memory) = import_fd(exported.fd, exported.size, dedicated.into());
    check(code);
    (memory, exported.size)
}

/// The same, and a mapping of all of it.
fn imported_and_mapped() -> (Handle, u64) {
    let (memory, size) = imported(65536, true);
    let (code, pointer) = map(memory, 0, size, 0);
    check(code);
    (memory, pointer)
}

const QUESTIONS: Questions = &[
    ("memory_fds", || {
        for (what, fd) in fds() {
            line(what, (import_fd(fd, 65536, 0).0, open(fd)));
        }
        line("context", ctx_synchronize());
    }),
    ("memory", || {
        let (device, stream) = (vulkan(), stream());
        let exported = device.exported_memory(65536, true);
        let again = device.export_memory(exported.memory);
        let (first, one) = import_fd(exported.fd, exported.size, 1);
        let (second, two) = import_fd(again, exported.size, 1);
        line("import", [first, second]);
        let ((first, from), (second, to)) = (map(one, 0, 65536, 0), map(two, 0, 65536, 0));
        line("map", ([first, second], that("same", from == to)));
        let set = memset_d32_async(from + 64, 0x0102_0304, 2, stream);
        let (codes, (code, value)) = (names(&done(set, stream)), read(to + 64));
        line("use", format!("{codes} {code} {value:016x}"));
        line("free", [from, to].map(mem_free));
        line("destroy", [one, two].map(destroy_memory));
    }),
    ("memory_sizes", || {
        for (kind, dedicated) in [("dedicated", true), ("plain", false)] {
            let flags = u32::from(dedicated);
            let import = |size: Option<u64>, flags| {
                let exported = vulkan().exported_memory(65536, dedicated);
                import_fd(exported.fd, size.unwrap_or(exported.size), flags)
            };
            for flags in 0..=2 {
                line(format!("{kind}.flags_{flags}"), import(None, flags).0);
            }
            for size in [0, 1, 65535, 65537, u64::MAX] {
                let (code, memory) = import(Some(size), flags);
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
        let (memory, size) = imported(1 << 20, true);
        for (what, offset, bytes, flags) in [
            ("all", 0, size, 0),
            ("nothing", 0, 0, 0),
            ("one_more", 0, size + 1, 0),
            ("half", size / 2, size / 2, 0),
            ("offset_8", 8, 8, 0),
            ("offset_wraps", u64::MAX, 2, 0),
            ("flags_1", 0, size, 1),
        ] {
            line(what, map(memory, offset, bytes, flags).0);
        }
    }),
    // Memory that no buffer has for itself: parts of it are mapped.
    ("memory_arena", || {
        let (memory, size) = imported(1 << 20, false);
        for (what, offset, bytes) in [
            ("all", 0, size),
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
        let (stored, (code, value)) = (store(part, size), read(whole + 65552));
        line("use", format!("{stored} {code} {value}"));
        line("alignment_65552", part % 512);
    }),
    ("memory_destroy_mapped", || {
        let (memory, pointer) = imported_and_mapped();
        line("destroy", destroy_memory(memory));
        let stream = stream();
        line("use", ended(fill(pointer, stream), stream));
        line("free", mem_free(pointer));
        line("context", ctx_synchronize());
    }),
    ("memory_destroy_used", || {
        let (stream, words) = (stream(), Words::new());
        let (memory, pointer) = imported_and_mapped();
        park(stream, words, 0);
        line("memset", fill(pointer, stream));
        let (code, early) = words.call_before(1000, || mem_free(pointer));
        line("free", code);
        line("free_returns_while_parked", early);
        line("destroy", destroy_memory(memory));
        line("then", outcome(stream));
    }),
    ("memory_free_twice", || {
        let (_, pointer) = imported_and_mapped();
        line("free", [pointer; 2].map(mem_free));
    }),
];
