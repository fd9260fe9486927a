//! Memory: allocation, copies outside of it, registered host memory.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cuda::{Copy3d, CopySide, Handle, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, Words, alloc, context, module, name, names, outcome, park, pause, stream, within, yes,
};

pub(crate) fn list() -> Vec<Probe> {
    family!["memory"; alloc_sizes, alignment, distance,  free_null, free_middle, free_twice,
         copy_out, copy_past_end, copy_into_freed, copy_null, copy_nothing, memset_past_end,
        memset_misaligned, memset_null, copy_device_unknown, copy_device_overlap, pageable_as_device,
        pageable_async, pinned_as_device, pinned_copy, device_as_host,  
            
         host_access, memset_pageable, memset_d8, freed_while_used, fresh_contents, copies_behind_wait, host_copies_behind_wait]
}

pub(super) fn leak(bytes: usize) -> usize {
    Box::leak(vec![0_u64; bytes / 8].into_boxed_slice()).as_ptr() as usize
}

fn alloc_sizes() -> Answer {
    context()?;
    for (what, bytes) in [
        ("0", 0),
        ("1", 1),
        ("2_to_40", 1 << 40),
        ("2_to_50", 1 << 50),
        ("most", usize::MAX),
    ] {
        let mut pointer = 7;
        let code = cu().mem_alloc(&mut pointer, bytes);
        let result = match pointer {
            0 => "null",
            7 => "kept",
            _ => "set",
        };
        line(what, format!("{}, result {result}", name(code)));
    }
    line("after", name(cu().mem_alloc(&mut 0, 64)));
    Ok(String::new())
}

fn alignment() -> Answer {
    context()?;
    let pointers = [
        alloc(1)?,
        alloc(1)?,
        alloc(100)?,
        alloc(4096)?,
        alloc(3 << 20)?,
    ];
    Ok(pointers
        .map(|pointer| (pointer & pointer.wrapping_neg()).min(512).to_string())
        .join(" "))
}

fn distance() -> Answer {
    context()?;
    let (first, second, third) = (alloc(1)?, alloc(1)?, alloc(1)?);
    Ok(format!(
        "~{} {}",
        second.wrapping_sub(first).cast_signed(),
        third.wrapping_sub(second).cast_signed()
    ))
}

fn free_null() -> Answer {
    context()?;
    Ok(names(&[cu().mem_free(0), cu().mem_free_host(0)]))
}

fn free_middle() -> Answer {
    context()?;
    let pointer = alloc(4096)?;
    Ok(names(&[
        cu().mem_free(pointer + 256),
        cu().mem_free(pointer + 8),
        cu().mem_free(pointer),
    ]))
}

fn free_twice() -> Answer {
    context()?;
    let pointer = alloc(4096)?;
    Ok(names(&[
        cu().mem_free(pointer),
        cu().mem_free(pointer),
        cu().mem_free(16),
    ]))
}

/// Copies past the end of 4096 bytes that are one allocation.
fn copy_out() -> Answer {
    context()?;
    let (memory, host) = (alloc(4096)?, leak(1 << 26));
    line("within", name(cu().memcpy_dtoh(host, memory, 4096)));
    line("one_more", name(cu().memcpy_dtoh(host, memory, 4097)));
    line("2_mib", name(cu().memcpy_dtoh(host, memory, 2 << 20)));
    line("64_mib", name(cu().memcpy_dtoh(host, memory, 1 << 26)));
    line("address_16", name(cu().memcpy_dtoh(host, 16, 8)));
    line("before", name(cu().memcpy_dtoh(host, memory - 8, 16)));
    line("context", name(cu().ctx_synchronize()));
    Ok(String::new())
}

fn copy_past_end() -> Answer {
    context()?;
    let (memory, host) = (alloc(4096)?, leak(8192));
    line("htod_one_more", name(cu().memcpy_htod(memory, host, 4097)));
    line(
        "htod_at_end",
        name(cu().memcpy_htod(memory + 4096, host, 8)),
    );
    line("htod_address_16", name(cu().memcpy_htod(16, host, 8)));
    let big = alloc(2 << 20)?;
    line(
        "htod_big_one_more",
        name(cu().memcpy_htod(big + (2 << 20) - 8, host, 9)),
    );
    line(
        "htod_big_at_end",
        name(cu().memcpy_htod(big + (2 << 20), host, 8)),
    );
    line("context", name(cu().ctx_synchronize()));
    Ok(String::new())
}

fn copy_into_freed() -> Answer {
    context()?;
    let (memory, host) = (alloc(4096)?, leak(8192));
    let _ = cu().mem_free(memory);
    let codes = [
        cu().memcpy_htod(memory, host, 8),
        cu().memcpy_dtoh(host, memory, 8),
        cu().ctx_synchronize(),
    ];
    line("small", names(&codes));
    let memory = alloc(64 << 20)?;
    let _ = cu().mem_free(memory);
    let codes = [
        cu().memcpy_htod(memory, host, 8),
        cu().memcpy_dtoh(host, memory, 8),
        cu().ctx_synchronize(),
    ];
    line("large", names(&codes));
    Ok(String::new())
}

fn copy_null() -> Answer {
    context()?;
    let (memory, host) = (alloc(64)?, leak(64));
    line("dtoh_from_null", name(cu().memcpy_dtoh(host, 0, 8)));
    line("htod_to_null", name(cu().memcpy_htod(0, host, 8)));
    line("dtoh_to_null", name(cu().memcpy_dtoh(0, memory, 8)));
    line("htod_from_null", name(cu().memcpy_htod(memory, 0, 8)));
    Ok(String::new())
}

fn copy_nothing() -> Answer {
    context()?;
    let (memory, host, stream) = (alloc(64)?, leak(64), stream()?);
    line("dtoh", name(cu().memcpy_dtoh(host, memory, 0)));
    line("dtoh_unknown", name(cu().memcpy_dtoh(host, 16, 0)));
    line("htod_null", name(cu().memcpy_htod(0, 0, 0)));
    line(
        "dtod",
        name(cu().memcpy_dtod_async(memory, memory, 0, stream)),
    );
    line("memset", name(cu().memset_d32_async(memory, 0, 0, stream)));
    line("memset_null", name(cu().memset_d32_async(0, 0, 0, stream)));
    Ok(String::new())
}

fn memset_past_end() -> Answer {
    context()?;
    let (memory, stream) = (alloc(4096)?, stream()?);
    line(
        "one_word",
        names(&[
            cu().memset_d32_async(memory, 1, 1025, stream),
            cu().stream_synchronize(stream),
        ]),
    );
    line(
        "at_end",
        names(&[
            cu().memset_d32_async(memory + 4096, 1, 1, stream),
            cu().stream_synchronize(stream),
        ]),
    );
    line(
        "64_mib",
        names(&[
            cu().memset_d32_async(memory, 1, 1 << 24, stream),
            cu().stream_synchronize(stream),
        ]),
    );
    line(
        "address_16",
        names(&[
            cu().memset_d32_async(16, 1, 1, stream),
            cu().stream_synchronize(stream),
        ]),
    );
    let _ = cu().mem_free(memory);
    line(
        "freed",
        names(&[
            cu().memset_d32_async(memory, 1, 1, stream),
            cu().stream_synchronize(stream),
        ]),
    );
    Ok(String::new())
}

fn memset_misaligned() -> Answer {
    context()?;
    let (memory, stream) = (alloc(4096)?, stream()?);
    for offset in 1..4 {
        let code = cu().memset_d32_async(memory + offset, 1, 1, stream);
        line(
            format!("d32_{offset}"),
            names(&[code, cu().stream_synchronize(stream)]),
        );
    }
    Ok(String::new())
}

fn memset_null() -> Answer {
    context()?;
    let stream = stream()?;
    Ok(names(&[
        cu().memset_d32_async(0, 1, 1, stream),
        cu().stream_synchronize(stream),
    ]))
}

fn memset_d8() -> Answer {
    context()?;
    let (memory, stream, mut value) = (alloc(4096)?, stream()?, 0_u64);
    let _ = cu().memset_d8_async(memory, 1, 8, stream);
    let codes = [
        cu().memset_d8_async(memory + 1, 0xab, 3, stream),
        cu().stream_synchronize(stream),
    ];
    let _ = cu().memcpy_dtoh(&raw mut value as usize, memory, 8);
    Ok(format!("{} {value:016x}", names(&codes)))
}

fn memset_pageable() -> Answer {
    context()?;
    let (host, stream) = (leak(4096), stream()?);
    let code = cu().memset_d32_async(host as u64, 1, 1, stream);
    Ok(names(&[code, cu().stream_synchronize(stream)]))
}

fn copy_device_unknown() -> Answer {
    context()?;
    let (memory, stream) = (alloc(4096)?, stream()?);
    line(
        "from_16",
        names(&[
            cu().memcpy_dtod_async(memory, 16, 8, stream),
            cu().stream_synchronize(stream),
        ]),
    );
    line(
        "to_16",
        names(&[
            cu().memcpy_dtod_async(16, memory, 8, stream),
            cu().stream_synchronize(stream),
        ]),
    );
    line(
        "both",
        names(&[
            cu().memcpy_dtod_async(16, 32, 8, stream),
            cu().stream_synchronize(stream),
        ]),
    );
    line(
        "past_end",
        names(&[
            cu().memcpy_dtod_async(memory, memory + 4000, 97, stream),
            cu().stream_synchronize(stream),
        ]),
    );
    Ok(String::new())
}

fn copy_device_overlap() -> Answer {
    context()?;
    let (memory, stream) = (alloc(4096)?, stream()?);
    Ok(names(&[
        cu().memcpy_dtod_async(memory + 8, memory, 64, stream),
        cu().stream_synchronize(stream),
    ]))
}

fn pageable_as_device() -> Answer {
    context()?;
    let (host, other, stream) = (leak(4096), leak(4096), stream()?);
    let memory = alloc(4096)?;
    line("dtoh_from", name(cu().memcpy_dtoh(other, host as u64, 8)));
    line("htod_to", name(cu().memcpy_htod(host as u64, other, 8)));
    let code = cu().memcpy_dtod_async(memory, host as u64, 8, stream);
    line("dtod_from", names(&[code, cu().stream_synchronize(stream)]));
    let code = cu().memcpy_dtod_async(host as u64, memory, 8, stream);
    line("dtod_to", names(&[code, cu().stream_synchronize(stream)]));
    Ok(String::new())
}

/// When an asynchronous copy from pageable memory has read it.
fn pageable_async() -> Answer {
    context()?;
    let (host, stream, words, memory) = (leak(4096), stream()?, Words::new()?, alloc(4096)?);
    crate::kit::park(stream, words, 0)?;
    // SAFETY: leaked memory of this function. The driver may read it at the same time: this is the
    // question.
    let write = |value: u64| unsafe { (host as *mut u64).write_volatile(value) };
    write(1);
    let opener = std::thread::spawn(move || {
        pause(1000);
        words.store(0, 1);
    });
    let code = cu().memcpy_htod_async(memory, host, 8, stream);
    let early = words.load(0) == 0;
    write(2);
    let _ = opener.join();
    let _ = cu().stream_synchronize(stream);
    let mut value = 0_u64;
    let _ = cu().memcpy_dtoh(&raw mut value as usize, memory, 8);
    Ok(format!(
        "{}, returns while parked: {}, copied: {value}",
        name(code),
        yes(early)
    ))
}

fn pinned_as_device() -> Answer {
    context()?;
    let (words, stream) = (Words::new()?, stream()?);
    line("same_address", yes(words.at(0) == words.host as u64));
    let code = cu().memset_d32_async(words.host as u64, 5, 1, stream);
    line("memset", names(&[code, cu().stream_synchronize(stream)]));
    line("value", words.load(0));
    let code = cu().stream_write_value64(stream, words.host as u64 + 8, 6, 0);
    line(
        "write_value",
        names(&[code, cu().stream_synchronize(stream)]),
    );
    let code = cu().memset_d32_async(words.at(Words::COUNT) - 4, 5, 2, stream);
    line("past_end", names(&[code, cu().stream_synchronize(stream)]));
    Ok(String::new())
}

fn pinned_copy() -> Answer {
    context()?;
    let (words, mut value) = (Words::new()?, 0_u64);
    words.store(3, 77);
    let code = cu().memcpy_dtoh(&raw mut value as usize, words.at(3), 8);
    line("dtoh", format!("{} {value}", name(code)));
    value = 78;
    let code = cu().memcpy_htod(words.at(4), &raw mut value as usize, 8);
    line("htod", format!("{} {}", name(code), words.load(4)));
    Ok(String::new())
}

fn device_as_host() -> Answer {
    context()?;
    let (first, second) = (alloc(64)?, alloc(64)?);
    line("dtoh", name(cu().memcpy_dtoh(first as usize, second, 8)));
    line("htod", name(cu().memcpy_htod(first, second as usize, 8)));
    line(
        "pointer",
        name(cu().mem_host_get_device_pointer(&mut 0, first as usize, 0)),
    );
    line(
        "register",
        name(cu().mem_host_register(first as usize, 64, 3)),
    );
    Ok(String::new())
}

/// The host reads device memory.
fn host_access() -> Answer {
    context()?;
    let memory = alloc(4096)?;
    // SAFETY: it is the question whether this ends the process.
    let _ = unsafe { (memory as *const u64).read_volatile() };
    Ok("can be read".into())
}

fn freed_while_used() -> Answer {
    context()?;
    let (memory, stream, words) = (alloc(4096)?, stream()?, Words::new()?);
    let _ = module()?;
    crate::kit::park(stream, words, 0)?;
    let _ = cu().memset_d32_async(memory, 1, 1, stream);
    let opener = std::thread::spawn(move || {
        pause(1000);
        words.store(0, 1);
    });
    let code = cu().mem_free(memory);
    let early = words.load(0) == 0;
    let _ = opener.join();
    let end = cu().stream_synchronize(stream);
    Ok(format!(
        "{}, returns while parked: {}",
        names(&[code, end]),
        yes(early)
    ))
}

fn fresh_contents() -> Answer {
    context()?;
    let mut bytes = vec![1_u8; 4096];
    let code = cu().memcpy_dtoh(bytes.as_mut_ptr() as usize, alloc(4096)?, 4096);
    Ok(format!(
        "{}, zero: {}",
        name(code),
        yes(bytes.iter().all(|byte| *byte == 0))
    ))
}

/// Whether a copy behind a wait returns before the wait ends.
fn behind_wait(own: Handle, copy: impl Fn(Handle) -> u32 + Sync) -> Answer {
    let (stream, gate) = (stream()?, Words::new()?);
    park(stream, gate, 0)?;
    let returned = AtomicBool::new(false);
    let (early, code) = std::thread::scope(|scope| {
        let copy = scope.spawn(|| {
            let _ = cu().ctx_set_current(own);
            let code = copy(stream);
            returned.store(true, Ordering::SeqCst);
            code
        });
        let early = within(300, || returned.load(Ordering::SeqCst));
        gate.store(0, 1);
        (early, copy.join().unwrap_or(99))
    });
    let early = if early { "returns" } else { "blocks" };
    Ok(format!("{early}, {} {}", name(code), name(outcome(stream))))
}

/// Copies behind a wait, by the places of both sides.
fn copies_behind_wait() -> Answer {
    let own = context()?;
    let (pinned, registered) = (Words::new()?, Words::registered()?);
    let places = [
        ("device", alloc(4096)?),
        ("pinned", pinned.at(0)),
        ("registered", registered.at(0)),
    ];
    for (from_name, from) in places {
        for (to_name, to) in places {
            let found = behind_wait(own, |stream| {
                cu().memcpy_dtod_async(to + 2048, from, 8, stream)
            })?;
            line(format!("{from_name}_to_{to_name}"), found);
        }
    }
    Ok(String::new())
}

/// Copies of boxes between pinned memory behind a wait, by the kind of memory that they name.
fn host_copies_behind_wait() -> Answer {
    let own = context()?;
    let (mut from, mut to) = (0, 0);
    const BYTES: usize = 1 << 20;
    crate::kit::check("cuMemHostAlloc", cu().mem_host_alloc(&mut from, BYTES, 3))?;
    crate::kit::check("cuMemHostAlloc", cu().mem_host_alloc(&mut to, BYTES, 3))?;
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
                behind_wait(own, |stream| cu().memcpy_3d_async(&copy, stream))?,
            );
        }
    }
    Ok(String::new())
}
