//! Submissions with callbacks, and empty ones.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use syncline::backend::Queue as _;
use syncline::vulkan::ash::vk;
use syncline::{Error, Queue, Recorder, Submitted, cuda};

use crate::handle::{Handle, sl_queue, sl_submission};
use crate::raw::{CUstream, VkQueue, VkSemaphore, from_vk};
use crate::result::{Refused, call, optional, out, sl_result, told};
use crate::timeline::{Points, Signals, limit, sl_point};

/// Work on a thread of the library. 0 for success.
///
/// It must not throw, and must not jump out of the call.
pub type sl_work = Option<unsafe extern "C" fn(data: *mut c_void) -> i32>;

/// Submits to a VkQueue. Returns the VkResult, which is below 0 for an error.
///
/// It must not throw, and must not jump out of the call.
pub type sl_vulkan_work =
    Option<unsafe extern "C" fn(submission: *const sl_vulkan_submission, data: *mut c_void) -> i32>;

/// Adds work to a CUDA stream. Returns the CUresult or cudaError_t: 0 for success.
///
/// It must not throw, and must not jump out of the call.
pub type sl_cuda_work = Option<unsafe extern "C" fn(stream: CUstream, data: *mut c_void) -> i32>;

/// Frees the data of a callback. Called once, on any thread, also if the callback was not called.
///
/// It may call the library. But it must not wait for a queue, a fence or a point, and must not lock
/// the queue of its submission. To submit to that queue may return SL_ERROR_DEADLOCK. It must not
/// throw, and must not jump out of the call. It is not called if the process exits before.
pub type sl_drop = Option<unsafe extern "C" fn(data: *mut c_void)>;

/// What a vkQueueSubmit of the program waits for and signals. All of it lives during the callback.
///
/// The lists fit into VkSubmitInfo and VkTimelineSemaphoreSubmitInfo without changes. The program
/// may add waits and signals of its own.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct sl_vulkan_submission {
    /// The size of this structure.
    pub size: usize,
    /// The queue to submit to. It is locked during the callback.
    pub queue: VkQueue,
    /// The number of semaphores to wait for.
    pub wait_count: u32,
    /// The number of semaphores to signal.
    pub signal_count: u32,
    /// The semaphores to wait for.
    pub waits: *const VkSemaphore,
    /// The value to wait for, of each semaphore.
    pub wait_values: *const u64,
    /// The VkPipelineStageFlags that wait for each semaphore: all. Others may be passed instead.
    pub wait_stages: *const u32,
    /// The semaphores to signal.
    pub signals: *const VkSemaphore,
    /// The value of each signal.
    pub signal_values: *const u64,
}

/// The data of a callback, with the function that frees it.
pub(crate) struct Data {
    data: *mut c_void,
    free: sl_drop,
}

// SAFETY: the header says that the callbacks may be called on any thread.
unsafe impl Send for Data {}
// SAFETY: it is passed to a callback, which is called once, and freed after that.
unsafe impl Sync for Data {}

impl Data {
    pub(crate) const fn new(data: *mut c_void, free: sl_drop) -> Self {
        Self { data, free }
    }

    /// What a submission keeps until it has finished. `None` without a function that frees it.
    fn kept(self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.free.is_some().then(|| Arc::new(self) as _)
    }

    /// An owner of adopted objects. `None` if C does not want to know when they are free.
    pub(crate) fn owner(data: *mut c_void, free: sl_drop) -> Option<Arc<dyn Any + Send + Sync>> {
        Self::new(data, free).kept()
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the header says that it is called once with this data.
            unsafe { free(self.data) };
        }
    }
}

/// A submission, and the queue that has the answer.
pub(crate) struct Submission {
    /// Borrows from the queue beside it.
    submitted: Submitted<'static>,
    _queue: Arc<Queue>,
}

impl Submission {
    fn new(submitted: Submitted<'_>, queue: &Arc<Queue>) -> Self {
        // SAFETY: it borrows from the queue, which is beside it. The queue does not move, because
        // it is in an `Arc`.
        let submitted =
            unsafe { std::mem::transmute::<Submitted<'_>, Submitted<'static>>(submitted) };
        Self {
            submitted,
            _queue: queue.clone(),
        }
    }
}

/// The arguments that all submissions have.
struct Lists {
    queue: Arc<Queue>,
    waits: Points,
    signals: Signals,
}

impl Lists {
    /// # Safety
    /// The lists have as many elements as their counts say.
    unsafe fn read(
        queue: sl_queue,
        (waits, wait_count): (*const sl_point, usize),
        (signals, signal_count): (*const sl_point, usize),
    ) -> Result<Self, Refused> {
        // SAFETY: by the contract of this function.
        unsafe {
            Ok(Self {
                queue: queue.get()?,
                waits: Points::read(waits, wait_count, "waits")?,
                signals: Signals::read(signals, signal_count)?,
            })
        }
    }

    /// Submits by `submit`, and tells C of the submission if it wants to know.
    fn submit(
        &self,
        submission: *mut sl_submission,
        work: impl for<'r, 'a> FnOnce(&'r mut Recorder<'a>) -> syncline::Result<()> + Send + 'static,
    ) -> Result<(), Refused> {
        let signals = self.signals.signals()?;
        let submitted = self.queue.submit(&self.waits.points(), work, &signals)?;
        self.tell(submission, submitted);
        Ok(())
    }

    fn tell(&self, submission: *mut sl_submission, submitted: Submitted<'_>) {
        if let Some(place) = optional(submission) {
            place.set(sl_submission::new(Submission::new(submitted, &self.queue)));
        }
    }
}

fn required<T>(work: Option<T>) -> Result<T, Refused> {
    work.ok_or_else(|| Refused::argument("work", "is null: call sl_queue_submit without work"))
}

/// Submits waits and signals without work, to a queue of any device.
///
/// Does not block. If a wait is not pending, the submission is held until it is. If a timeline of
/// the waits fails, those of the signals fail with the same cause. A point that a submission
/// signals is above all values of its timeline that are reached or claimed.
///
/// `free` is called once with `data` after the submission has finished, or when it is known never
/// to run, also if this call fails. So it also tells when earlier work of the queue has finished.
/// `submission`, which may be null, gets a handle of the submission.
///
/// # Safety
///
/// `free` may be called on any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_queue_submit(
    queue: sl_queue,
    waits: *const sl_point,
    wait_count: usize,
    signals: *const sl_point,
    signal_count: usize,
    data: *mut c_void,
    free: sl_drop,
    submission: *mut sl_submission,
) -> sl_result {
    let data = Data::new(data, free);
    call(|| {
        // SAFETY: by the contract of this function.
        let lists = unsafe { Lists::read(queue, (waits, wait_count), (signals, signal_count))? };
        lists.submit(submission, move |recorder| {
            if let Some(kept) = data.kept() {
                recorder.keep(kept);
            }
            Ok(())
        })
    })
}

/// Submits work to a queue of the host: waits, then `work` on the queue's thread, then signals.
///
/// Does not block. If a wait is not pending, the submission is held until it is. A result of `work`
/// other than 0 fails the timelines of `signals`. `work` may call the library. It must not wait for
/// what comes after it on the queue.
///
/// `free` is called once with `data` after `work`, or when `work` is known never to be called, also
/// if this call fails. `submission`, which may be null, gets a handle of the submission.
///
/// # Safety
///
/// `work` and `free` may be called on any thread with `data`.
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
    submission: *mut sl_submission,
) -> sl_result {
    let data = Data::new(data, free);
    call(|| {
        let work = required(work)?;
        // SAFETY: by the contract of this function.
        let lists = unsafe { Lists::read(queue, (waits, wait_count), (signals, signal_count))? };
        lists.queue.host()?;
        let job = move || {
            // The whole of it, and not its pointer alone.
            let data = data;
            // SAFETY: the caller says that it may be called on any thread.
            run("", || unsafe { work(data.data) })
        };
        lists.submit(submission, move |recorder| {
            recorder.host()?.try_run(job);
            Ok(())
        })
    })
}

/// Submits by a vkQueueSubmit of the program's own, which `work` makes.
///
/// Does not block. `work` is called once, when all waits may go to the driver: on this thread
/// during the call, or later on the thread that releases the submission. The VkQueue is locked
/// meanwhile. `work` makes one or more submissions that wait for all waits of its
/// sl_vulkan_submission and then make all of its signals. A missing signal shows as a time-out. It
/// must not block, must not lock the queue, and must not submit to it through Syncline. If it
/// returns a number below 0, it has made no signal: this call returns SL_ERROR_DRIVER, or, if the
/// submission was held, the timelines of the signals fail. An earlier part may be with the driver.
///
/// `free` is called once with `data` after the submission has finished, or when it is known never
/// to run, also if this call fails. So it may free command buffers. It is called by a later call of
/// the queue or the device: sl_queue_idle makes sure. The semaphores live until then.
/// `submission`, which may be null, gets a handle of the submission.
///
/// # Safety
///
/// `work` and `free` may be called on any thread with `data`. `work` submits only what is valid.
/// What it uses lives until `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_queue_submit_vulkan(
    queue: sl_queue,
    waits: *const sl_point,
    wait_count: usize,
    signals: *const sl_point,
    signal_count: usize,
    work: sl_vulkan_work,
    data: *mut c_void,
    free: sl_drop,
    submission: *mut sl_submission,
) -> sl_result {
    let data = Data::new(data, free);
    call(|| {
        let work = required(work)?;
        // SAFETY: by the contract of this function.
        let lists = unsafe { Lists::read(queue, (waits, wait_count), (signals, signal_count))? };
        let submit = move |raw: syncline::vulkan::RawSubmission<'_>| {
            let of_c = sl_vulkan_submission {
                size: size_of::<sl_vulkan_submission>(),
                queue: from_vk(raw.queue),
                wait_count: raw.waits.len() as u32,
                signal_count: raw.signals.len() as u32,
                // Handles of ash are the numbers that those of C are.
                waits: raw.waits.as_ptr().cast(),
                wait_values: raw.wait_values.as_ptr(),
                wait_stages: raw.wait_stages.as_ptr().cast(),
                signals: raw.signals.as_ptr().cast(),
                signal_values: raw.signal_values.as_ptr(),
            };
            // Before the call, which may submit a part and fail. And so the data does not end while
            // the VkQueue is locked.
            let pointer = data.data;
            if let Some(kept) = data.kept() {
                raw.keep(kept);
            }
            // SAFETY: the caller says that it may be called on any thread.
            match unsafe { work(&raw const of_c, pointer) } {
                0.. => Ok(()),
                code => Err(vk::Result::from_raw(code)),
            }
        };
        let (waits, signals) = (lists.waits.points(), lists.signals.signals()?);
        let submitted = lists.queue.vulkan()?.submit_raw(&waits, &signals, submit)?;
        lists.tell(submission, submitted);
        Ok(())
    })
}

/// CUDA blocks a thread that submits while about a thousand commands are outstanding.
const MOST_COMMANDS: u32 = 500;

/// Submits by calls of the program's own on a CUDA stream, which `work` makes.
///
/// Does not block. `work` is called once, when all waits may go to the driver: on this thread
/// during the call, or later on the thread that releases the submission. The device's context is
/// current meanwhile. The commands that it adds to the stream run after the waits and before the
/// signals. `commands` is their largest number: launches, copies, fills, and nodes of graphs. At
/// most 500 are allowed. `work` must not block, and must not submit to the queue through Syncline.
/// If it returns another number than 0, the submission is refused: this call returns
/// SL_ERROR_WORK, or, if the submission was held, the timelines of the signals fail.
///
/// `free` is called once with `data` after the submission has finished, or when it is known never
/// to run, also if this call fails. It is called by a later call of the queue or the device:
/// sl_queue_idle makes sure. `submission`, which may be null, gets a handle of the submission.
///
/// # Safety
///
/// `work` and `free` may be called on any thread with `data`. What the commands use lives until
/// `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_queue_submit_cuda(
    queue: sl_queue,
    waits: *const sl_point,
    wait_count: usize,
    signals: *const sl_point,
    signal_count: usize,
    commands: u32,
    work: sl_cuda_work,
    data: *mut c_void,
    free: sl_drop,
    submission: *mut sl_submission,
) -> sl_result {
    let data = Data::new(data, free);
    call(|| {
        let work = required(work)?;
        // SAFETY: by the contract of this function.
        let lists = unsafe { Lists::read(queue, (waits, wait_count), (signals, signal_count))? };
        if commands > MOST_COMMANDS {
            let what = format!("is {commands}, and at most {MOST_COMMANDS} are allowed");
            return Err(Refused::argument("commands", what));
        }
        let launch = move |recorder: &mut cuda::Recorder<'_>| {
            recorder.commands(commands.into());
            // SAFETY: the caller says that it may be called on any thread.
            let result = run("the CUDA error ", || unsafe {
                work(recorder.stream(), data.data)
            });
            // Kept after an error, too: work may have added commands before it failed.
            if let Some(kept) = data.kept() {
                recorder.keep(kept);
            }
            result
        };
        let (waits, signals) = (lists.waits.points(), lists.signals.signals()?);
        let submitted = lists.queue.cuda()?.submit(&waits, launch, &signals)?;
        lists.tell(submission, submitted);
        Ok(())
    })
}

thread_local! {
    /// Why the callback on this thread fails.
    static REASON: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls a callback of C. A callback inside of it has a reason of its own.
///
/// # Errors
/// The callback has returned another number than 0, which is told as `what` with the number.
fn run(what: &str, callback: impl FnOnce() -> i32) -> syncline::Result<()> {
    let set = |reason| REASON.try_with(|slot| slot.replace(reason)).ok().flatten();
    let outer = set(None);
    let code = callback();
    let reason = set(outer);
    let text = match (code, reason) {
        (0, _) => return Ok(()),
        (_, Some(reason)) => format!("{reason} (the callback has returned {what}{code})"),
        (_, None) => format!("the callback has returned {what}{code}"),
    };
    Err(Error::work(std::io::Error::other(text)))
}

/// Says why a callback fails. The text is in the errors of all that waits for its signals.
///
/// A callback of sl_queue_submit_host or sl_queue_submit_cuda calls it before it returns another
/// number than 0. For that of sl_queue_submit_vulkan, the VkResult alone is in the errors.
///
/// # Safety
///
/// `reason` is null, or a text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_work_failed(reason: *const c_char) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        let text = unsafe { told(reason) }.into_owned();
        let _ = REASON.try_with(|reason| reason.replace(Some(text)));
        Ok(())
    })
}

/// Whether a submission was held when its call returned. It is released by itself.
#[unsafe(no_mangle)]
pub extern "C" fn sl_submission_was_held(submission: sl_submission, held: *mut bool) -> sl_result {
    call(|| {
        let held = out(held, "held")?;
        held.set(submission.get()?.submitted.is_held());
        Ok(())
    })
}

/// Blocks until the driver has a submission, or it is known never to run, at most `nanoseconds`.
///
/// Call it before anything that relies on the submission's work alone, such as presenting an image
/// that it draws. SL_ERROR_FAILED if the submission did not run; the text has the cause.
#[unsafe(no_mangle)]
pub extern "C" fn sl_submission_wait_submitted(
    submission: sl_submission,
    nanoseconds: u64,
) -> sl_result {
    call(|| {
        let submission = submission.get()?;
        Ok(submission.submitted.wait_submitted(limit(nanoseconds))?)
    })
}

/// Blocks until a submission and all before it on its queue are finished, at most `nanoseconds`.
///
/// Also returns SL_SUCCESS if the submission was skipped: sl_submission_wait_submitted tells.
#[unsafe(no_mangle)]
pub extern "C" fn sl_submission_wait_finished(
    submission: sl_submission,
    nanoseconds: u64,
) -> sl_result {
    call(|| {
        let submission = submission.get()?;
        Ok(submission.submitted.end().wait(limit(nanoseconds))?)
    })
}

/// Frees a handle of a submission, which still runs.
#[unsafe(no_mangle)]
pub extern "C" fn sl_submission_free(submission: sl_submission) -> sl_result {
    call(|| submission.free())
}
