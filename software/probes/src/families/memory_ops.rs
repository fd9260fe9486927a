//! Stream memory operations: waits for memory and writes to it.

use crate::cuda::{MemOp, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, Words, alloc, context, mark, marked, marked_early, name, names, op, outcome, park,
    pause, stream, wait_op, within, write_op, yes,
};

pub(crate) fn list() -> Vec<Probe> {
    let mut list = family!["memory_ops"; wait_flags, write_flags, write_width, batch_counts,
        batch_order, batch_partly_wrong, batch_kinds, batch_flags, misaligned, unregistered, unknown_address,
        device_memory, past_end, null_streams, freed_while_waiting, wait_sees_device_write, wait_sees_kernel,
        wait_not_missed];
    for (flag, flags) in FLAGS {
        list.push(Probe::new(format!("memory_ops.compare_64.{flag}"), || {
            compare_64(*flags)
        }));
        list.push(Probe::new(format!("memory_ops.compare_32.{flag}"), || {
            compare_32(*flags)
        }));
    }
    list
}

/// What a stream does that waits for `value` while the word is `is`.
fn waits(bits: u32, is: u64, value: u64, flags: u32) -> Answer {
    let (stream, words) = (stream()?, Words::new()?);
    words.store(0, is);
    let code = if bits == 64 {
        cu().stream_wait_value64(stream, words.at(0), value, flags)
    } else {
        cu().stream_wait_value32(stream, words.at(0), value as u32, flags)
    };
    if code != 0 {
        return Ok(name(code));
    }
    let free = within(200, || cu().stream_query(stream) == 0);
    // Opens it, whatever it waits for.
    let opened = [value, value | is, !is, 0].into_iter().any(|value| {
        words.store(0, value);
        within(200, || cu().stream_query(stream) == 0)
    });
    let rest = if opened { "" } else { ", cannot be opened" };
    Ok(format!("{}{rest}", if free { "goes on" } else { "waits" }))
}

const FLAGS: &[(&str, u32)] = &[("geq", 0), ("eq", 1), ("and", 2), ("nor", 3)];

fn compare_64(flags: u32) -> Answer {
    context()?;
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
        line(case, waits(64, is, value, flags)?);
    }
    Ok(String::new())
}

fn compare_32(flags: u32) -> Answer {
    context()?;
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
        line(case, waits(32, is, value, flags)?);
    }
    Ok(String::new())
}

/// Each flag value, with a word that satisfies the wait.
fn wait_flags() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    words.store(0, 1);
    for flags in [4, 5, 8, 16, 1 << 29, 1 << 30, (1 << 30) | 1, 1 << 31] {
        line(
            format!("64_{flags:#x}"),
            name(cu().stream_wait_value64(stream, words.at(0), 1, flags)),
        );
        line(
            format!("32_{flags:#x}"),
            name(cu().stream_wait_value32(stream, words.at(0), 1, flags)),
        );
    }
    line("then", name(outcome(stream)));
    Ok(String::new())
}

fn write_flags() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    for flags in [0, 1, 2, 3, 4, 1 << 30, 1 << 31] {
        line(
            format!("64_{flags:#x}"),
            name(cu().stream_write_value64(stream, words.at(0), 1, flags)),
        );
        line(
            format!("32_{flags:#x}"),
            name(cu().stream_write_value32(stream, words.at(0), 1, flags)),
        );
    }
    line("then", name(outcome(stream)));
    Ok(String::new())
}

/// A write of 32 bits leaves the other half.
fn write_width() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    words.store(0, u64::MAX);
    let codes = [
        cu().stream_write_value32(stream, words.at(0), 5, 0),
        cu().stream_synchronize(stream),
    ];
    Ok(format!("{} {:016x}", names(&codes), words.load(0)))
}

fn batch(stream: usize, ops: &[MemOp], flags: u32) -> u32 {
    cu().stream_batch_mem_op(stream, ops.len() as u32, ops.as_ptr() as usize, flags)
}

fn batch_counts() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    for count in [0, 1, 2, 255, 256, 257, 1000] {
        let ops: Vec<_> = (0..count).map(|_| write_op(words.at(0), 1, 0)).collect();
        line(count, names(&[batch(stream, &ops, 0), outcome(stream)]));
    }
    line("null", name(cu().stream_batch_mem_op(stream, 1, 0, 0)));
    line("null_0", name(cu().stream_batch_mem_op(stream, 0, 0, 0)));
    Ok(String::new())
}

/// A write in front of a wait in one batch is done before the wait is over.
fn batch_order() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    let ops = [
        write_op(words.at(1), 1, 0),
        wait_op(words.at(0), 1, 0),
        write_op(words.at(2), 1, 0),
    ];
    line("code", name(batch(stream, &ops, 0)));
    line("write_in_front", yes(marked_early(words, 1)));
    line("write_behind", yes(marked_early(words, 2)));
    words.store(0, 1);
    line("then", name(outcome(stream)));
    let ops = [write_op(words.at(5), 1, 0), wait_op(words.at(5), 1, 0)];
    line(
        "own_write",
        names(&[batch(stream, &ops, 0), outcome(stream)]),
    );
    Ok(String::new())
}

/// One of two operations is wrong.
fn batch_partly_wrong() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    let ops = [write_op(words.at(1), 1, 0), write_op(16, 1, 0)];
    line("code", name(batch(stream, &ops, 0)));
    line("then", name(outcome(stream)));
    line("first_done", yes(words.load(1) == 1));
    Ok(String::new())
}

fn batch_kinds() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    for kind in 0..=9 {
        line(
            kind,
            names(&[
                batch(stream, &[op(kind, words.at(0), 0, 0)], 0),
                outcome(stream),
            ]),
        );
    }
    Ok(String::new())
}

fn batch_flags() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    let ops = [write_op(words.at(0), 1, 0)];
    Ok(names(&[
        batch(stream, &ops, 1),
        batch(stream, &ops, 2),
        batch(stream, &ops, u32::MAX),
    ]))
}

fn misaligned() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    for offset in [1, 2, 4] {
        let address = words.at(0) + offset;
        line(
            format!("write_64_{offset}"),
            name(cu().stream_write_value64(stream, address, 1, 0)),
        );
        line(
            format!("wait_64_{offset}"),
            name(cu().stream_wait_value64(stream, address, 0, 0)),
        );
        line(
            format!("write_32_{offset}"),
            name(cu().stream_write_value32(stream, address, 1, 0)),
        );
        line(
            format!("wait_32_{offset}"),
            name(cu().stream_wait_value32(stream, address, 0, 0)),
        );
    }
    line("then", name(outcome(stream)));
    Ok(String::new())
}

fn unregistered() -> Answer {
    context()?;
    let stream = stream()?;
    let host = Box::leak(Box::new([0_u64; 8])).as_ptr() as u64;
    line("write", name(cu().stream_write_value64(stream, host, 1, 0)));
    line("wait", name(cu().stream_wait_value64(stream, host, 0, 0)));
    line("batch", name(batch(stream, &[write_op(host, 1, 0)], 0)));
    line("then", name(outcome(stream)));
    Ok(String::new())
}

fn unknown_address() -> Answer {
    context()?;
    let stream = stream()?;
    for address in [0, 16, 1 << 46] {
        line(
            format!("write_{address}"),
            name(cu().stream_write_value64(stream, address, 1, 0)),
        );
        line(
            format!("wait_{address}"),
            name(cu().stream_wait_value64(stream, address, 0, 0)),
        );
    }
    line("then", name(outcome(stream)));
    Ok(String::new())
}

fn device_memory() -> Answer {
    context()?;
    let (stream, memory, mut value) = (stream()?, alloc(4096)?, 0_u64);
    line(
        "write",
        name(cu().stream_write_value64(stream, memory, 7, 0)),
    );
    line("wait", name(cu().stream_wait_value64(stream, memory, 7, 0)));
    line("then", name(outcome(stream)));
    let _ = cu().memcpy_dtoh(&raw mut value as usize, memory, 8);
    line("value", value);
    Ok(String::new())
}

fn past_end() -> Answer {
    context()?;
    let (stream, memory, words) = (stream()?, alloc(4096)?, Words::new()?);
    line(
        "device",
        name(cu().stream_write_value64(stream, memory + 4096, 7, 0)),
    );
    line(
        "pinned",
        name(cu().stream_write_value64(stream, words.at(Words::COUNT), 7, 0)),
    );
    line("then", name(outcome(stream)));
    let _ = cu().mem_free(memory);
    line(
        "freed",
        name(cu().stream_write_value64(stream, memory, 7, 0)),
    );
    line("then_freed", name(outcome(stream)));
    Ok(String::new())
}

fn null_streams() -> Answer {
    context()?;
    let words = Words::new()?;
    for stream in [0, 1, 2] {
        line(
            stream,
            names(&[
                cu().stream_write_value64(stream, words.at(stream), 1, 0),
                cu().stream_wait_value64(stream, words.at(stream), 1, 0),
                cu().stream_synchronize(stream),
            ]),
        );
    }
    Ok(String::new())
}

/// Pinned memory is freed while a stream waits for it.
fn freed_while_waiting() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    park(stream, words, 0)?;
    let opener = std::thread::spawn(move || {
        pause(1000);
        if cu().stream_query(stream) == 600 {
            words.store(0, 1);
        }
    });
    let start = std::time::Instant::now();
    let code = cu().mem_free_host(words.host);
    let early = start.elapsed().as_millis() < 500;
    let _ = opener.join();
    Ok(format!(
        "{}, returns while the stream waits: {}",
        name(code),
        yes(early)
    ))
}

fn wait_sees_device_write() -> Answer {
    context()?;
    let (waiter, writer, words) = (stream()?, stream()?, Words::new()?);
    park(waiter, words, 0)?;
    mark(waiter, words, 1)?;
    let early = marked_early(words, 1);
    mark(writer, words, 0)?;
    Ok(format!(
        "before: {}, after: {}",
        yes(early),
        yes(marked(words, 1))
    ))
}

fn wait_sees_kernel() -> Answer {
    context()?;
    let put = crate::kit::kernel(c"put")?;
    let (waiter, writer, memory, words) = (stream()?, stream()?, alloc(64)?, Words::new()?);
    let codes = [
        cu().memset_d32_async(memory, 0, 2, writer),
        cu().stream_synchronize(writer),
        cu().stream_wait_value64(waiter, memory, 1, 0),
    ];
    mark(waiter, words, 1)?;
    let early = marked_early(words, 1);
    let code = crate::kit::launch(put, writer, &[memory, 1]);
    let after = yes(marked(words, 1));
    Ok(format!(
        "{} {}, before: {}, after: {after}",
        names(&codes),
        name(code),
        yes(early)
    ))
}

/// The word is right only for a moment.
fn wait_not_missed() -> Answer {
    context()?;
    let (waiter, words) = (stream()?, Words::new()?);
    let code = cu().stream_wait_value64(waiter, words.at(0), 5, 1);
    mark(waiter, words, 1)?;
    let _ = marked_early(words, 1);
    for _ in 0..1000 {
        words.store(0, 5);
        words.store(0, 6);
    }
    let passed = marked_early(words, 1);
    words.store(0, 5);
    Ok(format!("~{} {}", name(code), yes(passed)))
}
