//! Queues, and submissions with a callback.

use std::ffi::{c_char, c_void};

use syncline::backend::{Device as _, Queue as _};
use syncline::{Error, QueueKind, Recorder};

use crate::handle::{Handle, sl_device, sl_queue};
use crate::result::{Refused, call, out, sl_result, text};
use crate::timeline::{Points, limit, sl_point};

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

/// Work of the program. 0 for success. It must not throw, and must not jump out of the call.
pub type sl_work = Option<unsafe extern "C" fn(data: *mut c_void) -> i32>;

/// Frees the data of a callback. Called once, on any thread, whether the callback was called or not.
pub type sl_drop = Option<unsafe extern "C" fn(data: *mut c_void)>;

/// The data of a callback, with the function that frees it.
struct Data {
    data: *mut c_void,
    free: sl_drop,
}

// SAFETY: the header says that the callbacks may be called on any thread.
unsafe impl Send for Data {}

impl Drop for Data {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the header says that it is called once with this data.
            unsafe { free(self.data) };
        }
    }
}

/// Opens a queue. `label` is a name for error texts, or null. Free it with sl_queue_free.
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
        let label = unsafe { text(label, "label")? };
        queue.set(sl_queue::new(device.get()?.queue(kind, label)?));
        Ok(())
    })
}

/// Submits work to a queue of the host: waits, then `work` on the queue's thread, then signals.
///
/// Does not block. If a wait is not pending, the submission is held until it is. A result of `work`
/// other than 0 fails the timelines of `signals`. `work` may be null. `free` is called once with
/// `data`, also if this call fails.
///
/// # Safety
///
/// The lists have as many elements as their counts say. `work` and `free` may be called on any
/// thread with `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_queue_submit_host(
    queue: sl_queue,
    waits: *const sl_point,
    wait_count: usize,
    signals: *const sl_point,
    signal_count: usize,
    work: sl_work,
    data: *mut c_void,
    free: sl_drop,
) -> sl_result {
    let data = Data { data, free };
    call(|| {
        // SAFETY: by the contract of this function.
        let waits = unsafe { Points::read(waits, wait_count, "waits")? };
        // SAFETY: by the contract of this function.
        let signals = unsafe { Points::read(signals, signal_count, "signals")? };
        let signals: Vec<_> = signals
            .iter()
            .map(|(timeline, value)| timeline.signal_at(value))
            .collect();
        let job = move || {
            let data = data;
            let Some(work) = work else { return Ok(()) };
            // SAFETY: the caller says that it may be called on any thread.
            match unsafe { work(data.data) } {
                0 => Ok(()),
                code => {
                    let text = format!("the callback has returned {code}");
                    Err(Error::work(std::io::Error::other(text)))
                }
            }
        };
        let work = move |recorder: &mut Recorder<'_>| {
            recorder.host()?.try_run(job);
            Ok(())
        };
        queue.get()?.submit(&waits.points(), work, &signals)?;
        Ok(())
    })
}

/// Blocks until a queue has finished all of its submissions, at most `nanoseconds`.
#[unsafe(no_mangle)]
pub extern "C" fn sl_queue_idle(queue: sl_queue, nanoseconds: u64) -> sl_result {
    call(|| Ok(queue.get()?.idle(limit(nanoseconds))?))
}

/// Frees a handle of a queue. Its submissions still run.
#[unsafe(no_mangle)]
pub extern "C" fn sl_queue_free(queue: sl_queue) -> sl_result {
    call(|| queue.free())
}
