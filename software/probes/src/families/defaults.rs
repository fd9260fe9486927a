//! The default streams: which streams the legacy stream waits for, and which wait for it.

use crate::cuda::{Handle, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, NO_TIMING, Words, context, elsewhere, event, kernel, name, names, outcome, pause,
    record, spin, stream, stream_with, within, yes,
};

pub(crate) fn list() -> Vec<Probe> {
    family!["defaults"; legacy_behind_others, others_behind_legacy, per_thread, per_thread_of_two,
        query_legacy, synchronize_legacy, event_in_legacy, memcpy_waits, alloc_waits, free_waits,
        host_free_waits, unload_waits, event_destroy_waits, stream_create_waits, register_waits]
}

/// Whether a record in `second` completes while a kernel spins in `first`.
fn passes(first: Handle, second: Handle) -> Answer {
    let (words, event) = (Words::new()?, event(NO_TIMING)?);
    kernel(c"spin")?;
    spin(first, words, 0)?;
    let code = cu().event_record(event, second);
    let early = within(300, || cu().event_query(event) == 0);
    words.store(0, 1);
    let end = outcome(first);
    let late = within(3000, || cu().event_query(event) == 0);
    Ok(format!(
        "{}, passes: {}, finishes: {}",
        names(&[code, end]),
        yes(early),
        yes(late)
    ))
}

fn kinds() -> Result<Vec<(&'static str, Handle)>, String> {
    Ok(vec![
        ("blocking", stream_with(0)?),
        ("non_blocking", stream()?),
        ("legacy", 1),
        ("null", 0),
        ("per_thread", 2),
    ])
}

fn legacy_behind_others() -> Answer {
    context()?;
    for (kind, stream) in kinds()? {
        line(kind, passes(stream, 0)?);
    }
    Ok(String::new())
}

fn others_behind_legacy() -> Answer {
    context()?;
    for (kind, stream) in kinds()? {
        line(kind, passes(0, stream)?);
    }
    Ok(String::new())
}

fn per_thread() -> Answer {
    context()?;
    for (kind, stream) in kinds()? {
        line(format!("behind_{kind}"), passes(stream, 2)?);
        line(format!("in_front_of_{kind}"), passes(2, stream)?);
    }
    Ok(String::new())
}

/// The per-thread streams of two threads.
fn per_thread_of_two() -> Answer {
    let context = context()?;
    let (words, event) = (Words::new()?, event(NO_TIMING)?);
    kernel(c"spin")?;
    spin(2, words, 0)?;
    let code = elsewhere(context, || cu().event_record(event, 2))?;
    let early = within(300, || cu().event_query(event) == 0);
    words.store(0, 1);
    Ok(format!("{}, passes: {}", name(code), yes(early)))
}

fn query_legacy() -> Answer {
    context()?;
    for (kind, stream) in kinds()? {
        let words = Words::new()?;
        spin(stream, words, 0)?;
        line(
            kind,
            names(&[
                cu().stream_query(0),
                cu().stream_query(1),
                cu().stream_query(2),
            ]),
        );
        words.store(0, 1);
        outcome(stream);
    }
    Ok(String::new())
}

/// Whether a call returns while a kernel spins in each kind of stream.
fn waits_for(call: impl Fn() -> u32) -> Answer {
    for (kind, stream) in kinds()? {
        let words = Words::new()?;
        spin(stream, words, 0)?;
        let opener = std::thread::spawn(move || {
            pause(700);
            words.store(0, 1);
        });
        let code = call();
        let early = words.load(0) == 0;
        let _ = opener.join();
        line(
            kind,
            format!(
                "{}, returns while the kernel runs: {}",
                name(code),
                yes(early)
            ),
        );
        outcome(stream);
    }
    Ok(String::new())
}

fn synchronize_legacy() -> Answer {
    context()?;
    waits_for(|| cu().stream_synchronize(0))
}

fn event_in_legacy() -> Answer {
    context()?;
    let (first, second) = (stream_with(0)?, stream()?);
    let (words, event) = (Words::new()?, event(NO_TIMING)?);
    spin(first, words, 0)?;
    record(event, 0)?;
    line("wait", name(cu().stream_wait_event(second, event, 0)));
    line(
        "passes",
        yes(within(300, || cu().stream_query(second) == 0)),
    );
    words.store(0, 1);
    line("then", name(outcome(second)));
    Ok(String::new())
}

fn memcpy_waits() -> Answer {
    context()?;
    let (memory, mut value) = (crate::kit::alloc(64)?, 0_u64);
    let address = &raw mut value as usize;
    waits_for(|| cu().memcpy_dtoh(address, memory, 8))
}

fn alloc_waits() -> Answer {
    context()?;
    waits_for(|| cu().mem_alloc(&mut 0, 64 << 20))
}

fn free_waits() -> Answer {
    context()?;
    let memory: Vec<_> = (0..5)
        .map(|_| crate::kit::alloc(64))
        .collect::<Result<_, _>>()?;
    let next = std::cell::Cell::new(0);
    waits_for(|| {
        next.set(next.get() + 1);
        cu().mem_free(memory[next.get() - 1])
    })
}

fn host_free_waits() -> Answer {
    context()?;
    let memory: Vec<_> = (0..5).map(|_| Words::new()).collect::<Result<_, _>>()?;
    let next = std::cell::Cell::new(0);
    waits_for(|| {
        next.set(next.get() + 1);
        cu().mem_free_host(memory[next.get() - 1].host)
    })
}

fn unload_waits() -> Answer {
    context()?;
    let modules: Vec<_> = (0..5)
        .map(|_| crate::kit::module())
        .collect::<Result<_, _>>()?;
    let next = std::cell::Cell::new(0);
    waits_for(|| {
        next.set(next.get() + 1);
        cu().module_unload(modules[next.get() - 1])
    })
}

fn event_destroy_waits() -> Answer {
    context()?;
    waits_for(|| {
        let mut event = 0;
        let _ = cu().event_create(&mut event, 2);
        let _ = cu().event_record(event, 2);
        cu().event_destroy(event)
    })
}

fn stream_create_waits() -> Answer {
    context()?;
    waits_for(|| {
        let mut stream = 0;
        let _ = cu().stream_create(&mut stream, 1);
        cu().stream_destroy(stream)
    })
}

fn register_waits() -> Answer {
    context()?;
    let memory = Box::leak(vec![0_u64; 1 << 16].into_boxed_slice()).as_ptr() as usize;
    waits_for(|| {
        let code = cu().mem_host_register(memory, 1 << 18, 3);
        if code == 0 {
            cu().mem_host_unregister(memory)
        } else {
            code
        }
    })
}
