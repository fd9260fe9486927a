//! What most probes begin with: a context, streams, events, words in pinned memory, kernels.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::cuda::*;
use crate::harness::stop;

/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const NO_TIMING: u32 = 2;
/// `CUDA_ERROR_NOT_READY`.
pub(crate) const NOT_READY: u32 = 600;
/// How long work may take that nothing keeps from finishing.
pub(crate) const SOON: u64 = 3000;

/// Ends the question unless the call has succeeded.
pub(crate) fn check(code: Code) {
    if code != 0 {
        stop(format_args!("not asked: {} returned {code}", code.function));
    }
}

/// Ends the question if this has failed.
pub(crate) fn need<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|reason| stop(format_args!("not asked: {reason}")))
}

/// Results in digits, with spaces between them.
pub(crate) fn names(codes: &[Code]) -> String {
    let names: Vec<_> = codes.iter().map(ToString::to_string).collect();
    names.join(" ")
}

pub(crate) fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

static PRIMARY: OnceLock<Handle> = OnceLock::new();

/// An answer with its question.
pub(crate) fn that(label: &str, is: bool) -> String {
    format!("{label}: {}", yes(is))
}

/// Initializes the driver and makes the primary context of device 0 current.
pub(crate) fn context() -> Handle {
    check(init(0));
    let mut context = 0;
    check(primary_retain(&mut context, 0));
    current(context);
    PRIMARY.get_or_init(|| context);
    context
}

/// The context with which a question begins.
pub(crate) fn primary() -> Handle {
    PRIMARY.get().copied().unwrap_or_default()
}

/// Makes a context current to the calling thread.
pub(crate) fn current(context: Handle) {
    check(ctx_set_current(context));
}

/// A new context beside the primary one. It is current afterwards.
pub(crate) fn another_context() -> Handle {
    let mut context = 0;
    check(ctx_create(&mut context, 0, 0));
    context
}

/// A stream that does not synchronize with the legacy stream.
pub(crate) fn stream() -> Handle {
    stream_with(1)
}

pub(crate) fn stream_with(flags: u32) -> Handle {
    let mut stream = 0;
    check(stream_create(&mut stream, flags));
    stream
}

pub(crate) fn streams(count: usize) -> Vec<Handle> {
    (0..count).map(|_| stream()).collect()
}

pub(crate) fn event(flags: u32) -> Handle {
    let mut event = 0;
    check(event_create(&mut event, flags));
    event
}

pub(crate) fn record(event: Handle, stream: Handle) {
    check(event_record(event, stream));
}

pub(crate) fn wait(stream: Handle, event: Handle) {
    check(wait_for(stream, event));
}

/// The result of letting a stream wait for an event.
pub(crate) fn wait_for(stream: Handle, event: Handle) -> Code {
    stream_wait_event(stream, event, 0)
}

/// The result of asking for the time between two events.
pub(crate) fn elapsed(start: Handle, end: Handle) -> Code {
    event_elapsed_time(&mut 0.0, start, end)
}

/// A host function.
pub(crate) unsafe extern "C" fn nothing(_: usize) {}

pub(crate) fn alloc(bytes: usize) -> u64 {
    let mut pointer = 0;
    check(mem_alloc(&mut pointer, bytes));
    pointer
}

/// The result of filling a word of memory with 1.
pub(crate) fn fill(memory: u64, stream: Handle) -> Code {
    memset_d32_async(memory, 1, 1, stream)
}

/// The result of copying a value to memory.
pub(crate) fn store(memory: u64, value: u64) -> Code {
    memcpy_htod(memory, &raw const value as usize, 8)
}

/// The result of copying a value from memory, and the value.
pub(crate) fn read(memory: u64) -> (Code, u64) {
    let mut value = 0_u64;
    (memcpy_dtoh(&raw mut value as usize, memory, 8), value)
}

/// The result of registering a page.
pub(crate) fn register(page: usize) -> Code {
    mem_host_register(page, 4096, 3)
}

/// Memory of the host that the driver has not seen, with zeros.
pub(crate) fn leak(bytes: usize) -> usize {
    Box::leak(vec![0_u64; bytes / 8].into_boxed_slice()).as_ptr() as usize
}

/// Pinned memory that both sides read and write, as words of 64 bits.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    pub(crate) host: usize,
    device: u64,
}

impl Words {
    /// How many words there are.
    pub(crate) const COUNT: usize = 4096;

    /// Words with the value 0.
    pub(crate) fn new() -> Self {
        let mut host = 0;
        check(mem_host_alloc(&mut host, Self::COUNT * 8, 3));
        let words = Self::at_host(host);
        for index in 0..Self::COUNT {
            words.store(index, 0);
        }
        words
    }

    /// Words with the value 0, in memory that outlives the context.
    pub(crate) fn registered() -> Self {
        let host = leak(Self::COUNT * 8);
        check(mem_host_register(host, Self::COUNT * 8, 3));
        Self::at_host(host)
    }

    fn at_host(host: usize) -> Self {
        let mut device = 0;
        check(device_pointer(&mut device, host, 0));
        Self { host, device }
    }

    /// The device's address of a word.
    pub(crate) fn at(self, index: usize) -> u64 {
        self.device + 8 * index as u64
    }

    pub(crate) fn store(self, index: usize, value: u64) {
        self.word(index).store(value, Ordering::SeqCst);
    }

    pub(crate) fn load(self, index: usize) -> u64 {
        self.word(index).load(Ordering::SeqCst)
    }

    /// Stores 1 in word 0 after this many milliseconds.
    pub(crate) fn open_after(self, milliseconds: u64) -> JoinHandle<()> {
        std::thread::spawn(move || {
            pause(milliseconds);
            self.store(0, 1);
        })
    }

    /// Calls while word 0 is 0, for this many milliseconds.
    ///
    /// Returns the result, and whether the call returned before the word was 1.
    pub(crate) fn call_before(
        self,
        milliseconds: u64,
        call: impl FnOnce() -> Code,
    ) -> (Code, bool) {
        let opener = self.open_after(milliseconds);
        let code = call();
        let early = self.load(0) == 0;
        let _ = opener.join();
        (code, early)
    }

    fn word(self, index: usize) -> &'static AtomicU64 {
        let index = index % Self::COUNT;
        // SAFETY: aligned, inside memory of `COUNT` words that is never used after it has been
        // freed, and read and written through atomics only.
        unsafe { &*(self.host as *const AtomicU64).add(index) }
    }
}

/// Lets a stream wait until the word is 1 or more.
pub(crate) fn park(stream: Handle, words: Words, index: usize) {
    check(wait_value64(stream, words.at(index), 1, 0));
}

/// Lets a stream store 1.
pub(crate) fn mark(stream: Handle, words: Words, index: usize) {
    check(write_value64(stream, words.at(index), 1, 0));
}

/// A batch of operations.
pub(crate) fn batch(stream: Handle, ops: &[MemOp], flags: u32) -> Code {
    batch_mem_op(stream, ops.len() as u32, ops.as_ptr() as usize, flags)
}

/// A wait for a value, as one of several operations.
pub(crate) fn wait_op(address: u64, value: u64, flags: u32) -> MemOp {
    op(4, address, value, flags)
}

/// A write of a value, as one of several operations.
pub(crate) fn write_op(address: u64, value: u64, flags: u32) -> MemOp {
    op(5, address, value, flags)
}

pub(crate) fn op(operation: u32, address: u64, value: u64, flags: u32) -> MemOp {
    MemOp {
        operation,
        padding: 0,
        address,
        value,
        flags,
        padding_too: 0,
        unused: [0; 2],
    }
}

/// Set to a number by which all times of the questions are multiplied.
///
/// A busy machine may need more time for what is free to go on.
pub(crate) const PATIENCE: &str = "SYNCLINE_PROBES_PATIENCE";

/// This many milliseconds, as often as [`PATIENCE`] says.
pub(crate) fn time(milliseconds: u64) -> Duration {
    static FACTOR: OnceLock<u32> = OnceLock::new();
    let factor = FACTOR.get_or_init(|| {
        let given = std::env::var(PATIENCE).ok();
        given.and_then(|factor| factor.parse().ok()).unwrap_or(1)
    });
    Duration::from_millis(milliseconds) * *factor
}

/// Sleeps for that long.
pub(crate) fn pause(milliseconds: u64) {
    std::thread::sleep(time(milliseconds));
}

/// True once the condition holds, false if it does not within that time.
pub(crate) fn within(milliseconds: u64, condition: impl Fn() -> bool) -> bool {
    let end = Instant::now() + time(milliseconds);
    loop {
        if condition() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// What `cuStreamQuery` returns once it returns something other than 600, or 600 after 3 seconds.
pub(crate) fn outcome(stream: Handle) -> Code {
    within(SOON, || stream_query(stream) != NOT_READY);
    stream_query(stream)
}

/// True if the stream finishes in a time in which free work does.
pub(crate) fn idle(stream: Handle) -> bool {
    within(300, || stream_query(stream) == 0)
}

/// The result of a call, and what [`outcome`] says of its stream.
pub(crate) fn ended(code: Code, stream: Handle) -> [Code; 2] {
    [code, outcome(stream)]
}

/// The result of a call, and that of a wait for its stream.
pub(crate) fn done(code: Code, stream: Handle) -> [Code; 2] {
    [code, stream_synchronize(stream)]
}

/// True if the stream finishes soon.
pub(crate) fn finishes(stream: Handle) -> bool {
    outcome(stream) == 0
}

/// True if a word differs from 0 soon.
pub(crate) fn marked(words: Words, index: usize) -> bool {
    within(SOON, || words.load(index) != 0)
}

/// True if a word differs from 0 after a time in which free work finishes.
pub(crate) fn marked_early(words: Words, index: usize) -> bool {
    within(300, || words.load(index) != 0)
}

const PTX: &str = concat!(include_str!("kernels.ptx"), "\0");

/// A kernel of `kernels.ptx` in the current context.
pub(crate) fn kernel(name: &CStr) -> Handle {
    static MODULE: OnceLock<Handle> = OnceLock::new();
    kernel_of(*MODULE.get_or_init(module), name)
}

/// A module of `kernels.ptx`, loaded anew.
pub(crate) fn module() -> Handle {
    module_of(PTX)
}

/// A module of a text that ends with a zero.
pub(crate) fn module_of(text: &str) -> Handle {
    let mut module = 0;
    check(module_load_data(&mut module, text.as_ptr() as usize));
    module
}

pub(crate) fn kernel_of(module: Handle, name: &CStr) -> Handle {
    let mut function = 0;
    check(get_function(&mut function, module, name.as_ptr() as usize));
    // Loading at the first launch could wait for work that is parked.
    func_load(function);
    function
}

/// The result of looking for a kernel.
pub(crate) fn function_of(module: Handle, name: &CStr) -> Code {
    get_function(&mut 0, module, name.as_ptr() as usize)
}

/// The result of loading a module.
pub(crate) fn load_module() -> Code {
    module_load_data(&mut 0, PTX.as_ptr() as usize)
}

/// Launches one thread. Returns the result.
pub(crate) fn launch(function: Handle, stream: Handle, params: &[u64]) -> Code {
    let pointers: Vec<_> = params.iter().map(std::ptr::from_ref).collect();
    let pointers = match params {
        [] => 0,
        _ => pointers.as_ptr() as usize,
    };
    launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, stream, pointers, 0)
}

/// Launches a kernel that faults, in a new stream.
pub(crate) fn fault() -> Handle {
    let (faulty, put) = (stream(), kernel(c"put"));
    launch(put, faulty, &[16, 1]);
    faulty
}

/// Lets a kernel spin in the stream until the word is not 0.
pub(crate) fn spin(stream: Handle, words: Words, index: usize) {
    check(launch(kernel(c"spin"), stream, &[words.at(index)]));
}

/// Captures what the closure enqueues. Returns the graph, and an executable one.
pub(crate) fn capture(enqueue: impl FnOnce(Handle)) -> (Handle, Handle) {
    let (stream, mut graph, mut exec) = (stream(), 0, 0);
    check(stream_begin_capture(stream, 2));
    enqueue(stream);
    check(stream_end_capture(stream, &mut graph));
    check(graph_instantiate(&mut exec, graph, 0));
    (graph, exec)
}

/// A graph that fills some memory.
pub(crate) fn memset_graph() -> (Handle, Handle) {
    let memory = alloc(64);
    capture(|stream| check(fill(memory, stream)))
}

/// Runs a closure on another thread, with or without the context, and waits for it.
pub(crate) fn elsewhere<T: Send>(context: Handle, run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if context != 0 {
                ctx_set_current(context);
            }
            run()
        });
        let result = thread.join();
        need(result.map_err(|_| "a thread has panicked".into()))
    })
}
