//! Pinned and registered host memory.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("memory", QUESTIONS);
}

/// Memory of whole pages that the driver has not seen.
fn pages(count: usize) -> usize {
    let all = libc::PROT_READ | libc::PROT_WRITE;
    mapping(
        count * 4096,
        all,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        -1,
    )
}

fn file_pages(protection: i32) -> usize {
    // SAFETY: a new file without a name.
    let file = unsafe { libc::memfd_create(c"probe".as_ptr(), 0) };
    // SAFETY: a descriptor of this function.
    unsafe { libc::ftruncate(file, 16384) };
    mapping(16384, protection, libc::MAP_SHARED, file)
}

fn mapping(bytes: usize, protection: i32, flags: i32, file: i32) -> usize {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) };
    if memory == libc::MAP_FAILED {
        stop("not asked: mmap failed");
    }
    memory as usize
}

const QUESTIONS: Questions = &[
    ("host_alloc", || {
        for bytes in [0, 1, 64] {
            let mut pointer = 7;
            let code = mem_host_alloc(&mut pointer, bytes, 3);
            let page = yes(pointer % 4096 == 0);
            line(
                format!("bytes_{bytes}"),
                format!("{code}, null: {}, page: {page}", yes(pointer == 0)),
            );
        }
        line("most", mem_host_alloc(&mut 0, usize::MAX, 3));
        for flags in [0, 1, 2, 4, 7, 8, 16] {
            line(format!("flags_{flags}"), mem_host_alloc(&mut 0, 64, flags));
        }
        let mut pointer = 0;
        mem_host_alloc(&mut pointer, 64, 0);
        let mut device = 0;
        let code = device_pointer(&mut device, pointer, 0);
        line(
            "pointer_without_flag",
            (code, that("same", device == pointer as u64)),
        );
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
        let mut device = 0;
        let code = device_pointer(&mut device, memory + 8, 0);
        line(
            "unaligned_pointer",
            (code, that("same", device == memory as u64 + 8)),
        );
        let code = device_pointer(&mut device, memory, 0);
        line("start_of_page_pointer", code);
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
        for flags in [0, 1, 2, 3, 4, 8, 16, 32, 64] {
            let memory = pages(1);
            let code = mem_host_register(memory, 4096, flags);
            let pointer = device_pointer(&mut 0, memory, 0);
            line(flags, [code, pointer]);
        }
    }),
    ("register_file", || {
        let (memory, stream) = (file_pages(libc::PROT_READ | libc::PROT_WRITE), stream());
        line("register", mem_host_register(memory, 16384, 3));
        let mut device = 0;
        let code = device_pointer(&mut device, memory, 0);
        line("pointer", (code, that("same", device == memory as u64)));
        line(
            "write",
            done(write_value64(stream, device + 8, 9, 0), stream),
        );
        // SAFETY: inside the mapping, aligned, and the device has finished.
        line("value", unsafe {
            (memory as *const u64).add(1).read_volatile()
        });
        line("unregister", mem_host_unregister(memory));
        line("write_after", write_value64(stream, device + 8, 9, 0));
    }),
    ("register_read_only", || {
        let memory = file_pages(libc::PROT_READ);
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
        answer([mem_host_unregister(pages(1)), mem_host_unregister(0)])
    }),
    ("pointer_unknown", || {
        let mut pointer = 7;
        let codes = [
            device_pointer(&mut pointer, pages(1), 0),
            device_pointer(&mut pointer, 0, 0),
        ];
        answer(format!(
            "{}, result {}",
            names(&codes),
            if pointer == 7 { "kept" } else { "changed" }
        ));
    }),
    ("pointer_middle", || {
        let (words, mut pointer) = (Words::new(), 0);
        let code = device_pointer(&mut pointer, words.host + 4096, 0);
        line(
            "middle",
            (code, that("same", pointer == words.host as u64 + 4096)),
        );
        let code = device_pointer(&mut pointer, words.host, 1);
        line("flags_1", code);
    }),
];
