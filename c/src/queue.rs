//! Queues: open, idle, settle.

use std::ffi::c_char;

use syncline::QueueKind;
use syncline::backend::{Device as _, Queue as _};

use crate::handle::{Handle, sl_device, sl_queue};
use crate::result::{Refused, call, out, sl_result, told};
use crate::timeline::limit;

/// What a queue is for.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum sl_queue_kind {
    /// Graphics, compute and copies.
    SL_QUEUE_GRAPHICS = 0,
    /// Compute and copies.
    SL_QUEUE_COMPUTE = 1,
    /// Copies alone.
    SL_QUEUE_TRANSFER = 2,
}

/// Opens a queue. `kind` is an sl_queue_kind. `label` is a name for error texts, or null.
///
/// It is a thread, a new CUDA stream, or the least used VkQueue of the kind. There may be any
/// number of queues. Several of them may share one VkQueue. Free the queue with sl_queue_free.
/// SL_ERROR_UNSUPPORTED if the device has no queue of the kind.
///
/// # Safety
///
/// `label` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_queue_open(
    device: sl_device,
    kind: u32,
    label: *const c_char,
    queue: *mut sl_queue,
) -> sl_result {
    call(|| {
        let queue = out(queue, "queue")?;
        let kind = match kind {
            kind if kind == sl_queue_kind::SL_QUEUE_GRAPHICS as u32 => QueueKind::Graphics,
            kind if kind == sl_queue_kind::SL_QUEUE_COMPUTE as u32 => QueueKind::Compute,
            kind if kind == sl_queue_kind::SL_QUEUE_TRANSFER as u32 => QueueKind::Transfer,
            other => return Err(Refused::argument("kind", format!("is {other}"))),
        };
        // SAFETY: by the contract of this function.
        let label = &*unsafe { told(label) };
        queue.set(sl_queue::new(device.get()?.queue(kind, label)?));
        Ok(())
    })
}

/// Blocks until a queue has finished all of its submissions, at most `nanoseconds`.
///
/// What the submissions kept is freed then: the free functions of their data have been called. A
/// submission that was skipped counts as finished. SL_ERROR_TIMED_OUT after that time, also in a
/// callback of the queue, which must not call it.
#[unsafe(no_mangle)]
pub extern "C" fn sl_queue_idle(queue: sl_queue, nanoseconds: u64) -> sl_result {
    call(|| Ok(queue.get()?.idle(limit(nanoseconds))?))
}

/// Blocks until all submissions of a queue are with the driver, at most `nanoseconds`.
///
/// What the program gives to the driver itself then comes behind them. SL_ERROR_TIMED_OUT after
/// that time.
#[unsafe(no_mangle)]
pub extern "C" fn sl_queue_settle(queue: sl_queue, nanoseconds: u64) -> sl_result {
    call(|| Ok(queue.get()?.settle(limit(nanoseconds))?))
}

/// The number of submissions of a queue that are held on the host. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn sl_queue_held(queue: sl_queue, count: *mut usize) -> sl_result {
    call(|| {
        let count = out(count, "count")?;
        count.set(queue.get()?.held().count);
        Ok(())
    })
}

/// Frees a handle of a queue. Its submissions still run.
#[unsafe(no_mangle)]
pub extern "C" fn sl_queue_free(queue: sl_queue) -> sl_result {
    call(|| queue.free())
}
