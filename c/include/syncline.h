// Syncline: fences, timelines and timing queries for CUDA, Vulkan and the host.
//
// Every call returns an sl_result, and leaves no exception. sl_last_error has the text of the last
// error on the calling thread. Any thread may use any handle, except that a lock is freed on the
// thread that has taken it. Each handle is freed once, by the function that its maker names; what
// it names lives on while submissions that Syncline records need it. What a callback's own commands
// use is not known to Syncline: it must live until the callback's data is freed. A null handle is
// freed without an effect. A handle that was freed is refused with SL_ERROR_INVALID_HANDLE.
//
// Time limits are in nanoseconds; SL_FOREVER is no limit. Texts are in UTF-8 and end with a zero
// byte. A null label is the empty one. Structures begin with their size, which the caller sets, and
// which a call that fills one in sets to that of the library. Initialize all other fields to 0.
// Lists have as many elements as their counts say, and live during the call. Results through
// pointers are written only if the call succeeds.
//
// A function blocks only if its comment says so. The comment also names the errors that are its
// own. Besides, a null or misaligned pointer gives SL_ERROR_INVALID_ARGUMENT, a driver that refuses
// a call SL_ERROR_DRIVER, a lost device SL_ERROR_DEVICE_LOST, and an object of the parent process
// SL_ERROR_MADE_BEFORE_FORK.
//
// When the last handle of a timeline is freed, waits for values that nothing has claimed end with
// SL_ERROR_CANCELLED. So keep a timeline until everything that waits for it has ended.
//
// docs/c.md leads from CMake to a first frame. This file is made from the folder c/src. Do not edit
// it.

#ifndef SYNCLINE_H
#define SYNCLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Handles as vulkan.h and cuda.h declare them. This header needs neither, and may be included
// before or after them.
#ifndef VULKAN_CORE_H_
typedef struct VkInstance_T *VkInstance;
typedef struct VkPhysicalDevice_T *VkPhysicalDevice;
typedef struct VkDevice_T *VkDevice;
typedef struct VkQueue_T *VkQueue;
typedef struct VkSemaphore_T *VkSemaphore;
typedef struct VkBuffer_T *VkBuffer;
typedef struct VkImage_T *VkImage;
typedef struct VkDeviceMemory_T *VkDeviceMemory;
#endif
#ifndef __cuda_cuda_h__
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmipmappedArray_st *CUmipmappedArray;
#endif

// The major version of the header. A program and a library of different major versions do not fit.
#define SYNCLINE_VERSION_MAJOR 0

// The minor version of the header. Before version 1.0, it must be equal, too.
#define SYNCLINE_VERSION_MINOR 1

// The patch version of the header.
#define SYNCLINE_VERSION_PATCH 0

// The bytes of a device's name in sl_device_info.
#define SL_NAME_SIZE 256

// The most extensions that sl_vulkan_offer has.
#define SL_VULKAN_EXTENSIONS 16

// A time limit without an end.
#define SL_FOREVER UINT64_MAX

// The result of a call. sl_last_error has the text of an error.
typedef enum {
  // The call has succeeded.
  SL_SUCCESS = 0,
  // A driver or device is missing, or cannot be used on this machine.
  SL_ERROR_UNAVAILABLE = -1,
  // The object or device cannot do this. Another one may.
  SL_ERROR_UNSUPPORTED = -2,
  // A call of a driver or of the system failed.
  SL_ERROR_DRIVER = -3,
  // The device is lost. Free what belongs to it.
  SL_ERROR_DEVICE_LOST = -4,
  // The object belongs to the parent process.
  SL_ERROR_MADE_BEFORE_FORK = -5,
  // The value cannot be signalled or waited for.
  SL_ERROR_INVALID_VALUE = -6,
  // The call would never end, or work would wait for itself.
  SL_ERROR_DEADLOCK = -7,
  // Work returned an error.
  SL_ERROR_WORK = -8,
  // A timeline or submission failed. The text has the cause.
  SL_ERROR_FAILED = -9,
  // Nothing can signal the value any more, or another thread has ended the call.
  SL_ERROR_CANCELLED = -10,
  // The time limit has passed. Nothing has changed, and the call can be repeated.
  SL_ERROR_TIMED_OUT = -11,
  // It has not happened yet: a value is not pending or not reached, or a fence is not recorded.
  SL_ERROR_NOT_READY = -12,
  // There is no time, or the times cannot be compared.
  SL_ERROR_NO_TIME = -13,
  // A stream capture is in the way.
  SL_ERROR_CAPTURE = -14,
  // The other process has died or has left.
  SL_ERROR_PEER_LOST = -15,
  // The other process has sent or written something invalid.
  SL_ERROR_PEER_INVALID = -16,
  // An argument is null, too small or not a text in UTF-8.
  SL_ERROR_INVALID_ARGUMENT = -100,
  // A handle is null, was freed, or is of another kind.
  SL_ERROR_INVALID_HANDLE = -101,
  // A defect of the library. Please report the text.
  SL_ERROR_INTERNAL = -102,
} sl_result;

// An API.
typedef enum {
  // The host: work runs on threads of this process.
  SL_API_HOST = 0,
  // CUDA.
  SL_API_CUDA = 1,
  // Vulkan.
  SL_API_VULKAN = 2,
} sl_api;

// What a queue is for.
typedef enum {
  // Graphics, compute and copies.
  SL_QUEUE_GRAPHICS = 0,
  // Compute and copies.
  SL_QUEUE_COMPUTE = 1,
  // Copies alone.
  SL_QUEUE_TRANSFER = 2,
} sl_queue_kind;

// How the devices of a link synchronize.
typedef enum {
  // By objects of one device.
  SL_MECHANISM_SAME_DEVICE = 0,
  // By a semaphore that Vulkan exports. No host thread is between the devices.
  SL_MECHANISM_EXTERNAL_TIMELINE = 1,
  // By a binary semaphore that Vulkan exports. No host thread is between the devices.
  SL_MECHANISM_EXTERNAL_BINARY = 2,
  // By a counter in shared memory that the host and CUDA streams write and wait for.
  SL_MECHANISM_SHARED_MEMORY = 3,
  // On the host: submissions of one device are held until the other device has signalled.
  SL_MECHANISM_ENGINE = 4,
  // By a timeline for each device. The host signals each value on the other ones.
  SL_MECHANISM_BRIDGE = 5,
} sl_mechanism;

// The kind of time that the records of a fence write.
typedef enum {
  // No time.
  SL_TIMING_NONE = 0,
  // A time for intervals between fences of one device. The cheapest one.
  SL_TIMING_INTERVAL = 1,
  // A time on the device's clock, which compares with times of other devices and the host.
  SL_TIMING_CLOCK = 2,
} sl_timing;

// What an acquire does with the contents of an image.
typedef enum {
  // They stay. The image was written and released before.
  SL_CONTENTS_KEEP = 0,
  // They are undefined afterwards. For the first use of a new image.
  SL_CONTENTS_DISCARD = 1,
} sl_contents;

// What a process does with a timeline of two processes.
typedef enum {
  // It waits. The other process signals.
  SL_ACCESS_WAIT = 0,
  // It signals. The other process waits.
  SL_ACCESS_SIGNAL = 1,
  // It signals, and waits as well. The other process waits.
  SL_ACCESS_BOTH = 2,
} sl_access;

// A device: the host, a CUDA context or a VkDevice.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_device;

// What a device is.
typedef struct {
  // The size of this structure, which the caller sets.
  size_t size;
  // An sl_api.
  uint32_t api;
  // 1 if the device is software.
  uint32_t is_software;
  // 1 if uuid is known. One GPU has the same UUID in both APIs.
  uint32_t has_uuid;
  // The UUID.
  uint8_t uuid[16];
  // The name of the device, which ends with a zero byte.
  char name[SL_NAME_SIZE];
  // 0.
  uint32_t reserved;
} sl_device_info;

// vkGetInstanceProcAddr: the same type as PFN_vkGetInstanceProcAddr.
typedef void (*(*sl_vulkan_loader)(VkInstance instance, const char *name))(void);

// Extensions and features of a VkDevice beyond Vulkan 1.2 and its feature timelineSemaphore.
//
// Each field is 0 or 1. Syncline does not use what is 0.
typedef struct {
  // The feature hostQueryReset: timestamps on queues of families for transfers alone.
  uint32_t host_query_reset;
  // VK_KHR_external_semaphore_fd: timelines shared with CUDA and other VkDevices.
  uint32_t external_semaphore_fd;
  // VK_KHR_external_memory_fd: buffers and images shared with CUDA and other VkDevices.
  uint32_t external_memory_fd;
  // VK_KHR_calibrated_timestamps or VK_EXT_calibrated_timestamps: exact times on the host.
  uint32_t calibrated_timestamps;
  // For extensions that later versions know. 0.
  uint32_t reserved[12];
} sl_vulkan_enabled;

// What a VkDevice should be created with, so that Syncline can adopt it.
typedef struct {
  // The size of this structure, which the caller sets.
  size_t size;
  // The number of extensions.
  uint32_t extension_count;
  // 1 if uuid is known.
  uint32_t has_uuid;
  // The names of the device extensions to enable. They live as long as the program.
  const char *extensions[SL_VULKAN_EXTENSIONS];
  // The same, and the feature hostQueryReset, for sl_vulkan_adopt_info.
  sl_vulkan_enabled enabled;
  // The UUID of the GPU. CUDA has the same one.
  uint8_t uuid[16];
} sl_vulkan_offer;

// A queue of a VkDevice.
typedef struct {
  // The queue.
  VkQueue queue;
  // The index of its family.
  uint32_t family;
  // Its index within the family.
  uint32_t index;
} sl_vulkan_queue;

// A VkDevice of the program.
typedef struct {
  // The size of this structure, which the caller sets.
  size_t size;
  // vkGetInstanceProcAddr, with which the program has found its functions.
  sl_vulkan_loader get_instance_proc_addr;
  // The instance, created for Vulkan 1.2 or later.
  VkInstance instance;
  // The physical device.
  VkPhysicalDevice physical_device;
  // The device, created with the feature timelineSemaphore.
  VkDevice device;
  // The queues that Syncline may use. May be null if their number is 0.
  const sl_vulkan_queue *queues;
  // Their number. 0 if the program makes all submissions itself.
  size_t queue_count;
  // What the device was created with. Vulkan cannot tell it, so it is trusted.
  sl_vulkan_enabled enabled;
} sl_vulkan_adopt_info;

// Frees the data of a callback. Called once, on any thread, also if the callback was not called.
//
// It may call the library. But it must not wait for a queue, a fence or a point, and must not lock
// the queue of its submission. To submit to that queue may return SL_ERROR_DEADLOCK. It must not
// throw, and must not jump out of the call. It is not called if the process exits before.
typedef void (*sl_drop)(void *data);

// The raw handles of a device of Vulkan.
typedef struct {
  // The size of this structure, which the caller sets.
  size_t size;
  // vkGetInstanceProcAddr.
  sl_vulkan_loader get_instance_proc_addr;
  // The instance.
  VkInstance instance;
  // The physical device.
  VkPhysicalDevice physical_device;
  // The device.
  VkDevice device;
  // What the device was created with.
  sl_vulkan_enabled enabled;
} sl_vulkan_handles;

// A queue: a thread of the host, a CUDA stream or a VkQueue.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_queue;

// A timeline: a counter of 64 bits that only grows.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_timeline;

// What is locked.
typedef struct {
  // The size of this structure, which the caller sets.
  size_t size;
  // The VkQueue, or null. Use it until the lock is freed.
  VkQueue vulkan_queue;
  // The index of its family.
  uint32_t vulkan_family;
  // Its index within the family.
  uint32_t vulkan_index;
  // The CUDA stream, or null. Null is also the legacy default stream.
  CUstream cuda_stream;
  // The number of submissions that are held on the host, and would come behind yours.
  size_t held;
} sl_lock_info;

// A locked VkQueue, or a CUDA stream that one thread has for itself.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_lock;

// A link: two devices, and how they synchronize.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_link;

// A timeline and a value. It can be waited for, and signalled.
typedef struct {
  // The timeline.
  sl_timeline timeline;
  // The value.
  uint64_t value;
} sl_point;

// A claim: the right to signal one value by a submission that the program makes itself.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_claim;

// Work of a queue of the host, on a thread of the library. Returns 0 for success.
//
// It must not throw, and must not jump out of the call.
typedef int32_t (*sl_work)(void *data);

// What a vkQueueSubmit of the program waits for and signals. All of it lives during the callback.
//
// The lists fit into VkSubmitInfo and VkTimelineSemaphoreSubmitInfo without changes. The program
// may add waits and signals of its own.
typedef struct {
  // The size of this structure.
  size_t size;
  // The queue to submit to. It is locked during the callback.
  VkQueue queue;
  // The number of semaphores to wait for.
  uint32_t wait_count;
  // The number of semaphores to signal.
  uint32_t signal_count;
  // The semaphores to wait for.
  const VkSemaphore *waits;
  // The value to wait for, of each semaphore.
  const uint64_t *wait_values;
  // The VkPipelineStageFlags that wait for each semaphore: all. Others may be passed instead.
  const uint32_t *wait_stages;
  // The semaphores to signal.
  const VkSemaphore *signals;
  // The value of each signal.
  const uint64_t *signal_values;
} sl_vulkan_submission;

// Submits to a VkQueue. Returns the VkResult, which is below 0 for an error.
//
// It must not throw, and must not jump out of the call.
typedef int32_t (*sl_vulkan_work)(const sl_vulkan_submission *submission, void *data);

// Adds work to a CUDA stream. Returns the CUresult or cudaError_t: 0 for success.
//
// It must not throw, and must not jump out of the call.
typedef int32_t (*sl_cuda_work)(CUstream stream, void *data);

// A submission: what it waits for, its work, and what it signals.
//
// Set the callback of the queue's API, or none of the three for a submission without work.
typedef struct {
  // The size of this structure, which the caller sets.
  size_t size;
  // The points to wait for. May be null if their number is 0.
  const sl_point *waits;
  // Their number.
  size_t wait_count;
  // The points to signal. Each is above all values of its timeline that are reached or claimed.
  //
  // A submission that also waits for a value of the timeline claims only what is above it. So a
  // consumer may be submitted before its producer.
  const sl_point *signals;
  // Their number.
  size_t signal_count;
  // Work of a queue of the host, which runs on the queue's thread.
  //
  // It may call the library. It must not wait for what comes after it on the queue.
  sl_work host_work;
  // Makes a vkQueueSubmit of the program's own, with the VkQueue locked.
  //
  // It makes one or more submissions that wait for all waits of its sl_vulkan_submission and
  // then make all of its signals. A missing signal shows as a time-out. It must not block, must
  // not lock the queue, and must not submit to it through Syncline. If it returns an error, it
  // has made no signal. An earlier part may be with the driver.
  sl_vulkan_work vulkan_work;
  // Adds commands of the program's own to a CUDA stream, with the device's context current.
  //
  // They run after the waits and before the signals. It must not block, and must not submit to
  // the queue through Syncline.
  sl_cuda_work cuda_work;
  // The most commands that cuda_work adds: launches, copies, fills, and nodes of graphs.
  //
  // At most 500. 0 stands for 4. CUDA takes about a thousand commands of all streams that wait,
  // and then blocks the thread that adds one. Syncline holds submissions before that, by this
  // number. So a number that is too small may block a thread, possibly for ever.
  uint32_t cuda_commands;
  // 0.
  uint32_t reserved;
  // The data of the callback. What the work uses lives until it is freed.
  void *data;
  // Frees the data once the submission has finished, or is known never to run. May be null.
  sl_drop free;
} sl_submit_info;

// A submission to a queue.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_submission;

// A fence: a position of a queue that can be recorded again, as a CUevent.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_fence;

// A time or an interval in nanoseconds, and its error.
typedef struct {
  // The nanoseconds. Negative for an interval whose end was earlier than its start.
  int64_t nanoseconds;
  // The largest distance from the true time in nanoseconds, in both directions.
  uint64_t error;
} sl_time;

// A request to write to an eventfd.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_notification;

// A range of memory as one device sees it.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_buffer;

// What a buffer is for the host, Vulkan and CUDA.
typedef struct {
  // The size of this structure, which the caller sets.
  size_t size;
  // The size of the range in bytes.
  uint64_t bytes;
  // Its first byte for the host, or null if the host cannot address it.
  void *host_pointer;
  // The VkBuffer, or null.
  VkBuffer vulkan_buffer;
  // Where the range begins in the VkBuffer, in bytes.
  uint64_t vulkan_offset;
  // The address for kernels of CUDA, or 0: a CUdeviceptr.
  uint64_t cuda_pointer;
} sl_buffer_info;

// What an image is like, in the words of VkImageCreateInfo.
typedef struct {
  // The size of this structure, which the caller sets.
  size_t size;
  // A VkImageType: 0, 1 or 2 for one, two or three dimensions.
  uint32_t image_type;
  // 1 for a cube, which has two dimensions and six layers for each cube.
  uint32_t is_cube;
  // A VkFormat.
  uint32_t format;
  // The width of level 0 in texels.
  uint32_t width;
  // The height. 1 for one dimension.
  uint32_t height;
  // The depth. 1 unless there are three dimensions.
  uint32_t depth;
  // mipLevels, at least 1.
  uint32_t levels;
  // arrayLayers, at least 1.
  uint32_t layers;
  // VkImageUsageFlags without those of transfers, which every image has.
  uint32_t usage;
  // 0.
  uint32_t reserved;
} sl_image_info;

// An image as one device sees it.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_image;

// The raw handles of an image.
typedef struct {
  // The size of this structure, which the caller sets.
  size_t size;
  // The VkImage, or null.
  VkImage vulkan_image;
  // The array of CUDA with all levels, or null.
  CUmipmappedArray cuda_array;
} sl_image_handles;

// A VkDeviceMemory of the program.
typedef struct {
  // The size of this structure, which the caller sets.
  size_t size;
  // The memory.
  VkDeviceMemory memory;
  // allocationSize of VkMemoryAllocateInfo.
  uint64_t bytes;
  // memoryTypeIndex of VkMemoryAllocateInfo.
  uint32_t memory_type;
  // 1 if it was allocated with VkMemoryDedicatedAllocateInfo.
  uint32_t is_dedicated;
  // 1 if it was allocated with VkExportMemoryAllocateInfo for opaque file descriptors.
  uint32_t is_exportable;
  // 0.
  uint32_t reserved;
} sl_vulkan_allocation_info;

// Memory that the program has allocated, such as a block of its allocator.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_allocation;

// A socket at a path, to which other processes connect.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_listener;

// One end of a connection between two processes.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_endpoint;

// Words of host memory that processes share.
typedef struct {
  // 0 for a null handle.
  uint64_t id;
} sl_words;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library: major * 1000000 + minor * 1000 + patch.
uint32_t sl_version(void);

// The name of a result, such as "SL_ERROR_TIMED_OUT". "unknown" for another number.
const char *sl_result_name(int32_t result);

// Lists the devices of this machine, and says why a device or an API cannot be used.
//
// One line each. Opens no device. Loads the drivers, which may take some 100 ms. Writes at most
// `size` bytes with the zero byte at the end, and cuts a longer text off. `length`, which may be
// null, gets the length of the whole text without the zero byte.
//
// `buffer` has `size` bytes. It may be null if `size` is 0.
sl_result sl_report(char *buffer, size_t size, size_t *length);

// The text of the last error on the calling thread, in UTF-8.
//
// It has all causes, and for a time-out the signals that are missing. Valid until the next error
// on this thread. The empty text if no call has failed. Never pass it to a function together with
// the call whose error it is: C may call sl_last_error first.
const char *sl_last_error(void);

// Makes a device of the host. It needs no driver.
//
// Free it with sl_device_free.
sl_result sl_device_open_host(sl_device *device);

// Opens the device of this machine that `name` selects.
//
// `name` is "cuda", "vulkan" or "host", the number of a device in the list of sl_report, or a part
// of a device's name. Blocks for some 100 ms to open a CUDA context, or 600 ms for a VkDevice.
// Free the device with sl_device_free.
sl_result sl_device_open(const char *name, sl_device *device);

// Opens the device of an API that has a UUID, such as CUDA's device for the GPU of a VkDevice.
//
// `api` is an sl_api. Blocks as sl_device_open. Each call opens a new, separate device. Free it
// with sl_device_free. SL_ERROR_UNAVAILABLE with the list of the devices if none has the UUID.
//
// `uuid` has 16 bytes.
sl_result sl_device_open_uuid(uint32_t api, const uint8_t *uuid, sl_device *device);

// Reads what a device is.
sl_result sl_device_get_info(sl_device device, sl_device_info *info);

// Asks the driver whether the device is lost: SL_ERROR_DEVICE_LOST. Does not block.
sl_result sl_device_check(sl_device device);

// Frees a handle of a device. The device lives until all that was made with it is freed.
//
// Then the call that frees the last part closes the device, and may block until the driver is
// idle.
sl_result sl_device_free(sl_device device);

// Tells what to create a VkDevice with, so that sl_device_adopt_vulkan can use all of it.
//
// The feature timelineSemaphore is always needed. Everything else may be left out, and its field
// in sl_vulkan_enabled is then 0. Asks the driver, creates nothing and does not block.
// SL_ERROR_UNAVAILABLE if no device of this physical device can be adopted; the text says why.
//
// The loader is vkGetInstanceProcAddr, and the instance was created for Vulkan 1.2 or later. The
// physical device is of the instance. `offer` points to a structure whose size is set.
sl_result sl_vulkan_get_offer(sl_vulkan_loader get_instance_proc_addr,
                              VkInstance instance,
                              VkPhysicalDevice physical_device,
                              sl_vulkan_offer *offer);

// Adopts a VkDevice of the program. The program still owns all of its handles.
//
// From now on, until `free_owner` is called, the program uses the adopted queues only under
// sl_queue_lock, and destroys neither the device nor the instance. `free_owner` is called once
// with `owner`, on any thread, when nothing of Syncline uses the device any more; also if this
// call fails. If `free_owner` is null, never destroy the device. Free the handle with
// sl_device_free.
//
// Asks the driver and does not wait for the device. SL_ERROR_UNAVAILABLE for a device without
// timeline semaphores, or older than Vulkan 1.2.
//
// The handles belong together, and what `enabled` names is enabled. `info` points to a structure
// whose size is set.
sl_result sl_device_adopt_vulkan(const sl_vulkan_adopt_info *info,
                                 void *owner,
                                 sl_drop free_owner,
                                 sl_device *device);

// Adopts a CUDA context of the program: its own, or the primary one, which the CUDA runtime uses.
//
// The program still owns the context. `free_owner` is called once with `owner`, on any thread,
// when nothing of Syncline uses the context any more; also if this call fails. If `free_owner` is
// null, never destroy the context. Free the handle with sl_device_free.
//
// Loads the CUDA driver, which the environment variable SYNCLINE_CUDA_DRIVER may name.
// SL_ERROR_UNAVAILABLE if there is none. SL_ERROR_UNSUPPORTED if the process has loaded two CUDA
// drivers, or for a null context.
//
// `context` is a live context, and stays alive until `free_owner` is called.
sl_result sl_device_adopt_cuda(CUcontext context,
                               void *owner,
                               sl_drop free_owner,
                               sl_device *device);

// The raw handles of a device of Vulkan, adopted or opened by Syncline.
//
// They are valid while the device lives. SL_ERROR_UNSUPPORTED for another device.
sl_result sl_device_get_vulkan(sl_device device, sl_vulkan_handles *handles);

// The context of a CUDA device, adopted or opened by Syncline.
//
// It is valid while the device lives. SL_ERROR_UNSUPPORTED for another device.
sl_result sl_device_get_cuda(sl_device device, CUcontext *context);

// Opens a queue over a VkQueue of a device: one that was adopted, or one of Syncline's.
//
// `family` and `index` are those of the VkQueue. `label` is a name for error texts, or null. Free
// the queue with sl_queue_free. SL_ERROR_UNSUPPORTED if the device has no such queue.
sl_result sl_queue_open_vulkan(sl_device device,
                               uint32_t family,
                               uint32_t index,
                               const char *label,
                               sl_queue *queue);

// Adopts a CUDA stream of the program, also one of the CUDA runtime.
//
// `device` has the stream's context. Null or CU_STREAM_LEGACY is the legacy default stream. The
// per-thread default stream is refused. Create streams with CU_STREAM_NON_BLOCKING. `free_owner`
// is called once with `owner`, on any thread, when nothing of Syncline uses the stream any more;
// also if this call fails. `label` is a name for error texts, or null. Free the queue with
// sl_queue_free.
//
// `stream` is a live stream, and stays alive until `free_owner` is called. A capture of it begins
// and ends while its queue is locked (sl_queue_lock). `label` is null, or a text that ends with a
// zero byte.
sl_result sl_queue_adopt_cuda(sl_device device,
                              CUstream stream,
                              const char *label,
                              void *owner,
                              sl_drop free_owner,
                              sl_queue *queue);

// Makes a timeline of a timeline semaphore of the program, or of another library.
//
// The timeline begins at the value of the semaphore, which Syncline does not destroy. From now on
// the semaphore is signalled in three ways alone: through the timeline, under its claims, and by
// others to values that sl_timeline_signalled_by_others has noted before the next signal of the
// timeline is submitted or claimed. The first signal of others after one of the timeline waits for
// that one. If signals of others are pending, note the highest one at once. `label` is a name for
// error texts, or null. Free the timeline with sl_timeline_free.
//
// `semaphore` is a timeline semaphore of the VkDevice. It outlives the timeline and every
// submission that uses it. It also lives until it has the values that submissions were to signal,
// because Syncline signals the value of a submission that is skipped. `label` is null, or a text
// that ends with a zero byte.
sl_result sl_timeline_adopt_vulkan(sl_device device,
                                   VkSemaphore semaphore,
                                   const char *label,
                                   sl_timeline *timeline);

// Makes a timeline of a word of the program's memory, which a kernel or another library writes.
//
// `address` is a CUdeviceptr of device, pinned or registered memory, and `bits` is 32 or 64. The
// timeline begins at `reached`, of which the word shows the low bits. Streams of the device wait
// for its values and write it, without the host. Note each value of others by
// sl_timeline_signalled_by_others once its write is on its way. Until then, waits for it are held.
// In device memory, at most 32 noted values may be outstanding, and the host signals no value.
//
// `free_owner` is called once with `owner`, on any thread, when nothing of Syncline uses the word
// any more; also if this call fails. If it is null, the memory stays until the timeline and its
// submissions are gone. `label` is a name for error texts, or null. Free the timeline with
// sl_timeline_free. SL_ERROR_UNSUPPORTED if streams of the device cannot wait for the word; the
// text says why.
//
// The memory stays until `free_owner` is called. The word changes only by signals of the timeline
// and by noted values. Each of them is above the one before, and comes after it. Writes of this
// process are atomic. A kernel writes its results before it, with a fence of the system's scope
// between both. While a stream waits for a value of 32 bits, the word does not get 2^31 past it.
// Without an owner, the memory also stays until each noted value was written.
sl_result sl_timeline_adopt_word(sl_device device,
                                 uint64_t address,
                                 uint32_t bits,
                                 uint64_t reached,
                                 const char *label,
                                 void *owner,
                                 sl_drop free_owner,
                                 sl_timeline *timeline);

// Notes that others make the signals of an adopted semaphore or word up to `value`.
//
// For a frame that other libraries signal, too, such as an AVVkFrame: call it with the value that
// stands beside the semaphore, under the lock of the frame. The signals are with a driver, or come
// without Syncline. Then queues may wait for the value, and submissions that were held for it go
// to their drivers on the calling thread. A value that is pending or reached has no effect.
//
// SL_ERROR_INVALID_VALUE if a submission of Syncline that is not with its driver is to signal the
// value, and SL_ERROR_NOT_READY for one that is to signal a lower value: release the lock of the
// frame after sl_submission_wait_submitted. SL_ERROR_UNSUPPORTED for any other timeline.
sl_result sl_timeline_signalled_by_others(sl_timeline timeline, uint64_t value);

// Opens a queue. `kind` is an sl_queue_kind. `label` is a name for error texts, or null.
//
// It is a thread, a new CUDA stream, or the least used VkQueue of the kind. There may be any
// number of queues. Several of them may share one VkQueue. Free the queue with sl_queue_free.
// SL_ERROR_UNSUPPORTED if the device has no queue of the kind.
sl_result sl_queue_open(sl_device device, uint32_t kind, const char *label, sl_queue *queue);

// Blocks until a queue has finished all of its submissions, at most `nanoseconds`.
//
// What the submissions kept is freed then: the free functions of their data have been called. A
// submission that was skipped counts as finished. SL_ERROR_TIMED_OUT after that time, also in a
// callback of the queue, which must not call it.
sl_result sl_queue_idle(sl_queue queue, uint64_t nanoseconds);

// Blocks until all submissions of a queue are with the driver, at most `nanoseconds`.
//
// What the program gives to the driver itself then comes behind them. SL_ERROR_TIMED_OUT after
// that time.
sl_result sl_queue_settle(sl_queue queue, uint64_t nanoseconds);

// The number of submissions of a queue that are held on the host. Does not block.
sl_result sl_queue_held(sl_queue queue, size_t *count);

// Frees a handle of a queue. Its submissions still run.
sl_result sl_queue_free(sl_queue queue);

// Locks a VkQueue, or takes a CUDA stream for this thread, for calls of the program's own.
//
// Until sl_queue_unlock, submissions of Syncline to the same VkQueue or stream are held. The
// program calls vkQueueSubmit, vkQueuePresentKHR, vkQueueWaitIdle and vkQueueBindSparse with a
// VkQueue of Syncline's or an adopted one only while it has this lock. A stream needs the lock
// only if calls of other threads must not come between, and when a capture begins or ends.
//
// Blocks while another thread has the lock. SL_ERROR_DEADLOCK if this thread has locked the same
// VkQueue, or is in its callback. Several queues may share one VkQueue. A stream may be locked
// again. Keep the lock for a short time. `info` tells what is locked, and may be null.
// SL_ERROR_UNSUPPORTED for a queue of the host.
sl_result sl_queue_lock(sl_queue queue, sl_lock_info *info, sl_lock *lock);

// Unlocks what sl_queue_lock has locked, and frees the lock.
//
// Call it on the thread that has locked; another one gets SL_ERROR_INVALID_ARGUMENT, and the lock
// stays. Submissions that were held for the lock go to the driver on this thread.
sl_result sl_queue_unlock(sl_lock lock);

// The name of an sl_mechanism in words, such as "through the engine on the host".
//
// "unknown" for another number. The text lives as long as the program.
const char *sl_mechanism_name(uint32_t mechanism);

// Links two devices of one GPU natively: signals pass between them without a host thread.
//
// Both directions are linked. SL_ERROR_UNSUPPORTED if the devices cannot share a timeline; the
// text says why. May block for milliseconds in driver calls, and does not wait for a device. Free
// the link with sl_link_free.
sl_result sl_link_share(sl_device left, sl_device right, sl_link *link);

// Links any two devices: natively if they can be, and else through the host.
//
// sl_link_mechanism and sl_link_why tell which, and why. Pass the Vulkan device first if you make
// submissions of your own to it: then every timeline of the link is a VkSemaphore. May block as
// sl_link_share. Free the link with sl_link_free.
sl_result sl_link_connect(sl_device left, sl_device right, sl_link *link);

// How the devices of a link synchronize, as an sl_mechanism.
sl_result sl_link_mechanism(sl_link link, uint32_t *mechanism);

// Why a link has its mechanism, as a text.
//
// Writes at most `size` bytes with the zero byte at the end, and cuts a longer text off. `length`,
// which may be null, gets the length of the whole text without the zero byte.
//
// `buffer` has `size` bytes. It may be null if `size` is 0.
sl_result sl_link_why(sl_link link, char *buffer, size_t size, size_t *length);

// Makes a timeline for queues of both devices of a link. It begins at `initial`.
//
// `label` is a name for error texts, or null. Free the timeline with sl_timeline_free.
sl_result sl_link_timeline(sl_link link,
                           const char *label,
                           uint64_t initial,
                           sl_timeline *timeline);

// Frees a link. Its timelines and buffers live on.
sl_result sl_link_free(sl_link link);

// Makes a timeline of a device, which begins at `initial`.
//
// Queues of other devices may wait for it and signal it, through the host. sl_link_timeline makes
// one for two devices, without the host if possible. `label` is a name for error texts, or null.
// Free the timeline with sl_timeline_free. SL_ERROR_INVALID_VALUE if `initial` is UINT64_MAX.
sl_result sl_timeline_make(sl_device device,
                           const char *label,
                           uint64_t initial,
                           sl_timeline *timeline);

// Makes a timeline whose points have the time at which they were reached (sl_point_time).
//
// As sl_timeline_make. The first call on a device makes its clock, which takes milliseconds, or up
// to a second while the device is busy.
sl_result sl_timeline_make_clocked(sl_device device,
                                   const char *label,
                                   uint64_t initial,
                                   sl_timeline *timeline);

// Makes another handle of a timeline, for another owner. Each handle is freed once.
sl_result sl_timeline_clone(sl_timeline timeline, sl_timeline *clone);

// The VkSemaphore of a timeline on a Vulkan device, for a submission that signals a claim.
//
// Syncline destroys it: free the timeline after the submission has finished.
// SL_ERROR_UNSUPPORTED if the timeline has none there: make it by a link whose first device is
// this one.
sl_result sl_timeline_vk_semaphore(sl_timeline timeline, sl_device device, VkSemaphore *semaphore);

// The VkSemaphore with which a submission of the program waits for a point.
//
// The submission waits for the value of the point. SL_ERROR_NOT_READY while the point is not
// pending, because a driver that gets the wait first could block the signal: call
// sl_point_wait_pending before. For the rest see sl_timeline_vk_semaphore.
sl_result sl_point_vk_semaphore(sl_point point, sl_device device, VkSemaphore *semaphore);

// Signals a value from the host. It must be above the present one, and not claimed.
//
// Submissions that were held for the value go to their drivers on the calling thread.
// SL_ERROR_INVALID_VALUE for another value, SL_ERROR_FAILED if the timeline has failed, and
// SL_ERROR_UNSUPPORTED if another process signals the timeline.
sl_result sl_timeline_signal(sl_timeline timeline, uint64_t value);

// Fails a timeline: all present and later waits for values that are not reached end with an error.
//
// Submissions that wait for it are skipped on the calling thread. SL_ERROR_UNSUPPORTED if another
// process signals the timeline.
//
// `reason` is null, or a text that ends with a zero byte. It is in the error of the waits.
sl_result sl_timeline_fail(sl_timeline timeline, const char *reason);

// The value that a timeline has reached. Asks the driver.
//
// SL_ERROR_UNSUPPORTED if this process only signals the timeline (SL_ACCESS_SIGNAL).
sl_result sl_timeline_value(sl_timeline timeline, uint64_t *value);

// Frees a handle of a timeline.
//
// If it was the last one, values that nothing has claimed can never come. Waits for them on other
// threads end with SL_ERROR_CANCELLED. Submissions that wait for them are skipped, and what these
// signal fails (SL_ERROR_FAILED). The call may then block for up to 50 ms.
sl_result sl_timeline_free(sl_timeline timeline);

// Whether a point is reached. SL_ERROR_FAILED if it never will be.
sl_result sl_point_is_reached(sl_point point, bool *reached);

// Whether the signal of a point is with its driver, so that a driver may wait for it.
sl_result sl_point_is_pending(sl_point point, bool *pending);

// Blocks until a point is reached, at most `nanoseconds`.
//
// SL_ERROR_TIMED_OUT after that time; the text names the signals that are missing, and what they
// wait for. SL_ERROR_FAILED if the timeline fails before, and SL_ERROR_CANCELLED if nothing can
// signal the value any more.
sl_result sl_point_wait(sl_point point, uint64_t nanoseconds);

// Blocks until the signal of a point is with its driver, at most `nanoseconds`.
//
// Same errors as sl_point_wait.
sl_result sl_point_wait_pending(sl_point point, uint64_t nanoseconds);

// Blocks until all points are reached, at most `nanoseconds`. Same errors as sl_point_wait.
sl_result sl_wait_all(const sl_point *points, size_t count, uint64_t nanoseconds);

// Blocks until one of the points is reached, at most `nanoseconds`. `index` is its place.
//
// Same errors as sl_point_wait, and SL_ERROR_DEADLOCK for an empty list.
sl_result sl_wait_any(const sl_point *points, size_t count, uint64_t nanoseconds, size_t *index);

// Claims a value for a submission that the program makes itself.
//
// Only the claim may signal the value now. The submission waits for the predecessor of the claim
// (sl_claim_predecessor) and signals the value. `waited` is the highest value of the same timeline
// that the submission also waits for, or 0. Free the claim with sl_claim_free.
//
// Does not block. SL_ERROR_INVALID_VALUE if the value is claimed already or reached, and
// SL_ERROR_UNSUPPORTED for a timeline of the host, which no driver signals.
sl_result sl_timeline_claim(sl_timeline timeline, uint64_t value, uint64_t waited, sl_claim *claim);

// The value before a claim. The submission waits for it.
//
// The wait is not needed if the same queue of the driver signals that value.
sl_result sl_claim_predecessor(sl_claim claim, uint64_t *value);

// Blocks until the predecessor of a claim is pending, at most `nanoseconds`.
//
// Then the program's submission may go to the driver. If it goes earlier, the signals could come
// out of order. Same errors as sl_point_wait.
sl_result sl_claim_wait_ready(sl_claim claim, uint64_t nanoseconds);

// Says that the submission of a claim is with the driver of `device`. Its value is pending now.
//
// Submissions that were held for the value go to their drivers on the calling thread. If `device`
// is lost, the timeline fails. A null `device` stands for any device of the timeline. Call it
// after a successful submission and before sl_claim_free. A second call does nothing.
//
// SL_ERROR_NOT_READY if the predecessor is not pending (sl_claim_wait_ready), or while another
// call submits the claim. SL_ERROR_UNSUPPORTED for a timeline of a CUDA device, for which
// sl_claim_submit_cuda is. After an error the claim is as before.
sl_result sl_claim_submitted(sl_claim claim, sl_device device);

// Signals a claimed value behind all that the program has added to a CUDA stream.
//
// `device` is a CUDA device, and `timeline` the one of the claim. The call adds the signal to the
// stream, and says that the claim is submitted: sl_claim_submitted is not needed. For an adopted
// word it also writes the word, so do not use it if your own work does. It blocks while
// another thread submits to the stream or has locked it. `stream` need not be adopted, and must
// not be the per-thread default stream.
//
// SL_ERROR_NOT_READY if the predecessor is not pending (sl_claim_wait_ready). SL_ERROR_CAPTURE
// while the stream is captured. After an error the claim is as before.
//
// `stream` is a live stream of the device's context, or null for the legacy default stream. No
// other thread begins or ends a capture of it during the call, except while it has the stream
// locked. The timeline of a link is kept until the stream has made the signal.
sl_result sl_claim_submit_cuda(sl_claim claim,
                               sl_timeline timeline,
                               sl_device device,
                               CUstream stream);

// Frees a claim. If it was not submitted, it is withdrawn: its value can be claimed again.
//
// Never free it between a successful submission and sl_claim_submitted: the driver would signal a
// value that something else may claim, and what is held for it would start late. That is no error.
sl_result sl_claim_free(sl_claim claim);

// Submits to a queue: waits, then work, then signals.
//
// Does not block. If a wait is not pending, the submission is held until it is. The callback is
// called once, when all waits may go to the driver: on this thread during the call, or later on
// the thread that releases the submission. That of a host's queue is called on the queue's thread.
//
// If the callback returns an error during the call, the submission is refused: SL_ERROR_DRIVER for
// Vulkan, and SL_ERROR_WORK for CUDA. If it returns an error later, the timelines of the signals
// fail. If a timeline of the waits fails, those of the signals fail with the same cause.
//
// `free` of the structure is called once with `data` after the submission has finished, or when it
// is known never to run, also if this call fails. So it may free command buffers. For a driver's
// queue, a later call of the queue or the device calls it: sl_queue_idle makes sure.
//
// `submission`, which may be null, gets a handle of the submission. Free it with
// sl_submission_free.
//
// SL_ERROR_UNSUPPORTED for a callback of another API than the queue's. SL_ERROR_INVALID_ARGUMENT
// for more than one callback. If `info` is null or its size is too small, nothing is freed.
//
// The callback and `free` may be called on any thread with `data`. The callback submits only what
// is valid.
sl_result sl_queue_submit(sl_queue queue, const sl_submit_info *info, sl_submission *submission);

// Says why a callback fails. The text is in the errors of all that waits for its signals.
//
// A callback calls it before it returns an error.
//
// `reason` is null, or a text that ends with a zero byte.
sl_result sl_work_failed(const char *reason);

// Whether a submission was held when its call returned. It is released by itself.
sl_result sl_submission_was_held(sl_submission submission, bool *held);

// Blocks until the driver has a submission, or it is known never to run, at most `nanoseconds`.
//
// Call it before anything that relies on the submission's work alone, such as presenting an image
// that it draws. SL_ERROR_FAILED if the submission did not run; the text has the cause.
sl_result sl_submission_wait_submitted(sl_submission submission, uint64_t nanoseconds);

// Blocks until a submission and all before it on its queue are finished, at most `nanoseconds`.
//
// Also returns SL_SUCCESS if the submission was skipped: sl_submission_wait_submitted tells.
sl_result sl_submission_wait_finished(sl_submission submission, uint64_t nanoseconds);

// Frees a handle of a submission, which still runs.
sl_result sl_submission_free(sl_submission submission);

// Makes a fence for queues of a device. It is complete until it is recorded.
//
// `timing` is an sl_timing. With SL_TIMING_CLOCK the first call on a device makes its clock, which
// takes milliseconds, or up to a second while the device is busy. `label` is a name for error
// texts, or null. Free the fence with sl_fence_free.
sl_result sl_fence_make(sl_device device, uint32_t timing, const char *label, sl_fence *fence);

// Makes a fence for the latest record of a CUDA event of the program.
//
// Later records of the event do not move the fence. The event is used during the call only. The
// fence cannot be recorded. Free it with sl_fence_free.
//
// `event` is a live event of this process, and its latest record was not in a stream capture.
// `label` is null, or a text that ends with a zero byte.
sl_result sl_fence_adopt_cuda(sl_device device, CUevent event, const char *label, sl_fence *fence);

// Records a fence at the present position of a queue, behind held submissions too.
//
// Waits for an earlier record stay as they are. Does not block. SL_ERROR_UNSUPPORTED for a fence
// of another device, and for a fence with times if the queue writes none.
sl_result sl_queue_record(sl_queue queue, sl_fence fence);

// Makes all later submissions of a queue wait for a fence as it is now. Does not block.
//
// The queue may be of any device.
sl_result sl_queue_wait_fence(sl_queue queue, sl_fence fence);

// Whether everything before the last record of a fence has finished. Does not block.
//
// True for a fence that was never recorded.
sl_result sl_fence_is_complete(sl_fence fence, bool *complete);

// Blocks until the record that a fence holds at the call is complete, at most `nanoseconds`.
//
// Same errors as sl_point_wait.
sl_result sl_fence_wait(sl_fence fence, uint64_t nanoseconds);

// The time on the device from one fence to another, in nanoseconds. Does not block.
//
// Negative if `start` is the later one. Both are of one device and one sl_timing, recorded and
// complete. SL_ERROR_NOT_READY if one of them is not, and SL_ERROR_NO_TIME for fences without
// times or with different ones.
sl_result sl_fence_elapsed(sl_fence start, sl_fence end, int64_t *nanoseconds);

// The time of a fence's last record on the host's clock, CLOCK_MONOTONIC.
//
// The fence has SL_TIMING_CLOCK, and is recorded and complete. Same errors as sl_fence_elapsed.
// May block for about a millisecond to sample the device's clock. A Vulkan driver that does not
// read CLOCK_MONOTONIC gives CLOCK_MONOTONIC_RAW.
sl_result sl_fence_time(sl_fence fence, sl_time *time);

// The interval between two fences with SL_TIMING_CLOCK, which may be of different devices.
//
// Its error is smaller than that of the difference of two sl_fence_time if both are of one clock,
// as those of CUDA and Vulkan on one GPU may be. May block for about a millisecond to sample the
// clocks. Same errors as sl_fence_elapsed.
sl_result sl_fence_since(sl_fence start, sl_fence end, sl_time *time);

// The time at which a point was reached, on the host's clock, as sl_fence_time gives it.
//
// The timeline was made by sl_timeline_make_clocked. May block for about a millisecond.
// SL_ERROR_NOT_READY before the point is reached, and SL_ERROR_NO_TIME if its signal has no time:
// it was a claim, it is the initial value, or it was too long ago.
sl_result sl_point_time(sl_point point, sl_time *time);

// Frees a handle of a fence. Waits for it stay.
sl_result sl_fence_free(sl_fence fence);

// Adds 1 to an eventfd once a point is reached, or once it is known that it never will be.
//
// sl_point_is_reached tells which. If that is so already, this call adds it. After success the
// descriptor is the library's, which closes it: pass a duplicate to keep one, or to use one
// eventfd for several points. After an error it is still the program's. Does not block.
//
// `notification` gets a handle with which the request can be cancelled. If it is null, the request
// stays as long as the timeline. SL_ERROR_UNSUPPORTED if the descriptor is not an eventfd.
//
// `eventfd` is an open descriptor that the program owns, and that nothing else closes.
sl_result sl_point_notify(sl_point point, int32_t eventfd, sl_notification *notification);

// Cancels a request, and closes its descriptor.
//
// If another thread is adding to the eventfd at that moment, that thread closes it afterwards.
sl_result sl_notification_free(sl_notification notification);

// Makes memory that both devices of a link use, and a view of it for each.
//
// `bytes` is a multiple of 4. It is one allocation: Vulkan or CUDA exports it, or one of the
// devices is the host. Order all accesses with timelines of the link. Free both views with
// sl_buffer_free; the last one frees the memory, once no submission uses it. May block for
// milliseconds. SL_ERROR_UNSUPPORTED if the devices have no memory in common: make two by
// sl_buffer_make, and copy with sl_buffer_copy.
sl_result sl_link_buffer(sl_link link, uint64_t bytes, sl_buffer *left, sl_buffer *right);

// Makes memory of a device that the host can address, filled with zeroes.
//
// `bytes` is a multiple of 4. Free it with sl_buffer_free. May block for milliseconds.
// SL_ERROR_UNSUPPORTED for another size, or one that there is no memory for.
sl_result sl_buffer_make(sl_device device, uint64_t bytes, sl_buffer *buffer);

// Makes a view of a range of a buffer, which keeps its memory. Free it with sl_buffer_free.
//
// `offset` and `bytes` are multiples of 4. SL_ERROR_UNSUPPORTED for a range that the buffer does
// not have.
sl_result sl_buffer_view(sl_buffer buffer, uint64_t offset, uint64_t bytes, sl_buffer *view);

// Reads the raw handles of a buffer. They are valid while a handle of the buffer lives.
//
// A submission of the program does not keep the memory: free the buffer after it has finished, for
// example in the free function of its data.
sl_result sl_buffer_get_info(sl_buffer buffer, sl_buffer_info *info);

// Copies a buffer to another one on the calling thread. The host can address both.
//
// It orders nothing: wait for the writes before, and submit the reads after. Blocks while it
// copies. SL_ERROR_INVALID_ARGUMENT if the buffers are not equally large, and
// SL_ERROR_UNSUPPORTED if the host cannot address one of them.
sl_result sl_buffer_copy(sl_buffer from, sl_buffer to);

// The barrier with which commands of the program acquire a buffer from CUDA or another VkDevice.
//
// `family` is the queue family that the commands are for. `barrier` is a VkBufferMemoryBarrier or
// a VkBufferMemoryBarrier2 whose sType is set. All fields are filled in; pNext becomes null. The
// barrier belongs at the beginning of the commands, with all stages on both sides. `needed` is
// false for memory that is not shared, and the barrier is then left alone.
//
// `barrier` points to the structure that its sType names.
sl_result sl_buffer_acquire_barrier(sl_buffer buffer, uint32_t family, void *barrier, bool *needed);

// The barrier that releases a buffer to CUDA or another VkDevice, at the end of the commands.
//
// See sl_buffer_acquire_barrier.
//
// `barrier` points to the structure that its sType names.
sl_result sl_buffer_release_barrier(sl_buffer buffer, uint32_t family, void *barrier, bool *needed);

// Frees a view of memory. The last view frees the memory once no submission of Syncline uses it.
//
// With memory of CUDA, the call may block until all work of the context has finished, also that of
// others, as cuMemFree does. Behind a stream that waits for a signal that is missing, it blocks
// for ever. So print errors before you free memory.
sl_result sl_buffer_free(sl_buffer buffer);

// Makes an image that both devices of a link use, and a view of it for each.
//
// Vulkan makes it in memory of its own, and the other device imports it. Its contents are
// undefined: the first acquire discards them. Free both views with sl_image_free. May block for
// milliseconds. SL_ERROR_UNSUPPORTED names the property that the devices do not share.
sl_result sl_link_image(sl_link link, const sl_image_info *info, sl_image *left, sl_image *right);

// Reads the raw handles of an image. They are valid while a handle of the image lives.
//
// See sl_buffer_get_info.
sl_result sl_image_get_handles(sl_image image, sl_image_handles *handles);

// The barrier with which commands of the program acquire an image from CUDA or another VkDevice.
//
// `contents` is an sl_contents, and `layout` the VkImageLayout that the commands need. `barrier`
// is a VkImageMemoryBarrier or a VkImageMemoryBarrier2 whose sType is set. For the rest see
// sl_buffer_acquire_barrier. An image always needs the barrier. After the first acquire of a new
// image, call sl_image_note_contents.
//
// `barrier` points to the structure that its sType names.
sl_result sl_image_acquire_barrier(sl_image image,
                                   uint32_t family,
                                   uint32_t contents,
                                   int32_t layout,
                                   void *barrier);

// The barrier that releases an image to CUDA or another VkDevice, at the end of the commands.
//
// `layout` is the VkImageLayout that the commands leave it in. See sl_image_acquire_barrier.
//
// `barrier` points to the structure that its sType names.
sl_result sl_image_release_barrier(sl_image image, uint32_t family, int32_t layout, void *barrier);

// Says that commands of the program were submitted which acquire a new image and release it.
//
// After that, later acquires may keep the contents.
//
// The commands have the barriers of sl_image_acquire_barrier and sl_image_release_barrier. Later
// submissions that use the image wait for them.
sl_result sl_image_note_contents(sl_image image);

// Frees a view of an image. The last view frees it once no submission of Syncline uses it.
//
// May block as sl_buffer_free does.
sl_result sl_image_free(sl_image image);

// Adopts memory that the program has allocated, such as a block of its allocator.
//
// Makes no driver call. sl_allocation_buffer and sl_allocation_image adopt what is bound to it.
// `free_owner` is called once with `owner`, on any thread, when nothing of Syncline uses the
// memory any more, also if this call fails. If it is null, the memory stays until then. Free the
// handle with sl_allocation_free. SL_ERROR_UNSUPPORTED for exportable memory of a device that
// exports none.
//
// The memory is of the VkDevice, as `info` says, and has no device mask. It is exportable for
// opaque file descriptors alone, and is not imported. It stays until `free_owner` is called.
sl_result sl_allocation_adopt_vulkan(sl_device device,
                                     const sl_vulkan_allocation_info *info,
                                     void *owner,
                                     sl_drop free_owner,
                                     sl_allocation *allocation);

// Adopts a VkBuffer that the program has bound to an allocation at `offset`.
//
// Makes no driver call. `is_concurrent` is 1 for VK_SHARING_MODE_CONCURRENT, and 0 for an
// exclusive one, which queues of one family use. Before its first use by Syncline, the program
// releases a buffer that it has used to VK_QUEUE_FAMILY_EXTERNAL. `free_owner` is called as that
// of sl_allocation_adopt_vulkan. Free the buffer with sl_buffer_free.
//
// `buffer` is of the same VkDevice, has `bytes` bytes, and is bound there. It stays until
// `free_owner` is called, or as long as the memory. In exportable memory it was created with
// VkExternalMemoryBufferCreateInfo for opaque file descriptors.
sl_result sl_allocation_buffer(sl_allocation allocation,
                               VkBuffer buffer,
                               uint64_t offset,
                               uint64_t bytes,
                               uint32_t is_concurrent,
                               void *owner,
                               sl_drop free_owner,
                               sl_buffer *adopted);

// Adopts a VkImage that the program has bound to an exportable allocation at `offset`.
//
// Calls vkGetImageMemoryRequirements2. `free_owner` is called as that of
// sl_allocation_adopt_vulkan. Free the image with sl_image_free. SL_ERROR_UNSUPPORTED for an image
// that devices cannot share; the text says why.
//
// `image` is of the same VkDevice and bound there. It stays until `free_owner` is called, or as
// long as the memory. It was created as `info` says, with the usages for transfers, with optimal
// tiling and exclusive sharing mode, with VkExternalMemoryImageCreateInfo for opaque file
// descriptors, and with no other usage or flag. A first use that keeps its contents finds it in
// VK_IMAGE_LAYOUT_GENERAL, released to VK_QUEUE_FAMILY_EXTERNAL.
sl_result sl_allocation_image(sl_allocation allocation,
                              VkImage image,
                              uint64_t offset,
                              const sl_image_info *info,
                              void *owner,
                              sl_drop free_owner,
                              sl_image *adopted);

// Frees a handle of an allocation. Its buffers, images and their shares live on.
sl_result sl_allocation_free(sl_allocation allocation);

// Shares adopted buffers with the other device of a link, and makes a view of each for both.
//
// The other device imports each allocation once, if its buffers are next to each other in the
// list. `left` and `right` have `count` elements, which get the views of the link's devices. Free
// each of them with sl_buffer_free. All views keep the memory. May block for milliseconds.
// SL_ERROR_UNSUPPORTED for memory that is dedicated or not exportable, for an offset or size that
// is no multiple of 4, and if the other device cannot import the memory.
//
// The lists have `count` elements, and do not overlap.
sl_result sl_link_share_buffers(sl_link link,
                                const sl_buffer *buffers,
                                size_t count,
                                sl_buffer *left,
                                sl_buffer *right);

// Shares an adopted image with the other device of a link, and makes a view for both.
//
// The other device imports the allocation. Free both views with sl_image_free. They keep the
// memory. May block for milliseconds. SL_ERROR_UNSUPPORTED for memory that is not exportable, and
// if the other device cannot import it.
sl_result sl_link_share_image(sl_link link, sl_image image, sl_image *left, sl_image *right);

// Makes a Unix socket at a path, to which other processes connect (sl_endpoint_connect).
//
// Every process that may write to the file can connect, so place it in a folder that only trusted
// users can enter. Does not block. Free the listener with sl_listener_free, which removes the
// file. SL_ERROR_DRIVER if there is a file already.
//
// `path_of_socket` is null, or a text that ends with a zero byte.
sl_result sl_listener_bind(const char *path_of_socket, sl_listener *listener);

// Accepts the next process that connects. Blocks for at most `nanoseconds`.
//
// sl_listener_close on another thread ends the call.
// `label` is a name for error texts, or null. A client that says nothing is let go after two
// seconds. The text of a time-out names the clients that were turned away. Free the endpoint with
// sl_endpoint_free.
sl_result sl_listener_accept(sl_listener listener,
                             const char *label,
                             uint64_t nanoseconds,
                             sl_endpoint *endpoint);

// Ends the calls of sl_listener_accept of a listener, on any threads, with SL_ERROR_CANCELLED.
//
// Later ones are refused, too. A call that reads the first message of a client ends after at most
// two seconds. Does not block.
sl_result sl_listener_close(sl_listener listener);

// Frees a listener, and removes its file.
sl_result sl_listener_free(sl_listener listener);

// Connects to the listener of another process. Blocks for at most `nanoseconds`.
//
// Both processes are in one pid namespace. `label` is a name for error texts, or null. Free the
// endpoint with sl_endpoint_free.
//
// `path_of_socket` and `label` are null, or texts that end with a zero byte.
sl_result sl_endpoint_connect(const char *path_of_socket,
                              const char *label,
                              uint64_t nanoseconds,
                              sl_endpoint *endpoint);

// Opens an endpoint over a socket that is connected to the other process, such as a child.
//
// It is a Unix socket of the type SOCK_SEQPACKET, as socketpair makes it. Blocks for at most
// `nanoseconds`, until the other process has opened its end. After success the socket is the
// library's. After an error it is still the program's. Free the endpoint with sl_endpoint_free.
//
// `socket` is an open descriptor that the program owns. `label` is null, or a text that ends with
// a zero byte.
sl_result sl_endpoint_open(int32_t socket,
                           const char *label,
                           uint64_t nanoseconds,
                           sl_endpoint *endpoint);

// The process id of the other process.
sl_result sl_endpoint_peer(sl_endpoint endpoint, uint32_t *process);

// Whether an endpoint can be used: SL_ERROR_PEER_LOST if not. Does not block.
sl_result sl_endpoint_check(sl_endpoint endpoint);

// Accepts descriptors of semaphores and device memory from the other process from now on.
//
// Timelines of drivers need it in the process that receives them. Timelines of the host's devices
// do not.
//
// No driver checks such a descriptor. The other process uses this library, and no attacker
// controls it.
sl_result sl_endpoint_trust_handles(sl_endpoint endpoint);

// Gives up a process that lives and does not answer. Waits for it end with SL_ERROR_FAILED.
//
// Submissions that were held for it are skipped, on the calling thread. The connection ends, and
// so do calls of the endpoint that block on other threads: SL_ERROR_PEER_LOST.
sl_result sl_endpoint_give_up(sl_endpoint endpoint);

// Makes a timeline of two processes. It begins at 0.
//
// Both processes make the same calls with the same labels in the same order, each with its own
// device. `access` is an sl_access, and one of the two processes signals. Blocks for at most
// `nanoseconds` for each of two steps. If the process that signals dies, waits end with
// SL_ERROR_FAILED, and the text says so. The process that signals keeps its handle as long as
// others wait. Free the timeline with sl_timeline_free, before or after the endpoint.
sl_result sl_endpoint_timeline(sl_endpoint endpoint,
                               const char *label,
                               sl_device device,
                               uint32_t access,
                               uint64_t nanoseconds,
                               sl_timeline *timeline);

// Frees an endpoint. The connection ends, and the other process sees that this one has left.
sl_result sl_endpoint_free(sl_endpoint endpoint);

// Makes words of host memory for several processes, filled with zeroes.
//
// `bytes` is a multiple of 4. Free them with sl_words_free.
sl_result sl_words_make(uint64_t bytes, sl_words *words);

// The address of words of memory, and their bytes. Valid until sl_words_free.
//
// The other process may write them at any time: access them as atomic words. Order all accesses
// with timelines.
sl_result sl_words_get(sl_words words, void **pointer, uint64_t *bytes);

// Shares words of memory with the other process, which calls sl_endpoint_receive_words.
//
// Blocks until it has them, at most `nanoseconds`.
sl_result sl_endpoint_send_words(sl_endpoint endpoint,
                                 const char *label,
                                 sl_words words,
                                 uint64_t nanoseconds);

// Receives words of memory that the other process sends under `label`.
//
// At most `most` bytes are accepted. Blocks for at most `nanoseconds`, or one second longer if the
// other process stops in the middle. Free the words with sl_words_free.
sl_result sl_endpoint_receive_words(sl_endpoint endpoint,
                                    const char *label,
                                    uint64_t most,
                                    uint64_t nanoseconds,
                                    sl_words *words);

// Frees a handle of words of memory. The other process keeps its own.
sl_result sl_words_free(sl_words words);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SYNCLINE_H */
