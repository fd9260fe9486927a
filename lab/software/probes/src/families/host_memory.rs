//! Pinned and registered host memory.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("memory", QUESTIONS);
}

/// Memory of whole pages that the driver has not seen.
fn pages(count: usize) -> usize {
    file_pages(count, libc::PROT_READ | libc::PROT_WRITE)
}

/// Pages of a new file without a name.
fn file_pages(count: usize, protection: i32) -> usize {
    let bytes = count * 4096;
    // SAFETY: a new file, its size, and a new mapping of it at an address of the kernel's choice.
    let memory = unsafe {
        let file = libc::memfd_create(c"probe".as_ptr(), 0);
        libc::ftruncate(file, bytes as i64);
        let anywhere = std::ptr::null_mut();
        libc::mmap(anywhere, bytes, protection, libc::MAP_SHARED, file, 0)
    };
    if memory == libc::MAP_FAILED {
        stop("not asked: mmap failed");
    }
    memory as usize
}

/// The result of asking for the device's address of host memory, and whether it is the same.
fn pointer(host: usize) -> (Code, String) {
    let mut device = 0;
    let code = device_pointer(&mut device, host, 0);
    (code, that("same", device == host as u64))
}

const QUESTIONS: Questions = &[
    ("host_alloc", || {
        for bytes in [0, 1] {
            let mut host = 7;
            let code = mem_host_alloc(&mut host, bytes, 3);
            let (null, page) = (yes(host == 0), yes(host % 4096 == 0));
            let part = format!("bytes_{bytes}");
            line(part, format!("{code}, null: {null}, page: {page}"));
        }
        line("most", mem_host_alloc(&mut 0, usize::MAX, 3));
        for flags in [0, 7, 8] {
            line(format!("flags_{flags}"), mem_host_alloc(&mut 0, 64, flags));
        }
        let mut host = 0;
        mem_host_alloc(&mut host, 64, 0);
        line("pointer_without_flag", pointer(host));
    }),
    ("free_host_wrong", || {
        let (words, device) = (Words::new(), alloc(64));
        line("middle", mem_free_host(words.host + 4096));
        line("device", mem_free_host(device as usize));
        line("pageable", mem_free_host(leak(4096)));
        line("as_device", mem_free(words.at(0)));
        line("right", mem_free_host(words.host));
        line("twice", mem_free_host(words.host));
    }),
    ("register", || {
        let memory = pages(8);
        line("nothing", mem_host_register(memory, 0, 3));
        line("null", mem_host_register(0, 4096, 3));
        line("unmapped", mem_host_register(4096, 4096, 3));
        line("unaligned", mem_host_register(memory + 8, 64, 3));
        line("unaligned_pointer", pointer(memory + 8));
        line("start_of_page_pointer", pointer(memory).0);
        line("same_page", mem_host_register(memory + 1024, 64, 3));
        line("unregister", mem_host_unregister(memory + 8));
        line("unregister_second", mem_host_unregister(memory + 1024));
        line("aligned", mem_host_register(memory, 8192, 3));
        line("twice", mem_host_register(memory, 8192, 3));
        line("part", mem_host_register(memory + 4096, 4096, 3));
        line("overlap", mem_host_register(memory + 4096, 8192, 3));
        line("unregister_middle", mem_host_unregister(memory + 4096));
        line("unregister_start", mem_host_unregister(memory));
        line("unregister_twice", mem_host_unregister(memory));
    }),
    ("register_flags", || {
        for flags in [0, 3, 4, 8, 16] {
            let memory = pages(1);
            let code = mem_host_register(memory, 4096, flags);
            line(flags, [code, pointer(memory).0]);
        }
    }),
    ("register_file", || {
        let (memory, stream) = (pages(4), stream());
        line("register", mem_host_register(memory, 16384, 3));
        line("pointer", pointer(memory));
        let place = memory as u64 + 8;
        line("write", done(write_value64(stream, place, 9, 0), stream));
        line("unregister", mem_host_unregister(memory));
        line("write_after", write_value64(stream, place, 9, 0));
    }),
    ("register_read_only", || {
        let memory = file_pages(4, libc::PROT_READ);
        line("plain", mem_host_register(memory, 16384, 3));
        line("read_only", mem_host_register(memory, 16384, 11));
    }),
    ("registered_of_alloc", || {
        let words = Words::new();
        line("register", mem_host_register(words.host, 4096, 3));
        line("unregister", mem_host_unregister(words.host));
        let memory = pages(1);
        mem_host_register(memory, 4096, 3);
        line("free", mem_free_host(memory));
    }),
    ("unregister_unknown", || {
        answer([pages(1), 0].map(mem_host_unregister))
    }),
    ("pointer_middle", || {
        let words = Words::new();
        line("middle", pointer(words.host + 4096));
        line("flags_1", device_pointer(&mut 0, words.host, 1));
    }),
];
