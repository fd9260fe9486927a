//! A driver in memory for tests.
//!
//! It executes one operation of a random stream at a time, and notes misuse.
#![allow(unsafe_code, reason = "plays the driver")]

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_uint;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use super::table::Table;
use super::{Calls, Event, NOT_READY, Stream};

/// An operation in a stream.
enum Op {
    /// Completes this record of the event.
    Record(usize, u64),
    /// Waits for this record of the event.
    Wait(usize, u64),
    /// Adds this number to the log.
    Work(u64),
}

/// Number of records of an event, and of complete ones.
#[derive(Default, Clone, Copy)]
struct Records {
    made: u64,
    complete: u64,
}

pub(crate) struct Driver {
    streams: BTreeMap<usize, VecDeque<Op>>,
    events: BTreeMap<usize, Records>,
    next: usize,
    dice: u64,
    /// The numbers of the executed work, in order.
    pub(crate) log: Vec<u64>,
    /// Calls that no program may make.
    pub(crate) misuse: Vec<String>,
}

/// Locks the only driver for one test.
pub(crate) fn driver() -> MutexGuard<'static, Driver> {
    static DRIVER: Mutex<Driver> = Mutex::new(Driver {
        streams: BTreeMap::new(),
        events: BTreeMap::new(),
        next: 0,
        dice: 7,
        log: Vec::new(),
        misuse: Vec::new(),
    });
    DRIVER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    /// Puts work into a stream.
    pub(crate) fn work(&mut self, stream: Stream, number: u64) {
        self.push(stream, Op::Work(number));
    }

    fn push(&mut self, stream: Stream, op: Op) {
        self.streams
            .entry(stream as usize)
            .or_default()
            .push_back(op);
    }

    /// Executes one operation of one stream. Returns false if no stream can continue.
    pub(crate) fn step(&mut self) -> bool {
        let ready = |op: &Op| match op {
            Op::Wait(event, record) => {
                // A destroyed event was complete, or the driver completes it: the waits for it were
                // taken before.
                self.events
                    .get(event)
                    .is_none_or(|event| event.complete >= *record)
            }
            _ => true,
        };
        let ready: Vec<usize> = self
            .streams
            .iter()
            .filter(|(_, ops)| ops.front().is_some_and(ready))
            .map(|(stream, _)| *stream)
            .collect();
        if ready.is_empty() {
            return false;
        }
        self.dice = self
            .dice
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let stream = ready[(self.dice >> 33) as usize % ready.len()];
        match self.streams.get_mut(&stream).and_then(VecDeque::pop_front) {
            Some(Op::Record(event, record)) => {
                if let Some(event) = self.events.get_mut(&event) {
                    event.complete = record;
                }
            }
            Some(Op::Work(number)) => self.log.push(number),
            Some(Op::Wait(..)) | None => {}
        }
        true
    }

    /// Number of live events.
    pub(crate) fn events(&self) -> usize {
        self.events.len()
    }
}

unsafe extern "system" fn create(event: *mut Event, _: c_uint) -> u32 {
    let mut driver = driver();
    driver.next += 1;
    let handle = driver.next;
    driver.events.insert(handle, Records::default());
    // SAFETY: the caller's place for a handle.
    unsafe { *event = handle as Event };
    0
}

unsafe extern "system" fn destroy(event: Event) -> u32 {
    let mut driver = driver();
    if driver.events.remove(&(event as usize)).is_none() {
        driver
            .misuse
            .push("an event that is not there was destroyed".into());
    }
    0
}

unsafe extern "system" fn record(event: Event, stream: Stream) -> u32 {
    let mut driver = driver();
    let Some(records) = driver.events.get_mut(&(event as usize)) else {
        driver
            .misuse
            .push("an event that is not there was recorded".into());
        return 400;
    };
    let early = records.complete < records.made;
    records.made += 1;
    let made = records.made;
    if early {
        driver
            .misuse
            .push("an event was recorded again before it was complete".into());
    }
    driver.push(stream, Op::Record(event as usize, made));
    0
}

unsafe extern "system" fn wait(stream: Stream, event: Event, _: c_uint) -> u32 {
    let mut driver = driver();
    let Some(records) = driver.events.get(&(event as usize)).copied() else {
        driver
            .misuse
            .push("an event that is not there was waited for".into());
        return 400;
    };
    driver.push(stream, Op::Wait(event as usize, records.made));
    0
}

unsafe extern "system" fn query(event: Event) -> u32 {
    let mut driver = driver();
    match driver.events.get(&(event as usize)).copied() {
        Some(records) if records.complete == records.made => 0,
        Some(_) => NOT_READY,
        None => {
            driver
                .misuse
                .push("an event that is not there was asked for".into());
            400
        }
    }
}

unsafe extern "system" fn none1<A>(_: A) -> u32 {
    0
}
unsafe extern "system" fn none2<A, B>(_: A, _: B) -> u32 {
    0
}
unsafe extern "system" fn none3<A, B, C>(_: A, _: B, _: C) -> u32 {
    0
}
unsafe extern "system" fn none4<A, B, C, D>(_: A, _: B, _: C, _: D) -> u32 {
    0
}
unsafe extern "system" fn none6<A, B, C, D, E, F>(_: A, _: B, _: C, _: D, _: E, _: F) -> u32 {
    0
}
#[allow(clippy::too_many_arguments, reason = "as cuLaunchKernel")]
unsafe extern "system" fn launch<S, F, P>(
    _: F,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: S,
    _: P,
    _: P,
) -> u32 {
    0
}

static TABLE: Table = Table {
    ctx_get_current: none1,
    ctx_set_current: none1,
    thread_exchange_capture_mode: none1,
    stream_create: none2,
    stream_destroy: none1,
    stream_synchronize: none1,
    stream_wait_event: wait,
    stream_wait_value: none4,
    stream_write_value: none4,
    event_create: create,
    event_destroy: destroy,
    event_record: record,
    event_query: query,
    event_synchronize: none1,
    memset_d32_async: none4,
    memcpy_dtod_async: none4,
    memcpy_3d_async: none2,
    launch_kernel: launch,
    mem_host_alloc: none3,
    mem_host_get_device_pointer: none3,
    mem_free_host: none1,
    import_external_memory: none2,
    destroy_external_memory: none1,
    get_mapped_mipmapped_array: none3,
    mipmapped_array_get_level: none3,
    mipmapped_array_destroy: none1,
    import_external_semaphore: none2,
    destroy_external_semaphore: none1,
    signal_external: none4,
    wait_external: none4,
    stream_begin_capture: none2,
    stream_end_capture: none2,
    stream_get_capture_info: none6,
    graph_instantiate: none3,
    graph_launch: none2,
    graph_set_wait: none3,
    graph_set_signal: none3,
    graph_exec_destroy: none1,
    graph_destroy: none1,
};

/// The calls of this driver. Its only context is null, which is current on every thread.
pub(crate) fn calls() -> Calls {
    Calls {
        table: &TABLE,
        context: std::ptr::null_mut::<sys::CUctx_st>(),
    }
}

/// The stream with this number.
pub(crate) fn stream(number: usize) -> Stream {
    number as Stream
}
