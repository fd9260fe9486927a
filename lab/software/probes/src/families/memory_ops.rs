//! Stream memory operations: waits for memory and writes to it.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("memory_ops", QUESTIONS);
    const FLAGS: Table<u32> = &[("geq", 0), ("eq", 1), ("and", 2), ("nor", 3)];
    all.each("memory_ops.compare_64", FLAGS, |flags| {
        for (case, is, value) in WORDS_64 {
            line(case, waits(wait_value64, *is, *value, flags));
        }
    });
    all.each("memory_ops.compare_32", FLAGS, |flags| {
        for (case, is, value) in WORDS_32 {
            line(case, waits(wait_32, *is, *value, flags));
        }
    });
}

/// What the word is, and which value is waited for.
type Case = (&'static str, u64, u64);

const WORDS_64: &[Case] = &[
    ("0_for_0", 0, 0),
    ("0_for_1", 0, 1),
    ("2_for_1", 2, 1),
    ("max_for_1", u64::MAX, 1),
    ("1_for_max", 1, u64::MAX),
    ("half_for_0", 1 << 63, 0),
    ("half_less_1_for_0", (1 << 63) - 1, 0),
    ("low_for_high_word", 5, 1 << 32),
];

const WORDS_32: &[Case] = &[
    ("2_for_1", 2, 1),
    ("max_for_1", 0xffff_ffff, 1),
    ("half_for_0", 1 << 31, 0),
    ("half_less_1_for_0", (1 << 31) - 1, 0),
    ("high_word_only", 1 << 32, 1),
];

/// A wait or a write.
type Op = fn(Handle, u64, u64, u32) -> Code;

const OPS: Table<Op> = &[
    ("write_64", write_value64),
    ("wait_64", wait_value64),
    ("write_32", write_32),
    ("wait_32", wait_32),
];

fn wait_32(stream: Handle, address: u64, value: u64, flags: u32) -> Code {
    wait_value32(stream, address, value as u32, flags)
}

fn write_32(stream: Handle, address: u64, value: u64, flags: u32) -> Code {
    write_value32(stream, address, value as u32, flags)
}

/// What a stream does that waits for `value` while the word is `is`.
fn waits(wait: Op, is: u64, value: u64, flags: u32) -> String {
    let (stream, words) = (stream(), Words::new());
    words.store(0, is);
    check(wait(stream, words.at(0), value, flags));
    let free = || within(200, || stream_query(stream) == 0);
    let goes_on = if free() { "goes on" } else { "waits" };
    // Opens it, whatever it waits for.
    let opened = [value, value | is, !is, 0].into_iter().any(|value| {
        words.store(0, value);
        free()
    });
    let rest = if opened { "" } else { ", cannot be opened" };
    format!("{goes_on}{rest}")
}

/// The results of operations of both widths with each of these flags.
fn flags([wide, narrow]: [Op; 2], all: &[u32]) {
    let (stream, words) = (stream(), Words::new());
    words.store(0, 1);
    for flags in all {
        for (bits, call) in [(64, wide), (32, narrow)] {
            let code = call(stream, words.at(0), 1, *flags);
            line(format!("{bits}_{flags:#x}"), code);
        }
    }
    line("then", outcome(stream));
}

const QUESTIONS: Questions = &[
    // With a word that satisfies the wait.
    ("wait_flags", || {
        flags([wait_value64, wait_32], &[4, 1 << 30, 1 << 31])
    }),
    ("write_flags", || {
        flags([write_value64, write_32], &[0, 1, 2, 1 << 30])
    }),
    // A write of 32 bits leaves the other half.
    ("write_width", || {
        let (stream, words) = (stream(), Words::new());
        words.store(0, u64::MAX);
        let codes = done(write_32(stream, words.at(0), 5, 0), stream);
        answer(format!("{} {:016x}", names(&codes), words.load(0)));
    }),
    ("batch_counts", || {
        let (stream, words) = (stream(), Words::new());
        for count in [0, 1, 255, 256] {
            let ops = vec![write_op(words.at(0), 1, 0); count];
            line(count, ended(batch(stream, &ops, 0), stream));
        }
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
        for kind in 0..=7 {
            let code = batch(stream, &[op(kind, words.at(0), 0, 0)], 0);
            line(kind, ended(code, stream));
        }
    }),
    ("batch_flags", || {
        let (stream, words) = (stream(), Words::new());
        let ops = [write_op(words.at(0), 1, 0)];
        answer([1, 2, u32::MAX].map(|flags| batch(stream, &ops, flags)));
    }),
    ("misaligned", || {
        let (stream, words) = (stream(), Words::new());
        for offset in [2, 4] {
            for (name, call) in OPS {
                let code = call(stream, words.at(0) + offset, 0, 0);
                line(format!("{name}_{offset}"), code);
            }
        }
        line("then", outcome(stream));
    }),
    ("unregistered", || {
        let (stream, host) = (stream(), leak(64) as u64);
        line("write", write_value64(stream, host, 1, 0));
        line("wait", wait_value64(stream, host, 0, 0));
        line("batch", batch(stream, &[write_op(host, 1, 0)], 0));
        line("then", outcome(stream));
    }),
    ("past_end", || {
        let (stream, memory, words) = (stream(), alloc(4096), Words::new());
        let write = |address| write_value64(stream, address, 7, 0);
        line("device", write(memory + 4096));
        line("pinned", write(words.at(Words::COUNT)));
        mem_free(memory);
        line("freed", write(memory));
        line("then_freed", outcome(stream));
    }),
    ("null_streams", || {
        let words = Words::new();
        for stream in [0, 1, 2] {
            let address = words.at(stream);
            let codes = [
                write_value64(stream, address, 1, 0),
                wait_value64(stream, address, 1, 0),
                stream_synchronize(stream),
            ];
            line(stream, codes);
        }
    }),
    // Pinned memory is freed while a stream waits for it.
    ("freed_while_waiting", || {
        let (stream, words) = (stream(), Words::new());
        park(stream, words, 0);
        let opener = std::thread::spawn(move || {
            pause(1000);
            if stream_query(stream) == NOT_READY {
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
        let early = yes(marked_early(words, 1));
        mark(writer, words, 0);
        let after = yes(marked(words, 1));
        answer(format!("before: {early}, after: {after}"));
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
        let early = yes(marked_early(words, 1));
        let code = launch(put, writer, &[memory, 1]);
        let (codes, after) = (names(&codes), yes(marked(words, 1)));
        answer(format!("{codes} {code}, before: {early}, after: {after}"));
    }),
];
