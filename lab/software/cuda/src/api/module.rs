//! Modules and launches.
#![allow(
    non_snake_case,
    unsafe_code,
    reason = "exports functions of the driver API"
)]

use std::borrow::Cow;
use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use syncline_software_ptx::{Entry, Launch};

use super::Handle;
use crate::abi::{In, Out, api};
use crate::capture;
use crate::code::{Answer, Code};
use crate::context::Context;
use crate::current;
use crate::kernel::{FUNCTIONS, Function, KernelLaunch, MODULES, Module};
use crate::operation::Operation;
use crate::settings::{Verbosity, explain};
use crate::stream::Stream;

/// The first bytes of an ELF file, which is a kernel compiled for one kind of GPU.
const ELF: [u8; 4] = [0x7f, b'E', b'L', b'F'];
/// The first bytes of a fat binary: its container, and the wrapper that compilers put around it.
const FAT: [[u8; 4]; 2] = [0xba55_ed50_u32.to_le_bytes(), 0x4662_43b1_u32.to_le_bytes()];
/// The largest shared memory of a block.
const SHARED_BYTES: u32 = 48 << 10;
/// `CU_LAUNCH_PARAM_BUFFER_POINTER` and `CU_LAUNCH_PARAM_BUFFER_SIZE`. Null ends the list.
const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;
/// `CU_JIT_INFO_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER`.
const INFO_LOG: u32 = 3;
const ERROR_LOG: u32 = 5;

/// The beginning of `CUlaunchConfig`. The attributes come after it.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: Handle,
    /// Attributes state what may run at the same time. Here a kernel begins when the one before it
    /// has ended.
    _attributes: *const c_void,
    _count: u32,
}

fn load<'i, I>(to: &Out<Handle>, image: impl FnOnce() -> Answer<I>, log: &Log) -> Answer
where
    I: Into<Cow<'i, [u8]>>,
{
    to.require()?;
    log.write("");
    let context = current::context()?;
    let image = image()?.into();
    let module = read(context, &image).map_err(|(code, reason)| {
        explain(
            Verbosity::Modules,
            format_args!("a module is refused: {reason}"),
        );
        log.write(&reason);
        code
    })?;
    to.set(module)
}

/// Reads the file of a module, up to the first 0.
fn file(path: &CStr) -> Answer<Vec<u8>> {
    let read = std::fs::read(OsStr::from_bytes(path.to_bytes()));
    let mut image = read.map_err(|error| {
        let path = path.to_string_lossy();
        explain(
            Verbosity::Modules,
            format_args!("a module is refused: {path}: {error}"),
        );
        Code::FILE_NOT_FOUND
    })?;
    // Machine code has zeros, and is refused by its first bytes.
    let end = image.iter().position(|&byte| byte == 0);
    image.truncate(end.unwrap_or(image.len()));
    Ok(image)
}

/// Loads a module. An error carries its reason as text.
fn read(context: Arc<Context>, image: &[u8]) -> Result<usize, (Code, String)> {
    let refuse = |code, reason: &str| Err((code, reason.into()));
    if image.starts_with(&ELF) || FAT.iter().any(|magic| image.starts_with(magic)) {
        return refuse(Code::NO_BINARY_FOR_GPU, "not PTX, but compiled for a GPU");
    }
    match std::str::from_utf8(image) {
        Ok(text) if text.contains(".version") => Module::load(context, text),
        _ => refuse(Code::INVALID_IMAGE, "not PTX: there is no .version"),
    }
}

/// A log buffer of `cuModuleLoadDataEx`.
struct Log {
    text: *mut u8,
    room: usize,
    /// Receives the number of written bytes.
    used: Out<usize>,
}

impl Log {
    const NONE: Self = Self {
        text: null_mut(),
        room: 0,
        used: Out::NULL,
    };

    /// Returns the buffer of the option `buffer`. The option after it has the size.
    fn new(buffer: u32, count: u32, options: &In<u32>, values: &Out<usize>) -> Answer<Self> {
        let mut log = Self::NONE;
        let values = values.places(count as usize)?;
        for (option, value) in options.list(count as usize)?.into_iter().zip(values) {
            if option == buffer {
                log.text = with_exposed_provenance_mut(value.get()?);
            } else if option == buffer + 1 {
                // An `unsigned int` instead of a pointer.
                log.room = value.get()? as u32 as usize;
                log.used = value;
            }
        }
        Ok(log)
    }

    /// Writes a text that ends with 0. It is truncated if it does not fit.
    fn write(&self, reason: &str) {
        let Some(room) = self.room.checked_sub(1).filter(|_| !self.text.is_null()) else {
            return;
        };
        let bytes = &reason.as_bytes()[..reason.len().min(room)];
        // SAFETY: the API demands room for so many bytes.
        unsafe {
            self.text
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            self.text.add(bytes.len()).write(0);
        }
        self.used.set_if_wanted(bytes.len() + 1);
    }
}

/// Copies the parameters: from one pointer for each, or from a buffer in the list `extra`.
fn parameters(entry: &Entry, params: &In<*const u8>, extra: &In<*const c_void>) -> Answer<Vec<u8>> {
    let mut bytes = vec![0; entry.params_size()];
    if !params.is_null() {
        let pointers = params.list(entry.params().len())?;
        for (param, pointer) in entry.params().iter().zip(pointers) {
            if pointer.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            let to = &mut bytes[param.offset..param.offset + param.size];
            // SAFETY: the API demands a pointer to a parameter of the size that the kernel
            // declares.
            to.copy_from_slice(unsafe { std::slice::from_raw_parts(pointer, param.size) });
        }
    } else if !extra.is_null() {
        let (mut buffer, mut size) = (None, None);
        // Two pairs and the end.
        let mut at = extra.pointer();
        // SAFETY: the API demands a list of keys with values that ends with null. No more is read.
        unsafe {
            while !(*at).is_null() {
                match (*at).addr() {
                    BUFFER_POINTER => buffer = Some((*at.add(1)).cast::<u8>()),
                    BUFFER_SIZE => size = Some((*at.add(1)).cast::<usize>().read_unaligned()),
                    _ => return Err(Code::INVALID_VALUE),
                }
                at = at.add(2);
            }
        }
        let (Some(buffer), Some(size)) = (buffer, size) else {
            return Err(Code::INVALID_VALUE);
        };
        if buffer.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // A buffer that is too small is accepted. The other parameters are 0 then.
        let known = size.min(bytes.len());
        // SAFETY: the application says that the buffer has `size` bytes, which are no fewer.
        bytes[..known].copy_from_slice(unsafe { std::slice::from_raw_parts(buffer, known) });
    } else if !bytes.is_empty() {
        return Err(Code::INVALID_VALUE);
    }
    Ok(bytes)
}

fn launch(
    function: Handle,
    config: &Config,
    params: &In<*const u8>,
    extra: &In<*const c_void>,
) -> Answer {
    let function = find(function)?;
    let stream = Stream::find(config.stream)?;
    if function.context.id != stream.context.id {
        return Err(Code::INVALID_HANDLE);
    }
    if config.shared_bytes > SHARED_BYTES || !params.is_null() && !extra.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let launch = Launch {
        grid: config.grid,
        block: config.block,
        params: parameters(&function.entry, params, extra)?,
    };
    let launch = KernelLaunch::new(function.entry.clone(), launch)?;
    stream.submit(Operation::Kernel(Arc::new(launch)))
}

fn find(function: Handle) -> Answer<Arc<Function>> {
    let function = FUNCTIONS.get(function)?;
    function.context.check()?;
    Ok(function)
}

api! {
    fn cuModuleLoad(to: Out<Handle>, path: In<c_char>) {
        load(&to, || file(path.string()?), &Log::NONE)
    }

    fn cuModuleLoadData(to: Out<Handle>, image: In<c_char>) {
        load(&to, || Ok(image.string()?.to_bytes()), &Log::NONE)
    }

    fn cuModuleLoadDataEx(
        to: Out<Handle>,
        image: In<c_char>,
        count: u32,
        options: In<u32>,
        values: Out<usize>,
    ) {
            // This log is always empty.
        Log::new(INFO_LOG, count, &options, &values)?.write("");
        let errors = Log::new(ERROR_LOG, count, &options, &values)?;
        load(&to, || Ok(image.string()?.to_bytes()), &errors)
    }

    fn cuModuleUnload(module: Handle) {
        let found = MODULES.get(module)?;
        found.context.check()?;
        capture::permit()?;
        found.context.synchronize()?;
        MODULES.remove(module)?;
        found.unload();
        Ok(())
    }

    fn cuModuleGetFunction(to: Out<Handle>, module: Handle, name: In<c_char>) {
        let module = MODULES.get(module)?;
        module.context.check()?;
        to.set(0)?;
        let name = name.string()?;
        if name.is_empty() {
            return Err(Code::INVALID_VALUE);
        }
        let name = name.to_str().map_err(|_| Code::NOT_FOUND)?;
        to.set(module.function(name)?)
    }

    fn cuFuncLoad(function: Handle) {
        find(function).map(drop)
    }

    fn cuLaunchKernel(
        function: Handle,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        stream: Handle,
        params: In<*const u8>,
        extra: In<*const c_void>,
    ) {
        let config = Config {
            grid: [grid_x, grid_y, grid_z],
            block: [block_x, block_y, block_z],
            shared_bytes,
            stream,
            _attributes: std::ptr::null(),
            _count: 0,
        };
        launch(function, &config, &params, &extra)
    }

    fn cuLaunchKernelEx(
        config: In<Config>,
        function: Handle,
        params: In<*const u8>,
        extra: In<*const c_void>,
    ) {
        launch(function, &config.get()?, &params, &extra)
    }
}
