//! Words of an application that streams wait for: what an address is, and what writes it.

use crate::cuda::*;
use crate::harness::*;
use crate::kit::*;

pub(crate) fn list(all: &mut Probes) {
    all.family("words", QUESTIONS);
}

/// What the driver says of an address.
fn ask(own: Handle, address: u64) -> String {
    let numbers = [1_u32, 2, 3, 4, 8, 9, 11, 12];
    let mut values = [0_u64; 8];
    let to = values.each_mut().map(std::ptr::from_mut);
    let (names, to) = (numbers.as_ptr() as usize, to.as_ptr() as usize);
    let code = pointer_get_attributes(8, names, to, address);
    let [of, kind, on_device, on_host, managed, device, begin, size] = values;
    // Which of two it is, if it is not null.
    let which = |value: u64, expected: u64, name: &'static str| match value {
        0 => "none",
        value if value == expected => name,
        _ => "other",
    };
    let of = which(of, own as u64, "own");
    let places = [on_device, on_host].map(|place| which(place, address, "same"));
    let offset = match begin {
        0 => "none".into(),
        begin => address.wrapping_sub(begin).to_string(),
    };
    let [on_device, on_host] = places;
    let device = device as i32;
    format!(
        "{code} context {of}, type {kind}, on the device {on_device}, on the host {on_host}, \
         managed {managed}, device {device}, offset {offset}, size {size}"
    )
}

/// A stream waits for a word of one width, which a kernel then writes.
fn written(bits: u32) {
    let put = kernel(if bits == 64 { c"put" } else { c"put_32" });
    let (words, memory) = (Words::new(), alloc(64));
    for (what, address) in [("pinned", words.at(0)), ("device", memory)] {
        let (waiter, writer) = (stream(), stream());
        let codes = [
            memset_d32_async(address, 0, 2, writer),
            stream_synchronize(writer),
            match bits {
                64 => wait_value64(waiter, address, 7, 0),
                _ => wait_value32(waiter, address, 7, 0),
            },
        ];
        words.store(1, 0);
        mark(waiter, words, 1);
        let before = yes(marked_early(words, 1));
        let first = launch(put, writer, &[address, 6]);
        let below = yes(marked_early(words, 1));
        let second = launch(put, writer, &[address, 9]);
        let (codes, after) = (names(&codes), yes(marked(words, 1)));
        line(
            what,
            format!("{codes}, {first} {second}, before {before}, below {below}, after {after}"),
        );
    }
}

/// A write, a wait and what becomes of their stream.
fn operations(stream: Handle, address: u64) -> [Code; 3] {
    [
        write_value64(stream, address, 5, 0),
        wait_value64(stream, address, 5, 0),
        outcome(stream),
    ]
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
        line("unregistered", ask(own, leak(512) as u64));
        line("null", ask(own, 0));
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
        let call = |number: u32, to: [usize; 1]| {
            let (numbers, to) = ([number], to.as_ptr() as usize);
            pointer_get_attributes(1, numbers.as_ptr() as usize, to, words.at(0))
        };
        line("unknown_attribute", call(9999, to));
        line("null_place", call(2, [0]));
        current(0);
        line("no_context", call(2, to));
        line("no_context_device_pointer", call(3, to));
        current(own);
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
        let before = yes(marked_early(words, 0));
        let code = launch(put, writer, &[memory, 2]);
        let after = yes(marked(words, 0));
        let (codes, shown) = (names(&codes), read(memory).1 as u32);
        answer(format!(
            "{codes} {code}, before {before}, after {after}, shows {shown}"
        ));
    }),
    // How often the host finds old data behind the new word of a kernel, which has a fence of the
    // system's scope between both.
    ("read_after_kernel", || {
        const ROUNDS: u64 = 2000;
        let (put, stream, words) = (kernel(c"put_both"), stream(), Words::new());
        let mut stale = 0;
        for value in 1..=ROUNDS {
            check(launch(put, stream, &[words.at(0), words.at(512), value]));
            if !within(SOON, || words.load(512) >= value) {
                stop(format_args!("round {value} did not come"));
            }
            stale += u64::from(words.load(0) < value);
        }
        answer(format!("{stale} of {ROUNDS}"));
    }),
    // Words of another context of the device.
    ("of_other_context", || {
        another_context();
        let (memory, words) = (alloc(64), Words::new());
        current(primary());
        let stream = stream();
        line("device", operations(stream, memory));
        line("pinned", operations(stream, words.at(0)));
    }),
    // Managed memory, which the reference excludes.
    ("managed", || {
        let mut memory = 0;
        // `CU_MEM_ATTACH_GLOBAL`.
        check(mem_alloc_managed(&mut memory, 4096, 1));
        line("pointer", ask(primary(), memory));
        line("codes", operations(stream(), memory));
    }),
    ("kernel_64", || written(64)),
    ("kernel_32", || written(32)),
];
