//! Handles of Vulkan and CUDA, as `vulkan.h` and `cuda.h` declare them.
//!
//! The header has them from `cbindgen.toml`, because both of them must be declared once only.

use std::ffi::{c_char, c_void};

use syncline::cuda::sys;
use syncline::vulkan::ash::vk;

macro_rules! handles {
    ($($name:ident)+) => {$(
        #[doc = concat!("`", stringify!($name), "` of Vulkan on a machine with 64 bits.")]
        pub type $name = *mut c_void;
    )+};
}

handles! { VkInstance VkPhysicalDevice VkDevice VkQueue VkSemaphore VkBuffer VkImage VkDeviceMemory }

/// `CUcontext` of CUDA.
pub type CUcontext = sys::CUcontext;
/// `CUstream` of CUDA, and `cudaStream_t` of its runtime.
pub type CUstream = sys::CUstream;
/// `CUevent` of CUDA, and `cudaEvent_t` of its runtime.
pub type CUevent = sys::CUevent;
/// `CUmipmappedArray` of CUDA.
pub type CUmipmappedArray = sys::CUmipmappedArray;

/// vkGetInstanceProcAddr: the same type as PFN_vkGetInstanceProcAddr.
pub type sl_vulkan_loader = Option<
    unsafe extern "C" fn(
        instance: VkInstance,
        name: *const c_char,
    ) -> Option<unsafe extern "C" fn()>,
>;

/// A handle of C's as one of ash's.
pub(crate) fn to_vk<H: vk::Handle>(raw: *mut c_void) -> H {
    H::from_raw(raw.addr() as u64)
}

/// A handle of ash's as one of C's.
pub(crate) fn from_vk<H: vk::Handle>(handle: H) -> *mut c_void {
    // Not dereferenced here. A dispatchable handle is an address of the loader's, which has
    // exposed it.
    std::ptr::with_exposed_provenance_mut(handle.as_raw() as usize)
}

/// The functions of an instance, through the loader of the application.
///
/// # Safety
/// `loader` is vkGetInstanceProcAddr.
pub(crate) unsafe fn static_functions(
    loader: unsafe extern "C" fn(VkInstance, *const c_char) -> Option<unsafe extern "C" fn()>,
) -> vk::PFN_vkGetInstanceProcAddr {
    // SAFETY: both are the type of vkGetInstanceProcAddr: its arguments are two addresses, it
    // returns one, and "system" is "C" on the systems of this library.
    unsafe { std::mem::transmute(loader) }
}

const _: () = assert!(size_of::<vk::Semaphore>() == size_of::<VkSemaphore>());
