#ifndef SYNCLINE_H
#define SYNCLINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The major version of the header. A program and a library of different major versions do not fit.
#define SL_VERSION_MAJOR 0

// The minor version of the header. Before version 1.0, it must be equal, too.
#define SL_VERSION_MINOR 1

// The patch version of the header.
#define SL_VERSION_PATCH 0

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
  // The last handle of the timeline is gone, and nothing can signal the value any more.
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
} sl_device_info;

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

// A timeline and a value. It can be waited for, and signalled.
typedef struct {
  // The timeline.
  sl_timeline timeline;
  // The value.
  uint64_t value;
} sl_point;

// Work of the program. 0 for success. It must not throw, and must not jump out of the call.
typedef int32_t (*sl_work)(void *data);

// Frees the data of a callback. Called once, on any thread, whether the callback was called or not.
typedef void (*sl_drop)(void *data);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a device of the host. It needs no driver.
//
// Free it with sl_device_free.
sl_result sl_device_open_host(sl_device *device);

// Opens the device of this machine that `name` selects.
//
// `name` is "cuda", "vulkan" or "host", the number of a device in the list of sl_report, or a part
// of a device's name. Blocks for some 100 ms to open a CUDA context, or some 600 ms for a VkDevice.
// Free the device with sl_device_free.
//
// # Safety
//
// `name` is a text that ends with a zero byte.
sl_result sl_device_open(const char *name, sl_device *device);

// Reads what a device is.
//
// # Safety
//
// `info` points to a structure whose size is set.
sl_result sl_device_get_info(sl_device device, sl_device_info *info);

// Asks the driver whether the device is lost.
sl_result sl_device_check(sl_device device);

// Frees a handle of a device. The device lives until all that was made with it is freed.
sl_result sl_device_free(sl_device device);

// The version of the library: major * 1000000 + minor * 1000 + patch.
uint32_t sl_version(void);

// The name of a result, such as "SL_ERROR_TIMED_OUT". "unknown" for another number.
const char *sl_result_name(int32_t result);

// Opens a queue. `label` is a name for error texts, or null. Free it with sl_queue_free.
//
// # Safety
//
// `label` is null, or a text that ends with a zero byte.
sl_result sl_queue_open(sl_device device, uint32_t kind, const char *label, sl_queue *queue);

// Submits work to a queue of the host: waits, then `work` on the queue's thread, then signals.
//
// Does not block. If a wait is not pending, the submission is held until it is. A result of `work`
// other than 0 fails the timelines of `signals`. `work` may be null. `free` is called once with
// `data`, also if this call fails.
//
// # Safety
//
// The lists have as many elements as their counts say. `work` and `free` may be called on any
// thread with `data`.
sl_result sl_queue_submit_host(sl_queue queue,
                               const sl_point *waits,
                               size_t wait_count,
                               const sl_point *signals,
                               size_t signal_count,
                               sl_work work,
                               void *data,
                               sl_drop free);

// Blocks until a queue has finished all of its submissions, at most `nanoseconds`.
sl_result sl_queue_idle(sl_queue queue, uint64_t nanoseconds);

// Frees a handle of a queue. Its submissions still run.
sl_result sl_queue_free(sl_queue queue);

// The text of the last error on the calling thread, in UTF-8.
//
// It has all causes, and for a time-out the signals that are missing. Valid until the next error
// on this thread. The empty text if no call has failed.
const char *sl_last_error(void);

// Makes a timeline of a device, which begins at 0.
//
// `label` is a name for error texts, or null. Free the timeline with sl_timeline_free.
//
// # Safety
//
// `label` is null, or a text that ends with a zero byte.
sl_result sl_timeline_make(sl_device device, const char *label, sl_timeline *timeline);

// Signals a value from the host. It must be above the present one, and not claimed.
//
// Submissions that were held for the value go to their drivers on the calling thread.
sl_result sl_timeline_signal(sl_timeline timeline, uint64_t value);

// Fails a timeline: all present and later waits for values that are not reached end with an error.
//
// # Safety
//
// `reason` is null, or a text that ends with a zero byte. It is in the error of the waits.
sl_result sl_timeline_fail(sl_timeline timeline, const char *reason);

// The value that a timeline has reached. Asks the driver.
sl_result sl_timeline_value(sl_timeline timeline, uint64_t *value);

// Frees a handle of a timeline.
//
// If it was the last one, values that nothing has claimed can never come: waits for them on other
// threads, and submissions that wait for them, end with SL_ERROR_CANCELLED.
sl_result sl_timeline_free(sl_timeline timeline);

// Whether a point is reached. Does not block.
sl_result sl_point_is_reached(sl_point point, bool *reached);

// Whether the signal of a point is with its driver, so that a driver may wait for it.
sl_result sl_point_is_pending(sl_point point, bool *pending);

// Blocks until a point is reached, at most `nanoseconds`.
//
// The text of a time-out names the signals that are missing and what they wait for.
sl_result sl_point_wait(sl_point point, uint64_t nanoseconds);

// Blocks until the signal of a point is with its driver, at most `nanoseconds`.
sl_result sl_point_wait_pending(sl_point point, uint64_t nanoseconds);

// Blocks until all points are reached, at most `nanoseconds`.
//
// # Safety
//
// `points` has `count` elements.
sl_result sl_wait_all(const sl_point *points, size_t count, uint64_t nanoseconds);

// Blocks until one of the points is reached, at most `nanoseconds`. `index` is its place.
//
// # Safety
//
// `points` has `count` elements.
sl_result sl_wait_any(const sl_point *points, size_t count, uint64_t nanoseconds, size_t *index);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SYNCLINE_H */
