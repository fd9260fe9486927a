//! Memory: allocation, copies outside of it, registered host memory.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn list(all: &mut Probes) {
    all.family("memory", QUESTIONS);
}

/// Whether a copy behind a wait returns before the wait ends.
fn behind_wait(own: Handle, copy: impl Fn(Handle) -> Code + Sync) -> String {
    let (stream, gate) = (stream(), Words::new());
    park(stream, gate, 0);
    let returned = AtomicBool::new(false);
    let (early, code) = std::thread::scope(|scope| {
        let copy = scope.spawn(|| {
            ctx_set_current(own);
            let code = copy(stream);
            returned.store(true, Ordering::SeqCst);
            code
        });
        let early = within(300, || returned.load(Ordering::SeqCst));
        gate.store(0, 1);
        (
            early,
            need(copy.join().map_err(|_| "a thread has panicked".into())),
        )
    });
    let early = if early { "returns" } else { "blocks" };
    format!("{early}, {code} {}", outcome(stream))
}

const QUESTIONS: Questions = &[
    ("alloc_sizes", || {
        for (what, bytes) in [
            ("0", 0),
            ("1", 1),
            ("2_to_40", 1 << 40),
            ("2_to_50", 1 << 50),
            ("most", usize::MAX),
        ] {
            let mut pointer = 7;
            let code = mem_alloc(&mut pointer, bytes);
            let result = match pointer {
                0 => "null",
                7 => "kept",
                _ => "set",
            };
            line(what, format!("{code}, result {result}"));
        }
        line("after", mem_alloc(&mut 0, 64));
    }),
    ("alignment", || {
        let pointers = [alloc(1), alloc(1), alloc(100), alloc(4096), alloc(3 << 20)];
        answer(
            pointers
                .map(|pointer| (pointer & pointer.wrapping_neg()).min(512).to_string())
                .join(" "),
        );
    }),
    ("distance", || {
        let (first, second, third) = (alloc(1), alloc(1), alloc(1));
        answer(format!(
            "~{} {}",
            second.wrapping_sub(first).cast_signed(),
            third.wrapping_sub(second).cast_signed()
        ));
    }),
    ("free_null", || answer([mem_free(0), mem_free_host(0)])),
    ("free_middle", || {
        let pointer = alloc(4096);
        answer([
            mem_free(pointer + 256),
            mem_free(pointer + 8),
            mem_free(pointer),
        ]);
    }),
    ("free_twice", || {
        let pointer = alloc(4096);
        answer([mem_free(pointer), mem_free(pointer), mem_free(16)]);
    }),
    // Copies past the end of 4096 bytes that are one allocation.
    ("copy_out", || {
        let (memory, host) = (alloc(4096), leak(1 << 26));
        line("within", memcpy_dtoh(host, memory, 4096));
        line("one_more", memcpy_dtoh(host, memory, 4097));
        line("2_mib", memcpy_dtoh(host, memory, 2 << 20));
        line("64_mib", memcpy_dtoh(host, memory, 1 << 26));
        line("address_16", memcpy_dtoh(host, 16, 8));
        line("before", memcpy_dtoh(host, memory - 8, 16));
        line("context", ctx_synchronize());
    }),
    ("copy_past_end", || {
        let (memory, host) = (alloc(4096), leak(8192));
        line("htod_one_more", memcpy_htod(memory, host, 4097));
        line("htod_at_end", memcpy_htod(memory + 4096, host, 8));
        line("htod_address_16", memcpy_htod(16, host, 8));
        let big = alloc(2 << 20);
        line(
            "htod_big_one_more",
            memcpy_htod(big + (2 << 20) - 8, host, 9),
        );
        line("htod_big_at_end", memcpy_htod(big + (2 << 20), host, 8));
        line("context", ctx_synchronize());
    }),
    ("copy_into_freed", || {
        let (memory, host) = (alloc(4096), leak(8192));
        mem_free(memory);
        let codes = [
            memcpy_htod(memory, host, 8),
            memcpy_dtoh(host, memory, 8),
            ctx_synchronize(),
        ];
        line("small", codes);
        let memory = alloc(64 << 20);
        mem_free(memory);
        let codes = [
            memcpy_htod(memory, host, 8),
            memcpy_dtoh(host, memory, 8),
            ctx_synchronize(),
        ];
        line("large", codes);
    }),
    ("copy_null", || {
        let (memory, host) = (alloc(64), leak(64));
        line("dtoh_from_null", memcpy_dtoh(host, 0, 8));
        line("htod_to_null", memcpy_htod(0, host, 8));
        line("dtoh_to_null", memcpy_dtoh(0, memory, 8));
        line("htod_from_null", memcpy_htod(memory, 0, 8));
    }),
    ("copy_nothing", || {
        let (memory, host, stream) = (alloc(64), leak(64), stream());
        line("dtoh", memcpy_dtoh(host, memory, 0));
        line("dtoh_unknown", memcpy_dtoh(host, 16, 0));
        line("htod_null", memcpy_htod(0, 0, 0));
        line("dtod", memcpy_dtod_async(memory, memory, 0, stream));
        line("memset", memset_d32_async(memory, 0, 0, stream));
        line("memset_null", memset_d32_async(0, 0, 0, stream));
    }),
    ("memset_past_end", || {
        let (memory, stream) = (alloc(4096), stream());
        line(
            "one_word",
            [
                memset_d32_async(memory, 1, 1025, stream),
                stream_synchronize(stream),
            ],
        );
        line(
            "at_end",
            [
                memset_d32_async(memory + 4096, 1, 1, stream),
                stream_synchronize(stream),
            ],
        );
        line(
            "64_mib",
            [
                memset_d32_async(memory, 1, 1 << 24, stream),
                stream_synchronize(stream),
            ],
        );
        line(
            "address_16",
            [
                memset_d32_async(16, 1, 1, stream),
                stream_synchronize(stream),
            ],
        );
        mem_free(memory);
        line(
            "freed",
            [
                memset_d32_async(memory, 1, 1, stream),
                stream_synchronize(stream),
            ],
        );
    }),
    ("memset_misaligned", || {
        let (memory, stream) = (alloc(4096), stream());
        for offset in 1..4 {
            line(
                format!("d32_{offset}"),
                done(memset_d32_async(memory + offset, 1, 1, stream), stream),
            );
        }
    }),
    ("memset_null", || {
        let stream = stream();
        answer([
            memset_d32_async(0, 1, 1, stream),
            stream_synchronize(stream),
        ]);
    }),
    ("copy_device_unknown", || {
        let (memory, stream) = (alloc(4096), stream());
        line(
            "from_16",
            done(memcpy_dtod_async(memory, 16, 8, stream), stream),
        );
        line(
            "to_16",
            done(memcpy_dtod_async(16, memory, 8, stream), stream),
        );
        line("both", done(memcpy_dtod_async(16, 32, 8, stream), stream));
        line(
            "past_end",
            done(memcpy_dtod_async(memory, memory + 4000, 97, stream), stream),
        );
    }),
    ("copy_device_overlap", || {
        let (memory, stream) = (alloc(4096), stream());
        answer(done(
            memcpy_dtod_async(memory + 8, memory, 64, stream),
            stream,
        ));
    }),
    ("pageable_as_device", || {
        let (host, other, stream) = (leak(4096), leak(4096), stream());
        let memory = alloc(4096);
        line("dtoh_from", memcpy_dtoh(other, host as u64, 8));
        line("htod_to", memcpy_htod(host as u64, other, 8));
        line(
            "dtod_from",
            done(memcpy_dtod_async(memory, host as u64, 8, stream), stream),
        );
        line(
            "dtod_to",
            done(memcpy_dtod_async(host as u64, memory, 8, stream), stream),
        );
    }),
    // When an asynchronous copy from pageable memory has read it.
    ("pageable_async", || {
        let (host, stream, words, memory) = (leak(4096), stream(), Words::new(), alloc(4096));
        park(stream, words, 0);
        // SAFETY: leaked memory of this function. Whether the driver reads it at the same time is
        // the question.
        let write = |value: u64| unsafe { (host as *mut u64).write_volatile(value) };
        write(1);
        let opener = words.open_after(1000);
        let code = memcpy_htod_async(memory, host, 8, stream);
        let early = words.load(0) == 0;
        write(2);
        let _ = opener.join();
        stream_synchronize(stream);
        let mut value = 0_u64;
        memcpy_dtoh(&raw mut value as usize, memory, 8);
        answer(format!(
            "{code}, returns while parked: {}, copied: {value}",
            yes(early)
        ));
    }),
    ("pinned_as_device", || {
        let (words, stream) = (Words::new(), stream());
        line("same_address", words.at(0) == words.host as u64);
        line(
            "memset",
            done(memset_d32_async(words.host as u64, 5, 1, stream), stream),
        );
        line("value", words.load(0));
        line(
            "write_value",
            done(write_value64(stream, words.host as u64 + 8, 6, 0), stream),
        );
        line(
            "past_end",
            done(
                memset_d32_async(words.at(Words::COUNT) - 4, 5, 2, stream),
                stream,
            ),
        );
    }),
    ("pinned_copy", || {
        let (words, mut value) = (Words::new(), 0_u64);
        words.store(3, 77);
        let code = memcpy_dtoh(&raw mut value as usize, words.at(3), 8);
        line("dtoh", format!("{code} {value}"));
        value = 78;
        let code = memcpy_htod(words.at(4), &raw mut value as usize, 8);
        line("htod", format!("{code} {}", words.load(4)));
    }),
    ("device_as_host", || {
        let (first, second) = (alloc(64), alloc(64));
        line("dtoh", memcpy_dtoh(first as usize, second, 8));
        line("htod", memcpy_htod(first, second as usize, 8));
        line("pointer", device_pointer(&mut 0, first as usize, 0));
        line("register", mem_host_register(first as usize, 64, 3));
    }),
    // The host reads device memory.
    ("host_access", || {
        let memory = alloc(4096);
        // SAFETY: it is the question whether this ends the process.
        let _ = unsafe { (memory as *const u64).read_volatile() };
        answer("can be read");
    }),
    ("memset_pageable", || {
        let (host, stream) = (leak(4096), stream());
        answer(done(memset_d32_async(host as u64, 1, 1, stream), stream));
    }),
    ("memset_d8", || {
        let (memory, stream, mut value) = (alloc(4096), stream(), 0_u64);
        memset_d8_async(memory, 1, 8, stream);
        let codes = [
            memset_d8_async(memory + 1, 0xab, 3, stream),
            stream_synchronize(stream),
        ];
        memcpy_dtoh(&raw mut value as usize, memory, 8);
        answer(format!("{} {value:016x}", names(&codes)));
    }),
    ("freed_while_used", || {
        let (memory, stream, words) = (alloc(4096), stream(), Words::new());
        module();
        park(stream, words, 0);
        memset_d32_async(memory, 1, 1, stream);
        let opener = words.open_after(1000);
        let code = mem_free(memory);
        let early = words.load(0) == 0;
        let _ = opener.join();
        let end = stream_synchronize(stream);
        answer(([code, end], that("returns while parked", early)));
    }),
    ("fresh_contents", || {
        let mut bytes = vec![1_u8; 4096];
        let code = memcpy_dtoh(bytes.as_mut_ptr() as usize, alloc(4096), 4096);
        answer((code, that("zero", bytes.iter().all(|byte| *byte == 0))));
    }),
    // Copies behind a wait, by the places of both sides.
    ("copies_behind_wait", || {
        let own = primary();
        let (pinned, registered) = (Words::new(), Words::registered());
        let places = [
            ("device", alloc(4096)),
            ("pinned", pinned.at(0)),
            ("registered", registered.at(0)),
        ];
        for (from_name, from) in places {
            for (to_name, to) in places {
                let found =
                    behind_wait(own, |stream| memcpy_dtod_async(to + 2048, from, 8, stream));
                line(format!("{from_name}_to_{to_name}"), found);
            }
        }
    }),
    // Copies of boxes between pinned memory behind a wait, by the kind of memory that they name.
    ("host_copies_behind_wait", || {
        let own = primary();
        let (mut from, mut to) = (0, 0);
        const BYTES: usize = 1 << 20;
        check(mem_host_alloc(&mut from, BYTES, 3));
        check(mem_host_alloc(&mut to, BYTES, 3));
        for bytes in [8, BYTES] {
            for kind in [1, 2, 4] {
                let side = |at: usize| CopySide {
                    kind,
                    host: if kind == 1 { at } else { 0 },
                    device: if kind == 1 { 0 } else { at as u64 },
                    pitch: bytes,
                    height: 1,
                    ..CopySide::default()
                };
                let copy = Copy3d {
                    from: side(from),
                    to: side(to),
                    extent: [bytes, 1, 1],
                };
                line(
                    format!("solid_{kind}_{bytes}"),
                    behind_wait(own, |stream| memcpy_3d_async(&copy, stream)),
                );
            }
        }
    }),
];
