//! What most probes begin with: a context, streams, events, words in pinned memory, kernels.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::cuda::{Handle, MISSING, MemOp, cu};

/// What a question is answered with, or what failed before it could be asked.
pub(crate) type Answer = Result<String, String>;

/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const NO_TIMING: u32 = 2;
/// `CUDA_ERROR_NOT_READY`.
pub(crate) const NOT_READY: u32 = 600;
/// How long work may take that nothing keeps from finishing.
pub(crate) const SOON: u64 = 3000;

/// Fails unless the call has succeeded.
pub(crate) fn check(call: &str, code: u32) -> Result<(), String> {
    if code == 0 {
        Ok(())
    } else {
        Err(format!("{call} returned {}", name(code)))
    }
}

/// A result in digits.
pub(crate) fn name(code: u32) -> String {
    if code == MISSING {
        "missing".into()
    } else {
        code.to_string()
    }
}

/// Results in digits, with spaces between them.
pub(crate) fn names(codes: &[u32]) -> String {
    let names: Vec<_> = codes.iter().copied().map(name).collect();
    names.join(" ")
}

pub(crate) fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// Initializes the driver and makes the primary context of device 0 current.
pub(crate) fn context() -> Result<Handle, String> {
    check("cuInit", cu().init(0))?;
    let mut context = 0;
    check(
        "cuDevicePrimaryCtxRetain",
        cu().primary_retain(&mut context, 0),
    )?;
    current(context)?;
    Ok(context)
}

/// Makes a context current to the calling thread.
pub(crate) fn current(context: Handle) -> Result<(), String> {
    check("cuCtxSetCurrent", cu().ctx_set_current(context))
}

/// A new context beside the primary one. It is current afterwards.
pub(crate) fn another_context() -> Result<Handle, String> {
    let mut context = 0;
    check("cuCtxCreate", cu().ctx_create(&mut context, 0, 0))?;
    Ok(context)
}

/// A stream that does not synchronize with the legacy stream.
pub(crate) fn stream() -> Result<Handle, String> {
    stream_with(1)
}

pub(crate) fn stream_with(flags: u32) -> Result<Handle, String> {
    let mut stream = 0;
    check("cuStreamCreate", cu().stream_create(&mut stream, flags))?;
    Ok(stream)
}

pub(crate) fn streams(count: usize) -> Result<Vec<Handle>, String> {
    (0..count).map(|_| stream()).collect()
}

pub(crate) fn event(flags: u32) -> Result<Handle, String> {
    let mut event = 0;
    check("cuEventCreate", cu().event_create(&mut event, flags))?;
    Ok(event)
}

pub(crate) fn record(event: Handle, stream: Handle) -> Result<(), String> {
    check("cuEventRecord", cu().event_record(event, stream))
}

pub(crate) fn alloc(bytes: usize) -> Result<u64, String> {
    let mut pointer = 0;
    check("cuMemAlloc", cu().mem_alloc(&mut pointer, bytes))?;
    Ok(pointer)
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
    pub(crate) fn new() -> Result<Self, String> {
        let (mut host, mut device) = (0, 0);
        let bytes = Self::COUNT * 8;
        check("cuMemHostAlloc", cu().mem_host_alloc(&mut host, bytes, 3))?;
        let code = cu().mem_host_get_device_pointer(&mut device, host, 0);
        check("cuMemHostGetDevicePointer", code)?;
        let words = Self { host, device };
        for index in 0..Self::COUNT {
            words.store(index, 0);
        }
        Ok(words)
    }

    /// Words with the value 0, in memory that outlives the context.
    pub(crate) fn registered() -> Result<Self, String> {
        let (host, mut device) = (Box::leak(vec![0_u64; Self::COUNT].into_boxed_slice()), 0);
        let host = host.as_ptr() as usize;
        let code = cu().mem_host_register(host, Self::COUNT * 8, 3);
        check("cuMemHostRegister", code)?;
        let code = cu().mem_host_get_device_pointer(&mut device, host, 0);
        check("cuMemHostGetDevicePointer", code)?;
        Ok(Self { host, device })
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

    fn word(self, index: usize) -> &'static AtomicU64 {
        let index = index % Self::COUNT;
        // SAFETY: aligned, inside memory of `COUNT` words that is never used after it has been
        // freed, and read and written through atomics only.
        unsafe { &*(self.host as *const AtomicU64).add(index) }
    }
}

/// Lets a stream wait until the word is 1 or more.
pub(crate) fn park(stream: Handle, words: Words, index: usize) -> Result<(), String> {
    let code = cu().stream_wait_value64(stream, words.at(index), 1, 0);
    check("cuStreamWaitValue64", code)
}

/// Lets a stream store 1.
pub(crate) fn mark(stream: Handle, words: Words, index: usize) -> Result<(), String> {
    let code = cu().stream_write_value64(stream, words.at(index), 1, 0);
    check("cuStreamWriteValue64", code)
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
pub(crate) fn outcome(stream: Handle) -> u32 {
    within(SOON, || cu().stream_query(stream) != NOT_READY);
    cu().stream_query(stream)
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
pub(crate) fn kernel(name: &CStr) -> Result<Handle, String> {
    static MODULE: OnceLock<Result<Handle, String>> = OnceLock::new();
    let module = MODULE.get_or_init(module).clone()?;
    kernel_of(module, name)
}

/// A module of `kernels.ptx`, loaded anew.
pub(crate) fn module() -> Result<Handle, String> {
    module_of(PTX)
}

/// A module of a text that ends with a zero.
pub(crate) fn module_of(text: &str) -> Result<Handle, String> {
    let mut module = 0;
    let code = cu().module_load_data(&mut module, text.as_ptr() as usize);
    check("cuModuleLoadData", code)?;
    Ok(module)
}

pub(crate) fn kernel_of(module: Handle, name: &CStr) -> Result<Handle, String> {
    let mut function = 0;
    let code = cu().module_get_function(&mut function, module, name.as_ptr() as usize);
    check("cuModuleGetFunction", code)?;
    // Loading at the first launch could wait for work that is parked.
    let _ = cu().func_load(function);
    Ok(function)
}

/// Launches one thread. Returns the result.
pub(crate) fn launch(function: Handle, stream: Handle, params: &[u64]) -> u32 {
    launch_as(function, 1, 1, stream, params)
}

pub(crate) fn launch_as(
    function: Handle,
    grid: u32,
    block: u32,
    stream: Handle,
    params: &[u64],
) -> u32 {
    let pointers: Vec<_> = params.iter().map(std::ptr::from_ref).collect();
    let pointers = if pointers.is_empty() {
        0
    } else {
        pointers.as_ptr() as usize
    };
    cu().launch_kernel(function, grid, 1, 1, block, 1, 1, 0, stream, pointers, 0)
}

/// Lets a kernel spin in the stream until the word is not 0.
pub(crate) fn spin(stream: Handle, words: Words, index: usize) -> Result<(), String> {
    check(
        "cuLaunchKernel",
        launch(kernel(c"spin")?, stream, &[words.at(index)]),
    )
}

/// Runs a closure on another thread, with or without the context, and waits for it.
pub(crate) fn elsewhere<T: Send>(
    context: Handle,
    run: impl FnOnce() -> T + Send,
) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if context != 0 {
                let _ = cu().ctx_set_current(context);
            }
            run()
        });
        thread
            .join()
            .map_err(|_| "a thread has panicked".to_string())
    })
}
