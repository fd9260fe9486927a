//! Stream memory operations: waits for memory and writes to it.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("memory_ops", QUESTIONS);
    all.each("memory_ops.compare_64", FLAGS, compare_64);
    all.each("memory_ops.compare_32", FLAGS, compare_32);
}

/// What a stream does that waits for `value` while the word is `is`.
fn waits(bits: u32, is: u64, value: u64, flags: u32) -> String {
    let (stream, words) = (stream(), Words::new());
    words.store(0, is);
    let code = if bits == 64 {
        wait_value64(stream, words.at(0), value, flags)
    } else {
        wait_value32(stream, words.at(0), value as u32, flags)
    };
    if code != 0 {
        return code.to_string();
    }
    let free = within(200, || stream_query(stream) == 0);
    // Opens it, whatever it waits for.
    let opened = [value, value | is, !is, 0].into_iter().any(|value| {
        words.store(0, value);
        within(200, || stream_query(stream) == 0)
    });
    let rest = if opened { "" } else { ", cannot be opened" };
    format!("{}{rest}", if free { "goes on" } else { "waits" })
}

const FLAGS: &[(&str, u32)] = &[("geq", 0), ("eq", 1), ("and", 2), ("nor", 3)];

fn compare_64(flags: u32) {
    const HALF: u64 = 1 << 63;
    let cases = [
        ("0_for_0", 0, 0),
        ("0_for_1", 0, 1),
        ("1_for_1", 1, 1),
        ("2_for_1", 2, 1),
        ("max_for_1", u64::MAX, 1),
        ("max_for_0", u64::MAX, 0),
        ("1_for_max", 1, u64::MAX),
        ("0_for_max", 0, u64::MAX),
        ("half_for_0", HALF, 0),
        ("half_less_1_for_0", HALF - 1, 0),
        ("0_for_half", 0, HALF),
        ("0_for_half_more_1", 0, HALF + 1),
        ("high_word_for_low", 1 << 32, 5),
        ("low_for_high_word", 5, 1 << 32),
    ];
    for (case, is, value) in cases {
        line(case, waits(64, is, value, flags));
    }
}

fn compare_32(flags: u32) {
    let cases = [
        ("0_for_1", 0, 1),
        ("2_for_1", 2, 1),
        ("max_for_1", 0xffff_ffff, 1),
        ("1_for_max", 1, 0xffff_ffff),
        ("half_for_0", 1 << 31, 0),
        ("half_less_1_for_0", (1 << 31) - 1, 0),
        ("high_word_only", 1 << 32, 1),
    ];
    for (case, is, value) in cases {
        line(case, waits(32, is, value, flags));
    }
}

const QUESTIONS: Questions = &[
    // Each flag value, with a word that satisfies the wait.
    ("wait_flags", || {
        let (stream, words) = (stream(), Words::new());
        words.store(0, 1);
        for flags in [4, 5, 8, 16, 1 << 29, 1 << 30, (1 << 30) | 1, 1 << 31] {
            line(
                format!("64_{flags:#x}"),
                wait_value64(stream, words.at(0), 1, flags),
            );
            line(
                format!("32_{flags:#x}"),
                wait_value32(stream, words.at(0), 1, flags),
            );
        }
        line("then", outcome(stream));
    }),
    ("write_flags", || {
        let (stream, words) = (stream(), Words::new());
        for flags in [0, 1, 2, 3, 4, 1 << 30, 1 << 31] {
            line(
                format!("64_{flags:#x}"),
                write_value64(stream, words.at(0), 1, flags),
            );
            line(
                format!("32_{flags:#x}"),
                write_value32(stream, words.at(0), 1, flags),
            );
        }
        line("then", outcome(stream));
    }),
    // A write of 32 bits leaves the other half.
    ("write_width", || {
        let (stream, words) = (stream(), Words::new());
        words.store(0, u64::MAX);
        let codes = [
            write_value32(stream, words.at(0), 5, 0),
            stream_synchronize(stream),
        ];
        answer(format!("{} {:016x}", names(&codes), words.load(0)));
    }),
    ("batch_counts", || {
        let (stream, words) = (stream(), Words::new());
        for count in [0, 1, 2, 255, 256, 257, 1000] {
            let ops: Vec<_> = (0..count).map(|_| write_op(words.at(0), 1, 0)).collect();
            line(count, ended(batch(stream, &ops, 0), stream));
        }
        line("null", batch_mem_op(stream, 1, 0, 0));
        line("null_0", batch_mem_op(stream, 0, 0, 0));
    }),
    // A write in front of a wait in one batch is done before the wait is over.
    ("batch_order", || {
        let (stream, words) = (stream(), Words::new());
        let ops = [
            write_op(words.at(1), 1, 0),
            wait_op(words.at(0), 1, 0),
            write_op(words.at(2), 1, 0),
        ];
        line("code", batch(stream, &ops, 0));
        line("write_in_front", marked_early(words, 1));
        line("write_behind", marked_early(words, 2));
        words.store(0, 1);
        line("then", outcome(stream));
        let ops = [write_op(words.at(5), 1, 0), wait_op(words.at(5), 1, 0)];
        line("own_write", ended(batch(stream, &ops, 0), stream));
    }),
    // One of two operations is wrong.
    ("batch_partly_wrong", || {
        let (stream, words) = (stream(), Words::new());
        let ops = [write_op(words.at(1), 1, 0), write_op(16, 1, 0)];
        line("code", batch(stream, &ops, 0));
        line("then", outcome(stream));
        line("first_done", words.load(1) == 1);
    }),
    ("batch_kinds", || {
        let (stream, words) = (stream(), Words::new());
        for kind in 0..=9 {
            line(
                kind,
                ended(batch(stream, &[op(kind, words.at(0), 0, 0)], 0), stream),
            );
        }
    }),
    ("batch_flags", || {
        let (stream, words) = (stream(), Words::new());
        let ops = [write_op(words.at(0), 1, 0)];
        answer([
            batch(stream, &ops, 1),
            batch(stream, &ops, 2),
            batch(stream, &ops, u32::MAX),
        ]);
    }),
    ("misaligned", || {
        let (stream, words) = (stream(), Words::new());
        for offset in [1, 2, 4] {
            let address = words.at(0) + offset;
            line(
                format!("write_64_{offset}"),
                write_value64(stream, address, 1, 0),
            );
            line(
                format!("wait_64_{offset}"),
                wait_value64(stream, address, 0, 0),
            );
            line(
                format!("write_32_{offset}"),
                write_value32(stream, address, 1, 0),
            );
            line(
                format!("wait_32_{offset}"),
                wait_value32(stream, address, 0, 0),
            );
        }
        line("then", outcome(stream));
    }),
    ("unregistered", || {
        let stream = stream();
        let host = leak(64) as u64;
        line("write", write_value64(stream, host, 1, 0));
        line("wait", wait_value64(stream, host, 0, 0));
        line("batch", batch(stream, &[write_op(host, 1, 0)], 0));
        line("then", outcome(stream));
    }),
    ("unknown_address", || {
        let stream = stream();
        for address in [0, 16, 1 << 46] {
            line(
                format!("write_{address}"),
                write_value64(stream, address, 1, 0),
            );
            line(
                format!("wait_{address}"),
                wait_value64(stream, address, 0, 0),
            );
        }
        line("then", outcome(stream));
    }),
    ("device_memory", || {
        let (stream, memory, mut value) = (stream(), alloc(4096), 0_u64);
        line("write", write_value64(stream, memory, 7, 0));
        line("wait", wait_value64(stream, memory, 7, 0));
        line("then", outcome(stream));
        memcpy_dtoh(&raw mut value as usize, memory, 8);
        line("value", value);
    }),
    ("past_end", || {
        let (stream, memory, words) = (stream(), alloc(4096), Words::new());
        line("device", write_value64(stream, memory + 4096, 7, 0));
        line(
            "pinned",
            write_value64(stream, words.at(Words::COUNT), 7, 0),
        );
        line("then", outcome(stream));
        mem_free(memory);
        line("freed", write_value64(stream, memory, 7, 0));
        line("then_freed", outcome(stream));
    }),
    ("null_streams", || {
        let words = Words::new();
        for stream in [0, 1, 2] {
            line(
                stream,
                [
                    write_value64(stream, words.at(stream), 1, 0),
                    wait_value64(stream, words.at(stream), 1, 0),
                    stream_synchronize(stream),
                ],
            );
        }
    }),
    // Pinned memory is freed while a stream waits for it.
    ("freed_while_waiting", || {
        let (stream, words) = (stream(), Words::new());
        park(stream, words, 0);
        let opener = std::thread::spawn(move || {
            pause(1000);
            if stream_query(stream) == 600 {
                words.store(0, 1);
            }
        });
        let start = std::time::Instant::now();
        let code = mem_free_host(words.host);
        let early = start.elapsed().as_millis() < 500;
        let _ = opener.join();
        answer((code, that("returns while the stream waits", early)));
    }),
    ("wait_sees_device_write", || {
        let (waiter, writer, words) = (stream(), stream(), Words::new());
        park(waiter, words, 0);
        mark(waiter, words, 1);
        let early = marked_early(words, 1);
        mark(writer, words, 0);
        answer(format!(
            "before: {}, after: {}",
            yes(early),
            yes(marked(words, 1))
        ));
    }),
    ("wait_sees_kernel", || {
        let put = kernel(c"put");
        let (waiter, writer, memory, words) = (stream(), stream(), alloc(64), Words::new());
        let codes = [
            memset_d32_async(memory, 0, 2, writer),
            stream_synchronize(writer),
            wait_value64(waiter, memory, 1, 0),
        ];
        mark(waiter, words, 1);
        let early = marked_early(words, 1);
        let code = launch(put, writer, &[memory, 1]);
        let after = yes(marked(words, 1));
        answer(format!(
            "{} {code}, before: {}, after: {after}",
            names(&codes),
            yes(early)
        ));
    }),
    // The word is right only for a moment.
    ("wait_not_missed", || {
        let (waiter, words) = (stream(), Words::new());
        let code = wait_value64(waiter, words.at(0), 5, 1);
        mark(waiter, words, 1);
        marked_early(words, 1);
        for _ in 0..1000 {
            words.store(0, 5);
            words.store(0, 6);
        }
        let passed = marked_early(words, 1);
        words.store(0, 5);
        answer(format!("~{code} {}", yes(passed)));
    }),
];
