//! Words of an application that streams wait for: what an address is, and what writes it.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("words", QUESTIONS);
}

/// Registered words, as `Words::new` has pinned ones.
fn unregistered() -> u64 {
    leak(512) as u64
}

/// What the driver says of an address.
fn ask(own: Handle, address: u64) -> String {
    let numbers = [1_u32, 2, 3, 4, 8, 9, 11, 12];
    let mut values = [0_u64; 8];
    let to = values
        .each_mut()
        .map(|value| std::ptr::from_mut(value) as usize);
    let code = pointer_get_attributes(8, numbers.as_ptr() as usize, to.as_ptr() as usize, address);
    let [of, kind, on_device, on_host, managed, device, begin, size] = values;
    let place = |at: u64| match at {
        0 => "none".to_owned(),
        at if at == address => "same".to_owned(),
        _ => "other".to_owned(),
    };
    let of = match of as usize {
        0 => "none",
        of if of == own => "own",
        _ => "other",
    };
    let within = address.wrapping_sub(begin);
    let offset = if begin == 0 {
        "none".into()
    } else {
        within.to_string()
    };
    format!(
        "{code} context {of}, type {kind}, on the device {}, on the host {}, managed {managed}, device {}, offset {offset}, size {size}",
        place(on_device),
        place(on_host),
        device as i32
    )
}

/// A stream waits for a word of one width, which a kernel then writes.
fn written(bits: u32) {
    let put = kernel(if bits == 64 { c"put" } else { c"put_32" });
    let words = Words::new();
    let memory = alloc(64);
    for (what, address) in [("pinned", words.at(0)), ("device", memory)] {
        let (waiter, writer) = (stream(), stream());
        let codes = [
            memset_d32_async(address, 0, 2, writer),
            stream_synchronize(writer),
            if bits == 64 {
                wait_value64(waiter, address, 7, 0)
            } else {
                wait_value32(waiter, address, 7, 0)
            },
        ];
        words.store(1, 0);
        mark(waiter, words, 1);
        let early = marked_early(words, 1);
        let below = launch(put, writer, &[address, 6]);
        let too_early = marked_early(words, 1);
        let code = launch(put, writer, &[address, 9]);
        line(
            what,
            format!(
                "{}, {}, before {}, below {}, after {}",
                names(&codes),
                names(&[below, code]),
                yes(early),
                yes(too_early),
                yes(marked(words, 1))
            ),
        );
    }
}

/// How often the host finds old data behind a new word.
fn stale(write: impl Fn(u64, Words)) -> String {
    const ROUNDS: u64 = 2000;
    let words = Words::new();
    let mut stale = 0;
    for value in 1..=ROUNDS {
        write(value, words);
        if !within(3000, || words.load(512) >= value) {
            return format!("round {value} did not come");
        }
        stale += u64::from(words.load(0) < value);
    }
    format!("{stale} of {ROUNDS}")
}

const QUESTIONS: Questions = &[
    ("pointer", || {
        let own = primary();
        let words = Words::new();
        line("pinned", ask(own, words.at(3)));
        line("registered", ask(own, Words::registered().at(3)));
        let memory = alloc(4096);
        line("device", ask(own, memory + 8));
        line("last_byte", ask(own, memory + 4095));
        mem_free(memory);
        line("freed", ask(own, memory + 8));
        line("unregistered", ask(own, unregistered()));
        line("null", ask(own, 0));
        line("16", ask(own, 16));
        another_context();
        line("pinned_elsewhere", ask(own, words.at(3)));
        let theirs = alloc(4096);
        current(own);
        line("device_elsewhere", ask(own, theirs + 8));
    }),
    ("pointer_calls", || {
        let own = primary();
        let (words, mut value) = (Words::new(), 0_u64);
        let to = [&raw mut value as usize];
        let call = |number: u32, to: usize| {
            let numbers = [number];
            pointer_get_attributes(1, numbers.as_ptr() as usize, to, words.at(0))
        };
        line("unknown_attribute", call(9999, to.as_ptr() as usize));
        line("null_place", call(2, [0_usize].as_ptr() as usize));
        current(0);
        line("no_context", call(2, to.as_ptr() as usize));
        line("no_context_device_pointer", call(3, to.as_ptr() as usize));
        current(own);
        answer(format!("type {value}"));
    }),
    // Waits and writes of 32 bits across the largest value, in device memory.
    ("wrap_in_device_memory", || {
        let (waiter, writer, words) = (stream(), stream(), Words::new());
        let (memory, put) = (alloc(64), kernel(c"put_32"));
        let codes = [
            write_value32(writer, memory, 0xffff_fffe, 0),
            stream_synchronize(writer),
            wait_value32(waiter, memory, 1, 0),
        ];
        mark(waiter, words, 0);
        let early = marked_early(words, 0);
        let code = launch(put, writer, &[memory, 2]);
        let mut shown = 0_u64;
        let after = yes(marked(words, 0));
        memcpy_dtoh(&raw mut shown as usize, memory, 4);
        answer(format!(
            "{} {code}, before {}, after {after}, shows {shown}",
            names(&codes),
            yes(early)
        ));
    }),
    // A kernel with a fence of the system's scope between the data and the word.
    ("read_after_kernel", || {
        let (put, stream) = (kernel(c"put_both"), stream());
        answer(stale(|value, words| {
            check(launch(put, stream, &[words.at(0), words.at(512), value]));
        }));
    }),
    // A kernel for the data, and a write of the stream for the word.
    ("read_after_write", || {
        let (put, stream) = (kernel(c"put"), stream());
        let found = stale(|value, words| {
            check(launch(put, stream, &[words.at(0), value]));
            let code = write_value64(stream, words.at(512), value, 0);
            check(code)
        });
        answer(format!("~{found}"));
    }),
    // Words of another context of the device.
    ("of_other_context", || {
        let own = primary();
        another_context();
        let (memory, words) = (alloc(64), Words::new());
        current(own);
        let stream = stream();
        for (what, address) in [("device", memory), ("pinned", words.at(0))] {
            line(
                what,
                [
                    write_value64(stream, address, 5, 0),
                    wait_value64(stream, address, 5, 0),
                    outcome(stream),
                ],
            );
        }
    }),
    // Managed memory, which the reference excludes.
    ("managed", || {
        let own = primary();
        let (stream, mut memory) = (stream(), 0);
        // `CU_MEM_ATTACH_GLOBAL`.
        let code = mem_alloc_managed(&mut memory, 4096, 1);
        if code != 0 {
            return answer(code);
        }
        line("pointer", ask(own, memory));
        line(
            "codes",
            [
                write_value64(stream, memory, 5, 0),
                wait_value64(stream, memory, 5, 0),
                outcome(stream),
            ],
        );
    }),
    // Many streams wait for a word whose kernel was submitted before.
    ("many_waits", || {
        let (put, writer, memory) = (kernel(c"put"), stream(), alloc(64));
        let waiting = streams(300);
        let codes = [
            memset_d32_async(memory, 0, 2, writer),
            stream_synchronize(writer),
            launch(put, writer, &[memory, 1]),
        ];
        for stream in &waiting {
            check(wait_value64(*stream, memory, 1, 0));
        }
        let done = waiting.iter().filter(|stream| outcome(**stream) == 0);
        answer(format!("{} {}", names(&codes), done.count()));
    }),
    // Waits for bits, in device memory.
    ("bits", || {
        let memory = alloc(64);
        for (what, flags, is, value) in [
            ("and_common", 2, 6, 4),
            ("and_none", 2, 2, 4),
            ("nor_clear", 3, 6, 1),
            ("eq_equal", 1, 6, 6),
            ("eq_above", 1, 7, 6),
        ] {
            let stream = stream();
            let codes = [
                write_value32(stream, memory, is, 0),
                stream_synchronize(stream),
                wait_value32(stream, memory, value, flags),
            ];
            let goes = within(200, || stream_query(stream) == 0);
            // Lets it go, before the next case writes.
            let other = self::stream();
            write_value32(other, memory, value, 0);
            stream_synchronize(other);
            line(what, format!("{} {}", names(&codes), yes(goes)));
        }
    }),
    ("kernel_64", || written(64)),
    ("kernel_32", || written(32)),
];
