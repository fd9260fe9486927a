//! The objects of OpenCL, each released once.
#![allow(unsafe_code, reason = "calls OpenCL")]

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cl3::command_queue::{
    CL_QUEUE_PROFILING_ENABLE, create_command_queue, enqueue_barrier_with_wait_list,
    enqueue_copy_buffer, enqueue_fill_buffer, enqueue_marker_with_wait_list,
    enqueue_nd_range_kernel, enqueue_read_buffer, enqueue_write_buffer, flush,
    release_command_queue,
};
use cl3::context::{create_context, release_context};
use cl3::error_codes::error_text;
use cl3::event::{
    CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, CL_PROFILING_COMMAND_END, create_user_event,
    get_event_info, get_event_profiling_info, release_event, retain_event, set_event_callback,
    set_user_event_status,
};
use cl3::info_type::InfoType;
use cl3::kernel::{
    CL_KERNEL_NUM_ARGS, create_kernel, get_kernel_info, release_kernel, set_kernel_arg,
};
use cl3::memory::{CL_MEM_READ_WRITE, create_buffer, release_mem_object};
use cl3::program::{
    CL_PROGRAM_BUILD_LOG, build_program, create_program_with_source, get_program_build_info,
    release_program,
};
use cl3::types::{
    CL_TRUE, cl_command_queue, cl_context, cl_device_id, cl_event, cl_int, cl_kernel, cl_mem,
};
use syncline_core::backend::kit::{TeardownGuard, must_defer_free, size_refused};
use syncline_core::{Error, Result, error::Object};

use crate::adapter::BACKEND;
use crate::device::News;

/// The process that has loaded OpenCL.
static LOADED_BY: OnceLock<u32> = OnceLock::new();

/// Loads OpenCL once.
///
/// # Errors
/// [`Error::Unavailable`] with the reason.
pub(crate) fn load() -> Result<()> {
    let process = std::process::id();
    if *LOADED_BY.get_or_init(|| process) != process {
        let reason = "the process that forked this one has used OpenCL";
        return Err(Error::unavailable(BACKEND, reason));
    }
    let loaded = cl3::load_library().as_ref();
    let refused = |error| Error::unavailable(BACKEND, format!("no OpenCL library: {error}"));
    loaded.map(|_| ()).map_err(refused)
}

/// A guard for a call that releases an object. `None`: a forked child, or the process exits.
pub(crate) fn releasing() -> Option<TeardownGuard> {
    // The child has copies of the driver's objects, which it must not touch.
    let is_ours = LOADED_BY.get() == Some(&std::process::id());
    if is_ours {
        TeardownGuard::begin()
    } else {
        None
    }
}

/// The error of a call for `object`.
#[cold]
pub(crate) fn failed(object: &Object, call: &'static str, status: cl_int) -> Error {
    Error::native(object, call, status.into(), error_text(status))
}

/// Calls a function of cl3, and names it in the error.
macro_rules! call {
    ($object:expr, $name:literal, $call:expr) => {
        $call.map_err(|status| failed($object, $name, status))
    };
}

/// An OpenCL object that is released with its owner.
macro_rules! owned {
    ($(#[$doc:meta])* $name:ident($raw:ty), $release:path) => {
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(transparent)]
        pub(crate) struct $name($raw);

        // SAFETY: every function of OpenCL but `clSetKernelArg` is thread-safe for every object.
        unsafe impl Send for $name {}
        // SAFETY: as above. `clSetKernelArg` is called under a lock.
        unsafe impl Sync for $name {}

        impl Drop for $name {
            fn drop(&mut self) {
                if let Some(_guard) = releasing() {
                    // SAFETY: this owner has one reference, which ends here. An error leaves
                    // nothing to do.
                    let _ = unsafe { $release(self.0) };
                }
            }
        }
    };
}

owned!(
    /// A context of one device.
    RawContext(cl_context), release_context
);
owned!(
    /// An in-order command queue with profiling.
    RawQueue(cl_command_queue), release_command_queue
);
owned!(
    /// An event: of a command, or of the host.
    Event(cl_event), release_event
);
owned!(
    /// Memory.
    RawMemory(cl_mem), release_mem_object
);
owned!(RawProgram(cl3::types::cl_program), release_program);
owned!(RawKernel(cl_kernel), release_kernel);

/// What every object of a device keeps.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) object: Object,
    /// Memory whose release had to wait. Declared first, and so released first.
    deferred: Mutex<Vec<RawMemory>>,
    raw: RawContext,
    device: DeviceHandle,
}

/// The id of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeviceHandle(pub(crate) cl_device_id);

// SAFETY: such ids are valid in the whole process, and on any thread.
unsafe impl Send for DeviceHandle {}
// SAFETY: as above.
unsafe impl Sync for DeviceHandle {}

impl Context {
    pub(crate) fn new(object: &Object, device: DeviceHandle) -> Result<Arc<Self>> {
        let raw = create_context(&[device.0], null(), None, null_mut());
        let raw = RawContext(call!(object, "clCreateContext", raw)?);
        // It may have loaded more libraries.
        TeardownGuard::register();
        Ok(Arc::new(Self {
            object: object.clone(),
            deferred: Mutex::default(),
            raw,
            device,
        }))
    }

    pub(crate) const fn raw(&self) -> cl_context {
        self.raw.0
    }

    /// Releases memory whose release had to wait. Returns how much is left.
    pub(crate) fn release_deferred(&self) -> usize {
        if must_defer_free() {
            return self.deferred().len();
        }
        let due = std::mem::take(&mut *self.deferred());
        drop(due);
        0
    }

    fn deferred(&self) -> std::sync::MutexGuard<'_, Vec<RawMemory>> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An in-order command queue.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    raw: RawQueue,
    pub(crate) context: Arc<Context>,
}

impl CommandQueue {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        // SAFETY: the device is that of the context.
        let raw = unsafe {
            create_command_queue(context.raw.0, context.device.0, CL_QUEUE_PROFILING_ENABLE)
        };
        let raw = RawQueue(call!(&context.object, "clCreateCommandQueue", raw)?);
        let context = context.clone();
        Ok(Self { raw, context })
    }

    fn object(&self) -> &Object {
        &self.context.object
    }

    pub(crate) const fn raw(&self) -> cl_command_queue {
        self.raw.0
    }

    /// What comes later starts after `events`.
    pub(crate) fn wait(&self, events: &[Event]) -> Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let (count, list) = wait_list(events);
        // SAFETY: the list has so many events, of this context.
        let made = unsafe { enqueue_barrier_with_wait_list(self.raw.0, count, list) };
        call!(self.object(), "clEnqueueBarrierWithWaitList", made).map(|event| drop(Event(event)))
    }

    /// The event of all that came before.
    ///
    /// A marker with a wait list waits for that list alone, also in an in-order queue: so it is on
    /// NVIDIA's driver 580 and on PoCL 5.0, and not on PoCL 3.1.
    pub(crate) fn mark(&self) -> Result<Event> {
        // SAFETY: the list is empty.
        let made = unsafe { enqueue_marker_with_wait_list(self.raw.0, 0, null()) };
        call!(self.object(), "clEnqueueMarkerWithWaitList", made).map(Event)
    }

    /// Hands over what was enqueued. Does not block.
    pub(crate) fn flush(&self) -> Result<()> {
        call!(self.object(), "clFlush", flush(self.raw.0))
    }

    pub(crate) fn fill(&self, memory: &Memory, word: u32) -> Result<()> {
        // SAFETY: the pattern is copied by the call, and the memory is a multiple of it.
        let made = unsafe {
            let word = (&raw const word).cast();
            enqueue_fill_buffer(
                self.raw.0,
                memory.raw()?,
                word,
                4,
                0,
                memory.size,
                0,
                null(),
            )
        };
        call!(self.object(), "clEnqueueFillBuffer", made).map(|event| drop(Event(event)))
    }

    /// `to` is at least as large as `from`.
    pub(crate) fn copy(&self, from: &Memory, to: &Memory) -> Result<()> {
        let (source, target) = (from.raw()?, to.raw()?);
        // SAFETY: both are memory of this context, and OpenCL checks the size.
        let made =
            unsafe { enqueue_copy_buffer(self.raw.0, source, target, 0, 0, from.size, 0, null()) };
        call!(self.object(), "clEnqueueCopyBuffer", made).map(|event| drop(Event(event)))
    }

    /// Reads all of `memory`, and waits for that.
    pub(crate) fn read(&self, memory: &Memory) -> Result<Vec<u32>> {
        let mut words = zeroes(self.object(), memory.size / 4)?;
        // SAFETY: the read blocks, so it has ended when `words` is used again.
        let made = unsafe {
            let to = words.as_mut_ptr().cast();
            enqueue_read_buffer(
                self.raw.0,
                memory.raw()?,
                CL_TRUE,
                0,
                memory.size,
                to,
                0,
                null(),
            )
        };
        drop(Event(call!(self.object(), "clEnqueueReadBuffer", made)?));
        Ok(words)
    }

    /// Writes all of `memory`, and waits for that.
    fn write(&self, memory: &Memory, words: &[u32]) -> Result<()> {
        let (raw, size) = (memory.raw()?, size_of_val(words).min(memory.size));
        // SAFETY: the words have so many bytes, and the call ends when they are written.
        let made = unsafe {
            let from = words.as_ptr().cast();
            enqueue_write_buffer(self.raw.0, raw, CL_TRUE, 0, size, from, 0, null())
        };
        call!(self.object(), "clEnqueueWriteBuffer", made).map(|event| drop(Event(event)))
    }

    /// Runs `items` items of `kernel`.
    pub(crate) fn launch(&self, kernel: &Kernel, items: usize, args: &[Arg<'_>]) -> Result<()> {
        let object = self.object();
        // An argument that is left out would be that of an earlier launch, of memory that is gone.
        if args.len() != kernel.args {
            let asked = format!("launch a kernel with {} arguments", args.len());
            return Err(Error::unsupported(
                object,
                asked,
                format!("it has {}", kernel.args),
            ));
        }
        let kernel = kernel.raw.lock().unwrap_or_else(PoisonError::into_inner);
        for (index, arg) in (0..).zip(args) {
            let memory;
            let (size, value): (usize, *const c_void) = match arg {
                Arg::Buffer(buffer) => {
                    memory = buffer.memory().raw()?;
                    (size_of::<cl_mem>(), (&raw const memory).cast())
                }
                Arg::Word(word) => (4, (&raw const *word).cast()),
            };
            // SAFETY: the value is read by the call. OpenCL checks its size, and what is memory.
            let set = unsafe { set_kernel_arg(kernel.0, index, size, value) };
            call!(object, "clSetKernelArg", set)?;
        }
        // SAFETY: OpenCL checks that all arguments are set. What the kernel does with its memory is
        // vouched for where it was made.
        let made = unsafe {
            enqueue_nd_range_kernel(self.raw.0, kernel.0, 1, null(), &items, null(), 0, null())
        };
        call!(object, "clEnqueueNDRangeKernel", made).map(|event| drop(Event(event)))
    }
}

/// The list of `events` as OpenCL takes it.
fn wait_list(events: &[Event]) -> (u32, *const cl_event) {
    // An `Event` is one `cl_event`. An empty list must be null.
    match events {
        [] => (0, null()),
        events => (events.len() as u32, events.as_ptr().cast()),
    }
}

impl Event {
    /// An event that the host ends with [`Event::complete`].
    pub(crate) fn of_host(context: &Context) -> Result<Self> {
        let made = create_user_event(context.raw.0);
        call!(&context.object, "clCreateUserEvent", made).map(Self)
    }

    /// Ends an event of the host. Later calls fail, and do nothing.
    pub(crate) fn complete(&self, object: &Object) -> Result<()> {
        let set = set_user_event_status(self.0, CL_COMPLETE);
        call!(object, "clSetUserEventStatus", set)
    }

    /// Ends an event of the host as a command ends that fails.
    #[cfg(test)]
    pub(crate) fn fail(&self) {
        set_user_event_status(self.0, -5).unwrap();
    }

    /// Another owner of the event.
    pub(crate) fn again(&self, object: &Object) -> Result<Self> {
        // SAFETY: the event lives, and the new owner releases the new reference.
        let retained = unsafe { retain_event(self.0) };
        call!(object, "clRetainEvent", retained).map(|()| Self(self.0))
    }

    /// Whether it is complete. Does not block.
    ///
    /// # Errors
    /// [`Error::DeviceLost`] if its command has failed.
    pub(crate) fn is_complete(&self, object: &Object) -> Result<bool> {
        let asked = get_event_info(self.0, CL_EVENT_COMMAND_EXECUTION_STATUS);
        match call!(object, "clGetEventInfo", asked)? {
            InfoType::Int(status) if status < 0 => {
                let name = format!("{}, of a command", error_text(status));
                Err(Error::device_lost(
                    object,
                    "clGetEventInfo",
                    status.into(),
                    name,
                ))
            }
            InfoType::Int(status) => Ok(status == CL_COMPLETE),
            _ => Ok(false),
        }
    }

    /// When its command ended, in nanoseconds of the device's clock.
    pub(crate) fn ended(&self, object: &Object) -> Result<i64> {
        let asked = get_event_profiling_info(self.0, CL_PROFILING_COMMAND_END);
        match call!(object, "clGetEventProfilingInfo", asked)? {
            InfoType::Ulong(time) => Ok(time.cast_signed()),
            _ => Err(Error::not_ready(object)),
        }
    }

    /// Makes the end of the event known to `news`.
    pub(crate) fn tell(&self, object: &Object, news: &Arc<News>) -> Result<()> {
        let user_data = Arc::into_raw(news.clone());
        let set = set_event_callback(self.0, CL_COMPLETE, ended, user_data.cast_mut().cast());
        if set.is_err() {
            // SAFETY: the callback was not taken, so the reference is still this function's.
            drop(unsafe { Arc::from_raw(user_data) });
        }
        call!(object, "clSetEventCallback", set)
    }
}

/// OpenCL calls it on a thread of the driver, also if the command failed.
extern "C" fn ended(_: cl_event, _: cl_int, news: *mut c_void) {
    // SAFETY: it is the reference of `Event::tell`, and OpenCL calls this once.
    let news = unsafe { Arc::from_raw(news.cast::<News>().cast_const()) };
    // Quick, and calls neither OpenCL nor the engine.
    news.add();
}

/// So many words of the host. Memory that the host cannot have is an error, and not the end of it.
fn zeroes(object: &Object, words: usize) -> Result<Vec<u32>> {
    let mut zeroes = Vec::new();
    if words == 0 || zeroes.try_reserve_exact(words).is_err() {
        let reason = "OpenCL has no empty memory, and the host needs as much to clear it";
        return Err(size_refused(object, words as u64, reason));
    }
    zeroes.resize(words, 0);
    Ok(zeroes)
}

/// Memory of a context.
#[derive(Debug)]
pub(crate) struct Memory {
    /// `None` only during the drop.
    raw: Option<RawMemory>,
    /// In bytes.
    pub(crate) size: usize,
    pub(crate) context: Arc<Context>,
}

impl Memory {
    /// Zeroed memory of so many words, which `queue` clears. It waits for that.
    ///
    /// NVIDIA's driver moves memory to the device at its first use. There the call that enqueues
    /// the use would wait for all that runs. With `CL_MEM_COPY_HOST_PTR` it does so as well.
    pub(crate) fn new(queue: &CommandQueue, words: usize) -> Result<Self> {
        let context = &queue.context;
        context.release_deferred();
        let zeroes = zeroes(&context.object, words)?;
        // SAFETY: no memory of the host is given.
        let raw = unsafe { create_buffer(context.raw.0, CL_MEM_READ_WRITE, words * 4, null_mut()) };
        let raw = RawMemory(call!(&context.object, "clCreateBuffer", raw)?);
        let memory = Self {
            raw: Some(raw),
            size: words * 4,
            context: context.clone(),
        };
        queue.write(&memory, &zeroes)?;
        Ok(memory)
    }

    pub(crate) fn raw(&self) -> Result<cl_mem> {
        let raw = self.raw.as_ref().map(|memory| memory.0);
        raw.ok_or_else(|| Error::closed(&self.context.object))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // A driver may free memory only once the device is idle.
        if must_defer_free() {
            self.context.deferred().extend(self.raw.take());
        }
    }
}

/// A kernel. Its lock is for the arguments, which belong to it and not to a launch.
#[derive(Debug)]
pub struct Kernel {
    raw: Mutex<RawKernel>,
    args: usize,
}

impl Kernel {
    pub(crate) fn new(context: &Context, source: &str, name: &CStr) -> Result<Self> {
        let object = &context.object;
        let program = create_program_with_source(context.raw.0, &[source]);
        let program = RawProgram(call!(object, "clCreateProgramWithSource", program)?);
        if let Err(status) = build_program(program.0, &[context.device.0], c"", None, null_mut()) {
            let log = get_program_build_info(program.0, context.device.0, CL_PROGRAM_BUILD_LOG);
            let log = log.map_or_else(|_| String::new(), |log| log.to_string());
            let name = format!("{}: {log}", error_text(status));
            return Err(Error::native(object, "clBuildProgram", status.into(), name));
        }
        // A compiler may be a library that was loaded just now.
        TeardownGuard::register();
        let kernel = create_kernel(program.0, name);
        let kernel = RawKernel(call!(object, "clCreateKernel", kernel)?);
        let args = get_kernel_info(kernel.0, CL_KERNEL_NUM_ARGS);
        let args = match call!(object, "clGetKernelInfo", args)? {
            InfoType::Uint(args) => args as usize,
            _ => 0,
        };
        let raw = Mutex::new(kernel);
        Ok(Self { raw, args })
    }
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// `global uint *`
    Buffer(&'a crate::Buffer),
    /// `uint`
    Word(u32),
}
