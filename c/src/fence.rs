//! Fences, and times.

use std::ffi::c_char;

use syncline::backend::{Device as _, Queue as _};

use crate::handle::{Handle, sl_device, sl_fence, sl_queue};
use crate::raw::CUevent;
use crate::result::{Refused, call, out, sl_result, told};
use crate::timeline::{limit, sl_point};

/// The kind of time that the records of a fence write.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum sl_timing {
    /// No time.
    SL_TIMING_NONE = 0,
    /// A time for intervals between fences of one device. The cheapest one.
    SL_TIMING_INTERVAL = 1,
    /// A time on the device's clock, which compares with times of other devices and the host.
    SL_TIMING_CLOCK = 2,
}

/// A time or an interval in nanoseconds, and its error.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_time {
    /// The nanoseconds. Negative for an interval whose end was earlier than its start.
    pub nanoseconds: i64,
    /// The largest distance from the true time in nanoseconds, in both directions.
    pub error: u64,
}

/// Makes a fence for queues of a device. It is complete until it is recorded.
///
/// `timing` is an sl_timing. With SL_TIMING_CLOCK the first call on a device makes its clock, which
/// takes milliseconds, or up to a second while the device is busy. `label` is a name for error
/// texts, or null. Free the fence with sl_fence_free.
///
/// # Safety
///
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_fence_make(
    device: sl_device,
    timing: u32,
    label: *const c_char,
    fence: *mut sl_fence,
) -> sl_result {
    call(|| {
        let fence = out(fence, "fence")?;
        // SAFETY: by the contract of this function.
        let label = &*unsafe { told(label) };
        let device = device.get()?;
        let made = match timing {
            kind if kind == sl_timing::SL_TIMING_NONE as u32 => device.fence(label),
            kind if kind == sl_timing::SL_TIMING_INTERVAL as u32 => device.timed_fence(label),
            kind if kind == sl_timing::SL_TIMING_CLOCK as u32 => device.clocked_fence(label)?,
            other => return Err(Refused::argument("timing", format!("is {other}"))),
        };
        fence.set(sl_fence::new(made));
        Ok(())
    })
}

/// Makes a fence for the latest record of a CUDA event of the program.
///
/// Later records of the event do not move the fence. The event is used during the call only. The
/// fence cannot be recorded. Free it with sl_fence_free.
///
/// # Safety
///
/// `event` is a live event of this process, and its latest record was not in a stream capture.
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_fence_adopt_cuda(
    device: sl_device,
    event: CUevent,
    label: *const c_char,
    fence: *mut sl_fence,
) -> sl_result {
    call(|| {
        let fence = out(fence, "fence")?;
        // SAFETY: by the contract of this function.
        let label = &*unsafe { told(label) };
        if event.is_null() {
            return Err(Refused::argument("event", "is null"));
        }
        let device = device.get()?;
        // SAFETY: by the contract of this function.
        let made = unsafe { device.cuda()?.adopt_event(event, label)? };
        fence.set(sl_fence::new(made));
        Ok(())
    })
}

/// Records a fence at the present position of a queue, behind held submissions too.
///
/// Waits for an earlier record stay as they are. Does not block. SL_ERROR_UNSUPPORTED for a fence
/// of another device, and for a fence with times if the queue writes none.
#[unsafe(no_mangle)]
pub extern "C" fn sl_queue_record(queue: sl_queue, fence: sl_fence) -> sl_result {
    call(|| Ok(queue.get()?.record(&*fence.get()?)?))
}

/// Makes all later submissions of a queue wait for a fence as it is now. Does not block.
///
/// The queue may be of any device.
#[unsafe(no_mangle)]
pub extern "C" fn sl_queue_wait_fence(queue: sl_queue, fence: sl_fence) -> sl_result {
    call(|| Ok(queue.get()?.wait(&*fence.get()?)?))
}

/// Whether everything before the last record of a fence has finished. Does not block.
///
/// True for a fence that was never recorded.
#[unsafe(no_mangle)]
pub extern "C" fn sl_fence_is_complete(fence: sl_fence, complete: *mut bool) -> sl_result {
    call(|| {
        let complete = out(complete, "complete")?;
        complete.set(fence.get()?.is_complete()?);
        Ok(())
    })
}

/// Blocks until the record that a fence holds at the call is complete, at most `nanoseconds`.
///
/// Same errors as sl_point_wait.
#[unsafe(no_mangle)]
pub extern "C" fn sl_fence_wait(fence: sl_fence, nanoseconds: u64) -> sl_result {
    call(|| Ok(fence.get()?.wait(limit(nanoseconds))?))
}

/// The time on the device from one fence to another, in nanoseconds. Does not block.
///
/// Negative if `start` is the later one. Both are of one device and one sl_timing, recorded and
/// complete. SL_ERROR_NOT_READY if one of them is not, and SL_ERROR_NO_TIME for fences without
/// times or with different ones.
#[unsafe(no_mangle)]
pub extern "C" fn sl_fence_elapsed(
    start: sl_fence,
    end: sl_fence,
    nanoseconds: *mut i64,
) -> sl_result {
    call(|| {
        let nanoseconds = out(nanoseconds, "nanoseconds")?;
        let (start, end) = (start.get()?, end.get()?);
        nanoseconds.set(end.elapsed_since(&start)?);
        Ok(())
    })
}

/// The time of a fence's last record on the host's clock, CLOCK_MONOTONIC.
///
/// The fence has SL_TIMING_CLOCK, and is recorded and complete. Same errors as sl_fence_elapsed.
/// May block for about a millisecond to sample the device's clock. A Vulkan driver that does not
/// read CLOCK_MONOTONIC gives CLOCK_MONOTONIC_RAW.
#[unsafe(no_mangle)]
pub extern "C" fn sl_fence_time(fence: sl_fence, time: *mut sl_time) -> sl_result {
    call(|| {
        let place = out(time, "time")?;
        let host = fence.get()?.time()?.to_host()?;
        place.set(sl_time {
            nanoseconds: host.nanoseconds,
            error: host.error,
        });
        Ok(())
    })
}

/// The interval between two fences with SL_TIMING_CLOCK, which may be of different devices.
///
/// Its error is smaller than that of the difference of two sl_fence_time if both are of one clock,
/// as those of CUDA and Vulkan on one GPU may be. May block for about a millisecond to sample the
/// clocks. Same errors as sl_fence_elapsed.
#[unsafe(no_mangle)]
pub extern "C" fn sl_fence_since(start: sl_fence, end: sl_fence, time: *mut sl_time) -> sl_result {
    call(|| {
        let place = out(time, "time")?;
        let elapsed = end.get()?.time()?.since(&start.get()?.time()?)?;
        place.set(sl_time {
            nanoseconds: elapsed.nanoseconds,
            error: elapsed.error,
        });
        Ok(())
    })
}

/// The time at which a point was reached, on the host's clock, as sl_fence_time gives it.
///
/// The timeline was made by sl_timeline_make_clocked. May block for about a millisecond.
/// SL_ERROR_NOT_READY before the point is reached, and SL_ERROR_NO_TIME if its signal has no time:
/// it was a claim, it is the initial value, or it was too long ago.
#[unsafe(no_mangle)]
pub extern "C" fn sl_point_time(point: sl_point, time: *mut sl_time) -> sl_result {
    call(|| {
        let place = out(time, "time")?;
        let timeline = point.timeline.get()?;
        let host = timeline.at(point.value)?.time()?.to_host()?;
        place.set(sl_time {
            nanoseconds: host.nanoseconds,
            error: host.error,
        });
        Ok(())
    })
}

/// Frees a handle of a fence. Waits for it stay.
#[unsafe(no_mangle)]
pub extern "C" fn sl_fence_free(fence: sl_fence) -> sl_result {
    call(|| fence.free())
}
