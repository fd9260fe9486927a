//! Memory: allocation, copies outside of it, copies that wait.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("memory", QUESTIONS);
}

/// Whether a copy behind a wait returns before the wait ends.
fn behind_wait(copy: impl Fn(Handle) -> Code) -> String {
    let (stream, gate) = (stream(), Words::new());
    park(stream, gate, 0);
    let (code, early) = gate.call_before(300, || copy(stream));
    let early = if early { "returns" } else { "blocks" };
    format!("{early}, {code} {}", outcome(stream))
}

const QUESTIONS: Questions = &[
    ("alloc_sizes", || {
        for (what, bytes) in [("0", 0), ("1", 1), ("2_to_50", 1 << 50)] {
            let mut pointer = 7;
            let code = mem_alloc(&mut pointer, bytes);
            let result = if pointer == 0 { "null" } else { "set" };
            line(what, format!("{code}, result {result}"));
        }
        line("after", mem_alloc(&mut 0, 64));
    }),
    ("alignment", || {
        let pointers = [1, 1, 100, 4096, 3 << 20].map(alloc);
        let lowest = |pointer: u64| pointer & pointer.wrapping_neg();
        let bits = pointers.map(|pointer| lowest(pointer).min(512).to_string());
        answer(bits.join(" "));
    }),
    ("free_null", || answer([mem_free(0), mem_free_host(0)])),
    ("free_twice", || {
        let pointer = alloc(4096);
        answer([pointer, pointer, 16].map(mem_free));
    }),
    // Copies past the end of 4096 bytes that are one allocation.
    ("copy_out", || {
        let (memory, host) = (alloc(4096), leak(8192));
        line("within", memcpy_dtoh(host, memory, 4096));
        line("one_more", memcpy_dtoh(host, memory, 4097));
        line("address_16", memcpy_dtoh(host, 16, 8));
        line("before", memcpy_dtoh(host, memory - 8, 16));
        line("context", ctx_synchronize());
    }),
    ("copy_into_freed", || {
        let (memory, host) = (alloc(4096), leak(8192));
        mem_free(memory);
        let codes = [store(memory, 0), memcpy_dtoh(host, memory, 8)];
        line("small", [codes[0], codes[1], ctx_synchronize()]);
    }),
    ("copy_null", || {
        let (memory, host) = (alloc(64), leak(64));
        line("dtoh_from_null", memcpy_dtoh(host, 0, 8));
        line("dtoh_to_null", memcpy_dtoh(0, memory, 8));
        line("htod_from_null", memcpy_htod(memory, 0, 8));
    }),
    ("copy_nothing", || {
        line("dtoh_unknown", memcpy_dtoh(leak(64), 16, 0));
        line("htod_null", memcpy_htod(0, 0, 0));
        line("memset_null", memset_d32_async(0, 0, 0, stream()));
    }),
    ("memset_past_end", || {
        let (memory, stream) = (alloc(4096), stream());
        let set = |words| memset_d32_async(memory, 1, words, stream);
        line("one_word", done(set(1025), stream));
        mem_free(memory);
        line("freed", done(set(1), stream));
    }),
    ("memset_misaligned", || {
        let (memory, stream) = (alloc(4096), stream());
        for offset in 1..=2 {
            let code = fill(memory + offset, stream);
            line(format!("d32_{offset}"), done(code, stream));
        }
    }),
    ("copy_device_unknown", || {
        let (memory, stream) = (alloc(4096), stream());
        let copy = |to, from| done(memcpy_dtod_async(to, from, 97, stream), stream);
        line("from_16", copy(memory, 16));
        line("to_16", copy(16, memory));
        line("past_end", copy(memory, memory + 4000));
    }),
    ("pageable_as_device", || {
        let (host, stream, memory) = (leak(4096) as u64, stream(), alloc(4096));
        line("dtoh_from", read(host).0);
        line("htod_to", store(host, 0));
        let copy = memcpy_dtod_async(memory, host, 8, stream);
        line("dtod_from", done(copy, stream));
    }),
    // When an asynchronous copy from pageable memory has read it.
    ("pageable_async", || {
        let (host, stream, words, memory) = (leak(4096), stream(), Words::new(), alloc(4096));
        park(stream, words, 0);
        // SAFETY: leaked memory of this function. Whether the driver reads it at the same time is
        // the question.
        let write = |value: u64| unsafe { (host as *mut u64).write_volatile(value) };
        write(1);
        let (code, early) = words.call_before(1000, || {
            let code = memcpy_htod_async(memory, host, 8, stream);
            write(2);
            code
        });
        stream_synchronize(stream);
        let (early, value) = (yes(early), read(memory).1);
        answer(format!(
            "{code}, returns while parked: {early}, copied: {value}"
        ));
    }),
    ("pinned_as_device", || {
        let (words, stream) = (Words::new(), stream());
        let host = words.host as u64;
        line("same_address", words.at(0) == host);
        let set = memset_d32_async(host, 5, 1, stream);
        line("memset", done(set, stream));
        line("value", words.load(0));
        let past = memset_d32_async(words.at(Words::COUNT) - 4, 5, 2, stream);
        line("past_end", done(past, stream));
    }),
    // The host reads device memory.
    ("host_access", || {
        let memory = alloc(4096);
        // SAFETY: it is the question whether this ends the process.
        let _ = unsafe { (memory as *const u64).read_volatile() };
        answer("can be read");
    }),
    ("memset_d8", || {
        let (memory, stream) = (alloc(4096), stream());
        memset_d8_async(memory, 1, 8, stream);
        let set = memset_d8_async(memory + 1, 0xab, 3, stream);
        let codes = names(&done(set, stream));
        answer(format!("{codes} {:016x}", read(memory).1));
    }),
    ("freed_while_used", || {
        let (memory, stream, words) = (alloc(4096), stream(), Words::new());
        module();
        park(stream, words, 0);
        fill(memory, stream);
        let (code, early) = words.call_before(1000, || mem_free(memory));
        let end = stream_synchronize(stream);
        answer(([code, end], that("returns while parked", early)));
    }),
    // Copies behind a wait, by the places of both sides.
    ("copies_behind_wait", || {
        let (pinned, registered) = (Words::new(), Words::registered());
        let places = [
            ("device", alloc(4096)),
            ("pinned", pinned.at(0)),
            ("registered", registered.at(0)),
        ];
        for (from_name, from) in places {
            for (to_name, to) in places {
                let copy = |stream| memcpy_dtod_async(to + 2048, from, 8, stream);
                line(format!("{from_name}_to_{to_name}"), behind_wait(copy));
            }
        }
    }),
    // Copies of boxes between pinned memory behind a wait, by the kind of memory that they name.
    ("host_copies_behind_wait", || {
        let (from, to) = (Words::new().host, Words::new().host);
        for kind in [1, 2, 4] {
            let side = |at: usize| CopySide {
                kind,
                host: if kind == 1 { at } else { 0 },
                device: if kind == 1 { 0 } else { at as u64 },
                pitch: 8,
                height: 1,
                ..CopySide::default()
            };
            let copy = Copy3d {
                from: side(from),
                to: side(to),
                extent: [8, 1, 1],
            };
            let found = behind_wait(|stream| memcpy_3d_async(&copy, stream));
            line(format!("solid_{kind}_8"), found);
        }
    }),
];
