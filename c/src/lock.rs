//! The lock of a queue, for calls of the program's own.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use syncline::backend::Queue as _;
use syncline::cuda::StreamGuard;
use syncline::vulkan::QueueGuard;
use syncline::{Error, Queue};

use crate::handle::{Handle, sl_lock, sl_queue};
use crate::raw::{CUstream, VkQueue, from_vk};
use crate::result::{Refused, call, info_out, out, sl_result};

/// What is locked.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_lock_info {
    /// The size of this structure, which the caller sets.
    pub size: usize,
    /// The VkQueue, or null. Use it until the lock is freed.
    pub vulkan_queue: VkQueue,
    /// The index of its family.
    pub vulkan_family: u32,
    /// Its index within the family.
    pub vulkan_index: u32,
    /// The CUDA stream, or null. Null is also the legacy default stream.
    pub cuda_stream: CUstream,
    /// The number of submissions that are held on the host, and would come behind yours.
    pub held: usize,
}

/// A guard of a queue. Ends on the thread that has taken it.
pub(crate) struct Lock {
    /// Before `queue`, so that it ends before.
    guard: Guard,
    thread: ThreadId,
    _queue: Arc<Queue>,
}

enum Guard {
    Vulkan(QueueGuard),
    /// Borrows from the queue beside it.
    Cuda(StreamGuard<'static>),
}

// SAFETY: only the thread that has taken the guard uses and drops it. `sl_queue_unlock` refuses
// any other thread before it takes the lock out of the table, and nothing else has it.
unsafe impl Send for Lock {}
// SAFETY: as above.
unsafe impl Sync for Lock {}

impl Lock {
    fn new(queue: Arc<Queue>) -> Result<Self, Refused> {
        let guard = match &*queue {
            Queue::Vulkan(queue) => Guard::Vulkan(queue.lock()?),
            Queue::Cuda(cuda) => {
                let guard = cuda.stream();
                // SAFETY: it borrows from the queue, which is beside it and outlives it. The queue
                // does not move, because it is in an `Arc`.
                Guard::Cuda(unsafe {
                    std::mem::transmute::<StreamGuard<'_>, StreamGuard<'static>>(guard)
                })
            }
            other => {
                let reason = "its thread is of this library; only a VkQueue or a stream is locked";
                return Err(Error::unsupported(other.object(), "be locked", reason).into());
            }
        };
        Ok(Self {
            guard,
            thread: thread::current().id(),
            _queue: queue,
        })
    }

    fn info(&self) -> sl_lock_info {
        let none = sl_lock_info {
            size: size_of::<sl_lock_info>(),
            vulkan_queue: std::ptr::null_mut(),
            vulkan_family: 0,
            vulkan_index: 0,
            cuda_stream: std::ptr::null_mut(),
            held: 0,
        };
        match &self.guard {
            Guard::Vulkan(guard) => sl_lock_info {
                vulkan_queue: from_vk(guard.raw()),
                vulkan_family: guard.family(),
                vulkan_index: guard.index(),
                held: guard.held(),
                ..none
            },
            Guard::Cuda(guard) => sl_lock_info {
                cuda_stream: guard.raw(),
                held: guard.held(),
                ..none
            },
        }
    }
}

/// Locks a VkQueue, or takes a CUDA stream for this thread, for calls of the program's own.
///
/// Until sl_queue_unlock, submissions of Syncline to the same VkQueue or stream are held. The
/// program calls vkQueueSubmit, vkQueuePresentKHR, vkQueueWaitIdle and vkQueueBindSparse with a
/// VkQueue of Syncline's or an adopted one only while it has this lock. A stream needs the lock
/// only if calls of other threads must not come between, and when a capture begins or ends.
///
/// Blocks while another thread has the lock. SL_ERROR_DEADLOCK if this thread has locked the same
/// VkQueue, or is in its callback. Several queues may share one VkQueue. A stream may be locked
/// again. Keep the lock for a short time. `info` tells what is locked, and may be null.
/// SL_ERROR_UNSUPPORTED for a queue of the host.
///
/// # Safety
///
/// `info` is null, or points to a structure whose size is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_queue_lock(
    queue: sl_queue,
    info: *mut sl_lock_info,
    lock: *mut sl_lock,
) -> sl_result {
    call(|| {
        let place = out(lock, "lock")?;
        let told = match info.is_null() {
            true => None,
            // SAFETY: by the contract of this function.
            false => Some(unsafe { info_out(info, "info")? }),
        };
        let lock = Lock::new(queue.get()?)?;
        if let Some(told) = told {
            told.set(lock.info());
        }
        place.set(sl_lock::new(lock));
        Ok(())
    })
}

/// Unlocks what sl_queue_lock has locked, and frees the lock.
///
/// Call it on the thread that has locked; another one gets SL_ERROR_INVALID_ARGUMENT, and the lock
/// stays. Submissions that were held for the lock go to the driver on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn sl_queue_unlock(lock: sl_lock) -> sl_result {
    call(|| {
        lock.free_if(|lock| match lock.thread == thread::current().id() {
            true => Ok(()),
            false => Err(Refused::argument(
                "lock",
                "was taken by another thread, which must unlock it",
            )),
        })
    })
}
