//! A driver for unit tests without a GPU. Its streams advance when the test says so.
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
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::thread::LocalKey;

use cudarc::driver::sys;
use syncline_core::backend::kit::Mutex;

use crate::driver::array::{Copy3d, MipmappedArrayDesc, ResourceDesc};
use crate::driver::table::{
    Driver, EventHandle, MemOp, Optional, Raw, SemaphoreNodeParams, Symbols,
};
use crate::driver::virtual_memory::{AccessDesc, AllocationProp};

/// A stream: counters of its commands and of the finished ones.
///
/// An event record is a command. A wait for an event is none, because it is assumed to end by
/// itself.
#[derive(Default)]
struct Stream {
    put: AtomicU64,
    finished: AtomicU64,
    /// Memory writes that were submitted and not executed yet.
    writes: Mutex<Vec<MemOp>>,
    /// Host functions with their data. They stay here, as in a graph.
    functions: Mutex<Vec<(HostFunction, usize)>>,
    /// True if the stream advances by itself, except behind its waits.
    goes_on: bool,
    /// Waits of such a stream: the number of earlier commands, and the awaited record.
    waits: Mutex<Vec<(u64, Record)>>,
    /// The context that was current at its creation.
    context: AtomicPtr<sys::CUctx_st>,
    destroyed: AtomicBool,
    /// The number of capture queries.
    questions: AtomicU64,
    capture: Mutex<Capture>,
}

type HostFunction = unsafe extern "C" fn(*mut c_void);

/// The capture state of a stream, and the number of calls that the graph has taken.
#[derive(Default)]
struct Capture {
    /// The number of the capture, or `None`.
    id: Option<u64>,
    calls: u64,
}

/// A position: a stream and its number of commands.
type Record = (&'static Stream, u64);

impl Stream {
    fn has_finished(&self, at: u64) -> bool {
        if !self.goes_on {
            return self.finished.load(Ordering::SeqCst) >= at;
        }
        let waits = self.waits.lock();
        let mut before = waits.iter().filter(|(stands, _)| *stands < at);
        before.all(|(_, (on, at))| on.has_finished(*at))
    }
}

/// An event with its latest record. Never freed, so that a use after its destruction is detected.
#[derive(Default)]
struct Event {
    record: Mutex<Option<Record>>,
    /// The stream and capture of the latest record, if that was in a capture.
    captured: Mutex<Option<(&'static Stream, u64)>>,
    destroyed: AtomicBool,
    flags: c_uint,
    /// The original event, if this one was opened from a handle.
    opened: Option<&'static Event>,
}

impl Event {
    /// The state that all opened copies of the event share.
    fn shared(&self) -> &Self {
        self.opened.unwrap_or(self)
    }
}

/// `CUDA_ERROR_INVALID_VALUE` and `CUDA_ERROR_CAPTURED_EVENT`.
const INVALID_VALUE: u32 = 1;
const CAPTURED_EVENT: u32 = 907;
/// `CUDA_ERROR_OUT_OF_MEMORY` and `CUDA_ERROR_NOT_READY`.
const OUT_OF_MEMORY: u32 = 2;
const NOT_READY: u32 = 600;
/// `CUDA_ERROR_ILLEGAL_ADDRESS`.
const ILLEGAL_ADDRESS: u32 = 700;

/// Its address stands for every imported semaphore.
static FOREIGN: u8 = 0;

unsafe fn stream(raw: sys::CUstream) -> &'static Stream {
    /// The legacy default stream, shared by all contexts.
    static LEGACY: OnceLock<Stream> = OnceLock::new();
    if raw.addr() <= 1 {
        return LEGACY.get_or_init(Stream::default);
    }
    let stream: &'static Stream = unsafe { &*raw.cast::<Stream>() };
    if stream.destroyed.load(Ordering::SeqCst) {
        // A panic must not unwind through the driver's functions.
        eprintln!("a stream is used that was destroyed");
        std::process::abort();
    }
    stream
}

impl Stream {
    /// The capture that takes a call instead of the stream, if there is one.
    fn captures_call(&self) -> Option<u64> {
        let mut capture = self.capture.lock();
        if capture.id.is_some() {
            capture.calls += 1;
        }
        capture.id
    }
}

/// Begins a capture of a stream, as an application does.
pub(crate) fn begin_capture(raw: sys::CUstream) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    *unsafe { stream(raw) }.capture.lock() = Capture {
        id: Some(NEXT.fetch_add(1, Ordering::SeqCst)),
        calls: 0,
    };
}

/// Ends the capture of a stream, and returns the number of calls in the graph.
pub(crate) fn end_capture(raw: sys::CUstream) -> u64 {
    std::mem::take(&mut *unsafe { stream(raw) }.capture.lock()).calls
}

/// The number of capture queries of a stream.
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
    let now = of.capture.lock().id;
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

std::thread_local! {
    /// True if queries of streams tell that the device is lost.
    static LOST: Cell<bool> = const { Cell::new(false) };
}

/// Chooses whether this thread's queries of streams tell that the device is lost.
pub(crate) fn queries_find_a_loss(find: bool) {
    LOST.set(find);
}

unsafe extern "system" fn stream_query(of: sys::CUstream) -> u32 {
    if LOST.get() {
        return ILLEGAL_ADDRESS;
    }
    let of = unsafe { stream(of) };
    if of.has_finished(of.put.load(Ordering::SeqCst)) {
        0
    } else {
        NOT_READY
    }
}

/// Finishes all commands of the stream.
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
    // From here on the handle may be reused.
    do_what_is_due(&ONCE_DESTROYED);
    0
}

unsafe fn event<'e>(raw: sys::CUevent) -> &'e Event {
    let event = unsafe { &*raw.cast::<Event>() };
    let destroyed = |event: &Event| event.destroyed.load(Ordering::SeqCst);
    if destroyed(event) || destroyed(event.shared()) {
        // A panic must not unwind through the driver's functions.
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

/// The next stream that this thread creates reuses this handle of a destroyed stream.
pub(crate) fn use_handle_again(of: Raw<sys::CUstream_st>) {
    AGAIN.set(of.0);
}

/// Chooses whether new streams of this thread advance by themselves, except behind their waits.
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

/// `CU_EVENT_INTERPROCESS`, and the flag that CUDA requires with it.
const INTERPROCESS: c_uint = 4;
const DISABLE_TIMING: c_uint = 2;

/// Counts of this thread's operations on interprocess events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SharedEvents {
    /// Created or opened.
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

/// Counts of this thread's operations on interprocess events, since the thread began.
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

/// Opens the event as a separate object, as another process does.
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

/// Fails as on a platform without interprocess events.
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
    if let Some((of, id)) = *event.captured.lock() {
        // During that capture, the stream would be captured too from here on.
        let goes_on = of.capture.lock().id == Some(id);
        return if goes_on { 0 } else { INVALID_VALUE };
    }
    let record = *event.shared().record.lock();
    if let Some(record) = record {
        let before = on.put.load(Ordering::SeqCst);
        on.waits.lock().push((before, record));
    }
    0
}

/// True if the event of this driver was destroyed.
pub(crate) fn is_destroyed(raw: sys::CUevent) -> bool {
    // SAFETY: an event of this driver, which never frees one.
    let event = unsafe { &*raw.cast::<Event>() };
    event.destroyed.load(Ordering::SeqCst)
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
    if let Some(left) = UNRECORDED.get().checked_sub(1) {
        UNRECORDED.set(left);
        return INVALID_VALUE;
    }
    let on = unsafe { stream(on) };
    let event = unsafe { event(raw) };
    let capture = on.captures_call();
    *event.captured.lock() = capture.map(|id| (on, id));
    if capture.is_some() {
        return 0;
    }
    if event.flags & INTERPROCESS != 0 {
        count(|shared| shared.recorded += 1);
    }
    let mut record = event.shared().record.lock();
    let at = on.put.fetch_add(1, Ordering::SeqCst) + 1;
    *record = Some((on, at));
    0
}

unsafe extern "system" fn event_query(raw: sys::CUevent) -> u32 {
    let event = unsafe { event(raw) };
    if event.captured.lock().is_some() {
        return CAPTURED_EVENT;
    }
    let answer = {
        let record = *event.shared().record.lock();
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
    // Taken out of its cell, because the action may call this function. A thread that ends has no
    // cell.
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

/// Runs `action` during this thread's next event query, before the query returns its result.
pub(crate) fn while_asked(action: impl FnOnce() + 'static) {
    MEANWHILE.set(Some(Box::new(action)));
}

/// Runs `action` when this thread next records or waits for an event, before the command.
pub(crate) fn before_the_next_is_put(action: impl FnOnce() + 'static) {
    BEFORE_PUT.set(Some(Box::new(action)));
}

/// Runs `action` when this thread next destroys a stream, after the handle is free.
pub(crate) fn once_destroyed(action: impl FnOnce() + 'static) {
    ONCE_DESTROYED.set(Some(Box::new(action)));
}

type Repeated = Box<dyn Fn()>;

std::thread_local! {
    static AT_GRAPHS: RefCell<Option<Repeated>> = const { RefCell::new(None) };
}

/// Runs `action` in each call of this thread that sets a signal node or launches a graph.
pub(crate) fn during_graph_calls(action: impl Fn() + 'static) {
    AT_GRAPHS.set(Some(Box::new(action)));
}

fn graph_call() -> u32 {
    AT_GRAPHS.with_borrow(|action| action.iter().for_each(|action| action()));
    0
}

unsafe extern "system" fn graph_exec_set_signal(
    _: sys::CUgraphExec,
    _: sys::CUgraphNode,
    _: *const SemaphoreNodeParams<sys::CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS>,
) -> u32 {
    graph_call()
}

unsafe extern "system" fn graph_launch(_: sys::CUgraphExec, _: sys::CUstream) -> u32 {
    graph_call()
}

unsafe extern "system" fn import(
    to: *mut sys::CUexternalSemaphore,
    _: *const sys::CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
) -> u32 {
    unsafe { to.write((&raw const FOREIGN).cast_mut().cast()) };
    0
}

/// Takes the descriptor if it succeeds.
///
/// Closes a rejected one, and reuses its number for another file.
unsafe extern "system" fn import_memory(
    to: *mut sys::CUexternalMemory,
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
    // The driver's descriptor, or the other file's.
    let _ = fd.into_raw_fd();
    if refused.is_some() {
        return OUT_OF_MEMORY;
    }
    unsafe { to.write(object()) };
    0
}

/// A unique handle of an object of this driver.
fn object<T>() -> *mut T {
    std::ptr::without_provenance_mut(unique() as usize)
}

unsafe extern "system" fn map_buffer(
    to: *mut sys::CUdeviceptr,
    _: sys::CUexternalMemory,
    _: *const sys::CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
) -> u32 {
    if is_map_refused() {
        return INVALID_VALUE;
    }
    unsafe { to.write(unique()) };
    0
}

unsafe extern "system" fn map_array(
    to: *mut sys::CUmipmappedArray,
    _: sys::CUexternalMemory,
    desc: *const MipmappedArrayDesc,
) -> u32 {
    if is_map_refused() {
        return INVALID_VALUE;
    }
    ARRAYS.with_borrow_mut(|arrays| arrays.push(unsafe { *desc }));
    unsafe { to.write(object()) };
    0
}

/// The handle of level N is N + 1 more than that of all levels.
unsafe extern "system" fn array_level(
    to: *mut sys::CUarray,
    of: sys::CUmipmappedArray,
    level: c_uint,
) -> u32 {
    if is_map_refused() {
        return INVALID_VALUE;
    }
    let level = of.addr() + level as usize + 1;
    unsafe { to.write(std::ptr::without_provenance_mut(level)) };
    0
}

unsafe extern "system" fn array_destroy(array: sys::CUmipmappedArray) -> u32 {
    unsafe { mem_free(array.addr() as u64) }
}

unsafe extern "system" fn surface_create(
    to: *mut sys::CUsurfObject,
    of: *const ResourceDesc,
) -> u32 {
    unsafe { view_create(to, of) }
}

unsafe extern "system" fn texture_create(
    to: *mut sys::CUtexObject,
    of: *const ResourceDesc,
    _: *const sys::CUDA_TEXTURE_DESC,
    _: *const c_void,
) -> u32 {
    unsafe { view_create(to, of) }
}

unsafe fn view_create(to: *mut u64, of: *const ResourceDesc) -> u32 {
    VIEWS.with_borrow_mut(|views| views.push(unsafe { *of }));
    unsafe { mem_alloc(to, 0) }
}

unsafe extern "system" fn view_destroy(view: u64) -> u32 {
    unsafe { mem_free(view) }
}

unsafe extern "system" fn copy_3d(copy: *const Copy3d, on: sys::CUstream) -> u32 {
    COPIES.with_borrow_mut(|copies| copies.push(unsafe { *copy }));
    unsafe { stream(on) }.put.fetch_add(1, Ordering::SeqCst);
    0
}

std::thread_local! {
    static ARRAYS: RefCell<Vec<MipmappedArrayDesc>> = const { RefCell::new(Vec::new()) };
    static VIEWS: RefCell<Vec<ResourceDesc>> = const { RefCell::new(Vec::new()) };
    static COPIES: RefCell<Vec<Copy3d>> = const { RefCell::new(Vec::new()) };
}

/// The arrays that this thread has mapped since the last call.
pub(crate) fn mapped_arrays() -> Vec<MipmappedArrayDesc> {
    ARRAYS.take()
}

/// What this thread has made surfaces and textures of since the last call.
pub(crate) fn views() -> Vec<ResourceDesc> {
    VIEWS.take()
}

/// The copies of arrays that this thread has submitted since the last call.
pub(crate) fn copies() -> Vec<Copy3d> {
    COPIES.take()
}

unsafe extern "system" fn destroy_memory(memory: sys::CUexternalMemory) -> u32 {
    unsafe { mem_free(memory.addr() as u64) }
}

std::thread_local! {
    static FILES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The inodes of the files that this thread has imported as memory since the last call.
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

/// The number of semaphores that this thread has destroyed since the last call.
pub(crate) fn semaphores_gone() -> u32 {
    SEMAPHORES_GONE.replace(0)
}

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_MODE`.
const COMPUTE_MODE: c_uint = 20;

/// Every capability is present.
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

/// This thread's calls for external semaphores since the last call, each with its values.
pub(crate) fn external_calls() -> Vec<(&'static str, Vec<u64>)> {
    EXTERNAL.take()
}

/// A call for memory words or for their page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    Register(usize),
    Unregister(usize),
    /// A single call, or an operation of a batch.
    Wait(u64),
    Write(u64),
    Batch(Vec<Call>),
}

std::thread_local! {
    static MEMORY: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
    /// The number of further memory writes that fail.
    static UNWRITTEN: Cell<u32> = const { Cell::new(0) };
    /// The number of further records of events that fail.
    static UNRECORDED: Cell<u32> = const { Cell::new(0) };
}

fn note_call(call: Call) {
    MEMORY.with_borrow_mut(|calls| calls.push(call));
}

/// This thread's calls for memory words since the last call.
pub(crate) fn memory_calls() -> Vec<Call> {
    MEMORY.take()
}

/// Makes the next `times` memory writes fail.
pub(crate) fn refuse_writes(times: u32) {
    UNWRITTEN.set(times);
}

/// Makes the next `times` records of events fail.
pub(crate) fn refuse_records(times: u32) {
    UNRECORDED.set(times);
}

unsafe extern "system" fn host_register(at: *mut c_void, bytes: usize, flags: c_uint) -> u32 {
    // Reads the page, which must be mapped.
    let there = unsafe { at.cast::<u64>().read_volatile() } != 0;
    note_call(Call::Register(bytes));
    u32::from(flags != 3 || !there)
}

unsafe extern "system" fn host_unregister(at: *mut c_void) -> u32 {
    // The page must still be mapped.
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

/// What the driver says of every address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pointed {
    /// `CU_MEMORYTYPE_HOST` is 1, `CU_MEMORYTYPE_DEVICE` is 2.
    pub(crate) kind: u64,
    pub(crate) managed: u64,
    /// Zero stands for the current context.
    pub(crate) context: u64,
    /// The bytes from the address to the end of its allocation.
    pub(crate) left: u64,
}

std::thread_local! {
    static POINTED: Cell<Pointed> = const {
        Cell::new(Pointed { kind: 1, managed: 0, context: 0, left: 64 })
    };
}

/// Chooses what the driver says of every address.
pub(crate) fn every_address_is(pointed: Pointed) {
    POINTED.set(pointed);
}

unsafe extern "system" fn pointer_attributes(
    count: c_uint,
    numbers: *const c_uint,
    to: *const *mut c_void,
    address: u64,
) -> u32 {
    let (numbers, to) = unsafe {
        let count = count as usize;
        (
            std::slice::from_raw_parts(numbers, count),
            std::slice::from_raw_parts(to, count),
        )
    };
    let it = POINTED.get();
    let context = match it.context {
        0 => current_context().addr() as u64,
        other => other,
    };
    for (number, to) in numbers.iter().zip(to) {
        let value = match number {
            1 => context,
            2 => it.kind,
            3 => address,
            4 if it.kind == 1 => address,
            8 => it.managed,
            11 => address & !7,
            12 => it.left + address % 8,
            _ => 0,
        };
        unsafe { to.cast::<u64>().write(value) };
    }
    0
}

unsafe fn one_op(on: sys::CUstream, op: MemOp) -> Result<Call, u32> {
    let stream = unsafe { stream(on) };
    let call = match op.operation {
        MemOp::WAIT | MemOp::WAIT_32 => Call::Wait(op.value),
        MemOp::WRITE | MemOp::WRITE_32 => {
            if let Some(left) = UNWRITTEN.get().checked_sub(1) {
                UNWRITTEN.set(left);
                return Err(1);
            }
            stream.writes.lock().push(op);
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

unsafe extern "system" fn launch_host_func(
    on: sys::CUstream,
    function: HostFunction,
    data: *mut c_void,
) -> u32 {
    let on = unsafe { stream(on) };
    on.functions.lock().push((function, data.addr()));
    if on.captures_call().is_none() {
        on.put.fetch_add(1, Ordering::SeqCst);
    }
    0
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

/// Makes a context current on this thread, or none if it is null.
pub(crate) fn make_current(context: sys::CUcontext) {
    unsafe { set_current(context) };
}

unsafe extern "system" fn pop_current(_: *mut sys::CUcontext) -> u32 {
    unsafe { set_current(null_mut()) }
}

thread_local! {
    /// The freed addresses and destroyed handles, in order.
    static FREED: RefCell<Vec<sys::CUdeviceptr>> = const { RefCell::new(Vec::new()) };
    /// The number of further allocations that fail.
    static REFUSED: Cell<u32> = const { Cell::new(0) };
}

/// An address or a handle that nothing else has.
fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(4_096);
    NEXT.fetch_add(4_096, Ordering::SeqCst)
}

/// Returns a unique address. The memory does not exist.
unsafe extern "system" fn mem_alloc(to: *mut sys::CUdeviceptr, _: usize) -> u32 {
    if let Some(left) = REFUSED.get().checked_sub(1) {
        REFUSED.set(left);
        return OUT_OF_MEMORY;
    }
    unsafe { to.write(unique()) };
    0
}

/// Allocates pinned memory, which is never freed.
unsafe extern "system" fn mem_host_alloc(to: *mut *mut c_void, bytes: usize, _: c_uint) -> u32 {
    let words = vec![u64::MAX; bytes.div_ceil(8)].leak();
    unsafe { to.write(words.as_mut_ptr().cast()) };
    0
}

unsafe extern "system" fn mem_free(pointer: sys::CUdeviceptr) -> u32 {
    FREED.with_borrow_mut(|freed| freed.push(pointer));
    0
}

const GRANULE: usize = 2 << 20;

unsafe extern "system" fn granularity(to: *mut usize, _: *const AllocationProp, _: c_uint) -> u32 {
    unsafe { to.write(GRANULE) };
    0
}

/// Makes no memory. Its handle is 1.
unsafe extern "system" fn mem_create(
    to: *mut u64,
    bytes: usize,
    _: *const AllocationProp,
    _: u64,
) -> u32 {
    if !bytes.is_multiple_of(GRANULE) {
        return INVALID_VALUE;
    }
    if let Some(left) = REFUSED.get().checked_sub(1) {
        REFUSED.set(left);
        return OUT_OF_MEMORY;
    }
    count_handles(1);
    unsafe { to.write(1) };
    0
}

unsafe extern "system" fn mem_release(_: u64) -> u32 {
    count_handles(-1);
    0
}

/// Exports a pipe.
unsafe extern "system" fn mem_export(to: *mut c_void, _: u64, _: c_uint, _: u64) -> u32 {
    let (end, _) = std::io::pipe().unwrap();
    unsafe { to.cast::<c_int>().write(OwnedFd::from(end).into_raw_fd()) };
    0
}

unsafe extern "system" fn mem_address_reserve(
    to: *mut sys::CUdeviceptr,
    _: usize,
    _: usize,
    _: sys::CUdeviceptr,
    _: u64,
) -> u32 {
    unsafe { mem_alloc(to, GRANULE) }
}

/// Refuses addresses where memory is mapped.
unsafe extern "system" fn mem_address_free(address: sys::CUdeviceptr, _: usize) -> u32 {
    if MAPPED.with_borrow(|mapped| mapped.contains(&address)) {
        return INVALID_VALUE;
    }
    unsafe { mem_free(address) }
}

unsafe extern "system" fn mem_map(
    address: sys::CUdeviceptr,
    _: usize,
    _: usize,
    _: u64,
    _: u64,
) -> u32 {
    if is_map_refused() {
        return INVALID_VALUE;
    }
    MAPPED.with_borrow_mut(|mapped| mapped.push(address));
    0
}

unsafe extern "system" fn mem_unmap(address: sys::CUdeviceptr, _: usize) -> u32 {
    MAPPED.with_borrow_mut(|mapped| mapped.retain(|other| *other != address));
    0
}

unsafe extern "system" fn mem_set_access(
    _: sys::CUdeviceptr,
    _: usize,
    _: *const AccessDesc,
    _: usize,
) -> u32 {
    0
}

std::thread_local! {
    /// The handles of memory that this thread has made and not released.
    static HANDLES: Cell<i32> = const { Cell::new(0) };
    /// The addresses where this thread has mapped memory.
    static MAPPED: RefCell<Vec<sys::CUdeviceptr>> = const { RefCell::new(Vec::new()) };
    /// The number of mappings before the one that fails, if one does.
    static REFUSED_MAP: Cell<Option<u32>> = const { Cell::new(None) };
}

fn count_handles(more: i32) {
    HANDLES.set(HANDLES.get() + more);
}

/// The handles of memory that this thread has made and not released.
pub(crate) fn memory_handles() -> i32 {
    HANDLES.get()
}

/// Makes a mapping of this thread fail, after `others` that succeed.
pub(crate) fn refuse_map_after(others: u32) {
    REFUSED_MAP.set(Some(others));
}

fn is_map_refused() -> bool {
    let others = REFUSED_MAP.get();
    REFUSED_MAP.set(others.and_then(|others| others.checked_sub(1)));
    others == Some(0)
}

/// Makes the next `times` allocations of this thread fail.
pub(crate) fn refuse_memory(times: u32) {
    REFUSED.set(times);
}

/// The addresses and handles that this thread has freed since the last call, in order.
pub(crate) fn freed() -> Vec<sys::CUdeviceptr> {
    FREED.take()
}

pub(crate) use devices::*;

/// Devices of this driver, and access to the streams of their queues.
#[cfg(test)]
mod devices {
    use std::any::Any;
    use std::sync::Arc;

    use syncline_core::backend::Attachment;
    use syncline_core::{
        Result,
        error::Object,
        handle::{MemoryContent, MemoryFd, MemoryInfo, Origin, TimelineFd},
        info::Info,
    };

    use super::*;
    use crate::device::context::{Context, Owner};
    use crate::device::open::Device;
    use crate::device::stream::Stream as RealStream;
    use crate::memory::allocation::Allocation;
    use crate::queue::submission::Queue;

    /// A device of this driver.
    pub(crate) fn device() -> Device {
        device_with(Optional {
            stream_wait_value64: Some(wait_value),
            stream_write_value64: Some(write_value),
            stream_batch_mem_op: Some(batch),
            pointer_get_attributes: Some(pointer_attributes),
            ipc_get_event_handle: Some(get_event_handle),
            ipc_open_event_handle: Some(open_event_handle),
            mem_get_allocation_granularity: Some(granularity),
            mem_create: Some(mem_create),
            mem_release: Some(mem_release),
            mem_export_to_shareable_handle: Some(mem_export),
            mem_address_reserve: Some(mem_address_reserve),
            mem_address_free: Some(mem_address_free),
            mem_map: Some(mem_map),
            mem_unmap: Some(mem_unmap),
            mem_set_access: Some(mem_set_access),
            external_memory_get_mapped_mipmapped_array: Some(map_array),
            mipmapped_array_get_level: Some(array_level),
            mipmapped_array_destroy: Some(array_destroy),
            surf_object_create: Some(surface_create),
            surf_object_destroy: Some(view_destroy),
            tex_object_create: Some(texture_create),
            tex_object_destroy: Some(view_destroy),
            memcpy_3d_async: Some(copy_3d),
            graph_exec_set_signal: Some(graph_exec_set_signal),
            ..Optional::none()
        })
    }

    /// A device of a driver with these optional functions.
    pub(crate) fn device_with(optional: Optional) -> Device {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let context = std::ptr::without_provenance_mut(NEXT.fetch_add(1, Ordering::SeqCst) << 6);
        device_over(context, optional)
    }

    /// Another device over the context of `device`.
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
            external_memory_get_mapped_buffer: map_buffer,
            destroy_external_memory: destroy_memory,
            signal_external_semaphores_async: signal_external,
            wait_external_semaphores_async: wait_external,
            launch_host_func,
            graph_launch,
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
        device_of(symbols, context, optional)
    }

    /// A device of a driver whose functions do nothing.
    pub(crate) fn idle_device() -> Device {
        device_of(Symbols::idle(), null_mut(), Optional::none())
    }

    fn device_of(symbols: Symbols, context: sys::CUcontext, optional: Optional) -> Device {
        let driver = Driver::of(symbols, optional);
        let object = Object::new("device", "emulated");
        let info = driver.info(0).unwrap();
        let context = unsafe { Context::adopted(&driver, context, &object, Owner::default()) };
        Device::new(context, object, info).unwrap()
    }

    /// Imports memory of `size` bytes, which is for one buffer alone if it is `dedicated`.
    pub(crate) fn import_allocation(
        device: &Device,
        size: u64,
        dedicated: bool,
        owner: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Allocation {
        let (end, _) = std::io::pipe().unwrap();
        let mut info = MemoryInfo::new(size, MemoryContent::Whole);
        info.dedicated = dedicated;
        // SAFETY: this driver has no real memory.
        let handle = unsafe { MemoryFd::from_fd(end.into(), Origin::of(device.info()), info) };
        device.import_allocation(handle, owner).unwrap()
    }

    /// A descriptor that stands for an exported timeline.
    pub(crate) fn timeline_fd(info: &Info) -> TimelineFd {
        let (end, _) = std::io::pipe().unwrap();
        unsafe { TimelineFd::from_fd(end.into(), Origin::of(info)) }
    }

    /// Imports a timeline of another API.
    pub(crate) fn import_timeline(device: &Device) -> Result<Attachment> {
        // SAFETY: this driver has no real semaphores.
        let imported = unsafe { device.import_timeline(timeline_fd(device.info())) };
        imported.map_err(|rejected| rejected.error)
    }

    /// Imports a timeline that only this device signals.
    pub(crate) fn import_timeline_to_signal(device: &Device, initial: u64) -> Result<Attachment> {
        let handle = timeline_fd(device.info());
        // SAFETY: this driver has no real semaphores.
        let imported = unsafe { device.import_timeline_to_signal(handle, initial) };
        imported.map_err(|rejected| rejected.error)
    }

    /// The number of commands in the queue's stream.
    pub(crate) fn put(queue: &Queue) -> u64 {
        let stream = unsafe { stream(queue.queue_stream().stream().raw()) };
        stream.put.load(Ordering::SeqCst)
    }

    /// Finishes the first `through` commands of the queue's stream.
    pub(crate) fn finish(queue: &Queue, through: u64) {
        finish_stream(queue.queue_stream().stream(), through);
    }

    /// Finishes the first `through` commands of a stream.
    pub(crate) fn finish_stream(of: &RealStream, through: u64) {
        finish_raw(of.raw(), through);
    }

    /// Finishes the first `through` commands of a stream.
    pub(crate) fn finish_raw(of: sys::CUstream, through: u64) {
        let stream = unsafe { stream(of) };
        stream.finished.fetch_max(through, Ordering::SeqCst);
    }

    /// A device whose driver has the functions for interprocess events on a platform without them.
    pub(crate) fn device_without_platform() -> Device {
        device_with(Optional {
            ipc_get_event_handle: Some(no_event_handle),
            ipc_open_event_handle: Some(open_event_handle),
            ..Optional::none()
        })
    }

    /// Calls each host function that the queue's stream has got.
    pub(crate) fn call_host_functions(queue: &Queue) {
        let stream = unsafe { stream(queue.queue_stream().stream().raw()) };
        for (function, data) in &*stream.functions.lock() {
            unsafe { function(std::ptr::without_provenance_mut(*data)) };
        }
    }

    /// Executes the memory writes in the queue's stream.
    ///
    /// The event behind them need not be complete.
    pub(crate) fn write(queue: &Queue) {
        let stream = unsafe { stream(queue.queue_stream().stream().raw()) };
        for op in std::mem::take(&mut *stream.writes.lock()) {
            // Device addresses are host addresses here.
            let word = std::ptr::with_exposed_provenance_mut::<u64>(op.address as usize);
            unsafe { AtomicU64::from_ptr(word) }.store(op.value, Ordering::SeqCst);
        }
    }
}
