//! Submissions with a callback, and empty ones.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use syncline::backend::Queue as _;
use syncline::vulkan::ash::vk;
use syncline::{Error, Queue, Recorder, Submitted, cuda, host, vulkan};

use crate::handle::{Handle, sl_queue, sl_submission};
use crate::raw::{CUstream, VkQueue, VkSemaphore, from_vk};
use crate::result::{Refused, call, info_in, optional, out, require_size, sl_result, told};
use crate::timeline::{Points, Signals, limit, sl_point};

type HostWork = unsafe extern "C" fn(*mut c_void) -> i32;
type VulkanWork = unsafe extern "C" fn(*const sl_vulkan_submission, *mut c_void) -> i32;
type CudaWork = unsafe extern "C" fn(CUstream, *mut c_void) -> i32;

/// Work of a queue of the host, on a thread of the library. Returns 0 for success.
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

/// A submission: what it waits for, its work, and what it signals.
///
/// Set the callback of the queue's API, or none of the three for a submission without work.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct sl_submit_info {
    /// The size of this structure, which the caller sets.
    pub size: usize,
    /// The points to wait for. May be null if their number is 0.
    pub waits: *const sl_point,
    /// Their number.
    pub wait_count: usize,
    /// The points to signal. Each is above all values of its timeline that are reached or claimed.
    ///
    /// A submission that also waits for a value of the timeline claims only what is above it. So a
    /// consumer may be submitted before its producer.
    pub signals: *const sl_point,
    /// Their number.
    pub signal_count: usize,
    /// Work of a queue of the host, which runs on the queue's thread.
    ///
    /// It may call the library. It must not wait for what comes after it on the queue.
    pub host_work: sl_work,
    /// Makes a vkQueueSubmit of the program's own, with the VkQueue locked.
    ///
    /// It makes one or more submissions that wait for all waits of its sl_vulkan_submission and
    /// then make all of its signals. A missing signal shows as a time-out. It must not block, must
    /// not lock the queue, and must not submit to it through Syncline. If it returns an error, it
    /// has made no signal. An earlier part may be with the driver.
    pub vulkan_work: sl_vulkan_work,
    /// Adds commands of the program's own to a CUDA stream, with the device's context current.
    ///
    /// They run after the waits and before the signals. It must not block, and must not submit to
    /// the queue through Syncline.
    pub cuda_work: sl_cuda_work,
    /// The most commands that cuda_work adds: launches, copies, fills, and nodes of graphs.
    ///
    /// At most 500. 0 stands for 4. CUDA takes about a thousand commands of all streams that wait,
    /// and then blocks the thread that adds one. Syncline holds submissions before that, by this
    /// number. So a number that is too small may block a thread, possibly for ever.
    pub cuda_commands: u32,
    /// 0.
    pub reserved: u32,
    /// The data of the callback. What the work uses lives until it is freed.
    pub data: *mut c_void,
    /// Frees the data once the submission has finished, or is known never to run. May be null.
    pub free: sl_drop,
}

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

/// CUDA blocks a thread that submits while about a thousand commands are outstanding.
const MOST_COMMANDS: u32 = 500;
/// The commands of a callback that does not say how many it adds.
const FEW_COMMANDS: u32 = 4;

/// A queue, and what a submission to it waits for and signals.
struct Lists {
    queue: Arc<Queue>,
    waits: Points,
    signals: Signals,
}

impl Lists {
    /// # Safety
    /// The lists have as many elements as their counts say.
    unsafe fn read(queue: sl_queue, info: &sl_submit_info) -> Result<Self, Refused> {
        // SAFETY: by the contract of this function.
        unsafe {
            Ok(Self {
                queue: queue.get()?,
                waits: Points::read(info.waits, info.wait_count, "waits")?,
                signals: Signals::read(info.signals, info.signal_count)?,
            })
        }
    }

    fn empty(&self, data: Data) -> Result<Submitted<'_>, Refused> {
        let work = move |recorder: &mut Recorder<'_>| {
            if let Some(kept) = data.kept() {
                recorder.keep(kept);
            }
            Ok(())
        };
        let (waits, signals) = (self.waits.points(), self.signals.signals()?);
        Ok(self.queue.submit(&waits, work, &signals)?)
    }

    fn host(&self, work: HostWork, data: Data) -> Result<Submitted<'_>, Refused> {
        let job = move || {
            // The whole of it, and not its pointer alone.
            let data = data;
            // SAFETY: the caller says that it may be called on any thread.
            run("", || unsafe { work(data.data) })
        };
        let work = move |recorder: &mut host::Recorder<'_>| {
            recorder.try_run(job);
            Ok(())
        };
        let (waits, signals) = (self.waits.points(), self.signals.signals()?);
        Ok(self.queue.host()?.submit(&waits, work, &signals)?)
    }

    fn vulkan(&self, work: VulkanWork, data: Data) -> Result<Submitted<'_>, Refused> {
        let submit = move |raw: vulkan::RawSubmission<'_>| {
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
            let (code, reason) = call_back(|| unsafe { work(&raw const of_c, pointer) });
            if code >= 0 {
                return Ok(());
            }
            if let Some(reason) = reason {
                raw.explain(reason);
            }
            Err(vk::Result::from_raw(code))
        };
        let (waits, signals) = (self.waits.points(), self.signals.signals()?);
        Ok(self.queue.vulkan()?.submit_raw(&waits, &signals, submit)?)
    }

    fn cuda(&self, work: CudaWork, commands: u32, data: Data) -> Result<Submitted<'_>, Refused> {
        let commands = match commands {
            0 => FEW_COMMANDS,
            1..=MOST_COMMANDS => commands,
            _ => {
                let what = format!("is {commands}, and at most {MOST_COMMANDS} are allowed");
                return Err(Refused::argument("cuda_commands", what));
            }
        };
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
        let (waits, signals) = (self.waits.points(), self.signals.signals()?);
        Ok(self.queue.cuda()?.submit(&waits, launch, &signals)?)
    }
}

/// Submits to a queue: waits, then work, then signals.
///
/// Does not block. If a wait is not pending, the submission is held until it is. The callback is
/// called once, when all waits may go to the driver: on this thread during the call, or later on
/// the thread that releases the submission. That of a host's queue is called on the queue's thread.
///
/// If the callback returns an error during the call, the submission is refused: SL_ERROR_DRIVER for
/// Vulkan, and SL_ERROR_WORK for CUDA. If it returns an error later, the timelines of the signals
/// fail. If a timeline of the waits fails, those of the signals fail with the same cause.
///
/// `free` of the structure is called once with `data` after the submission has finished, or when it
/// is known never to run, also if this call fails. So it may free command buffers. For a driver's
/// queue, a later call of the queue or the device calls it: sl_queue_idle makes sure.
///
/// `submission`, which may be null, gets a handle of the submission. Free it with
/// sl_submission_free.
///
/// SL_ERROR_UNSUPPORTED for a callback of another API than the queue's. SL_ERROR_INVALID_ARGUMENT
/// for more than one callback. If `info` is null or its size is too small, nothing is freed.
///
/// # Safety
///
/// The callback and `free` may be called on any thread with `data`. The callback submits only what
/// is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sl_queue_submit(
    queue: sl_queue,
    info: *const sl_submit_info,
    submission: *mut sl_submission,
) -> sl_result {
    call(|| {
        // SAFETY: by the contract of this function.
        let (data, info, lists) = unsafe {
            require_size(info, "info")?;
            let data = Data::new((*info).data, (*info).free);
            let info = info_in(info, "info")?;
            (data, info, Lists::read(queue, info)?)
        };
        let place = optional(submission, "submission")?;
        if info.reserved != 0 {
            return Err(Refused::argument(
                "info",
                "has another reserved number than 0",
            ));
        }
        let submitted = match (info.host_work, info.vulkan_work, info.cuda_work) {
            (None, None, None) => lists.empty(data),
            (Some(work), None, None) => lists.host(work, data),
            (None, Some(work), None) => lists.vulkan(work, data),
            (None, None, Some(work)) => lists.cuda(work, info.cuda_commands, data),
            _ => return Err(Refused::argument("info", "has more than one callback")),
        };
        let submitted = submitted?;
        if let Some(place) = place {
            place.set(sl_submission::new(Submission::new(submitted, &lists.queue)));
        }
        Ok(())
    })
}

thread_local! {
    /// Why the callback on this thread fails.
    static REASON: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls a callback of C. Returns its result, and why it fails if it says so.
fn call_back(callback: impl FnOnce() -> i32) -> (i32, Option<String>) {
    let set = |reason| REASON.try_with(|slot| slot.replace(reason)).ok().flatten();
    // A callback inside of it has a reason of its own.
    let outer = set(None);
    let code = callback();
    (code, set(outer))
}

/// Calls a callback of the host or of CUDA.
///
/// # Errors
/// The callback has returned another number than 0, which is told as `what` with the number.
fn run(what: &str, callback: impl FnOnce() -> i32) -> syncline::Result<()> {
    let text = match call_back(callback) {
        (0, _) => return Ok(()),
        (code, Some(reason)) => format!("{reason} (the callback has returned {what}{code})"),
        (code, None) => format!("the callback has returned {what}{code}"),
    };
    Err(Error::work(std::io::Error::other(text)))
}

/// Says why a callback fails. The text is in the errors of all that waits for its signals.
///
/// A callback calls it before it returns an error.
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
