//! A driver for tests without a GPU: streams that go on when the test says so, and events in them.
#![allow(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "stands in for the driver's functions"
)]
#![allow(clippy::unwrap_used, reason = "a test's")]

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_uint, c_void};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::LocalKey;

use cudarc::driver::sys;

use crate::driver::table::{Driver, EventHandle, MemOp, Optional, Raw, Symbols};

/// A stream: how much was put there, and how much of that has finished. An event is put there, and so is a wait, which is
/// taken for work that ends by itself.
#[derive(Default)]
struct Stream {
    put: AtomicU64,
    finished: AtomicU64,
    /// Writes of words that were put there, and not made yet.
    writes: Mutex<Vec<MemOp>>,
    /// It goes on by itself, as far as its waits let it.
    goes_on: bool,
    /// Those waits: how much stood before each, and the record that it was for.
    waits: Mutex<Vec<(u64, Record)>>,
    /// The context that it was made in.
    context: AtomicPtr<sys::CUctx_st>,
    destroyed: AtomicBool,
    /// How often the driver was asked whether it is being captured.
    questions: AtomicU64,
    capture: Mutex<Capture>,
}

/// Whether a stream is being captured, and how many calls have gone into the graph instead of the
/// stream.
#[derive(Default)]
struct Capture {
    /// Its number; `None` for no capture.
    id: Option<u64>,
    calls: u64,
}

/// The stream that an event was recorded in, and where.
type Record = (&'static Stream, u64);

impl Stream {
    fn has_finished(&self, at: u64) -> bool {
        if !self.goes_on {
            return self.finished.load(Ordering::SeqCst) >= at;
        }
        let waits = self.waits.lock().unwrap();
        let mut before = waits.iter().filter(|(stands, _)| *stands < at);
        before.all(|(_, (on, at))| on.has_finished(*at))
    }
}

/// An event: the stream that it was recorded in last, and where. Never freed, so that its use after its end shows.
#[derive(Default)]
struct Event {
    record: Mutex<Option<Record>>,
    /// Recorded in a capture last: of this stream, with this number.
    captured: Mutex<Option<(&'static Stream, u64)>>,
    destroyed: AtomicBool,
    flags: c_uint,
    /// Opened by a handle: the event that it is one with.
    opened: Option<&'static Event>,
}

impl Event {
    /// That which all who have opened it share.
    fn shared(&self) -> &Self {
        self.opened.unwrap_or(self)
    }
}

/// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_CAPTURED_EVENT`.
const INVALID_VALUE: u32 = 1;
const CAPTURED_EVENT: u32 = 907;
/// `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_NOT_READY`.
const OUT_OF_MEMORY: u32 = 2;
const NOT_READY: u32 = 600;

/// A semaphore of another API: no more than what is imported.
static FOREIGN: u8 = 0;

unsafe fn stream(raw: sys::CUstream) -> &'static Stream {
    /// The legacy default streams of all contexts.
    static LEGACY: OnceLock<Stream> = OnceLock::new();
    if raw.addr() <= 1 {
        return LEGACY.get_or_init(Stream::default);
    }
    let stream: &'static Stream = unsafe { &*raw.cast::<Stream>() };
    if stream.destroyed.load(Ordering::SeqCst) {
        // No panic gets through the driver's functions.
        eprintln!("a stream is used that was destroyed");
        std::process::abort();
    }
    stream
}

impl Stream {
    /// The capture that a call goes into, instead of into the stream.
    fn captures_call(&self) -> Option<u64> {
        let mut capture = self.capture.lock().unwrap();
        if capture.id.is_some() {
            capture.calls += 1;
        }
        capture.id
    }
}

/// Begins to capture a stream, as an application does.
pub(crate) fn begin_capture(raw: sys::CUstream) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    *unsafe { stream(raw) }.capture.lock().unwrap() = Capture {
        id: Some(NEXT.fetch_add(1, Ordering::SeqCst)),
        calls: 0,
    };
}

/// Ends the capture of a stream, and tells how many calls went into the graph.
pub(crate) fn end_capture(raw: sys::CUstream) -> u64 {
    std::mem::take(&mut *unsafe { stream(raw) }.capture.lock().unwrap()).calls
}

/// How often the driver was asked whether a stream is being captured.
pub(crate) fn capture_questions(raw: sys::CUstream) -> u64 {
    unsafe { stream(raw) }.questions.load(Ordering::SeqCst)
}

unsafe extern "system" fn stream_get_capture_info(
    of: sys::CUstream,
    status: *mut c_uint,
    id: *mut u64,
    graph: *mut sys::CUgraph,
    _: *mut c_void,
    _: *mut c_void,
) -> u32 {
    let of = unsafe { stream(of) };
    of.questions.fetch_add(1, Ordering::SeqCst);
    let now = of.capture.lock().unwrap().id;
    unsafe {
        status.write(now.is_some().into());
        id.write(now.unwrap_or(0));
        graph.write(null_mut());
    }
    0
}

unsafe extern "system" fn stream_get_ctx(of: sys::CUstream, to: *mut sys::CUcontext) -> u32 {
    unsafe { to.write(stream(of).context.load(Ordering::SeqCst)) };
    0
}

unsafe extern "system" fn stream_query(of: sys::CUstream) -> u32 {
    let of = unsafe { stream(of) };
    if of.has_finished(of.put.load(Ordering::SeqCst)) {
        0
    } else {
        NOT_READY
    }
}

/// Lets everything finish that is in the stream.
unsafe extern "system" fn stream_synchronize(of: sys::CUstream) -> u32 {
    let of = unsafe { stream(of) };
    of.finished
        .fetch_max(of.put.load(Ordering::SeqCst), Ordering::SeqCst);
    0
}

unsafe extern "system" fn stream_destroy(raw: sys::CUstream) -> u32 {
    unsafe { stream(raw) }
        .destroyed
        .store(true, Ordering::SeqCst);
    // From here on the handle is free.
    do_what_is_due(&ONCE_DESTROYED);
    0
}

unsafe fn event<'e>(raw: sys::CUevent) -> &'e Event {
    let event = unsafe { &*raw.cast::<Event>() };
    let destroyed = |event: &Event| event.destroyed.load(Ordering::SeqCst);
    if destroyed(event) || destroyed(event.shared()) {
        // No panic gets through the driver's functions.
        eprintln!("an event is used that was destroyed");
        std::process::abort();
    }
    event
}

unsafe extern "system" fn stream_create(to: *mut sys::CUstream, _: c_uint) -> u32 {
    let again = AGAIN.replace(null_mut());
    let made: &'static Stream = if again.is_null() {
        Box::leak(Box::new(Stream {
            goes_on: GO_ON.get(),
            context: AtomicPtr::new(CURRENT.with(|current| current.load(Ordering::Relaxed))),
            ..Stream::default()
        }))
    } else {
        unsafe { &*again.cast::<Stream>() }
    };
    made.destroyed.store(false, Ordering::SeqCst);
    unsafe { to.write(std::ptr::from_ref(made).cast_mut().cast()) };
    0
}

std::thread_local! {
    static GO_ON: Cell<bool> = const { Cell::new(false) };
    static AGAIN: Cell<sys::CUstream> = const { Cell::new(null_mut()) };
}

/// The next stream that this thread makes gets the handle of this one, which is destroyed.
pub(crate) fn use_handle_again(of: Raw<sys::CUstream_st>) {
    AGAIN.set(of.0);
}

/// Whether streams that this thread makes from here on go on by themselves, as far as the waits in them let them.
pub(crate) fn streams_go_on(go_on: bool) {
    GO_ON.set(go_on);
}

unsafe extern "system" fn event_create(to: *mut sys::CUevent, flags: c_uint) -> u32 {
    unsafe { make_event(to, flags, None) };
    0
}

unsafe fn make_event(to: *mut sys::CUevent, flags: c_uint, opened: Option<&'static Event>) {
    let made: &'static Event = Box::leak(Box::new(Event {
        flags,
        opened,
        ..Event::default()
    }));
    if flags & INTERPROCESS != 0 {
        count(|shared| shared.made += 1);
    }
    unsafe { to.write(std::ptr::from_ref(made).cast_mut().cast()) };
}

/// `CU_EVENT_INTERPROCESS`, and what CUDA asks for with it.
const INTERPROCESS: c_uint = 4;
const DISABLE_TIMING: c_uint = 2;

/// What this thread has done with events of several processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SharedEvents {
    /// Made, or opened.
    pub(crate) made: u32,
    pub(crate) opened: u32,
    pub(crate) recorded: u32,
    pub(crate) destroyed: u32,
}

std::thread_local! {
    static SHARED: Cell<SharedEvents> = const { Cell::new(SharedEvents { made: 0, opened: 0, recorded: 0, destroyed: 0 }) };
}

fn count(change: impl FnOnce(&mut SharedEvents)) {
    let mut now = SHARED.get();
    change(&mut now);
    SHARED.set(now);
}

/// What this thread has done with events of several processes, since it began.
pub(crate) fn shared_events() -> SharedEvents {
    SHARED.get()
}

unsafe extern "system" fn get_event_handle(to: *mut EventHandle, raw: sys::CUevent) -> u32 {
    if unsafe { event(raw) }.flags != INTERPROCESS | DISABLE_TIMING {
        return 400;
    }
    let address = raw.expose_provenance().to_ne_bytes();
    let mut bytes = [0; 64];
    bytes[..address.len()].copy_from_slice(&address);
    unsafe { to.write(EventHandle(bytes)) };
    0
}

/// As in another process: it is not seen to be the same.
unsafe extern "system" fn open_event_handle(to: *mut sys::CUevent, handle: EventHandle) -> u32 {
    let (address, rest) = handle.0.split_at(size_of::<usize>());
    if rest.iter().any(|&byte| byte != 0) {
        return 400;
    }
    let address = usize::from_ne_bytes(address.try_into().unwrap());
    let of: &'static Event = unsafe { event(std::ptr::with_exposed_provenance_mut(address)) };
    count(|shared| shared.opened += 1);
    unsafe { make_event(to, INTERPROCESS | DISABLE_TIMING, Some(of)) };
    0
}

/// No platform for that.
unsafe extern "system" fn no_event_handle(_: *mut EventHandle, _: sys::CUevent) -> u32 {
    801
}

unsafe extern "system" fn stream_wait_event(
    on: sys::CUstream,
    raw: sys::CUevent,
    _: c_uint,
) -> u32 {
    do_what_is_due(&BEFORE_PUT);
    let on = unsafe { stream(on) };
    if on.captures_call().is_some() {
        return 0;
    }
    let event = unsafe { event(raw) };
    if let Some((of, id)) = *event.captured.lock().unwrap() {
        // As long as that goes on, the stream would be captured from here on.
        let goes_on = of.capture.lock().unwrap().id == Some(id);
        return if goes_on { 0 } else { INVALID_VALUE };
    }
    let record = *event.shared().record.lock().unwrap();
    if let Some(record) = record {
        let before = on.put.load(Ordering::SeqCst);
        on.waits.lock().unwrap().push((before, record));
    }
    0
}

unsafe extern "system" fn event_destroy(raw: sys::CUevent) -> u32 {
    let event = unsafe { event(raw) };
    event.destroyed.store(true, Ordering::SeqCst);
    if event.flags & INTERPROCESS != 0 {
        count(|shared| shared.destroyed += 1);
    }
    0
}

unsafe extern "system" fn event_record_with_flags(
    raw: sys::CUevent,
    on: sys::CUstream,
    _: c_uint,
) -> u32 {
    unsafe { event_record(raw, on) }
}

unsafe extern "system" fn event_record(raw: sys::CUevent, on: sys::CUstream) -> u32 {
    do_what_is_due(&BEFORE_PUT);
    let on = unsafe { stream(on) };
    let event = unsafe { event(raw) };
    let capture = on.captures_call();
    *event.captured.lock().unwrap() = capture.map(|id| (on, id));
    if capture.is_some() {
        return 0;
    }
    if event.flags & INTERPROCESS != 0 {
        count(|shared| shared.recorded += 1);
    }
    let mut record = event.shared().record.lock().unwrap();
    let at = on.put.fetch_add(1, Ordering::SeqCst) + 1;
    *record = Some((on, at));
    0
}

unsafe extern "system" fn event_query(raw: sys::CUevent) -> u32 {
    let event = unsafe { event(raw) };
    if event.captured.lock().unwrap().is_some() {
        return CAPTURED_EVENT;
    }
    let answer = {
        let record = *event.shared().record.lock().unwrap();
        match record {
            Some((on, at)) if !on.has_finished(at) => NOT_READY,
            _ => 0,
        }
    };
    do_what_is_due(&MEANWHILE);
    answer
}

type Due = LocalKey<RefCell<Option<Box<dyn FnOnce()>>>>;

fn do_what_is_due(due: &'static Due) {
    // Out of its cell: what is done may come here, too. A thread that ends has none.
    let action = due.try_with(|due| due.borrow_mut().take());
    if let Ok(Some(action)) = action {
        action();
    }
}

std::thread_local! {
    static MEANWHILE: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static BEFORE_PUT: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static ONCE_DESTROYED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// Has `action` done while this thread asks about an event the next time: when the answer is known, and not told yet.
pub(crate) fn while_asked(action: impl FnOnce() + 'static) {
    MEANWHILE.set(Some(Box::new(action)));
}

/// Has `action` done when this thread next records an event or waits for one: before that is in the
/// stream.
pub(crate) fn before_the_next_is_put(action: impl FnOnce() + 'static) {
    BEFORE_PUT.set(Some(Box::new(action)));
}

/// Has `action` done when this thread destroys a stream the next time: once the handle is free.
pub(crate) fn once_destroyed(action: impl FnOnce() + 'static) {
    ONCE_DESTROYED.set(Some(Box::new(action)));
}

unsafe extern "system" fn import(
    to: *mut sys::CUexternalSemaphore,
    _: *const sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
) -> u32 {
    unsafe { to.write((&raw const FOREIGN).cast_mut().cast()) };
    0
}

/// Takes the descriptor of what it imports. Closes one that it refuses; the number is another
/// file's then.
unsafe extern "system" fn import_memory(
    _: *mut sys::CUexternalMemory,
    desc: *const sys::CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
) -> u32 {
    let mut fd = unsafe { OwnedFd::from_raw_fd((*desc).handle.fd) };
    let inode = rustix::fs::fstat(&fd).unwrap().st_ino;
    FILES.with_borrow_mut(|files| files.push(inode));
    let refused = REFUSED.get().checked_sub(1);
    if let Some(left) = refused {
        REFUSED.set(left);
        let (other, _) = std::io::pipe().unwrap();
        rustix::io::dup2(other, &mut fd).unwrap();
    }
    // The driver's, or the other file's.
    let _ = fd.into_raw_fd();
    if refused.is_some() { OUT_OF_MEMORY } else { 0 }
}

std::thread_local! {
    static FILES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The inodes behind the descriptors that this thread has had imported as memory since the last
/// time.
pub(crate) fn imported_files() -> Vec<u64> {
    FILES.take()
}

unsafe extern "system" fn destroy_semaphore(_: sys::CUexternalSemaphore) -> u32 {
    SEMAPHORES_GONE.set(SEMAPHORES_GONE.get() + 1);
    0
}

std::thread_local! {
    static SEMAPHORES_GONE: Cell<u32> = const { Cell::new(0) };
}

/// How many semaphores this thread has destroyed since it was last asked.
pub(crate) fn semaphores_gone() -> u32 {
    SEMAPHORES_GONE.replace(0)
}

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_MODE`.
const COMPUTE_MODE: c_uint = 20;

/// It can everything.
unsafe extern "system" fn attribute(to: *mut c_int, attribute: c_uint, _: sys::CUdevice) -> u32 {
    unsafe { to.write((attribute != COMPUTE_MODE).into()) };
    0
}

unsafe extern "system" fn signal_external(
    semaphores: *const sys::CUexternalSemaphore,
    params: *const sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    count: c_uint,
    on: sys::CUstream,
) -> u32 {
    let params = unsafe { std::slice::from_raw_parts(params, count as usize) };
    let values = params.iter().map(|params| params.params.fence.value);
    unsafe { note("signal", semaphores, values.collect(), on) }
}

unsafe extern "system" fn wait_external(
    semaphores: *const sys::CUexternalSemaphore,
    params: *const sys::CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    count: c_uint,
    on: sys::CUstream,
) -> u32 {
    let params = unsafe { std::slice::from_raw_parts(params, count as usize) };
    let values = params.iter().map(|params| params.params.fence.value);
    unsafe { note("wait", semaphores, values.collect(), on) }
}

unsafe fn note(
    what: &'static str,
    semaphores: *const sys::CUexternalSemaphore,
    values: Vec<u64>,
    on: sys::CUstream,
) -> u32 {
    let semaphores = unsafe { std::slice::from_raw_parts(semaphores, values.len()) };
    let foreign = (&raw const FOREIGN).cast_mut().cast();
    if semaphores.iter().any(|&semaphore| semaphore != foreign) {
        return 1;
    }
    let stream = unsafe { stream(on) };
    stream.put.fetch_add(1, Ordering::SeqCst);
    EXTERNAL.with(|calls| calls.borrow_mut().push((what, values)));
    0
}

std::thread_local! {
    static EXTERNAL: RefCell<Vec<(&'static str, Vec<u64>)>> = const { RefCell::new(Vec::new()) };
}

/// The calls for external semaphores that this thread has made since the last time, each with its values.
pub(crate) fn external_calls() -> Vec<(&'static str, Vec<u64>)> {
    EXTERNAL.take()
}

/// A call for words of memory, or for the page that they lie in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Register(usize),
    Unregister(usize),
    /// A call of its own, or part of one.
    Wait(u64),
    Write(u64),
    Batch(Vec<Call>),
}

std::thread_local! {
    static MEMORY: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
    /// So many more writes of words are refused.
    static UNWRITTEN: Cell<u32> = const { Cell::new(0) };
}

fn note_call(call: Call) {
    MEMORY.with_borrow_mut(|calls| calls.push(call));
}

/// The calls for words of memory that this thread has made since the last time.
pub(crate) fn memory_calls() -> Vec<Call> {
    MEMORY.take()
}

/// So many more calls that write words are refused by the driver.
pub(crate) fn refuse_writes(times: u32) {
    UNWRITTEN.set(times);
}

unsafe extern "system" fn host_register(at: *mut c_void, bytes: usize, flags: c_uint) -> u32 {
    // The page must be there: a byte of it is.
    let there = unsafe { at.cast::<u64>().read_volatile() } != 0;
    note_call(Call::Register(bytes));
    u32::from(flags != 3 || !there)
}

unsafe extern "system" fn host_unregister(at: *mut c_void) -> u32 {
    // Still mapped.
    let _ = unsafe { at.cast::<u64>().read_volatile() };
    note_call(Call::Unregister(4096));
    0
}

unsafe extern "system" fn device_pointer(
    to: *mut sys::CUdeviceptr,
    of: *mut c_void,
    _: c_uint,
) -> u32 {
    unsafe { to.write(of.expose_provenance() as u64) };
    0
}

unsafe fn one_op(on: sys::CUstream, op: MemOp) -> Result<Call, u32> {
    let stream = unsafe { stream(on) };
    let call = match op.operation {
        MemOp::WAIT => Call::Wait(op.value),
        MemOp::WRITE => {
            if let Some(left) = UNWRITTEN.get().checked_sub(1) {
                UNWRITTEN.set(left);
                return Err(1);
            }
            stream.writes.lock().unwrap().push(op);
            Call::Write(op.value)
        }
        _ => return Err(1),
    };
    stream.put.fetch_add(1, Ordering::SeqCst);
    Ok(call)
}

unsafe fn single(on: sys::CUstream, op: MemOp) -> u32 {
    match unsafe { one_op(on, op) } {
        Ok(call) => {
            note_call(call);
            0
        }
        Err(code) => code,
    }
}

unsafe extern "system" fn wait_value(on: sys::CUstream, at: u64, value: u64, flags: c_uint) -> u32 {
    unsafe { single(on, MemOp::wait(at, value, flags)) }
}

unsafe extern "system" fn write_value(on: sys::CUstream, at: u64, value: u64, _: c_uint) -> u32 {
    unsafe { single(on, MemOp::write(at, value)) }
}

unsafe extern "system" fn batch(
    on: sys::CUstream,
    count: c_uint,
    ops: *mut MemOp,
    _: c_uint,
) -> u32 {
    if count == 0 || count >= 256 {
        return 1;
    }
    let ops = unsafe { std::slice::from_raw_parts(ops, count as usize) };
    let calls = ops.iter().map(|&op| unsafe { one_op(on, op) });
    match calls.collect() {
        Ok(calls) => {
            note_call(Call::Batch(calls));
            0
        }
        Err(code) => code,
    }
}

std::thread_local! {
    static CURRENT: AtomicPtr<sys::CUctx_st> = const { AtomicPtr::new(null_mut()) };
}

unsafe extern "system" fn get_current(to: *mut sys::CUcontext) -> u32 {
    let current = CURRENT.with(|current| current.load(Ordering::Relaxed));
    unsafe { to.write(current) };
    0
}

unsafe extern "system" fn set_current(context: sys::CUcontext) -> u32 {
    CURRENT.with(|current| current.store(context, Ordering::Relaxed));
    0
}

/// The context that is current on this thread.
pub(crate) fn current_context() -> sys::CUcontext {
    CURRENT.with(|current| current.load(Ordering::Relaxed))
}

/// Makes a context current on this thread, or none.
pub(crate) fn make_current(context: sys::CUcontext) {
    unsafe { set_current(context) };
}

unsafe extern "system" fn pop_current(_: *mut sys::CUcontext) -> u32 {
    unsafe { set_current(null_mut()) }
}

thread_local! {
    /// What of its memory has been freed, in order.
    static FREED: RefCell<Vec<sys::CUdeviceptr>> = const { RefCell::new(Vec::new()) };
    /// So many more allocations are refused.
    static REFUSED: Cell<u32> = const { Cell::new(0) };
}

/// Memory, each of its own, that nobody can reach.
unsafe extern "system" fn mem_alloc(to: *mut sys::CUdeviceptr, _: usize) -> u32 {
    static NEXT: AtomicU64 = AtomicU64::new(4_096);
    if let Some(left) = REFUSED.get().checked_sub(1) {
        REFUSED.set(left);
        return OUT_OF_MEMORY;
    }
    unsafe { to.write(NEXT.fetch_add(4_096, Ordering::SeqCst)) };
    0
}

/// Pinned memory. Never freed.
unsafe extern "system" fn mem_host_alloc(to: *mut *mut c_void, bytes: usize, _: c_uint) -> u32 {
    let words = vec![u64::MAX; bytes.div_ceil(8)].leak();
    unsafe { to.write(words.as_mut_ptr().cast()) };
    0
}

unsafe extern "system" fn mem_free(pointer: sys::CUdeviceptr) -> u32 {
    FREED.with_borrow_mut(|freed| freed.push(pointer));
    0
}

/// There is no memory for so many more allocations of this thread.
pub(crate) fn refuse_memory(times: u32) {
    REFUSED.set(times);
}

/// What this thread has freed since it was last asked.
pub(crate) fn freed() -> Vec<sys::CUdeviceptr> {
    FREED.take()
}

pub(crate) use devices::*;

/// Devices of this driver, and what tests do with their queues.
#[cfg(test)]
mod devices {
    use syncline_core::backend::Attachment;
    use syncline_core::{Info, Object, Origin, Result, TimelineFd};

    use super::*;
    use crate::device::context::Context;
    use crate::device::open::Device;
    use crate::queue::submission::Queue;

    /// A device of such a driver.
    pub(crate) fn device() -> Device {
        device_with(Optional {
            stream_wait_value64: Some(wait_value),
            stream_write_value64: Some(write_value),
            stream_batch_mem_op: Some(batch),
            ipc_get_event_handle: Some(get_event_handle),
            ipc_open_event_handle: Some(open_event_handle),
            ..Optional::none()
        })
    }

    /// A device of a driver with these of the functions that not every driver has.
    pub(crate) fn device_with(optional: Optional) -> Device {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let context = std::ptr::without_provenance_mut(NEXT.fetch_add(1, Ordering::SeqCst) << 6);
        device_over(context, optional)
    }

    /// Another device over the context of one.
    pub(crate) fn another_over(device: &Device) -> Device {
        device_over(device.raw_context(), Optional::none())
    }

    fn device_over(context: sys::CUcontext, optional: Optional) -> Device {
        let symbols = Symbols {
            stream_create,
            stream_query,
            stream_synchronize,
            stream_destroy,
            stream_get_ctx,
            stream_get_capture_info,
            event_create,
            event_destroy,
            event_record,
            event_record_with_flags,
            event_query,
            stream_wait_event,
            import_external_semaphore: import,
            destroy_external_semaphore: destroy_semaphore,
            import_external_memory: import_memory,
            signal_external_semaphores_async: signal_external,
            wait_external_semaphores_async: wait_external,
            mem_alloc,
            mem_host_alloc,
            mem_free,
            device_get_attribute: attribute,
            ctx_get_current: get_current,
            ctx_set_current: set_current,
            ctx_push_current: set_current,
            ctx_pop_current: pop_current,
            mem_host_register: host_register,
            mem_host_unregister: host_unregister,
            mem_host_get_device_pointer: device_pointer,
            ..Symbols::idle()
        };
        let driver = Driver::of(symbols, optional);
        let object = Object::new("device", "emulated");
        let info = driver.info(0).unwrap();
        let context = unsafe { Context::adopted(&driver, context, &object, None) };
        Device::new(context, object, info).unwrap()
    }

    /// The descriptor of what a device like this one exports, which is nothing.
    pub(crate) fn timeline_fd(info: &Info) -> TimelineFd {
        let (end, _) = std::io::pipe().unwrap();
        unsafe { TimelineFd::from_fd(end.into(), Origin::of(info)) }
    }

    /// This device's part in a timeline of another API.
    pub(crate) fn import_timeline(device: &Device) -> Result<Attachment> {
        // SAFETY: this driver has no semaphores.
        let imported = unsafe { device.import_timeline(timeline_fd(device.info())) };
        imported.map_err(|rejected| rejected.error)
    }

    /// The same where this device alone signals.
    pub(crate) fn import_timeline_to_signal(device: &Device, initial: u64) -> Result<Attachment> {
        let handle = timeline_fd(device.info());
        // SAFETY: this driver has no semaphores.
        let imported = unsafe { device.import_timeline_to_signal(handle, initial) };
        imported.map_err(|rejected| rejected.error)
    }

    /// How much was put into the queue's stream.
    pub(crate) fn put(queue: &Queue) -> u64 {
        let stream = unsafe { stream(queue.queue_stream().stream.raw()) };
        stream.put.load(Ordering::SeqCst)
    }

    /// Lets so much finish in the queue's stream.
    pub(crate) fn finish(queue: &Queue, through: u64) {
        let stream = unsafe { stream(queue.queue_stream().stream.raw()) };
        stream.finished.fetch_max(through, Ordering::SeqCst);
    }
    /// A device of a driver that has the calls for events of several processes, on a platform that does not.
    pub(crate) fn device_without_platform() -> Device {
        device_with(Optional {
            ipc_get_event_handle: Some(no_event_handle),
            ipc_open_event_handle: Some(open_event_handle),
            ..Optional::none()
        })
    }

    /// Makes the writes in the queue's stream, whether or not an event has come so far that the host can see what was before them.
    pub(crate) fn write(queue: &Queue) {
        let stream = unsafe { stream(queue.queue_stream().stream.raw()) };
        for op in std::mem::take(&mut *stream.writes.lock().unwrap()) {
            // The device's addresses are the host's.
            let word = std::ptr::with_exposed_provenance_mut::<u64>(op.address as usize);
            unsafe { AtomicU64::from_ptr(word) }.store(op.value, Ordering::SeqCst);
        }
    }
}
