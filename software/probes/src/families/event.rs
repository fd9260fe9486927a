//! Events.

use crate::cuda::{Handle, cu};
use crate::harness::{Probe, family, line};
use crate::kit::{
    Answer, NO_TIMING, Words, context, elsewhere, event, finishes, mark, marked, marked_early,
    name, names, park, pause, record, stream, within, yes,
};

pub(crate) fn list() -> Vec<Probe> {
    let mut list = family!["event"; create_flags, unrecorded, elapsed_untimed, elapsed_pending,
        elapsed_signs, record_again, wait_before_record, wait_keeps_record, destroy_pending, record_flags,
        wait_flags, null, record_null_stream, query_pending, synchronize_waits, query_elsewhere,
        destroy_twice, stream_destroy_pending, stream_destroy_then_query, wait_own_stream];
    for (name, call) in GARBAGE {
        list.push(Probe::new(format!("event.garbage.{name}"), move || {
            context()?;
            let garbage = Box::leak(Box::new([0_u64; 1024])).as_ptr() as usize;
            Ok(crate::kit::name(call(garbage)))
        }));
    }
    list
}

type Call = fn(Handle) -> u32;

/// Calls with a handle that points to zeros.
const GARBAGE: &[(&str, Call)] = &[
    ("event_query", |garbage| cu().event_query(garbage)),
    ("event_record", |garbage| cu().event_record(garbage, 0)),
    ("event_destroy", |garbage| cu().event_destroy(garbage)),
    ("stream_query", |garbage| cu().stream_query(garbage)),
    ("stream_destroy", |garbage| cu().stream_destroy(garbage)),
    ("module_unload", |garbage| cu().module_unload(garbage)),
    ("graph_destroy", |garbage| cu().graph_destroy(garbage)),
    ("destroy_semaphore", |garbage| {
        cu().destroy_semaphore(garbage)
    }),
    ("destroy_memory", |garbage| cu().destroy_memory(garbage)),
];

fn create_flags() -> Answer {
    context()?;
    for flags in 0..=16 {
        line(flags, name(cu().event_create(&mut 0, flags)));
    }
    Ok(String::new())
}

fn unrecorded() -> Answer {
    context()?;
    let (fresh, other, stream) = (event(0)?, event(0)?, stream()?);
    line("query", name(cu().event_query(fresh)));
    line("synchronize", name(cu().event_synchronize(fresh)));
    line("wait", name(cu().stream_wait_event(stream, fresh, 0)));
    line("stream_query", name(cu().stream_synchronize(stream)));
    line(
        "elapsed_both",
        name(cu().event_elapsed_time(&mut 0.0, fresh, other)),
    );
    record(other, stream)?;
    let _ = cu().stream_synchronize(stream);
    line(
        "elapsed_start",
        name(cu().event_elapsed_time(&mut 0.0, fresh, other)),
    );
    line(
        "elapsed_end",
        name(cu().event_elapsed_time(&mut 0.0, other, fresh)),
    );
    Ok(String::new())
}

fn elapsed_untimed() -> Answer {
    context()?;
    let (timed, untimed, stream) = (event(0)?, event(NO_TIMING)?, stream()?);
    line(
        "unrecorded",
        name(cu().event_elapsed_time(&mut 0.0, untimed, untimed)),
    );
    record(timed, stream)?;
    record(untimed, stream)?;
    let _ = cu().stream_synchronize(stream);
    line(
        "start",
        name(cu().event_elapsed_time(&mut 0.0, untimed, timed)),
    );
    line(
        "end",
        name(cu().event_elapsed_time(&mut 0.0, timed, untimed)),
    );
    Ok(String::new())
}

fn elapsed_pending() -> Answer {
    context()?;
    let (first, second, stream, words) = (event(0)?, event(0)?, stream()?, Words::new()?);
    let untimed = event(NO_TIMING)?;
    record(first, stream)?;
    let _ = cu().stream_synchronize(stream);
    park(stream, words, 0)?;
    record(second, stream)?;
    record(untimed, stream)?;
    let mut milliseconds = 7.0;
    line(
        "end",
        name(cu().event_elapsed_time(&mut milliseconds, first, second)),
    );
    line("result_kept", yes(milliseconds == 7.0));
    line(
        "start",
        name(cu().event_elapsed_time(&mut milliseconds, second, first)),
    );
    line(
        "both",
        name(cu().event_elapsed_time(&mut milliseconds, second, second)),
    );
    line(
        "untimed",
        name(cu().event_elapsed_time(&mut milliseconds, first, untimed)),
    );
    words.store(0, 1);
    Ok(String::new())
}

fn elapsed_signs() -> Answer {
    context()?;
    let (first, second, stream) = (event(0)?, event(0)?, stream()?);
    record(first, stream)?;
    let _ = cu().stream_synchronize(stream);
    std::thread::sleep(std::time::Duration::from_millis(3));
    record(second, stream)?;
    let _ = cu().stream_synchronize(stream);
    let (mut forth, mut back, mut none) = (0.0, 0.0, 7.0);
    let codes = [
        cu().event_elapsed_time(&mut forth, first, second),
        cu().event_elapsed_time(&mut back, second, first),
        cu().event_elapsed_time(&mut none, first, first),
    ];
    line("codes", names(&codes));
    line(
        "signs",
        format!("{} {} {none}", yes(forth > 1.0), yes(back < -1.0)),
    );
    line("opposite", yes(forth == -back));
    line("microseconds_forth", format!("~{:.3}", forth * 1000.0));
    Ok(String::new())
}

/// A second stream waits for the first record, and the event is recorded again in a third.
fn record_again() -> Answer {
    context()?;
    let (event, words) = (event(NO_TIMING)?, Words::new()?);
    let (first, waiter, third) = (stream()?, stream()?, stream()?);
    park(first, words, 0)?;
    record(event, first)?;
    line("wait", name(cu().stream_wait_event(waiter, event, 0)));
    mark(waiter, words, 1)?;
    record(event, third)?;
    line(
        "query",
        if within(2000, || cu().event_query(event) == 0) {
            "0"
        } else {
            "600"
        },
    );
    line("waiter_took_new", yes(marked_early(words, 1)));
    words.store(0, 1);
    line("waiter_finishes", yes(marked(words, 1)));
    Ok(String::new())
}

fn wait_before_record() -> Answer {
    context()?;
    let (event, words) = (event(NO_TIMING)?, Words::new()?);
    let (first, waiter) = (stream()?, stream()?);
    line("wait", name(cu().stream_wait_event(waiter, event, 0)));
    mark(waiter, words, 1)?;
    park(first, words, 0)?;
    record(event, first)?;
    line("waiter_finishes", yes(marked(words, 1)));
    words.store(0, 1);
    Ok(String::new())
}

/// A wait for a complete event is enqueued behind a blocked stream. Then the event is recorded
/// again.
///
/// The stream of the second record stays blocked.
fn wait_keeps_record() -> Answer {
    context()?;
    let (event, words) = (event(NO_TIMING)?, Words::new()?);
    let (first, waiter) = (stream()?, stream()?);
    record(event, first)?;
    let _ = cu().stream_synchronize(first);
    park(waiter, words, 1)?;
    line("wait", name(cu().stream_wait_event(waiter, event, 0)));
    mark(waiter, words, 2)?;
    park(first, words, 0)?;
    record(event, first)?;
    words.store(1, 1);
    line("waiter_finishes", yes(marked(words, 2)));
    line("query", name(cu().event_query(event)));
    words.store(0, 1);
    Ok(String::new())
}

fn destroy_pending() -> Answer {
    context()?;
    let (event, words) = (event(NO_TIMING)?, Words::new()?);
    let (first, waiter) = (stream()?, stream()?);
    park(first, words, 0)?;
    record(event, first)?;
    let _ = cu().stream_wait_event(waiter, event, 0);
    mark(waiter, words, 1)?;
    line("destroy", name(cu().event_destroy(event)));
    line("waiter_goes_on", yes(marked_early(words, 1)));
    words.store(0, 1);
    line("waiter_finishes", yes(marked(words, 1)));
    Ok(String::new())
}

fn record_flags() -> Answer {
    context()?;
    let (event, stream) = (event(NO_TIMING)?, stream()?);
    for flags in [0, 1, 2, 3, 4, u32::MAX] {
        line(
            flags,
            name(cu().event_record_with_flags(event, stream, flags)),
        );
    }
    Ok(String::new())
}

fn wait_flags() -> Answer {
    context()?;
    let (event, stream) = (event(NO_TIMING)?, stream()?);
    for flags in [0, 1, 2, 3, 4, u32::MAX] {
        line(
            format!("unrecorded_{flags}"),
            name(cu().stream_wait_event(stream, event, flags)),
        );
    }
    record(event, stream)?;
    for flags in [0, 1, 2, 3, 4, u32::MAX] {
        line(flags, name(cu().stream_wait_event(stream, event, flags)));
    }
    Ok(String::new())
}

fn null() -> Answer {
    context()?;
    let (event, stream) = (event(0)?, stream()?);
    line("query", name(cu().event_query(0)));
    line("synchronize", name(cu().event_synchronize(0)));
    line("record", name(cu().event_record(0, stream)));
    line("wait", name(cu().stream_wait_event(stream, 0, 0)));
    line(
        "elapsed_start",
        name(cu().event_elapsed_time(&mut 0.0, 0, event)),
    );
    line(
        "elapsed_end",
        name(cu().event_elapsed_time(&mut 0.0, event, 0)),
    );
    line("destroy", name(cu().event_destroy(0)));
    line("stream_destroy", name(cu().stream_destroy(0)));
    line("stream_destroy_legacy", name(cu().stream_destroy(1)));
    line("stream_destroy_per_thread", name(cu().stream_destroy(2)));
    line("module_unload", name(cu().module_unload(0)));
    line(
        "get_function",
        name(cu().module_get_function(&mut 0, 0, c"nop".as_ptr() as usize)),
    );
    line("launch", name(crate::kit::launch(0, stream, &[])));
    line("graph_launch", name(cu().graph_launch(0, stream)));
    line("graph_destroy", name(cu().graph_destroy(0)));
    line("graph_exec_destroy", name(cu().graph_exec_destroy(0)));
    line(
        "graph_instantiate",
        name(cu().graph_instantiate(&mut 0, 0, 0)),
    );
    line("user_object_release", name(cu().user_object_release(0, 1)));
    line("destroy_semaphore", name(cu().destroy_semaphore(0)));
    line("destroy_memory", name(cu().destroy_memory(0)));
    line("ctx_destroy", name(cu().ctx_destroy(0)));
    Ok(String::new())
}

fn record_null_stream() -> Answer {
    context()?;
    let event = event(0)?;
    let codes = [0, 1, 2].map(|stream| cu().event_record(event, stream));
    Ok(names(&[
        codes[0],
        codes[1],
        codes[2],
        cu().event_synchronize(event),
    ]))
}

fn query_pending() -> Answer {
    context()?;
    let (event, stream, words) = (event(NO_TIMING)?, stream()?, Words::new()?);
    park(stream, words, 0)?;
    record(event, stream)?;
    line(
        "pending",
        names(&[cu().event_query(event), cu().stream_query(stream)]),
    );
    words.store(0, 1);
    line(
        "then",
        names(&[cu().event_synchronize(event), cu().event_query(event)]),
    );
    line("stream", name(crate::kit::outcome(stream)));
    Ok(String::new())
}

fn synchronize_waits() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    for flags in [2, 3] {
        let event = event(flags)?;
        let gate = flags as usize;
        park(stream, words, gate)?;
        record(event, stream)?;
        let (code, open) = std::thread::scope(|scope| {
            scope.spawn(|| {
                pause(200);
                words.store(gate, 1);
            });
            let code = cu().event_synchronize(event);
            (code, words.load(gate) == 1)
        });
        line(
            format!("flags_{flags}"),
            format!("{}, waits: {}", name(code), yes(open)),
        );
    }
    Ok(String::new())
}

fn query_elsewhere() -> Answer {
    context()?;
    let (event, stream) = (event(NO_TIMING)?, stream()?);
    record(event, stream)?;
    let _ = cu().stream_synchronize(stream);
    elsewhere(0, || {
        names(&[cu().event_query(event), cu().event_synchronize(event)])
    })
}

fn destroy_twice() -> Answer {
    context()?;
    let event = event(NO_TIMING)?;
    Ok(names(&[
        cu().event_destroy(event),
        cu().event_destroy(event),
        cu().event_query(event),
    ]))
}

/// A stream is destroyed while its work is parked.
fn stream_destroy_pending() -> Answer {
    context()?;
    let (stream, words) = (stream()?, Words::new()?);
    let event = event(NO_TIMING)?;
    park(stream, words, 0)?;
    mark(stream, words, 1)?;
    record(event, stream)?;
    line("destroy", name(cu().stream_destroy(stream)));
    line("query", name(cu().event_query(event)));
    words.store(0, 1);
    line("work_finishes", yes(marked(words, 1)));
    line("event_synchronize", name(cu().event_synchronize(event)));
    Ok(String::new())
}

fn stream_destroy_then_query() -> Answer {
    context()?;
    let stream = stream()?;
    let codes = [
        cu().stream_destroy(stream),
        cu().stream_query(stream),
        cu().stream_destroy(stream),
    ];
    Ok(names(&codes))
}

fn wait_own_stream() -> Answer {
    context()?;
    let (event, stream) = (event(NO_TIMING)?, stream()?);
    record(event, stream)?;
    let code = cu().stream_wait_event(stream, event, 0);
    Ok(format!(
        "{}, finishes: {}",
        name(code),
        yes(finishes(stream))
    ))
}
