//! Objects of a context that is gone.

use crate::cuda::{Handle, cu};
use crate::harness::Probe;
use crate::kit::{
    Answer, Words, another_context, check, context, current, event, kernel_of, launch, module,
    name, record, stream,
};

pub(crate) fn list() -> Vec<Probe> {
    let mut list = Vec::new();
    for (name, call) in AFTER {
        list.push(Probe::new(
            format!("context.after_destroy.{name}"),
            move || after_destroy(*call),
        ));
        list.push(Probe::new(
            format!("context.after_release.{name}"),
            move || after_release(*call),
        ));
    }
    list
}

/// Objects of a context that is gone.
#[derive(Clone, Copy)]
struct Left {
    stream: Handle,
    event: Handle,
    recorded: Handle,
    memory: u64,
    host: usize,
    module: Handle,
    function: Handle,
}

type Call = fn(Left) -> u32;

const AFTER: &[(&str, Call)] = &[
    ("event_query", |left| cu().event_query(left.recorded)),
    ("event_synchronize", |left| {
        cu().event_synchronize(left.recorded)
    }),
    ("event_record", |left| {
        cu().event_record(left.event, left.stream)
    }),
    ("event_elapsed", |left| {
        cu().event_elapsed_time(&mut 0.0, left.recorded, left.recorded)
    }),
    ("event_destroy", |left| cu().event_destroy(left.recorded)),
    ("stream_query", |left| cu().stream_query(left.stream)),
    ("stream_synchronize", |left| {
        cu().stream_synchronize(left.stream)
    }),
    ("stream_get_ctx", |left| {
        cu().stream_get_ctx(left.stream, &mut 0)
    }),
    ("stream_destroy", |left| cu().stream_destroy(left.stream)),
    ("stream_wait_event", |left| {
        cu().stream_wait_event(left.stream, left.recorded, 0)
    }),
    ("mem_free", |left| cu().mem_free(left.memory)),
    ("mem_free_host", |left| cu().mem_free_host(left.host)),
    ("memcpy_dtoh", |left| {
        let mut value = 0_u64;
        cu().memcpy_dtoh(&raw mut value as usize, left.memory, 8)
    }),
    ("get_function", |left| {
        cu().module_get_function(&mut 0, left.module, c"nop".as_ptr() as usize)
    }),
    ("module_unload", |left| cu().module_unload(left.module)),
    ("launch", |left| launch(left.function, left.stream, &[])),
];

fn left() -> Result<Left, String> {
    let module = module()?;
    let stream = stream()?;
    let left = Left {
        stream,
        event: event(0)?,
        recorded: event(0)?,
        memory: crate::kit::alloc(64)?,
        host: Words::new()?.host,
        module,
        function: kernel_of(module, c"nop")?,
    };
    record(left.recorded, stream)?;
    check("cuStreamSynchronize", cu().stream_synchronize(stream))?;
    Ok(left)
}

/// The primary context is current afterwards.
fn after_destroy(call: Call) -> Answer {
    let primary = context()?;
    let other = another_context()?;
    let left = left()?;
    current(primary)?;
    check("cuCtxDestroy", cu().ctx_destroy(other))?;
    Ok(name(call(left)))
}

fn after_release(call: Call) -> Answer {
    context()?;
    let left = left()?;
    check("cuDevicePrimaryCtxRelease", cu().primary_release(0))?;
    Ok(name(call(left)))
}
