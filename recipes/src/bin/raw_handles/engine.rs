//! The application, in the style of C. It has raw handles and calls the drivers itself.
//!
//! It passes its handles in a C structure and does not know Syncline. It gets semaphores and
//! values back.
#![allow(unsafe_code, reason = "the drivers, as C calls them")]

use std::error::Error;
use std::ffi::{CString, c_void};
use std::ptr::{from_mut, null_mut};
use std::time::Duration;

use cudarc::driver::{DriverError, result, sys};
use syncline::info::Uuid;
use syncline::vulkan::ash::vk::{self, Handle as _};
use syncline_recipes::{BLOCK, Draw, PTX, Renderer, Stop, WORDS};

/// The handles that the engine lends: `struct engine_handles` of its header.
#[repr(C)]
pub(crate) struct Handles {
    /// `CUcontext`. Null if there is no CUDA.
    pub(crate) cuda_context: *mut c_void,
    /// `CUstream`.
    pub(crate) cuda_stream: *mut c_void,
    /// `vkGetInstanceProcAddr`, as the engine found it.
    pub(crate) get_instance_proc_addr: vk::PFN_vkGetInstanceProcAddr,
    /// `VkInstance`, created for Vulkan 1.3.
    pub(crate) instance: *mut c_void,
    /// `VkPhysicalDevice`.
    pub(crate) physical_device: *mut c_void,
    /// `VkDevice`, created with `timelineSemaphore`.
    pub(crate) device: *mut c_void,
    /// `VkQueue`.
    pub(crate) queue: *mut c_void,
    pub(crate) queue_family: u32,
    pub(crate) queue_index: u32,
    /// What else the device was created with.
    pub(crate) has_host_query_reset: bool,
    pub(crate) has_external_semaphore_fd: bool,
    pub(crate) has_external_memory_fd: bool,
    pub(crate) has_calibrated_timestamps: bool,
}

/// The semaphore that the engine gets: `struct engine_semaphore` of its header.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Semaphore {
    /// `VkSemaphore`, a timeline.
    pub(crate) semaphore: u64,
    pub(crate) value: u64,
}

/// The engine. Its Vulkan part is the renderer of all recipes.
pub(crate) struct Engine {
    cuda: Result<Cuda, String>,
    renderer: Renderer,
}

struct Cuda {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    module: sys::CUmodule,
    kernel: sys::CUfunction,
}

impl Engine {
    pub(crate) fn start(name: Option<&str>) -> Result<Self, Stop> {
        let cuda = Cuda::start().map_err(|error| error.to_string());
        let uuid = cuda.as_ref().ok().and_then(|cuda| cuda.uuid().ok());
        let renderer = Renderer::new(name, uuid)?;
        Ok(Self { cuda, renderer })
    }

    /// Returns why there is no CUDA.
    pub(crate) fn without_cuda(&self) -> Option<&str> {
        self.cuda.as_ref().err().map(String::as_str)
    }

    pub(crate) fn handles(&self) -> Handles {
        let vulkan = &self.renderer;
        let cuda = self.cuda.as_ref().ok();
        let pointer = |raw: u64| raw as usize as *mut c_void;
        Handles {
            cuda_context: cuda.map_or(null_mut(), |cuda| cuda.context.cast()),
            cuda_stream: cuda.map_or(null_mut(), |cuda| cuda.stream.cast()),
            get_instance_proc_addr: vulkan.entry.static_fn().get_instance_proc_addr,
            instance: pointer(vulkan.instance.handle().as_raw()),
            physical_device: pointer(vulkan.physical.as_raw()),
            device: pointer(vulkan.device.handle().as_raw()),
            queue: pointer(vulkan.queue.as_raw()),
            queue_family: vulkan.family,
            queue_index: 0,
            has_host_query_reset: vulkan.enabled.host_query_reset,
            has_external_semaphore_fd: vulkan.enabled.external_semaphore_fd,
            has_external_memory_fd: vulkan.enabled.external_memory_fd,
            has_calibrated_timestamps: vulkan.enabled.calibrated_timestamps,
        }
    }

    /// Launches the kernel that makes a frame on its stream.
    pub(crate) fn launch(
        &self,
        mut words: sys::CUdeviceptr,
        mut frame: u32,
        late: Duration,
    ) -> Result<(), Box<dyn Error>> {
        let cuda = self.cuda.as_ref().map_err(Clone::clone)?;
        let (mut count, mut late) = (WORDS, late.as_nanos() as u64);
        let mut parameters: [*mut c_void; 4] = [
            from_mut(&mut words).cast(),
            from_mut(&mut count).cast(),
            from_mut(&mut frame).cast(),
            from_mut(&mut late).cast(),
        ];
        let grid = (WORDS.div_ceil(BLOCK), 1, 1);
        let (kernel, stream) = (cuda.kernel, cuda.stream);
        // SAFETY: these are the kernel's parameters. The memory lives until the frame is finished.
        unsafe {
            result::ctx::set_current(cuda.context)?;
            result::launch_kernel(kernel, grid, (BLOCK, 1, 1), 0, stream, &mut parameters)?;
        }
        Ok(())
    }

    /// Draws a frame with its own `vkQueueSubmit2`. No other thread may use the queue meanwhile.
    pub(crate) fn draw(
        &self,
        draw: &Draw,
        wait: Option<Semaphore>,
        signal: Semaphore,
    ) -> Result<(), vk::Result> {
        let raw = |it: Semaphore| (vk::Semaphore::from_raw(it.semaphore), it.value);
        let (renderer, queue) = (&self.renderer, self.renderer.queue);
        let commands = renderer.record(draw)?;
        renderer.submit(queue, commands, wait.map(raw), raw(signal))
    }
}

impl Cuda {
    fn start() -> Result<Self, Box<dyn Error>> {
        // SAFETY: only looks for the driver's library, without which cudarc panics.
        if !unsafe { sys::is_culib_present() } {
            return Err("the CUDA driver's library is not there".into());
        }
        result::init()?;
        let device = result::device::get(0)?;
        let image = CString::new(PTX)?;
        // SAFETY: each handle comes from the call before, and the context is current. The text
        // ends in a zero byte.
        unsafe {
            let context = result::primary_ctx::retain(device)?;
            result::ctx::set_current(context)?;
            let module = result::module::load_data(image.as_ptr().cast())?;
            let kernel = result::module::get_function(module, c"produce".into())?;
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
            Ok(Self {
                device,
                context,
                stream,
                module,
                kernel,
            })
        }
    }

    fn uuid(&self) -> Result<Uuid, DriverError> {
        let uuid = result::device::get_uuid(self.device)?;
        // `char` of C is signed on some machines.
        Ok(Uuid(uuid.bytes.map(|byte| byte.to_ne_bytes()[0])))
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // SAFETY: the handles are its own, and nothing uses them any more. A driver that has shut
        // down returns an error.
        unsafe {
            let _ = result::ctx::set_current(self.context);
            let _ = result::stream::destroy(self.stream);
            let _ = result::module::unload(self.module);
            let _ = result::primary_ctx::release(self.device);
        }
    }
}
