//! The functions of the backends, and the codes with which each can fail.

/// The CUDA backend's table of functions, from which their names are read.
const CUDA_TABLE: &str = include_str!("../../../backend-cuda/src/driver/table.rs");

/// The functions that the CUDA backend calls.
pub(crate) fn cuda_functions() -> Vec<&'static str> {
    let names = CUDA_TABLE
        .split("= \"")
        .skip(1)
        .filter_map(|rest| rest.split_once('"'));
    let names = names.map(|(name, _)| name).filter(|name| {
        name.starts_with("cu") && name.chars().nth(2).is_some_and(char::is_uppercase)
    });
    names.collect()
}

/// The functions with a result that the Vulkan backend calls on lavapipe.
///
/// Missing are those of the loader alone (`vkEnumerateInstanceVersion` and those that list layers
/// and extensions of instances), those of the validation layer, and the other names of extensions
/// that lavapipe does not have.
pub(crate) const VULKAN_FUNCTIONS: [&str; 29] = [
    "vkAllocateCommandBuffers",
    "vkAllocateMemory",
    "vkBeginCommandBuffer",
    "vkBindBufferMemory",
    "vkBindImageMemory",
    "vkCreateBuffer",
    "vkCreateCommandPool",
    "vkCreateDevice",
    "vkCreateImage",
    "vkCreateInstance",
    "vkCreateQueryPool",
    "vkCreateSemaphore",
    "vkEndCommandBuffer",
    "vkEnumerateDeviceExtensionProperties",
    "vkEnumeratePhysicalDevices",
    "vkGetCalibratedTimestampsEXT",
    "vkGetMemoryFdKHR",
    "vkGetPhysicalDeviceCalibrateableTimeDomainsEXT",
    "vkGetPhysicalDeviceImageFormatProperties2",
    "vkGetQueryPoolResults",
    "vkGetSemaphoreCounterValue",
    "vkGetSemaphoreFdKHR",
    "vkImportSemaphoreFdKHR",
    "vkMapMemory",
    "vkQueueSubmit",
    "vkQueueWaitIdle",
    "vkResetCommandBuffer",
    "vkSignalSemaphore",
    "vkWaitSemaphores",
];

/// A sticky error: a kernel has accessed an illegal address.
const ILLEGAL_ADDRESS: i32 = 700;
/// `VK_ERROR_DEVICE_LOST` and `VK_ERROR_INVALID_EXTERNAL_HANDLE`.
pub(crate) const DEVICE_LOST: i32 = -4;
const INVALID_EXTERNAL_HANDLE: i32 = -1_000_072_003;

/// The result codes that the documentation of a function names, two or three of them.
///
/// Functions that may return errors of earlier work have 700 as their last code. Each code of a
/// Vulkan function is among the `errorcodes` of the function in `vk.xml` 1.4.359.
pub(crate) fn of(function: &str) -> &'static [i32] {
    match function {
        "cuInit" => &[101, 803],
        "cuDriverGetVersion" | "cuGetErrorName" => &[1],
        "cuDeviceGetCount" => &[3, 1],
        "cuDeviceGet" | "cuDeviceGetName" | "cuDeviceGetUuid_v2" | "cuDeviceGetUuid" => &[101, 3],
        "cuDeviceGetAttribute" | "cuDeviceGetLuid" => &[1, 101],
        "cuDevicePrimaryCtxRetain" => &[2, 999, 101],
        "cuDevicePrimaryCtxRelease_v2" => &[201, 4],
        "cuCtxGetDevice" | "cuCtxSetCurrent" | "cuCtxPopCurrent_v2" => &[201, 4],
        "cuCtxGetCurrent" => &[3, 4],
        "cuCtxPushCurrent_v2" => &[201, 1],
        "cuThreadExchangeStreamCaptureMode" => &[201, 1],
        "cuCtxGetStreamPriorityRange" => &[201, 1],
        "cuEventCreate" | "cuStreamCreate" | "cuStreamCreateWithPriority" => {
            &[2, 1, ILLEGAL_ADDRESS]
        }
        "cuEventDestroy_v2" | "cuStreamDestroy_v2" | "cuModuleUnload" => &[201, ILLEGAL_ADDRESS],
        "cuEventRecord" | "cuEventRecordWithFlags" | "cuStreamWaitEvent" => {
            &[400, 1, ILLEGAL_ADDRESS]
        }
        "cuEventQuery" | "cuStreamQuery" | "cuStreamSynchronize" => &[400, ILLEGAL_ADDRESS],
        "cuEventElapsedTime" => &[400, 999, ILLEGAL_ADDRESS],
        "cuStreamGetCtx" | "cuStreamGetCaptureInfo_v2" => &[400, ILLEGAL_ADDRESS],
        "cuUserObjectCreate"
        | "cuUserObjectRelease"
        | "cuGraphRetainUserObject"
        | "cuGraphGetNodes" => &[1],
        "cuGraphLaunch"
        | "cuGraphExecBatchMemOpNodeSetParams"
        | "cuGraphExecEventRecordNodeSetEvent"
        | "cuGraphExecEventWaitNodeSetEvent"
        | "cuGraphExecExternalSemaphoresSignalNodeSetParams"
        | "cuGraphExecExternalSemaphoresWaitNodeSetParams" => &[1, ILLEGAL_ADDRESS],
        "cuMemAlloc_v2" | "cuMemHostAlloc" => &[2, 1, ILLEGAL_ADDRESS],
        "cuMemHostRegister_v2" => &[2, 801, 712],
        "cuMemFree_v2" | "cuMemFreeHost" | "cuMemHostUnregister" => &[1, ILLEGAL_ADDRESS],
        "cuMemHostGetDevicePointer_v2" => &[1, 201],
        "cuPointerGetAttributes" => &[1, 201, ILLEGAL_ADDRESS],
        "cuMemGetAllocationGranularity" | "cuMemExportToShareableHandle" | "cuMemSetAccess" => {
            &[1, 801]
        }
        "cuMemCreate" | "cuMemAddressReserve" | "cuMemMap" => &[2, 1, 801],
        "cuMemRelease" | "cuMemUnmap" | "cuMemAddressFree" => &[1, 801],
        "cuMemcpyDtoH_v2"
        | "cuMemcpyHtoD_v2"
        | "cuMemcpyDtoDAsync_v2"
        | "cuMemcpy3DAsync_v2"
        | "cuMemsetD32Async" => &[1, ILLEGAL_ADDRESS],
        "cuModuleLoadDataEx" => &[2, 218, ILLEGAL_ADDRESS],
        "cuModuleGetFunction" => &[500, 1],
        "cuFuncLoad" => &[400, 2],
        "cuLaunchKernel" | "cuLaunchKernelEx" => &[701, 1, ILLEGAL_ADDRESS],
        "cuLaunchHostFunc" => &[400, 1, ILLEGAL_ADDRESS],
        "cuImportExternalSemaphore" => &[304, 801],
        "cuImportExternalMemory" => &[1, 304, 2],
        "cuExternalMemoryGetMappedBuffer"
        | "cuExternalMemoryGetMappedMipmappedArray"
        | "cuMipmappedArrayGetLevel" => &[1, 400],
        "cuMipmappedArrayDestroy" => &[400, ILLEGAL_ADDRESS],
        "cuSurfObjectCreate" | "cuTexObjectCreate" => &[1, 201, 801],
        "cuSurfObjectDestroy" | "cuTexObjectDestroy" => &[1, 201],
        "cuDestroyExternalSemaphore" | "cuDestroyExternalMemory" => &[400, ILLEGAL_ADDRESS],
        "cuWaitExternalSemaphoresAsync" | "cuSignalExternalSemaphoresAsync" => &[400, 801],
        "cuStreamWaitValue64_v2" | "cuStreamWriteValue64_v2" | "cuStreamBatchMemOp_v2" => {
            &[1, 801, ILLEGAL_ADDRESS]
        }
        "cuIpcGetEventHandle" => &[400, 2],
        "cuIpcOpenEventHandle" => &[205, 201, 1],
        crate::seams::THREADS => &[libc::EAGAIN],
        "vkCreateInstance" => &[-1, -3, -9],
        "vkEnumeratePhysicalDevices" => &[-1, -3],
        "vkEnumerateDeviceExtensionProperties" => &[-1, -2],
        "vkCreateDevice" => &[-2, -3, DEVICE_LOST],
        "vkGetMemoryFdKHR" | "vkGetSemaphoreFdKHR" => &[-10, -1],
        "vkImportSemaphoreFdKHR" => &[-1, INVALID_EXTERNAL_HANDLE],
        "vkAllocateMemory" => &[-2, -1, INVALID_EXTERNAL_HANDLE],
        "vkMapMemory" => &[-5, -1],
        "vkResetCommandBuffer" => &[-2],
        "vkQueueSubmit"
        | "vkQueueSubmit2"
        | "vkQueueSubmit2KHR"
        | "vkQueueWaitIdle"
        | "vkDeviceWaitIdle"
        | "vkWaitSemaphores"
        | "vkWaitSemaphoresKHR"
        | "vkGetSemaphoreCounterValue"
        | "vkGetSemaphoreCounterValueKHR"
        | "vkGetQueryPoolResults" => &[-1, -2, DEVICE_LOST],
        _ if function.starts_with("vk") && !ends(function) => &[-1, -2],
        _ => &[],
    }
}

/// Functions of a lost CUDA context that still succeed: they do not need the context.
const WITHOUT_CONTEXT: [&str; 14] = [
    "cuInit",
    "cuDriver",
    "cuGetError",
    "cuDevice",
    "cuCtx",
    "cuMemAddress",
    "cuMemCreate",
    "cuMemExport",
    "cuMemGetAllocation",
    "cuMemImport",
    "cuMemMap",
    "cuMemRelease",
    "cuMemSetAccess",
    "cuMemUnmap",
];

/// The functions that fail once a CUDA context is lost, as an order lists them.
///
/// A call that ends something does that all the same, and returns the code. The end of a semaphore
/// would wait for operations on it, which a lost context drops.
pub(crate) fn lost_cuda() -> String {
    let fails = |name: &&str| {
        !WITHOUT_CONTEXT.iter().any(|start| name.starts_with(start))
            && *name != "cuThreadExchangeStreamCaptureMode"
    };
    let functions = cuda_functions().into_iter().filter(fails);
    let marked = functions.map(|name| {
        if ends(name) && name != "cuDestroyExternalSemaphore" {
            format!("{name}!")
        } else {
            name.into()
        }
    });
    marked.collect::<Vec<_>>().join(",")
}

/// The functions that fail once a Vulkan device is lost, as an order lists them.
pub(crate) const LOST_VULKAN: &str = "vkQueueSubmit,vkQueueSubmit2,vkQueueSubmit2KHR,\
    vkQueueWaitIdle!,vkDeviceWaitIdle!,vkWaitSemaphores,vkWaitSemaphoresKHR,\
    vkGetSemaphoreCounterValue,vkGetSemaphoreCounterValueKHR,vkGetQueryPoolResults";

/// True for functions that take a descriptor.
pub(crate) fn imports(function: &str) -> bool {
    function.contains("Import") || function == "vkAllocateMemory"
}

/// True for functions that create something or open it.
pub(crate) fn creates(function: &str) -> bool {
    ["Create", "Alloc", "Load", "Open", "Import"]
        .iter()
        .any(|word| function.contains(word))
}

/// True for functions that end something.
pub(crate) fn ends(function: &str) -> bool {
    [
        "Destroy",
        "Free",
        "Unload",
        "Unmap",
        "Release",
        "Unregister",
    ]
    .iter()
    .any(|word| function.contains(word))
}

/// True if a function can return this code for a context that is lost.
pub(crate) const fn is_sticky(code: i32) -> bool {
    code == ILLEGAL_ADDRESS || code == DEVICE_LOST
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn each_function_of_cuda_has_codes() {
        let functions = cuda_functions().into_iter();
        let without: Vec<_> = functions.filter(|name| of(name).is_empty()).collect();
        assert_eq!(without, [""; 0]);
    }

    #[test]
    fn each_function_of_cuda_is_in_the_software_driver() {
        let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../software/cuda/src/api");
        let api: String = fs::read_dir(api)
            .unwrap()
            .map(|chapter| fs::read_to_string(chapter.unwrap().path()).unwrap())
            .collect();
        let is_missing = |name: &&str| !api.contains(&format!("fn {name}("));
        let missing: Vec<_> = cuda_functions().into_iter().filter(is_missing).collect();
        assert_eq!(missing, [""; 0]);
    }
}
